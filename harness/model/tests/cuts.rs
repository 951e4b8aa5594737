//! Connections that end under several requests at once: whatever is in flight below loses its caller, at any moment, and every
//! run stays within the prediction.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use model::fault::{Cut, Kind};
use model::verdict::{Observation, Observed, ObservedLink, Reason, Verdict, judge};
use model::{Budget, Code, Draws, Throttle, Topology, predict};
use std::collections::{BTreeMap, HashMap};
use support::{Ask, DOWN, End, Fail, Random, chain, documented_share, fail, random_topology};

/// Where the attempt of a call is.
#[derive(Clone, Copy)]
enum Phase {
    /// Still with its caller.
    Ready,
    OnItsWay,
    Arrived,
    /// Its arrival waits for a call of its own.
    Waiting,
    /// Its answer is on its way.
    Answered(End),
}

#[derive(Clone)]
struct Call {
    made: u32,
    phase: Phase,
    /// The failure that waits behind the work.
    behind_the_work: Option<End>,
}

impl Call {
    fn new() -> Self {
        Self {
            made: 0,
            phase: Phase::Ready,
            behind_the_work: None,
        }
    }

    /// Whether its attempt is on the connection to the service.
    fn is_out(&self) -> bool {
        !matches!(self.phase, Phase::Ready)
    }
}

/// Calls under way, each below the one before it, the first of them on link `top`. A whole request begins at the client.
struct Work {
    request: u64,
    top: usize,
    calls: Vec<Call>,
    /// The attempt numbers of the calls above.
    above: Vec<u32>,
    /// Whether nobody waits for its answer any more.
    is_left: bool,
}

impl Work {
    fn bottom(&self) -> usize {
        self.top + self.calls.len() - 1
    }

    fn path(&self, to: usize) -> Vec<u32> {
        let made = self.calls[..=to - self.top].iter().map(|call| call.made);
        self.above.iter().copied().chain(made).collect()
    }
}

struct Counts {
    sent: Vec<u64>,
    received: Vec<u64>,
    unanswered: Vec<u64>,
    transport_failures: Vec<u64>,
    ended: BTreeMap<Code, u64>,
}

struct Run<'a> {
    topology: &'a Topology,
    random: &'a mut Random,
    counts: Counts,
    works: Vec<Work>,
    arrivals: Vec<u64>,
    of_request: HashMap<(usize, u64), u64>,
    occurrences: HashMap<(usize, u64, Vec<u32>), u64>,
    tokens: Vec<u64>,
    deposits: Vec<u64>,
    /// How many connections ended with others on them.
    shared_cuts: u64,
}

