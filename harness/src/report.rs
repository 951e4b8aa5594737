//! The report, version 1: the only type that leaves the harness as data. `schema/report-v1.schema.json` says the same
//! in JSON Schema, and a test holds one against the other.

mod live;
mod prediction;
mod sweep;

pub use live::{
    Changed, LiveCount, LiveGeneration, LiveLink, LiveService, Mixed, STATUS_SCHEMA, SWITCH_SCHEMA, Status, Switched,
};
pub use prediction::{
    Bottom, BudgetCeiling, Capacity, Chance, Change, ChangeKind, Distribution, PREDICTION_SCHEMA, PerSecond,
    PredictedLink, PredictedService, Prediction, Scope, Share, Tries,
};
pub use sweep::{Forecast, Point, SWEEP_SCHEMA, Sweep};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of this format.
pub const SCHEMA: &str = "retryscope/report/v1";
/// The name of the format that holds several reports.
pub const COMPARISON_SCHEMA: &str = "retryscope/comparison/v1";

/// One run: what was predicted, what arrived, and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The command line that repeats the run.
    pub command: String,
    /// The chain line of what ran, without quotes.
    pub chain: String,
    /// The scenario in force, in the keys of a scenario file.
    pub scenario: serde_json::Value,
    /// What the user said beforehand.
    pub expected: Vec<Expected>,
    /// Prediction against observation.
    pub verdict: Verdict,
    /// Why the verdict is not `as_predicted`; empty when it is.
    pub reasons: Vec<Reason>,
    /// What became of the requests.
    pub operations: Operations,
    /// The services, the top one first.
    pub services: Vec<Service>,
    /// What the services did for requests that were answered, and what they did in vain; null where a count is unknown.
    #[serde(default)]
    pub work: Option<Work>,
    /// The links, the client's first.
    pub links: Vec<Link>,
    /// Single requests with their arrivals: all of a small run, a sample of a large one.
    pub receipts: Vec<Receipt>,
    /// How much of the run `receipts` shows.
    pub receipts_sample: Sample,
    /// What the limits on retries did at this traffic, and how sure counts are that depend on time, in sentences.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// What to change. Empty until a command proves changes.
    pub advice: Vec<Advice>,
    /// The processes that ran.
    pub processes: Vec<Process>,
    /// How long it took.
    pub timing: Timing,
    /// What measured.
    pub versions: BTreeMap<String, String>,
    /// The seed of drawn faults and jitter.
    pub seed: u64,
}

impl Report {
    /// The name of the scenario; empty for a chain line of the user's own.
    pub fn name(&self) -> &str {
        self.scenario
            .get("name")
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
    }

    /// The exit code that says the same: 0 as predicted, 1 not so or an expectation missed, 3 without a verdict; the worst of
    /// the run and of the changes that were run.
    pub fn exit_code(&self) -> u8 {
        let own = self.verdict.exit_code();
        let missed = self.expected.iter().any(|expected| !expected.met);
        let changes = self.advice.iter().filter_map(|advice| advice.verdict);
        let changes = changes.map(Verdict::exit_code).max();
        own.max(u8::from(missed)).max(changes.unwrap_or(0))
    }
}

/// Prediction against observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every count is the predicted one, received and traced.
    AsPredicted,
    /// A count is not the predicted one, and the evidence is sound.
    NotAsPredicted,
    /// The evidence is not whole.
    Incomplete,
}

impl Verdict {
    fn exit_code(self) -> u8 {
        match self {
            Self::AsPredicted => 0,
            Self::NotAsPredicted => 1,
            Self::Incomplete => 3,
        }
    }
}

/// What a prediction rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// `limit` (what a throttle or a budget did), `timing` (how sure counts are that depend on time or order) or `unproven` (a
    /// change that could not be run).
    pub kind: String,
    /// A sentence for people.
    pub text: String,
}

/// One reason for a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// A fixed word for programs: `missing_spans`, `surplus`, …
    pub kind: String,
    /// A sentence for people.
    pub text: String,
}

/// One `--expect`, as given, and whether it came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The expression.
    pub expression: String,
    /// Whether it holds for what arrived.
    pub met: bool,
    /// A sentence: what was expected, predicted and counted.
    pub text: String,
}

