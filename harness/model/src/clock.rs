//! Counts that depend on time, on what earlier requests have used up, or on which attempt a call came from: every event of a
//! run, by an ideal clock.
//!
//! Ideal means: a timer fires when it is due, and at most [`LATE_US`](crate::acting::LATE_US) later; a call takes no time on its
//! way, and at most a fraction of a millisecond. Where two events that matter to each other lie so near that either may come
//! first, every order is followed, and the counts are bounds that some order reaches. Where none do, they are exact.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `course` | what happens, in one order |
//! | `choices` | which orders there are |
//! | `limits` | throttle and budgets |
//! | `time` | when, as far as that is known |

mod choices;
mod course;
mod limits;
mod time;

use crate::acting::{crowds_an_overload, overlaps, shares_connections, stretches_deadlines};
use crate::assemble::{Answer, failing, share};
use crate::chain::Layout;
use crate::count::Count;
use crate::fault::{Cut, Fault, Kind};
use crate::prediction::{Draws, Kind as PredictedKind, PerRequest, Predicted};
use crate::topology::{Budget, Topology};
use choices::Choices;
use course::{Came, Course, Requests};

/// What following events may cost: one for each that happens, and a share for each that it has to be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// For an answer: about a second of an optimised build.
    Whole,
    /// For one row of many.
    Little,
}

impl Effort {
    fn steps(self) -> u64 {
        match self {
            Self::Whole => 4_000_000,
            Self::Little => 200_000,
        }
    }
}

/// The most orders of events that one prediction follows.
const MOST_COURSES: u64 = 20_000;

/// What the clock says besides the counts.
pub(crate) struct Timed {
    pub(crate) answer: Answer,
    /// How far the nearest two events were apart whose order was taken for certain, microseconds; what is later than that may
    /// change a count.
    pub(crate) margin_us: u64,
    /// Callers whose throttle or budget said no in some order.
    pub(crate) refused: Vec<bool>,
}

/// Follows a run; `None` where it cannot be followed: it is too long, its draws are not to be repeated, or requests that
/// overlap share what is counted.
pub(crate) fn run(topology: &Topology, draws: Draws, effort: Effort) -> Option<Timed> {
    let is_drawn = is_drawn(topology);
    if is_drawn && draws == Draws::Forecast {
        return None;
    }
    let layout = Layout::new(topology);
    let (first, count) = (topology.load.first_request, topology.load.requests);
    let mut steps = effort.steps();
    if shares_connections(topology) || stretches_deadlines(topology) || crowds_an_overload(topology) {
        return None;
    }
    if !is_independent(topology) {
        if overlaps(topology) && topology.load.interval_us.is_none() {
            return None;
        }
        let whole = orders(topology, &layout, Requests { first, count }, &mut steps)?;
        return Some(whole.timed(topology, &layout, 1));
    }
    if !is_drawn {
        let one = orders(topology, &layout, Requests { first, count: 1 }, &mut steps)?;
        return Some(one.timed(topology, &layout, count));
    }
    let mut sum: Option<Extent> = None;
    for index in 0..count {
        let first = first.wrapping_add(index);
        let one = orders(topology, &layout, Requests { first, count: 1 }, &mut steps)?;
        match &mut sum {
            None => sum = Some(one),
            Some(sum) => sum.add(&one),
        }
    }
    sum.map(|sum| sum.timed(topology, &layout, 1))
}

/// Whether any arrival's fate is drawn.
pub(crate) fn is_drawn(topology: &Topology) -> bool {
    let drawn = |fault: &Fault| fault.when.is_drawn() || fault.delay.is_some_and(|delay| delay.when.is_drawn());
    topology.services.iter().any(|service| drawn(&service.fault))
        || topology
            .callers
            .iter()
            .any(|caller| caller.client_fault.is_some_and(|client| drawn(&client.fault)))
}

