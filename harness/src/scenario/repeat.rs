//! The command line that repeats a scenario: the chain line, and a flag for everything the line cannot carry.

use super::{
    Load, Overrides, Scenario, SidecarKind, build::DEFAULT_ITEM, builtin, effective::duration,
    values::default_concurrency,
};
use crate::{chain_line::CLIENT, sanitize::is_control};
use chassis::{
    code,
    config::{FanOut, OnFailure, PassedOn, TransportCodes},
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
        flags.extend(self.retry_flags());
        flags.extend(self.link_flags());
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
            if service.calls > 1 {
                flags.push(set(&format!("{path}.calls"), &service.calls.to_string()));
            }
            if service.fan_out != FanOut::default() {
                flags.push(set(&format!("{path}.fan_out"), &service.fan_out.to_string()));
            }
        }
        for service in self.chain.services.iter().filter(|service| service.detached) {
            flags.push(set(&format!("services.{}.detached", key(&service.name)), "true"));
        }
        flags
    }
}

/// A retry table's path and what it is to say.
type Told<'a> = (String, &'a Policy);

impl Scenario {
    /// The policies of callers and proxies.
    fn retry_flags(&self) -> Vec<String> {
        let path = |name: &str| match name {
            CLIENT => CLIENT.to_owned(),
            name => format!("services.{}", key(name)),
        };
        let callers = self.chain.callers();
        let callers: Vec<Told<'_>> = callers.map(|(name, caller)| (path(name), &caller.retry)).collect();
        let proxies = self.chain.callers().filter(|(_, caller)| caller.has_proxy());
        let proxies: Vec<Told<'_>> = proxies
            .map(|(name, caller)| (format!("sidecars.{}", key(name)), &caller.proxy))
            .collect();
        let mut flags = Vec::new();
        let shared = &self.chain.client.retry.retry_on;
        let (first, others) = KEYS.split_first().expect("there are keys");
        if callers
            .iter()
            .chain(&proxies)
            .all(|(_, policy)| policy.retry_on == *shared)
        {
            flags.extend((*shared != RetryOn::default()).then(|| flag("--retry-on", &shared.to_string())));
        } else {
            flags.extend(first.flags(&callers, &proxies));
        }
        flags.extend(others.iter().flat_map(|key| key.flags(&callers, &proxies)));
        flags
    }

    /// What stands on the links, but for the attempts of proxies, which the line carries.
    fn link_flags(&self) -> Vec<String> {
        let kind = self.chain.sidecar;
        let mut flags = Vec::new();
        flags.extend((kind != SidecarKind::default()).then(|| flag("--sidecar", kind.name())));
        let undeclared = self.chain.callers().filter(|(_, caller)| caller.undeclared > 1);
        flags.extend(undeclared.map(|(name, caller)| flag("--undeclared", &format!("{name}={}", caller.undeclared))));
        flags
    }
}

/// A key of a retry table.
struct Key {
    name: &'static str,
    /// Its value as TOML, where it is not at its default.
    value: fn(&Policy) -> Option<String>,
    /// Its default as TOML, to take back what is inherited.
    default: &'static str,
}

impl Key {
    /// The flags that give every caller and every proxy its own value. What all callers have is one key, which proxies inherit.
    fn flags(&self, callers: &[Told<'_>], proxies: &[Told<'_>]) -> Vec<String> {
        let common = |tables: &[Told<'_>]| {
            let mut values = tables.iter().map(|(_, policy)| (self.value)(policy));
            let first = values.next()?;
            values.all(|value| value == first).then_some(first)
        };
        let set = |path: &str, value: Option<String>| {
            let value = value.unwrap_or_else(|| self.default.to_owned());
            set(&format!("{path}.{}", self.name), &value)
        };
        let of_each = |tables: &[Told<'_>], inherited: &Option<String>| -> Vec<String> {
            let told = tables.iter().map(|(path, policy)| (path, (self.value)(policy)));
            let told = told.filter(|(_, value)| value != inherited);
            told.map(|(path, value)| set(&format!("{path}.retry"), value)).collect()
        };
        let (inherited, mut flags) = match common(callers) {
            Some(None) | None => (None, of_each(callers, &None)),
            Some(shared) => (shared.clone(), vec![set("retry", shared)]),
        };
        match common(proxies) {
            Some(shared) if shared != inherited => flags.push(set("sidecars.retry", shared)),
            Some(_) => {}
            None => flags.extend(of_each(proxies, &inherited)),
        }
        flags
    }
}

/// All but `attempts`, which the line carries; `retry_on` first.
const KEYS: [Key; 10] = [
    Key {
        name: "retry_on",
        value: retry_on_value,
        default: "[\"UNAVAILABLE\"]",
    },
    Key {
        name: "connect_failure",
        value: |policy| (!policy.connect_failure).then(|| "false".to_owned()),
        default: "true",
    },
    Key {
        name: "backoff",
        value: |policy| policy.backoff.map(backoff_value),
        default: "none",
    },
    Key {
        name: "attempt_timeout",
        value: |policy| policy.attempt_timeout.map(duration),
        default: "none",
    },
    Key {
        name: "commit",
        value: |policy| (policy.commit != Commit::default()).then(|| policy.commit.to_string()),
        default: "headers",
    },
    Key {
        name: "pushback",
        value: |policy| (!policy.pushback).then(|| "false".to_owned()),
        default: "true",
    },
    Key {
        name: "throttle",
        value: |policy| policy.throttle.map(|throttle| table(&throttle.to_string())),
        default: "none",
    },
    Key {
        name: "budget",
        value: |policy| policy.budget.map(|budget| table(&budget.to_string())),
        default: "none",
    },
    Key {
        name: "hedge",
        value: |policy| {
            let hedge = policy.hedge;
            hedge.map(|delay| format!("{{ delay = \"{}\" }}", duration(delay)))
        },
        default: "none",
    },
    Key {
        name: "only_first_tries",
        value: |policy| policy.only_first_tries.then(|| "true".to_owned()),
        default: "false",
    },
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

fn retry_on_value(policy: &Policy) -> Option<String> {
    match &policy.retry_on {
        default if *default == RetryOn::default() => None,
        RetryOn::Any => Some("any".to_owned()),
        RetryOn::Codes(codes) => {
            let names: Vec<_> = codes.iter().map(|code| format!("\"{}\"", code::name(*code))).collect();
            Some(format!("[{}]", names.join(", ")))
        }
    }
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
