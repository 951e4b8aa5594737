//! What flags say on top of a scenario: typed, each value already sound by itself.

use super::{OrNone, SidecarKind};
use chassis::{fault::ServiceFault, policy::RetryOn};
use std::time::Duration;

/// What flags say on top of a scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overrides {
    /// `--set PATH=VALUE`, in order.
    pub set: Vec<String>,
    /// `--depth`: links between services.
    pub depth: Option<usize>,
    /// `--attempts`, or `--retries` plus one: of every caller of the chain.
    pub attempts: Option<u32>,
    /// `--attempts-at` and `--retries-at`: of one caller.
    pub attempts_at: Vec<(String, u32)>,
    /// `--owner`: the only caller that repeats.
    pub owner: Option<String>,
    /// `--sidecar`: what the proxies are.
    pub sidecar: Option<SidecarKind>,
    /// `--sidecar-attempts`, or `--sidecar-retries` plus one: of the proxy on every link between two services.
    pub sidecar_attempts: Option<u32>,
    /// `--sidecar-attempts-at` and `--sidecar-retries-at`: of the proxy under one caller.
    pub sidecar_attempts_at: Vec<(String, u32)>,
    /// `--undeclared`: of a layer behind one caller that no configuration names.
    pub undeclared: Vec<(String, u32)>,
    /// `--retry-on`: of every caller, proxy and the client.
    pub retry_on: Option<RetryOn>,
    /// `--fault`; without a service it is the bottom one's.
    pub faults: Vec<(Option<String>, ServiceFault)>,
    /// `--requests`.
    pub requests: Option<u64>,
    /// `--concurrency`.
    pub concurrency: Option<u32>,
    /// `--rate`.
    pub rate: Option<f64>,
    /// `--cancel-after`.
    pub cancel_after: Option<Duration>,
    /// `--item`.
    pub item: Option<String>,
    /// `--deadline`.
    pub deadline: Option<OrNone<Duration>>,
    /// `--seed`.
    pub seed: Option<u64>,
}