impl Run<'_> {
    fn all(mut self) -> (Counts, u64) {
        let load = self.topology.load;
        let mut begun = 0;
        // Some runs let work that nobody waits for go on for long, others end it at once.
        let lingering = self.random.pick(&[0, 50, 95]);
        loop {
            let under_way = |works: &[Work]| works.iter().filter(|work| !work.is_left).count() as u64;
            while begun < load.requests && under_way(&self.works) < load.concurrency {
                begun += 1;
                let work = Work {
                    request: begun,
                    top: 0,
                    calls: vec![Call::new()],
                    above: Vec::new(),
                    is_left: false,
                };
                self.called(0);
                self.works.push(work);
            }
            if self.works.is_empty() {
                return (self.counts, self.shared_cuts);
            }
            let chosen = usize::try_from(self.random.below(self.works.len() as u64)).unwrap();
            let mut work = self.works.swap_remove(chosen);
            let is_over = if work.is_left && !self.random.chance(lingering) {
                self.leave(&mut work)
            } else {
                self.step(&mut work)
            };
            if !is_over {
                self.works.push(work);
            }
        }
    }

    fn called(&mut self, link: usize) {
        if let Some(Budget::Window { ratio_milli, .. }) = self.topology.callers[link].policy.budget {
            self.deposits[link] += ratio_milli;
        }
    }

    /// The caller at the top learns that it is alone, and drops its call. True when nothing is left.
    fn leave(&mut self, work: &mut Work) -> bool {
        let call = work.calls.remove(0);
        match call.phase {
            Phase::OnItsWay
                if self.topology.services[work.top].fault.kind == Kind::Refuse || self.random.chance(50) => {}
            Phase::OnItsWay => {
                self.arrives(work.top);
                self.counts.unanswered[work.top] += 1;
            }
            // An answer may have been taken just before.
            Phase::Answered(_) if self.random.chance(50) => {}
            Phase::Arrived | Phase::Waiting | Phase::Answered(_) => self.counts.unanswered[work.top] += 1,
            Phase::Ready => {}
        }
        work.above.push(call.made);
        work.top += 1;
        work.calls.is_empty()
    }

    fn arrives(&mut self, at: usize) {
        self.counts.received[at] += 1;
        self.arrivals[at] += 1;
    }

    /// One thing happens. True when the work is over.
    fn step(&mut self, work: &mut Work) -> bool {
        let at = work.bottom();
        let call = work.calls.last_mut().unwrap();
        let fault = self.topology.services[at].fault;
        match call.phase {
            Phase::Ready => {
                call.made += 1;
                self.counts.sent[at] += 1;
                call.phase = Phase::OnItsWay;
            }
            Phase::OnItsWay if fault.kind == Kind::Refuse => {
                self.counts.transport_failures[at] += 1;
                return self.attempt_ended(work, End::lost(Code::UNAVAILABLE));
            }
            Phase::OnItsWay => {
                call.phase = Phase::Arrived;
                call.behind_the_work = None;
                let fails = self.happens(work, at);
                self.arrives(at);
                if let Some(failed) = fails {
                    let caller = &self.topology.callers[at];
                    let ended = End::of(failed, caller).unwrap();
                    match failed {
                        Kind::Fail(fail) if fail.after => {
                            work.calls.last_mut().unwrap().behind_the_work = Some(ended);
                        }
                        Kind::Cut(Cut::Stream(_)) => {
                            self.counts.transport_failures[at] += 1;
                            return self.attempt_ended(work, ended);
                        }
                        Kind::Cut(_) => {
                            self.end_connection(at, ended);
                            self.counts.transport_failures[at] += 1;
                            return self.attempt_ended(work, ended);
                        }
                        _ => work.calls.last_mut().unwrap().phase = Phase::Answered(ended),
                    }
                }
            }
            Phase::Arrived if at + 1 < self.topology.services.len() => {
                call.phase = Phase::Waiting;
                work.calls.push(Call::new());
                self.called(at + 1);
            }
            Phase::Arrived => {
                let own = if self.topology.load.invalid_item {
                    Code::INVALID_ARGUMENT
                } else {
                    Code::OK
                };
                answer(call, End::answered(own));
            }
            Phase::Answered(ended) => return self.attempt_ended(work, ended),
            Phase::Waiting => unreachable!("somebody below is to move"),
        }
        false
    }

    /// What the fault does to the attempt that comes in now.
    fn happens(&mut self, work: &Work, at: usize) -> Option<Kind> {
        let fault = self.topology.services[at].fault;
        let of_request = self.of_request.entry((at, work.request)).or_default();
        let before = if fault.when.per_process {
            self.arrivals[at]
        } else {
            *of_request
        };
        *of_request += 1;
        let path = work.path(at);
        let times = (self.occurrences).entry((at, work.request, path.clone())).or_default();
        let share = documented_share(self.topology.load.seed, work.request, &path, *times);
        *times += 1;
        let in_range = fault.when.first.is_none_or(|first| before < first);
        let happens = fault.kind != Kind::None && in_range && fault.when.p.is_none_or(|p| share < p);
        happens.then_some(fault.kind)
    }

    /// Everybody else on the connection to this service: their attempts fail, and what they started further down is left.
    fn end_connection(&mut self, at: usize, ended: End) {
        let mut left = Vec::new();
        for mut work in std::mem::take(&mut self.works) {
            let is_on = work.top <= at && work.calls.get(at - work.top).is_some_and(Call::is_out);
            let place = at.saturating_sub(work.top);
            // What was not written yet goes out on the next connection, and an answer may just have come.
            let is_spared = is_on
                && matches!(work.calls[place].phase, Phase::OnItsWay | Phase::Answered(_))
                && self.random.chance(50);
            if !is_on || is_spared {
                left.push(work);
                continue;
            }
            self.shared_cuts += 1;
            self.counts.transport_failures[at] += 1;
            let below = work.calls.split_off(place + 1);
            if !below.is_empty() {
                left.push(Work {
                    request: work.request,
                    top: at + 1,
                    above: work.path(at),
                    calls: below,
                    is_left: true,
                });
            }
            if !self.attempt_ended(&mut work, ended) {
                left.push(work);
            }
        }
        self.works = left;
    }

    /// True when the whole work is over.
    fn attempt_ended(&mut self, work: &mut Work, ended: End) -> bool {
        let at = work.bottom();
        let caller = &self.topology.callers[at];
        let is_again = ended.again(caller);
        let mut may_retry = is_again && work.calls.last().unwrap().made < caller.attempts;
        if let Some(throttle) = caller.policy.throttle {
            let tokens = &mut self.tokens[at];
            let never = ended.pushback.is_some_and(|ms| ms < 0) && !caller.policy.ignores_pushback;
            let is_begun = ended.begun && !caller.policy.commits_late;
            if ended.code == Code::OK {
                *tokens = (*tokens + throttle.ratio_milli).min(throttle.max_milli);
            } else if is_again || (never && !is_begun) {
                *tokens = tokens.saturating_sub(1_000);
                may_retry &= *tokens > throttle.max_milli / 2;
            }
        }
        if may_retry && caller.policy.budget.is_some() {
            may_retry = self.deposits[at] >= 1_000;
            self.deposits[at] -= if may_retry { 1_000 } else { 0 };
        }
        if may_retry {
            work.calls.last_mut().unwrap().phase = Phase::Ready;
            return false;
        }
        work.calls.pop();
        let Some(above) = work.calls.last_mut() else {
            if at == 0 {
                *self.counts.ended.entry(ended.code).or_default() += 1;
            }
            return true;
        };
        let handed_up = match self.topology.services[at - 1].on_failure {
            Some(code) if ended.code != Code::OK => End::answered(code),
            _ => ended.up(caller),
        };
        answer(above, handed_up);
        false
    }
}