/// Whether a request goes as if it were alone.
fn is_independent(topology: &Topology) -> bool {
    if topology.load.requests <= 1 {
        return true;
    }
    let lasting = |fault: &Fault| {
        let counts = |when: &crate::fault::When| when.first.is_some() && when.per_process;
        counts(&fault.when) || fault.delay.is_some_and(|delay| counts(&delay.when))
    };
    let is_passing = !overlaps(topology) && topology.services.iter().all(|service| !service.detached);
    topology.callers.iter().all(|caller| {
        let is_free = match caller.policy.budget {
            None => true,
            Some(Budget::InFlight { .. }) => is_passing,
            Some(Budget::Window { .. }) => false,
        };
        is_free && caller.policy.throttle.is_none() && !caller.client_fault.is_some_and(|client| lasting(&client.fault))
    }) && topology.services.iter().all(|service| {
        let shares = match service.fault.kind {
            Kind::Overload { .. } | Kind::Cut(Cut::Connection | Cut::GoAway) => !is_passing,
            _ => false,
        };
        !shares && !lasting(&service.fault)
    })
}

/// The smallest and largest counts that any order gives.
struct Extent {
    min: Vec<u64>,
    max: Vec<u64>,
    worst: (u64, u64),
    margin_us: u64,
    refused: Vec<bool>,
}

fn orders(topology: &Topology, layout: &Layout, requests: Requests, steps: &mut u64) -> Option<Extent> {
    let mut choices = Choices::default();
    let mut extent: Option<Extent> = None;
    for _ in 0..MOST_COURSES {
        let came = Course::run(topology, layout, requests, &mut choices, steps)?;
        match &mut extent {
            None => extent = Some(Extent::of(came)),
            Some(extent) => extent.widen(&came),
        }
        if !choices.advance() {
            return extent;
        }
    }
    None
}

impl Extent {
    fn of(came: Came) -> Self {
        Self {
            min: came.counts.clone(),
            max: came.counts,
            worst: came.worst,
            margin_us: came.margin_us,
            refused: came.refused,
        }
    }

    fn widen(&mut self, came: &Came) {
        for ((min, max), count) in self.min.iter_mut().zip(&mut self.max).zip(&came.counts) {
            *min = (*min).min(*count);
            *max = (*max).max(*count);
        }
        self.note(came.worst, came.margin_us, &came.refused);
    }

    /// One request after another.
    fn add(&mut self, next: &Self) {
        for (sum, more) in self
            .min
            .iter_mut()
            .zip(&next.min)
            .chain(self.max.iter_mut().zip(&next.max))
        {
            *sum += more;
        }
        self.note(next.worst, next.margin_us, &next.refused);
    }

    fn note(&mut self, worst: (u64, u64), margin_us: u64, refused: &[bool]) {
        self.worst = (self.worst.0.max(worst.0), self.worst.1.max(worst.1));
        self.margin_us = self.margin_us.min(margin_us);
        for (known, refused) in self.refused.iter_mut().zip(refused) {
            *known |= refused;
        }
    }

    /// So many times over.
    fn timed(self, topology: &Topology, layout: &Layout, times: u64) -> Timed {
        let predicted = |(min, max): (&u64, &u64)| {
            let total = |count: &u64| Count::from(*count) * times.into();
            Predicted::between(total(min), total(max), PredictedKind::Bounds)
        };
        let totals: Vec<Predicted> = self.min.iter().zip(&self.max).map(predicted).collect();
        let share = |slot: usize| share(totals[slot].mean, topology.load.requests);
        let per_request = PerRequest {
            worst: self.worst.0.into(),
            mean: layout.bottom().and_then(share),
            sd: None,
            still_fails: failing(layout, share),
            arrivals_worst: self.worst.1.into(),
        };
        Timed {
            answer: Answer {
                layout: layout.clone(),
                totals,
                per_request,
            },
            margin_us: self.margin_us,
            refused: self.refused,
        }
    }
}
