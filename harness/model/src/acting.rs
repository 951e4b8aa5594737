//! The topology without what cannot act: timers that nothing reaches, limits that are never asked, waits that nobody counts.
//!
//! What is left of the timers and limits decides whether the rooms without a clock can answer. A chain whose deadline is far
//! beyond everything that can happen is counted as one without: that keeps closed forms and large counts.

use crate::fault::{Fault, Kind, When};
use crate::topology::{Budget, Caller, Code, Layer, PassesOn, Service, Topology};

/// How far two events lie apart whose order is taken for certain, microseconds.
pub(crate) const APART_US: u64 = 5_000;
/// How late a timer may fire, microseconds: clocks of a millisecond's grain, and the wake-up.
pub(crate) const LATE_US: u64 = 2_000;
/// How long a call or an answer may be on its way, microseconds, when nothing else is.
const HOP_US: u64 = 300;
/// The longest that is ever assumed, microseconds.
const MOST_HOP_US: u64 = 20_000;

/// A limit that a chain in which nothing waits is taken to keep, microseconds.
const INSTANT_US: u64 = 100_000;

/// A wait that is none, microseconds: the shortest that an Envoy can be told, which takes no longer than a call through it.
const NO_WAIT_US: u64 = 1_000;

/// How long a call or an answer may be on its way while so many requests and calls are under way.
pub(crate) fn hop_us(topology: &Topology) -> u64 {
    let requests = topology.load.concurrency.clamp(1, topology.load.requests.max(1));
    let calls = parallel_calls(&topology.services);
    HOP_US.saturating_mul(requests).saturating_mul(calls).min(MOST_HOP_US)
}

/// How many calls of one request are under way at once below these services, at most.
fn parallel_calls(services: &[Service]) -> u64 {
    let calls = services.iter().filter(|service| service.is_parallel());
    calls.fold(1, |calls, service| calls.saturating_mul(service.calls.into()))
}

/// Whether a service above this link has several calls under way at once.
pub(crate) fn is_in_parallel(topology: &Topology, hop: usize) -> bool {
    topology.services.iter().take(hop).any(Service::is_parallel)
}

/// Takes away what cannot act.
pub(crate) fn acting(topology: &Topology) -> Topology {
    let mut acting = topology.clone();
    let chain = &mut acting;
    chain.callers.iter_mut().for_each(drop_idle_policy);
    for service in &mut chain.services {
        service.fault = service.fault.acting();
    }
    drop_far_timers(chain);
    calm_overloads(chain);
    for caller in idle_budgets(chain) {
        chain.callers[caller].policy.budget = None;
    }
    drop_unseen_waits(chain);
    acting
}

/// Whether requests may overlap.
pub(crate) fn overlaps(topology: &Topology) -> bool {
    let load = topology.load;
    load.requests > 1 && (load.concurrency > 1 || load.interval_us.is_some())
}

/// How many calls are under way at once on a link, at most.
pub(crate) fn at_once(topology: &Topology, hop: usize) -> u64 {
    let requests = if overlaps(topology) {
        topology.load.concurrency
    } else {
        1
    };
    requests.saturating_mul(parallel_calls(&topology.services[..hop]))
}

/// Whether attempts of different calls may be under way at once.
fn is_crowded(topology: &Topology) -> bool {
    overlaps(topology) || topology.services.iter().any(Service::is_parallel)
}

fn drop_idle_policy(caller: &mut Caller) {
    caller.attempts = caller.attempts.max(1);
    if caller.attempts == 1 {
        caller.policy.backoff = None;
        caller.policy.throttle = None;
        caller.policy.budget = None;
        caller.policy.hedge_us = None;
        caller.policy.only_first_tries = false;
    }
    if let Some(client) = &mut caller.client_fault {
        client.fault = client.fault.acting();
    }
    caller.client_fault = caller.client_fault.filter(|client| client.fault != Fault::NONE);
}

