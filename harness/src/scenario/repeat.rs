//! The command line that repeats a scenario: the chain line, and a flag for everything the line cannot carry.

use super::{
    Caller, Load, Overrides, Scenario, build::DEFAULT_ITEM, builtin, effective::duration, values::default_concurrency,
};
use crate::{chain_line::CLIENT, sanitize::is_control};
use chassis::{
    code,
    config::{OnFailure, PassedOn, TransportCodes},
    policy::{Backoff, Commit, Policy, RetryOn},
};
use std::time::Duration;

impl Scenario {
    /// The words that repeat this scenario under a command (`run`, `predict`), quoted for a shell, without the program's name.
    pub fn repeat(&self, command: &str) -> String {
        if self.is_built_in() {
            return format!("{command} {}", self.name);
        }
        let mut words = vec![command.to_owned(), self.line().shortest()];
        words.extend(self.policy_flags());
        words.extend(load_flags(&self.load));
        words.join(" ")
    }

    /// Whether the scenario is the built-in one of its name, unchanged.
    fn is_built_in(&self) -> bool {
        builtin::find(&self.name).is_some()
            && Self::load(Some(&self.name), &Overrides::default()).is_ok_and(|built_in| built_in == *self)
    }

    fn policy_flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        let (bottom, callers) = self
            .chain
            .services
            .split_last()
            .expect("a chain has at least two services");
        debug_assert!(bottom.on_failure == OnFailure::Pass, "the bottom calls nobody");
        flags.extend(
            self.chain
                .services
                .iter()
                .filter(|service| !service.fault.fault.is_none())
                .filter(|service| service.name != bottom.name || service.fault.side.is_some())
                .map(|service| flag("--fault", &format!("{}={}", service.name, service.fault))),
        );
        let named = || {
            let services = callers
                .iter()
                .map(|service| (format!("services.{}", key(&service.name)), &service.caller));
            std::iter::once((CLIENT.to_owned(), &self.chain.client)).chain(services)
        };
        let shared = &self.chain.client.retry.retry_on;
        if named().all(|(_, caller)| caller.retry.retry_on == *shared) {
            flags.extend((*shared != RetryOn::default()).then(|| flag("--retry-on", &shared.to_string())));
        } else {
            flags.extend(named().filter_map(|(path, caller)| retry_on_flag(&path, caller)));
        }
        for (key, value) in KEYS {
            let shared = value(&self.chain.client.retry);
            if named().all(|(_, caller)| value(&caller.retry) == shared) {
                flags.extend(shared.map(|shared| set(&format!("retry.{key}"), &shared)));
            } else {
                flags.extend(named().filter_map(|(path, caller)| {
                    value(&caller.retry).map(|value| set(&format!("{path}.retry.{key}"), &value))
                }));
            }
        }
        let codes = self.chain.client.transport_codes;
        flags.extend((codes != TransportCodes::default()).then(|| set("transport_codes", &codes.to_string())));
        for service in callers {
            let path = format!("services.{}", key(&service.name));
            if service.caller.transport_codes != codes {
                flags.push(set(
                    &format!("{path}.transport_codes"),
                    &service.caller.transport_codes.to_string(),
                ));
            }
            if service.on_failure != OnFailure::Pass {
                flags.push(set(&format!("{path}.on_failure"), &service.on_failure.to_string()));
            }
            if service.deadline != PassedOn::Pass {
                flags.push(set(&format!("{path}.deadline"), &service.deadline.to_string()));
            }
        }
        for service in self.chain.services.iter().filter(|service| service.detached) {
            flags.push(set(&format!("services.{}.detached", key(&service.name)), "true"));
        }
        flags
    }
}

