//! x
pub mod report;
pub mod scenario;
