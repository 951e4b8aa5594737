//! The harness: drives requests through the chain, collects what arrived and what was traced, and holds both against a
//! prediction made beforehand.
//!
//! ```text
//!  cli.rs -> commands.rs -> run.rs: predict, start or attach, drive, settle, read, stop, judge
//!                            |  scenario.rs   what is to run, from a file, a chain line or a running chain
//!                            |  fleet.rs      the service processes
//!                            |  envoy.rs      real Envoys in the place of our own proxies
//!                            |  standing.rs   a chain that runs already: found (attach.rs), put in order, switched, followed
//!                            |  load.rs       the requests
//!                            |  lab.rs        questions to the control ports
//!                            |  witness.rs    who is asked what passed: a lab, or an Envoy
//!                            |  observer.rs   what goes on meanwhile
//!                            |  collector.rs  the spans, counted by tally.rs, passed on by forward.rs
//!                            |  plan.rs       configurations -> the model's topology
//!                            |  evidence.rs   all of it -> what the model judges, and the rows of the report
//!                            v
//!                judge.rs: report.rs -> render/ -> output.rs
//! ```
//!
//! What is answered without a run is `predict.rs`; what it suggests to change is `advice.rs`, and `commands/prove.rs` runs it.
//!
//! A chain that stays up is kept, switched and looked at by `commands/live.rs`; what it has counted so far is read by
//! `status.rs`.
//!
//! Not here: the arithmetic (`harness/model`), the services (`services/`). Start with `run.rs`.

pub mod advice;
pub mod attach;
pub mod chain_line;
pub mod child;
pub mod cli;
pub mod collector;
pub mod commands;
pub mod envoy;
pub mod evidence;
pub mod expect;
pub mod fleet;
pub mod forward;
pub mod judge;
pub mod lab;
pub mod load;
pub mod notes;
pub mod observer;
pub mod output;
pub mod plan;
pub mod predict;
pub mod render;
pub mod report;
pub mod run;
pub mod sanitize;
pub mod scenario;
pub mod standing;
pub mod status;
pub mod tally;
pub mod viewer;
pub mod witness;
