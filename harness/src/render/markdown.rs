//! Results as Markdown: for a page, a pull request, the summary of a CI job.

use crate::report::{Comparison, Prediction, Report, Sweep};

/// One run.
pub fn run(_report: &Report) -> String {
    todo!()
}

/// Several runs side by side.
pub fn comparison(_comparison: &Comparison) -> String {
    todo!()
}

/// The arithmetic alone.
pub fn prediction(_prediction: &Prediction) -> String {
    todo!()
}

/// One run for each value.
pub fn sweep(_sweep: &Sweep) -> String {
    todo!()
}
