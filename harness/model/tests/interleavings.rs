//! Requests that overlap and share a `first`: any order of arrivals stays within the bounds.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use model::{Code, Draws, Fault, Layer, Throttle, Topology, fault, predict};
use std::collections::{BTreeMap, HashMap};
use support::{
    Ask, Counted, DOWN, End, Fail, REFUSE, Random, assert_within, documented_share, fail, headline, random_topology,
};

/// A call under way: the attempts sent, and the failure that waits behind the work of its present arrival.
struct Call {
    attempts: u32,
    behind_the_work: Option<End>,
}

/// One request under way, by link from the top.
struct Request {
    number: u64,
    calls: Vec<Call>,
    arrivals: Vec<u64>,
    paths: HashMap<(usize, Vec<u32>), u64>,
}

struct Run<'a> {
    topology: &'a Topology,
    random: &'a mut Random,
    counted: Counted,
    arrivals: Vec<u64>,
}

impl Run<'_> {
    fn begin(&mut self, number: u64) -> Request {
        self.counted.calls[0] += 1;
        Request {
            number,
            calls: vec![Call {
                attempts: 0,
                behind_the_work: None,
            }],
            arrivals: vec![0; self.arrivals.len()],
            paths: HashMap::new(),
        }
    }

    /// Sends the next attempt and lets its consequences happen up to where another one is sent; true at the end.
    fn step(&mut self, request: &mut Request) -> bool {
        let at = request.calls.len() - 1;
        request.calls[at].attempts += 1;
        self.counted.sent[at] += 1;
        let fault = self.topology.services[at].fault;
        if fault == REFUSE {
            return self.attempt_ended(request, End::lost(Code::UNAVAILABLE));
        }
        let before = if fault.when.per_process {
            self.arrivals[at]
        } else {
            request.arrivals[at]
        };
        let in_range = fault.when.first.is_none_or(|first| before < first);
        let callers = request.calls.iter().zip(&self.topology.callers);
        let path: Vec<u32> = callers
            .filter(|(_, caller)| caller.layer != Layer::Envoy)
            .map(|(call, _)| call.attempts)
            .collect();
        let times = request.paths.entry((at, path.clone())).or_default();
        let share = documented_share(self.topology.load.seed, request.number, &path, *times);
        *times += 1;
        let drawn = fault.when.p.is_none_or(|p| share < p);
        let fails = End::of(fault.kind, &self.topology.callers[at]).filter(|_| in_range && drawn);
        self.counted.received[at] += 1;
        self.arrivals[at] += 1;
        request.arrivals[at] += 1;
        let is_after = matches!(fault.kind, fault::Kind::Fail(fail) if fail.after);
        if let Some(failed) = fails
            && !is_after
        {
            return self.attempt_ended(request, failed);
        }
        request.calls[at].behind_the_work = fails;
        if at + 1 < self.arrivals.len() {
            self.counted.calls[at + 1] += 1;
            request.calls.push(Call {
                attempts: 0,
                behind_the_work: None,
            });
            return false;
        }
        let own = if self.topology.load.invalid_item {
            Code::INVALID_ARGUMENT
        } else {
            Code::OK
        };
        self.work_ended(request, End::answered(own))
    }

    fn work_ended(&mut self, request: &mut Request, own: End) -> bool {
        let at = request.calls.len() - 1;
        if own.code != Code::OK {
            return self.attempt_ended(request, own);
        }
        self.counted.work_done[at] += 1;
        let answer = request.calls[at].behind_the_work.unwrap_or(own);
        self.attempt_ended(request, answer)
    }

    fn attempt_ended(&mut self, request: &mut Request, ended: End) -> bool {
        let at = request.calls.len() - 1;
        let caller = &self.topology.callers[at];
        if ended.again(caller) && request.calls[at].attempts < caller.attempts {
            return false;
        }
        request.calls.pop();
        if at == 0 {
            *self.counted.ended.entry(ended.code).or_default() += 1;
            return true;
        }
        let handed_up = match self.topology.services[at - 1].on_failure {
            Some(code) if ended.code != Code::OK => End::answered(code),
            _ => ended.up(caller),
        };
        self.work_ended(request, handed_up)
    }
}