/// What became of the requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// How many the load asks for.
    pub requested: u64,
    /// How many were started.
    pub sent: u64,
    /// How many were never started.
    pub not_sent: u64,
    /// How many ended OK.
    pub ok: u64,
    /// How many ended with a failure.
    pub failed: u64,
    /// How many had no end when counting stopped.
    pub unfinished: u64,
    /// How many met other settings than the predicted ones, all along or from some call on.
    pub mixed: u64,
    /// Failures by status code; no zeros.
    pub by_code: BTreeMap<String, u64>,
}

/// A predicted total over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// How sure it is.
    pub kind: PredictionKind,
    /// Expected total; null where no closed form is known.
    pub mean: Option<f64>,
    /// Standard deviation of the total; null as `mean`.
    pub sd: Option<f64>,
    /// Smallest total that agrees.
    pub min: Count,
    /// Largest total that agrees.
    pub max: Count,
}

impl Predicted {
    /// Expected arrivals for one of so many requests; `None` where no closed form is known.
    pub fn mean_for_one(&self, requests: u64) -> Option<f64> {
        self.mean.map(|mean| mean / requests.max(1) as f64)
    }

    /// Whether so many that arrived are as predicted.
    pub fn agrees(&self, received: u64) -> bool {
        (self.min..=self.max).contains(&Count::Of(received.into()))
    }

    /// The most that agree, for one of so many requests.
    pub fn most_for_one(&self, requests: u64) -> f64 {
        self.max.about() / requests.max(1) as f64
    }
}

/// How sure a prediction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PredictionKind {
    /// One number: min = max.
    Exact,
    /// A distribution, of which mean and deviation are given.
    Statistical,
    /// An interval that any order of events stays within.
    Bounds,
}

/// A count of any size. In JSON a number up to 2^53, a string of digits above, and the string `more than 3.4e38` beyond u128.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
    /// This many.
    Of(u128),
    /// More than a u128 holds.
    Beyond,
}

impl Count {
    /// The count, as near as a float comes; the largest that is counted for one beyond.
    pub fn about(self) -> f64 {
        match self {
            Self::Of(count) => count as f64,
            Self::Beyond => u128::MAX as f64,
        }
    }

    /// The count for one of so many requests; `None` where it does not come out even, and beyond all.
    pub fn for_one(self, requests: u64) -> Option<u128> {
        let requests = u128::from(requests.max(1));
        match self {
            Self::Of(count) if count.is_multiple_of(requests) => Some(count / requests),
            _ => None,
        }
    }
}

/// What [`Count::Beyond`] is called.
pub const BEYOND: &str = "more than 3.4e38";
const LARGEST_JSON_INTEGER: u128 = 1 << 53;

impl Serialize for Count {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Beyond => to.serialize_str(BEYOND),
            Self::Of(count) if count > LARGEST_JSON_INTEGER => to.serialize_str(&count.to_string()),
            Self::Of(count) => to.serialize_u64(u64::try_from(count).expect("at most 2^53")),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(from)? {
            Either::Number(count) => Ok(Self::Of(count.into())),
            Either::Text(text) if text == BEYOND => Ok(Self::Beyond),
            Either::Text(text) => text.parse().map(Self::Of).map_err(serde::de::Error::custom),
        }
    }
}

/// One service of the chain. Counts are totals over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its name in the chain line.
    pub service: String,
    /// `service` or `sidecar`.
    pub kind: ServiceKind,
    /// What should arrive.
    pub predicted: Predicted,
    /// What its ledger counted, or a real Envoy by its own statistics; null when they could not be read.
    pub received: Option<u64>,
    /// SERVER spans of this service at the collector; null where it makes none, as a real Envoy.
    pub traced: Option<u64>,
    /// `received` per request.
    pub amplification: Option<f64>,
    /// Arrivals whose own work was finished.
    pub work_done: Option<u64>,
    /// Arrivals after their request's deadline.
    pub late: Option<u64>,
    /// Arrivals whose caller left.
    pub dropped: Option<u64>,
    /// Arrivals that ended at their own deadline.
    pub expired: Option<u64>,
    /// Arrivals not finished when counting stopped.
    pub in_flight: Option<u64>,
    /// What a real Envoy counted itself, by the names of its statistics; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy: Option<BTreeMap<String, u64>>,
}

