//! Arbitrary scenarios and chain lines, for property tests.

use super::{Caller, Chain, DEFAULT_ITEM, Load, Scenario, Service, SidecarKind, values::default_concurrency};
use crate::chain_line::{ChainLine, Hop, proxy_name};
use chassis::{
    code::Code,
    config::{FanOut, OnFailure, PassedOn, TransportCodes},
    fault::{At, Delay, Fail, Fault, Kind, Reset, Scope, ServiceFault, When},
    policy::{Backoff, Budget, Commit, Jitter, Policy, RetryOn, Throttle},
};
use proptest::prelude::*;
use std::time::Duration;

fn failure() -> impl Strategy<Value = Code> {
    (1..17_i32).prop_map(Code::from_i32)
}

fn when() -> impl Strategy<Value = When> {
    let first = prop::option::of(any::<u64>());
    let p = prop::option::of(0.0..=1.0_f64);
    (first, p, any::<bool>()).prop_map(|(first, p, process)| {
        let scope = if process && first.is_some() {
            Scope::Process
        } else {
            Scope::Request
        };
        When { first, p, scope }
    })
}

fn delay() -> impl Strategy<Value = Delay> {
    (0..=3_600_000_u64, 0..=3_600_000_u64, when()).prop_map(|(ms, jitter_ms, when)| Delay { ms, jitter_ms, when })
}

pub(crate) fn fault() -> impl Strategy<Value = Fault> {
    let at = prop_oneof![Just(At::Before), Just(At::After), Just(At::Headers)];
    let fail = (failure(), at, prop::option::of(any::<i32>()))
        .prop_map(|(code, at, pushback_ms)| Kind::Fail(Fail { code, at, pushback_ms }));
    let kind = prop_oneof![
        2 => fail,
        1 => Just(Kind::GoAway),
        1 => Just(Kind::Reset(Reset::Connection)),
        1 => (0..=13_u32).prop_map(|reason| Kind::Reset(Reset::Stream(reason.into()))),
        1 => (200..600_u16).prop_map(|status| Kind::Http { status }),
    ];
    let overload =
        (0..=1_000_000_u32, failure()).prop_map(|(capacity, code)| Fault::of(Kind::Overload { capacity, code }));
    let hang = when().prop_map(|when| Fault {
        when,
        ..Fault::of(Kind::Hang)
    });
    let late = delay().prop_map(|delay| Fault {
        delay: Some(delay),
        ..Fault::NONE
    });
    let both = (prop::option::of(delay()), kind, when()).prop_map(|(delay, kind, when)| Fault { delay, kind, when });
    let fixed = [Fault::NONE, Fault::of(Kind::Refuse), Fault::down()];
    prop_oneof![
        5 => prop::sample::select(fixed.to_vec()),
        4 => both,
        1 => overload,
        1 => hang,
        1 => late,
    ]
}

/// A fault that a caller can have in its own way out: with or without a delay.
fn client_fault() -> impl Strategy<Value = Fault> {
    let fail = (prop::option::of(delay()), failure(), when()).prop_map(|(delay, code, when)| Fault {
        delay,
        kind: Kind::Fail(Fail {
            code,
            ..Fail::default()
        }),
        when,
    });
    let late = delay().prop_map(|delay| Fault {
        delay: Some(delay),
        ..Fault::NONE
    });
    prop_oneof![fail, late]
}

/// A fault of a service in the chain: itself, or in the caller above it, inside its loop or outside.
#[derive(Debug, Clone)]
struct Placed {
    own: Fault,
    above: Option<(Fault, bool)>,
}

impl Placed {
    fn under(self, caller: &str) -> ServiceFault {
        match self.above {
            None => self.own.into(),
            Some((fault, inside)) => ServiceFault {
                fault,
                side: Some((caller.to_owned(), inside)),
            },
        }
    }
}

