//! The built-in scenarios: one table, one file each.

use super::{Overrides, Scenario};

/// A scenario that the program brings along.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub(super) text: &'static str,
}

macro_rules! built_in {
    ($($name:literal)*) => {
        /// All of them, in the order they are best met in.
        pub const BUILT_IN: &[BuiltIn] = &[
            $(BuiltIn { name: $name, text: include_str!(concat!("../../scenarios/", $name, ".toml")) },)*
        ];
    };
}

built_in! {
    "per-hop"
    "single-owner"
    "single-owner-checkout"
    "single-owner-pricing"
    "single-owner-client"
    "client-too"
    "transient"
    "flaky"
    "refused"
    "after-work"
    "invalid"
    "retry-everything"
    "translated"
    "re-translated"
    "translated-in-the-middle"
    "http-503-received"
    "raw-tonic-codes"
    "backoff"
    "attempt-timeout"
    "headers-first"
    "headers-first-message"
    "pushback"
    "throttle"
    "budget-window"
    "budget-in-flight"
    "only-first-tries"
    "hedge-a-cheap-read"
    "slow"
    "slow-with-deadline"
    "deadline-dropped"
    "cancelled"
    "detached"
    "hang"
    "connection-reset"
    "stream-reset"
    "goaway"
    "overload"
    "client-fault-inside"
    "client-fault-outside"
    "open-loop"
    "sidecars"
    "long-chain"
    "hidden-layer"
    "fan-out"
    "fan-out-parallel"
    "envoy-defaults"
    "nested-unavailable"
    "nested-invalid"
    "nested-transient"
    "single-owner-unavailable"
    "single-owner-invalid"
    "single-owner-transient"
}

/// The built-in scenario of this name.
pub(super) fn find(name: &str) -> Option<&'static BuiltIn> {
    BUILT_IN.iter().find(|built_in| built_in.name == name)
}

impl BuiltIn {
    /// The line that says what it teaches.
    pub fn about(&self) -> String {
        self.scenario().map(|scenario| scenario.about).unwrap_or_default()
    }

    /// Whether it runs real Envoys, which a machine may not have.
    pub fn needs_envoy(&self) -> bool {
        self.scenario().is_some_and(|scenario| scenario.chain.has_envoys())
    }

    /// What a run of it exits with: 1 where it shows something that no prediction knows.
    pub fn exit_code(&self) -> u8 {
        let is_hidden = |scenario: Scenario| scenario.chain.callers().any(|(_, caller)| caller.undeclared > 1);
        u8::from(self.scenario().is_some_and(is_hidden))
    }

    fn scenario(&self) -> Option<Scenario> {
        Scenario::load(Some(self.name), &Overrides::default()).ok()
    }
}
