//! What people work out on paper: the worst case and the multiplication behind it, the ceiling of a budget, what a share of
//! failures leaves.

use crate::acting::{acting, needs_clock};
use crate::chain::{Chain, What};
use crate::clock::Effort;
use crate::count::Count;
use crate::exact;
use crate::fault::{Fault, Kind, When};
use crate::prediction::{Draws, PerRequest, solve};
use crate::topology::Topology;

/// The most arrivals at the bottom that one request can cause, with little effort: for one row of many.
pub fn worst(topology: &Topology) -> Count {
    solve(topology, Draws::Forecast, Effort::Little)
        .answer
        .per_request
        .worst
}

/// The most attempts that one request can put on the last link, with little effort: what [`worst`] is where the port is
/// closed, so that none of them arrives.
pub fn worst_sent(topology: &Topology) -> Count {
    let mut one = topology.clone();
    one.load.requests = 1;
    let answer = solve(&one, Draws::Forecast, Effort::Little).answer;
    let last = topology.callers.len().checked_sub(1);
    last.map_or(Count::ZERO, |last| {
        answer.totals[answer.layout.at(last, What::Sent)].max
    })
}

/// What one request does, with little effort: for one row of many.
pub fn one_request(topology: &Topology) -> PerRequest {
    let mut one = topology.clone();
    one.load.requests = 1;
    solve(&one, Draws::Forecast, Effort::Little).answer.per_request
}

/// The calculator's ceiling of a budget at every layer that retries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// Layers that retry.
    pub layers: u64,
    /// Arrivals at the bottom for one request under steady traffic, at most.
    pub bottom: f64,
}

/// Every layer makes at most `percent` retries for a hundred calls that it gets, and never more than its attempts allow: the
/// product of `min(attempts, 1 + percent / 100)`, and of the calls of every service that makes several.
pub fn ceiling(topology: &Topology, percent: f64) -> Ceiling {
    let retrying = topology.callers.iter().filter(|caller| caller.attempts > 1);
    let factors = retrying.map(|caller| f64::from(caller.attempts).min(1.0 + percent / 100.0));
    let fans = topology.services.iter().zip(fanning(topology));
    let calls = fans
        .filter(|(_, fans)| *fans)
        .map(|(service, _)| f64::from(service.calls));
    Ceiling {
        layers: factors.clone().count() as u64,
        bottom: factors.product::<f64>() * calls.product::<f64>(),
    }
}

/// For each service, whether fewer arrivals at the bottom were possible if it made one call.
pub(crate) fn fanning(topology: &Topology) -> Vec<bool> {
    let now = worst(topology);
    let lowers = |hop: usize| {
        let mut once = topology.clone();
        once.services[hop].calls = 1;
        worst(&once) < now
    };
    (0..topology.services.len())
        .map(|hop| topology.services[hop].calls > 1 && lowers(hop))
        .collect()
}

/// The same chain, whose bottom service fails each arrival with this chance, from 0 to 1, and as it failed before; with
/// UNAVAILABLE where it did not fail.
pub fn failing_share(topology: &Topology, share: f64) -> Topology {
    let mut shared = topology.clone();
    let Some(bottom) = shared.services.last_mut() else {
        return shared;
    };
    if matches!(
        bottom.fault.kind,
        Kind::None | Kind::Hang | Kind::Refuse | Kind::Overload { .. }
    ) {
        bottom.fault = Fault::DOWN;
    }
    bottom.fault.when = When {
        p: (share < 1.0).then_some(share),
        ..When::ALWAYS
    };
    shared
}

/// The same chain in an outage of its bottom service: that fails each arrival with this chance, as [`failing_share`] says, and
/// nothing else has a fault.
pub fn outage(topology: &Topology, share: f64) -> Topology {
    let mut outage = failing_share(topology, share);
    let above = outage.services.len().saturating_sub(1);
    for service in &mut outage.services[..above] {
        service.fault = Fault::NONE;
    }
    for caller in &mut outage.callers {
        caller.client_fault = None;
    }
    outage
}

/// Arrivals at the bottom for one request when nothing fails and nobody tries anything twice: the calls of the services that
/// make several, multiplied.
pub fn without_retries(topology: &Topology) -> Count {
    let calls = topology.services.iter().map(|service| u64::from(service.calls.max(1)));
    // The bottom calls nobody.
    let calls = calls.take(topology.services.len().saturating_sub(1));
    calls.fold(Count::ONE, |product, calls| product * calls.into())
}

/// Whether nothing arrives at the bottom although something is sent there: its port is closed, or its caller fails all calls
/// itself. What is sent is then what can be counted.
pub fn is_only_sent(topology: &Topology) -> bool {
    worst(topology) == Count::ZERO && worst_sent(topology) > Count::ZERO
}

/// The multiplication behind the worst case at the bottom, such as `3 x 2 calls x 3`: the attempts of every caller whose
/// attempts multiply what is sent there, without ones, and the calls of every service whose calls do; `1` if nothing does; the
/// number alone where limits, times or the end of a sequence leave less than the product.
pub fn formula(topology: &Topology) -> String {
    let acts = acting(topology);
    let chain = Chain::new(&acts);
    let multiplies: Vec<(bool, bool)> = if needs_clock(&acts) || chain.draws() || !chain.orders_itself() {
        let now = worst(topology);
        let attempts = |caller| one_attempt(topology, |other| other == caller) < now;
        let fans = fanning(topology);
        (0..chain.hops.len()).map(|hop| (attempts(hop), fans[hop])).collect()
    } else {
        exact::multiplying(&chain)
    };
    let mut factors: Vec<(u32, &str)> = Vec::new();
    for (hop, (attempts, calls)) in chain.hops.iter().zip(multiplies) {
        factors.extend((attempts && hop.caller.attempts > 1).then_some((hop.caller.attempts, "")));
        factors.extend((calls && hop.calls > 1).then_some((hop.calls, " calls")));
    }
    // Limits and times cut the product down, and so do a sequence that ends early and a fault that does; then there is only the
    // number, of what is sent where nothing arrives.
    let product = factors
        .iter()
        .fold(Count::ONE, |product, (factor, _)| product * u64::from(*factor).into());
    let number = match worst(topology) {
        Count::ZERO => worst_sent(topology),
        worst => worst,
    };
    if product != number {
        return number.to_string();
    }
    if factors.is_empty() {
        return "1".to_owned();
    }
    let factors: Vec<_> = factors.iter().map(|(factor, what)| format!("{factor}{what}")).collect();
    factors.join(" x ")
}

/// The worst case at the bottom if these callers made one attempt.
fn one_attempt(topology: &Topology, of: impl Fn(usize) -> bool) -> Count {
    let mut changed = topology.clone();
    for (number, caller) in changed.callers.iter_mut().enumerate() {
        if of(number) {
            caller.attempts = 1;
        }
    }
    worst(&changed)
}
