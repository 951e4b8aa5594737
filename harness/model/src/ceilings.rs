//! Floors and ceilings, where events cannot be followed one by one: requests that overlap share a throttle, a budget, an
//! overload or a connection, or a run is too long.
//!
//! Where it is certain how an attempt ends, the limits' own arithmetic is used: so many failures empty a throttle, so many
//! deposits pay for so many retries, whatever the order. Elsewhere nobody is sure to try again, and everybody may.
//!
//! A connection that is cut at a service takes along what the other arrivals on it are doing further down. Below it any attempt
//! may be lost on its way, and any arrival may find its caller gone.

use crate::acting::{self, is_cut_off, leaves, shares_connections};
use crate::assemble::Answer;
use crate::chain::{Layout, What};
use crate::clock;
use crate::count::Count;
use crate::ended::Ended;
use crate::fault::{Fault, Kind, When};
use crate::prediction::{Kind as PredictedKind, PerRequest, Predicted};
use crate::topology::{Budget, Caller, Code, FanOut, Throttle, Topology};
use std::collections::BTreeSet;

/// At least, and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    min: Count,
    max: Count,
}

impl Range {
    fn exactly(count: Count) -> Self {
        Self { min: count, max: count }
    }

    const NONE: Self = Self {
        min: Count::ZERO,
        max: Count::ZERO,
    };

    fn up_to(self) -> Self {
        Self {
            min: Count::ZERO,
            max: self.max,
        }
    }
}

/// Bounds of a run.
pub(crate) fn run(topology: &Topology) -> Answer {
    let layout = Layout::new(topology);
    let totals = ranges(topology, &layout, topology.load.requests);
    // What one request does at most, the others being where they are: it may spend what they have paid into a budget.
    let mut unlimited = topology.clone();
    for caller in &mut unlimited.callers {
        caller.policy.budget = None;
    }
    let mut one = ranges(&unlimited, &layout, 1);
    for (one, total) in one.iter_mut().zip(&totals) {
        one.max = one.max.min(total.max);
    }
    let kind = if clock::is_drawn(topology) {
        PredictedKind::Statistical
    } else {
        PredictedKind::Bounds
    };
    Answer {
        per_request: PerRequest {
            worst: layout.bottom().map_or(Count::ZERO, |bottom| one[bottom].max),
            mean: None,
            sd: None,
            still_fails: (one[layout.ended(Code::OK)].max == Count::ZERO).then_some(1.0),
            arrivals_worst: one[layout.arrivals()].max,
        },
        totals: (totals
            .iter()
            .map(|range| Predicted::between(range.min, range.max, kind)))
        .collect(),
        layout,
    }
}

/// What so many requests do at least and at most.
fn ranges(topology: &Topology, layout: &Layout, requests: u64) -> Vec<Range> {
    let ends = possible_ends(topology);
    let mut totals = vec![Range::NONE; layout.len()];
    let requests = Range::exactly(requests.into());
    let mut calls = requests;
    let mut arrivals = Range::NONE;
    for (hop, service) in topology.services.iter().enumerate() {
        let sent = sent(topology, hop, calls, &ends[hop]);
        let refuses = service.fault.kind == Kind::Refuse;
        let received = if refuses {
            Range::NONE
        } else if may_lose(topology, hop) {
            sent.up_to()
        } else {
            sent
        };
        let works = works(&service.fault);
        let own = match works {
            Some(false) => Range::NONE,
            Some(true) if !leaves(topology) => received,
            _ => received.up_to(),
        };
        let below_ok = match ends.get(hop + 1) {
            None => Some(!topology.load.invalid_item),
            Some(ends) if !may_end(ends, Code::OK) => Some(false),
            Some(ends) => certain(ends).map(|_| true),
        };
        let work_done = match below_ok {
            Some(true) => own,
            Some(false) => Range::NONE,
            None => own.up_to(),
        };
        arrivals = Range {
            min: arrivals.min + received.min,
            max: arrivals.max + received.max,
        };
        let cuts = matches!(service.fault.kind, Kind::Cut(_));
        for (what, range) in [
            (What::Calls, calls),
            (What::Sent, sent),
            (What::Received, received),
            (What::WorkDone, work_done),
            (
                What::Lost,
                if refuses {
                    sent
                } else if may_lose(topology, hop) {
                    sent.up_to()
                } else {
                    Range::NONE
                },
            ),
            (What::Cut, if cuts { sent.up_to() } else { Range::NONE }),
            (
                What::OutOfTime,
                if leaves(topology) { calls.up_to() } else { Range::NONE },
            ),
            (
                What::Unanswered,
                if leaves(topology) || is_cut_off(topology, hop) {
                    received.up_to()
                } else {
                    Range::NONE
                },
            ),
        ] {
            totals[layout.at(hop, what)] = range;
        }
        calls = fanned(topology, hop, own, &ends);
    }
    totals[layout.arrivals()] = arrivals;
    for code in &layout.codes {
        let is_possible = may_end(&ends[0], *code) || leaves(topology) || topology.callers[0].client_fault.is_some();
        totals[layout.ended(*code)] = match certain(&ends[0]) {
            Some(end) if end == *code && waits_for_its_answer(topology) => requests,
            _ if is_possible => requests.up_to(),
            _ => Range::NONE,
        };
    }
    totals
}

