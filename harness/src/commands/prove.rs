//! `run --prove`: each suggested change is applied and run as a run of its own, and held against its own prediction.

use super::{Failure, NOT_MEASURED, measure::Runner};
use crate::{
    advice::{self, Suggestion},
    cli::Subject,
    plan,
    report::{Advice, Change, Note, Predicted, Report, Verdict},
    run,
    scenario::Scenario,
};

/// One change that is to be run.
pub(super) struct Planned {
    scenario: Scenario,
    /// What it is.
    change: Change,
    /// Whether calls are counted where they are sent, since none arrives.
    is_sent: bool,
    /// Why it cannot be run; the others can.
    cannot: Option<String>,
}

/// The changes of a scenario, each known to fit before anything starts.
///
/// # Errors
/// A plan, the scenario's own or that of a change, that is bigger than was allowed, with its name.
pub(super) fn plan(scenario: &Scenario, max_calls: u64) -> Result<Vec<Planned>, Failure> {
    run::check(scenario, max_calls)?;
    let changes = advice::suggestions(scenario);
    changes
        .iter()
        .map(|suggestion| planned(scenario, suggestion, max_calls))
        .collect()
}

fn planned(scenario: &Scenario, suggestion: &Suggestion, max_calls: u64) -> Result<Planned, Failure> {
    let change = suggestion.told(scenario);
    let edited = suggestion.edit.apply(scenario);
    let cannot = edited.check_envoys().err().map(|error| error.to_string());
    if cannot.is_none() {
        run::check(&edited, max_calls).map_err(|error| {
            let mut failure = Failure::from(error);
            failure.message = format!("--prove, {}: {}", change.change, failure.message);
            failure
        })?;
    }
    Ok(Planned {
        scenario: edited,
        change,
        is_sent: suggestion.is_sent,
        cannot,
    })
}

/// What is to be counted at the bottom, or sent there.
fn predicted(edited: &Scenario, is_sent: bool) -> Predicted {
    let predicted = model::predict(&plan::of(edited), model::Draws::Replay);
    let last = predicted.links.last().zip(predicted.services.last());
    let (link, service) = last.expect("a chain has a bottom");
    if is_sent {
        (&link.sent).into()
    } else {
        (&service.received).into()
    }
}

/// Runs the changes one after another and writes them into the report of the run that they change. What was proven before
/// an interrupt stays; what was not run by then has no evidence.
pub(super) async fn prove(runner: &mut Runner<'_>, planned: Vec<Planned>, report: &mut Report) {
    report.command.push_str(" --prove");
    for planned in planned {
        let change = &planned.change.change;
        let mut ran = None;
        if let Some(cannot) = &planned.cannot {
            report.notes.push(Note {
                kind: "unproven".to_owned(),
                text: format!("{change}: {cannot}."),
            });
        } else if !runner.is_interrupted() {
            let subject = Subject::Own {
                scenario: Box::new(planned.scenario.clone()),
                expectations: Vec::new(),
            };
            match runner.run(subject).await {
                Ok(of) => ran = Some(of.report),
                Err(failure) if runner.is_interrupted() => debug_assert_eq!(failure.exit_code, NOT_MEASURED),
                Err(failure) => runner.warn(&format!("{change}: {}", failure.message)),
            }
        }
        report.advice.push(planned.row(ran.as_ref()));
    }
}

impl Planned {
    /// With what its run found, if it ran.
    fn row(self, ran: Option<&Report>) -> Advice {
        let (is_sent, change) = (self.is_sent, self.change);
        let not_run = self.cannot.is_none().then_some(Verdict::Incomplete);
        // The report says what was predicted of arrivals.
        let of_run = ran.filter(|_| !is_sent).and_then(|report| report.services.last());
        let of_run = of_run.map(|row| row.predicted.clone());
        Advice {
            change: change.change,
            scope: change.scope,
            edits: change.edits,
            predicted: of_run.unwrap_or_else(|| predicted(&self.scenario, is_sent)),
            measured: ran.and_then(|report| at_bottom(report, is_sent)),
            failed: ran.map(|report| report.operations.failed),
            requests: self.scenario.load.requests,
            ceiling: change.ceiling,
            verdict: ran.map(|report| report.verdict).or(not_run),
            command: change.command,
        }
    }
}

/// Calls that were counted at the bottom, or sent there.
fn at_bottom(report: &Report, is_sent: bool) -> Option<u64> {
    if is_sent {
        report.links.last()?.sent
    } else {
        report.services.last()?.received
    }
}
