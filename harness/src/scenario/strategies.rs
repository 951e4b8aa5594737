//! Arbitrary scenarios and chain lines, for property tests.

use super::{Caller, Chain, DEFAULT_ITEM, Load, ProxyAttempts, Scenario, Service};
use crate::chain_line::{ChainLine, Hop, proxy_name};
use chassis::{
    code::Code,
    config::{OnFailure, TransportCodes},
    fault::{At, Fail, Fault, Kind, Scope, When},
    policy::{Backoff, Jitter, Policy, RetryOn},
};
use proptest::prelude::*;
use std::time::Duration;

fn failure() -> impl Strategy<Value = Code> {
    (1..17_i32).prop_map(Code::from_i32)
}

pub(crate) fn fault() -> impl Strategy<Value = Fault> {
    let fail = (
        failure(),
        prop::option::of(any::<u64>()),
        prop::option::of(0.0..=1.0_f64),
        any::<[bool; 2]>(),
    )
        .prop_map(|(code, first, p, [process, after])| {
            let scope = if process && first.is_some() {
                Scope::Process
            } else {
                Scope::Request
            };
            Fault {
                when: When { first, p, scope },
                ..Fault::of(Kind::Fail(Fail {
                    code,
                    at: if after { At::After } else { At::Before },
                    pushback_ms: None,
                }))
            }
        });
    let fixed = [Fault::NONE, Fault::of(Kind::Refuse), Fault::down()];
    prop_oneof![5 => prop::sample::select(fixed.to_vec()), 3 => fail]
}

fn tries(most: u32) -> impl Strategy<Value = u32> {
    prop_oneof![Just(1), 1..=most]
}

/// 2 to `longest` names that are no proxy's, no `client`, and all different.
fn names(longest: usize) -> impl Strategy<Value = Vec<String>> {
    let usable = |names: &Vec<String>| {
        let proxies: Vec<_> = names
            .iter()
            .map(|name| proxy_name(name))
            .chain([proxy_name("client")])
            .collect();
        names.iter().all(|name| name != "client" && !proxies.contains(name))
    };
    let name = "[a-zA-Z][a-zA-Z0-9._-]{0,12}|x[0-9]|[a-z]-";
    prop::collection::hash_set(name, 2..=longest)
        .prop_map(|names| names.into_iter().collect())
        .prop_filter("no proxy's name", usable)
}

/// A chain line of at most so many services, with proxies or without.
pub(crate) fn chain_line(longest: usize, proxies: bool) -> impl Strategy<Value = ChainLine> {
    let most = if proxies { 100 } else { 1 };
    let numbers = prop::collection::vec((tries(100), tries(most)), longest + 1);
    (names(longest), numbers, fault()).prop_map(|(names, numbers, fault)| {
        let last = names.len();
        let all = std::iter::once("client".to_owned())
            .chain(names)
            .zip(numbers)
            .enumerate();
        let mut hops = all.map(|(position, (name, (attempts, proxy_attempts)))| {
            if position == last {
                Hop::new(&name)
            } else {
                Hop {
                    name,
                    attempts,
                    proxy_attempts,
                }
            }
        });
        let client = hops.next().expect("the client is the first");
        ChainLine {
            client,
            services: hops.collect(),
            fault,
        }
    })
}

fn retry_on() -> impl Strategy<Value = RetryOn> {
    prop_oneof![
        3 => Just(RetryOn::default()),
        1 => Just(RetryOn::Any),
        1 => prop::collection::btree_set(1..17_i32, 1..5)
            .prop_map(|codes| RetryOn::Codes(codes.into_iter().map(Code::from_i32).collect())),
    ]
}

fn backoff() -> impl Strategy<Value = Option<Backoff>> {
    let jitter = prop_oneof![Just(Jitter::None), Just(Jitter::PlusMinus20), Just(Jitter::Full)];
    let backoff =
        (1..3_600_000_000_u64, 1..1000_u32, 0..3_600_000_u64, jitter).prop_map(|(initial, tenths, max, jitter)| {
            let (initial, max) = (Duration::from_micros(initial), Duration::from_millis(max));
            Backoff {
                initial,
                multiplier: f64::from(tenths) / 10.0,
                max,
                jitter,
            }
        });
    prop_oneof![2 => Just(None), 1 => backoff.prop_map(Some)]
}

fn codes() -> impl Strategy<Value = TransportCodes> {
    prop_oneof![3 => Just(TransportCodes::Normalized), 1 => Just(TransportCodes::Raw)]
}

fn load() -> impl Strategy<Value = Load> {
    let item = prop_oneof![
        Just(DEFAULT_ITEM.to_owned()),
        Just(String::new()),
        "[^\u{0}]{0,12}",
        "-[a-z'\\\\$ ]{0,5}"
    ];
    let deadline = prop::option::of((1..=86_400_000_000_u64).prop_map(Duration::from_micros));
    let deadline = prop_oneof![Just(Some(Duration::from_secs(10))), deadline];
    let seed = prop_oneof![Just(27), any::<u64>()];
    (1..=10_000_000_u64, 1..=5_000_u32, item, deadline, seed).prop_map(
        |(requests, concurrency, item, deadline, seed)| Load {
            requests,
            concurrency,
            item,
            deadline,
            seed,
        },
    )
}

/// A scenario of at most so many services, with proxies or without.
pub(crate) fn scenario(longest: usize, proxies: bool) -> impl Strategy<Value = Scenario> {
    let layer = (retry_on(), backoff(), codes(), prop::option::of(failure()), fault());
    let layers = prop::collection::vec(layer, longest + 1);
    (chain_line(longest, proxies), layers, any::<bool>(), load()).prop_map(|(line, mut layers, alike, load)| {
        if alike {
            let shared = layers[0].0.clone();
            for layer in &mut layers {
                layer.0 = shared.clone();
            }
        }
        let mut layers = layers.into_iter();
        let caller = |hop: &Hop, retry_on, backoff, transport_codes| Caller {
            retry: Policy {
                attempts: hop.attempts,
                retry_on,
                backoff,
            },
            proxy_attempts: ProxyAttempts(hop.proxy_attempts),
            transport_codes,
        };
        let (retry_on, backoff, codes, ..) = layers.next().expect("one for the client");
        let client = caller(&line.client, retry_on, backoff, codes);
        let last = line.services.len() - 1;
        let services = line.services.iter().zip(layers).enumerate();
        let services = services.map(|(position, (hop, (retry_on, backoff, codes, on_failure, fault)))| {
            let name = hop.name.clone();
            if position == last {
                Service {
                    name,
                    caller: Caller::default(),
                    on_failure: OnFailure::Pass,
                    fault: line.fault,
                }
            } else {
                let on_failure = on_failure.map_or(OnFailure::Pass, OnFailure::Answer);
                Service {
                    name,
                    caller: caller(hop, retry_on, backoff, codes),
                    on_failure,
                    fault,
                }
            }
        });
        let chain = Chain {
            client,
            services: services.collect(),
        };
        Scenario {
            name: "custom".to_owned(),
            about: String::new(),
            chain,
            load,
        }
    })
}