impl Fault {
    /// Without a delay of nothing, and without what happens to nobody.
    fn acting(mut self) -> Self {
        self.delay = self
            .delay
            .filter(|delay| delay.ms + delay.jitter_ms > 0 && !delay.when.is_never());
        if self.when.is_never() {
            self.kind = Kind::None;
        }
        self
    }

    /// Milliseconds that an arrival waits at most.
    fn longest_ms(&self) -> u64 {
        self.delay.map_or(0, |delay| delay.ms.saturating_add(delay.jitter_ms))
    }
}

/// An overload that so few requests cannot cause is none, and one of capacity 0 is a failure.
fn calm_overloads(topology: &mut Topology) {
    let at_once: Vec<u64> = (0..topology.services.len()).map(|hop| at_once(topology, hop)).collect();
    let alone = !leaves(topology) && topology.services.iter().all(|service| !service.detached);
    // Work whose caller was cut off is in flight besides, until that is known.
    let cut_off: Vec<bool> = (0..topology.services.len())
        .map(|hop| is_cut_off(topology, hop))
        .collect();
    for ((service, cut_off), at_once) in topology.services.iter_mut().zip(cut_off).zip(at_once) {
        if let Kind::Overload { capacity, code } = service.fault.kind {
            if capacity == 0 {
                service.fault.kind = Kind::Fail(crate::fault::Fail {
                    code,
                    ..crate::fault::Fail::DOWN
                });
                // What is turned away is turned away at once.
                service.fault.delay = None;
            } else if alone && !cut_off && u64::from(capacity) >= at_once {
                service.fault.kind = Kind::None;
            }
        }
    }
}

/// Longest times, microseconds, when every call makes all its attempts.
struct Longest {
    /// From the beginning of a call on each link to its end.
    calls: Vec<u64>,
    /// Of one attempt on each link, whatever its own limit.
    attempts: Vec<u64>,
    /// Whether anything takes time at all besides the way.
    is_instant: bool,
}

fn longest(topology: &Topology) -> Longest {
    let hops = topology.callers.len();
    let hop = hop_us(topology);
    let (mut calls, mut attempts) = (vec![0; hops], vec![0; hops]);
    let mut is_instant = true;
    let mut below = 0_u64;
    // What an answer from below may say of the next attempt, milliseconds: every proxy on its way hears it.
    let mut said_ms = 0_i32;
    for index in (0..hops).rev() {
        let (caller, fault) = (&topology.callers[index], &topology.services[index].fault);
        let inside = caller.client_fault.filter(|client| client.inside);
        let outside = caller.client_fault.filter(|client| !client.inside);
        let delay_us = |fault: &Fault| fault.longest_ms().saturating_mul(1_000);
        let service = &topology.services[index];
        if !service.is_parallel() {
            below = below.saturating_mul(service.calls.max(1).into());
        }
        let mut attempt = below.saturating_add(2 * hop).saturating_add(delay_us(fault));
        attempt = attempt.saturating_add(inside.map_or(0, |client| delay_us(&client.fault)));
        if fault.kind == Kind::Hang {
            attempt = u64::MAX;
        }
        attempts[index] = attempt;
        // Work that is detached goes on when its caller has turned away.
        let lasts = topology.services[index..].iter().any(|service| service.detached);
        let limit = caller.policy.attempt_timeout_us.filter(|_| !lasts);
        let limited = limit.map_or(attempt, |limit| attempt.min(limit + LATE_US));
        let retries = u64::from(caller.attempts - 1);
        let waits: u64 = (1..caller.attempts)
            .map(|retry| caller.policy.longest_wait_us(retry))
            .fold(0, u64::saturating_add);
        if let Kind::Fail(fail) = fault.kind {
            said_ms = said_ms.max(fail.pushback_ms.unwrap_or(0));
        }
        let heard_ms = if caller.policy.ignores_pushback { 0 } else { said_ms };
        let asked = u64::from(heard_ms.unsigned_abs())
            .saturating_mul(1_000)
            .saturating_mul(retries);
        if caller.layer == Layer::Code {
            said_ms = 0;
        }
        let before = outside.map_or(0, |client| delay_us(&client.fault));
        is_instant &= waits <= retries * NO_WAIT_US
            && asked == 0
            && before == 0
            && fault.longest_ms() == 0
            && fault.kind != Kind::Hang
            && inside.is_none_or(|client| client.fault.longest_ms() == 0)
            && caller.policy.hedge_us.is_none();
        below = limited
            .saturating_mul(retries + 1)
            .saturating_add(waits.max(asked))
            .saturating_add(before)
            .saturating_add(LATE_US * (retries + 2));
        calls[index] = below;
    }
    Longest {
        calls,
        attempts,
        is_instant,
    }
}

