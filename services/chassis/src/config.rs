//! One service's whole configuration, and its one codec: pairs of names and values, as the environment carries them and as the
//! control port reports them. The only reader of the environment.

use crate::{
    address::Address,
    code::{self, Code},
    export::{self, Export},
    fault::{ClientFault, Fault},
    policy::{self, Policy},
};
use std::{
    collections::BTreeMap,
    fmt::Display,
    io::Read as _,
    net::{Ipv4Addr, SocketAddr},
    str::FromStr,
    time::Duration,
};
use thiserror::Error;

/// Everything a service process is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The name used in reports, flags and `service.name`.
    pub service: String,
    /// Where the service port listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the control port listens.
    pub control_listen: SocketAddr,
    /// What it is to the chain.
    pub layer: Layer,
    /// Whom it calls; `None` at the bottom.
    pub callee: Option<Callee>,
    /// When it tries a call again.
    pub retry: Policy,
    /// What it answers when a call it made has failed for good.
    pub on_failure: OnFailure,
    /// Whether tonic's own codes are normalised before the policy looks.
    pub transport_codes: TransportCodes,
    /// What it passes on of the time it was given.
    pub deadline: PassedOn,
    /// Whether its work goes on when its caller has left.
    pub detached: bool,
    /// How often it calls its callee for each arrival, from 1 to [`MAX_CALLS`].
    pub calls: u32,
    /// How it makes several calls.
    pub fan_out: FanOut,
    /// How it misbehaves.
    pub fault: Fault,
    /// How its outbound stack misbehaves.
    pub client_fault: Option<ClientFault>,
    /// The run's seed, for drawn faults and jitter.
    pub seed: u64,
    /// The run's nonce: marks its spans, so that strangers' are told apart.
    pub run: String,
    /// Where its spans go.
    pub otlp: Export,
    /// Spans that may wait for export before they are dropped.
    pub span_queue: usize,
    /// Single arrivals kept for receipts.
    pub records: usize,
}

/// What a process is to the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layer {
    /// A service: it answers for itself, and what it sends is its own.
    #[default]
    Service,
    /// A proxy on a link: it hands answers up as they are, and is an attempt of nobody but itself.
    Proxy,
    /// A proxy that no configuration names: everything passes it unchanged, and it leaves no trace of its own.
    Undeclared,
    /// A real Envoy on a link. No process here serves it; this describes one.
    Envoy,
}

/// The next service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callee {
    /// Its name in reports.
    pub name: String,
    /// Its service port.
    pub address: Address,
}

/// What a caller answers when its callee has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// The callee's code, unchanged: what multiplies.
    #[default]
    Pass,
    /// This code instead: the multiplication stops or starts here.
    Answer(Code),
}

/// What a service passes on of the time it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PassedOn {
    /// The time that is left.
    #[default]
    Pass,
    /// Nothing: its callee knows no deadline.
    Drop,
    /// At most this; less when less is left.
    AtMost(Duration),
}

/// How a service makes several calls for one arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FanOut {
    /// The next starts when the last was answered OK; the first failure ends them.
    #[default]
    Sequence,
    /// All start at once, and all run to their end.
    Parallel,
}

/// Most calls that one arrival may cause.
pub const MAX_CALLS: u32 = 100;

/// Whether tonic's own codes are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportCodes {
    /// Connection refused or lost is UNAVAILABLE, an own timeout is `DEADLINE_EXCEEDED`, as in other gRPC libraries.
    #[default]
    Normalized,
    /// What tonic gives.
    Raw,
}

/// Why a set of pairs is no configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A name that must be there.
    #[error("{0} is not set")]
    Missing(&'static str),
    /// A name of ours that does not exist.
    #[error("{0} is no setting of a service (settings: {known})", known = NAMES.join(", "))]
    Unknown(String),
    /// A value that cannot be read.
    #[error("{name} = `{value}`: {right}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The value as read.
        value: String,
        /// What would be right.
        right: String,
    },
}

