//! What a handler takes from its request and hands to the next: which request, which attempt path, which deadline. Only what
//! stands here travels; all metadata on the wire is written fresh for each attempt.

use crate::{
    config::{Config, Layer, MAX_CALLS, PassedOn},
    settings::Generation,
    telemetry,
};
use http::{HeaderMap, HeaderValue};
use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::time::Instant;

/// Earlier attempts of the same call (gRFC A6); absent on the first.
pub const PREVIOUS_ATTEMPTS: &str = "grpc-previous-rpc-attempts";
/// When the callee wants to be asked again, in milliseconds (gRFC A6); the one name here that an answer carries.
pub const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// Time that is left, as gRPC writes it.
pub const TIMEOUT: &str = "grpc-timeout";
/// Request number, then the attempt at each layer: `17:1.3.2`. Where a layer made several calls of one arrival, each after the
/// first says which: `17:1.3.2-1` is the first attempt of its second call.
pub const ATTEMPT_PATH: &str = "retryscope-attempt-path";
/// The attempt of the Envoy right above, from 1; it passes everything else through unchanged.
pub const ENVOY_ATTEMPT: &str = "x-envoy-attempt-count";
/// The request's absolute deadline in microseconds of the machine's monotonic clock. Evidence only; nobody acts on it.
pub const DEADLINE: &str = "retryscope-deadline";

/// From here on request numbers are those of strangers, who brought none: the first service they came to gave it.
/// All of them are below 2^53, so that a viewer in a browser shows them unrounded.
pub const FOREIGN: u64 = 1 << 52;

/// Whether a request of ours or a stranger's may have this number. What lies just below the strangers' is nobody's: one such
/// arrival would leave no number for anybody else.
fn is_a_number(request: u64) -> bool {
    (1..FOREIGN / 2).contains(&request) || (FOREIGN..FOREIGN * 2).contains(&request)
}

/// Most layers a path may name; longer ones are foreign.
const MAX_LAYERS: usize = 64;

/// Which request this is, and the attempt at each layer above, the client's first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttemptPath {
    /// The request's number, from 1.
    pub request: u64,
    /// What each layer did.
    pub attempts: Vec<Step>,
}

/// One layer's part of a path. Written as the attempt alone for the first call, as `call-attempt` for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// Which of the calls that one arrival caused, from 1.
    pub call: u32,
    /// Which attempt of that call, from 1.
    pub attempt: u32,
}

impl Step {
    /// The two as one number, as draws use it: `(call - 1) * 2^32 + attempt`, so that the first call's is the attempt alone.
    pub fn number(self) -> u64 {
        (u64::from(self.call.saturating_sub(1)) << 32) | u64::from(self.attempt)
    }

    /// Reads one part of a path. What the first call's attempts are called is written in one way only.
    fn read(text: &str) -> Option<Self> {
        let (call, attempt) = match text.split_once('-') {
            None => (1, text),
            Some((call, attempt)) => (
                call.parse().ok().filter(|call| (2..=MAX_CALLS).contains(call))?,
                attempt,
            ),
        };
        Some(Self {
            call,
            attempt: attempt.parse().ok()?,
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.call > 1 {
            write!(f, "{}-", self.call)?;
        }
        self.attempt.fmt(f)
    }
}

impl AttemptPath {
    /// The path of a request before any attempt.
    pub fn root(request: u64) -> Self {
        Self {
            request,
            attempts: Vec::new(),
        }
    }

    /// The path of this layer's attempt number `attempt` of its first call.
    #[must_use]
    pub fn then(&self, attempt: u32) -> Self {
        self.then_of(1, attempt)
    }

    /// The path of this layer's attempt number `attempt` of its call number `call`.
    #[must_use]
    pub fn then_of(&self, call: u32, attempt: u32) -> Self {
        let mut attempts = Vec::with_capacity(self.attempts.len() + 1);
        attempts.extend_from_slice(&self.attempts);
        attempts.push(Step { call, attempt });
        Self {
            request: self.request,
            attempts,
        }
    }

    /// Reads [`ATTEMPT_PATH`]; `None` for anything that is not one of ours.
    pub fn read(text: &str) -> Option<Self> {
        let (request, attempts) = text.split_once(':')?;
        let attempts: Vec<Step> = attempts.split('.').map(Step::read).collect::<Option<_>>()?;
        (attempts.len() <= MAX_LAYERS).then_some(Self {
            request: request.parse().ok().filter(|number| is_a_number(*number))?,
            attempts,
        })
    }

    /// The attempts alone: `1.3.2`.
    pub fn attempts_text(&self) -> String {
        let mut text = String::with_capacity(2 * self.attempts.len());
        // A string takes whatever is written to it.
        let _ = self.write_attempts(&mut text);
        text
    }

    fn write_attempts(&self, to: &mut impl fmt::Write) -> fmt::Result {
        for (place, attempt) in self.attempts.iter().enumerate() {
            let separator = if place > 0 { "." } else { "" };
            write!(to, "{separator}{attempt}")?;
        }
        Ok(())
    }
}

impl fmt::Display for AttemptPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.request)?;
        self.write_attempts(f)
    }
}

