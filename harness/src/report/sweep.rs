//! What `sweep` answers: one run for each value of what is varied.

use super::Report;
use serde::{Deserialize, Serialize};

/// The name of this format.
pub const SWEEP_SCHEMA: &str = "retryscope/sweep/v1";

/// One run for each value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// [`SWEEP_SCHEMA`].
    pub schema: String,
    /// The command line that repeats it, without the program's own name.
    pub command: String,
    /// What is varied, as typed: `p`, `attempts`, `services.pricing.retry.attempts`.
    pub over: String,
    /// How many points were asked for: more than there are in `points` where the sweep was cut short.
    pub planned: u64,
    /// The points, in the order of the values.
    pub points: Vec<Point>,
    /// What the closed form says at and between the values, by number, where what is varied is a chance: what a smooth line is
    /// drawn of. Empty for everything else.
    #[serde(default)]
    pub curve: Vec<Forecast>,
    /// The seed of drawn faults, the same for all values; null where each value has its own.
    pub seed: Option<u64>,
}

/// What the closed form says for one number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// What is varied.
    pub number: f64,
    /// Expected calls at the bottom for one request.
    pub mean: f64,
    /// Chance that a request still fails.
    pub still_fails: f64,
}

impl Sweep {
    /// The worst of the points, 3 before 1; 3 too where one is not there.
    pub fn exit_code(&self) -> u8 {
        if self.is_cut_short() {
            return 3;
        }
        self.points
            .iter()
            .map(|point| point.report.exit_code())
            .max()
            .unwrap_or(3)
    }

    /// Whether points are not there that were asked for.
    pub fn is_cut_short(&self) -> bool {
        (self.points.len() as u64) < self.planned
    }
}

/// One value, what was predicted for it and what came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The value as it was set.
    pub value: String,
    /// The same as a number; null where it is none.
    pub number: Option<f64>,
    /// Expected calls at the bottom for one request, by the closed form and not by the draws of this run; null where none is
    /// known.
    pub mean: Option<f64>,
    /// Chance that a request still fails, by the closed form; null as `mean`.
    pub still_fails: Option<f64>,
    /// The run.
    pub report: Report,
}

impl Point {
    /// Calls that arrived at the bottom for one request.
    pub fn received(&self) -> Option<f64> {
        self.report.services.last().and_then(|row| row.amplification)
    }

    /// The share of the requests that failed; `None` where none had an end.
    pub fn failed(&self) -> Option<f64> {
        let operations = &self.report.operations;
        let ended = operations.ok + operations.failed;
        (ended > 0).then(|| operations.failed as f64 / ended as f64)
    }
}
