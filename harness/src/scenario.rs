//! A scenario: everything a run is told, validated and effective. TOML, chain lines and flags end up here.

use chassis::{
    config::{OnFailure, TransportCodes},
    fault::Fault,
    policy::Policy,
};
use std::time::Duration;

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
}

/// How one caller calls.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Caller {
    /// Its retry policy.
    pub retry: Policy,
    /// Attempts of the proxy under it for each of its own; 1 means there is none.
    pub proxy_attempts: ProxyAttempts,
    /// Whether tonic's own codes are normalised.
    pub transport_codes: TransportCodes,
}

/// Attempts of a proxy; 1 by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyAttempts(pub u32);

impl Default for ProxyAttempts {
    fn default() -> Self {
        Self(1)
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
    /// How it misbehaves.
    pub fault: Fault,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// How many requests.
    pub requests: u64,
    /// How many at once, at most.
    pub concurrency: u32,
    /// What every request asks for; empty is an invalid request.
    pub item: String,
    /// Time each request has, from its first attempt; `None` is no limit.
    pub deadline: Option<Duration>,
    /// For drawn faults and jitter.
    pub seed: u64,
}