/// What every name of ours begins with.
pub const PREFIX: &str = "RETRYSCOPE_";

const SERVICE: &str = "RETRYSCOPE_SERVICE";
const LISTEN: &str = "RETRYSCOPE_LISTEN";
const CONTROL_LISTEN: &str = "RETRYSCOPE_CONTROL_LISTEN";
const LAYER: &str = "RETRYSCOPE_LAYER";
const CALLEE: &str = "RETRYSCOPE_CALLEE";
const CALLEE_ADDRESS: &str = "RETRYSCOPE_CALLEE_ADDRESS";
const ATTEMPTS: &str = "RETRYSCOPE_ATTEMPTS";
const RETRY_ON: &str = "RETRYSCOPE_RETRY_ON";
const BACKOFF: &str = "RETRYSCOPE_BACKOFF";
const CONNECT_FAILURE: &str = "RETRYSCOPE_CONNECT_FAILURE";
const ATTEMPT_TIMEOUT: &str = "RETRYSCOPE_ATTEMPT_TIMEOUT";
const COMMIT: &str = "RETRYSCOPE_COMMIT";
const PUSHBACK: &str = "RETRYSCOPE_PUSHBACK";
const THROTTLE: &str = "RETRYSCOPE_THROTTLE";
const BUDGET: &str = "RETRYSCOPE_BUDGET";
const HEDGE: &str = "RETRYSCOPE_HEDGE";
const ONLY_FIRST_TRIES: &str = "RETRYSCOPE_ONLY_FIRST_TRIES";
const ON_FAILURE: &str = "RETRYSCOPE_ON_FAILURE";
const DEADLINE: &str = "RETRYSCOPE_DEADLINE";
/// Whether its work goes on when its caller has left.
pub const DETACHED: &str = "RETRYSCOPE_DETACHED";
const CALLS: &str = "RETRYSCOPE_CALLS";
const FAN_OUT: &str = "RETRYSCOPE_FAN_OUT";
const TRANSPORT_CODES: &str = "RETRYSCOPE_TRANSPORT_CODES";
/// How it misbehaves.
pub const FAULT: &str = "RETRYSCOPE_FAULT";
/// How its outbound stack misbehaves.
pub const CLIENT_FAULT: &str = "RETRYSCOPE_CLIENT_FAULT";
/// The seed of drawn faults.
pub const SEED: &str = "RETRYSCOPE_SEED";
const RUN: &str = "RETRYSCOPE_RUN";
const OTLP: &str = "RETRYSCOPE_OTLP";
const SPAN_QUEUE: &str = "RETRYSCOPE_SPAN_QUEUE";
const RECORDS: &str = "RETRYSCOPE_RECORDS";

/// Every setting of a service.
pub const NAMES: [&str; 30] = [
    SERVICE,
    LISTEN,
    CONTROL_LISTEN,
    LAYER,
    CALLEE,
    CALLEE_ADDRESS,
    ATTEMPTS,
    RETRY_ON,
    CONNECT_FAILURE,
    BACKOFF,
    ATTEMPT_TIMEOUT,
    COMMIT,
    PUSHBACK,
    THROTTLE,
    BUDGET,
    HEDGE,
    ONLY_FIRST_TRIES,
    ON_FAILURE,
    DEADLINE,
    DETACHED,
    CALLS,
    FAN_OUT,
    TRANSPORT_CODES,
    FAULT,
    CLIENT_FAULT,
    SEED,
    RUN,
    OTLP,
    SPAN_QUEUE,
    RECORDS,
];

