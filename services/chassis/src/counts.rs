//! What one process counted: the arrivals, the attempts it sent, the spans it made. Totals are exact, and kept apart by the
//! settings that were in force on arrival and by who follows the request; the records of single arrivals sit in a bounded
//! store whose overflow touches no total.

mod records;
mod totals;

pub use records::Record;
pub use totals::{ArrivalKey, Spans, Totals};

use crate::{
    call::{AttemptPath, Context, FOREIGN, monotonic_us},
    code::{self, Code},
    connection::Connection,
};
use records::{Place, Records};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use thiserror::Error;

/// Everything one process counted. Shared by its layers, its accept loop and its control port.
#[derive(Debug)]
pub struct Counts {
    ledger: Mutex<Ledger>,
    rejected_by_transport: AtomicU64,
    /// The number of the next stranger's request.
    next_foreign: AtomicU64,
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
    /// Its connection or its stream was ended on this side: by a reset or GOAWAY that a fault asked for, or with its port.
    Cut,
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
            Self::Cut => "cut",
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
    /// Too few retry tokens are left.
    Throttle,
    /// The budget allows no more retries now.
    Budget,
    /// The callee asked for no retry.
    Pushback,
    /// The caller of this call left.
    Cancelled,
    /// The call itself had arrived as a retry.
    NotFirstTry,
}

impl Refusal {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Code => "code",
            Self::Committed => "committed",
            Self::Deadline => "deadline",
            Self::Throttle => "throttle",
            Self::Budget => "budget",
            Self::Pushback => "pushback",
            Self::Cancelled => "cancelled",
            Self::NotFirstTry => "not_first_try",
        }
    }
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

/// Most methods that are told apart, and the longest name, bytes; a stranger who invents method names fills one row, not the
/// memory.
const MAX_METHODS: usize = 1_000;
const MAX_METHOD: usize = 256;
/// What all others are counted under.
const OTHER: &str = "other";
/// Attempt numbers above the largest policy are a stranger's and share a row.
const MAX_ATTEMPT: u32 = crate::policy::MAX_ATTEMPTS + 1;
/// Most generations that are told apart; older ones share number 0 besides.
const MAX_GENERATIONS: usize = 1_024;
/// Most followers at once.
pub const MAX_FOLLOWERS: usize = 64;
/// Bits of a foreign request's number that count; those above tell this process from others.
const FOREIGN_COUNTER_BITS: u32 = 28;

#[derive(Debug, Default)]
struct Ledger {
    buckets: BTreeMap<Bucket, Totals>,
    /// Who follows what, each under a number of its own.
    followed: Vec<(u64, Range)>,
    /// How often somebody has begun to follow.
    follows: u64,
    /// Generations up to this one share number 0.
    merged_through: u64,
    methods: HashSet<Arc<str>>,
    records: Records,
    highest_request: u64,
}

/// What is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Bucket {
    generation: u64,
    /// Whose range it is in, by the number of the follow; 0 for nobody's.
    followed: u64,
}

/// Consecutive request numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl Range {
    /// Whether a request is one of them.
    pub fn contains(self, request: u64) -> bool {
        request >= self.first && request - self.first < self.count
    }

    fn overlaps(self, other: Self) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }
}

/// Why requests cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FollowError {
    /// A range without a number, or beyond the numbers there are.
    #[error("a range starts at 1 or above, has at least one number and ends below 2^52")]
    Empty,
    /// Somebody follows some of them already.
    #[error("some of these requests are followed already")]
    Taken,
    /// There are too many.
    #[error("{MAX_FOLLOWERS} others follow requests of their own; more are not served")]
    TooMany,
}

/// A copy of what was counted, of everything or of one range.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// By generation, the oldest first.
    pub generations: BTreeMap<u64, Totals>,
    /// Records given up.
    pub records_lost: u64,
    /// The highest request number of which a record was given up.
    pub given_up_through: u64,
}

impl Reading {
    /// All generations together.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        self.generations.values().for_each(|totals| sum += totals);
        sum
    }
}

impl Ledger {
    /// The counts that an event of this request under this generation belongs to.
    fn bucket(&mut self, generation: u64, request: u64) -> &mut Totals {
        let followed = self.follower_of(request);
        self.bucket_of(generation, followed)
    }

