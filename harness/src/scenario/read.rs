//! A scenario file's keys: which there are, what each takes. Knows nothing of the chain yet.

use super::{
    ScenarioError,
    sidecars::{self, SidecarKeys, UndeclaredKey},
    suggest::did_you_mean,
    tree::{Entry, Node, Place, Value},
    values::{
        CANCEL_RIGHT, DEADLINE_RIGHT, MAX_CONCURRENCY, MAX_DEPTH, MAX_REQUESTS, MAX_SCENARIO_NAME, OrNone, RATE_RIGHT,
        SEED_RIGHT, checked_item, checked_rate, parse_cancel_after, parse_deadline, parse_retry_on, parse_seed,
    },
};
use crate::{
    chain_line::{ChainLine, ChainLineError},
    sanitize::{sanitize, sanitize_message},
};
use chassis::{
    code,
    config::{FanOut, MAX_CALLS, OnFailure, PassedOn, TransportCodes},
    fault::ServiceFault,
    policy::{Backoff, Budget, Commit, MAX_ATTEMPTS, Policy, RetryOn, Throttle},
};
use std::time::Duration;

/// A scenario file as written: what it leaves out is `None`.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) name: Option<String>,
    pub(super) about: Option<String>,
    pub(super) transport_codes: Option<TransportCodes>,
    pub(super) line: Option<ChainLine>,
    pub(super) depth: Option<usize>,
    pub(super) load: LoadKeys,
    pub(super) client: RetryKeys,
    pub(super) retry: RetryKeys,
    pub(super) services: Vec<ServiceKeys>,
    pub(super) sidecars: SidecarKeys,
    pub(super) undeclared: Vec<UndeclaredKey>,
}

/// `[load]`.
#[derive(Debug, Default)]
pub(super) struct LoadKeys {
    pub(super) requests: Option<u64>,
    pub(super) concurrency: Option<u32>,
    pub(super) rate: Option<f64>,
    pub(super) cancel_after: Option<Duration>,
    pub(super) item: Option<String>,
    pub(super) deadline: Option<OrNone<Duration>>,
    pub(super) seed: Option<u64>,
}

/// A retry table.
#[derive(Debug, Default)]
pub(super) struct RetryKeys {
    pub(super) attempts: Option<u32>,
    pub(super) retry_on: Option<RetryOn>,
    pub(super) connect_failure: Option<bool>,
    pub(super) backoff: Option<OrNone<Backoff>>,
    pub(super) attempt_timeout: Option<OrNone<Duration>>,
    pub(super) commit: Option<Commit>,
    pub(super) pushback: Option<bool>,
    pub(super) throttle: Option<OrNone<Throttle>>,
    pub(super) budget: Option<OrNone<Budget>>,
    pub(super) hedge: Option<OrNone<Duration>>,
    pub(super) only_first_tries: Option<bool>,
    /// Where the hedge stands, or else the back-off, for the refusal of both together.
    pub(super) waits_place: Option<Place>,
}

/// `[services.NAME]`.
#[derive(Debug)]
pub(super) struct ServiceKeys {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) fault: Option<(ServiceFault, Place)>,
    pub(super) deadline: Option<PassedOn>,
    pub(super) detached: Option<bool>,
    pub(super) calls: Option<u32>,
    pub(super) fan_out: Option<FanOut>,
    pub(super) on_failure: Option<OnFailure>,
    pub(super) transport_codes: Option<TransportCodes>,
    pub(super) retry: RetryKeys,
    /// The first key that only a caller has, for the bottom's refusal.
    pub(super) caller_key: Option<(&'static str, Place)>,
}

/// A table whose keys are all known.
pub(super) struct Section<'a> {
    entries: &'a [Entry],
}

/// The keys of one kind of table.
pub(super) struct Keys {
    pub(super) known: &'static [&'static str],
    /// Where a key was probably meant to go, for suggestions alone.
    pub(super) below: &'static [&'static str],
}