fn placed() -> impl Strategy<Value = Placed> {
    let above = prop_oneof![3 => Just(None), 1 => (client_fault(), any::<bool>()).prop_map(Some)];
    (fault(), above).prop_map(|(own, above)| Placed { own, above })
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

/// A chain line of at most so many services.
pub(crate) fn chain_line(longest: usize) -> impl Strategy<Value = ChainLine> {
    let numbers = prop::collection::vec((tries(100), tries(100)), longest + 1);
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
                    proxy_attempts: (proxy_attempts > 1).then_some(proxy_attempts),
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

/// A wait or a limit, down to microseconds.
fn time() -> impl Strategy<Value = Duration> {
    (1..3_600_000_000_u64).prop_map(Duration::from_micros)
}

fn policy() -> impl Strategy<Value = Policy> {
    let throttle =
        (1..=1_000_000_u32, 1..=10_000_u32).prop_map(|(max_milli, ratio_milli)| Throttle { max_milli, ratio_milli });
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
        3 => backoff().prop_map(|backoff| (backoff, None)),
        1 => time().prop_map(|hedge| (None, Some(hedge))),
    ];
    let parts = (
        prop::option::of(time()),
        prop::option::of(throttle),
        prop::option::of(budget),
    );
    let odd = || prop::bool::weighted(0.25);
    let policy = (retry_on(), waits, parts, [odd(), odd(), odd(), odd()]).prop_map(
        |(retry_on, (backoff, hedge), (attempt_timeout, throttle, budget), [late, deaf, first, answers])| Policy {
            attempts: 1,
            retry_on,
            connect_failure: !answers,
            backoff,
            attempt_timeout,
            commit: if late { Commit::Message } else { Commit::Headers },
            pushback: !deaf,
            throttle,
            budget,
            hedge,
            only_first_tries: first,
        },
    );
    prop_oneof![1 => Just(Policy::default()), 2 => policy]
}

fn passed_on() -> impl Strategy<Value = PassedOn> {
    prop_oneof![
        3 => Just(PassedOn::Pass),
        1 => Just(PassedOn::Drop),
        1 => time().prop_map(PassedOn::AtMost),
    ]
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
    let rate = prop_oneof![Just(100.0), 0.0001..=1_000_000.0_f64];
    let rate = prop_oneof![2 => Just(None), 1 => rate.prop_map(Some)];
    let cancel_after = prop_oneof![2 => Just(None), 1 => time().prop_map(Some)];
    let concurrency = prop::option::of(1..=5_000_u32);
    (
        1..=10_000_000_u64,
        concurrency,
        (rate, cancel_after),
        item,
        deadline,
        seed,
    )
        .prop_map(
            |(requests, concurrency, (rate, cancel_after), item, deadline, seed)| Load {
                requests,
                concurrency: concurrency.unwrap_or_else(|| default_concurrency(rate)),
                rate,
                item,
                deadline,
                cancel_after,
                seed,
            },
        )
}

/// What one layer is besides its place in the line.
#[derive(Debug, Clone)]
struct Layer {
    policy: Policy,
    /// What its proxy does, if it has one.
    proxy: Policy,
    undeclared: u32,
    transport_codes: TransportCodes,
    on_failure: OnFailure,
    fault: Placed,
    deadline: PassedOn,
    detached: bool,
    calls: u32,
    fan_out: FanOut,
}

fn layer() -> impl Strategy<Value = Layer> {
    let on_failure = prop::option::of(failure()).prop_map(|code| code.map_or(OnFailure::Pass, OnFailure::Answer));
    let detached = prop::bool::weighted(0.25);
    let undeclared = prop_oneof![3 => Just(1), 1 => 2..=100_u32];
    let policies = (policy(), policy(), undeclared);
    let calls = prop_oneof![3 => Just(1), 1 => 2..=100_u32];
    let fan_out = prop_oneof![3 => Just(FanOut::Sequence), 1 => Just(FanOut::Parallel)];
    let several = (detached, calls, fan_out);
    (policies, codes(), on_failure, placed(), passed_on(), several).prop_map(
        |((policy, proxy, undeclared), transport_codes, on_failure, fault, deadline, (detached, calls, fan_out))| {
            Layer {
                policy,
                proxy,
                undeclared,
                transport_codes,
                on_failure,
                fault,
                deadline,
                detached,
                calls,
                fan_out,
            }
        },
    )
}

/// Who has the same policy as others.
#[derive(Debug, Clone, Copy)]
struct Alike {
    callers: bool,
    proxies: bool,
    /// Each proxy and its caller.
    both: bool,
}

impl Alike {
    fn among(self, layers: &mut [Layer]) {
        let first = layers[0].clone();
        for layer in layers {
            if self.callers {
                layer.policy = first.policy.clone();
            }
            if self.proxies {
                layer.proxy = first.proxy.clone();
            }
            if self.both {
                layer.proxy = layer.policy.clone();
            }
        }
    }
}

fn alike() -> impl Strategy<Value = Alike> {
    any::<[bool; 3]>().prop_map(|[callers, proxies, both]| Alike { callers, proxies, both })
}

/// A scenario of at most so many services.
pub(crate) fn scenario(longest: usize) -> impl Strategy<Value = Scenario> {
    let layers = prop::collection::vec(layer(), longest + 1);
    let whole = (chain_line(longest), layers, alike(), any::<bool>(), load());
    whole.prop_map(|(line, mut layers, alike, are_real, load)| {
        alike.among(&mut layers);
        let mut layers = layers.into_iter();
        let caller = |hop: &Hop, layer: &Layer| Caller {
            retry: Policy {
                attempts: hop.attempts,
                ..layer.policy.clone()
            },
            proxy: match hop.proxy_attempts {
                Some(attempts) => Policy {
                    attempts,
                    ..layer.proxy.clone()
                },
                None => Policy::default(),
            },
            undeclared: layer.undeclared,
            transport_codes: layer.transport_codes,
        };
        let client = caller(&line.client, &layers.next().expect("one for the client"));
        let last = line.services.len() - 1;
        let above = std::iter::once(&line.client).chain(&line.services);
        let services = line.services.iter().zip(above).zip(layers).enumerate();
        let services = services.map(|(position, ((hop, above), layer))| {
            let is_bottom = position == last;
            let fault = Placed {
                own: if is_bottom { line.fault } else { layer.fault.own },
                above: layer.fault.above,
            };
            Service {
                name: hop.name.clone(),
                caller: if is_bottom {
                    Caller::default()
                } else {
                    caller(hop, &layer)
                },
                on_failure: if is_bottom { OnFailure::Pass } else { layer.on_failure },
                fault: fault.under(&above.name),
                deadline: if is_bottom { PassedOn::Pass } else { layer.deadline },
                detached: layer.detached,
                calls: if is_bottom { 1 } else { layer.calls },
                fan_out: if is_bottom { FanOut::Sequence } else { layer.fan_out },
            }
        });
        let mut chain = Chain {
            sidecar: SidecarKind::default(),
            client,
            services: services.collect(),
        };
        if are_real && chain.has_proxies() {
            chain.sidecar = SidecarKind::Envoy;
        }
        Scenario {
            name: "custom".to_owned(),
            about: String::new(),
            chain,
            load,
        }
    })
}
