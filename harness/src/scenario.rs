//! A scenario: everything a run is told, validated and effective. TOML, chain lines and flags end up here.
//!
//! On the way: `tree` (TOML with places) → `read` (which keys there are) → `build` (what they mean together, flags on top).
//! Back again: `effective` (the keys of a file) and `repeat` (a command line).

mod build;
mod builtin;
mod configs;
mod effective;
mod limits;
mod overrides;
mod read;
mod repeat;
mod sidecars;
mod standing;
#[cfg(test)]
pub(crate) mod strategies;
pub(crate) mod suggest;
#[cfg(test)]
mod tests;
mod tree;
mod values;

pub(crate) use build::CUSTOM;
pub use build::{DEFAULT_ATTEMPTS, DEFAULT_ITEM, DEFAULT_SCENARIO, default_names};
pub use builtin::{BUILT_IN, BuiltIn};
pub use configs::{CONTROL_PORTS, MAX_SERVICES_ATTACHED, Program, Role, SERVICE_PORTS, Start};
pub(crate) use effective::duration;
pub(crate) use limits::grouped;
pub use limits::{ARRIVALS_PER_SECOND, DEFAULT_MAX_CALLS, MAX_STANDING, check_deadline, check_max_calls};
pub use overrides::{Mesh, Overrides};
pub use repeat::shell_quoted;
pub(crate) use sidecars::SIDECAR_RIGHT;
pub use standing::Change;
pub use tree::Place;
pub(crate) use values::{
    CANCEL_RIGHT, DEADLINE_RIGHT, RATE_RIGHT, SEED_RIGHT, checked_item, parse_cancel_after, parse_deadline, parse_rate,
    parse_retry_on, parse_seed,
};
pub use values::{MAX_CONCURRENCY, MAX_DEADLINE, MAX_DEPTH, MAX_ITEM, MAX_REQUESTS, OPEN_CONCURRENCY, OrNone, RATES};

use crate::chain_line::ChainLineError;
use chassis::{
    config::{FanOut, OnFailure, PassedOn, TransportCodes},
    fault::ServiceFault,
    policy::{Policy, RetryOn},
};
use std::time::Duration;
use thiserror::Error;

/// A validated scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name; `custom` for a chain line.
    pub name: String,
    /// One line that says what it teaches; may be empty.
    pub about: String,
    /// Who calls whom, and how.
    pub chain: Chain,
    /// What is sent.
    pub load: Load,
}

/// Who calls whom, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// The load generator.
    pub client: Caller,
    /// The services from the top to the bottom: 2 to 13.
    pub services: Vec<Service>,
    /// What the proxies on the links are.
    pub sidecar: SidecarKind,
}

impl Chain {
    /// Whether any link has a proxy.
    pub fn has_proxies(&self) -> bool {
        self.callers().any(|(_, caller)| caller.has_proxy())
    }

    /// Whether real Envoys stand on its links.
    pub fn has_envoys(&self) -> bool {
        self.sidecar == SidecarKind::Envoy && self.has_proxies()
    }

    /// Arrivals at all services together that one request causes when nothing fails: what its answer needs.
    pub fn arrivals_of_an_answer(&self) -> u64 {
        let visits = self.services.iter().scan(1_u64, |visits, service| {
            let here = *visits;
            *visits = visits.saturating_mul(service.calls.into());
            Some(here)
        });
        visits.fold(0, u64::saturating_add)
    }

    /// Everybody who calls, with their names: the client, then every service but the bottom one.
    pub fn callers(&self) -> impl Iterator<Item = (&str, &Caller)> {
        let services = self.services.split_last().map_or(&[][..], |(_, callers)| callers);
        let services = services.iter().map(|service| (service.name.as_str(), &service.caller));
        std::iter::once((crate::chain_line::CLIENT, &self.client)).chain(services)
    }

    /// The same, to be changed.
    pub(crate) fn callers_mut(&mut self) -> impl Iterator<Item = (&str, &mut Caller)> {
        let callers = self.services.len() - 1;
        let services = self.services[..callers].iter_mut();
        let services = services.map(|service| (service.name.as_str(), &mut service.caller));
        std::iter::once((crate::chain_line::CLIENT, &mut self.client)).chain(services)
    }
}

/// How one caller calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// Its retry policy.
    pub retry: Policy,
    /// The policy of the proxy under it, for each of its own attempts; one attempt means that there is no proxy.
    pub proxy: Policy,
    /// Attempts that a layer which nobody declared makes of each attempt that leaves; 1 means there is none.
    pub undeclared: u32,
    /// Whether tonic's own codes are normalised.
    pub transport_codes: TransportCodes,
}

