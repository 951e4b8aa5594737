//! The scenario in force, in the keys of a scenario file: written as TOML it is read back as the same scenario.

use super::{Caller, Scenario};
use crate::chain_line::{ChainLine, Hop};
use chassis::{
    code,
    policy::{Backoff, RetryOn},
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
            proxy_attempts: caller.proxy_attempts.0,
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
            if position < last {
                keys.insert("on_failure".to_owned(), json!(service.on_failure.to_string()));
                if service.caller.transport_codes != shared {
                    keys.insert(
                        "transport_codes".to_owned(),
                        json!(service.caller.transport_codes.to_string()),
                    );
                }
                keys.insert("retry".to_owned(), retry(&service.caller));
            }
            services.insert(service.name.clone(), Value::Object(keys));
        }
        let load = &self.load;
        json!({
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
            "client": { "retry": retry(&self.chain.client) },
            "services": services,
        })
    }
}

fn retry(caller: &Caller) -> Value {
    let mut keys = Map::new();
    keys.insert("attempts".to_owned(), json!(caller.retry.attempts));
    keys.insert(
        "retry_on".to_owned(),
        match &caller.retry.retry_on {
            RetryOn::Any => json!("any"),
            RetryOn::Codes(codes) => codes.iter().map(|code| code::name(*code)).collect(),
        },
    );
    if let Some(backoff) = caller.retry.backoff {
        keys.insert("backoff".to_owned(), backoff_keys(backoff));
    }
    Value::Object(keys)
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
pub(super) fn duration(duration: std::time::Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}
