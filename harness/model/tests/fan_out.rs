//! Services that call several times, against walks that know none of the model's shortcuts: one that goes through every arrival
//! in order, and one that lets the calls of requests and services that are under way at once take their turns in any order.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use model::{
    Code, Count, Draws, FanOut, Fault, Kind, Predicted, Throttle, Topology, ceiling, fault, formula, predict, worst,
};
use std::collections::BTreeMap;
use support::{
    Ask, Counted, DOWN, End, Fail, REFUSE, Random, assert_exact, assert_within, documented_share, fail, headline,
    random_calls, random_clockwork, random_topology, walk_with_documented_draws, with_bottom,
};

const SEVERAL: Ask = Ask {
    depth: 4,
    attempts: 3,
    requests: 3,
    chances: false,
    firsts: true,
    per_process: true,
    layers: 0,
    calls: 3,
};

#[test]
fn ten_thousand_chains_without_chance_agree() {
    let mut random = Random(0xFA_0001);
    for _ in 0..10_000 {
        let topology = random_topology(&mut random, SEVERAL);
        assert_exact(&topology, &walk_with_documented_draws(&topology));
    }
}

#[test]
fn two_thousand_replays_agree() {
    let mut random = Random(0xFA_0002);
    for round in 0..2_000 {
        let ask = Ask {
            chances: true,
            firsts: round % 4 == 0,
            depth: 3,
            ..SEVERAL
        };
        let topology = random_topology(&mut random, ask);
        // The moments of chance and a long first together have tests of their own, and take longer.
        let long = |fault: &Fault| fault.when.first.is_some_and(|first| first > 3);
        if !topology.services.iter().any(|service| long(&service.fault)) {
            assert_exact(&topology, &walk_with_documented_draws(&topology));
        }
    }
}

#[test]
fn four_thousand_chains_of_proxies_agree() {
    let mut random = Random(0xFA_0003);
    for round in 0..4_000 {
        let ask = Ask {
            depth: 5,
            attempts: 2,
            chances: round % 2 == 0,
            firsts: round % 4 == 1,
            layers: 50,
            ..SEVERAL
        };
        let topology = random_topology(&mut random, ask);
        // What cuts a connection cuts those of other calls.
        let cuts = |service: &model::Service| matches!(service.fault.kind, fault::Kind::Cut(_));
        if !topology.services.iter().any(cuts) {
            assert_exact(&topology, &walk_with_documented_draws(&topology));
        }
    }
}

#[test]
fn the_clock_agrees_on_two_thousand_chains() {
    let mut random = Random(0xFA_0004);
    for round in 0..2_000 {
        let ask = Ask {
            depth: 4,
            attempts: 2,
            chances: round % 2 == 0,
            firsts: round % 4 == 1,
            layers: 50,
            ..SEVERAL
        };
        let mut topology = random_topology(&mut random, ask);
        random_clockwork(&mut topology, &mut random, ask);
        let cuts = |service: &model::Service| matches!(service.fault.kind, fault::Kind::Cut(_));
        // A `first` in a caller below parallel calls depends on the order.
        let counts = |caller: &model::Caller| {
            caller
                .client_fault
                .is_some_and(|client| client.fault.when.first.is_some())
        };
        let parallel = |service: &model::Service| service.fan_out == FanOut::Parallel;
        let is_ordered = !topology.callers.iter().any(counts) || !topology.services.iter().any(parallel);
        if is_ordered && !topology.services.iter().any(cuts) {
            assert_exact(&topology, &walk_with_documented_draws(&topology));
        }
    }
}

/// A call under way.
struct Call {
    link: usize,
    path: Vec<u64>,
    number: u64,
    attempts: u32,
    /// The arrival that its last attempt caused, while its service works on it.
    work: Option<Work>,
}

/// What a service does for one arrival.
struct Work {
    under_way: Vec<Call>,
    begun: u64,
    ends: BTreeMap<u64, End>,
    /// The failure that waits behind it.
    behind: Option<End>,
    path: Vec<u64>,
}