impl crate::topology::Policy {
    /// Microseconds that the wait before a retry may take at most.
    pub(crate) fn longest_wait_us(&self, retry: u32) -> u64 {
        self.backoff.map_or(0, |backoff| backoff.wait_us(retry, backoff.most))
    }
}

impl crate::topology::Backoff {
    /// The wait before retry `retry`, spread by `factor`, microseconds.
    pub(crate) fn wait_us(&self, retry: u32, factor: f64) -> u64 {
        let grown = self.initial_us as f64 * self.multiplier.powf(f64::from(retry.saturating_sub(1)));
        let wait = grown.min(self.max_us as f64) * factor;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and a cast of what is too large saturates"
        )]
        let wait = wait.max(0.0) as u64;
        wait
    }
}

/// Takes away deadlines, limits and departures that come after everything is over.
fn drop_far_timers(topology: &mut Topology) {
    let longest = longest(topology);
    // Where nothing waits, only the number of calls takes time, and a plan that has too many for its deadline is another matter.
    let is_far = |limit_us: u64, longest_us: u64| {
        (longest.is_instant && limit_us >= INSTANT_US) || longest_us.saturating_add(APART_US) < limit_us
    };
    for (caller, longest_us) in topology.callers.iter_mut().zip(&longest.attempts) {
        let limit = caller.policy.attempt_timeout_us;
        caller.policy.attempt_timeout_us = limit.filter(|limit| !is_far(*limit, *longest_us));
    }
    let whole = longest.calls.first().copied().unwrap_or(0);
    let load = &mut topology.load;
    load.deadline_us = load.deadline_us.filter(|limit| !is_far(*limit, whole));
    load.cancel_after_us = load.cancel_after_us.filter(|limit| !is_far(*limit, whole));
    for (index, service) in topology.services.iter_mut().enumerate() {
        // The time runs from the arrival, so that a delay of the service's own is part of it.
        let own = service.fault.longest_ms().saturating_mul(1_000);
        let calls = if service.is_parallel() { 1 } else { service.calls.max(1) };
        let below = longest.calls.get(index + 1).copied().unwrap_or(0);
        let below = below.saturating_mul(calls.into()).saturating_add(own);
        if let PassesOn::AtMost(limit) = service.passes_on
            && is_far(limit, below)
        {
            service.passes_on = PassesOn::Rest;
        }
    }
}

/// The callers whose budget lets through every retry that this traffic can ask for.
fn idle_budgets(topology: &Topology) -> Vec<usize> {
    // Calls on a link at most, each caller above making all its attempts.
    let mut calls = topology.load.requests;
    let mut idle = Vec::new();
    for (index, caller) in topology.callers.iter().enumerate() {
        let retries = calls.saturating_mul(u64::from(caller.attempts - 1));
        let hedges = topology.callers[..=index]
            .iter()
            .any(|above| above.policy.hedge_us.is_some());
        let left_over = topology.services[..index].iter().any(|above| above.detached);
        let is_idle = match caller.policy.budget {
            None => false,
            Some(Budget::InFlight { min_concurrency, .. }) => {
                !hedges && !left_over && !is_cut_off(topology, index) && at_once(topology, index) <= min_concurrency
            }
            Some(Budget::Window { reserve_milli, .. }) => retries.saturating_mul(1_000) <= reserve_milli,
        };
        if is_idle {
            idle.push(index);
        }
        calls = calls.saturating_mul(caller.attempts.into());
        calls = calls.saturating_mul(topology.services[index].calls.max(1).into());
    }
    idle
}

