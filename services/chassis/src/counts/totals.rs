//! What is counted together, and how such counts are put together.

use super::{LinkCounts, MAX_ATTEMPT, OTHER, Outcome};
use std::{collections::BTreeMap, ops::AddAssign, sync::Arc};

/// Most rows of arrivals: a stranger who varies what they are told apart by fills the last ones, not the memory.
const MAX_ROWS: usize = 10_000;

/// Which arrivals are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArrivalKey {
    /// The HTTP path, without its leading slash.
    pub method: Arc<str>,
    /// 1 for the first attempt of a call.
    pub attempt: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// Exact counts.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Arrivals, counted when they start.
    pub received: u64,
    /// Arrivals not finished.
    pub in_flight: u64,
    /// Arrivals after their request's deadline.
    pub late: u64,
    /// Arrivals whose own work was finished.
    pub work_done: u64,
    /// Arrivals of requests that came without a path of ours.
    pub foreign: u64,
    /// Finished arrivals by their properties.
    pub arrivals: BTreeMap<ArrivalKey, u64>,
    /// What was sent, by callee.
    pub links: BTreeMap<String, LinkCounts>,
    /// Spans made.
    pub spans: Spans,
}

/// Spans made, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spans {
    /// One per arrival.
    pub server: u64,
    /// One per attempt.
    pub client: u64,
    /// One per call.
    pub internal: u64,
}

impl Spans {
    /// Of all kinds.
    pub fn all(self) -> u64 {
        self.server + self.client + self.internal
    }
}

impl Totals {
    /// Counts arrivals that have ended.
    pub fn ended(&mut self, key: ArrivalKey, count: u64) {
        let is_room = self.arrivals.len() < MAX_ROWS || self.arrivals.contains_key(&key);
        let key = if is_room {
            key
        } else {
            ArrivalKey {
                method: OTHER.into(),
                attempt: MAX_ATTEMPT,
                outcome: key.outcome,
            }
        };
        *self.arrivals.entry(key).or_default() += count;
    }
}

impl AddAssign<&Totals> for Totals {
    fn add_assign(&mut self, other: &Self) {
        self.received += other.received;
        self.in_flight += other.in_flight;
        self.late += other.late;
        self.work_done += other.work_done;
        self.foreign += other.foreign;
        for (key, count) in &other.arrivals {
            self.ended(key.clone(), *count);
        }
        for (callee, link) in &other.links {
            *self.links.entry(callee.clone()).or_default() += link;
        }
        self.spans.server += other.spans.server;
        self.spans.client += other.spans.client;
        self.spans.internal += other.spans.internal;
    }
}

impl AddAssign<&LinkCounts> for LinkCounts {
    fn add_assign(&mut self, other: &Self) {
        self.calls += other.calls;
        self.sent += other.sent;
        for (reason, count) in &other.not_retried {
            *self.not_retried.entry(*reason).or_default() += count;
        }
        self.connect_refused += other.connect_refused;
        self.transport_errors += other.transport_errors;
    }
}
