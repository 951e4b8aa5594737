//! The scenario in force, in the keys of a scenario file: written as TOML it is read back as the same scenario.

use super::{Caller, Chain, Scenario};
use crate::chain_line::{ChainLine, Hop};
use chassis::{
    code,
    config::{FanOut, PassedOn},
    policy::{Backoff, Budget, Commit, Policy, RetryOn, Throttle, fraction},
};
use serde_json::{Map, Value, json};

/// Largest seed written as a number; a TOML integer ends at 2^63, a JSON number is safe to 2^53.
const LARGEST_NUMBER: u64 = 1 << 53;

impl Scenario {
    /// The chain as a line.
    pub fn line(&self) -> ChainLine {
        let hop = |name: &str, caller: &Caller| Hop {
            name: name.to_owned(),
            attempts: caller.retry.attempts,
            proxy_attempts: caller.has_proxy().then_some(caller.proxy.attempts),
        };
        let services = self
            .chain
            .services
            .iter()
            .map(|service| hop(&service.name, &service.caller))
            .collect();
        let fault = self
            .chain
            .services
            .last()
            .map(|bottom| bottom.fault.own())
            .unwrap_or_default();
        ChainLine {
            client: hop(crate::chain_line::CLIENT, &self.chain.client),
            services,
            fault,
        }
    }

    /// The chain line, without quotes.
    pub fn chain_line(&self) -> String {
        self.line().to_string()
    }

    /// The scenario in force, in the keys of a scenario file. Nothing is left out that a reader might wonder about.
    pub fn effective(&self) -> Value {
        let shared = self.chain.client.transport_codes;
        let last = self.chain.services.len() - 1;
        let mut services = Map::new();
        for (position, service) in self.chain.services.iter().enumerate() {
            let mut keys = Map::new();
            keys.insert("fault".to_owned(), json!(service.fault.to_string()));
            if service.detached {
                keys.insert("detached".to_owned(), json!(true));
            }
            if position < last {
                if service.deadline != PassedOn::Pass {
                    keys.insert("deadline".to_owned(), json!(service.deadline.to_string()));
                }
                if service.calls > 1 {
                    keys.insert("calls".to_owned(), json!(service.calls));
                }
                if service.fan_out != FanOut::default() {
                    keys.insert("fan_out".to_owned(), json!(service.fan_out.to_string()));
                }
                keys.insert("on_failure".to_owned(), json!(service.on_failure.to_string()));
                if service.caller.transport_codes != shared {
                    keys.insert(
                        "transport_codes".to_owned(),
                        json!(service.caller.transport_codes.to_string()),
                    );
                }
                keys.insert("retry".to_owned(), retry(&service.caller.retry));
            }
            services.insert(service.name.clone(), Value::Object(keys));
        }
        let load = &self.load;
        let mut effective = json!({
            "name": self.name,
            "about": self.about,
            "transport_codes": shared.to_string(),
            "chain": { "line": self.chain_line() },
            "load": {
                "requests": load.requests,
                "concurrency": load.concurrency,
                "item": load.item,
                "deadline": load.deadline.map_or_else(|| "none".to_owned(), duration),
                "seed": if load.seed > LARGEST_NUMBER { json!(load.seed.to_string()) } else { json!(load.seed) },
            },
            "client": { "retry": retry(&self.chain.client.retry) },
            "services": services,
        });
        if let Some(proxies) = sidecars(&self.chain) {
            effective["sidecars"] = proxies;
        }
        let undeclared = self.chain.callers().filter(|(_, caller)| caller.undeclared > 1);
        let undeclared: Map<_, _> = undeclared
            .map(|(name, caller)| (name.to_owned(), json!(caller.undeclared)))
            .collect();
        if !undeclared.is_empty() {
            effective["undeclared"] = Value::Object(undeclared);
        }
        if let Some(rate) = load.rate {
            effective["load"]["rate"] = json!(rate);
        }
        if let Some(after) = load.cancel_after {
            effective["load"]["cancel_after"] = json!(duration(after));
        }
        effective
    }
}

/// What the proxies are, each with its whole policy; `None` where there are none.
fn sidecars(chain: &Chain) -> Option<Value> {
    let proxies = chain.callers().filter(|(_, caller)| caller.has_proxy());
    let mut keys: Map<_, _> = proxies
        .map(|(name, caller)| (name.to_owned(), json!({ "retry": retry(&caller.proxy) })))
        .collect();
    if keys.is_empty() {
        return None;
    }
    keys.insert("kind".to_owned(), json!(chain.sidecar.name()));
    Some(Value::Object(keys))
}

fn retry(policy: &Policy) -> Value {
    let mut keys = Map::new();
    keys.insert("attempts".to_owned(), json!(policy.attempts));
    keys.insert(
        "retry_on".to_owned(),
        match &policy.retry_on {
            RetryOn::Any => json!("any"),
            RetryOn::Codes(codes) => codes.iter().map(|code| code::name(*code)).collect(),
        },
    );
    let Policy {
        connect_failure,
        backoff,
        attempt_timeout,
        commit,
        pushback,
        throttle,
        budget,
        hedge,
        only_first_tries,
        ..
    } = *policy;
    let optional = [
        ("connect_failure", (!connect_failure).then(|| json!(false))),
        ("backoff", backoff.map(backoff_keys)),
        ("attempt_timeout", attempt_timeout.map(|limit| json!(duration(limit)))),
        (
            "commit",
            (commit != Commit::default()).then(|| json!(commit.to_string())),
        ),
        ("pushback", (!pushback).then(|| json!(false))),
        ("throttle", throttle.map(throttle_keys)),
        ("budget", budget.map(budget_keys)),
        ("hedge", hedge.map(|delay| json!({ "delay": duration(delay) }))),
        ("only_first_tries", only_first_tries.then(|| json!(true))),
    ];
    let set = optional.into_iter();
    keys.extend(set.filter_map(|(key, value)| Some((key.to_owned(), value?))));
    Value::Object(keys)
}

/// Thousandths as a number.
fn number(milli: u32) -> Value {
    let text = fraction(milli);
    match text.parse::<u32>() {
        Ok(whole) => json!(whole),
        Err(_) => json!(text.parse::<f64>().unwrap_or_default()),
    }
}

fn throttle_keys(throttle: Throttle) -> Value {
    json!({
        "max_tokens": number(throttle.max_milli),
        "token_ratio": number(throttle.ratio_milli),
    })
}

fn budget_keys(budget: Budget) -> Value {
    match budget {
        Budget::InFlight {
            percent_milli,
            min_concurrency,
        } => json!({
            "kind": "in_flight",
            "percent": number(percent_milli),
            "min_concurrency": min_concurrency,
        }),
        Budget::Window {
            ratio_milli,
            min_per_second,
            ttl,
        } => json!({
            "kind": "window",
            "ratio": number(ratio_milli),
            "min_per_second": min_per_second,
            "ttl": duration(ttl),
        }),
    }
}

fn backoff_keys(backoff: Backoff) -> Value {
    json!({
        "initial": duration(backoff.initial),
        "multiplier": backoff.multiplier,
        "max": duration(backoff.max),
        "jitter": backoff.jitter.to_string(),
    })
}

/// A duration without blanks, fit for a flag too.
pub(crate) fn duration(duration: std::time::Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}
