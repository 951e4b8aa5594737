//! The end of a run: evidence against prediction, and the report of both.

use crate::{
    attach::Attach,
    evidence::{Evidence, Process, processes},
    expect::{Counts as Expectable, Expectation},
    fleet::Ended,
    load::Loaded,
    notes,
    report::{self, Latency, Report, Timing},
    scenario::{self, Scenario},
    viewer::Viewer,
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime},
};

/// Everything a report is made of.
pub struct Measured<'a> {
    /// What was run.
    pub scenario: &'a Scenario,
    /// What was predicted before the first request.
    pub prediction: model::Prediction,
    /// What was observed.
    pub evidence: Evidence,
    /// The processes.
    pub members: Vec<Process>,
    /// How they ended.
    pub ended: Vec<Ended>,
    /// How long each part took.
    pub phases: Phases,
    /// What the user said beforehand.
    pub expectations: Vec<Expectation>,
    /// Where traces can be looked at.
    pub viewer: Option<Viewer>,
    /// The flag that names the services, where they are attached and a flag named them.
    pub attach: Option<Attach>,
}

/// How long each part of a run took.
pub struct Phases {
    mark: Instant,
    timing: Timing,
}

impl Phases {
    /// Starts to count.
    pub fn begin(at: SystemTime) -> Self {
        let started = humantime::format_rfc3339_seconds(at).to_string();
        Self {
            mark: Instant::now(),
            timing: Timing {
                started,
                ..Timing::default()
            },
        }
    }

    fn lap(&mut self) -> f64 {
        millis(std::mem::replace(&mut self.mark, Instant::now()).elapsed())
    }

    /// Every service is up.
    pub fn started(&mut self) {
        self.timing.start_ms = self.lap();
    }

    /// The last request has ended.
    pub fn loaded(&mut self, took: Duration) {
        self.lap();
        self.timing.load_ms = millis(took);
    }

    /// Nothing is in flight and every span is there.
    pub fn settled(&mut self) {
        self.timing.settle_ms = self.lap();
    }

    /// Every process is gone.
    pub fn stopped(&mut self) {
        self.timing.stop_ms = self.lap();
    }
}

/// Judges a run.
pub fn report(measured: &Measured<'_>) -> Report {
    let Measured {
        scenario,
        prediction,
        evidence,
        members,
        ended,
        phases,
        expectations,
        viewer,
        attach,
    } = measured;
    let requested = scenario.load.requests;
    let judgement = model::judge(prediction, &evidence.observation(requested));
    let operations = evidence.operations(requested);
    let services = evidence.services(prediction);
    let (receipts, receipts_sample) = evidence.receipts(scenario, viewer.as_ref());
    Report {
        schema: report::SCHEMA.to_owned(),
        command: command(scenario, expectations, attach.as_ref()),
        chain: scenario.chain_line(),
        scenario: scenario.effective(),
        expected: expected(expectations, &services, &operations),
        verdict: match judgement.verdict {
            model::Verdict::AsPredicted => report::Verdict::AsPredicted,
            model::Verdict::NotAsPredicted => report::Verdict::NotAsPredicted,
            model::Verdict::Incomplete => report::Verdict::Incomplete,
        },
        reasons: judgement.reasons.iter().map(reason).collect(),
        operations,
        services,
        links: evidence.links(prediction),
        receipts,
        receipts_sample,
        notes: notes(scenario, prediction),
        advice: Vec::new(),
        processes: processes(members, ended),
        timing: Timing {
            request_ms: latency(&evidence.loaded),
            ..phases.timing.clone()
        },
        versions: BTreeMap::from([("retryscope".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        seed: scenario.load.seed,
    }
}

fn notes(scenario: &Scenario, prediction: &model::Prediction) -> Vec<report::Note> {
    let note = |kind: &'static str| {
        move |text| report::Note {
            kind: kind.to_owned(),
            text,
        }
    };
    let limits = notes::limits(scenario, prediction).into_iter();
    let limits = limits.chain(notes::unlimited(scenario)).map(note("limit"));
    limits
        .chain(notes::certainty(scenario, prediction).map(note("timing")))
        .collect()
}

fn command(scenario: &Scenario, expectations: &[Expectation], attach: Option<&Attach>) -> String {
    let mut command = scenario.repeat("run");
    if let Some(attach) = attach {
        command.push(' ');
        command.push_str(&attach.flag());
    }
    for expectation in expectations {
        command.push_str(" --expect ");
        command.push_str(&scenario::shell_quoted(&expectation.to_string()));
    }
    command
}

fn expected(
    expectations: &[Expectation],
    services: &[report::Service],
    operations: &report::Operations,
) -> Vec<report::Expected> {
    let counts = Expectable {
        services: services.iter().map(|row| (row.service.clone(), row.received)).collect(),
        predicted: services
            .iter()
            .map(|row| (row.service.clone(), in_words(&row.predicted)))
            .collect(),
        requests: operations.sent,
        failed: operations.failed,
    };
    expectations
        .iter()
        .map(|expectation| expectation.judge(&counts))
        .collect()
}

fn in_words(predicted: &report::Predicted) -> String {
    let count = |count| match count {
        report::Count::Of(count) => count.to_string(),
        report::Count::Beyond => report::BEYOND.to_owned(),
    };
    if predicted.min == predicted.max {
        count(predicted.min)
    } else {
        format!("{} to {}", count(predicted.min), count(predicted.max))
    }
}

fn reason(reason: &model::verdict::Reason) -> report::Reason {
    report::Reason {
        kind: reason.kind().to_owned(),
        text: reason.to_string(),
    }
}

fn latency(loaded: &Loaded) -> Option<Latency> {
    let (times, ms) = (&loaded.latency_us, |us: u64| us as f64 / 1_000.0);
    (!times.is_empty()).then(|| Latency {
        min: ms(times.min()),
        p50: ms(times.value_at_quantile(0.5)),
        p99: ms(times.value_at_quantile(0.99)),
        max: ms(times.max()),
    })
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}
