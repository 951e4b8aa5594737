//! Results as figures that stand on their own: title, units, command, seed and version in the picture, readable in grey.

use crate::report::{Comparison, Prediction, Report, Sweep};

/// The chain of one run, a dot for each call that arrived.
pub fn run(_report: &Report) -> String {
    todo!()
}

/// The chains of several runs under each other.
pub fn comparison(_comparison: &Comparison) -> String {
    todo!()
}

/// The chain as predicted.
pub fn prediction(_prediction: &Prediction) -> String {
    todo!()
}

/// A line for what was predicted, a dot for what came: calls at the bottom, and requests that still fail.
pub fn sweep(_sweep: &Sweep) -> String {
    todo!()
}
