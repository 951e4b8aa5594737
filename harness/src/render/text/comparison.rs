//! Several runs side by side.

use super::{
    Style, command, number, run, traces,
    words::{self, LABEL, Screen, shown},
};
use crate::report::{Comparison, Count, Predicted, Report, Service, ServiceKind, Verdict};

/// Runs under each other, their figures in columns: arrivals at the bottom and at all services.
pub fn comparison(comparison: &Comparison, program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    screen.headline(&headline(&comparison.runs), style);
    screen.gap();
    for (place, report) in comparison.runs.iter().enumerate() {
        screen.lines(side(&format!("{:<4}", place + 1), report));
    }
    screen.gap();
    let first = comparison.runs.first().and_then(bottom);
    screen.line(format!(
        "{:<22}{:>11}{:>11}{:>11}{:>12}{:>13}",
        "run", "predicted", "received", "traced", "difference", "per request"
    ));
    for (place, report) in comparison.runs.iter().enumerate() {
        figures(&mut screen, place, report, first, style);
    }
    screen.gap();
    for (place, report) in comparison.runs.iter().enumerate() {
        if report.verdict != Verdict::AsPredicted {
            screen.lines(words::labelled(&format!("run {}", place + 1), &run::headline(report)));
        }
        for expected in report.expected.iter().filter(|expected| !expected.met) {
            screen.lines(run::expectation(expected, &format!("run {}: ", place + 1), style));
        }
    }
    screen.gap();
    let labels: Vec<String> = (1..=comparison.runs.len())
        .map(|place| format!("run {place}"))
        .collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    traces::of_runs(&mut screen, comparison, &labels);
    screen.gap();
    let mut lines = Vec::new();
    for (place, report) in comparison.runs.iter().enumerate() {
        let label = if place == 0 { "repeat it" } else { "" };
        lines.extend(command::wrapped(&format!("{label:<LABEL$}"), program, &report.command));
    }
    run::end_with_exit(&mut lines, comparison.exit_code());
    screen.lines(lines);
    screen.finish()
}

/// What a run was: its name and chain line where these say it all, otherwise what repeats it.
fn side(first: &str, report: &Report) -> Vec<String> {
    let typed = report.command.strip_prefix("run ").unwrap_or_default();
    let typed = typed.split(" --expect").next().unwrap_or_default();
    if !typed.starts_with('-') && command::count(typed) > 1 {
        return command::bare(first, typed);
    }
    let chain = shown(&report.chain);
    let name = name(report);
    // A chain line of the user's own has no name worth a word.
    let text = if name.is_empty() || typed.starts_with('\'') {
        chain
    } else {
        format!("{name}: {chain}")
    };
    words::wrapped(first, first.len(), &text)
}

fn name(report: &Report) -> String {
    report
        .scenario
        .get("name")
        .and_then(serde_json::Value::as_str)
        .map(shown)
        .unwrap_or_default()
}

fn bottom(report: &Report) -> Option<u64> {
    report.services.last().and_then(|row| row.received)
}

pub(in crate::render) fn headline(runs: &[Report]) -> String {
    let of = |verdict: Verdict| -> Option<String> {
        let places: Vec<String> = (1..)
            .zip(runs)
            .filter(|(_, run)| run.verdict == verdict)
            .map(|(n, _)| n.to_string())
            .collect();
        (!places.is_empty()).then(|| format!("run{} {}", if places.len() == 1 { "" } else { "s" }, listed(&places)))
    };
    if let Some(runs_without) = of(Verdict::Incomplete) {
        return format!("No verdict on {runs_without}. {}", counts(runs));
    }
    match of(Verdict::NotAsPredicted) {
        Some(wrong) => format!("{} Not as predicted: {wrong}.", counts(runs)),
        None => counts(runs),
    }
}

fn listed(words: &[String]) -> String {
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => words.concat(),
    }
}