const TOP: Keys = Keys {
    known: &[
        "name",
        "about",
        "transport_codes",
        "chain",
        "load",
        "client",
        "retry",
        "services",
        "sidecars",
        "undeclared",
    ],
    below: &[
        "chain.line",
        "chain.depth",
        "load.requests",
        "load.concurrency",
        "load.rate",
        "load.cancel_after",
        "load.item",
        "load.deadline",
        "load.seed",
    ],
};
const CHAIN: Keys = Keys {
    known: &["line", "depth"],
    below: &[],
};
const LOAD: Keys = Keys {
    known: &[
        "requests",
        "concurrency",
        "rate",
        "item",
        "deadline",
        "cancel_after",
        "seed",
    ],
    below: &[],
};
pub(super) const BELOW_RETRY: [&str; 11] = [
    "retry.attempts",
    "retry.retry_on",
    "retry.connect_failure",
    "retry.backoff",
    "retry.attempt_timeout",
    "retry.commit",
    "retry.pushback",
    "retry.throttle",
    "retry.budget",
    "retry.hedge",
    "retry.only_first_tries",
];
const CLIENT_KEYS: Keys = Keys {
    known: &["retry"],
    below: &BELOW_RETRY,
};
const SERVICE: Keys = Keys {
    known: &[
        "fault",
        "deadline",
        "on_failure",
        "detached",
        "calls",
        "fan_out",
        "transport_codes",
        "retry",
    ],
    below: &BELOW_RETRY,
};
const RETRY: Keys = Keys {
    known: &[
        "attempts",
        "retry_on",
        "connect_failure",
        "backoff",
        "attempt_timeout",
        "commit",
        "pushback",
        "throttle",
        "budget",
        "hedge",
        "only_first_tries",
    ],
    below: &[],
};
const THROTTLE: Keys = Keys {
    known: &["max_tokens", "token_ratio"],
    below: &[],
};
const BUDGET: Keys = Keys {
    known: &["kind", "percent", "min_concurrency", "ratio", "min_per_second", "ttl"],
    below: &[],
};
const HEDGE: Keys = Keys {
    known: &["delay"],
    below: &[],
};
const BACKOFF: Keys = Keys {
    known: &["initial", "multiplier", "max", "jitter"],
    below: &[],
};

impl Draft {
    /// Reads a whole tree.
    pub(super) fn read(root: &Node) -> Result<Self, ScenarioError> {
        let top = Section::open(root, "a scenario", &TOP)?;
        let mut draft = Self::default();
        if let Some(entry) = top.get("name") {
            draft.name = Some(name(entry)?);
        }
        draft.about = top
            .get("about")
            .map(|entry| text(entry, "write one line of text"))
            .transpose()?;
        draft.transport_codes = top.get("transport_codes").map(transport_codes).transpose()?;
        if let Some(entry) = top.get("chain") {
            draft.read_chain(&Section::table(entry, "chain", &CHAIN)?)?;
        }
        if let Some(entry) = top.get("load") {
            draft.load = LoadKeys::read(&Section::table(entry, "load", &LOAD)?)?;
        }
        if let Some(entry) = top.get("client") {
            let client = Section::table(entry, "client", &CLIENT_KEYS)?;
            draft.client = RetryKeys::read(client.get("retry"), "client.retry")?;
        }
        draft.retry = RetryKeys::read(top.get("retry"), "retry")?;
        if let Some(entry) = top.get("services") {
            draft.services = services(entry)?;
        }
        if let Some(entry) = top.get("sidecars") {
            draft.sidecars = SidecarKeys::read(entry)?;
        }
        if let Some(entry) = top.get("undeclared") {
            draft.undeclared = sidecars::undeclared(entry)?;
        }
        draft.without_two_voices(&top)
    }

    fn read_chain(&mut self, chain: &Section<'_>) -> Result<(), ScenarioError> {
        if let Some(entry) = chain.get("line") {
            let line = text(entry, "write a chain line such as \"web x3 > ledger down\"")?;
            let wrong = |message| ScenarioError::Wrong {
                place: entry.node.place.clone(),
                message,
            };
            self.line = Some(line.parse().map_err(|error: ChainLineError| wrong(error.to_string()))?);
        }
        if let Some(entry) = chain.get("depth") {
            if self.line.is_some() {
                let message = "[chain] takes a line or a depth, not both".to_owned();
                return Err(ScenarioError::Wrong {
                    place: entry.place.clone(),
                    message,
                });
            }
            let right = format!("write 1 to {MAX_DEPTH}, the links between services");
            self.depth = Some(usize::try_from(integer(entry, 1, MAX_DEPTH as u64, &right)?).unwrap_or(MAX_DEPTH));
        }
        Ok(())
    }

