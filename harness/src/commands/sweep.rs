//! `sweep`: one run for each value, all plans checked before the first starts.

use super::{Answer, Failure, Targets, measure::Runner, missed, style, summarise, warn};
use crate::{
    cli::{Format, Step, Subject, Sweep},
    plan,
    render::{json, markdown, progress::Progress, svg, text},
    report::{self, Forecast, Point, Report, SWEEP_SCHEMA},
    run,
    sanitize::sanitize,
    scenario::Scenario,
};
use tokio::sync::watch;

/// Arrivals of single requests that a whole sweep keeps, each point its share: 1,000 points are to fit a file.
const RECEIPT_ARRIVALS: usize = 20_000;

/// Numbers from the least to the most value of a chance for which the closed form is asked, so that its line is smooth.
const CURVE: u32 = 100;

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
    let (seed, curve) = (seed(&command.steps), curve(&command.over, &command.steps));
    let (done, progress) = watch::channel(0);
    let bar = tokio::spawn(Progress::new(planned, "values").follow(progress));
    let arrivals = RECEIPT_ARRIVALS / command.steps.len().max(1);
    let mut points = Vec::new();
    let mut stopped = None;
    for step in command.steps {
        if runner.is_interrupted() {
            break;
        }
        match point(&mut runner, step).await {
            Ok(mut point) => {
                sample(&mut point.report, arrivals);
                points.push(point);
            }
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
        curve,
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

/// The seed that all values share.
fn seed(steps: &[Step]) -> Option<u64> {
    let seeds = || steps.iter().map(|step| step.scenario.load.seed);
    seeds().next().filter(|first| seeds().all(|seed| seed == *first))
}

/// The closed form at each value of `p` and between them; nothing where it is not known all along, or what is varied is
/// something else.
fn curve(over: &str, steps: &[Step]) -> Vec<Forecast> {
    let numbers: Option<Vec<f64>> = steps.iter().map(|step| step.number).collect();
    let (Some(mut numbers), [first, _, ..]) = (numbers.filter(|_| over == "p"), steps) else {
        return Vec::new();
    };
    numbers.sort_by(f64::total_cmp);
    let (least, most) = (numbers[0], numbers[numbers.len() - 1]);
    numbers.extend((1..CURVE).map(|part| least + (most - least) * f64::from(part) / f64::from(CURVE)));
    numbers.sort_by(f64::total_cmp);
    numbers.dedup_by(|one, other| (*one - *other).abs() < 1e-9);
    let at = |number: f64| {
        let mut scenario = first.scenario.clone();
        scenario.chain.services.last_mut()?.fault.fault.when.p = Some(number);
        let (mean, still_fails) = forecast(&scenario);
        Some(Forecast {
            number,
            mean: mean.filter(|mean| mean.is_finite())?,
            still_fails: still_fails?,
        })
    };
    let known: Option<Vec<Forecast>> = numbers.into_iter().map(at).collect();
    known.unwrap_or_default()
}

/// Keeps single requests with so many arrivals together, at least one.
fn sample(report: &mut Report, arrivals: usize) {
    let mut shown = 0;
    let kept = report.receipts.iter().take_while(|receipt| {
        shown += receipt.attempts.len();
        shown <= arrivals
    });
    let kept = kept.count().max(1);
    if kept < report.receipts.len() {
        report.receipts.truncate(kept);
        report.receipts_sample.operations = kept as u64;
        report.receipts_sample.complete = false;
    }
}

/// Calls at the bottom for one request and the chance that it still fails, by the closed form: what a curve is drawn of.
fn forecast(scenario: &Scenario) -> (Option<f64>, Option<f64>) {
    let per_request = model::predict(&plan::of(scenario), model::Draws::Forecast).per_request;
    (per_request.mean, per_request.still_fails)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn a_point_keeps_a_stated_sample_of_its_requests_and_never_none() {
        let mut report = samples::headline();
        let first = report.receipts[0].clone();
        report.receipts = vec![first; 5];
        (report.receipts_sample.operations, report.receipts_sample.of) = (5, 5);
        let whole = report.clone();
        sample(&mut report, 200);
        assert_eq!(report, whole, "5 of 40 arrivals each fit");
        sample(&mut report, 199);
        let sampled = &report.receipts_sample;
        assert_eq!(
            (report.receipts.len(), sampled.operations, sampled.complete),
            (4, 4, false)
        );
        sample(&mut report, 1);
        assert_eq!(report.receipts.len(), 1);
    }

    fn steps(values: &[&str], overrides: impl Fn(&str) -> crate::scenario::Overrides) -> Vec<Step> {
        let step = |value: &&str| Step {
            value: (*value).to_owned(),
            number: value.parse().ok(),
            scenario: Scenario::load(Some(&format!("web x2 > db fail:p={value}")), &overrides(value)).unwrap(),
            expectations: Vec::new(),
        };
        values.iter().map(step).collect()
    }

    #[test]
    fn a_sweep_of_seeds_has_no_seed_of_its_own() {
        let one = |_: &str| crate::scenario::Overrides {
            seed: Some(7),
            ..crate::scenario::Overrides::default()
        };
        assert_eq!(seed(&steps(&["0", "1"], one)), Some(7));
        let each = |value: &str| crate::scenario::Overrides {
            seed: value.parse().ok(),
            ..crate::scenario::Overrides::default()
        };
        assert_eq!(seed(&steps(&["0", "1"], each)), None);
    }

    #[test]
    fn the_line_of_a_chance_is_asked_for_between_the_values_too() {
        let steps = steps(&["1", "0", "0.333"], |_| crate::scenario::Overrides::default());
        let line = curve("p", &steps);
        assert_eq!(line.len(), 102, "0 to 1 in hundredths, and 0.333");
        assert!(line.windows(2).all(|pair| pair[0].number < pair[1].number));
        for at in &line {
            assert!((at.mean - 1.0 - at.number).abs() < 1e-12, "{at:?}");
            assert!((at.still_fails - at.number * at.number).abs() < 1e-12, "{at:?}");
        }
        assert_eq!(curve("attempts", &steps), []);
        assert_eq!(curve("p", &steps[..1]), []);
    }

    #[test]
    fn the_curve_is_the_closed_form_and_not_a_draw() {
        let of = |line: &str| forecast(&Scenario::load(Some(line), &crate::scenario::Overrides::default()).unwrap());
        assert_eq!(of("web x2 > db fail:p=0.5"), (Some(1.5), Some(0.25)));
        let (mean, still_fails) = of("web x2 > db fail:p=0");
        assert_eq!(mean, Some(1.0));
        assert!(still_fails.is_some_and(|chance| chance == 0.0 && chance.is_sign_positive()));
    }
}
