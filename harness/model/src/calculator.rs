//! What people work out on paper: the worst case, the ceiling of a budget, what a share of failures leaves.

use crate::clock::Effort;
use crate::count::Count;
use crate::fault::{Fault, Kind, When};
use crate::prediction::{Draws, solve};
use crate::topology::Topology;

/// The most arrivals at the bottom that one request can cause, with little effort: for one row of many.
pub fn worst(topology: &Topology) -> Count {
    solve(topology, Draws::Forecast, Effort::Little)
        .answer
        .per_request
        .worst
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
        p: Some(share),
        ..When::default()
    };
    shared
}
