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
        work: work(scenario, &services, operations.ok),
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

/// What was done for answered requests, and in vain. None where a count is unknown, or lower than the answers say.
fn work(scenario: &Scenario, services: &[report::Service], answered: u64) -> Option<report::Work> {
    let arrivals = report::arrivals(services, report::ServiceKind::Service)?;
    let needed = answered.checked_mul(scenario.chain.arrivals_of_an_answer())?;
    Some(report::Work {
        arrivals,
        needed,
        in_vain: arrivals.checked_sub(needed)?,
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{report::Work, scenario::Overrides};

    /// The work of a run with these arrivals, from the top; `None` is a count that could not be read.
    fn of(source: &str, received: &[Option<u64>], answered: u64) -> Option<Work> {
        let scenario = Scenario::load(Some(source), &Overrides::default()).unwrap();
        let template = crate::render::samples::headline().services.remove(0);
        let rows = received.iter().map(|received| report::Service {
            received: *received,
            ..template.clone()
        });
        work(&scenario, &rows.collect::<Vec<_>>(), answered)
    }

    fn done(arrivals: u64, needed: u64) -> Work {
        Work {
            arrivals,
            needed,
            in_vain: arrivals - needed,
        }
    }

    #[test]
    fn all_that_a_failed_request_caused_was_in_vain() {
        let headline = [1, 3, 9, 27].map(Some);
        assert_eq!(of("per-hop", &headline, 0), Some(done(40, 0)));
    }

    #[test]
    fn an_answer_needs_one_arrival_at_each_service_and_the_rest_was_in_vain() {
        assert_eq!(of("transient", &[1, 1, 1, 3].map(Some), 1), Some(done(6, 4)));
        assert_eq!(of("per-hop", &[1, 1, 1, 1].map(Some), 1), Some(done(4, 4)));
        assert_eq!(of("web x3 > db", &[10, 16].map(Some), 9), Some(done(26, 18)));
    }

    #[test]
    fn an_unknown_count_leaves_the_work_unknown() {
        assert_eq!(of("web x3 > db", &[Some(1), None], 1), None);
        assert_eq!(
            of("web x3 > db", &[Some(1), Some(0)], 1),
            None,
            "fewer than the answers say"
        );
    }

    #[test]
    fn proxies_pass_on_what_the_services_do() {
        let mut rows = crate::render::samples::proxies().services;
        let scenario = Scenario::load(Some("per-hop"), &Overrides::default()).unwrap();
        let whole = work(&scenario, &rows, 0).unwrap();
        rows.retain(|row| row.kind == report::ServiceKind::Service);
        assert_eq!(work(&scenario, &rows, 0), Some(whole));
        assert_eq!(whole.arrivals, 820);
    }
}