/// What came in, as the layers around a handler leave it in the request's extensions.
#[derive(Debug, Clone)]
pub struct Context {
    /// `None` for a caller that sends no path (grpcurl): its arrival is its own request.
    pub path: Option<AttemptPath>,
    /// `grpc-previous-rpc-attempts` + 1.
    pub attempt: u32,
    /// Which of the calls that its arrival causes this goes out with, from 1.
    pub call: u32,
    /// [`ENVOY_ATTEMPT`]; 0 where it was not there.
    pub envoy_attempt: u32,
    /// When it came, by this process's clock.
    pub arrived: Instant,
    /// When this call must be over, by this process's clock.
    pub deadline: Option<Instant>,
    /// The request's absolute deadline, passed on unchanged as evidence.
    pub request_deadline_us: Option<u64>,
    /// The settings in force when it came: all that it causes in this process goes by them.
    pub generation: Arc<Generation>,
    /// Which trace a request of ours became, for whoever started it.
    pub trace: TraceSlot,
    /// The span that the next one is part of. Handed on here and not by entering it: a span that is entered at every turn of
    /// its work costs more than the work.
    pub span: tracing::Span,
}

/// Where the trace id of a call is noted, for whoever holds a clone of the slot. Empty ones note nothing.
#[derive(Debug, Clone, Default)]
pub struct TraceSlot(Option<Arc<OnceLock<u128>>>);

impl TraceSlot {
    /// A slot that notes.
    pub fn open() -> Self {
        Self(Some(Arc::default()))
    }

    /// Notes the trace of a span, the first time.
    pub fn note(&self, span: &tracing::Span) {
        if let Some(slot) = &self.0 {
            let _ = slot.set(telemetry::trace_id(span));
        }
    }

    /// What was noted; `None` where no span was made.
    pub fn id(&self) -> Option<u128> {
        self.0.as_ref()?.get().copied().filter(|id| *id != 0)
    }
}

impl Context {
    /// What the client starts a request with.
    pub fn root(request: u64, deadline: Option<Duration>, generation: Arc<Generation>) -> Self {
        Self {
            generation,
            trace: TraceSlot::open(),
            span: tracing::Span::none(),
            path: Some(AttemptPath::root(request)),
            attempt: 1,
            call: 1,
            envoy_attempt: 0,
            arrived: Instant::now(),
            deadline: deadline.map(|left| Instant::now() + left),
            request_deadline_us: deadline.map(|left| monotonic_us() + micros(left)),
        }
    }

    /// What an arrival's metadata says. The deadline starts to run here.
    pub fn read(headers: &HeaderMap, generation: Arc<Generation>) -> Self {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let number = |name| text(name).and_then(|value| value.parse::<u32>().ok()).unwrap_or(0);
        let previous = number(PREVIOUS_ATTEMPTS);
        let left = text(TIMEOUT).and_then(parse_timeout);
        let arrived = Instant::now();
        Self {
            path: text(ATTEMPT_PATH).and_then(AttemptPath::read),
            attempt: previous.saturating_add(1),
            call: 1,
            envoy_attempt: number(ENVOY_ATTEMPT),
            arrived,
            deadline: left.and_then(|left| arrived.checked_add(left)),
            request_deadline_us: text(DEADLINE).and_then(|value| value.parse().ok()),
            generation,
            trace: TraceSlot::default(),
            span: tracing::Span::none(),
        }
    }

    /// What a call starts with that nobody gave a context: one attempt, nothing known.
    pub fn nobodys() -> Self {
        Self::unread(Generation::first(Config::named("nobody")))
    }

    /// Of an arrival at which nobody looks: whatever its metadata says, nothing here acts on it.
    pub fn unread(generation: Arc<Generation>) -> Self {
        Self::read(&HeaderMap::new(), generation)
    }

    /// The request's number; 0 for none.
    pub fn request(&self) -> u64 {
        self.path.as_ref().map_or(0, |path| path.request)
    }

    /// A request to the next service, with a fresh head: this context rides along as an extension, nothing else does, and of
    /// its time what the configuration passes on. The request's own deadline, as evidence, is never changed.
    pub fn next<M>(&self, message: M) -> tonic::Request<M> {
        let mut request = tonic::Request::new(message);
        request.extensions_mut().insert(Self {
            deadline: self.passed_on(),
            ..self.clone()
        });
        request
    }

    /// Makes a request that arrived one that goes on to the next: everything that is not ours stays as it came. A proxy is no
    /// caller of its own in gRPC's sense, and leaves the counts of earlier attempts alone.
    pub fn pass_on(request: &mut crate::Request) {
        let Some(context) = request.extensions_mut().get_mut::<Self>() else {
            return;
        };
        let given = context.deadline;
        context.deadline = context.passed_on();
        let is_dropped = given.is_some() && context.deadline.is_none();
        let is_service = context.generation.config.layer == Layer::Service;
        let headers = request.headers_mut();
        if is_dropped {
            headers.remove(TIMEOUT);
        }
        if is_service {
            headers.remove(PREVIOUS_ATTEMPTS);
            headers.remove(ENVOY_ATTEMPT);
        }
    }

