//! The chassis: how every service starts, listens, calls, counts and fails.
//!
//! # Life of one request
//!
//! ```text
//!  connection  listen.rs      the accept loop; hyper's HTTP/2 over a port that can be closed
//!      |
//!  inbound     inbound.rs     ledger -> trace -> deadline in -> detach -> fault -> the service's handler
//!      |                        |        |          |            |          |
//!      |                      counts   SERVER     work ends    may go on   behaves as the
//!      |                      it all   span       at it        without     broken service
//!      |                                                       its caller
//!  handler     call.rs        takes the Context, hands it on; copies no metadata
//!              fan_out.rs     once, or as often as the settings say
//!      |
//!  outbound    outbound.rs    call span -> retry -> deadline out -> attempt span -> connection
//!                               |           |          |              |
//!                             INTERNAL    1 call,    the time       CLIENT span,
//!                                         n attempts that is left   its context travels
//!                             (a fault of the caller's own sits on one side of the retry layer or on the other)
//! ```
//!
//! A sidecar is the same with a forwarder in the handler's place and a connection that passes on what it gets (`direct.rs`).
//!
//! An answer may ask for something to be done in its place (`connection.rs`): its stream or its connection is reset, or a
//! GOAWAY goes out. The accept loop obeys.
//!
//! The ledger stamps each arrival with the settings in force (`settings.rs`); the Context carries them, and every layer that
//! the arrival passes, and every attempt that it causes, goes by those, whatever the control port (`control.rs`) puts in force
//! meanwhile. What happens is counted by settings and by who follows the request (`counts.rs`); ended spans go to the
//! process's own collector, and copies to those who follow (`telemetry.rs`, `telemetry/outlets.rs`).
//!
//! Here: configuration and its codec, the settings in force, the layers, the accept loop, the ledger, telemetry, the control
//! port. Not here: any service, any shop message, any prediction (`harness/model` shares no code with this crate, so that
//! measurement and prediction cannot be wrong together). Start with `process.rs`, then `inbound.rs` and `outbound.rs`.

pub mod address;
pub mod allowance;
pub mod body;
pub mod call;
pub mod code;
pub mod config;
pub mod connection;
pub mod control;
pub mod conventions;
pub mod counts;
mod direct;
pub mod export;
pub mod fan_out;
pub mod fault;
pub mod inbound;
pub mod layers;
pub mod listen;
pub mod outbound;
pub mod outcome;
pub mod policy;
pub mod process;
pub mod seen;
pub mod settings;
pub mod stalls;
pub mod telemetry;
#[cfg(test)]
mod testbed;

/// A request as every layer sees it: never a message type.
pub type Request = http::Request<tonic::body::Body>;
/// An answer as every layer sees it.
pub type Response = http::Response<tonic::body::Body>;
