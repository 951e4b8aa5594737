//! What one process counted: the arrivals, the attempts it sent, the spans it made. Totals are exact; the records of single
//! arrivals sit in a bounded store whose overflow touches no total.

use crate::{
    call::{Context, monotonic_us},
    code::{self, Code},
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Everything one process counted. Shared by its layers, its accept loop and its control port.
#[derive(Debug)]
pub struct Counts {
    ledger: Mutex<Ledger>,
    rejected_by_transport: AtomicU64,
    server_spans: AtomicU64,
    client_spans: AtomicU64,
    internal_spans: AtomicU64,
}

/// How an arrival ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Answered with this code.
    Answered(CodeNumber),
    /// Ended at its own deadline.
    Expired,
    /// Its caller left.
    Dropped,
}

/// A status code as an ordered number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeNumber(i32);

impl From<Code> for CodeNumber {
    fn from(code: Code) -> Self {
        Self(code as i32)
    }
}

impl Outcome {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered(CodeNumber(number)) => code::name(Code::from_i32(number)),
            Self::Expired => "expired",
            Self::Dropped => "dropped",
        }
    }
}

/// Why a failed attempt was not followed by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The attempts of the policy are used up.
    Limit,
    /// The code is not in `retry_on`.
    Code,
    /// The answer had begun, or the request was too long to be sent again.
    Committed,
    /// The call's deadline has passed.
    Deadline,
    /// The caller of this call left.
    Cancelled,
}