/// Takes away waits and delays where nothing runs beside them.
fn drop_unseen_waits(topology: &mut Topology) {
    if is_timed(topology) {
        return;
    }
    for caller in &mut topology.callers {
        caller.policy.backoff = None;
        if let Some(client) = &mut caller.client_fault {
            client.fault.delay = None;
        }
        drop_idle_policy(caller);
    }
    for service in &mut topology.services {
        service.fault.delay = None;
        service.passes_on = PassesOn::Rest;
        service.detached = false;
    }
}

/// How long a run takes at most, microseconds, its requests going one behind another in so many lanes.
pub(crate) fn longest_run_us(topology: &Topology) -> u64 {
    let whole = longest(topology).calls.first().copied().unwrap_or(0);
    let load = topology.load;
    let rounds = load.requests / load.concurrency.max(1) + 1;
    let paced = load.interval_us.unwrap_or(0).saturating_mul(load.requests);
    whole.saturating_mul(rounds).saturating_add(paced)
}

/// How long an attempt on a link lasts at least and at most, microseconds.
pub(crate) fn attempt_us(topology: &Topology, hop: usize) -> (u64, u64) {
    let mut shortest_ms = 0_u64;
    for (index, (caller, service)) in topology.callers.iter().zip(&topology.services).enumerate().skip(hop) {
        // From the first service on whose connections are cut, any wait may end at once.
        if caller.client_fault.is_some() || leaves(topology) || is_cut_off(topology, index + 1) {
            break;
        }
        let delay = service.fault.delay.filter(|delay| delay.when == When::ALWAYS);
        shortest_ms = shortest_ms.saturating_add(delay.map_or(0, |delay| delay.ms));
        // Behind a fault that may answer, nothing is certain to be waited for.
        if service.fault.kind != Kind::None {
            break;
        }
    }
    (shortest_ms.saturating_mul(1_000), longest(topology).attempts[hop])
}

/// Whether counts depend on when something happens.
fn is_timed(topology: &Topology) -> bool {
    let load = topology.load;
    let policy = |caller: &Caller| {
        caller.policy.attempt_timeout_us.is_some()
            || caller.policy.hedge_us.is_some()
            || matches!(caller.policy.budget, Some(Budget::Window { .. }))
            || (is_crowded(topology) && (caller.policy.budget.is_some() || caller.policy.throttle.is_some()))
    };
    load.deadline_us.is_some()
        || load.cancel_after_us.is_some()
        || topology.callers.iter().any(policy)
        || topology.services.iter().any(|service| {
            matches!(service.passes_on, PassesOn::AtMost(_))
                || service.fault.kind == Kind::Hang
                || (is_crowded(topology) && matches!(service.fault.kind, Kind::Overload { .. }))
        })
}

/// Whether only the room with a clock knows the answer.
pub(crate) fn needs_clock(topology: &Topology) -> bool {
    is_timed(topology)
        || topology.callers.iter().any(|caller| {
            caller.policy.throttle.is_some()
                || caller.policy.budget.is_some()
                || caller.policy.only_first_tries
                || caller.client_fault.is_some()
        })
        || topology
            .services
            .iter()
            .any(|service| matches!(service.fault.kind, Kind::Overload { .. }))
        || shares_connections(topology)
}

