//! What `predict` answers.

use super::{Count, Predicted, ServiceKind};
use serde::{Deserialize, Serialize};

/// The name of the prediction format.
pub const PREDICTION_SCHEMA: &str = "retryscope/prediction/v1";

/// What `predict` answers: the arithmetic alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// [`PREDICTION_SCHEMA`].
    pub schema: String,
    /// The command line that repeats it.
    pub command: String,
    /// The chain line, without quotes.
    pub chain: String,
    /// The scenario in force, in the keys of a scenario file.
    pub scenario: serde_json::Value,
    /// Totals over the run, the top service first.
    pub services: Vec<PredictedService>,
    /// The links, the client's first.
    pub links: Vec<PredictedLink>,
    /// The bottom service for one request.
    pub bottom: Bottom,
    /// How often each caller tries one call.
    pub tries_per_call: Vec<Tries>,
    /// The multiplication behind the worst case: `3 x 3 x 3`.
    pub formula: String,
    /// What each change leaves, the biggest cut first; changes that do not help are left out.
    pub changes: Vec<Change>,
    /// What the policy costs and what it buys when the bottom service fails only a share of its calls: as it is, then with the
    /// changes that are worth a look, each at 10, 50, 90 and 100 %.
    #[serde(default)]
    pub shares: Vec<Share>,
    /// The ceiling of `--budget`; null without it.
    #[serde(default)]
    pub budget: Option<BudgetCeiling>,
    /// Requests per second of `--rate`; null without it.
    #[serde(default)]
    pub rate: Option<f64>,
    /// Requests that the figures per second are the average of: those that are asked for, or more where throttles or budgets
    /// need many before they say what they do; null without a rate.
    #[serde(default)]
    pub rate_requests: Option<u64>,
    /// Whether the bottom service recovers by itself, of `--capacity`; null without it.
    #[serde(default)]
    pub capacity: Option<Capacity>,
    /// What the numbers rest on, in sentences.
    pub notes: Vec<String>,
    /// The seed.
    pub seed: u64,
}

/// One row of a prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictedService {
    /// Its name in the chain line.
    pub service: String,
    /// `service` or `sidecar`.
    pub kind: ServiceKind,
    /// What should arrive.
    pub predicted: Predicted,
    /// Arrivals per second at `--rate`; null without a rate, and beyond counting.
    #[serde(default)]
    pub per_second: Option<PerSecond>,
    /// How often how many arrive for one request; null where nothing is left to chance, or where it is not known.
    #[serde(default)]
    pub distribution: Option<Distribution>,
}

/// Arrivals per second: the mean where there is one, otherwise what agrees.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PerSecond {
    /// The mean, or the least.
    pub min: f64,
    /// The mean, or the most.
    pub max: f64,
}

/// How often how many arrive at a service for one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Half of the requests cause at most so many.
    pub p50: Count,
    /// 90 % of the requests cause at most so many.
    pub p90: Count,
    /// 99 % of the requests cause at most so many.
    pub p99: Count,
    /// Each count with its chance, from the smallest, without chances below 1e-15; empty where there are more than 1,000.
    pub counts: Vec<Chance>,
}

/// One count and its chance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Chance {
    /// Arrivals.
    pub count: Count,
    /// From 0 to 1.
    pub chance: f64,
}

/// What a policy costs and buys when the bottom service fails a share of its calls, each independently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// `as it is`, or the change.
    pub policy: String,
    /// The share of the calls that fail, from 0 to 1.
    pub failing: f64,
    /// Expected arrivals at the bottom for one request; null where no closed form is known.
    pub mean: Option<f64>,
    /// Their standard deviation; null as `mean`.
    pub sd: Option<f64>,
    /// Chance that the request still fails; null as `mean`.
    pub still_fails: Option<f64>,
}

/// The calculator's ceiling of a retry budget at every layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BudgetCeiling {
    /// Retries per hundred calls that each layer may make.
    pub percent: f64,
    /// Layers that retry.
    pub layers: u64,
    /// Calls at the bottom for one request under steady traffic, at most.
    pub bottom: f64,
}

/// Whether the bottom service recovers by itself: what it gets while it fails against what it can answer. Nothing else fails
/// then, whatever faults the scenario has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// Calls per second that it can answer.
    pub capacity: f64,
    /// Calls per second that it gets when nothing fails and nobody retries; null beyond counting.
    pub offered: Option<f64>,
    /// The share of its calls that fails where it gets most, from 0 to 1; below 1 where a sequence of calls goes on after an
    /// answer.
    pub failing: f64,
    /// Calls per second that it gets then; null beyond counting.
    pub load: Option<PerSecond>,
    /// Whether the load stays below the capacity; null where that lies between the bounds.
    pub recovers: Option<bool>,
}

impl Capacity {
    /// Whether it can answer what comes when nothing fails and nobody retries.
    pub fn keeps_up(&self) -> bool {
        self.offered.is_some_and(|offered| offered < self.capacity)
    }
}

/// What one link should carry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictedLink {
    /// The caller.
    pub from: String,
    /// The callee.
    pub to: String,
    /// Attempts that the caller should put on the link, a total over the run.
    pub sent: Predicted,
}

/// The bottom service for one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bottom {
    /// Its name.
    pub service: String,
    /// Arrivals in the worst case: as if every arrival that may fail failed.
    pub worst: Count,
    /// Expected arrivals; null where no closed form is known.
    pub mean: Option<f64>,
    /// Standard deviation of the arrivals; null as `mean`.
    pub sd: Option<f64>,
    /// Chance that the request still fails; null as `mean`.
    pub still_fails: Option<f64>,
}

/// How often a caller tries one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tries {
    /// The caller.
    pub caller: String,
    /// Attempts in its code.
    pub code: u32,
    /// Attempts of the proxy under it, for each of them.
    pub proxy: u32,
    /// Their product.
    pub tries: u64,
}

/// One change and what it leaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What to change.
    pub change: String,
    /// What it does, as a word for programs.
    pub kind: ChangeKind,
    /// The caller that it is about; null where it is about several.
    #[serde(default)]
    pub at: Option<String>,
    /// Whether it is one edit or several.
    #[serde(default)]
    pub scope: Scope,
    /// What is edited for it.
    pub edits: String,
    /// Arrivals at the bottom for one request, worst case, with it; what is sent there where none can arrive. A budget does
    /// not bind for one request alone, after quiet times.
    pub bottom: Count,
    /// What a budget leaves under steady traffic, arrivals at the bottom for one request; null for what is no budget.
    #[serde(default)]
    pub ceiling: Option<f64>,
    /// What it gives up, told as what becomes of failures afterwards.
    pub gives_up: String,
    /// The command line that runs it, without the program's own name; empty where real Envoys cannot do it.
    #[serde(default)]
    pub command: String,
}

/// How much is edited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One place.
    OneEdit,
    /// More than one.
    #[default]
    SeveralEdits,
}

/// What a change does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The code of one caller makes one attempt.
    CodeOff,
    /// The proxy under one caller does.
    ProxyOff,
    /// All proxies do.
    AllProxiesOff,
    /// The code of all services does.
    AllCodeOff,
    /// Everybody does but the code of one caller.
    OwnerCode,
    /// Everybody does but the proxy under one caller.
    OwnerProxy,
    /// Everybody does but the code of one caller and the proxy under it.
    OwnerWithProxy,
    /// Every layer that retries gets a budget.
    Budget,
}
