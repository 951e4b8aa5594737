//! One run for each value: what was predicted for it, what came.

use super::{
    Style, command, hidden, number, run,
    words::{self, LABEL, Screen, shown},
};
use crate::report::{Point, Sweep, Verdict};
use std::fmt::Write as _;

/// Columns of the values, at least and at most.
const VALUES: (usize, usize) = (6, 15);
/// Most values that have a bar.
const BARS: usize = 33;
/// Columns of the longest bar of calls, and of all requests failed.
const CALLS: usize = 27;
const FAILS: usize = 18;
/// Values that are named in the headline, at most.
const NAMED: usize = 4;
/// Runs of which it is told what is wrong, at most.
const TOLD: usize = 8;

/// The answer, the two curves as bars, the figures, what is wrong with which run, how to repeat it.
pub fn sweep(sweep: &Sweep, program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    screen.headline(&headline(sweep), style);
    screen.gap();
    let longest = sweep.points.iter().map(|point| shown(&point.value).len()).max();
    let values = longest
        .unwrap_or(0)
        .max(words::name(&sweep.over, VALUES.1).len())
        .clamp(VALUES.0, VALUES.1);
    if sweep.points.len() <= BARS {
        bars(&mut screen, sweep, values);
        screen.gap();
    }
    table(&mut screen, sweep, values, style);
    screen.gap();
    for text in method(sweep) {
        screen.lines(words::wrapped("", 0, &text));
    }
    screen.gap();
    problems(&mut screen, sweep, style);
    screen.gap();
    let mut lines = command::wrapped(&format!("{:<LABEL$}", "repeat it"), program, &sweep.command);
    run::end_with_exit(&mut lines, sweep.exit_code());
    screen.lines(lines);
    screen.finish()
}

/// `p=0.3`.
pub(in crate::render) fn named(sweep: &Sweep, point: &Point) -> String {
    format!("{}={}", shown(&sweep.over), shown(&point.value))
}

/// Whether every value is a number.
fn is_numeric(sweep: &Sweep) -> bool {
    sweep.points.iter().all(|point| point.number.is_some())
}

/// The answer in a sentence or two.
pub(in crate::render) fn headline(sweep: &Sweep) -> String {
    let of = |verdict: Verdict| -> Vec<&Point> {
        let points = sweep.points.iter();
        points.filter(|point| point.report.verdict == verdict).collect()
    };
    let listed = |points: &[&Point]| {
        if points.len() > NAMED {
            format!("{} of {} values", points.len(), sweep.points.len())
        } else {
            words::listed(&points.iter().map(|point| named(sweep, point)).collect::<Vec<_>>())
        }
    };
    let (without, wrong) = (of(Verdict::Incomplete), of(Verdict::NotAsPredicted));
    let mut text = String::new();
    if sweep.is_cut_short() {
        let (made, planned) = (sweep.points.len() as u64, number::of(sweep.planned, "value"));
        let were = if made == 1 { "was" } else { "were" };
        text = format!("Only {} of {planned} {were} run. ", number::whole(made));
    }
    if !without.is_empty() {
        let _ = write!(text, "No verdict on {}. ", listed(&without));
    }
    text += &curve(sweep);
    if without.is_empty() && !wrong.is_empty() {
        let _ = write!(text, " Not as predicted: {}.", listed(&wrong));
    }
    text
}

/// Where both curves begin and where they end.
fn curve(sweep: &Sweep) -> String {
    let [first, .., last] = sweep.points.as_slice() else {
        let Some(point) = sweep.points.first() else {
            return "Nothing was counted.".to_owned();
        };
        let calls = counted(&number::or_dash(point.received(), number::factor));
        return format!(
            "{calls} arrived at {} for 1 request at {}.",
            bottom(sweep),
            named(sweep, point)
        );
    };
    let points = &sweep.points;
    let of = |of: fn(&Point) -> Option<f64>, write: fn(f64) -> String| -> String {
        let texts = |points: &mut dyn Iterator<Item = &Point>| -> Vec<String> {
            points.map(|point| number::or_dash(of(point), write)).collect()
        };
        if texts(&mut points.iter()).windows(2).all(|pair| pair[0] == pair[1]) {
            texts(&mut points.iter().take(1)).concat()
        } else if is_numeric(sweep) || points.len() > NAMED {
            texts(&mut [first, last].into_iter()).join(" to ")
        } else {
            words::listed(&texts(&mut points.iter()))
        }
    };
    let how = if is_numeric(sweep) {
        format!(
            "as {} went from {} to {}",
            shown(&sweep.over),
            shown(&first.value),
            shown(&last.value)
        )
    } else if points.len() > NAMED {
        format!("over {} values of {}", points.len(), shown(&sweep.over))
    } else {
        let values: Vec<String> = points.iter().map(|point| shown(&point.value)).collect();
        format!("with {} at {}", shown(&sweep.over), words::listed(&values))
    };
    format!(
        "{} arrived at {} for 1 request {how}. Requests that failed: {}.",
        counted(&of(Point::received, number::factor)),
        bottom(sweep),
        of(Point::failed, number::share)
    )
}

