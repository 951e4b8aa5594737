//! What to change: a block for each edit of one place, one for those of several, the biggest cut first.

use super::super::{
    number,
    words::{self, Screen, WIDTH, shown},
};
use super::{is_average, is_exact, requests};
use crate::report::{Change, Prediction, Scope};

/// Rows of a block, at most.
const ROWS: usize = 8;
/// Rows of a block that all stand for themselves, at most.
const FEW: usize = 5;
/// Columns between two columns.
const GAP: usize = 2;
/// Widest name of a change before it is wrapped.
const NAME: usize = 40;
/// Over the last column: what becomes of failures then, which is what a change gives up.
const AFTERWARDS: &str = "afterwards";

/// A change with how many others leave as much for as many edits.
type Row<'a> = (&'a Change, usize);

/// Both blocks; nothing where no change helps.
pub(super) fn blocks(screen: &mut Screen, prediction: &Prediction) {
    let of = |scope: Scope| {
        let changes = prediction.changes.iter().filter(|change| change.scope == scope);
        let changes: Vec<&Change> = changes.collect();
        alike(&changes)
    };
    let blocks = words::SCOPES.map(|(title, scope)| (title, of(scope)));
    let columns = Columns::of(prediction, blocks.iter().flat_map(|(_, rows)| rows));
    let mut header = Some(&columns);
    for (title, rows) in &blocks {
        if rows.is_empty() {
            continue;
        }
        screen.line(
            header
                .take()
                .map_or_else(|| (*title).to_owned(), |columns| columns.header(title)),
        );
        for row in rows.iter().take(ROWS) {
            columns.row(screen, row);
        }
        let more: usize = rows.iter().skip(ROWS).map(|(_, others)| 1 + others).sum();
        match more {
            0 => {}
            1 => screen.line("  1 more cuts less and is in the report (--json)"),
            more => screen.line(format!("  {more} more cut less and are in the report (--json)")),
        }
    }
}

/// What is over and how wide.
struct Columns {
    at: String,
    name: usize,
    left: usize,
    edits: usize,
    /// Whether what a change gives up has a column, and not a line of its own.
    is_wide: bool,
}

impl Columns {
    fn of<'a>(prediction: &Prediction, rows: impl Iterator<Item = &'a Row<'a>>) -> Self {
        let rows: Vec<_> = rows.collect();
        let widest = |text: &dyn Fn(&Change) -> String| rows.iter().map(|(change, _)| text(change).len()).max();
        let at = at(prediction);
        let name = widest(&|change| format!("  {}", shown(&change.change)))
            .unwrap_or(0)
            .min(NAME);
        let left = widest(&left).unwrap_or(0).max(at.len());
        let edits = widest(&|change| shown(&change.edits))
            .unwrap_or(0)
            .max("you edit".len());
        let gives_up = widest(&gives_up).unwrap_or(0).max(AFTERWARDS.len());
        Self {
            is_wide: name + left + edits + gives_up + 3 * GAP <= WIDTH,
            at,
            name,
            left,
            edits,
        }
    }

    fn header(&self, title: &str) -> String {
        let last = if self.is_wide { AFTERWARDS } else { "" };
        self.line(title, &self.at, "you edit", last)
    }

    fn row(&self, screen: &mut Screen, (change, others): &Row<'_>) {
        let mut name = wrapped(&format!("  {}", shown(&change.change)), self.name);
        match others {
            0 => {}
            1 => name.push("    or the same at 1 other".to_owned()),
            more => name.push(format!("    or the same at 1 of {more} others")),
        }
        let edits = wrapped(&shown(&change.edits), WIDTH - self.name - self.left - 2 * GAP);
        let last = if self.is_wide { gives_up(change) } else { String::new() };
        for row in 0..name.len().max(edits.len()) {
            let of = |lines: &[String]| lines.get(row).cloned().unwrap_or_default();
            let (left, last) = if row == 0 {
                (left(change), last.as_str())
            } else {
                (String::new(), "")
            };
            screen.line(self.line(&of(&name), &left, &of(&edits), last));
        }
        if !self.is_wide && !change.gives_up.trim().is_empty() {
            screen.lines(words::wrapped("      then ", 8, &gives_up(change)));
        }
    }

    fn line(&self, name: &str, left: &str, edits: &str, last: &str) -> String {
        let gap = " ".repeat(GAP);
        let (to_name, to_left, to_edits) = (self.name, self.left, self.edits);
        format!("{name:<to_name$}{gap}{left:>to_left$}{gap}{edits:<to_edits$}{gap}{last}")
    }
}

/// Over what a change leaves.
pub(in crate::render) fn at(prediction: &Prediction) -> String {
    // It is told of one request, and the headline of all of them.
    let of_one = if requests(prediction) > 1 { " for 1" } else { "" };
    // Where chance, order or other requests decide, it is the worst case, and the headline's figure is not.
    let is_worst = is_exact(prediction) && !is_average(prediction);
    let most = if is_worst { "" } else { ", at most" };
    format!("at {}{of_one}{most}", words::name(&prediction.bottom.service, 17))
}

/// What a change leaves.
pub(in crate::render) fn left(change: &Change) -> String {
    change.ceiling.map_or_else(
        || number::count(change.bottom),
        |ceiling| format!("{} at most", number::ceiling(ceiling)),
    )
}

/// What a change gives up, under [`AFTERWARDS`].
fn gives_up(change: &Change) -> String {
    shown(&number::in_sentence(&change.gives_up))
}

/// The changes, each with how many others leave as much for as many edits. Few changes all stand for themselves.
fn alike<'a>(changes: &[&'a Change]) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for change in changes {
        let same = |(known, _): &&mut Row<'_>| {
            let like = |change: &Change| (change.bottom, change.kind, change.at.is_some());
            like(known) == like(change) && known.edits == change.edits
        };
        match rows.iter_mut().find(same) {
            Some((_, others)) if changes.len() > FEW => *others += 1,
            _ => rows.push((change, 0)),
        }
    }
    rows
}

/// Text in a column: the blanks before its first word stay, later lines stand two further in.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let first = &text[..text.len() - text.trim_start().len()];
    let indent = if first.is_empty() { 0 } else { first.len() + 2 };
    words::wrapped_at(width, first, indent, text)
}