    /// When the calls that this arrival causes must be over.
    fn passed_on(&self) -> Option<Instant> {
        match self.generation.config.deadline {
            PassedOn::Pass => self.deadline,
            PassedOn::Drop => None,
            PassedOn::AtMost(most) => {
                let own = self.arrived.checked_add(most);
                own.into_iter().chain(self.deadline).min()
            }
        }
    }

    /// The context of the request a handler was called with.
    pub fn of<M>(request: &tonic::Request<M>) -> Self {
        request
            .extensions()
            .get::<Self>()
            .cloned()
            .unwrap_or_else(Self::nobodys)
    }

    /// Whether the deadline has passed.
    pub fn is_spent(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Microseconds of the machine's monotonic clock: the same clock in every process.
pub fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000
}

/// Whole microseconds of a duration.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Most digits of a `grpc-timeout` (gRPC over HTTP/2), and the largest number they write.
const MAX_TIMEOUT_DIGITS: usize = 8;
const MAX_TIMEOUT_COUNT: u128 = 99_999_999;

/// Writes a `grpc-timeout`: the finest unit that fits, rounded down so that no hop is given more than is left.
pub fn format_timeout(left: Duration) -> String {
    for (unit, letter) in [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S')] {
        let count = left.as_nanos() / unit;
        if count <= MAX_TIMEOUT_COUNT {
            return format!("{count}{letter}");
        }
    }
    format!("{MAX_TIMEOUT_COUNT}S")
}

/// Reads a `grpc-timeout`; `None` for what is none.
pub fn parse_timeout(text: &str) -> Option<Duration> {
    let digits = text.get(..text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > MAX_TIMEOUT_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match text.as_bytes().last()? {
        b'n' => Some(Duration::from_nanos(count)),
        b'u' => Some(Duration::from_micros(count)),
        b'm' => Some(Duration::from_millis(count)),
        b'S' => Some(Duration::from_secs(count)),
        b'M' => Some(Duration::from_secs(count * 60)),
        b'H' => Some(Duration::from_secs(count * 3600)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_written_and_anything_else_is_foreign() {
        let path = AttemptPath::root(17).then(1).then(3).then(2);
        assert_eq!(path.to_string(), "17:1.3.2");
        assert_eq!(AttemptPath::read("17:1.3.2"), Some(path));
        let second_call = AttemptPath::root(17).then(1).then_of(2, 3).then(1);
        assert_eq!(second_call.to_string(), "17:1.2-3.1");
        assert_eq!(AttemptPath::read("17:1.2-3.1"), Some(second_call));
        for foreign in [
            "",
            "17",
            "17:",
            "x:1",
            "17:1..2",
            "17:-1",
            "17:1-1",
            "17:0-1",
            "17:2-",
            "17:2-1-1",
            "17:101-1",
            "0:1",
            "2251799813685248:1",
            "18446744073709551615:1",
            &format!("1:{}1", "1.".repeat(64)),
        ] {
            assert_eq!(AttemptPath::read(foreign), None, "{foreign}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_passed_on_is_what_the_configuration_says() {
        let (second, ten) = (Duration::from_secs(1), Duration::from_secs(10));
        // What is left for the call, three seconds after the arrival that causes it.
        let left = async |deadline, given| {
            let config = Config {
                deadline,
                ..Config::named("pricing")
            };
            let context = Context::root(1, given, Generation::first(config));
            tokio::time::advance(3 * second).await;
            let next = Context::of(&context.next(()));
            assert_eq!(next.request_deadline_us, context.request_deadline_us);
            next.deadline.map(|deadline| deadline - Instant::now())
        };
        assert_eq!(left(PassedOn::Pass, Some(ten)).await, Some(7 * second));
        assert_eq!(left(PassedOn::Pass, None).await, None);
        assert_eq!(left(PassedOn::Drop, Some(ten)).await, None);
        assert_eq!(left(PassedOn::AtMost(5 * second), Some(ten)).await, Some(2 * second));
        assert_eq!(left(PassedOn::AtMost(5 * second), None).await, Some(2 * second));
        assert_eq!(left(PassedOn::AtMost(20 * second), Some(ten)).await, Some(7 * second));
    }

    #[test]
    fn a_timeout_takes_the_finest_unit_and_never_grows() {
        for (left, text) in [
            (Duration::from_nanos(7), "7n"),
            (Duration::from_millis(99), "99000000n"),
            (Duration::from_secs(10), "10000000u"),
            (Duration::from_secs(86_400), "86400000m"),
        ] {
            assert_eq!(format_timeout(left), text);
            assert_eq!(parse_timeout(text), Some(left));
        }
        assert_eq!(format_timeout(Duration::from_nanos(100_000_900)), "100000u");
        for wrong in ["", "S", "1", "123456789S", "1x", "-1S", "1 S", "\u{e9}S"] {
            assert_eq!(parse_timeout(wrong), None, "{wrong}");
        }
    }
}
