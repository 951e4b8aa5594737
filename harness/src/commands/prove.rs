//! `run --prove`: each suggested change is applied and run as a run of its own, and held against its own prediction.

use super::{Failure, NOT_MEASURED, measure::Runner};
use crate::{
    advice::{self, Suggestion},
    cli::Subject,
    report::{self, Advice, Note, Report, Verdict},
    run,
    scenario::Scenario,
};

/// One change that is to be run.
pub(super) struct Planned {
    scenario: Scenario,
    /// Its row, not measured yet.
    row: Advice,
    /// Whether the bottom's port is closed, so that its calls are counted where they are sent.
    is_closed: bool,
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
    let predicted = model::predict(&advice::topology(&edited), model::Draws::Replay);
    let (sent, received) = (predicted.links.last(), predicted.services.last());
    let is_closed = sent.is_some_and(|link| link.refuses_all);
    let predicted = match (is_closed, sent, received) {
        (true, Some(link), _) => (&link.sent).into(),
        (_, _, Some(service)) => (&service.received).into(),
        _ => unreachable!("a chain has a bottom"),
    };
    Ok(Planned {
        row: Advice {
            change: change.change,
            scope: change.scope,
            edits: change.edits,
            predicted,
            measured: None,
            requests: edited.load.requests,
            ceiling: change.ceiling,
            verdict: None,
            command: change.command,
        },
        scenario: edited,
        is_closed,
        cannot,
    })
}

/// Runs the changes one after another and writes them into the report of the run that they change. What was proven before
/// an interrupt stays; what was not run by then has no evidence.
pub(super) async fn prove(runner: &mut Runner<'_>, planned: Vec<Planned>, report: &mut Report) {
    report.command.push_str(" --prove");
    for Planned {
        scenario,
        mut row,
        is_closed,
        cannot,
    } in planned
    {
        if let Some(cannot) = cannot {
            report.notes.push(Note {
                kind: "unproven".to_owned(),
                text: format!("{}: {cannot}.", row.change),
            });
        } else {
            row.verdict = Some(Verdict::Incomplete);
            if !runner.is_interrupted() {
                let subject = Subject::Own {
                    scenario: Box::new(scenario),
                    expectations: Vec::new(),
                };
                match runner.run(subject).await {
                    Ok(ran) => {
                        row.measured = at_bottom(&ran.report, is_closed);
                        row.verdict = Some(ran.report.verdict);
                    }
                    Err(failure) if runner.is_interrupted() => debug_assert_eq!(failure.exit_code, NOT_MEASURED),
                    Err(failure) => runner.warn(&format!("{}: {}", row.change, failure.message)),
                }
            }
        }
        report.advice.push(row);
    }
}

/// Calls that were counted at the bottom; what was sent there where its port is closed.
fn at_bottom(report: &report::Report, is_closed: bool) -> Option<u64> {
    if is_closed {
        report.links.last()?.sent
    } else {
        report.services.last()?.received
    }
}