/// Calls that take their turns in any order.
struct Turns<'a> {
    topology: &'a Topology,
    random: &'a mut Random,
    counted: Counted,
    in_process: Vec<u64>,
    in_request: BTreeMap<(u64, usize), u64>,
    /// How often a turn goes to the oldest, in a hundred.
    oldest_first: u64,
}

impl Turns<'_> {
    fn call(&mut self, link: usize, number: u64, path: &[u64]) -> Call {
        self.counted.calls[link] += 1;
        Call {
            link,
            path: path.to_vec(),
            number,
            attempts: 0,
            work: None,
        }
    }

    fn choose(&mut self, among: usize) -> usize {
        if self.random.chance(self.oldest_first) {
            return 0;
        }
        usize::try_from(self.random.below(among as u64)).unwrap()
    }

    /// One turn of a call of this request; its end, when it has come.
    fn turn(&mut self, request: u64, call: &mut Call) -> Option<End> {
        let ended = match call.work.take() {
            None => self.send(request, call),
            Some(mut work) => {
                let next = self.choose(work.under_way.len());
                if let Some(end) = self.turn(request, &mut work.under_way[next]) {
                    let done = work.under_way.remove(next);
                    work.ends.insert(done.number, end);
                }
                self.go_on(call, work)
            }
        }?;
        let caller = &self.topology.callers[call.link];
        if ended.again(caller) && call.attempts < caller.attempts {
            return None;
        }
        Some(ended.up(caller))
    }

    /// What came of an attempt that is sent now, if it has ended.
    fn send(&mut self, request: u64, call: &mut Call) -> Option<End> {
        let (at, topology) = (call.link, self.topology);
        call.attempts += 1;
        self.counted.sent[at] += 1;
        let fault = topology.services[at].fault;
        if fault == REFUSE {
            return Some(End::lost(Code::UNAVAILABLE));
        }
        self.counted.received[at] += 1;
        let path = [&call.path[..], &[((call.number - 1) << 32) + u64::from(call.attempts)]].concat();
        let of_request = self.in_request.entry((request, at)).or_default();
        let before = if fault.when.per_process {
            self.in_process[at]
        } else {
            *of_request
        };
        self.in_process[at] += 1;
        *of_request += 1;
        let share = documented_share(topology.load.seed, request, &path, 0);
        let happens = fault.when.first.is_none_or(|first| before < first) && fault.when.p.is_none_or(|p| share < p);
        let fails = End::of(fault.kind, &topology.callers[at]).filter(|_| happens);
        let is_after = matches!(fault.kind, fault::Kind::Fail(fail) if fail.after);
        if fails.is_some() && !is_after {
            return fails;
        }
        if at + 1 == topology.services.len() {
            let own = if topology.load.invalid_item {
                Code::INVALID_ARGUMENT
            } else {
                Code::OK
            };
            return Some(self.worked(at, End::answered(own), fails));
        }
        let work = Work {
            under_way: Vec::new(),
            begun: 0,
            ends: BTreeMap::new(),
            behind: fails,
            path,
        };
        self.go_on(call, work)
    }

    /// Begins what is to begin, and answers if nothing is left to be done.
    fn go_on(&mut self, call: &mut Call, mut work: Work) -> Option<End> {
        let service = &self.topology.services[call.link];
        let failed = work.ends.values().find(|end| end.code != Code::OK).copied();
        let is_over = service.fan_out == FanOut::Sequence && (failed.is_some() || !work.under_way.is_empty());
        while !is_over && work.begun < u64::from(service.calls) {
            work.begun += 1;
            let child = self.call(call.link + 1, work.begun, &work.path);
            work.under_way.push(child);
            if service.fan_out == FanOut::Sequence {
                break;
            }
        }
        if !work.under_way.is_empty() {
            call.work = Some(work);
            return None;
        }
        let own = match (failed, service.on_failure) {
            (Some(_), Some(code)) => End::answered(code),
            (Some(failed), None) => failed,
            (None, _) => End::answered(Code::OK),
        };
        Some(self.worked(call.link, own, work.behind))
    }

    fn worked(&mut self, at: usize, own: End, behind: Option<End>) -> End {
        if own.code != Code::OK {
            return own;
        }
        self.counted.work_done[at] += 1;
        behind.unwrap_or(own)
    }
}

