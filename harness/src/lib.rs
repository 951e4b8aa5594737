//! x
pub mod output;
pub mod render;
pub mod report;
pub mod scenario;