/// A key of a retry table and its value as TOML, where it is not at its default.
type Key = (&'static str, fn(&Policy) -> Option<String>);

/// The keys that no flag of their own carries.
const KEYS: [Key; 8] = [
    ("backoff", |policy| policy.backoff.map(backoff_value)),
    ("attempt_timeout", |policy| policy.attempt_timeout.map(duration)),
    ("commit", |policy| {
        (policy.commit != Commit::default()).then(|| policy.commit.to_string())
    }),
    ("pushback", |policy| (!policy.pushback).then(|| "false".to_owned())),
    ("throttle", |policy| {
        policy.throttle.map(|throttle| table(&throttle.to_string()))
    }),
    ("budget", |policy| {
        policy.budget.map(|budget| table(&budget.to_string()))
    }),
    ("hedge", |policy| {
        policy
            .hedge
            .map(|delay| format!("{{ delay = \"{}\" }}", duration(delay)))
    }),
    ("only_first_tries", |policy| {
        policy.only_first_tries.then(|| "true".to_owned())
    }),
];

/// `key=value,key=value` as a TOML table: what is no number stands in quotes.
fn table(pairs: &str) -> String {
    let pairs = pairs.split(',').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(key, value)| {
        if value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            format!("{key} = {value}")
        } else {
            format!("{key} = \"{value}\"")
        }
    });
    format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}

fn load_flags(load: &Load) -> Vec<String> {
    let mut flags = Vec::new();
    flags.extend((load.requests != 1).then(|| format!("-n {}", load.requests)));
    let is_default = load.concurrency == default_concurrency(load.rate);
    flags.extend((!is_default).then(|| format!("-c {}", load.concurrency)));
    flags.extend(load.rate.map(|rate| format!("--rate {rate}")));
    flags.extend((load.item != DEFAULT_ITEM).then(|| flag("--item", &load.item)));
    if load.deadline != Some(Duration::from_secs(10)) {
        flags.push(flag(
            "--deadline",
            &load.deadline.map_or_else(|| "none".to_owned(), duration),
        ));
    }
    flags.extend(load.cancel_after.map(|after| flag("--cancel-after", &duration(after))));
    flags.extend((load.seed != 27).then(|| format!("--seed {}", load.seed)));
    flags
}

fn retry_on_flag(path: &str, caller: &Caller) -> Option<String> {
    let value = match &caller.retry.retry_on {
        default if *default == RetryOn::default() => return None,
        RetryOn::Any => "any".to_owned(),
        RetryOn::Codes(codes) => {
            let names: Vec<_> = codes.iter().map(|code| format!("\"{}\"", code::name(*code))).collect();
            format!("[{}]", names.join(", "))
        }
    };
    Some(set(&format!("{path}.retry.retry_on"), &value))
}

fn backoff_value(backoff: Backoff) -> String {
    let Backoff {
        initial,
        multiplier,
        max,
        jitter,
    } = backoff;
    let (initial, max) = (duration(initial), duration(max));
    // Debug keeps the point of a whole number, so that TOML reads a float.
    format!("{{ initial = \"{initial}\", multiplier = {multiplier:?}, max = \"{max}\", jitter = \"{jitter}\" }}")
}

fn set(path: &str, value: &str) -> String {
    flag("--set", &format!("{path}={value}"))
}

/// A flag and its value; joined by `=` where the value would look like a flag.
fn flag(name: &str, value: &str) -> String {
    let separator = if value.starts_with('-') { '=' } else { ' ' };
    format!("{name}{separator}{}", shell_quoted(value))
}

/// A service's name as a key of a dotted path.
pub(super) fn key(name: &str) -> String {
    if name.contains('.') {
        format!("\"{name}\"")
    } else {
        name.to_owned()
    }
}

/// A word as a shell reads it back: bare where it may be, else in single quotes, and in `$'…'` where it has control characters, so
/// that a terminal is shown none of them.
pub fn shell_quoted(word: &str) -> String {
    let bare = |each: char| each.is_ascii_alphanumeric() || "_@%+=:,./-".contains(each);
    if !word.is_empty() && word.chars().all(bare) {
        return word.to_owned();
    }
    if !word.chars().any(is_control) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut quoted = String::from("$'");
    for each in word.chars() {
        match each {
            '\'' | '\\' => quoted.extend(['\\', each]),
            _ if is_control(each) => {
                let mut bytes = [0; 4];
                // Three octal digits end by themselves; `\x` would swallow a hexadecimal digit behind it.
                quoted.extend(each.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\{byte:03o}")));
            }
            _ => quoted.push(each),
        }
    }
    quoted.push('\'');
    quoted
}