impl Default for Caller {
    /// One attempt, and nothing on its link.
    fn default() -> Self {
        Self {
            retry: Policy::default(),
            proxy: Policy::default(),
            undeclared: 1,
            transport_codes: TransportCodes::default(),
        }
    }
}

impl Caller {
    /// Whether a proxy stands under it.
    pub fn has_proxy(&self) -> bool {
        self.proxy.attempts > 1
    }

    /// What a layer that nobody declared tries again: the same as the layer above it.
    fn undeclared_retry_on(&self) -> &RetryOn {
        if self.has_proxy() {
            &self.proxy.retry_on
        } else {
            &self.retry.retry_on
        }
    }
}

/// What the proxies on the links are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SidecarKind {
    /// Our own.
    #[default]
    Builtin,
    /// Real Envoys.
    Envoy,
}

impl SidecarKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Builtin, Self::Envoy];

    /// As files and flags write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Envoy => "envoy",
        }
    }
}

/// One service.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Its name in the chain line.
    pub name: String,
    /// How it calls the next one; unused at the bottom.
    pub caller: Caller,
    /// What it answers when a call it made has failed.
    pub on_failure: OnFailure,
    /// How it misbehaves, or its caller in its place.
    pub fault: ServiceFault,
    /// What it passes on of the time it was given.
    pub deadline: PassedOn,
    /// Whether its work goes on when its caller has left.
    pub detached: bool,
    /// How often it calls the next one for each arrival; 1 at the bottom.
    pub calls: u32,
    /// How it makes several calls.
    pub fan_out: FanOut,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// How many requests.
    pub requests: u64,
    /// How many at once, at most.
    pub concurrency: u32,
    /// Requests started per second, whatever became of those before; `None` starts one when another has ended.
    pub rate: Option<f64>,
    /// What every request asks for; empty is an invalid request.
    pub item: String,
    /// Time each request has, from its first attempt; `None` is no limit.
    pub deadline: Option<Duration>,
    /// The client drops each request after so long.
    pub cancel_after: Option<Duration>,
    /// For drawn faults and jitter.
    pub seed: u64,
}

/// Who is told the right name needs no list of all.
fn way_on(hint: &str, known: &str) -> String {
    if hint.is_empty() {
        format!(" (built in: {known}; or give a .toml file or 'web x3 > ledger down')")
    } else {
        format!("{hint} (`scenarios` lists all)")
    }
}

/// What is wrong with a chain line, which is named once.
fn of_the_line(error: &ChainLineError) -> String {
    let text = error.to_string();
    if text.contains("chain line") {
        text
    } else {
        format!("the chain line: {text}")
    }
}

/// Why something is no scenario. Every text is one line and fit for a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScenarioError {
    /// A file that cannot be read.
    #[error("{file} cannot be read: {reason}")]
    Unreadable {
        /// Its path.
        file: String,
        /// What the system says.
        reason: String,
    },
    /// A file of more than 1 MiB.
    #[error("{0} is larger than 1 MiB; a scenario file is a page of text")]
    TooLarge(String),
    /// No built-in scenario, no file, no chain line.
    #[error("there is no scenario `{name}`{}", way_on(.hint, .known))]
    Unknown {
        /// The name as read.
        name: String,
        /// `; did you mean …?`, or nothing.
        hint: String,
        /// The built-in ones.
        known: String,
    },
    /// A chain line that cannot be read.
    #[error("{}", of_the_line(.0))]
    ChainLine(#[from] ChainLineError),
    /// A key that does not exist.
    #[error("{place}: `{key}` is no key of {section}{advice}")]
    UnknownKey {
        /// Where it stands.
        place: Place,
        /// The key as read.
        key: String,
        /// The table.
        section: String,
        /// A suggestion and the keys that exist.
        advice: String,
    },
    /// A value that its key cannot take.
    #[error("{place}: {key} = {read}: {right}")]
    Value {
        /// Where it stands.
        place: Place,
        /// The key.
        key: String,
        /// The value as read.
        read: String,
        /// What would be right.
        right: String,
    },
    /// Anything else that is wrong at a place.
    #[error("{place}: {message}")]
    Wrong {
        /// Where.
        place: Place,
        /// What.
        message: String,
    },
    /// A chain that can be predicted and not be run.
    #[error("{0}")]
    NotRunnable(String),
}