/// The work of an arrival ended so.
fn answer(call: &mut Call, own: End) {
    let answer = call.behind_the_work.filter(|_| own.code == Code::OK).unwrap_or(own);
    call.phase = Phase::Answered(answer);
}

fn run(topology: &Topology, random: &mut Random) -> (Counts, u64) {
    let zeros = || vec![0; topology.services.len()];
    let throttle = |caller: &model::Caller| caller.policy.throttle.map_or(0, |throttle| throttle.max_milli);
    let run = Run {
        topology,
        random,
        counts: Counts {
            sent: zeros(),
            received: zeros(),
            unanswered: zeros(),
            transport_failures: zeros(),
            ended: BTreeMap::new(),
        },
        works: Vec::new(),
        arrivals: zeros(),
        of_request: HashMap::new(),
        occurrences: HashMap::new(),
        tokens: topology.callers.iter().map(throttle).collect(),
        deposits: zeros(),
        shared_cuts: 0,
    };
    run.all()
}

/// What such a run shows.
fn observation(topology: &Topology, counts: &Counts) -> Observation {
    let mut failed_by_code = counts.ended.clone();
    let ok = failed_by_code.remove(&Code::OK).unwrap_or(0);
    let names = topology.callers.iter().zip(&topology.services).enumerate();
    Observation {
        services: (names.clone())
            .map(|(at, (_, service))| Observed {
                name: service.name.clone(),
                received: Some(counts.received[at]),
                unanswered: counts.unanswered[at],
                ..Observed::default()
            })
            .collect(),
        links: names
            .map(|(at, (caller, service))| ObservedLink {
                from: caller.name.clone(),
                to: service.name.clone(),
                sent: Some(counts.sent[at]),
                received: Some(counts.received[at]),
                transport_failures: counts.transport_failures[at],
                out_of_time: 0,
            })
            .collect(),
        requests_sent: topology.load.requests,
        requests_ended: topology.load.requests,
        ok,
        failed_by_code,
        ..Observation::default()
    }
}

/// Runs in so many orders, each of them as predicted and on time at any lateness. How many cuts hit others, and how many
/// arrivals were left and lost.
fn all_as_predicted(topology: &Topology, random: &mut Random, orders: u64) -> [u64; 3] {
    let prediction = predict(topology, Draws::Replay);
    let mut seen = [0; 3];
    for _ in 0..orders {
        let (counts, shared) = run(topology, random);
        let judgement = judge(&prediction, &observation(topology, &counts));
        assert_eq!(
            (judgement.verdict, judgement.reasons),
            (Verdict::AsPredicted, Vec::<Reason>::new()),
            "{topology:#?}"
        );
        let lost: u64 = counts.sent.iter().sum::<u64>() - counts.received.iter().sum::<u64>();
        let left: u64 = counts.unanswered.iter().sum();
        for (sum, more) in seen.iter_mut().zip([shared, left, lost]) {
            *sum += more;
        }
    }
    seen
}