fn in_any_order(topology: &Topology, random: &mut Random) -> Counted {
    let zeros = vec![0; topology.services.len()];
    let oldest_first = random.pick(&[0, 0, 50, 95]);
    let mut turns = Turns {
        topology,
        random,
        counted: Counted {
            calls: zeros.clone(),
            sent: zeros.clone(),
            received: zeros.clone(),
            work_done: zeros.clone(),
            ended: BTreeMap::new(),
        },
        in_process: zeros,
        in_request: BTreeMap::new(),
        oldest_first,
    };
    let (mut begun, mut under_way) = (0, Vec::new());
    loop {
        while begun < topology.load.requests && (under_way.len() as u64) < topology.load.concurrency.max(1) {
            begun += 1;
            under_way.push((begun, turns.call(0, 1, &[])));
        }
        if under_way.is_empty() {
            return turns.counted;
        }
        let next = turns.choose(under_way.len());
        let (request, call) = &mut under_way[next];
        if let Some(end) = turns.turn(*request, call) {
            under_way.remove(next);
            *turns.counted.ended.entry(end.code).or_default() += 1;
        }
    }
}

#[test]
fn calls_in_any_order_stay_within_and_what_is_exact_does_not_depend_on_it() {
    let mut random = Random(0xFA_0005);
    let (mut bounds, mut exact) = (0, 0);
    for round in 0..3_000 {
        let ask = Ask {
            attempts: 2,
            chances: round % 3 == 0,
            calls: 1,
            ..SEVERAL
        };
        let mut topology = random_topology(&mut random, ask);
        random_calls(&mut topology, &mut random, 3);
        topology.load.concurrency = 1 + random.below(2) * random.below(4);
        let prediction = predict(&topology, Draws::Replay);
        let kind = prediction.services.last().unwrap().received.kind;
        bounds += u32::from(kind == Kind::Bounds);
        exact += u32::from(kind == Kind::Exact);
        for _ in 0..4 {
            assert_within(&topology, &prediction, &in_any_order(&topology, &mut random));
        }
        // A bucket that nothing empties: it changes no count, and hides the order of things from the model.
        let mut limited = topology.clone();
        for caller in &mut limited.callers {
            caller.policy.throttle = Some(Throttle {
                max_milli: 1_000_000_000,
                ratio_milli: 1_000,
            });
        }
        if round % 20 == 0 {
            let prediction = predict(&limited, Draws::Replay);
            for _ in 0..4 {
                assert_within(&limited, &prediction, &in_any_order(&topology, &mut random));
            }
        }
    }
    assert!(bounds > 50 && exact > 1_000, "{bounds} {exact}");
}

/// The headline with several calls of the service at this place.
fn fan(at: usize, calls: u32, fan_out: FanOut, fault: Fault) -> Topology {
    let mut topology = headline(fault);
    topology.services[at].calls = calls;
    topology.services[at].fan_out = fan_out;
    topology
}

fn received(topology: &Topology) -> Vec<String> {
    let count = |predicted: &Predicted| match predicted.kind {
        Kind::Exact => predicted.min.to_string(),
        _ => format!("{}..{}", predicted.min, predicted.max),
    };
    let services = predict(topology, Draws::Forecast).services;
    services.iter().map(|service| count(&service.received)).collect()
}

#[test]
fn a_dead_service_ends_a_sequence_at_once_and_no_parallel_call() {
    use FanOut::{Parallel, Sequence};
    for at in 0..3 {
        assert_eq!(received(&fan(at, 2, Sequence, Fault::DOWN)), ["1", "3", "9", "27"]);
        assert_eq!(formula(&fan(at, 2, Sequence, Fault::DOWN)), "3 x 3 x 3");
    }
    assert_eq!(received(&fan(0, 2, Parallel, Fault::DOWN)), ["1", "6", "18", "54"]);
    assert_eq!(received(&fan(1, 2, Parallel, Fault::DOWN)), ["1", "3", "18", "54"]);
    assert_eq!(received(&fan(2, 2, Parallel, Fault::DOWN)), ["1", "3", "9", "54"]);
    assert_eq!(formula(&fan(1, 2, Parallel, Fault::DOWN)), "3 x 2 calls x 3 x 3");
    assert!((ceiling(&fan(1, 2, Parallel, Fault::DOWN), 20.0).bottom - 2.0 * 1.728).abs() < 1e-9);
    assert!((ceiling(&fan(1, 2, Sequence, Fault::DOWN), 20.0).bottom - 1.728).abs() < 1e-9);
}

