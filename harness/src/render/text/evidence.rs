//! The evidence: predicted, received and traced across one line, and what each link carried.

use super::{
    Style, hidden, number, picture,
    words::{self, Screen, WIDTH},
};
use crate::report::{Count, Link, Report, Service, Verdict};

/// Columns of the labels before the figures.
const LABELS: usize = 13;
/// Columns of one group of figures, at least.
const GROUP: usize = 14;

/// Most rows of services or links that all stand for themselves.
const ROWS: usize = 8;

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
        .any(|(_, report)| picture::services(report).any(|row| row.service.len() > 35));
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
    let rows: Vec<[String; 3]> = picture::services(report).map(figures).collect();
    [0, 1, 2].map(|place| rows.iter().map(|row| row[place].as_str()).collect::<Vec<_>>().join(" "))
}

fn figures(row: &Service) -> [String; 3] {
    [
        number::expected(&row.predicted),
        number::cell_or_dash(row.received),
        number::cell_or_dash(row.traced),
    ]
}

/// What of many rows is shown: the place of one, or how many quiet ones between two stand in a line of their own.
enum Shown {
    Row(usize),
    Folded(usize),
}

/// Where there are more than [`ROWS`], quiet ones that follow each other stand as the first and the last of them.
fn folded(quiet: &[bool]) -> Vec<Shown> {
    let mut shown = Vec::new();
    let mut place = 0;
    for run in quiet.chunk_by(|one, other| one == other) {
        let between = run.len().saturating_sub(2);
        if quiet.len() > ROWS && run[0] && between > 1 {
            shown.extend([
                Shown::Row(place),
                Shown::Folded(between),
                Shown::Row(place + run.len() - 1),
            ]);
        } else {
            shown.extend((place..place + run.len()).map(Shown::Row));
        }
        place += run.len();
    }
    shown
}

fn by_service(screen: &mut Screen, label: &str, report: &Report, style: Style) {
    let rows: Vec<(&Service, [String; 3])> = picture::services(report).map(|row| (row, figures(row))).collect();
    let width = |place: usize| {
        let widths = rows.iter().map(|(_, figures)| figures[place].len());
        widths.max().unwrap_or(0).max(9) + 3
    };
    let (predicted, received, traced) = (width(0), width(1), width(2));
    let names = picture::name_columns(
        rows.iter().map(|(row, _)| row.service.as_str()),
        WIDTH.saturating_sub(predicted + received + traced),
    );
    screen.line(format!(
        "{label:<names$}{:>predicted$}{:>received$}{:>traced$}",
        "predicted", "received", "traced"
    ));
    // Equal figures stand in the picture above already; without a verdict there is none.
    let quiet = |[left, middle, right]: &[String; 3]| {
        report.verdict != Verdict::Incomplete && left == middle && middle == right
    };
    let quiet: Vec<bool> = rows.iter().map(|(_, figures)| quiet(figures)).collect();
    for shown in folded(&quiet) {
        match shown {
            Shown::Row(place) => {
                let (row, [left, middle, right]) = &rows[place];
                let name = words::name(&row.service, names);
                screen.line(format!(
                    "{name:<names$}{left:>predicted$}{middle:>received$}{right:>traced$}"
                ));
            }
            Shown::Folded(many) => screen.line(format!("  {many} between them, each with three equal figures")),
        }
    }
    screen.line(format!("{:VERDICT$}{}", "", style.verdict(report.verdict)));
}

/// Whether the links have something to tell: a run that is not as predicted, or one that did not arrive as sent.
pub(super) fn links_matter(report: &Report) -> bool {
    report.verdict == Verdict::NotAsPredicted || report.links.iter().any(|link| !is_one(link.factor))
}

/// Whether a link is where prediction and count parted: what arrived is not what was sent, and no closed port was asked
/// for, or it was and something else answered.
pub(super) fn is_here(report: &Report, link: &Link) -> bool {
    let is_off = !is_one(link.factor) && !is_closed(report, link);
    report.verdict == Verdict::NotAsPredicted && (is_off || hidden::answers_for(report, link))
}

fn is_one(factor: Option<f64>) -> bool {
    factor.is_none_or(|factor| (factor - 1.0).abs() < 1e-9)
}

/// Whether nothing was to arrive, and nothing did.
pub(super) fn is_closed(report: &Report, link: &Link) -> bool {
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
    let quiet: Vec<bool> = report
        .links
        .iter()
        .map(|link| link.sent.is_some() && link.sent == link.received)
        .collect();
    for shown in folded(&quiet) {
        let place = match shown {
            Shown::Row(place) => place,
            Shown::Folded(many) => {
                screen.line(format!(
                    "  {many} links between them, where as many arrived as were sent"
                ));
                continue;
            }
        };
        let (link, [left, middle, right]) = (&report.links[place], &figures[place]);
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