/// The calls that a service makes whose work begins so often. A sequence ends with the first that fails.
fn fanned(topology: &Topology, hop: usize, works: Range, ends: &[BTreeSet<Ended>]) -> Range {
    let service = &topology.services[hop];
    let Some(ends) = ends.get(hop + 1).filter(|_| service.calls > 1) else {
        return works;
    };
    let all = Count::from(u64::from(service.calls));
    let no_failure = certain(ends) == Some(Code::OK)
        && topology.callers[hop + 1].client_fault.is_none()
        && !leaves(topology)
        && !is_cut_off(topology, hop + 1);
    let (least, most) = match (service.fan_out, may_end(ends, Code::OK)) {
        (FanOut::Parallel, _) => (all, all),
        (FanOut::Sequence, _) if no_failure => (all, all),
        (FanOut::Sequence, true) => (Count::ONE, all),
        (FanOut::Sequence, false) => (Count::ONE, Count::ONE),
    };
    Range {
        min: works.min * least,
        max: works.max * most,
    }
}

/// Whether a request ends as its call does: nothing fails it before, and the client does not leave.
fn waits_for_its_answer(topology: &Topology) -> bool {
    topology.callers[0].client_fault.is_none() && topology.load.cancel_after_us.is_none()
}

/// Callers that never try again, whatever happens: their limits are never asked.
pub(crate) fn never_retry(topology: &Topology) -> Vec<bool> {
    let ends = possible_ends(topology);
    let never = |(hop, caller): (usize, &Caller)| {
        caller.policy.hedge_us.is_none()
            && !ends[hop]
                .iter()
                .any(|ended| caller.lists(*ended) && !caller.has_committed(*ended))
    };
    topology.callers.iter().enumerate().map(never).collect()
}

/// Whether a floor or a ceiling rests on how long something takes: who leaves by the clock may leave sooner or later, and of a
/// budget it counts how much is under way at once, or within its time. Every other one holds however late anybody is.
pub(crate) fn rest_on_time(topology: &Topology) -> bool {
    leaves(topology) || topology.callers.iter().any(|caller| caller.policy.budget.is_some())
}

/// Whether attempts may be sent that do not arrive, on a port that is open.
fn may_lose(topology: &Topology, hop: usize) -> bool {
    // The client's own attempts are on their way before anybody can have given up.
    let given_up = leaves(topology) && (hop > 0 || topology.callers[0].attempts > 1);
    // A connection that ends loses what is on its way to it, and what was on its way further down for those that were on it.
    let cut = shares_connections(topology) && topology.services[hop].fault.kind.cuts_connections();
    given_up || topology.callers[hop].client_fault.is_some() || cut || is_cut_off(topology, hop)
}

