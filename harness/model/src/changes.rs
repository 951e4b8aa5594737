//! What a change of the policy would leave, and the multiplication behind a count.

use crate::acting::{acting, needs_clock};
use crate::calculator::{fanning, worst};
use crate::chain::Chain;
use crate::count::Count;
use crate::exact;
use crate::topology::Topology;

/// One change and what it leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What is changed.
    pub kind: ChangeKind,
    /// The most arrivals at the bottom that one request can cause afterwards.
    pub bottom: Count,
}

/// What is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// This caller makes one attempt.
    AttemptsToOne {
        /// Its name.
        caller: String,
    },
    /// This caller keeps its attempts, and every other one makes one.
    OneOwner {
        /// Its name.
        caller: String,
    },
}

/// The changes that lower the worst case at the bottom, the biggest cut first.
pub fn changes(topology: &Topology) -> Vec<Change> {
    let now = worst(topology);
    let retrying = (0..topology.callers.len()).filter(|caller| topology.callers[*caller].attempts > 1);
    let mut changes: Vec<Change> = Vec::new();
    for caller in retrying {
        let name = || topology.callers[caller].name.clone();
        let kinds = [
            ChangeKind::OneOwner { caller: name() },
            ChangeKind::AttemptsToOne { caller: name() },
        ];
        let bottoms = [
            one_attempt(topology, |other| other != caller),
            one_attempt(topology, |other| other == caller),
        ];
        changes.extend(
            kinds
                .into_iter()
                .zip(bottoms)
                .map(|(kind, bottom)| Change { kind, bottom }),
        );
    }
    changes.retain(|change| change.bottom < now);
    changes.sort_by_key(|change| change.bottom);
    changes
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
    if needs_clock(&acts) || factors.iter().any(|(_, what)| !what.is_empty()) {
        // Limits and times cut the product down, and so does a sequence that ends early; then there is only the number.
        let product = factors
            .iter()
            .fold(Count::ONE, |product, (factor, _)| product * u64::from(*factor).into());
        let worst = worst(topology);
        if product != worst {
            return worst.to_string();
        }
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
