//! x
pub mod code;
pub mod config;
pub mod fault;
pub mod policy;