/// The settings that can be switched while the service runs.
pub const SWITCHABLE: [&str; 20] = [
    ATTEMPTS,
    RETRY_ON,
    CONNECT_FAILURE,
    BACKOFF,
    ATTEMPT_TIMEOUT,
    COMMIT,
    PUSHBACK,
    THROTTLE,
    BUDGET,
    HEDGE,
    ONLY_FIRST_TRIES,
    ON_FAILURE,
    DEADLINE,
    DETACHED,
    CALLS,
    FAN_OUT,
    TRANSPORT_CODES,
    FAULT,
    CLIENT_FAULT,
    SEED,
];

/// Names of ours that are no setting: the secret is never reported, and the others are the harness's.
const OTHERS: [&str; 5] = [
    CONTROL_TOKEN,
    CONTROL_TOKEN_FILE,
    "RETRYSCOPE_ATTACH",
    "RETRYSCOPE_TRACE_URL",
    "RETRYSCOPE_ENVOY",
];
/// The secret of the control port.
pub const CONTROL_TOKEN: &str = "RETRYSCOPE_CONTROL_TOKEN";
/// A file that holds it; [`CONTROL_TOKEN`] beats it.
pub const CONTROL_TOKEN_FILE: &str = "RETRYSCOPE_CONTROL_TOKEN_FILE";

/// Most bytes of it that are read.
const MAX_TOKEN_FILE: u64 = 4_096;

/// Spans that may wait in a queue by default: two seconds of a stopped collector at full load.
pub const DEFAULT_SPAN_QUEUE: usize = 65_536;
/// Single arrivals kept by default.
pub const DEFAULT_RECORDS: usize = 65_536;