impl Refusal {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Code => "code",
            Self::Committed => "committed",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Which arrivals are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArrivalKey {
    /// The HTTP path, without its leading slash.
    pub method: Arc<str>,
    /// 1 for the first attempt of a call.
    pub attempt: u32,
    /// The settings in force when it arrived.
    pub generation: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// What this process put on one link.
#[derive(Debug, Clone, Default)]
pub struct LinkCounts {
    /// Calls made.
    pub calls: u64,
    /// Attempts sent.
    pub sent: u64,
    /// Why failed attempts were not followed by another.
    pub not_retried: BTreeMap<Refusal, u64>,
    /// Attempts whose connection was refused.
    pub connect_refused: u64,
    /// Other failures of the transport.
    pub transport_errors: u64,
}

/// One arrival, as kept for receipts.
#[derive(Debug, Clone)]
pub struct Record {
    /// The request's number; 0 for a foreign arrival.
    pub request: u64,
    /// Attempts at the layers above: `1.3.2`; empty for a foreign arrival.
    pub path: String,
    /// `grpc-previous-rpc-attempts` + 1.
    pub attempt: u32,
    /// Microseconds of the machine's monotonic clock.
    pub start_us: u64,
    /// Microseconds and outcome; `None` while in flight.
    pub end: Option<(u64, Outcome)>,
    /// The settings in force when it arrived.
    pub generation: u64,
}

/// A copy of all totals.
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
    /// Arrivals without a path of ours.
    pub foreign: u64,
    /// Finished arrivals by their properties.
    pub arrivals: BTreeMap<ArrivalKey, u64>,
    /// What was sent, by callee.
    pub links: BTreeMap<String, LinkCounts>,
    /// Records given up.
    pub records_lost: u64,
    /// The highest request number of which a record was given up.
    pub given_up_through: u64,
}

/// Most methods that are told apart; a stranger who invents method names fills one row, not the memory.
const MAX_METHODS: usize = 64;
/// Attempt numbers above the largest policy are a stranger's and share a row.
const MAX_ATTEMPT: u32 = crate::policy::MAX_ATTEMPTS + 1;

#[derive(Debug, Default)]
struct Ledger {
    totals: Totals,
    methods: Vec<Arc<str>>,
    records: Records,
}

/// The single arrivals that are kept, whole requests at a time.
#[derive(Debug, Default)]
struct Records {
    by_request: HashMap<u64, Vec<Record>>,
    /// Requests by their first arrival, for giving up the oldest first.
    order: VecDeque<u64>,
    kept: usize,
    limit: usize,
    next_foreign: u64,
}

/// Foreign arrivals are kept under numbers that no request of ours reaches.
const FOREIGN: u64 = 1 << 63;

impl Counts {
    /// Nothing counted. `records` single arrivals are kept.
    pub fn new(records: usize) -> Arc<Self> {
        let ledger = Ledger {
            records: Records {
                limit: records,
                ..Records::default()
            },
            ..Ledger::default()
        };
        Arc::new(Self {
            ledger: Mutex::new(ledger),
            rejected_by_transport: AtomicU64::new(0),
            server_spans: AtomicU64::new(0),
            client_spans: AtomicU64::new(0),
            internal_spans: AtomicU64::new(0),
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A panic elsewhere must not lose what was counted: every update below leaves the totals whole.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an arrival, at its start. What is returned counts the end; dropped unfinished, it counts `dropped`.
    pub fn arrive(self: &Arc<Self>, method: &str, context: &Context, generation: u64) -> Arrived {
        let start_us = monotonic_us();
        let mut ledger = self.ledger();
        let ledger = &mut *ledger;
        ledger.totals.received += 1;
        ledger.totals.in_flight += 1;
        ledger.totals.foreign += u64::from(context.path.is_none());
        ledger.totals.late += u64::from(context.request_deadline_us.is_some_and(|deadline| start_us > deadline));
        let method = method_name(&mut ledger.methods, method);
        let attempt = context.attempt.min(MAX_ATTEMPT);
        let record = Record {
            request: context.path.as_ref().map_or(0, |path| path.request),
            path: context
                .path
                .as_ref()
                .map(crate::call::AttemptPath::attempts_text)
                .unwrap_or_default(),
            attempt: context.attempt,
            start_us,
            end: None,
            generation,
        };
        let place = ledger.records.keep(record, &mut ledger.totals);
        Arrived {
            counts: Arc::clone(self),
            method,
            attempt,
            generation,
            start_us,
            place,
            open: true,
        }
    }

    /// Changes what was counted on the link to `callee`.
    pub fn on_link(&self, callee: &str, change: impl FnOnce(&mut LinkCounts)) {
        let mut ledger = self.ledger();
        if !ledger.totals.links.contains_key(callee) {
            ledger.totals.links.insert(callee.to_owned(), LinkCounts::default());
        }
        if let Some(link) = ledger.totals.links.get_mut(callee) {
            change(link);
        }
    }

    /// Counts a connection that the HTTP/2 library ended by itself.
    pub fn rejected(&self) {
        self.rejected_by_transport.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections that the HTTP/2 library ended by itself.
    pub fn rejected_by_transport(&self) -> u64 {
        self.rejected_by_transport.load(Ordering::Relaxed)
    }

    /// Counts a span of this kind.
    pub fn span_made(&self, kind: SpanKind) {
        self.spans(kind).fetch_add(1, Ordering::Relaxed);
    }

    /// Spans of this kind made so far.
    pub fn spans_made(&self, kind: SpanKind) -> u64 {
        self.spans(kind).load(Ordering::Relaxed)
    }

    fn spans(&self, kind: SpanKind) -> &AtomicU64 {
        match kind {
            SpanKind::Server => &self.server_spans,
            SpanKind::Client => &self.client_spans,
            SpanKind::Internal => &self.internal_spans,
        }
    }

    /// A copy of all totals.
    pub fn totals(&self) -> Totals {
        self.ledger().totals.clone()
    }

    /// A copy of the records still kept, oldest request first.
    pub fn records(&self) -> Vec<Record> {
        let ledger = self.ledger();
        let mut requests: Vec<_> = ledger.records.by_request.iter().collect();
        requests.sort_by_key(|(request, _)| **request);
        requests
            .into_iter()
            .flat_map(|(_, records)| records.iter().cloned())
            .collect()
    }
}

/// The kinds of spans made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// An arrival.
    Server,
    /// An attempt.
    Client,
    /// A call.
    Internal,
}

fn method_name(known: &mut Vec<Arc<str>>, method: &str) -> Arc<str> {
    if let Some(known) = known.iter().find(|known| known.as_ref() == method) {
        return Arc::clone(known);
    }
    let name: Arc<str> = if known.len() < MAX_METHODS {
        method.into()
    } else {
        "other".into()
    };
    if !known.contains(&name) {
        known.push(Arc::clone(&name));
    }
    name
}

/// An arrival that was counted and has not ended.
#[derive(Debug)]
pub struct Arrived {
    counts: Arc<Counts>,
    method: Arc<str>,
    attempt: u32,
    generation: u64,
    start_us: u64,
    place: Option<Place>,
    open: bool,
}

/// Where a record is kept.
#[derive(Debug, Clone, Copy)]
struct Place {
    request: u64,
    index: usize,
}

impl Arrived {
    /// Counts the end.
    pub fn end(mut self, outcome: Outcome, work_done: bool) {
        self.close(outcome, work_done);
    }

    fn close(&mut self, outcome: Outcome, work_done: bool) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let duration_us = monotonic_us().saturating_sub(self.start_us);
        let mut ledger = self.counts.ledger();
        ledger.totals.in_flight -= 1;
        ledger.totals.work_done += u64::from(work_done);
        let method = Arc::clone(&self.method);
        let key = ArrivalKey {
            method,
            attempt: self.attempt,
            generation: self.generation,
            outcome,
        };
        *ledger.totals.arrivals.entry(key).or_default() += 1;
        if let Some(place) = self.place
            && let Some(records) = ledger.records.by_request.get_mut(&place.request)
            && let Some(record) = records.get_mut(place.index)
        {
            record.end = Some((duration_us, outcome));
        }
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        self.close(Outcome::Dropped, false);
    }
}

impl Records {
    /// Keeps a record, giving up the oldest request when the store is full. `None` when this one is not kept: its request has
    /// been given up before, or there is no room at all.
    fn keep(&mut self, record: Record, totals: &mut Totals) -> Option<Place> {
        let request = if record.request == 0 {
            self.next_foreign += 1;
            FOREIGN | self.next_foreign
        } else {
            record.request
        };
        let is_new = !self.by_request.contains_key(&request);
        // Requests number upwards. One at or below the mark may be a request whose earlier arrivals are gone: half a request
        // is never kept.
        if self.limit == 0 || (is_new && request < FOREIGN && request <= totals.given_up_through) {
            totals.records_lost += 1;
            totals.given_up_through = totals.given_up_through.max(record.request);
            return None;
        }
        while self.kept >= self.limit {
            let Some(oldest) = self.order.pop_front() else { break };
            let lost = self.by_request.remove(&oldest).map_or(0, |records| records.len());
            self.kept -= lost;
            totals.records_lost += lost as u64;
            if oldest < FOREIGN {
                totals.given_up_through = totals.given_up_through.max(oldest);
            }
        }
        if !self.by_request.contains_key(&request) {
            if request < FOREIGN && request <= totals.given_up_through {
                totals.records_lost += 1;
                return None;
            }
            self.order.push_back(request);
        }
        let records = self.by_request.entry(request).or_default();
        records.push(record);
        self.kept += 1;
        Some(Place {
            request,
            index: records.len() - 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::AttemptPath;

    fn context(request: u64, attempt: u32) -> Context {
        let path = Some(AttemptPath::root(request).then(attempt));
        Context {
            path,
            attempt,
            deadline: None,
            request_deadline_us: None,
        }
    }

    #[test]
    fn an_arrival_counts_when_it_starts_and_its_outcome_when_it_ends() {
        let counts = Counts::new(10);
        let arrived = counts.arrive("shop.v1.Inventory/GetStock", &context(1, 2), 1);
        assert_eq!((counts.totals().received, counts.totals().in_flight), (1, 1));
        arrived.end(Outcome::Answered(Code::Unavailable.into()), false);
        let totals = counts.totals();
        assert_eq!((totals.received, totals.in_flight, totals.work_done), (1, 0, 0));
        let (key, count) = totals.arrivals.first_key_value().unwrap();
        assert_eq!((key.attempt, key.outcome.name(), *count), (2, "UNAVAILABLE", 1));
    }

    #[test]
    fn an_arrival_that_nobody_finishes_is_dropped_once() {
        let counts = Counts::new(10);
        drop(counts.arrive("m", &context(1, 1), 1));
        let totals = counts.totals();
        assert_eq!(totals.in_flight, 0);
        assert_eq!(
            totals.arrivals.keys().map(|key| key.outcome.name()).collect::<Vec<_>>(),
            ["dropped"]
        );
    }

    #[test]
    fn an_overflow_gives_up_whole_requests_and_no_total() {
        let counts = Counts::new(4);
        for request in 1..=4 {
            for attempt in 1..=2 {
                counts
                    .arrive("m", &context(request, attempt), 1)
                    .end(Outcome::Expired, false);
            }
        }
        // A late arrival of a request that is gone must not come back as half a request.
        counts.arrive("m", &context(1, 3), 1).end(Outcome::Expired, false);
        let totals = counts.totals();
        assert_eq!(
            (totals.received, totals.records_lost, totals.given_up_through),
            (9, 5, 2)
        );
        let kept: Vec<_> = counts
            .records()
            .iter()
            .map(|record| (record.request, record.attempt))
            .collect();
        assert_eq!(kept, [(3, 1), (3, 2), (4, 1), (4, 2)]);
    }

    #[test]
    fn invented_methods_fill_one_row() {
        let counts = Counts::new(0);
        for number in 0..1_000 {
            counts
                .arrive(&format!("m{number}"), &context(1, 1), 1)
                .end(Outcome::Expired, false);
        }
        let totals = counts.totals();
        assert_eq!(totals.received, 1_000);
        assert!(totals.arrivals.len() <= MAX_METHODS + 1, "{}", totals.arrivals.len());
    }
}
