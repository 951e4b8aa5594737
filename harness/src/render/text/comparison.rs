//! Several runs side by side: each figure a row, each run a column.
//!
//! The rows are text that a terminal takes as well as a page: [`rows`] is read by `markdown` too. Start with [`comparison`].

use super::{
    Style, command, hidden, number, run, traces,
    words::{self, LABEL, Screen, shown},
};
use crate::report::{Comparison, Operations, Predicted, Report, Service, ServiceKind, Verdict, arrivals};
use std::fmt::Write as _;

/// Most runs beside each other.
const BESIDE: usize = 4;
/// Columns of the labels before the figures.
const LABELS: usize = 20;
/// Columns of one run, at most; four have less.
const COLUMN: usize = 18;

/// What was run, its figures in columns, what is wrong with which, how to repeat each.
pub fn comparison(comparison: &Comparison, program: &str, style: Style) -> String {
    let runs = &comparison.runs;
    let mut screen = Screen::default();
    screen.headline(&headline(runs), style);
    screen.gap();
    for (place, side) in sides(runs).into_iter().enumerate() {
        let first = format!("{:<4}", place + 1);
        screen.lines(match side {
            Side::Typed(words) => command::bare(&first, &words),
            Side::Told(text) => words::wrapped(&first, first.len(), &text),
        });
    }
    if let Some(text) = same_load(runs) {
        screen.lines(words::wrapped("", 0, &text));
    }
    let rows = rows(runs);
    // Blocks of the same width: five are three and two.
    let blocks = runs.len().div_ceil(BESIDE).max(1);
    let beside = runs.len().div_ceil(blocks).max(1);
    let places: Vec<usize> = (0..runs.len()).collect();
    for places in places.chunks(beside) {
        screen.gap();
        table(&mut screen, runs, &rows, places, beside, style);
    }
    screen.gap();
    problems(&mut screen, runs, style);
    screen.gap();
    let labels: Vec<String> = (1..=runs.len()).map(|place| format!("run {place}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    traces::of_runs(&mut screen, comparison, &labels);
    screen.gap();
    let mut lines = Vec::new();
    for (place, report) in runs.iter().enumerate() {
        let label = if place == 0 { "repeat it" } else { "" };
        lines.extend(command::wrapped(&format!("{label:<LABEL$}"), program, &report.command));
    }
    run::end_with_exit(&mut lines, comparison.exit_code());
    screen.lines(lines);
    screen.finish()
}

/// What a run was.
pub(in crate::render) enum Side {
    /// The words behind `run` that repeat it, for a shell.
    Typed(String),
    /// Its name and chain line, which say it all. Harmless.
    Told(String),
}

/// What each run was: its name and chain line where these say it all, otherwise what repeats it; told apart where two would
/// read alike.
pub(in crate::render) fn sides(runs: &[Report]) -> Vec<Side> {
    let mut sides: Vec<Side> = runs.iter().map(side).collect();
    let texts: Vec<String> = sides
        .iter()
        .map(|side| match side {
            Side::Typed(text) | Side::Told(text) => text.clone(),
        })
        .collect();
    for (place, text) in texts.iter().enumerate() {
        let Some(first) = texts[..place].iter().position(|other| other == text) else {
            continue;
        };
        let (report, other) = (&runs[place], &runs[first]);
        let what = if report == other {
            "the same report".to_owned()
        } else {
            let versions = [report, other].map(|report| report.versions.get("retryscope").map_or("", String::as_str));
            let started = shown(&report.timing.started);
            if report.seed != other.seed {
                format!("with seed {}", report.seed)
            } else if versions[0] != versions[1] {
                format!("by version {}", shown(versions[0]))
            } else {
                format!("once more, begun {started}")
            }
        };
        sides[place] = Side::Told(format!("as run {}, {what}", first + 1));
    }
    sides
}

fn side(report: &Report) -> Side {
    let typed = report.command.strip_prefix("run ").unwrap_or_default();
    let typed = command::without(typed, &["--expect"], "");
    if !typed.starts_with('-') && command::count(&typed) > 1 {
        return Side::Typed(typed);
    }
    let chain = shown(&report.chain);
    let name = shown(report.name());
    // A chain line of the user's own has no name worth a word.
    Side::Told(if name.is_empty() || typed.starts_with('\'') {
        chain
    } else {
        format!("{name}: {chain}")
    })
}

fn bottom(report: &Report) -> Option<u64> {
    report.services.last().and_then(|row| row.received)
}

/// The answer in a sentence.
pub(in crate::render) fn headline(runs: &[Report]) -> String {
    let of = |verdict: Verdict| -> Option<String> {
        let places: Vec<String> = (1..)
            .zip(runs)
            .filter(|(_, run)| run.verdict == verdict)
            .map(|(n, _)| n.to_string())
            .collect();
        let plural = if places.len() == 1 { "" } else { "s" };
        (!places.is_empty()).then(|| format!("run{plural} {}", words::listed(&places)))
    };
    if let Some(runs_without) = of(Verdict::Incomplete) {
        return format!("No verdict on {runs_without}. {}", counts(runs));
    }
    match of(Verdict::NotAsPredicted) {
        Some(wrong) => format!("{} Not as predicted: {wrong}.", counts(runs)),
        None => counts(runs),
    }
}

fn counts(runs: &[Report]) -> String {
    let figures: Vec<String> = runs.iter().map(|report| number::cell_or_dash(bottom(report))).collect();
    let joined = words::listed(&figures);
    let place = bottom_name(runs).unwrap_or_else(|| "the bottom services".to_owned());
    match same(runs, |report| report.operations.requested) {
        Some(requests) => format!(
            "{joined} calls arrived at {place} for {}.",
            number::of(requests, "request")
        ),
        None => format!("{joined} calls arrived at {place}."),
    }
}

/// The name of the bottom service, where all have the same.
fn bottom_name(runs: &[Report]) -> Option<String> {
    same(runs, |report| report.services.last().map(|row| shown(&row.service))).flatten()
}

/// Where the calls are counted that the first rows are about.
pub(in crate::render) fn title(runs: &[Report]) -> String {
    bottom_name(runs).map_or_else(|| "at the bottom".to_owned(), |name| format!("at {name}"))
}

/// What is the same in all runs.
fn same<T: PartialEq>(runs: &[Report], of: impl Fn(&Report) -> T) -> Option<T> {
    let (first, others) = runs.split_first()?;
    let first = of(first);
    others.iter().all(|other| of(other) == first).then_some(first)
}

fn of_load(report: &Report, key: &str) -> Option<f64> {
    let load = report.scenario.get("load")?;
    load.get(key).and_then(serde_json::Value::as_f64)
}

/// How all of them were sent, where that is worth a sentence and the same: it then stands in no row.
pub(in crate::render) fn same_load(runs: &[Report]) -> Option<String> {
    let requests = same(runs, |report| report.operations.requested)?;
    let concurrency = same(runs, |report| of_load(report, "concurrency"))?;
    let rate = same(runs, |report| of_load(report, "rate"))?;
    let how = how(concurrency, rate)?;
    Some(format!("Each of them: {}{how}.", number::of(requests, "request")))
}

/// `, 16 at once, 40 a second`; `None` for the plain case, one after another.
fn how(concurrency: Option<f64>, rate: Option<f64>) -> Option<String> {
    let at_once = concurrency.filter(|number| *number > 1.0);
    let at_once = at_once.map(|number| format!(", {} at once", number::factor(number)));
    let rate = rate.map(|rate| format!(", {} a second", number::factor(rate)));
    (at_once.is_some() || rate.is_some()).then(|| at_once.unwrap_or_default() + rate.as_deref().unwrap_or_default())
}

/// A figure of every run. Harmless.
pub(in crate::render) struct Row {
    /// What it is; indented where it belongs to the row above.
    pub(in crate::render) label: String,
    /// One text a run; empty where there is nothing to say.
    pub(in crate::render) cells: Vec<String>,
}

/// The figures of all runs, each with how it differs from the first.
pub(in crate::render) fn rows(runs: &[Report]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |label: &str, cells: Vec<String>| {
        rows.push(Row {
            label: label.to_owned(),
            cells,
        });
    };
    let each = |of: &dyn Fn(&Report) -> String| runs.iter().map(of).collect::<Vec<_>>();
    let counted = |of: &dyn Fn(&Report) -> Option<u64>| each(&|report| number::cell_or_dash(of(report)));
    let bottom_row =
        |of: &dyn Fn(&Service) -> String| each(&|report| report.services.last().map_or_else(|| "-".to_owned(), of));
    add("predicted", bottom_row(&|row| tight(&row.predicted)));
    add("received", counted(&bottom));
    add(AGAINST, against(runs, &bottom));
    add("traced", bottom_row(&|row| number::cell_or_dash(row.traced)));
    add(
        "for 1 request",
        bottom_row(&|row| number::or_dash(row.amplification, number::factor)),
    );
    for (label, kind) in [
        ("at all services", ServiceKind::Service),
        ("at all proxies", ServiceKind::Sidecar),
    ] {
        let has = |report: &Report| report.services.iter().any(|row| row.kind == kind);
        if runs.iter().any(has) {
            // A run without any has no sum.
            let all = |report: &Report| has(report).then(|| arrivals(&report.services, kind)).flatten();
            add(label, counted(&all));
        }
    }
    let vain = |report: &Report| report.work.map(|work| work.in_vain);
    add("work in vain", counted(&vain));
    add(AGAINST, against(runs, &vain));
    if same(runs, |report| report.operations.requested).is_none() {
        add("requests", counted(&|report| Some(report.operations.requested)));
    }
    for (label, key) in [("  at once", "concurrency"), ("  a second", "rate")] {
        if same(runs, |report| of_load(report, key)).is_none() {
            let told = |report: &Report| number::or_dash(of_load(report, key), number::factor);
            add(label, each(&told));
        }
    }
    let ok = |report: &Report| Some(report.operations.ok);
    add("requests OK", counted(&ok));
    add(AGAINST, against(runs, &ok));
    add("requests failed", counted(&|report| Some(report.operations.failed)));
    let codes = runs.iter().flat_map(|report| report.operations.by_code.keys());
    for code in codes.collect::<std::collections::BTreeSet<_>>() {
        let label = format!("  {}", words::name(code, LABELS - 2));
        let count = |report: &Report| report.operations.by_code.get(code).copied().unwrap_or(0);
        add(&label, counted(&|report| Some(count(report))));
    }
    for (label, of) in ODD {
        if runs.iter().any(|report| of(&report.operations) > 0) {
            add(label, counted(&|report| Some(of(&report.operations))));
        }
    }
    let time = |of: fn(&crate::report::Latency) -> f64| {
        each(&|report| {
            let times = report.timing.request_ms.as_ref();
            times.map_or_else(|| "-".to_owned(), |times| number::millis(of(times)))
        })
    };
    if runs.iter().any(|report| report.timing.request_ms.is_some()) {
        add("median", time(|times| times.p50));
        add("99th percentile", time(|times| times.p99));
    }
    rows.retain(|row| row.cells.iter().any(|cell| !cell.is_empty()));
    rows
}

/// A count of the requests.
type OfRequests = fn(&Operations) -> u64;

/// What may have become of requests besides an answer.
const ODD: [(&str, OfRequests); 3] = [
    ("without an end", |requests| requests.unfinished),
    ("never sent", |requests| requests.not_sent),
    ("met a switch", |requests| requests.mixed),
];

/// The label of what differs.
const AGAINST: &str = "  against run 1";

/// How each count differs from that of the first run, with its sign; nothing where none differs.
fn against(runs: &[Report], of: &dyn Fn(&Report) -> Option<u64>) -> Vec<String> {
    let first = runs.first().and_then(of);
    let differences: Vec<String> = runs
        .iter()
        .enumerate()
        .map(|(place, report)| match (place, first, of(report)) {
            (0, ..) | (_, None, _) | (_, _, None) => String::new(),
            (_, Some(first), Some(here)) if here < first => format!("-{}", number::whole(first - here)),
            (_, Some(first), Some(here)) if here > first => format!("+{}", number::whole(here - first)),
            _ => "0".to_owned(),
        })
        .collect();
    if differences.iter().all(|text| matches!(text.as_str(), "" | "0")) {
        vec![String::new(); runs.len()]
    } else {
        differences
    }
}

fn table(screen: &mut Screen, runs: &[Report], rows: &[Row], places: &[usize], beside: usize, style: Style) {
    let column = ((words::WIDTH - LABELS) / beside).min(COLUMN);
    let title = words::name(&title(runs), LABELS);
    let line = |label: &str, cells: &[String]| {
        let mut line = format!("{label:<LABELS$}");
        for cell in cells {
            let _ = write!(line, "{cell:>column$}");
        }
        line
    };
    let heads: Vec<String> = places.iter().map(|place| format!("run {}", place + 1)).collect();
    screen.line(line(&title, &heads));
    for row in rows {
        let cells: Vec<String> = places.iter().map(|place| row.cells[*place].clone()).collect();
        screen.line(line(&row.label, &cells));
    }
    // "NOT AS PREDICTED" beside three others has two lines.
    let verdicts = places.iter().map(|place| runs[*place].verdict);
    let mut lines = [" ".repeat(LABELS), " ".repeat(LABELS)];
    for verdict in verdicts {
        let plain = Style::Plain.verdict(verdict);
        if plain.len() < column {
            let blanks = " ".repeat(column - plain.len());
            let _ = write!(lines[0], "{blanks}{}", style.verdict(verdict));
            lines[1] += &" ".repeat(column);
        } else {
            for (line, word) in lines.iter_mut().zip(["NOT AS", "PREDICTED"]) {
                let _ = write!(line, "{}{}", " ".repeat(column - word.len()), style.warning(word));
            }
        }
    }
    for line in lines.iter().filter(|line| !line.trim().is_empty()) {
        screen.line(line);
    }
}

/// What is wrong with which run, on which link, and what was expected and did not come.
fn problems(screen: &mut Screen, runs: &[Report], style: Style) {
    for (place, report) in runs.iter().enumerate() {
        let label = format!("run {}", place + 1);
        if report.verdict != Verdict::AsPredicted {
            screen.lines(words::labelled(&label, &run::headline(report)));
            for link in run::broken(report) {
                screen.lines(words::labelled("", &hidden::what_it_does(report, link)));
            }
        }
        for expected in report.expected.iter().filter(|expected| !expected.met) {
            screen.lines(run::expectation(expected, &format!("{label}: "), style));
        }
    }
}

/// A prediction for a narrow column; one that does not fit is an about.
fn tight(predicted: &Predicted) -> String {
    let full = number::expected(predicted);
    match predicted.mean {
        Some(mean) if full.len() > 13 => format!("~{}", number::mean(mean)),
        _ if full.len() > 13 => format!("<={}", number::cell(predicted.max)),
        _ => full,
    }
}