impl Config {
    /// A service of this name with every default: free loopback ports, no callee, no retries, no fault, no spans.
    pub fn named(service: &str) -> Self {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            service: service.to_owned(),
            listen: loopback,
            control_listen: loopback,
            layer: Layer::default(),
            callee: None,
            retry: Policy::default(),
            on_failure: OnFailure::default(),
            transport_codes: TransportCodes::default(),
            deadline: PassedOn::default(),
            detached: false,
            calls: 1,
            fan_out: FanOut::default(),
            fault: Fault::default(),
            client_fault: None,
            seed: 27,
            run: String::new(),
            otlp: Export::None,
            span_queue: DEFAULT_SPAN_QUEUE,
            records: DEFAULT_RECORDS,
        }
    }

    /// Reads the environment of this process. Its name and what it is to the chain are those of `usual` where the environment
    /// says nothing of them.
    pub fn from_env(usual: &Self) -> Result<Self, ConfigError> {
        let ours = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            (name.starts_with(PREFIX) && !OTHERS.contains(&name.as_str()))
                .then(|| (name, value.to_string_lossy().into_owned()))
        });
        let mut pairs: BTreeMap<_, _> = ours.collect();
        if !pairs.contains_key(OTLP) {
            let export = export::asked_for(|name| std::env::var(name).ok())?;
            pairs.insert(OTLP.to_owned(), export.to_string());
        }
        for (name, value) in [(SERVICE, usual.service.clone()), (LAYER, usual.layer.to_string())] {
            pairs.entry(name.to_owned()).or_insert(value);
        }
        Self::read(&pairs)
    }

    /// Reads pairs; names left out keep their defaults.
    pub fn read(pairs: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        if let Some(unknown) = pairs.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(ConfigError::Unknown(unknown.clone()));
        }
        let pairs = Pairs(pairs);
        let name = pairs.get(SERVICE).ok_or(ConfigError::Missing(SERVICE))?;
        if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            let shown = name.escape_debug().to_string();
            return Err(wrong(SERVICE, &shown, &"a name is printable ASCII without blanks"));
        }
        let default = Self::named(name);
        let callee = match (pairs.get(CALLEE), pairs.read(CALLEE_ADDRESS)?) {
            (Some(name), Some(address)) => Some(Callee {
                name: name.to_owned(),
                address,
            }),
            (None, None) => None,
            (Some(_), None) => return Err(ConfigError::Missing(CALLEE_ADDRESS)),
            (None, Some(_)) => return Err(ConfigError::Missing(CALLEE)),
        };
        let address = |name, default| {
            Ok(pairs
                .told(name, "write host:port with an IP address")?
                .unwrap_or(default))
        };
        Ok(Self {
            service: default.service,
            listen: address(LISTEN, default.listen)?,
            control_listen: address(CONTROL_LISTEN, default.control_listen)?,
            layer: pairs.read(LAYER)?.unwrap_or_default(),
            callee,
            retry: pairs.policy()?,
            on_failure: pairs.read(ON_FAILURE)?.unwrap_or_default(),
            transport_codes: pairs.read(TRANSPORT_CODES)?.unwrap_or_default(),
            deadline: pairs.read(DEADLINE)?.unwrap_or_default(),
            detached: pairs.told(DETACHED, TRUE_OR_FALSE)?.unwrap_or_default(),
            calls: pairs.calls()?,
            fan_out: pairs.read(FAN_OUT)?.unwrap_or_default(),
            fault: pairs.read(FAULT)?.unwrap_or_default(),
            client_fault: pairs.read(CLIENT_FAULT)?,
            seed: pairs.told(SEED, A_NUMBER)?.unwrap_or(default.seed),
            run: pairs.get(RUN).unwrap_or_default().to_owned(),
            otlp: pairs.get(OTLP).map_or(Export::None, Export::read),
            span_queue: pairs.told(SPAN_QUEUE, A_NUMBER)?.unwrap_or(default.span_queue),
            records: pairs.told(RECORDS, A_NUMBER)?.unwrap_or(default.records),
        })
    }

    /// Writes pairs that [`Config::read`] reads back to the same configuration.
    pub fn write(&self) -> BTreeMap<String, String> {
        let mut pairs = vec![
            (SERVICE, self.service.clone()),
            (LISTEN, self.listen.to_string()),
            (CONTROL_LISTEN, self.control_listen.to_string()),
            (LAYER, self.layer.to_string()),
            (ATTEMPTS, self.retry.attempts.to_string()),
            (RETRY_ON, self.retry.retry_on.to_string()),
            (CONNECT_FAILURE, self.retry.connect_failure.to_string()),
            (ON_FAILURE, self.on_failure.to_string()),
            (TRANSPORT_CODES, self.transport_codes.to_string()),
            (COMMIT, self.retry.commit.to_string()),
            (PUSHBACK, self.retry.pushback.to_string()),
            (ONLY_FIRST_TRIES, self.retry.only_first_tries.to_string()),
            (DEADLINE, self.deadline.to_string()),
            (DETACHED, self.detached.to_string()),
            (CALLS, self.calls.to_string()),
            (FAN_OUT, self.fan_out.to_string()),
            (FAULT, self.fault.to_string()),
            (SEED, self.seed.to_string()),
            (RUN, self.run.clone()),
            (SPAN_QUEUE, self.span_queue.to_string()),
            (RECORDS, self.records.to_string()),
        ];
        if let Some(callee) = &self.callee {
            pairs.extend([
                (CALLEE, callee.name.clone()),
                (CALLEE_ADDRESS, callee.address.to_string()),
            ]);
        }
        let Policy {
            backoff,
            attempt_timeout,
            throttle,
            budget,
            hedge,
            ..
        } = &self.retry;
        let optional = [
            (BACKOFF, backoff.map(|backoff| backoff.to_string())),
            (ATTEMPT_TIMEOUT, attempt_timeout.map(duration_text)),
            (THROTTLE, throttle.map(|throttle| throttle.to_string())),
            (BUDGET, budget.map(|budget| budget.to_string())),
            (HEDGE, hedge.map(duration_text)),
            (CLIENT_FAULT, self.client_fault.map(|fault| fault.to_string())),
        ];
        pairs.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        if self.otlp != Export::None {
            pairs.push((OTLP, self.otlp.to_string()));
        }
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// The secret of the control port, from [`CONTROL_TOKEN`] or else the file that [`CONTROL_TOKEN_FILE`] names; `None` when
/// neither is set.
pub fn control_token() -> Result<Option<String>, ConfigError> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let (name, value, text) = if let Some(token) = set(CONTROL_TOKEN) {
        (CONTROL_TOKEN, "(hidden)".to_owned(), Ok(token))
    } else if let Some(file) = set(CONTROL_TOKEN_FILE) {
        let mut text = String::new();
        let read = std::fs::File::open(&file).and_then(|opened| opened.take(MAX_TOKEN_FILE).read_to_string(&mut text));
        (CONTROL_TOKEN_FILE, file, read.map(|_| text))
    } else {
        return Ok(None);
    };
    let text = text.map_err(|error| wrong(name, &value, &error))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong(name, &value, &"a token is printable ASCII without blanks"));
    }
    Ok(Some(token.to_owned()))
}