    /// Refuses attempts for every caller or proxy beside a line that gives each its own.
    fn without_two_voices(self, top: &Section<'_>) -> Result<Self, ScenarioError> {
        if self.line.is_none() {
            return Ok(self);
        }
        let (of, example, place) = if let (Some(_), Some(entry)) = (self.retry.attempts, top.get("retry")) {
            (
                "[retry]",
                "every caller its own (web x3)",
                &entry.inside("attempts").place,
            )
        } else if let Some(place) = &self.sidecars.attempts_place {
            ("[sidecars]", "every proxy its own (web x3*3)", place)
        } else {
            return Ok(self);
        };
        Err(ScenarioError::Wrong {
            place: place.clone(),
            message: format!(
                "{of} attempts stands beside a chain line, which gives {example}; leave one of the two out"
            ),
        })
    }
}

impl LoadKeys {
    fn read(load: &Section<'_>) -> Result<Self, ScenarioError> {
        let mut keys = Self::default();
        if let Some(entry) = load.get("requests") {
            keys.requests = Some(integer(
                entry,
                1,
                MAX_REQUESTS,
                "write a whole number from 1 to 10000000",
            )?);
        }
        if let Some(entry) = load.get("concurrency") {
            let number = integer(
                entry,
                1,
                MAX_CONCURRENCY.into(),
                "write a whole number from 1 to 5000, the requests at once",
            )?;
            keys.concurrency = u32::try_from(number).ok();
        }
        if let Some(entry) = load.get("rate") {
            let rate = match entry.node.value {
                Value::Integer(Some(number)) => Some(number as f64),
                Value::Float(number) => Some(number),
                _ => None,
            };
            let rate = rate.and_then(checked_rate).ok_or_else(|| wrong(entry, RATE_RIGHT))?;
            keys.rate = Some(rate);
        }
        if let Some(entry) = load.get("cancel_after") {
            let read = text(entry, CANCEL_RIGHT)?;
            keys.cancel_after = Some(parse_cancel_after(&read).ok_or_else(|| wrong(entry, CANCEL_RIGHT))?);
        }
        if let Some(entry) = load.get("item") {
            let item = text(entry, "write text in quotes; \"\" is an invalid request")?;
            keys.item = Some(checked_item(&item).map_err(|right| wrong(entry, &right))?.to_owned());
        }
        if let Some(entry) = load.get("deadline") {
            let read = text(entry, DEADLINE_RIGHT)?;
            keys.deadline = Some(parse_deadline(&read).ok_or_else(|| wrong(entry, DEADLINE_RIGHT))?);
        }
        if let Some(entry) = load.get("seed") {
            let seed = match &entry.node.value {
                Value::Integer(Some(seed)) => u64::try_from(*seed).ok(),
                Value::Text(text) => parse_seed(text),
                _ => None,
            };
            keys.seed = Some(seed.ok_or_else(|| wrong(entry, SEED_RIGHT))?);
        }
        Ok(keys)
    }
}

impl RetryKeys {
    pub(super) fn read(entry: Option<&Entry>, path: &str) -> Result<Self, ScenarioError> {
        let mut keys = Self::default();
        let Some(entry) = entry else { return Ok(keys) };
        let retry = Section::table(entry, path, &RETRY)?;
        if let Some(entry) = retry.get("attempts") {
            let right = format!("write 1 to {MAX_ATTEMPTS}, the first attempt included");
            keys.attempts = u32::try_from(integer(entry, 1, MAX_ATTEMPTS.into(), &right)?).ok();
        }
        if let Some(entry) = retry.get("retry_on") {
            keys.retry_on = Some(retry_on(entry)?);
        }
        keys.connect_failure = retry.get("connect_failure").map(boolean).transpose()?;
        if let Some(entry) = retry.get("backoff") {
            keys.backoff = Some(backoff(entry, path)?);
            keys.waits_place = Some(entry.place.clone());
        }
        if let Some(entry) = retry.get("attempt_timeout") {
            keys.attempt_timeout = Some(if is_none(entry) {
                OrNone::None
            } else {
                OrNone::Is(limit(entry)?)
            });
        }
        if let Some(entry) = retry.get("commit") {
            let right = "write headers or message";
            let read = text(entry, right)?;
            keys.commit = Some(read.parse().map_err(|_| wrong(entry, right))?);
        }
        keys.pushback = retry.get("pushback").map(boolean).transpose()?;
        keys.throttle = retry.get("throttle").map(|entry| throttle(entry, path)).transpose()?;
        keys.budget = retry.get("budget").map(|entry| budget(entry, path)).transpose()?;
        if let Some(entry) = retry.get("hedge") {
            keys.hedge = Some(hedge(entry, path)?);
            keys.waits_place = Some(entry.place.clone());
        }
        keys.only_first_tries = retry.get("only_first_tries").map(boolean).transpose()?;
        Ok(keys)
    }
}

