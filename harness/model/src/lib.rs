//! The prediction and the verdict: what a chain of retrying callers has to send, and whether what arrived agrees.
//!
//! Here: arithmetic on a [`Topology`], and one pure judgement of a [`verdict::Observation`] against a [`Prediction`].
//! Not here: anything that reads a configuration, sends a call or prints. The crate depends on nothing and shares no
//! code with the services, because one function asked by both would move prediction and measurement together.
//!
//! Start at [`predict`]. It picks one of four rooms and never mixes them:
//!
//! | room | asked when | answer |
//! | --- | --- | --- |
//! | `exact` | nothing is drawn, and the order of arrivals is known | one number, without walking the tree |
//! | `chance` | an arrival fails with a chance | mean, deviation, smallest and largest possible |
//! | `replay` | the same, for a run whose draws can be repeated | one number, by walking the tree |
//! | `bounds` | `first` counts over requests, or calls of one, that overlap | an interval that any order of arrivals stays within |
//!
//! [`worst`], [`formula`] and their like ask the same rooms for the figures that people work out on paper.

mod acting;
mod assemble;
mod bounds;
mod calculator;
mod ceilings;
mod chain;
mod chance;
mod clock;
mod count;
mod distribution;
mod draw;
mod ended;
mod exact;
pub mod fault;
mod prediction;
mod replay;
mod topology;
pub mod verdict;

pub use calculator::{
    Ceiling, ceiling, failing_share, formula, is_only_sent, one_request, outage, without_retries, worst, worst_sent,
};
pub use count::Count;
pub use distribution::{Distribution, distributions};
pub use fault::Fault;
pub use prediction::{
    Draws, Kind, Limit, LinkPrediction, PerRequest, Predicted, Prediction, ServicePrediction, predict,
};
pub use topology::{
    Backoff, Budget, Caller, Code, FanOut, Layer, Load, PassesOn, Policy, RetryOn, Service, Throttle, Topology,
};
pub use verdict::{Verdict, judge};
