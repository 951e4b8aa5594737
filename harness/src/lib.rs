//! x
pub mod collector;
pub mod forward;
pub mod report;
pub mod scenario;
pub mod tally;