const TRUE_OR_FALSE: &str = "write true or false";
const A_NUMBER: &str = "write a whole number";
const A_NUMBER_OF_CALLS: &str = "write 1 to 100";

/// The pairs that are read.
struct Pairs<'a>(&'a BTreeMap<String, String>);

impl<'a> Pairs<'a> {
    /// A value; an empty one is none.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A value whose own error says what would be right.
    fn read<T: FromStr<Err: Display>>(&self, name: &'static str) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|error| wrong(name, value, &error))
    }

    /// A value whose own error says nothing to a reader.
    fn told<T: FromStr>(&self, name: &'static str, right: &str) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| wrong(name, value, &right))
    }

    fn time(&self, name: &'static str) -> Result<Option<Duration>, ConfigError> {
        const RIGHT: &str = "write a duration such as 250ms, above 0 and at most 1h";
        let Some(value) = self.get(name) else { return Ok(None) };
        let read = humantime::parse_duration(value).ok();
        let fits = read.filter(|time| !time.is_zero() && *time <= Policy::LONGEST);
        fits.map(Some).ok_or_else(|| wrong(name, value, &RIGHT))
    }

    fn calls(&self) -> Result<u32, ConfigError> {
        let Some(value) = self.get(CALLS) else { return Ok(1) };
        let calls = value.parse().ok().filter(|calls| (1..=MAX_CALLS).contains(calls));
        let calls = calls.ok_or_else(|| wrong(CALLS, value, &A_NUMBER_OF_CALLS))?;
        let layer = self.read::<Layer>(LAYER)?.unwrap_or_default();
        if calls > 1 && layer != Layer::Service {
            return Err(wrong(
                CALLS,
                value,
                &"only a service calls several times; a proxy passes each call on once",
            ));
        }
        Ok(calls)
    }

    fn policy(&self) -> Result<Policy, ConfigError> {
        let default = Policy::default();
        let attempts = match self.get(ATTEMPTS) {
            None => default.attempts,
            Some(value) => policy::parse_attempts(value).map_err(|error| wrong(ATTEMPTS, value, &error))?,
        };
        let policy = Policy {
            attempts,
            retry_on: self.read(RETRY_ON)?.unwrap_or_default(),
            connect_failure: self
                .told(CONNECT_FAILURE, TRUE_OR_FALSE)?
                .unwrap_or(default.connect_failure),
            backoff: self.read(BACKOFF)?,
            attempt_timeout: self.time(ATTEMPT_TIMEOUT)?,
            commit: self.read(COMMIT)?.unwrap_or_default(),
            pushback: self.told(PUSHBACK, TRUE_OR_FALSE)?.unwrap_or(default.pushback),
            throttle: self.read(THROTTLE)?,
            budget: self.read(BUDGET)?,
            hedge: self.time(HEDGE)?,
            only_first_tries: self.told(ONLY_FIRST_TRIES, TRUE_OR_FALSE)?.unwrap_or_default(),
        };
        policy
            .checked()
            .map_err(|error| wrong(HEDGE, self.get(HEDGE).unwrap_or_default(), &error))
    }
}