/// Whether the value is the word that switches a key off.
fn is_none(entry: &Entry) -> bool {
    matches!(&entry.node.value, Value::Text(text) if text.trim() == "none")
}

fn boolean(entry: &Entry) -> Result<bool, ScenarioError> {
    match entry.node.value {
        Value::Boolean(yes) => Ok(yes),
        _ => Err(wrong(entry, "write true or false")),
    }
}

/// A wait or a limit.
fn limit(entry: &Entry) -> Result<Duration, ScenarioError> {
    let right = "write a duration in quotes, such as \"250ms\", above 0 and at most 1h";
    let read = humantime::parse_duration(text(entry, right)?.trim()).map_err(|_| wrong(entry, right))?;
    if read.is_zero() || read > Policy::LONGEST {
        return Err(wrong(entry, right));
    }
    Ok(read)
}

fn hedge(entry: &Entry, path: &str) -> Result<OrNone<Duration>, ScenarioError> {
    const RIGHT: &str = "write { delay = \"50ms\" }, or \"none\"";
    if is_none(entry) {
        return Ok(OrNone::None);
    }
    if !matches!(entry.node.value, Value::Table(_)) {
        return Err(wrong(entry, RIGHT));
    }
    let table = Section::table(entry, &format!("{path}.hedge"), &HEDGE)?;
    let delay = table.get("delay").ok_or_else(|| wrong(entry, RIGHT))?;
    limit(delay).map(OrNone::Is)
}

fn throttle(entry: &Entry, path: &str) -> Result<OrNone<Throttle>, ScenarioError> {
    let right = "write { max_tokens = 10, token_ratio = 0.1 }, or \"none\"";
    part(entry, &format!("{path}.throttle"), &THROTTLE, right)
}

fn budget(entry: &Entry, path: &str) -> Result<OrNone<Budget>, ScenarioError> {
    let right = "write { kind = \"in_flight\", percent = 20, min_concurrency = 3 } or { kind = \"window\", ratio = 0.2, \
                 min_per_second = 10, ttl = \"10s\" }, or \"none\"";
    part(entry, &format!("{path}.budget"), &BUDGET, right)
}

/// A part of a policy that is a table here and a text of the same keys in the environment: one grammar for both.
fn part<T>(entry: &Entry, path: &str, keys: &Keys, right: &str) -> Result<OrNone<T>, ScenarioError>
where
    T: std::str::FromStr<Err = chassis::policy::PolicyError>,
{
    if is_none(entry) {
        return Ok(OrNone::None);
    }
    if !matches!(entry.node.value, Value::Table(_)) {
        return Err(wrong(entry, right));
    }
    let table = Section::table(entry, path, keys)?;
    let pairs = table.entries.iter().map(|entry| {
        let value = match &entry.node.value {
            Value::Text(text) if !text.contains([',', '=']) => text.clone(),
            Value::Integer(Some(number)) => number.to_string(),
            // Plain digits: an exponent is no number of the grammar.
            Value::Float(number) => number.to_string(),
            _ => return Err(wrong(entry, right)),
        };
        Ok(format!("{}={value}", entry.key))
    });
    let text = pairs.collect::<Result<Vec<_>, _>>()?.join(",");
    text.parse()
        .map(OrNone::Is)
        .map_err(|error: T::Err| ScenarioError::Wrong {
            place: entry.place.clone(),
            message: sanitize_message(&error.to_string()),
        })
}