#[test]
fn what_works_is_called_as_often_as_is_asked() {
    for fan_out in [FanOut::Sequence, FanOut::Parallel] {
        let mut topology = fan(0, 3, fan_out, Fault::NONE);
        topology.services[2].calls = 4;
        assert_eq!(received(&topology), ["1", "3", "3", "12"]);
        assert_eq!(formula(&topology), "3 calls x 4 calls");
    }
}

#[test]
fn a_sequence_that_a_first_ends_is_exact_and_has_no_product() {
    // The first call fails twice and is answered, the second at once.
    let topology = fan(2, 2, FanOut::Sequence, fail(Fail { first: Some(2), ..DOWN }));
    assert_eq!(received(&topology), ["1", "1", "1", "4"]);
    assert_eq!(formula(&topology), "4");
    assert_eq!(worst(&topology), Count::Of(4));
}

#[test]
fn parallel_calls_that_share_a_first_have_bounds_that_some_order_reaches() {
    let mut random = Random(0xFA_0006);
    for first in 1..=5 {
        let mut topology = with_bottom(
            &[1, 3, 3],
            fail(Fail {
                first: Some(first),
                ..DOWN
            }),
        );
        topology.services[1].calls = 2;
        topology.services[1].fan_out = FanOut::Parallel;
        let prediction = predict(&topology, Draws::Forecast);
        let (mut least, mut most) = (u64::MAX, 0);
        for _ in 0..400 {
            let counted = in_any_order(&topology, &mut random);
            assert_within(&topology, &prediction, &counted);
            least = least.min(counted.received[2]);
            most = most.max(counted.received[2]);
        }
        let predicted = prediction.services[2].received;
        assert_eq!(
            (predicted.min, predicted.max),
            (least.into(), most.into()),
            "first={first}"
        );
    }
}

#[test]
fn calls_at_once_may_find_a_service_at_its_limit_and_those_of_a_sequence_do_not() {
    let overload = |capacity| {
        Fault::of(fault::Kind::Overload {
            capacity,
            code: Code::RESOURCE_EXHAUSTED,
        })
    };
    for (fan_out, capacity, ok) in [
        (FanOut::Sequence, 1, (1, 1)),
        (FanOut::Parallel, 1, (0, 1)),
        (FanOut::Parallel, 2, (0, 1)),
        (FanOut::Parallel, 3, (1, 1)),
        (FanOut::Parallel, 0, (0, 0)),
    ] {
        let topology = fan(1, 3, fan_out, overload(capacity));
        let predicted = predict(&topology, Draws::Replay).ok;
        let expected = (Count::Of(ok.0), Count::Of(ok.1));
        assert_eq!((predicted.min, predicted.max), expected, "{fan_out:?} {capacity}");
    }
}

#[test]
fn a_hundred_calls_at_twelve_services_are_counted_without_a_walk() {
    for fan_out in [FanOut::Sequence, FanOut::Parallel] {
        let mut topology = support::chain(&[100; 12]);
        for service in &mut topology.services[..11] {
            service.calls = 100;
            service.fan_out = fan_out;
        }
        assert_eq!(worst(&topology), Count::Of(100_u128.pow(11)));
        topology.services[11].fault = fail(Fail { p: Some(0.001), ..DOWN });
        let bottom = predict(&topology, Draws::Forecast).services[11].received;
        // Each call at the bottom is tried until it is answered.
        let tries = bottom.mean.unwrap() / 1e22;
        assert!((tries - 1.0 / 0.999).abs() < 1e-9, "{tries}");
        topology.services[11].fault = fail(Fail { first: Some(7), ..DOWN });
        if fan_out == FanOut::Sequence {
            assert_eq!(worst(&topology), Count::Of(100_u128.pow(11) + 7));
        }
    }
}