/// A duration without blanks: `1m30s`.
fn duration_text(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

fn wrong(name: &'static str, value: &str, right: &dyn Display) -> ConfigError {
    ConfigError::Value {
        name,
        value: value.to_owned(),
        right: right.to_string(),
    }
}

impl FromStr for Layer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "service" => Ok(Self::Service),
            "proxy" => Ok(Self::Proxy),
            "undeclared" => Ok(Self::Undeclared),
            "envoy" => Ok(Self::Envoy),
            _ => Err("write service, proxy or undeclared"),
        }
    }
}

impl Display for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Service => "service",
            Self::Proxy => "proxy",
            Self::Undeclared => "undeclared",
            Self::Envoy => "envoy",
        })
    }
}

impl FromStr for OnFailure {
    type Err = code::CodeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim() == "pass" {
            Ok(Self::Pass)
        } else {
            code::parse_failure(text).map(Self::Answer)
        }
    }
}

impl Display for OnFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Answer(code) => code::name(*code),
        })
    }
}

impl FromStr for PassedOn {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const RIGHT: &str = "write pass, drop or a duration such as 250ms, above 0 and at most 1h";
        match text.trim() {
            "pass" => Ok(Self::Pass),
            "drop" => Ok(Self::Drop),
            other => {
                let most = humantime::parse_duration(other).map_err(|_| RIGHT)?;
                if most.is_zero() || most > Policy::LONGEST {
                    return Err(RIGHT);
                }
                Ok(Self::AtMost(most))
            }
        }
    }
}

impl Display for PassedOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Drop => f.write_str("drop"),
            Self::AtMost(most) => f.write_str(&duration_text(*most)),
        }
    }
}

impl FromStr for FanOut {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "sequence" => Ok(Self::Sequence),
            "parallel" => Ok(Self::Parallel),
            _ => Err("write sequence or parallel"),
        }
    }
}

impl Display for FanOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sequence => "sequence",
            Self::Parallel => "parallel",
        })
    }
}

impl FromStr for TransportCodes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "normalized" => Ok(Self::Normalized),
            "raw" => Ok(Self::Raw),
            _ => Err("write normalized or raw"),
        }
    }
}