/// Arrivals at all services together, and how many of them the answered requests needed. Proxies pass on what the services
/// do, and are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Arrivals at all services.
    pub arrivals: u64,
    /// Arrivals that the requests which ended OK would have caused if nothing had failed.
    pub needed: u64,
    /// The others: of requests that failed, and of attempts that were repeated.
    pub in_vain: u64,
}

/// What arrived at all rows of a kind together; `None` where a count is unknown.
pub fn arrivals(services: &[Service], kind: ServiceKind) -> Option<u64> {
    let mut rows = services.iter().filter(|row| row.kind == kind);
    rows.try_fold(0_u64, |sum, row| sum.checked_add(row.received?))
}

/// What a row of `services` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceKind {
    /// A service of the chain.
    Service,
    /// A proxy on a link.
    Sidecar,
}

/// Caller to callee.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The caller.
    pub from: String,
    /// The callee.
    pub to: String,
    /// Calls the caller made.
    pub calls: Option<u64>,
    /// Attempts the caller put on the link.
    pub sent: Option<u64>,
    /// Arrivals at the callee.
    pub received: Option<u64>,
    /// `received` ÷ `sent`; null where nothing was sent.
    pub factor: Option<f64>,
    /// Retries sent ÷ calls; null where nothing was called.
    pub retry_ratio: Option<f64>,
    /// Why failed attempts were not followed by another; no zeros.
    pub not_retried: BTreeMap<String, u64>,
    /// Transport failures that no fault asked for.
    pub transport_errors: Option<u64>,
    /// How often each attempt arrived; absent unless more arrived than were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repeats>,
}

/// How often single attempts arrived on a link: what convicts a layer that nobody declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// Arrivals under the same attempt path, by the callee's ledger; null where its records are not whole.
    pub by_path: Option<Times>,
    /// Arrivals under the same parent span, by the spans; null where spans are missing.
    pub by_parent: Option<Times>,
    /// Arrivals by their `x-envoy-attempt-count`; empty where none carried it.
    pub envoy_attempts: BTreeMap<u32, u64>,
}

/// How often each of several things came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// How many different ones came.
    pub different: u64,
    /// How often the rarest came.
    pub least: u64,
    /// How often the most frequent came.
    pub most: u64,
}

/// One request with its arrivals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The request's number in the run, from 1.
    pub operation: u64,
    /// Its trace, 32 hexadecimal digits; null when none was made.
    #[serde(default)]
    pub trace_id: Option<String>,
    /// Where a viewer shows that trace, by `--trace-url`; null without one.
    #[serde(default)]
    pub trace_url: Option<String>,
    /// The only layer with more than one attempt; `none` when several have, or no layer has.
    pub owner: String,
    /// Most arrivals at the bottom service that the configuration allows for one request: the product of all attempts.
    pub declared_attempts: Count,
    /// Arrivals of this request at the bottom service.
    pub observed_attempts: u64,
    /// How the request ended.
    pub code: String,
    /// Its arrivals at every service, in the order they started.
    pub attempts: Vec<Arrival>,
}

/// One arrival.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Where it arrived.
    pub service: String,
    /// Its own attempt path: `17:1.3.2` is request 17, then the attempt at each layer, the client's first.
    pub path: String,
    /// The path of the arrival that caused it; null for what the client sent.
    pub parent: Option<String>,
    /// How it ended: a code, `expired`, `dropped` or `cut`; `in_flight` when it had no end.
    pub code: String,
    /// Microseconds since the first arrival of the run's receipts.
    pub start_us: u64,
    /// Microseconds; null when it had no end.
    pub duration_us: Option<u64>,
}

/// How much of the run `receipts` shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Requests in `receipts`.
    pub operations: u64,
    /// Requests in the run.
    pub of: u64,
    /// Whether every request of the run is there.
    pub complete: bool,
}

/// One suggested change, applied and run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What to change.
    pub change: String,
    /// Whether it is one edit or several.
    #[serde(default)]
    pub scope: Scope,
    /// What is edited for it.
    #[serde(default)]
    pub edits: String,
    /// Calls at the bottom with it, a total over `requests`; those that are sent there where none can arrive.
    pub predicted: Predicted,
    /// Calls counted with it; null until measured.
    pub measured: Option<u64>,
    /// Requests that failed in that run: what the cut costs; null until measured.
    #[serde(default)]
    pub failed: Option<u64>,
    /// Requests of that run; a budget needs many before it binds.
    #[serde(default)]
    pub requests: u64,
    /// What the calculator says of a budget, calls at the bottom for one request under steady traffic; null for what is no
    /// budget.
    #[serde(default)]
    pub ceiling: Option<f64>,
    /// Prediction against observation of that run, `incomplete` where it was to be run and was not; null for what cannot be
    /// run.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// The command line that repeats that run, without the program's own name.
    #[serde(default)]
    pub command: String,
}

