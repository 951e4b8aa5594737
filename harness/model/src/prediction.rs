//! The prediction: its types, and the choice of the room that makes it.

use crate::acting::{acting, needs_clock, refuses_all};
use crate::assemble::{Answer, assemble};
use crate::chain::Chain;
use crate::clock::Effort;
use crate::count::Count;
use crate::topology::{Code, Topology};
use crate::{bounds, ceilings, chance, clock, exact, replay};
use std::collections::BTreeMap;

/// How sure a predicted count is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One number: min = max.
    Exact,
    /// A distribution. Min and max are the smallest and largest possible.
    Statistical,
    /// An interval that any order of arrivals stays within.
    Bounds,
}

/// A predicted total over the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Predicted {
    /// How sure it is.
    pub kind: Kind,
    /// Expected total; `None` where no closed form is known or it is beyond counting.
    pub mean: Option<f64>,
    /// Standard deviation of the total; `None` as `mean`.
    pub sd: Option<f64>,
    /// Smallest total that agrees.
    pub min: Count,
    /// Largest total that agrees.
    pub max: Count,
}

impl Predicted {
    /// From `min` to `max`: exact where they are one number, of this kind where they are not.
    pub(crate) fn between(min: Count, max: Count, otherwise: Kind) -> Self {
        let is_exact = min == max;
        let mean = if is_exact { min.as_f64() } else { None };
        Self {
            kind: if is_exact { Kind::Exact } else { otherwise },
            mean,
            sd: mean.map(|_| 0.0),
            min,
            max,
        }
    }
}

/// What a chain has to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// How many requests were planned.
    pub requests: u64,
    /// The services, the top one first.
    pub services: Vec<ServicePrediction>,
    /// The links, the client's first.
    pub links: Vec<LinkPrediction>,
    /// Requests that end OK.
    pub ok: Predicted,
    /// Requests that end with a failure, by code. A code that cannot come is absent.
    pub failed_by_code: BTreeMap<Code, Predicted>,
    /// What one request does.
    pub per_request: PerRequest,
    /// The arrivals to plan for, all services together: the count where there is one, the mean rounded up under chance,
    /// the largest possible where no mean is known.
    pub total_arrivals: Count,
    /// How late things may be, microseconds, before a count changes; `None` where no count depends on time.
    pub margin_us: Option<u64>,
    /// Whether nothing but floors and ceilings is known, as the events of the run cannot be followed one by one.
    pub is_floor_and_ceiling: bool,
    /// What the throttles and budgets do, by caller.
    pub limits: Vec<Limit>,
}

/// What a caller's throttle or budget does in this run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The caller.
    pub caller: String,
    /// Whether it refuses a retry; `None` where that depends on the order of things.
    pub binds: Option<bool>,
}

/// What one service should see.
#[derive(Debug, Clone, PartialEq)]
pub struct ServicePrediction {
    /// Its name.
    pub name: String,
    /// Arrivals.
    pub received: Predicted,
    /// Arrivals whose own work ended OK, whatever they were answered.
    pub work_done: Predicted,
    /// Arrivals that end without an answer, at most: their time is over, or their caller has left.
    pub unanswered: Predicted,
}

/// What one link should carry.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkPrediction {
    /// The caller's name.
    pub from: String,
    /// The service's name.
    pub to: String,
    /// Calls the caller made.
    pub calls: Predicted,
    /// Attempts the caller sent.
    pub sent: Predicted,
    /// Attempts that are sent and do not arrive.
    pub lost: Predicted,
    /// Attempts that a fault of the transport ends, as it was asked to.
    pub cut: Predicted,
    /// Calls that end when their deadline has passed; their caller may have left first.
    pub out_of_time: Predicted,
    /// Whether the transport fails every attempt that is sent: the port is closed, and nothing ends an attempt before it gets
    /// there.
    pub refuses_all: bool,
}

