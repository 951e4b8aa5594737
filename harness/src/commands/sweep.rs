//! `sweep`: one run for each value, all plans checked before the first starts.

use super::{Answer, Failure, Targets, measure::Runner, missed, style, summarise, warn};
use crate::{
    cli::{Format, Step, Subject, Sweep},
    plan,
    render::{json, markdown, progress::Progress, svg, text},
    report::{self, Point, SWEEP_SCHEMA},
    run,
    sanitize::sanitize,
    scenario::Scenario,
};
use tokio::sync::watch;

/// One run for each value.
pub(super) async fn swept(command: Sweep) -> Result<Answer, Failure> {
    let targets = Targets::of(&command.output)?;
    for step in &command.steps {
        run::check(&step.scenario, command.max_calls).map_err(|error| {
            let failure = Failure::from(error);
            let at = sanitize(&format!("{}={}", command.over, step.value));
            Failure {
                message: format!("{at}: {}", failure.message),
                ..failure
            }
        })?;
    }
    let output = &command.output;
    if let Some(variable) = command.passed_over {
        let text = format!("{variable} names running services; a sweep starts its own, and these are left alone");
        warn(&text, output);
    }
    let mut runner = Runner::new(command.max_calls, command.otlp.as_deref(), command.viewer, output)?.quiet();
    let planned = command.steps.len() as u64;
    let seed = command.steps.first().map_or(0, |step| step.scenario.load.seed);
    let (done, progress) = watch::channel(0);
    let bar = tokio::spawn(Progress::new(planned, "values").follow(progress));
    let mut points = Vec::new();
    let mut stopped = None;
    for step in command.steps {
        if runner.is_interrupted() {
            break;
        }
        match point(&mut runner, step).await {
            Ok(point) => points.push(point),
            Err(failure) => {
                stopped = Some(failure);
                break;
            }
        }
        let _ = done.send(points.len() as u64);
    }
    drop(done);
    let _ = bar.await;
    match stopped {
        Some(failure) if points.is_empty() => return Err(failure),
        // What was counted so far is shown all the same.
        Some(failure) if !runner.is_interrupted() => warn(&failure.message, output),
        _ => {}
    }
    let sweep = report::Sweep {
        schema: SWEEP_SCHEMA.to_owned(),
        command: command.command,
        over: command.over,
        planned,
        points,
        seed,
    };
    summarise(|| markdown::sweep(&sweep), output).await;
    let shown = match output.format {
        Format::Text => text::sweep(&sweep, &output.program, style(output)),
        Format::Markdown => markdown::sweep(&sweep),
    };
    Ok(Answer {
        exit_code: runner.exit_code(sweep.exit_code()),
        shown,
        files: targets.with(|| json::sweep(&sweep), || svg::sweep(&sweep)),
        missed: missed(sweep.points.iter().map(|point| &point.report)),
    })
}

async fn point(runner: &mut Runner<'_>, step: Step) -> Result<Point, Failure> {
    let Step {
        value,
        number,
        scenario,
        expectations,
    } = step;
    let (mean, still_fails) = forecast(&scenario);
    let subject = Subject::Own {
        scenario: Box::new(scenario),
        expectations,
    };
    let report = runner.run(subject).await?.report;
    Ok(Point {
        value,
        number,
        mean,
        still_fails,
        report,
    })
}

/// Calls at the bottom for one request and the chance that it still fails, by the closed form: what a curve is drawn of.
fn forecast(scenario: &Scenario) -> (Option<f64>, Option<f64>) {
    let configs = scenario.configs();
    let topology = plan::topology(&configs[0], &configs[1..], &scenario.load);
    let per_request = model::predict(&topology, model::Draws::Forecast).per_request;
    // A sum of nothing may be -0.0, which no reader wants to see.
    (per_request.mean, per_request.still_fails.map(|chance| chance + 0.0))
}
