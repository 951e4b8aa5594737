//! The suggested changes of a run, each applied and run: what was predicted for it and what came.

use super::{
    Style, number,
    words::{self, Screen, shown},
};
use crate::report::{Advice, Report, ServiceKind, Verdict};

/// Columns of a name, at most.
const NAME: usize = 38;
/// Columns of a figure.
const CELL: usize = 11;
/// Columns of the requests that failed.
const FAILED: usize = 8;

/// The changes in the blocks that `predict` shows; nothing where none was to be run.
pub(super) fn block(screen: &mut Screen, report: &Report, style: Style) {
    if report.advice.is_empty() {
        return;
    }
    screen.gap();
    screen.lines(words::wrapped("", 0, &summary(report)));
    screen.gap();
    let longest = report.advice.iter().map(|row| shown(&row.change).len() + 2).max();
    let titles = words::SCOPES.iter().map(|(title, _)| title.len()).max();
    let width = longest.max(titles).unwrap_or(0).min(NAME);
    let mut columns = format!("{:>CELL$}{:>CELL$}{:>FAILED$}", "predicted", "received", "failed");
    for (title, scope) in words::SCOPES {
        let rows: Vec<_> = report.advice.iter().filter(|row| row.scope == scope).collect();
        if rows.is_empty() {
            continue;
        }
        screen.line(format!("{title:<width$}{}", std::mem::take(&mut columns)));
        for row in rows {
            change(screen, row, width, style);
        }
    }
    screen.gap();
}

fn change(screen: &mut Screen, row: &Advice, width: usize, style: Style) {
    let name = words::wrapped_at(width, "  ", 4, &shown(&row.change));
    let verdict = row
        .verdict
        .map_or_else(|| "not run".to_owned(), |verdict| style.verdict(verdict));
    let (predicted, received) = (number::expected(&row.predicted), number::cell_or_dash(row.measured));
    let failed = number::cell_or_dash(row.failed);
    let figures = format!("{predicted:>CELL$}{received:>CELL$}{failed:>FAILED$}   {verdict}");
    for (place, name) in name.iter().enumerate() {
        let figures = if place == 0 { figures.as_str() } else { "" };
        screen.line(format!("{name:<width$}{figures}"));
    }
    if let Some(ceiling) = row.ceiling {
        let text = format!(
            "{} one after another; the calculator says {} for each, at most",
            number::of(row.requests, "request"),
            number::ceiling(ceiling)
        );
        screen.lines(words::wrapped("    ", 4, &text));
    }
}

/// `8 changes were applied and run, all as predicted. Calls at inventory:`
fn summary(report: &Report) -> String {
    let of = |verdict: Verdict| report.advice.iter().filter(|row| row.verdict == Some(verdict)).count() as u64;
    let [right, wrong, open] = [
        of(Verdict::AsPredicted),
        of(Verdict::NotAsPredicted),
        of(Verdict::Incomplete),
    ];
    let run = right + wrong + open;
    let were = if run == 1 { "was" } else { "were" };
    let how = match (right, wrong, open) {
        (1, 0, 0) => "as predicted".to_owned(),
        (_, 0, 0) => "all as predicted".to_owned(),
        _ => {
            let parts = [
                (right, "as predicted"),
                (wrong, "not as predicted"),
                (open, "without a verdict"),
            ];
            let parts = parts.iter().filter(|(count, _)| *count > 0);
            let parts: Vec<_> = parts
                .map(|(count, what)| format!("{} {what}", number::whole(*count)))
                .collect();
            parts.join(", ")
        }
    };
    let bottom = report.services.iter().rfind(|row| row.kind == ServiceKind::Service);
    let bottom = bottom.map_or_else(|| "the bottom".to_owned(), |row| shown(&row.service));
    let requests = number::of(report.operations.requested, "request");
    format!(
        "{} {were} applied and run, {how}. Calls at {bottom} for {requests}, and how many of these failed:",
        number::of(run, "change")
    )
}