impl Display for TransportCodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Normalized => "normalized",
            Self::Raw => "raw",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fault::{At, Delay, Fail, Kind, Reset, Scope, When},
        policy::{Backoff, Budget, Commit, Jitter, RetryOn, Throttle},
    };
    use proptest::prelude::*;

    fn failure() -> impl Strategy<Value = Code> {
        (1..17_i32).prop_map(Code::from_i32)
    }

    fn policy() -> impl Strategy<Value = Policy> {
        let retry_on = prop_oneof![
            Just(RetryOn::Any),
            prop::collection::btree_set(1..17_i32, 1..5)
                .prop_map(|codes| RetryOn::Codes(codes.into_iter().map(Code::from_i32).collect())),
        ];
        let jitter = prop_oneof![Just(Jitter::None), Just(Jitter::PlusMinus20), Just(Jitter::Full)];
        let backoff =
            (1..3_600_000_u64, 1..1000_u32, 0..3_600_000_u64, jitter).prop_map(|(initial, tenths, max, jitter)| {
                let (initial, max) = (Duration::from_millis(initial), Duration::from_millis(max));
                Backoff {
                    initial,
                    multiplier: f64::from(tenths) / 10.0,
                    max,
                    jitter,
                }
            });
        let throttle = (1..=1_000_000_u32, 1..=10_000_u32)
            .prop_map(|(max_milli, ratio_milli)| Throttle { max_milli, ratio_milli });
        let budget = prop_oneof![
            (0..=100_000_u32, any::<u32>()).prop_map(|(percent_milli, min_concurrency)| Budget::InFlight {
                percent_milli,
                min_concurrency,
            }),
            (0..=1_000_000_u32, 0..=1_000_000_u32, time()).prop_map(|(ratio_milli, min_per_second, ttl)| {
                Budget::Window {
                    ratio_milli,
                    min_per_second,
                    ttl,
                }
            }),
        ];
        let waits = prop_oneof![
            prop::option::of(backoff).prop_map(|backoff| (backoff, None)),
            time().prop_map(|hedge| (None, Some(hedge))),
        ];
        let flags = any::<[bool; 4]>();
        let rest = (
            prop::option::of(time()),
            prop::option::of(throttle),
            prop::option::of(budget),
            flags,
        );
        (1..=100_u32, retry_on, waits, rest).prop_map(
            |(
                attempts,
                retry_on,
                (backoff, hedge),
                (attempt_timeout, throttle, budget, [message, pushback, first, connect_failure]),
            )| {
                Policy {
                    attempts,
                    retry_on,
                    connect_failure,
                    backoff,
                    attempt_timeout,
                    commit: if message { Commit::Message } else { Commit::Headers },
                    pushback,
                    throttle,
                    budget,
                    hedge,
                    only_first_tries: first,
                }
            },
        )
    }

    fn time() -> impl Strategy<Value = Duration> {
        (1..3_600_000_u64).prop_map(Duration::from_millis)
    }

    fn when() -> impl Strategy<Value = When> {
        (
            prop::option::of(any::<u64>()),
            prop::option::of(0.0..=1.0_f64),
            any::<bool>(),
        )
            .prop_map(|(first, p, process)| When {
                first,
                p,
                scope: if process && first.is_some() {
                    Scope::Process
                } else {
                    Scope::Request
                },
            })
    }

    fn delay() -> impl Strategy<Value = Delay> {
        (0..3_600_000_u64, 0..3_600_000_u64, when()).prop_map(|(ms, jitter_ms, when)| Delay { ms, jitter_ms, when })
    }

    fn fault() -> impl Strategy<Value = Fault> {
        let at = prop_oneof![Just(At::Before), Just(At::After), Just(At::Headers)];
        let fail = (failure(), at, prop::option::of(any::<i32>()))
            .prop_map(|(code, at, pushback_ms)| Kind::Fail(Fail { code, at, pushback_ms }));
        let late = prop_oneof![
            fail,
            Just(Kind::GoAway),
            Just(Kind::Reset(Reset::Connection)),
            (0..=13_u32).prop_map(|reason| Kind::Reset(Reset::Stream(reason.into()))),
            (200..600_u16).prop_map(|status| Kind::Http { status }),
        ];
        prop_oneof![
            Just(Fault::NONE),
            Just(Fault::of(Kind::Refuse)),
            when().prop_map(|when| Fault {
                when,
                ..Fault::of(Kind::Hang)
            }),
            delay().prop_map(|delay| Fault {
                delay: Some(delay),
                ..Fault::NONE
            }),
            (0..=1_000_000_u32, failure()).prop_map(|(capacity, code)| Fault::of(Kind::Overload { capacity, code })),
            (prop::option::of(delay()), late, when()).prop_map(|(delay, kind, when)| Fault { delay, kind, when }),
        ]
    }

    fn client_fault() -> impl Strategy<Value = ClientFault> {
        let fail = failure().prop_map(|code| {
            Kind::Fail(Fail {
                code,
                ..Fail::default()
            })
        });
        let kind = prop_oneof![Just(None), fail.prop_map(Some)];
        (delay(), kind, when(), any::<[bool; 2]>()).prop_map(|(delay, kind, when, [late, inside])| {
            let (delay, kind, when) = match kind {
                Some(kind) => (late.then_some(delay), kind, when),
                None => (Some(delay), Kind::None, When::default()),
            };
            ClientFault {
                fault: Fault { delay, kind, when },
                inside,
            }
        })
    }

    prop_compose! {
        fn config()(
            service in "[a-z][a-z0-9-]{0,20}",
            ports in any::<[u16; 3]>(),
            layer in prop_oneof![
                Just(Layer::Service),
                Just(Layer::Proxy),
                Just(Layer::Undeclared),
                Just(Layer::Envoy),
            ],
            callee in prop::option::of("[a-z][a-z0-9-]{0,20}"),
            retry in policy(),
            on_failure in prop::option::of(failure()),
            [raw, detached, parallel] in any::<[bool; 3]>(),
            calls in 1..=MAX_CALLS,
            fault in fault(),
            client_fault in prop::option::of(client_fault()),
            deadline in prop_oneof![
                Just(PassedOn::Pass),
                Just(PassedOn::Drop),
                time().prop_map(PassedOn::AtMost),
            ],
            seed in any::<u64>(),
            run in "[0-9a-f]{0,16}",
            otlp in prop_oneof![
                Just(Export::None),
                Just(Export::Environment),
                "http://127\\.0\\.0\\.1:[1-9][0-9]{0,3}".prop_map(Export::To),
            ],
            sizes in any::<[u16; 2]>(),
        ) -> Config {
            Config {
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, ports[0])),
                control_listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, ports[1])),
                layer,
                callee: callee.map(|name| Callee {
                    address: Address { host: name.clone(), port: ports[2].max(1) },
                    name,
                }),
                retry,
                on_failure: on_failure.map_or(OnFailure::Pass, OnFailure::Answer),
                transport_codes: if raw { TransportCodes::Raw } else { TransportCodes::Normalized },
                deadline,
                detached,
                calls: if layer == Layer::Service { calls } else { 1 },
                fan_out: if parallel { FanOut::Parallel } else { FanOut::Sequence },
                fault,
                client_fault,
                seed,
                run,
                otlp,
                span_queue: sizes[0].into(),
                records: sizes[1].into(),
                ..Config::named(&service)
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(config in config()) {
            prop_assert_eq!(Config::read(&config.write()), Ok(config));
        }
    }

    #[test]
    fn an_unknown_name_is_refused_by_name() {
        let pairs = BTreeMap::from([("RETRYSCOPE_ATEMPTS".to_owned(), "3".to_owned())]);
        assert!(
            Config::read(&pairs)
                .unwrap_err()
                .to_string()
                .contains("RETRYSCOPE_ATEMPTS")
        );
    }

    #[test]
    fn calls_are_1_to_100_and_only_those_of_a_service() {
        for (calls, layer, right) in [
            ("0", "service", Err("write 1 to 100")),
            ("101", "service", Err("write 1 to 100")),
            ("two", "service", Err("write 1 to 100")),
            ("2", "proxy", Err("only a service")),
            ("1", "proxy", Ok(1)),
            ("100", "service", Ok(100)),
        ] {
            let mut pairs = Config::named("pricing").write();
            pairs.insert(CALLS.to_owned(), calls.to_owned());
            pairs.insert(LAYER.to_owned(), layer.to_owned());
            match (Config::read(&pairs), right) {
                (Ok(config), Ok(right)) => assert_eq!(config.calls, right),
                (Err(error), Err(right)) => assert!(error.to_string().contains(right), "{error}"),
                (read, _) => panic!("{calls} {layer}: {read:?}"),
            }
        }
    }

    #[test]
    fn a_wrong_value_is_refused_with_what_would_be_right() {
        let mut pairs = Config::named("pricing").write();
        pairs.insert(ATTEMPTS.to_owned(), "0".to_owned());
        let error = Config::read(&pairs).unwrap_err().to_string();
        assert!(
            error.contains("RETRYSCOPE_ATTEMPTS") && error.contains("`0`") && error.contains("1 to 100"),
            "{error}"
        );
    }
}
