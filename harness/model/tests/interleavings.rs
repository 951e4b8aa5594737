//! Requests that overlap and share a `first`: any order of arrivals stays within the bounds.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use model::{Code, Count, Draws, Fault, Kind, Predicted, RetryOn, Topology, predict};
use std::collections::BTreeMap;
use support::{Ask, Counted, DOWN, Fail, REFUSE, Random, documented_share, fail, fail_of, headline, random_topology};

/// A call under way: the attempts sent, and the failure that waits behind the work of its present arrival.
struct Call {
    attempts: u32,
    behind_the_work: Option<Code>,
}

/// One request under way, by link from the top.
struct Request {
    number: u64,
    calls: Vec<Call>,
    arrivals: Vec<u64>,
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
        }
    }

    /// Sends the next attempt and lets its consequences happen up to where another one is sent; true at the end.
    fn step(&mut self, request: &mut Request) -> bool {
        let at = request.calls.len() - 1;
        request.calls[at].attempts += 1;
        self.counted.sent[at] += 1;
        let fails = match self.topology.services[at].fault {
            REFUSE => return self.attempt_ended(request, Code::UNAVAILABLE),
            fault => fail_of(fault).filter(|fail| {
                let before = if fail.per_process {
                    self.arrivals[at]
                } else {
                    request.arrivals[at]
                };
                let in_range = fail.first.is_none_or(|first| before < first);
                let path: Vec<u32> = request.calls.iter().map(|call| call.attempts).collect();
                let share = documented_share(self.topology.load.seed, request.number, &path);
                let drawn = fail.p.is_none_or(|p| share < p);
                in_range && drawn
            }),
        };
        self.counted.received[at] += 1;
        self.arrivals[at] += 1;
        request.arrivals[at] += 1;
        if let Some(Fail { after: false, code, .. }) = fails {
            return self.attempt_ended(request, code);
        }
        request.calls[at].behind_the_work = fails.map(|fail| fail.code);
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
        self.work_ended(request, own)
    }

    fn work_ended(&mut self, request: &mut Request, own: Code) -> bool {
        let at = request.calls.len() - 1;
        if own != Code::OK {
            return self.attempt_ended(request, own);
        }
        self.counted.work_done[at] += 1;
        let answer = request.calls[at].behind_the_work.unwrap_or(own);
        self.attempt_ended(request, answer)
    }

    fn attempt_ended(&mut self, request: &mut Request, code: Code) -> bool {
        let at = request.calls.len() - 1;
        let caller = &self.topology.callers[at];
        let retryable = match &caller.retry_on {
            RetryOn::Any => code != Code::OK,
            RetryOn::Codes(codes) => code != Code::OK && codes.contains(&code),
        };
        if retryable && request.calls[at].attempts < caller.attempts {
            return false;
        }
        request.calls.pop();
        if at == 0 {
            *self.counted.ended.entry(code).or_default() += 1;
            return true;
        }
        let handed_up = if code == Code::OK {
            code
        } else {
            self.topology.services[at - 1].on_failure.unwrap_or(code)
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

fn assert_within(topology: &Topology, counted: &Counted) {
    let prediction = predict(topology, Draws::Replay);
    let within = |predicted: &Predicted, counted: u64, what: &str| {
        let counted = Count::from(counted);
        assert!(
            predicted.min <= counted && counted <= predicted.max,
            "{what} {counted}: {predicted:?} {topology:#?}"
        );
        assert_eq!(predicted.kind == Kind::Exact, predicted.min == predicted.max);
    };
    for (number, service) in prediction.services.iter().enumerate() {
        within(&service.received, counted.received[number], "received");
        within(&service.work_done, counted.work_done[number], "work done");
        within(&prediction.links[number].calls, counted.calls[number], "calls");
        within(&prediction.links[number].sent, counted.sent[number], "sent");
    }
    within(&prediction.ok, counted.ended.get(&Code::OK).copied().unwrap_or(0), "ok");
    for (code, count) in counted.ended.iter().filter(|(code, _)| **code != Code::OK) {
        within(&prediction.failed_by_code[code], *count, "failed");
    }
}

#[test]
fn random_orders_of_random_chains_stay_within() {
    let mut random = Random(0x0DD);
    for round in 0..3_000 {
        let ask = Ask {
            depth: 4,
            attempts: 3,
            requests: 8,
            chances: round % 4 == 0,
            firsts: true,
            per_process: true,
        };
        let mut topology = random_topology(&mut random, ask);
        let shared = |fault: &Fault| fault.when.per_process && fault.when.first.is_some();
        if !topology.services.iter().any(|service| shared(&service.fault)) {
            continue;
        }
        topology.load.requests += 1;
        topology.load.concurrency = 2 + random.below(6);
        for _ in 0..4 {
            let counted = interleave(&topology, &mut random);
            assert_within(&topology, &counted);
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
            assert_within(&topology, &counted);
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