/// One process of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its name in the chain line.
    pub service: String,
    /// Its service port.
    pub address: String,
    /// Its process number.
    pub pid: Option<u32>,
    /// Whether this run started it.
    pub owned: bool,
    /// Whether it listens on the loopback only.
    pub loopback: bool,
    /// How it ended.
    pub stopped: String,
}

/// How long it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// When the run began, UTC, RFC 3339.
    pub started: String,
    /// Until every service was up, milliseconds.
    #[serde(serialize_with = "finite")]
    pub start_ms: f64,
    /// From the first request sent to the last one answered, milliseconds.
    #[serde(serialize_with = "finite")]
    pub load_ms: f64,
    /// Until nothing was in flight and every span was there, milliseconds.
    #[serde(serialize_with = "finite")]
    pub settle_ms: f64,
    /// Until every process was gone, milliseconds.
    #[serde(serialize_with = "finite")]
    pub stop_ms: f64,
    /// Time of a request at the client, milliseconds: smallest, median, 99th percentile, largest. Null without an answer.
    pub request_ms: Option<Latency>,
}

/// Time of a request at the client, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Smallest.
    #[serde(serialize_with = "finite")]
    pub min: f64,
    /// Median.
    #[serde(serialize_with = "finite")]
    pub p50: f64,
    /// 99th percentile.
    #[serde(serialize_with = "finite")]
    pub p99: f64,
    /// Largest.
    #[serde(serialize_with = "finite")]
    pub max: f64,
}

/// JSON has no word for what is no number; a time that is none is written as 0.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn finite<S: serde::Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(if value.is_finite() { *value } else { 0.0 })
}

/// Several reports side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`COMPARISON_SCHEMA`].
    pub schema: String,
    /// The runs, in the order given.
    pub runs: Vec<Report>,
    /// Where the viewer shows how the first traces of the first two runs differ; null where it cannot.
    #[serde(default)]
    pub trace_difference_url: Option<String>,
}

impl Comparison {
    /// The worst of the runs, 3 before 1.
    pub fn exit_code(&self) -> u8 {
        self.runs.iter().map(Report::exit_code).max().unwrap_or(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn a_run_has_the_name_of_its_scenario() {
        let mut report = samples::headline();
        assert_eq!(report.name(), "per-hop");
        report.scenario = serde_json::json!({"load": {}});
        assert_eq!(report.name(), "");
    }

    #[test]
    fn both_ends_of_a_prediction_agree_with_it() {
        let between = Predicted {
            min: Count::Of(3),
            max: Count::Of(27),
            kind: PredictionKind::Bounds,
            ..samples::exact(27)
        };
        let agree = [2, 3, 27, 28].map(|received| between.agrees(received));
        assert_eq!(agree, [false, true, true, false]);
        let open = Predicted {
            max: Count::Beyond,
            ..between
        };
        assert!(open.agrees(u64::MAX) && !open.agrees(2));
    }

    #[test]
    fn a_count_is_shared_by_requests_where_it_comes_out_even() {
        assert_eq!(Count::Of(81).for_one(3), Some(27));
        assert_eq!(Count::Of(82).for_one(3), None);
        assert_eq!(Count::Beyond.for_one(1), None);
        assert_eq!(Count::Of(27).for_one(0), Some(27), "none is as one");
    }

    #[test]
    fn arrivals_of_a_kind_are_known_where_each_is() {
        let mut report = samples::proxies();
        let of = |report: &Report, kind| arrivals(&report.services, kind);
        assert_eq!(of(&report, ServiceKind::Service), Some(1 + 9 + 81 + 729));
        assert_eq!(of(&report, ServiceKind::Sidecar), Some(3 + 27 + 243));
        let proxy = report.services.iter_mut().find(|row| row.kind == ServiceKind::Sidecar);
        proxy.unwrap().received = None;
        assert_eq!(of(&report, ServiceKind::Sidecar), None);
    }
}