fn retry_on(entry: &Entry) -> Result<RetryOn, ScenarioError> {
    let right = "write a list of status codes such as [\"UNAVAILABLE\"], or \"any\"";
    let codes = match &entry.node.value {
        Value::Text(text) => text.clone(),
        Value::List(nodes) => {
            let names = nodes.iter().map(|node| match &node.value {
                Value::Text(text) if !text.contains(',') && !text.trim().eq_ignore_ascii_case("any") => {
                    Some(text.clone())
                }
                _ => None,
            });
            names
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| wrong(entry, right))?
                .join(",")
        }
        _ => return Err(wrong(entry, right)),
    };
    parse_retry_on(&codes).map_err(|message| wrong(entry, &message))
}

fn backoff(entry: &Entry, path: &str) -> Result<OrNone<Backoff>, ScenarioError> {
    if is_none(entry) {
        return Ok(OrNone::None);
    }
    let right = "write { initial = \"100ms\", multiplier = 2, max = \"1s\", jitter = \"none\" }, or \"none\"";
    if !matches!(entry.node.value, Value::Table(_)) {
        return Err(wrong(entry, right));
    }
    let table = Section::table(entry, &format!("{path}.backoff"), &BACKOFF)?;
    let mut backoff = Backoff::default();
    if let Some(entry) = table.get("initial") {
        backoff.initial = duration(entry)?;
    }
    if let Some(entry) = table.get("max") {
        backoff.max = duration(entry)?;
    }
    if let Some(entry) = table.get("multiplier") {
        backoff.multiplier = match entry.node.value {
            Value::Float(number) => number,
            Value::Integer(Some(number)) => number as f64,
            _ => return Err(wrong(entry, "write a number above 0, at most 1000")),
        };
    }
    if let Some(entry) = table.get("jitter") {
        let read = text(entry, "write none, plus_minus_20 or full")?;
        backoff.jitter = read
            .parse()
            .map_err(|_| wrong(entry, "write none, plus_minus_20 or full"))?;
    }
    let message = |error: chassis::policy::PolicyError| sanitize_message(&error.to_string());
    let checked = backoff.checked();
    checked.map(OrNone::Is).map_err(|error| ScenarioError::Wrong {
        place: entry.place.clone(),
        message: message(error),
    })
}

fn duration(entry: &Entry) -> Result<Duration, ScenarioError> {
    let right = "write a duration in quotes, such as \"25ms\"";
    humantime::parse_duration(text(entry, right)?.trim()).map_err(|_| wrong(entry, right))
}

fn services(entry: &Entry) -> Result<Vec<ServiceKeys>, ScenarioError> {
    let Value::Table(entries) = &entry.node.value else {
        return Err(wrong(entry, "write a table for each service: [services.NAME]"));
    };
    entries.iter().map(service).collect()
}

fn service(entry: &Entry) -> Result<ServiceKeys, ScenarioError> {
    let path = format!("services.{}", sanitize(&entry.key));
    let table = Section::table(entry, &path, &SERVICE)?;
    let retry = RetryKeys::read(table.get("retry"), &format!("{path}.retry"))?;
    let caller_key = ["retry", "on_failure", "transport_codes", "deadline", "calls", "fan_out"]
        .into_iter()
        .find_map(|key| table.get(key).map(|entry| (key, entry.place.clone())));
    let mut keys = ServiceKeys {
        name: entry.key.clone(),
        place: entry.place.clone(),
        fault: None,
        deadline: None,
        detached: table.get("detached").map(boolean).transpose()?,
        calls: table.get("calls").map(calls).transpose()?,
        fan_out: table.get("fan_out").map(fan_out).transpose()?,
        on_failure: None,
        transport_codes: table.get("transport_codes").map(transport_codes).transpose()?,
        retry,
        caller_key,
    };
    if let Some(entry) = table.get("fault") {
        let read = text(entry, "write a fault such as \"fail\" or \"fail:first=2\"")?;
        let fault = read
            .parse()
            .map_err(|error: chassis::fault::FaultError| wrong(entry, &error.to_string()))?;
        keys.fault = Some((fault, entry.place.clone()));
    }
    if let Some(entry) = table.get("deadline") {
        let read = text(entry, "write pass, drop or a duration in quotes, such as \"250ms\"")?;
        keys.deadline = Some(read.parse().map_err(|right| wrong(entry, right))?);
    }
    if let Some(entry) = table.get("on_failure") {
        let read = text(entry, "write pass or a status code")?;
        let nearest = did_you_mean(&read, code::failure_names().chain(["pass"]));
        let message = |error| format!("write pass or a status code; {error}{nearest}");
        keys.on_failure = Some(
            read.parse()
                .map_err(|error: code::CodeError| wrong(entry, &message(error)))?,
        );
    }
    Ok(keys)
}

