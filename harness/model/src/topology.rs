//! What a prediction is made from: callers, services, faults and the load. Data alone.

use std::fmt;

/// A gRPC status code by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub i32);

impl Code {
    /// It worked.
    pub const OK: Self = Self(0);
    /// What the bottom service answers to an invalid item.
    pub const INVALID_ARGUMENT: Self = Self(3);
    /// What a caller sees on a refused connection.
    pub const UNAVAILABLE: Self = Self(14);

    /// The names of the standard, by number.
    const NAMES: [&'static str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];

    /// Whether this is any code but OK.
    pub fn is_failure(self) -> bool {
        self != Self::OK
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match usize::try_from(self.0).ok().and_then(|number| Self::NAMES.get(number)) {
            Some(name) => f.pad(name),
            None => write!(f, "code {}", self.0),
        }
    }
}

/// A chain: `callers[i]` calls `services[i]`, and `callers[i + 1]` sits inside `services[i]`. The first caller is the
/// client, the last service the bottom. A proxy on a link is one more service without a fault and one more caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Who calls, the client first.
    pub callers: Vec<Caller>,
    /// Who is called, the top first; as many as callers.
    pub services: Vec<Service>,
    /// What the client asks for.
    pub load: Load,
}

/// One retry layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its name.
    pub name: String,
    /// Most attempts of one call, the first included; 0 is read as 1.
    pub attempts: u32,
    /// Which failures it tries again.
    pub retry_on: RetryOn,
}

/// Which failures a caller tries again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryOn {
    /// Every failure.
    Any,
    /// These codes.
    Codes(Vec<Code>),
}

/// One service of the chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// How it misbehaves.
    pub fault: Fault,
    /// What it answers when its own call failed; `None` hands the code up unchanged. The bottom service makes no call.
    pub on_failure: Option<Code>,
}

/// How a service misbehaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// It works.
    None,
    /// Its port is closed: attempts are sent, nothing is received, and the caller sees UNAVAILABLE.
    Refuse,
    /// It answers with a failure.
    Fail(Fail),
}

/// An arrival fails when it is within `first` and its draw is below `p`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fail {
    /// What it answers.
    pub code: Code,
    /// Only the first so many arrivals; `None` means every one.
    pub first: Option<u64>,
    /// Chance of each arrival, 0 to 1; `None` means certain.
    pub p: Option<f64>,
    /// Whether `first` counts the arrivals of the process; otherwise those of each request.
    pub per_process: bool,
    /// Whether the work is done first. Work that fails by itself keeps its own status.
    pub after: bool,
}

/// What the client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// How many requests.
    pub requests: u64,
    /// The number of the first; the others follow. Draws depend on it.
    pub first_request: u64,
    /// How many of them at once, at most.
    pub concurrency: u64,
    /// The seed of the draws.
    pub seed: u64,
    /// Whether the item is one that the bottom service answers with `INVALID_ARGUMENT`.
    pub invalid_item: bool,
}
