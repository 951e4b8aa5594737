//! Where traces can be looked at. An address stands on a line of its own and is never broken, however long it is: it is
//! the one thing on a screen that may be wider than it.

use super::{
    number,
    words::{self, LABEL, Screen},
};
use crate::report::{Comparison, Report};

/// Most addresses of one run on a screen.
const MOST: usize = 10;
/// Columns of the label before several runs.
const OF_RUNS: usize = 10;

/// The traces of a run's requests, one address each.
pub(super) fn of_requests(screen: &mut Screen, report: &Report) {
    let addresses: Vec<&str> = addresses(report).collect();
    let label = if report.operations.requested == 1 {
        "trace"
    } else {
        "traces"
    };
    for (place, address) in addresses.iter().take(MOST).enumerate() {
        let label = if place == 0 { label } else { "" };
        screen.line(format!("{label:<LABEL$}{address}"));
    }
    let more = addresses.len().saturating_sub(MOST);
    if more > 0 {
        let are = if more == 1 { "is" } else { "are" };
        let text = format!("{} more {are} in the report (--json)", number::whole(more as u64));
        screen.lines(words::labelled("", &text));
    }
}

/// The first trace of each run, and how the first two of them differ.
pub(super) fn of_runs(screen: &mut Screen, comparison: &Comparison, labels: &[&str]) {
    let runs = labels.iter().copied().zip(&comparison.runs);
    let mut rows: Vec<(&str, &str)> = runs
        .filter_map(|(label, report)| Some((label, addresses(report).next()?)))
        .collect();
    let difference = comparison.trace_difference_url.as_deref().and_then(words::address);
    rows.extend(difference.map(|address| ("difference", address)));
    for (place, (name, address)) in rows.into_iter().enumerate() {
        let label = if place == 0 { "traces" } else { "" };
        screen.line(format!("{label:<OF_RUNS$}{name:<12}{address}"));
    }
}

fn addresses(report: &Report) -> impl Iterator<Item = &str> {
    let found = report
        .receipts
        .iter()
        .filter_map(|receipt| receipt.trace_url.as_deref());
    found.filter_map(words::address)
}
