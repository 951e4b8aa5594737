//! What was observed. Data alone.

use super::disturbance::Disturbance;
use crate::topology::Code;
use std::collections::BTreeMap;

/// All evidence of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observation {
    /// The services, in any order.
    pub services: Vec<Observed>,
    /// The links, in any order.
    pub links: Vec<ObservedLink>,
    /// Requests the client started.
    pub requests_sent: u64,
    /// Requests that came to an end.
    pub requests_ended: u64,
    /// Requests that ended OK.
    pub ok: u64,
    /// Requests that ended with a failure, by code.
    pub failed_by_code: BTreeMap<Code, u64>,
    /// Everything that went wrong and that no fault asked for.
    pub disturbances: Vec<Disturbance>,
    /// How late the processes were during the load, where one was.
    pub latest: Option<Late>,
}

/// How late the processes were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// Which one most.
    pub process: String,
    /// All of them together, each at its worst, microseconds.
    pub us: u64,
}

/// What is known of one service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// Its name.
    pub name: String,
    /// Arrivals by its own count; `None` if it could not be read.
    pub received: Option<u64>,
    /// Arrivals that carried no attempt path of this run: somebody else's. Part of `received`.
    pub foreign: u64,
    /// Its SERVER spans at the collector.
    pub traced: Option<u64>,
    /// Spans of all kinds it made, by its own count.
    pub spans_made: Option<u64>,
    /// Spans of all kinds that the collector got from it, each once.
    pub spans_collected: Option<u64>,
    /// Arrivals not finished when it was read.
    pub in_flight: u64,
    /// Arrivals that ended without an answer: their time was over, or their caller had left.
    pub unanswered: u64,
    /// Whether it makes spans at all; if not, nothing is expected of the three counts of spans.
    pub is_traced: bool,
}

/// What is known of one link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedLink {
    /// The caller's name.
    pub from: String,
    /// The service's name.
    pub to: String,
    /// Attempts by the caller's own count.
    pub sent: Option<u64>,
    /// Arrivals by the service's own count.
    pub received: Option<u64>,
    /// Attempts that the transport ended, by the caller's own count: refused, lost or cut.
    pub transport_failures: u64,
    /// Calls that ended because their deadline had passed.
    pub out_of_time: u64,
}