fn name(entry: &Entry) -> Result<String, ScenarioError> {
    let right = format!("write a name of 1 to {MAX_SCENARIO_NAME} characters");
    let name = text(entry, &right)?;
    let fits = !name.trim().is_empty() && name.chars().count() <= MAX_SCENARIO_NAME;
    if fits { Ok(name) } else { Err(wrong(entry, &right)) }
}

fn transport_codes(entry: &Entry) -> Result<TransportCodes, ScenarioError> {
    let read = text(entry, "write normalized or raw")?;
    read.parse().map_err(|right| wrong(entry, right))
}

fn calls(entry: &Entry) -> Result<u32, ScenarioError> {
    let right = format!("write how often it calls the next service for each call it gets, 1 to {MAX_CALLS}");
    let calls = integer(entry, 1, MAX_CALLS.into(), &right)?;
    Ok(u32::try_from(calls).unwrap_or(MAX_CALLS))
}

fn fan_out(entry: &Entry) -> Result<FanOut, ScenarioError> {
    let read = text(entry, "write sequence or parallel")?;
    let nearest = did_you_mean(&read, ["sequence", "parallel"]);
    read.parse().map_err(|right| wrong(entry, &format!("{right}{nearest}")))
}

pub(super) fn text(entry: &Entry, right: &str) -> Result<String, ScenarioError> {
    match &entry.node.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(wrong(entry, right)),
    }
}

pub(super) fn integer(entry: &Entry, least: u64, most: u64, right: &str) -> Result<u64, ScenarioError> {
    match entry.node.value {
        Value::Integer(Some(number)) if (i128::from(least)..=i128::from(most)).contains(&number) => {
            Ok(u64::try_from(number).unwrap_or(most))
        }
        _ => Err(wrong(entry, right)),
    }
}

/// `attempts = 0: write 1 to 100`.
pub(super) fn wrong(entry: &Entry, right: &str) -> ScenarioError {
    let read = match &entry.node.value {
        Value::Table(_) => "a table".to_owned(),
        _ => sanitize(&entry.node.read),
    };
    ScenarioError::Value {
        place: entry.node.place.clone(),
        key: sanitize(&entry.key),
        read,
        right: sanitize_message(right),
    }
}

impl<'a> Section<'a> {
    /// A table under its own name, `[PATH]` in messages.
    pub(super) fn table(entry: &'a Entry, path: &str, keys: &Keys) -> Result<Self, ScenarioError> {
        if !matches!(entry.node.value, Value::Table(_)) {
            return Err(wrong(entry, &format!("write a table: [{path}]")));
        }
        Self::open(&entry.node, &format!("[{path}]"), keys)
    }

    fn open(node: &'a Node, called: &str, keys: &Keys) -> Result<Self, ScenarioError> {
        let Value::Table(entries) = &node.value else {
            return Err(ScenarioError::Wrong {
                place: node.place.clone(),
                message: format!("{called} is a table"),
            });
        };
        for Entry { key, place, .. } in entries {
            let key = key.as_str();
            if !keys.known.contains(&key) {
                let hint = did_you_mean(key, keys.known.iter().chain(keys.below).copied());
                let advice = format!("{hint} (keys: {})", keys.known.join(", "));
                return Err(ScenarioError::UnknownKey {
                    place: place.clone(),
                    key: sanitize(key),
                    section: called.to_owned(),
                    advice,
                });
            }
        }
        Ok(Self { entries })
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}
