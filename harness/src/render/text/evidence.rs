//! The evidence: predicted, received and traced across one line, and what each link carried.

use super::{
    Style, number, picture,
    words::{self, Screen, WIDTH},
};
use crate::report::{Count, Link, Report, Verdict};

/// Columns of the labels before the figures.
const LABELS: usize = 13;
/// Columns of one group of figures, at least.
const GROUP: usize = 14;

/// Column of the verdict.
const VERDICT: usize = LABELS + 3 * GROUP;

/// Predicted, received, traced of each run: one line a run where that fits, otherwise one row a service.
pub(super) fn table(screen: &mut Screen, runs: &[(&str, &Report)], style: Style) {
    let groups: Vec<[String; 3]> = runs.iter().map(|(_, report)| groups(report)).collect();
    let width = |place: usize| {
        groups
            .iter()
            .map(|group| group[place].len() + 2)
            .max()
            .unwrap_or(0)
            .max(GROUP)
    };
    let (predicted, received, traced) = (width(0), width(1), width(2));
    let verdict = runs
        .iter()
        .map(|(_, report)| style_free(report.verdict))
        .max()
        .unwrap_or(0);
    let long_names = runs
        .iter()
        .any(|(_, report)| report.services.iter().any(|row| row.service.len() > 35));
    if LABELS + predicted + received + traced + verdict > WIDTH || long_names {
        for (label, report) in runs {
            by_service(screen, label, report, style);
        }
        return;
    }
    screen.line(format!(
        "{:LABELS$}{:<predicted$}{:<received$}traced",
        "", "predicted", "received"
    ));
    for ((label, report), [left, middle, right]) in runs.iter().zip(&groups) {
        screen.line(format!(
            "{label:<LABELS$}{left:<predicted$}{middle:<received$}{right:<traced$}{}",
            style.verdict(report.verdict)
        ));
    }
}

fn style_free(verdict: Verdict) -> usize {
    Style::Plain.verdict(verdict).len()
}

fn groups(report: &Report) -> [String; 3] {
    let joined = |figures: Vec<String>| figures.join(" ");
    [
        joined(
            report
                .services
                .iter()
                .map(|row| number::expected(&row.predicted))
                .collect(),
        ),
        joined(
            report
                .services
                .iter()
                .map(|row| number::cell_or_dash(row.received))
                .collect(),
        ),
        joined(
            report
                .services
                .iter()
                .map(|row| number::cell_or_dash(row.traced))
                .collect(),
        ),
    ]
}

fn by_service(screen: &mut Screen, label: &str, report: &Report, style: Style) {
    let figures: Vec<[String; 3]> = report
        .services
        .iter()
        .map(|row| {
            [
                number::expected(&row.predicted),
                number::cell_or_dash(row.received),
                number::cell_or_dash(row.traced),
            ]
        })
        .collect();
    let width = |place: usize| figures.iter().map(|row| row[place].len()).max().unwrap_or(0).max(9) + 3;
    let (predicted, received, traced) = (width(0), width(1), width(2));
    let names = picture::name_columns(
        report.services.iter().map(|row| row.service.as_str()),
        WIDTH.saturating_sub(predicted + received + traced),
    );
    screen.line(format!(
        "{label:<names$}{:>predicted$}{:>received$}{:>traced$}",
        "predicted", "received", "traced"
    ));
    for (row, [left, middle, right]) in report.services.iter().zip(&figures) {
        let name = words::name(&row.service, names);
        screen.line(format!(
            "{name:<names$}{left:>predicted$}{middle:>received$}{right:>traced$}"
        ));
    }
    screen.line(format!("{:VERDICT$}{}", "", style.verdict(report.verdict)));
}

/// Whether the links have something to tell: a run that is not as predicted, or one that did not arrive as sent.
pub(super) fn links_matter(report: &Report) -> bool {
    report.verdict == Verdict::NotAsPredicted || report.links.iter().any(|link| !is_one(link.factor))
}

/// Whether a link is where prediction and count parted: what arrived is not what was sent, and no closed port was asked
/// for.
pub(super) fn is_here(report: &Report, link: &Link) -> bool {
    report.verdict == Verdict::NotAsPredicted && !is_one(link.factor) && !is_closed(report, link)
}

fn is_one(factor: Option<f64>) -> bool {
    factor.is_none_or(|factor| (factor - 1.0).abs() < 1e-9)
}

fn is_closed(report: &Report, link: &Link) -> bool {
    link.received == Some(0)
        && report
            .services
            .iter()
            .any(|row| row.service == link.to && row.predicted.max == Count::Of(0))
}

/// Sent, received and their factor on every link.
pub(super) fn links(screen: &mut Screen, report: &Report, style: Style) {
    const HERE: &str = "   <-- here";
    let figures: Vec<[String; 3]> = report
        .links
        .iter()
        .map(|link| {
            let factor = link.factor.map_or_else(|| "-".to_owned(), number::factor);
            [
                number::cell_or_dash(link.sent),
                number::cell_or_dash(link.received),
                factor,
            ]
        })
        .collect();
    let width = |place: usize, least: usize| {
        figures
            .iter()
            .map(|row| row[place].len() + 3)
            .max()
            .unwrap_or(0)
            .max(least)
    };
    let (sent, received, factor) = (width(0, 10), width(1, 11), width(2, 9));
    // "  one > other": two blanks in front, three columns between.
    let room = WIDTH.saturating_sub(sent + received + factor + HERE.len() + 5);
    let longest = |name: fn(&Link) -> &str| {
        report
            .links
            .iter()
            .map(|link| words::shown(name(link)).len())
            .max()
            .unwrap_or(0)
            .min(room / 2)
    };
    let (from, to) = (longest(|link| &link.from), longest(|link| &link.to));
    let names = 2 + from + 3 + to;
    screen.line(format!(
        "{:<names$}{:>sent$}{:>received$}{:>factor$}",
        "link", "sent", "received", "factor"
    ));
    for (link, [left, middle, right]) in report.links.iter().zip(&figures) {
        let (left_name, right_name) = (words::name(&link.from, from), words::name(&link.to, to));
        let here = if is_here(report, link) {
            style.warning(HERE)
        } else {
            String::new()
        };
        screen.line(format!(
            "  {left_name:<from$} > {right_name:<to$}{left:>sent$}{middle:>received$}{right:>factor$}{here}"
        ));
    }
}