/// Whether attempts that overlap may cut each other's connections.
pub(crate) fn shares_connections(topology: &Topology) -> bool {
    let is_crowded = overlaps(topology)
        || topology.callers.iter().any(|caller| caller.policy.hedge_us.is_some())
        || topology.services.iter().any(|service| service.detached);
    let cuts = |hop: usize| topology.services[hop].fault.kind.cuts_connections();
    (0..topology.services.len()).any(|hop| cuts(hop) && (is_crowded || is_in_parallel(topology, hop)))
}

/// Whether the caller on this link may be cut off in the middle of its call: its own arrival shares a connection that another one
/// ends, or something above it does.
pub(crate) fn is_cut_off(topology: &Topology, hop: usize) -> bool {
    let mut above = topology.services.iter().take(hop);
    shares_connections(topology) && above.any(|service| service.fault.kind.cuts_connections())
}

/// Whether every attempt that is sent on this link finds a closed port.
pub(crate) fn refuses_all(topology: &Topology, hop: usize) -> bool {
    let fails_before = topology.callers[hop].client_fault.is_some_and(|client| client.inside);
    topology.services[hop].fault.kind == Kind::Refuse
        && !fails_before
        && !leaves(topology)
        && !is_cut_off(topology, hop)
}

/// Whether work may go on for longer than the clock thinks: an Envoy tells each of its attempts the whole time that it was
/// given itself, and detached work keeps to what it was told.
pub(crate) fn stretches_deadlines(topology: &Topology) -> bool {
    let is_told = topology.load.deadline_us.is_some()
        || (topology.services.iter()).any(|service| matches!(service.passes_on, PassesOn::AtMost(_)));
    let envoy = topology.callers.iter().position(Caller::repeats_paths);
    is_told && envoy.is_some_and(|envoy| (topology.services.iter().skip(envoy)).any(|service| service.detached))
}

/// Whether calls of one request may find a service at its limit: work that takes no time by the clock takes a moment in truth,
/// and whoever comes in it is turned away.
pub(crate) fn crowds_an_overload(topology: &Topology) -> bool {
    let is_limited = |hop: usize| matches!(topology.services[hop].fault.kind, Kind::Overload { .. });
    (0..topology.services.len()).any(|hop| is_limited(hop) && is_in_parallel(topology, hop))
}

/// Whether somebody may leave before an answer comes.
pub(crate) fn leaves(topology: &Topology) -> bool {
    topology.load.deadline_us.is_some()
        || topology.load.cancel_after_us.is_some()
        || topology
            .services
            .iter()
            .any(|service| matches!(service.passes_on, PassesOn::AtMost(_)))
        || topology
            .callers
            .iter()
            .any(|caller| caller.policy.attempt_timeout_us.is_some() || caller.policy.hedge_us.is_some())
}

/// Every code that a request may end with, OK first.
pub(crate) fn codes(topology: &Topology) -> Vec<Code> {
    let mut codes = std::collections::BTreeSet::from([Code::OK]);
    codes.extend(topology.load.invalid_item.then_some(Code::INVALID_ARGUMENT));
    for (caller, service) in topology.callers.iter().zip(&topology.services) {
        let of_fault = |fault: &Fault| match fault.kind {
            Kind::None | Kind::Hang => None,
            Kind::Fail(fail) => Some(fail.code),
            Kind::Refuse => Some(Code::UNAVAILABLE),
            Kind::Cut(cut) => Some(caller.sees(cut).code),
            Kind::Overload { code, .. } => Some(code),
        };
        codes.extend(service.on_failure);
        codes.extend(of_fault(&service.fault));
        codes.extend(caller.client_fault.and_then(|client| of_fault(&client.fault)));
        codes.extend(caller.policy.attempt_timeout_us.map(|_| caller.timed_out().code));
    }
    if is_timed(topology) {
        codes.extend([Code::CANCELLED, Code::DEADLINE_EXCEEDED]);
    }
    codes.into_iter().collect()
}