fn counted(figures: &str) -> String {
    format!("{figures} call{}", if figures == "1" { "" } else { "s" })
}

/// The service at the bottom of all runs.
pub(in crate::render) fn bottom(sweep: &Sweep) -> String {
    let rows = sweep.points.iter().filter_map(|point| point.report.services.last());
    let mut names: Vec<String> = rows.map(|row| shown(&row.service)).collect();
    names.dedup();
    match names.as_slice() {
        [name] => name.clone(),
        _ => "the bottom service".to_owned(),
    }
}

/// Both curves lying on their side.
fn bars(screen: &mut Screen, sweep: &Sweep, values: usize) {
    let most = sweep.points.iter().filter_map(Point::received).fold(0.0, f64::max);
    let bar = |value: Option<f64>, most: f64, columns: usize| {
        let value = value.filter(|value| *value > 0.0 && most > 0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the columns"
        )]
        let length = value.map_or(0, |value| (value / most * columns as f64).ceil() as usize);
        "#".repeat(length.min(columns))
    };
    let over = words::name(&sweep.over, values);
    screen.line(format!(
        "{over:<values$}  {:<width$}requests that failed",
        format!("calls at {}, for 1 request", words::name(&bottom(sweep), 11)),
        width = CALLS + 12
    ));
    for point in &sweep.points {
        let (received, failed) = (point.received(), point.failed());
        let value = words::name(&point.value, values);
        screen.line(format!(
            "{value:<values$}  {:<CALLS$}{:>9}   {:<FAILS$}{:>6}",
            bar(received, most, CALLS),
            number::or_dash(received, number::mean),
            bar(failed, 1.0, FAILS),
            number::or_dash(failed, number::share),
        ));
    }
}

fn table(screen: &mut Screen, sweep: &Sweep, values: usize, style: Style) {
    let over = words::name(&sweep.over, values);
    screen.line(format!(
        "{:values$}{:>24}{:>23}",
        "", "calls for 1 request", "requests that fail"
    ));
    screen.line(format!(
        "{over:<values$}{:>12}{:>12}{:>13}{:>10}",
        "predicted", "received", "predicted", "failed"
    ));
    for point in &sweep.points {
        let value = words::name(&point.value, values);
        screen.line(format!(
            "{value:<values$}{:>12}{:>12}{:>13}{:>10}  {}",
            number::or_dash(point.mean, number::mean),
            number::or_dash(point.received(), number::mean),
            number::or_dash(point.still_fails, number::share),
            number::or_dash(point.failed(), number::share),
            style.verdict(point.report.verdict)
        ));
    }
}

/// How many requests there were, and what the two predictions are.
pub(in crate::render) fn method(sweep: &Sweep) -> Vec<String> {
    let mut texts = Vec::new();
    let mut requests: Vec<u64> = sweep
        .points
        .iter()
        .map(|point| point.report.operations.requested)
        .collect();
    requests.dedup();
    if let [requests] = requests.as_slice() {
        texts.push(format!(
            "{} for each value; -n N sends others.",
            number::of(*requests, "request")
        ));
    }
    if sweep.points.iter().any(|point| run::drawn(&point.report).is_some()) {
        texts.push(format!(
            "Predicted is the average over all draws, for failures that are independent: the best case. The verdict holds each \
             run against the count that its own draws give, those of seed {}.",
            sweep.seed
        ));
    }
    if sweep.points.iter().any(|point| point.mean.is_none()) {
        texts
            .push("Where there is no average, no closed form is known; the verdict has its own prediction.".to_owned());
    }
    texts
}

/// What is wrong with which run, on which link, and what was expected and did not come.
fn problems(screen: &mut Screen, sweep: &Sweep, style: Style) {
    let is_wrong = |point: &&Point| point.report.verdict != Verdict::AsPredicted;
    let wrong: Vec<&Point> = sweep.points.iter().filter(is_wrong).collect();
    for point in wrong.iter().take(TOLD) {
        screen.lines(words::labelled(
            &words::name(&point.value, LABEL - 1),
            &run::headline(&point.report),
        ));
        for link in run::broken(&point.report) {
            screen.lines(words::labelled("", &hidden::what_it_does(&point.report, link)));
        }
    }
    let more = wrong.len().saturating_sub(TOLD);
    if more > 0 {
        let text = format!("{} more are in the report (--json).", number::whole(more as u64));
        screen.lines(words::labelled("", &text));
    }
    for point in &sweep.points {
        for expected in point.report.expected.iter().filter(|expected| !expected.met) {
            screen.lines(run::expectation(expected, &format!("{}: ", named(sweep, point)), style));
        }
    }
}
