//! Results as figures that stand on their own: title, units, command, seed and version in the picture, readable in grey.
//!
//! Pure: a report in, the text of a file out, the same bytes each time. [`page`] is the sheet, [`chain`] says what is drawn of calls on
//! their way down, [`tree`] where each stands, [`rows`] draws them, and [`curves`] draws a sweep. Figures are the report's
//! own; whatever else is computed here is a place on the page.

mod chain;
mod curves;
mod page;
mod rows;
mod ticks;
mod tree;

#[cfg(test)]
mod tests;

pub use chain::{comparison, prediction, run};
pub use curves::sweep;
