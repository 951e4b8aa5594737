//! What a prediction is made from: callers, services, faults and the load. Data alone.

use crate::fault::{ClientFault, Fault};
use std::fmt;

/// A gRPC status code by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub i32);

impl Code {
    /// It worked.
    pub const OK: Self = Self(0);
    /// The caller gave up.
    pub const CANCELLED: Self = Self(1);
    /// Nothing better is known.
    pub const UNKNOWN: Self = Self(2);
    /// What the bottom service answers to an invalid item.
    pub const INVALID_ARGUMENT: Self = Self(3);
    /// The time that was given is over.
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    /// Not allowed.
    pub const PERMISSION_DENIED: Self = Self(7);
    /// What an overloaded service answers.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    /// No such method.
    pub const UNIMPLEMENTED: Self = Self(12);
    /// Something broke.
    pub const INTERNAL: Self = Self(13);
    /// What a caller sees on a refused connection.
    pub const UNAVAILABLE: Self = Self(14);
    /// Nobody known.
    pub const UNAUTHENTICATED: Self = Self(16);

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

    /// The code of this name.
    pub fn named(name: &str) -> Option<Self> {
        let number = Self::NAMES.iter().position(|known| *known == name)?;
        i32::try_from(number).ok().map(Self)
    }

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
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Topology {
    /// Who calls, the client first.
    pub callers: Vec<Caller>,
    /// Who is called, the top first; as many as callers.
    pub services: Vec<Service>,
    /// What the client asks for.
    pub load: Load,
}

/// One retry layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// Its name.
    pub name: String,
    /// Whether it is the code of a service or a proxy under one.
    pub layer: Layer,
    /// Most attempts of one call, the first included; 0 is read as 1.
    pub attempts: u32,
    /// Which failures it tries again.
    pub retry_on: RetryOn,
    /// Whether failures of the transport are never tried again, whatever code they stand for.
    pub answers_only: bool,
    /// Everything else that decides whether and when it tries again.
    pub policy: Policy,
    /// The fault in its own way out.
    pub client_fault: Option<ClientFault>,
    /// Whether it goes by the codes that tonic gives to a broken transport, instead of gRPC's.
    pub raw_codes: bool,
}

impl Topology {
    /// Whether a throttle or a budget may refuse a retry of somebody: what one request does then depends on the others.
    pub fn is_limited(&self) -> bool {
        self.callers.iter().any(Caller::is_limited)
    }
}

impl Caller {
    /// Whether it retries and has a throttle or a budget.
    pub(crate) fn is_limited(&self) -> bool {
        self.attempts > 1 && (self.policy.throttle.is_some() || self.policy.budget.is_some())
    }
}

/// What retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layer {
    /// The code of a service, or the client. What its service answers is its own: a code, without what came with it.
    #[default]
    Code,
    /// A proxy: it hands up answers as they came, what they say of the next attempt included, and leaves
    /// `grpc-previous-rpc-attempts` as it was.
    Proxy,
    /// A real Envoy: a proxy whose attempts have no number in the attempt path, and to which every failure of the transport
    /// is UNAVAILABLE.
    Envoy,
}

/// Everything but attempts and codes that decides whether and when a caller tries again. Times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Policy {
    /// The wait before a retry; `None` retries at once.
    pub backoff: Option<Backoff>,
    /// Limit of one attempt; it then has failed with `DEADLINE_EXCEEDED`.
    pub attempt_timeout_us: Option<u64>,
    /// Whether one message is held back, so that an answer which fails behind its headers can be tried again.
    pub commits_late: bool,
    /// Whether a callee's word on the next attempt is ignored.
    pub ignores_pushback: bool,
    /// Retry tokens that failures take and successes give.
    pub throttle: Option<Throttle>,
    /// A share of the traffic that retries may make.
    pub budget: Option<Budget>,
    /// The next attempt goes out after this wait, without a failure.
    pub hedge_us: Option<u64>,
    /// Whether a call that itself arrived as a retry is tried once.
    pub only_first_tries: bool,
}

/// `min(initial * multiplier^(retry - 1), max)` microseconds, times a number from `least` to `most`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// Before the first retry, microseconds.
    pub initial_us: u64,
    /// Growth from one retry to the next.
    pub multiplier: f64,
    /// Longest, microseconds, before it is spread.
    pub max_us: u64,
    /// Smallest factor.
    pub least: f64,
    /// Largest factor.
    pub most: f64,
}

/// gRPC's `retryThrottling`, in thousandths of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// A full bucket.
    pub max_milli: u64,
    /// What a success gives.
    pub ratio_milli: u64,
}

/// A share of the traffic that retries may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// At most a share of the attempts in flight are retries at once.
    InFlight {
        /// Thousandths of a percent.
        percent_milli: u64,
        /// So many retries at once are always allowed.
        min_concurrency: u64,
    },
    /// A call deposits `ratio` before its first attempt, a retry costs 1, and both are forgotten after `ttl`.
    Window {
        /// Thousandths of a retry for each call.
        ratio_milli: u64,
        /// So many retries are allowed besides: per second times `ttl`, in thousandths.
        reserve_milli: u64,
        /// Microseconds.
        ttl_us: u64,
    },
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
    /// What it passes on of the time it was given.
    pub passes_on: PassesOn,
    /// Whether its work goes on when its caller has left.
    pub detached: bool,
    /// How often it calls the next for each arrival that it works on; 0 is read as 1. A proxy and the bottom service have 1.
    pub calls: u32,
    /// How it makes several calls.
    pub fan_out: FanOut,
}

impl Service {
    /// Whether it has several calls under way at once.
    pub(crate) fn is_parallel(&self) -> bool {
        self.calls > 1 && self.fan_out == FanOut::Parallel
    }
}

/// How a service makes several calls for one arrival. Its work has ended OK when all of them have; otherwise it ends as the
/// first of them, by their numbers, that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FanOut {
    /// The next starts when the last was answered OK; the first failure ends them.
    #[default]
    Sequence,
    /// All start at once, and all run to their end.
    Parallel,
}

/// What a service passes on of the time it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PassesOn {
    /// What is left.
    #[default]
    Rest,
    /// Nothing: its callee knows no deadline.
    Nothing,
    /// At most so many microseconds; less when less is left.
    AtMost(u64),
}

/// What the client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// How many requests.
    pub requests: u64,
    /// The number of the first; the others follow. Draws depend on it.
    pub first_request: u64,
    /// How many of them at once, at most.
    pub concurrency: u64,
    /// The seed of the draws.
    pub seed: u64,
    /// The time each request has, microseconds; `None` is no limit.
    pub deadline_us: Option<u64>,
    /// The client drops a request after so many microseconds.
    pub cancel_after_us: Option<u64>,
    /// Microseconds from the start of one request to that of the next, whatever became of it; `None` starts one when
    /// another has ended.
    pub interval_us: Option<u64>,
    /// Whether the item is one that the bottom service answers with `INVALID_ARGUMENT`.
    pub invalid_item: bool,
}