/// Whether every arrival gets to its work, or none does; `None` where that depends.
fn works(fault: &Fault) -> Option<bool> {
    let works = match fault.kind {
        Kind::None => true,
        Kind::Fail(fail) => fail.after,
        Kind::Hang | Kind::Cut(_) | Kind::Refuse => false,
        Kind::Overload { .. } => return None,
    };
    (works || fault.when == When::ALWAYS).then_some(works)
}

/// How an attempt on each link can end.
fn possible_ends(topology: &Topology) -> Vec<BTreeSet<Ended>> {
    let mut ends = vec![BTreeSet::new(); topology.callers.len()];
    // How the work of a service can end.
    let mut work = BTreeSet::from([if topology.load.invalid_item {
        Code::INVALID_ARGUMENT.into()
    } else {
        Ended::from(Code::OK)
    }]);
    for (hop, service) in topology.services.iter().enumerate().rev() {
        let caller = &topology.callers[hop];
        let fault = &service.fault;
        let is_always = fault.when == When::ALWAYS;
        let mut own = std::mem::take(&mut work);
        match fault.kind {
            Kind::None => {}
            Kind::Fail(fail) if fail.after => {
                if may_end(&own, Code::OK) {
                    own.insert(fail.into());
                }
                if is_always {
                    own.retain(|ended| ended.code.is_failure());
                }
            }
            Kind::Overload { code, .. } => {
                own.insert(code.into());
            }
            Kind::Refuse => own = BTreeSet::from([Ended::REFUSED]),
            Kind::Hang | Kind::Fail(_) | Kind::Cut(_) => {
                if is_always {
                    own.clear();
                }
                match fault.kind {
                    Kind::Fail(fail) => own.extend([Ended::from(fail)]),
                    Kind::Cut(cut) => own.extend([caller.sees(cut)]),
                    _ => {}
                }
            }
        }
        if leaves(topology) {
            own.insert(Code::DEADLINE_EXCEEDED.into());
            own.extend(caller.policy.attempt_timeout_us.map(|_| caller.timed_out()));
        }
        let client = caller.client_fault.and_then(|client| match client.fault.kind {
            Kind::Fail(fail) => Some((fail.code.into(), client.inside)),
            _ => None,
        });
        own.extend(client.filter(|(_, inside)| *inside).map(|(ended, _)| ended));
        let calls = own.iter().copied().chain(client.map(|(ended, _)| ended));
        let answer = hop.checked_sub(1).and_then(|above| topology.services[above].on_failure);
        work = calls.map(|ended| caller.hands_up(ended).translated(answer)).collect();
        ends[hop] = own;
    }
    ends
}

/// Whether one of these ends has the code.
fn may_end(ends: &BTreeSet<Ended>, code: Code) -> bool {
    ends.iter().any(|ended| ended.code == code)
}

/// The one code, where there is but one.
fn certain(ends: &BTreeSet<Ended>) -> Option<Code> {
    let first = ends.first()?.code;
    ends.iter().all(|ended| ended.code == first).then_some(first)
}

/// Attempts on a link for so many calls.
fn sent(topology: &Topology, hop: usize, calls: Range, ends: &BTreeSet<Ended>) -> Range {
    let caller = &topology.callers[hop];
    let no_attempt = caller.client_fault.is_some_and(|client| !client.inside) || (hop > 0 && leaves(topology));
    let least = if no_attempt { Count::ZERO } else { calls.min };
    let retries = u64::from(caller.attempts - 1);
    let is_retried = |ended: &Ended| caller.tries_again(*ended);
    if !ends.iter().any(is_retried) && caller.policy.hedge_us.is_none() {
        return Range {
            min: least,
            max: calls.max,
        };
    }
    let is_plain = !caller.policy.only_first_tries && caller.client_fault.is_none() && !leaves(topology);
    let is_certain = ends.iter().all(is_retried) && is_plain;
    let mut most = calls.max * retries.into();
    let mut floor = if is_certain {
        calls.min * retries.into()
    } else {
        Count::ZERO
    };
    // A hedge follows no failure, so the failures say nothing of how many there are.
    let throttle = caller.policy.throttle.filter(|_| caller.policy.hedge_us.is_none());
    if let Some(throttle) = throttle {
        let (low, high) = throttled(throttle, caller, calls, is_certain);
        most = most.min(high);
        floor = if is_certain { low } else { Count::ZERO };
    }
    if let Some(budget) = caller.policy.budget {
        let (low, high) = budgeted(topology, hop, budget, calls);
        most = most.min(high);
        floor = if is_certain && caller.policy.throttle.is_none() {
            floor.min(low)
        } else {
            Count::ZERO
        };
    }
    Range {
        min: least + floor.min(most),
        max: calls.max + most,
    }
}

