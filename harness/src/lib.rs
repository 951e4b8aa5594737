//! x
pub mod chain_line;
pub mod cli;
pub mod expect;
pub mod report;
pub mod sanitize;
pub mod scenario;