fn interleave(topology: &Topology, random: &mut Random) -> Counted {
    let zeros = vec![0; topology.services.len()];
    let counted = Counted {
        calls: zeros.clone(),
        sent: zeros.clone(),
        received: zeros.clone(),
        work_done: zeros.clone(),
        ended: BTreeMap::new(),
    };
    let mut run = Run {
        topology,
        random,
        counted,
        arrivals: zeros,
    };
    let mut under_way: Vec<Request> = Vec::new();
    let mut begun = 0;
    // Some runs prefer the oldest or the youngest request, which reaches the corners more often than fair turns.
    let manner = run.random.below(3);
    loop {
        while begun < topology.load.requests && (under_way.len() as u64) < topology.load.concurrency {
            begun += 1;
            let request = run.begin(begun);
            under_way.push(request);
        }
        let any = usize::try_from(run.random.below((under_way.len() as u64).max(1))).unwrap();
        let chosen = match manner {
            1 if run.random.chance(90) => 0,
            2 if run.random.chance(90) => under_way.len().saturating_sub(1),
            _ => any,
        };
        if chosen >= under_way.len() {
            return run.counted;
        }
        let mut request = under_way.remove(chosen);
        if !run.step(&mut request) {
            under_way.insert(chosen, request);
        }
    }
}

#[test]
fn random_orders_of_random_chains_stay_within() {
    let mut random = Random(0x0DD);
    for round in 0..5_000 {
        let ask = Ask {
            depth: 5,
            attempts: 3,
            requests: 8,
            chances: round % 4 == 0,
            firsts: true,
            per_process: true,
            layers: 50 * (round % 2),
            calls: 1,
        };
        let mut topology = random_topology(&mut random, ask);
        let shared = |fault: &Fault| fault.when.per_process && fault.when.first.is_some();
        if !topology.services.iter().any(|service| shared(&service.fault)) {
            continue;
        }
        topology.load.requests += 1;
        topology.load.concurrency = 2 + random.below(6);
        // Connections are shared, and what cuts them has bounds of its own.
        let cuts = |fault: &Fault| matches!(fault.kind, fault::Kind::Cut(cut) if !matches!(cut, fault::Cut::Stream(_)));
        if topology.services.iter().any(|service| cuts(&service.fault)) {
            continue;
        }
        for _ in 0..4 {
            let counted = interleave(&topology, &mut random);
            assert_within(&topology, &predict(&topology, Draws::Replay), &counted);
            // A bucket that nothing empties: it changes no count, and hides the order of things from the model.
            let mut limited = topology.clone();
            for caller in &mut limited.callers {
                caller.policy.throttle = Some(Throttle {
                    max_milli: 1_000_000_000,
                    ratio_milli: 1_000,
                });
            }
            assert_within(&limited, &predict(&limited, Draws::Replay), &counted);
        }
    }
}

#[test]
fn the_bounds_of_the_headline_are_reached_at_the_bottom() {
    let mut random = Random(0x7166);
    for (first, requests) in [(10, 4), (30, 4), (5, 20), (60, 3), (1, 2)] {
        let mut topology = headline(fail(Fail {
            first: Some(first),
            per_process: true,
            ..DOWN
        }));
        topology.load.requests = requests;
        topology.load.concurrency = requests;
        let (mut least, mut most) = (u64::MAX, 0);
        for _ in 0..600 {
            let counted = interleave(&topology, &mut random);
            assert_within(&topology, &predict(&topology, Draws::Replay), &counted);
            least = least.min(counted.received[3]);
            most = most.max(counted.received[3]);
        }
        let received = predict(&topology, Draws::Forecast).services[3].received;
        assert_eq!(
            (received.min, received.max),
            (least.into(), most.into()),
            "first={first}, {requests} requests"
        );
    }
}