    /// Who follows this request now; 0 for nobody.
    fn follower_of(&self, request: u64) -> u64 {
        let found = self.followed.iter().find(|(_, range)| range.contains(request));
        found.map_or(0, |(number, _)| *number)
    }

    /// The counts of a follow, or of all others once it has ended.
    fn bucket_of(&mut self, generation: u64, followed: u64) -> &mut Totals {
        let is_followed = self.followed.iter().any(|(number, _)| *number == followed);
        let followed = if is_followed { followed } else { 0 };
        let named = |ledger: &Self| Bucket {
            generation: if generation <= ledger.merged_through {
                0
            } else {
                generation
            },
            followed,
        };
        if !self.buckets.contains_key(&named(self)) {
            self.make_room();
        }
        // Named after room was made: this very generation may have been put together with older ones.
        self.buckets.entry(named(self)).or_default()
    }

    /// Puts the oldest generation together with those before it when there are too many.
    fn make_room(&mut self) {
        let mut generations: Vec<_> = self.buckets.keys().map(|bucket| bucket.generation).collect();
        generations.dedup();
        generations.retain(|generation| *generation > 0);
        if generations.len() < MAX_GENERATIONS {
            return;
        }
        if let Some(oldest) = generations.first().copied() {
            self.merged_through = oldest;
            self.rename(|bucket| Bucket {
                generation: if bucket.generation <= oldest {
                    0
                } else {
                    bucket.generation
                },
                ..bucket
            });
        }
    }

    fn rename(&mut self, new_name: impl Fn(Bucket) -> Bucket) {
        for (bucket, totals) in std::mem::take(&mut self.buckets) {
            *self.buckets.entry(new_name(bucket)).or_default() += &totals;
        }
    }
}

