//! The prediction: its types, and the choice of the room that makes it.

use crate::assemble::{Answer, assemble};
use crate::chain::Chain;
use crate::count::Count;
use crate::topology::{Code, Topology};
use crate::{bounds, chance, exact, replay};
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
    assemble(topology, answer(&Chain::new(topology), draws))
}

pub(crate) fn answer(chain: &Chain, draws: Draws) -> Answer {
    if !chain.draws() && chain.orders_itself() {
        return Answer::from_exact(chain, &exact::run(chain));
    }
    let chain = &chance::without_endless_firsts(chain);
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