/// What one request does. Where requests differ because `first` counts over the process, `mean` and `still_fails` are
/// the run's divided by its requests, and `sd` is `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerRequest {
    /// The most arrivals at the bottom that one request can cause.
    pub worst: Count,
    /// Expected arrivals at the bottom.
    pub mean: Option<f64>,
    /// Their standard deviation.
    pub sd: Option<f64>,
    /// The chance that the request ends with a failure, after all attempts.
    pub still_fails: Option<f64>,
    /// The most arrivals at all services together that one request can cause.
    pub arrivals_worst: Count,
}

/// What becomes of draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Draws {
    /// The draws of this run are repeated, which gives one number.
    Replay,
    /// Nothing is repeated: a mean, a deviation, and what is possible at all.
    Forecast,
}

/// Predicts a run.
///
/// Under [`Draws::Replay`] a chain with chances is walked arrival by arrival; keep the plan small, for instance by the
/// [`Prediction::total_arrivals`] of a forecast. A replay of more than 50 million attempts is answered as a forecast.
pub fn predict(topology: &Topology, draws: Draws) -> Prediction {
    let solved = solve(topology, draws, Effort::Whole);
    assemble(topology, solved)
}

/// What a room found out, and which limits it met.
pub(crate) struct Solved {
    pub(crate) answer: Answer,
    pub(crate) margin_us: Option<u64>,
    /// Whether the counts are more than floors and ceilings.
    pub(crate) is_followed: bool,
    /// By link.
    pub(crate) refuses_all: Vec<bool>,
    /// By caller; `None` for one that has neither throttle nor budget.
    pub(crate) binds: Vec<Option<Binds>>,
}

/// Whether a limit refuses a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binds {
    No,
    Yes,
    Depends,
}

pub(crate) fn solve(topology: &Topology, draws: Draws, effort: Effort) -> Solved {
    let acts = acting(topology);
    let limited = |caller: usize| topology.callers[caller].is_limited();
    let binds = |acting: &dyn Fn(usize) -> Binds| {
        let binds = |caller: usize| {
            let still = &acts.callers[caller].policy;
            if still.throttle.is_none() && still.budget.is_none() {
                Binds::No
            } else {
                acting(caller)
            }
        };
        (0..acts.callers.len())
            .map(|caller| limited(caller).then(|| binds(caller)))
            .collect()
    };
    let refuses_all = (0..acts.callers.len()).map(|hop| refuses_all(&acts, hop)).collect();
    if !needs_clock(&acts) {
        return Solved {
            answer: answer(&acts, draws),
            margin_us: None,
            is_followed: true,
            refuses_all,
            binds: binds(&|_| Binds::No),
        };
    }
    match clock::run(&acts, draws, effort) {
        Some(timed) => Solved {
            answer: timed.answer,
            margin_us: Some(timed.margin_us),
            is_followed: true,
            refuses_all,
            binds: binds(&|caller| if timed.refused[caller] { Binds::Yes } else { Binds::No }),
        },
        None => Solved {
            answer: ceilings::run(&acts),
            margin_us: ceilings::rest_on_time(&acts).then_some(0),
            is_followed: false,
            refuses_all,
            binds: {
                let never = ceilings::never_retry(&acts);
                binds(&|caller| if never[caller] { Binds::No } else { Binds::Depends })
            },
        },
    }
}

fn answer(topology: &Topology, draws: Draws) -> Answer {
    let chain = &Chain::new(topology);
    if !chain.draws() && chain.orders_itself() {
        return Answer::from_exact(chain, &exact::run(chain));
    }
    let chain = &chance::without_endless_firsts(chain);
    // Calls under way at once that share a `first`: where there are few orders, all of them are followed.
    if !chain.orders_calls()
        && let Some(timed) = clock::run(topology, draws, Effort::Little)
    {
        return timed.answer;
    }
    if !chain.orders_itself() {
        return bounds::run(chain);
    }
    if !chain.draws() {
        return Answer::from_exact(chain, &exact::run(chain));
    }
    let mut answer = match chance::run(chain) {
        Some((total, one)) => Answer::from_moments(chain, &total, &one),
        None => Answer::from_extent(chain, &chance::extent_of_free_choice(chain), Kind::Statistical),
    };
    if draws == Draws::Replay
        && let Some(counts) = replay::run(chain)
    {
        answer.replace_by(&counts);
    }
    answer
}
