//! The topology as the four rooms use it: what can never act is gone, and every count has a place in one flat row.

use crate::count::Count;
use crate::ended::Ended;
use crate::fault::{Fault, Kind};
use crate::topology::{Caller, Code, Topology};

/// A topology without its names.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) hops: Vec<Hop>,
    pub(crate) invalid_item: bool,
    pub(crate) requests: u64,
    pub(crate) first_request: u64,
    pub(crate) seed: u64,
    /// Whether one request ends before the next begins.
    pub(crate) one_at_a_time: bool,
    pub(crate) layout: Layout,
}

/// One link: a caller and the service it calls.
#[derive(Debug, Clone)]
pub(crate) struct Hop {
    pub(crate) caller: Caller,
    pub(crate) trouble: Trouble,
    pub(crate) on_failure: Option<Code>,
    /// How often the service calls the next, at least 1.
    pub(crate) calls: u32,
    pub(crate) is_parallel: bool,
    /// Whether an attempt path may come here more than once in a request.
    pub(crate) repeats_paths: bool,
}

/// A fault that can act.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Trouble {
    None,
    Refuse,
    Fail {
        /// How it ends the attempt.
        ended: Ended,
        after: bool,
        first: First,
        /// Strictly between 0 and 1; `None` means certain.
        chance: Option<f64>,
    },
}

/// Over what `first` counts, and how far. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    Every,
    OfRequest(u64),
    OfProcess(u64),
}

/// What is counted at a hop.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Calls,
    Sent,
    Received,
    WorkDone,
    /// Attempts that were sent and did not arrive.
    Lost,
    /// Attempts that a fault of the transport ended, as it was asked to.
    Cut,
    /// Calls that ended when their deadline had passed, by themselves or with what had called them.
    OutOfTime,
    /// Arrivals that ended without an answer: their time was over, or their caller had left.
    Unanswered,
}

/// The row of counts: eight for each hop, then all arrivals together, then the requests by the code they ended with.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    hops: usize,
    /// The codes a request may end with, OK first.
    pub(crate) codes: Vec<Code>,
}

const COUNTS_PER_HOP: usize = 8;

impl Layout {
    pub(crate) fn new(topology: &Topology) -> Self {
        Self {
            hops: topology.callers.len(),
            codes: crate::acting::codes(topology),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.arrivals() + 1 + self.codes.len()
    }

    pub(crate) fn at(&self, hop: usize, what: What) -> usize {
        debug_assert!(hop < self.hops);
        hop * COUNTS_PER_HOP + what as usize
    }

    /// Arrivals at all services together. Kept apart, because the largest sum is not the sum of the largest.
    pub(crate) fn arrivals(&self) -> usize {
        self.hops * COUNTS_PER_HOP
    }

    /// Requests that ended with this code.
    pub(crate) fn ended(&self, code: Code) -> usize {
        let place = self.codes.iter().position(|known| *known == code);
        self.arrivals() + 1 + place.expect("every code that a hop can answer was collected")
    }

    /// Arrivals at the last service; `None` for a chain without services.
    pub(crate) fn bottom(&self) -> Option<usize> {
        self.hops.checked_sub(1).map(|last| self.at(last, What::Received))
    }

    pub(crate) fn zeros(&self) -> Vec<Count> {
        vec![Count::ZERO; self.len()]
    }
}

impl Chain {
    pub(crate) fn new(topology: &Topology) -> Self {
        let load = topology.load;
        let mut repeats_paths = false;
        let hops = topology
            .callers
            .iter()
            .zip(&topology.services)
            .map(|(caller, service)| {
                repeats_paths |= caller.repeats_paths();
                Hop {
                    trouble: Trouble::new(service.fault, load.requests, caller),
                    caller: caller.clone(),
                    on_failure: service.on_failure,
                    calls: service.calls.max(1),
                    is_parallel: service.is_parallel(),
                    repeats_paths,
                }
            })
            .collect();
        let layout = Layout::new(topology);
        let one_at_a_time = load.concurrency <= 1 || load.requests <= 1;
        Self {
            hops,
            invalid_item: load.invalid_item,
            requests: load.requests,
            first_request: load.first_request,
            seed: load.seed,
            one_at_a_time,
            layout,
        }
    }

    /// Whether any arrival's fate is drawn.
    pub(crate) fn draws(&self) -> bool {
        self.hops
            .iter()
            .any(|hop| matches!(hop.trouble, Trouble::Fail { chance: Some(_), .. }))
    }

    /// The hops whose `first` counts over the process.
    pub(crate) fn process_counters(&self) -> Vec<usize> {
        let counts = |hop: &Hop| matches!(hop.trouble.first(), First::OfProcess(_));
        (0..self.hops.len()).filter(|hop| counts(&self.hops[*hop])).collect()
    }

    /// Whether the order of arrivals is known as far as it matters: requests do not overlap, or share no `first`, and nor do
    /// calls of one request.
    pub(crate) fn orders_itself(&self) -> bool {
        (self.one_at_a_time || self.process_counters().is_empty()) && self.orders_calls()
    }

    /// Whether no `first` counts below a service that has several calls under way at once.
    pub(crate) fn orders_calls(&self) -> bool {
        let top = self.hops.iter().position(|hop| hop.is_parallel);
        top.is_none_or(|top| (self.hops[top + 1..].iter()).all(|hop| hop.trouble.first() == First::Every))
    }

    pub(crate) fn is_bottom(&self, hop: usize) -> bool {
        hop + 1 == self.hops.len()
    }

    /// What the bottom's handler answers.
    pub(crate) fn bottom_answer(&self) -> Ended {
        if self.invalid_item {
            Code::INVALID_ARGUMENT.into()
        } else {
            Code::OK.into()
        }
    }
}

impl Trouble {
    /// Drops what cannot act: `first=0`, a chance of 0, and a chance that is no number (no draw is below it). To a single
    /// request the process is the request.
    fn new(fault: Fault, requests: u64, caller: &Caller) -> Self {
        let (ended, after) = match fault.kind {
            Kind::Refuse => return Self::Refuse,
            Kind::Fail(fail) => (fail.into(), fail.after),
            Kind::Cut(cut) => (caller.sees(cut), false),
            // Where these act, the clock answers.
            Kind::None | Kind::Hang | Kind::Overload { .. } => return Self::None,
        };
        let when = fault.when;
        let first = match when.first {
            None => First::Every,
            Some(0) => return Self::None,
            Some(first) if when.per_process && requests > 1 => First::OfProcess(first),
            Some(first) => First::OfRequest(first),
        };
        let chance = match when.p {
            None => None,
            Some(p) if p >= 1.0 => None,
            Some(p) if p > 0.0 => Some(p),
            Some(_) => return Self::None,
        };
        Self::Fail {
            ended,
            after,
            first,
            chance,
        }
    }

    pub(crate) fn first(&self) -> First {
        match self {
            Self::Fail { first, .. } => *first,
            Self::None | Self::Refuse => First::Every,
        }
    }

    /// The same fault with another `first`.
    pub(crate) fn with_first(mut self, other: First) -> Self {
        if let Self::Fail { first, .. } = &mut self {
            *first = other;
        }
        self
    }
}