/// Retries at least and at most, when failures take a token each. The first `allowed` failures leave more than half; those of
/// them that were a call's last attempt lead to no retry, and there are fewest retries when requests come one by one.
fn throttled(throttle: Throttle, caller: &Caller, calls: Range, is_certain: bool) -> (Count, Count) {
    let attempts = u64::from(caller.attempts);
    let allowed = throttle.max_milli.div_ceil(2_000).saturating_sub(1);
    let wanted = |calls: Count| calls * (attempts - 1).into();
    let last_ones = Count::from(allowed / attempts).min(calls.max);
    let low = match last_ones {
        Count::Of(last_ones) => Count::Of(u128::from(allowed).saturating_sub(last_ones)),
        Count::Beyond => Count::ZERO,
    };
    // Every success may let another failure through.
    let rewards = match calls.max {
        Count::Of(calls) if !is_certain => Count::Of(calls.saturating_mul(throttle.ratio_milli.into()).div_ceil(1_000)),
        Count::Of(_) => Count::ZERO,
        Count::Beyond => Count::Beyond,
    };
    (
        low.min(wanted(calls.min)),
        (Count::from(allowed) + rewards).min(wanted(calls.max)),
    )
}

/// Retries at least, when every attempt fails, and at most.
fn budgeted(topology: &Topology, hop: usize, budget: Budget, calls: Range) -> (Count, Count) {
    let retries = u64::from(topology.callers[hop].attempts - 1);
    let wanted = |calls: Count| calls * retries.into();
    match budget {
        Budget::Window {
            ratio_milli,
            reserve_milli,
            ttl_us,
        } => {
            let paid = |calls: Count, reserves: u64| match calls {
                Count::Of(calls) => {
                    let deposits = calls.saturating_mul(ratio_milli.into());
                    Count::Of(deposits.saturating_add(u128::from(reserve_milli) * u128::from(reserves)) / 1_000)
                }
                Count::Beyond => Count::Beyond,
            };
            let lasts_us = acting::longest_run_us(topology);
            let high = paid(calls.max, (lasts_us / ttl_us).saturating_add(1)).min(wanted(calls.max));
            // Whoever was refused last found less than one left, and whoever came later took all it wanted.
            let is_whole = lasts_us < ttl_us && ratio_milli <= retries * 1_000;
            let low = if is_whole {
                paid(calls.min, 1).min(wanted(calls.min))
            } else {
                Count::ZERO
            };
            (low, high)
        }
        Budget::InFlight {
            percent_milli,
            min_concurrency,
        } => {
            let at_once = acting::at_once(topology, hop);
            let limit = (percent_milli * at_once / 100_000).max(min_concurrency);
            let (shortest, longest) = acting::attempt_us(topology, hop);
            let is_hedged = topology.callers[..=hop]
                .iter()
                .any(|caller| caller.policy.hedge_us.is_some());
            let wanted = wanted(calls.max);
            // Calls that wait for each other leave lanes empty.
            let waits = acting::is_in_parallel(topology, hop);
            if limit >= at_once || shortest == 0 || is_hedged || waits || topology.load.interval_us.is_some() {
                return (Count::ZERO, wanted);
            }
            // Retries take `limit` of `at_once` lanes at most, and each lasts `shortest` at least, while the others last
            // `longest` at most.
            let high = match calls.max {
                Count::Of(calls) => {
                    let lanes = u128::from(limit) * u128::from(longest) * (calls + u128::from(at_once));
                    Count::Of(lanes.div_ceil(u128::from(at_once - limit) * u128::from(shortest)))
                }
                Count::Beyond => Count::Beyond,
            };
            (Count::ZERO, high.min(wanted))
        }
    }
}