fn counts(runs: &[Report]) -> String {
    let figures: Vec<String> = runs.iter().map(|report| number::cell_or_dash(bottom(report))).collect();
    let joined = listed(&figures);
    let places: Vec<&str> = runs
        .iter()
        .filter_map(|report| report.services.last())
        .map(|row| row.service.as_str())
        .collect();
    let place = match places.split_first() {
        Some((first, others)) if others.iter().all(|other| other == first) => shown(first),
        _ => "the bottom services".to_owned(),
    };
    let requests: Vec<u64> = runs.iter().map(|report| report.operations.requested).collect();
    match requests.split_first() {
        Some((first, others)) if others.iter().all(|other| other == first) => {
            format!(
                "{joined} calls arrived at {place} for {}.",
                number::of(*first, "request")
            )
        }
        _ => format!("{joined} calls arrived at {place}."),
    }
}

fn figures(screen: &mut Screen, place: usize, report: &Report, first: Option<u64>, style: Style) {
    if let Some(row) = report.services.last() {
        let difference = match (place, first, row.received) {
            (0, ..) | (_, None, _) | (_, _, None) => String::new(),
            (_, Some(first), Some(here)) if here < first => format!("-{}", number::whole(first - here)),
            (_, Some(first), Some(here)) if here > first => format!("+{}", number::whole(here - first)),
            _ => "0".to_owned(),
        };
        let per_request = row.amplification.map_or_else(|| "-".to_owned(), number::factor);
        screen.line(format!(
            "{:<4}{:<18}{:>11}{:>11}{:>11}{difference:>12}{per_request:>13}",
            place + 1,
            words::name(&row.service, 17),
            tight(&row.predicted),
            number::cell_or_dash(row.received),
            number::cell_or_dash(row.traced),
        ));
    }
    for (name, kind) in [
        ("all services", ServiceKind::Service),
        ("all proxies", ServiceKind::Sidecar),
    ] {
        let rows: Vec<&Service> = report.services.iter().filter(|row| row.kind == kind).collect();
        if !rows.is_empty() {
            screen.line(format!(
                "    {name:<18}{:>11}{:>11}{:>11}",
                tight(&total(&rows)),
                number::cell_or_dash(sum(&rows, |row| row.received)),
                number::cell_or_dash(sum(&rows, |row| row.traced)),
            ));
        }
    }
    let requests = format!("    requests: {}", run::outcome(&report.operations));
    let verdict = style.verdict(report.verdict);
    let width = 80 - Style::Plain.verdict(report.verdict).len();
    if requests.len() + 2 <= width {
        screen.line(format!("{requests:<width$}{verdict}"));
    } else {
        screen.lines(words::wrapped("    ", 4, requests.trim_start()));
        screen.line(format!("{:width$}{verdict}", ""));
    }
}

/// A prediction for a narrow column; one that does not fit is an about.
fn tight(predicted: &Predicted) -> String {
    let full = number::expected(predicted);
    match predicted.mean {
        Some(mean) if full.len() > 10 => format!("~{}", number::mean(mean)),
        _ if full.len() > 10 => format!("<={}", number::cell(predicted.max)),
        _ => full,
    }
}

/// A count of all rows together; none where one is unknown.
fn sum(rows: &[&Service], of: fn(&Service) -> Option<u64>) -> Option<u64> {
    rows.iter().try_fold(0_u64, |sum, row| sum.checked_add(of(row)?))
}

/// The predictions of all rows together.
fn total(rows: &[&Service]) -> Predicted {
    let mut rows = rows.iter().map(|row| &row.predicted);
    let Some(mut all) = rows.next().cloned() else {
        return Predicted {
            kind: crate::report::PredictionKind::Exact,
            mean: None,
            sd: None,
            min: Count::Of(0),
            max: Count::Of(0),
        };
    };
    let plus = |one: Count, other: Count| match (one, other) {
        (Count::Of(one), Count::Of(other)) => one.checked_add(other).map_or(Count::Beyond, Count::Of),
        _ => Count::Beyond,
    };
    for row in rows {
        all.min = plus(all.min, row.min);
        all.max = plus(all.max, row.max);
        all.mean = all.mean.zip(row.mean).map(|(one, other)| one + other);
    }
    all
}