impl Counts {
    /// Nothing counted. `records` single arrivals are kept.
    pub fn new(records: usize) -> Arc<Self> {
        let ledger = Ledger {
            records: Records::of(records),
            ..Ledger::default()
        };
        // Numbers of two processes must not meet further down, also after one was started anew.
        let process: u64 = (rand::random::<u32>() >> 8).into();
        Arc::new(Self {
            ledger: Mutex::new(ledger),
            rejected_by_transport: AtomicU64::new(0),
            next_foreign: AtomicU64::new(FOREIGN | process << FOREIGN_COUNTER_BITS),
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A panic elsewhere must not lose what was counted: every update below leaves the totals whole.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A path for a request that brought none: it is its own request, here and further down.
    pub fn foreign_path(&self, attempt: u32) -> AttemptPath {
        AttemptPath::root(self.next_foreign.fetch_add(1, Ordering::Relaxed)).then(attempt)
    }

    /// Counts an arrival, at its start. What is returned counts the end; dropped unfinished, it counts `dropped`.
    pub fn arrive(self: &Arc<Self>, method: &str, context: &Context) -> Arrived {
        let start_us = monotonic_us();
        let (request, generation) = (context.request(), context.generation.number);
        let mut ledger = self.ledger();
        let ledger = &mut *ledger;
        if request < FOREIGN {
            ledger.highest_request = ledger.highest_request.max(request);
        }
        let followed = ledger.follower_of(request);
        let totals = ledger.bucket_of(generation, followed);
        totals.received += 1;
        totals.in_flight += 1;
        totals.foreign += u64::from(request >= FOREIGN);
        totals.late += u64::from(context.request_deadline_us.is_some_and(|deadline| start_us > deadline));
        let method = method_name(&mut ledger.methods, method);
        let attempt = context.attempt.min(MAX_ATTEMPT);
        let record = Record {
            request,
            path: context
                .path
                .as_ref()
                .map(AttemptPath::attempts_text)
                .unwrap_or_default(),
            attempt: context.attempt,
            envoy_attempt: context.envoy_attempt,
            start_us,
            end: None,
            generation,
        };
        let place = ledger.records.keep(record);
        let arrival = Arrival {
            counts: Arc::clone(self),
            method,
            attempt,
            generation,
            followed,
            start_us,
            place,
            end: OnceLock::new(),
            work_done: AtomicBool::new(false),
        };
        Arrived {
            work: Work(Arc::new(arrival)),
            on: None,
        }
    }

    /// Changes what was counted on the link to `callee` for this request.
    pub fn on_link(&self, callee: &str, context: &Context, change: impl FnOnce(&mut LinkCounts)) {
        let mut ledger = self.ledger();
        let links = &mut ledger.bucket(context.generation.number, context.request()).links;
        if !links.contains_key(callee) {
            links.insert(callee.to_owned(), LinkCounts::default());
        }
        if let Some(link) = links.get_mut(callee) {
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

    /// Counts a span of this kind, made for this request.
    pub fn span_made(&self, kind: SpanKind, context: &Context) {
        let mut ledger = self.ledger();
        let spans = &mut ledger.bucket(context.generation.number, context.request()).spans;
        match kind {
            SpanKind::Server => spans.server += 1,
            SpanKind::Client => spans.client += 1,
            SpanKind::Internal => spans.internal += 1,
        }
    }

    /// A copy of everything, or of the requests followed from `first` on; `None` when nobody follows them.
    pub fn read(&self, first: Option<u64>) -> Option<Reading> {
        let ledger = self.ledger();
        let follow = match first {
            None => None,
            Some(first) => Some(ledger.followed.iter().find(|(_, range)| range.first == first)?.0),
        };
        let mut generations: BTreeMap<u64, Totals> = BTreeMap::new();
        for (bucket, totals) in &ledger.buckets {
            if follow.is_none_or(|follow| bucket.followed == follow) {
                *generations.entry(bucket.generation).or_default() += totals;
            }
        }
        Some(Reading {
            generations,
            records_lost: ledger.records.lost,
            given_up_through: ledger.records.given_up_through,
        })
    }

    /// The highest request number that has arrived, strangers' left aside; 0 for none.
    pub fn highest_request(&self) -> u64 {
        self.ledger().highest_request
    }

    /// A copy of all totals.
    pub fn totals(&self) -> Totals {
        self.read(None).unwrap_or_default().totals()
    }

    /// A copy of the records still kept of these requests (of all for `None`), lowest number first.
    pub fn records(&self, range: Option<Range>) -> Vec<Record> {
        let wanted = |request| range.is_none_or(|range| range.contains(request));
        self.ledger().records.of_requests(wanted)
    }

    /// Counts these requests apart until what is returned is dropped; then they count with all others.
    pub fn follow(self: &Arc<Self>, range: Range) -> Result<Followed, FollowError> {
        let ends_below = range.first.checked_add(range.count).is_some_and(|end| end <= FOREIGN);
        if range.first == 0 || range.count == 0 || !ends_below {
            return Err(FollowError::Empty);
        }
        let mut ledger = self.ledger();
        if ledger.followed.iter().any(|(_, other)| other.overlaps(range)) {
            return Err(FollowError::Taken);
        }
        if ledger.followed.len() >= MAX_FOLLOWERS {
            return Err(FollowError::TooMany);
        }
        ledger.follows += 1;
        let number = ledger.follows;
        ledger.followed.push((number, range));
        Ok(Followed {
            counts: Arc::clone(self),
            number,
        })
    }
}

/// Requests that are counted apart.
#[derive(Debug)]
pub struct Followed {
    counts: Arc<Counts>,
    number: u64,
}

impl Drop for Followed {
    fn drop(&mut self) {
        let mut ledger = self.counts.ledger();
        ledger.followed.retain(|(number, _)| *number != self.number);
        ledger.rename(|bucket| Bucket {
            followed: if bucket.followed == self.number {
                0
            } else {
                bucket.followed
            },
            ..bucket
        });
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

fn method_name(known: &mut HashSet<Arc<str>>, method: &str) -> Arc<str> {
    let is_room = known.len() < MAX_METHODS && method.len() <= MAX_METHOD;
    let name = if is_room || known.contains(method) {
        method
    } else {
        OTHER
    };
    if let Some(known) = known.get(name) {
        return Arc::clone(known);
    }
    let name: Arc<str> = name.into();
    known.insert(Arc::clone(&name));
    name
}

/// An arrival that was counted and has not ended. Dropped unfinished, it has lost its caller, or its connection was cut.
#[derive(Debug)]
pub struct Arrived {
    work: Work,
    on: Option<Connection>,
}

/// The work of an arrival. Its end is counted when all of it is over: work that goes on after its caller has left is in flight.
#[derive(Debug, Clone)]
pub struct Work(Arc<Arrival>);

#[derive(Debug)]
struct Arrival {
    counts: Arc<Counts>,
    method: Arc<str>,
    attempt: u32,
    generation: u64,
    /// Who followed it when it came: who begins later counts neither its start nor its end.
    followed: u64,
    start_us: u64,
    place: Option<Place>,
    /// When and how it ended for its caller.
    end: OnceLock<(u64, Outcome)>,
    work_done: AtomicBool,
}

impl Arrived {
    /// Names the connection it came on.
    #[must_use]
    pub fn on(mut self, connection: Option<Connection>) -> Self {
        self.on = connection;
        self
    }

    /// Ends it. Counted when its work is over too.
    pub fn end(self, outcome: Outcome, work_done: bool) {
        if work_done {
            self.work.done();
        }
        let _ = self.work.0.end.set((monotonic_us(), outcome));
    }

    /// Ends it without an answer: its caller left, or it was cut.
    pub fn left(self, work_done: bool) {
        let outcome = self.without_answer();
        self.end(outcome, work_done);
    }

    /// Its work, for whoever may go on with it.
    pub fn work(&self) -> Work {
        self.work.clone()
    }

    fn without_answer(&self) -> Outcome {
        if self.on.as_ref().is_some_and(Connection::is_cut) {
            Outcome::Cut
        } else {
            Outcome::Dropped
        }
    }
}

impl Work {
    /// Notes that it was done, once however often it is said.
    pub fn done(&self) {
        self.0.work_done.store(true, Ordering::Relaxed);
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        let outcome = self.without_answer();
        self.work.0.end.get_or_init(|| (monotonic_us(), outcome));
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let (end_us, outcome) = self.end.get().copied().unwrap_or((self.start_us, Outcome::Dropped));
        let mut ledger = self.counts.ledger();
        // Its bucket may have been put together with others meanwhile, its start with it.
        let totals = ledger.bucket_of(self.generation, self.followed);
        totals.in_flight -= 1;
        totals.work_done += u64::from(*self.work_done.get_mut());
        let key = ArrivalKey {
            method: Arc::clone(&self.method),
            attempt: self.attempt,
            outcome,
        };
        totals.ended(key, 1);
        if let Some(place) = self.place {
            ledger.records.end(place, end_us.saturating_sub(self.start_us), outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, connection::End, settings::Generation};

    fn context(request: u64, attempt: u32) -> Context {
        under(&Generation::first(Config::named("inventory")), request, attempt)
    }

    fn under(generation: &Arc<Generation>, request: u64, attempt: u32) -> Context {
        Context {
            path: Some(AttemptPath::root(request).then(attempt)),
            attempt,
            ..Context::root(request, None, Arc::clone(generation))
        }
    }

    /// Numbered settings that differ in nothing else.
    fn generations(count: u64) -> Vec<Arc<Generation>> {
        let live = crate::settings::Live::new(Config::named("inventory"));
        let mut generations = vec![live.now()];
        for number in 2..=count {
            live.switch(number, &BTreeMap::new()).unwrap();
            generations.push(live.now());
        }
        generations
    }

    #[test]
    fn an_arrival_counts_when_it_starts_and_its_outcome_when_it_ends() {
        let counts = Counts::new(10);
        let arrived = counts.arrive("shop.v1.Inventory/GetStock", &context(1, 2));
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
        drop(counts.arrive("m", &context(1, 1)));
        let totals = counts.totals();
        assert_eq!(totals.in_flight, 0);
        assert_eq!(
            totals.arrivals.keys().map(|key| key.outcome.name()).collect::<Vec<_>>(),
            ["dropped"]
        );
    }

    #[test]
    fn an_arrival_without_an_answer_was_cut_where_its_connection_was() {
        let counts = Counts::new(10);
        let (cut, lives) = (Connection::default(), Connection::default());
        let arrive = |on: &Connection| counts.arrive("m", &context(1, 1)).on(Some(on.clone()));
        let (first, second, third) = (arrive(&cut), arrive(&cut), arrive(&lives));
        cut.end(End::Reset);
        drop(first);
        second.left(false);
        drop(third);
        let outcomes: Vec<_> = (counts.totals().arrivals.iter())
            .map(|(key, count)| (key.outcome.name(), *count))
            .collect();
        assert_eq!(outcomes, [("dropped", 1), ("cut", 2)]);
    }

    #[test]
    fn work_that_goes_on_is_in_flight_and_is_done_once() {
        let counts = Counts::new(10);
        let arrived = counts.arrive("m", &context(1, 1));
        let work = arrived.work();
        drop(arrived);
        let read = || {
            let totals = counts.totals();
            (
                totals.in_flight,
                totals.work_done,
                totals.arrivals.values().sum::<u64>(),
            )
        };
        assert_eq!(read(), (1, 0, 0));
        work.done();
        work.done();
        drop(work);
        assert_eq!(read(), (0, 1, 1));
        let answered = counts.arrive("m", &context(1, 2));
        answered.work().done();
        answered.end(Outcome::Answered(Code::Ok.into()), true);
        assert_eq!(read(), (0, 2, 2));
    }

    #[test]
    fn an_overflow_gives_up_whole_requests_and_no_total() {
        let counts = Counts::new(4);
        for request in 1..=4 {
            for attempt in 1..=2 {
                counts
                    .arrive("m", &context(request, attempt))
                    .end(Outcome::Expired, false);
            }
        }
        // A late arrival of a request that is gone must not come back as half a request.
        counts.arrive("m", &context(1, 3)).end(Outcome::Expired, false);
        let reading = counts.read(None).unwrap();
        assert_eq!(
            (
                reading.totals().received,
                reading.records_lost,
                reading.given_up_through
            ),
            (9, 5, 2)
        );
        let kept: Vec<_> = counts
            .records(None)
            .iter()
            .map(|record| (record.request, record.attempt))
            .collect();
        assert_eq!(kept, [(3, 1), (3, 2), (4, 1), (4, 2)]);
    }

    #[test]
    fn invented_methods_fill_one_row() {
        let counts = Counts::new(0);
        let arrive = |method: &str| counts.arrive(method, &context(1, 1)).end(Outcome::Expired, false);
        // However long, and however many.
        arrive(&"m".repeat(MAX_METHOD + 1));
        for number in 0..2 * MAX_METHODS {
            arrive(&format!("m{number}"));
        }
        arrive("m0");
        let totals = counts.totals();
        let of = |name: &str| {
            totals
                .arrivals
                .iter()
                .find(|(key, _)| key.method.as_ref() == name)
                .map(|(_, count)| *count)
        };
        assert_eq!(totals.received, 2 * MAX_METHODS as u64 + 2);
        assert_eq!(totals.arrivals.values().sum::<u64>(), totals.received);
        assert_eq!((totals.arrivals.len(), of("m0")), (MAX_METHODS, Some(2)));
        assert_eq!(of(OTHER), Some(MAX_METHODS as u64 + 2));
    }

    #[test]
    fn methods_and_attempts_together_fill_so_many_rows_and_no_arrival_is_lost() {
        let counts = Counts::new(0);
        let (methods, attempts) = (150, 80);
        for method in 0..methods {
            for attempt in 1..=attempts {
                let arrived = counts.arrive(&format!("m{method}"), &context(1, attempt));
                arrived.end(Outcome::Expired, false);
            }
        }
        let totals = counts.totals();
        assert_eq!(totals.arrivals.values().sum::<u64>(), u64::from(methods * attempts));
        // The last one is for all that found no room.
        assert_eq!(totals.arrivals.len(), 10_001);
    }

    #[test]
    fn an_arrival_ends_under_the_settings_it_came_under() {
        let counts = Counts::new(10);
        let generations = generations(2);
        let early = counts.arrive("m", &under(&generations[0], 1, 1));
        counts
            .arrive("m", &under(&generations[1], 2, 1))
            .end(Outcome::Expired, false);
        let read = || counts.read(None).unwrap().generations;
        assert_eq!((read()[&1].in_flight, read()[&2].in_flight), (1, 0));
        early.end(Outcome::Expired, true);
        let read = read();
        assert_eq!(
            (read[&1].in_flight, read[&1].work_done, read[&1].arrivals.len()),
            (0, 1, 1)
        );
        assert_eq!((read[&2].received, read[&2].work_done), (1, 0));
    }

    #[test]
    fn a_thousand_switches_and_more_lose_no_arrival() {
        let counts = Counts::new(0);
        let generations = generations(MAX_GENERATIONS as u64 + 50);
        let longest = counts.arrive("m", &under(&generations[0], 1, 1));
        for generation in &generations {
            counts
                .arrive("m", &under(generation, 1, 1))
                .end(Outcome::Expired, false);
        }
        longest.end(Outcome::Expired, false);
        let reading = counts.read(None).unwrap();
        assert!(
            reading.generations.len() <= MAX_GENERATIONS + 1,
            "{}",
            reading.generations.len()
        );
        let totals = reading.totals();
        assert_eq!((totals.received, totals.in_flight), (generations.len() as u64 + 1, 0));
        assert!(reading.generations[&0].received > 1);
    }

    #[test]
    fn followed_requests_count_apart_and_with_all_others() {
        let counts = Counts::new(10);
        let range = Range { first: 5, count: 2 };
        let followed = counts.follow(range).unwrap();
        for request in 4..=7 {
            counts.arrive("m", &context(request, 1)).end(Outcome::Expired, false);
            counts.on_link("below", &context(request, 1), |link| link.sent += 1);
            counts.span_made(SpanKind::Server, &context(request, 1));
        }
        let open = counts.arrive("m", &context(6, 2));
        let apart = counts.read(Some(5)).unwrap().totals();
        assert_eq!(
            (
                apart.received,
                apart.in_flight,
                apart.links["below"].sent,
                apart.spans.server
            ),
            (3, 1, 2, 2)
        );
        assert_eq!(counts.totals().received, 5);
        assert_eq!(counts.records(Some(range)).len(), 3);
        drop(followed);
        assert!(counts.read(Some(5)).is_none());
        open.end(Outcome::Expired, false);
        let totals = counts.totals();
        assert_eq!(
            (totals.received, totals.in_flight, totals.links["below"].sent),
            (5, 0, 4)
        );
    }

    #[test]
    fn an_arrival_counts_its_end_where_it_counted_its_start() {
        let counts = Counts::new(10);
        let range = Range { first: 5, count: 1 };
        let before = counts.arrive("m", &context(5, 1));
        let first = counts.follow(range).unwrap();
        let during = counts.arrive("m", &context(5, 2));
        before.end(Outcome::Expired, false);
        assert_eq!(counts.read(Some(5)).unwrap().totals().in_flight, 1);
        drop(first);
        let _second = counts.follow(range).unwrap();
        during.end(Outcome::Expired, false);
        assert_eq!(counts.read(Some(5)).unwrap().totals().received, 0);
        let totals = counts.totals();
        assert_eq!((totals.received, totals.in_flight), (2, 0));
    }

    #[test]
    fn nobody_follows_what_another_does() {
        let counts = Counts::new(0);
        let range = |first, count| Range { first, count };
        let _first = counts.follow(range(10, 10)).unwrap();
        for taken in [range(10, 1), range(19, 5), range(1, 10), range(5, 100)] {
            assert_eq!(counts.follow(taken).unwrap_err(), FollowError::Taken, "{taken:?}");
        }
        for empty in [range(0, 1), range(1, 0), range(u64::MAX, 2), range(FOREIGN, 1)] {
            assert_eq!(counts.follow(empty).unwrap_err(), FollowError::Empty, "{empty:?}");
        }
        let others: Vec<_> = (0..MAX_FOLLOWERS as u64 - 1)
            .map(|number| counts.follow(range(100 + number, 1)).unwrap())
            .collect();
        assert_eq!(counts.follow(range(1, 1)).unwrap_err(), FollowError::TooMany);
        drop(others);
        assert!(counts.follow(range(1, 1)).is_ok());
    }

    #[test]
    fn a_stranger_is_one_request_all_the_way_down() {
        let counts = Counts::new(10);
        let mut stranger = context(0, 1);
        stranger.path = Some(counts.foreign_path(1));
        counts.arrive("m", &stranger).end(Outcome::Expired, false);
        counts.arrive("m", &context(3, 1)).end(Outcome::Expired, false);
        let reading = counts.read(None).unwrap();
        assert_eq!((reading.totals().foreign, counts.highest_request()), (1, 3));
        assert_ne!(counts.foreign_path(1).request, counts.foreign_path(1).request);
        assert_ne!(counts.foreign_path(1).request, Counts::new(0).foreign_path(1).request);
    }
}