/// A chain on whose connections requests meet, and one of whose services cuts them.
fn cut_somewhere(random: &mut Random, limits: bool) -> Topology {
    let ask = Ask {
        depth: 5,
        attempts: 3,
        requests: 8,
        chances: random.chance(50),
        firsts: true,
        per_process: true,
        layers: random.pick(&[0, 50]),
        calls: 1,
    };
    let mut topology = random_topology(random, ask);
    topology.load.requests += 1;
    topology.load.concurrency = 2 + random.below(6);
    let at = usize::try_from(random.below(topology.services.len() as u64)).unwrap();
    let mut fault = fail(Fail {
        first: random.chance(40).then(|| 1 + random.below(6)),
        p: random.chance(70).then(|| random.pick(&[0.1, 0.3, 0.6])),
        per_process: random.chance(30),
        ..DOWN
    });
    fault.kind = Kind::Cut(random.pick(&[Cut::Connection, Cut::GoAway]));
    topology.services[at].fault = fault;
    for caller in &mut topology.callers {
        match random.below(5) {
            0 | 1 if limits => {
                caller.policy.throttle = Some(Throttle {
                    max_milli: random.pick(&[2_000, 5_000, 10_000]),
                    ratio_milli: random.pick(&[100, 1_000]),
                });
            }
            2 if limits => {
                caller.policy.budget = Some(Budget::Window {
                    ratio_milli: random.pick(&[0, 200, 1_000]),
                    reserve_milli: 0,
                    ttl_us: 1 << 50,
                });
            }
            _ => {}
        }
    }
    topology
}

#[test]
fn whatever_a_cut_takes_along_stays_within_the_prediction() {
    let mut random = Random(0xC07);
    let mut seen = [0; 3];
    for round in 0..4_000 {
        let topology = cut_somewhere(&mut random, round % 2 == 1);
        let more = all_as_predicted(&topology, &mut random, 5);
        seen.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    assert!(seen.iter().all(|seen| *seen > 1_000), "{seen:?}");
}

#[test]
fn below_a_cut_attempts_are_lost_and_arrivals_left_and_above_it_none_are() {
    let mut topology = chain(&[1, 3, 3, 3]);
    topology.services[1].fault = "goaway:p=0.3".parse().unwrap();
    topology.services[3].fault = fail(DOWN);
    (topology.load.requests, topology.load.concurrency) = (30, 3);
    let prediction = predict(&topology, Draws::Replay);
    let most = |at: usize| {
        let (link, service) = (&prediction.links[at], &prediction.services[at]);
        assert_eq!(link.out_of_time.max, 0.into());
        (link.lost.max, service.unanswered.max)
    };
    assert_eq!(most(0), (0.into(), 0.into()));
    // Who is on the connection that ends was cut, and did not leave.
    assert_eq!(most(1), (90.into(), 0.into()));
    assert_eq!(most(2), (270.into(), 270.into()));
    assert_eq!(most(3), (810.into(), 810.into()));
    let seen = all_as_predicted(&topology, &mut Random(0x60A), 200);
    assert!(seen.iter().all(|seen| *seen > 100), "{seen:?}");
}

#[test]
fn counts_that_rest_on_no_time_hold_however_late_the_machine_is() {
    let mut topology = chain(&[1, 2, 2]);
    topology.services[1].fault = "reset:p=0.5".parse().unwrap();
    (topology.load.requests, topology.load.concurrency) = (10, 5);
    let margin = |topology: &Topology| {
        let prediction = predict(topology, Draws::Replay);
        assert!(prediction.is_floor_and_ceiling);
        prediction.margin_us
    };
    assert_eq!(margin(&topology), None);
    topology.callers[1].policy.throttle = Some(Throttle {
        max_milli: 5_000,
        ratio_milli: 100,
    });
    assert_eq!(margin(&topology), None);
    let mut budgeted = topology.clone();
    budgeted.callers[1].policy.budget = Some(Budget::Window {
        ratio_milli: 200,
        reserve_milli: 1_000,
        ttl_us: 10_000_000,
    });
    assert_eq!(margin(&budgeted), Some(0));
    topology.callers[1].policy.attempt_timeout_us = Some(5_000);
    assert_eq!(margin(&topology), Some(0));
}
