//! What a fault is: its grammar, its draw and its decision. Pure; `layers::fault`, `layers::client_fault` and `listen` obey it.
//!
//! The grammar is the same on the command line, in scenario files and in the environment: `KIND[:key=value,…]`, and
//! `delay:…+KIND:…` for a fault that comes late.

mod grammar;

pub use grammar::{FaultError, ServiceFault};

use crate::{
    call::{Context, Step},
    code::Code,
    seen::Seen,
};
use std::time::Duration;

/// How a service misbehaves: how late, and then how.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Fault {
    /// The wait before everything else.
    pub delay: Option<Delay>,
    /// What happens then.
    pub kind: Kind,
    /// Which arrivals `kind` happens to.
    pub when: When,
}

/// What happens to an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// The service works.
    #[default]
    None,
    /// It answers with a failure.
    Fail(Fail),
    /// It never answers.
    Hang,
    /// Its service port is closed: attempts are sent and never received.
    Refuse,
    /// It reads the request and resets.
    Reset(Reset),
    /// It reads the request, sends a GOAWAY that covers it and closes the connection without an answer.
    GoAway,
    /// It answers with a bare HTTP status, without `grpc-status`.
    Http {
        /// 200 to 599.
        status: u16,
    },
    /// It works on so many arrivals at once and refuses the rest.
    Overload {
        /// Most arrivals at once.
        capacity: u32,
        /// What the rest get.
        code: Code,
    },
}

/// The keys of `fail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fail {
    /// What it answers.
    pub code: Code,
    /// When in the course of an arrival it fails.
    pub at: At,
    /// `grpc-retry-pushback-ms` in the trailers: milliseconds; negative asks for no retry (gRFC A6).
    pub pushback_ms: Option<i32>,
}

/// When `fail` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum At {
    /// Before the work, as a trailers-only answer.
    #[default]
    Before,
    /// The work is done, then the answer is a failure. Work that fails by itself keeps its own status.
    After,
    /// Headers first, then failing trailers: the answer has begun, and the work was not done.
    Headers,
}

/// What `reset` resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// The whole connection, with everything else on it.
    Connection,
    /// This stream alone, with an HTTP/2 error code.
    Stream(h2::Reason),
}

/// A wait before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Delay {
    /// Milliseconds.
    pub ms: u64,
    /// Up to so many milliseconds more, drawn.
    pub jitter_ms: u64,
    /// Which arrivals wait.
    pub when: When,
}

/// Which arrivals something happens to: those within `first` whose draw is below `p`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct When {
    /// Only the first so many arrivals; `None` means every one.
    pub first: Option<u64>,
    /// Chance of each arrival, 0 to 1; `None` means certain.
    pub p: Option<f64>,
    /// What `first` counts over.
    pub scope: Scope,
}

/// What `first=N` counts over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// The arrivals of each request.
    #[default]
    Request,
    /// All arrivals of the process.
    Process,
}

/// A fault in a caller's outbound stack, as a mesh fault filter injects it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClientFault {
    /// A `fail` before the work, a `delay`, or both.
    pub fault: Fault,
    /// Inside the retry loop it meets every attempt, outside it every call.
    pub inside: bool,
}

impl Default for Fail {
    fn default() -> Self {
        Self {
            code: Code::Unavailable,
            at: At::Before,
            pushback_ms: None,
        }
    }
}

impl Fault {
    /// No fault.
    pub const NONE: Self = Self {
        delay: None,
        kind: Kind::None,
        when: When {
            first: None,
            p: None,
            scope: Scope::Request,
        },
    };

    /// A fault of this kind on every arrival.
    pub const fn of(kind: Kind) -> Self {
        Self { kind, ..Self::NONE }
    }

    /// The plain `fail`.
    pub fn down() -> Self {
        Self::of(Kind::Fail(Fail::default()))
    }

    /// Whether the service just works.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Whether the service port is closed.
    pub fn refuses(&self) -> bool {
        self.kind == Kind::Refuse
    }

    /// Whether no arrival gets past this fault to the work behind it.
    pub fn bars_work(&self) -> bool {
        let always = self.when.first.is_none() && self.when.p.is_none_or(|p| p >= 1.0);
        always
            && match self.kind {
                Kind::Fail(fail) => fail.at != At::After,
                Kind::Hang | Kind::Refuse | Kind::Reset(_) | Kind::GoAway | Kind::Http { .. } => true,
                Kind::Overload { capacity, .. } => capacity == 0,
                Kind::None => false,
            }
    }

    /// Whether it ends connections, with everything else that is on them.
    pub fn cuts_connections(&self) -> bool {
        matches!(self.kind, Kind::Reset(Reset::Connection) | Kind::GoAway)
    }

    /// Whether an arrival may never be answered.
    pub fn may_hang(&self) -> bool {
        self.kind == Kind::Hang && self.when.first != Some(0) && self.when.p != Some(0.0)
    }

    /// Whether any arrival's fate is drawn.
    pub fn is_drawn(&self) -> bool {
        self.whens().any(|when| when.p.is_some()) || self.delay.is_some_and(|delay| delay.jitter_ms > 0)
    }

    /// Whether arrivals of different requests share a count.
    pub fn is_shared(&self) -> bool {
        self.whens()
            .any(|when| when.first.is_some() && when.scope == Scope::Process)
            || matches!(self.kind, Kind::Overload { .. })
    }

    fn whens(&self) -> impl Iterator<Item = When> {
        std::iter::once(self.when).chain(self.delay.map(|delay| delay.when))
    }

    /// What has to be remembered of the arrivals: those of each request, and how often each path came.
    pub fn remembers(&self) -> (bool, bool) {
        (self.whens().any(|when| when.first.is_some()), self.is_drawn())
    }
}

/// What one arrival is to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// How long it waits first.
    pub delay: Duration,
    /// What happens then; [`Kind::None`] is the handler's own answer.
    pub then: Kind,
}

/// What a decision may depend on.
#[derive(Debug, Clone, Copy)]
pub struct Draw<'a> {
    /// The run's seed.
    pub seed: u64,
    /// The request's number.
    pub request: u64,
    /// The attempt at each layer above, the client's first, each as [`Step::number`](crate::call::Step::number) says.
    pub path: &'a [u64],
    /// How often this path of this request has come before.
    pub occurrence: u32,
}

/// How many arrivals came before one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Earlier {
    /// Of its request.
    pub in_request: u64,
    /// Of any request.
    pub in_process: u64,
}

/// Decides one arrival.
pub fn decide(fault: &Fault, earlier: Earlier, draw: Draw<'_>) -> Verdict {
    let delay = match fault.delay {
        Some(delay) if delay.when.meets(earlier, draw.share(Stream::DelayChance)) => {
            Duration::from_millis(delay.ms)
                + Duration::from_millis(delay.jitter_ms).mul_f64(draw.share(Stream::DelayJitter))
        }
        _ => Duration::ZERO,
    };
    let then = if fault.when.meets(earlier, draw.share(Stream::Chance)) {
        fault.kind
    } else {
        Kind::None
    };
    Verdict { delay, then }
}

/// Decides what happens to whoever comes with this context, and remembers that it came.
pub fn verdict(fault: &Fault, context: &Context, seen: &mut Seen) -> Verdict {
    verdict_at(fault, context, seen, None)
}

/// Likewise for a fault in a caller. Its place makes its draws others than those of the services on both sides.
pub fn verdict_in_caller(placed: &ClientFault, context: &Context, seen: &mut Seen) -> Verdict {
    let place = if placed.inside {
        Step {
            call: 1,
            attempt: INSIDE,
        }
    } else {
        Step {
            call: context.call,
            attempt: OUTSIDE,
        }
    };
    verdict_at(&placed.fault, context, seen, Some(place))
}

/// What stands behind the path in the draws of a fault inside a caller's loop: a number that no attempt has.
const INSIDE: u32 = u32::MAX;
/// Likewise outside the loop, where the call has no attempt yet that would say which call it is.
const OUTSIDE: u32 = u32::MAX - 1;

fn verdict_at(fault: &Fault, context: &Context, seen: &mut Seen, place: Option<Step>) -> Verdict {
    let (count_requests, count_paths) = fault.remembers();
    let steps = context.path.iter().flat_map(|path| &path.attempts).copied();
    let path: Vec<u64> = steps.chain(place).map(Step::number).collect();
    let arrival = context.path.as_ref().map(|arrived| (arrived.request, &path[..]));
    let before = seen.arrive(arrival, count_requests, count_paths);
    let request = arrival.map_or(before.in_process, |(request, _)| request);
    let draw = Draw {
        seed: context.generation.config.seed,
        request,
        path: &path,
        occurrence: before.occurrence,
    };
    let earlier = Earlier {
        in_request: before.in_request,
        in_process: before.in_process,
    };
    decide(fault, earlier, draw)
}

impl When {
    fn meets(&self, earlier: Earlier, share: f64) -> bool {
        let before = match self.scope {
            Scope::Request => earlier.in_request,
            Scope::Process => earlier.in_process,
        };
        self.first.is_none_or(|first| before < first) && self.p.is_none_or(|p| share < p)
    }
}

/// What a draw decides. Draws of the same arrival for different things know nothing of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Whether the kind happens.
    Chance,
    /// Whether the delay happens.
    DelayChance,
    /// How much of its jitter the delay gets.
    DelayJitter,
}

impl Draw<'_> {
    /// A number from 0 (included) to 1 (excluded), the same for the same draw on every machine.
    ///
    /// The rule, for whoever replays it with code of their own: start with `x = mix(seed)`; then for the request's number,
    /// for each attempt of the path from the client's down, and last for the occurrence, in this order,
    /// `x = mix(x XOR number)`; an attempt's number is the one in the path, and where it is written `call-attempt`,
    /// `(call - 1) * 2^32 + attempt` (a fault in a caller has one more number behind the path: 2^32 - 1 inside the loop,
    /// `(call - 1) * 2^32 + 2^32 - 2` outside); for the delay's chance once more with the number 1, for its jitter with 2; the
    /// draw is the upper 53 bits of `x` divided by 2^53. `mix` adds 0x9E3779B97F4A7C15 and applies the finalizer of
    /// `SplitMix64`, all in wrapping 64-bit arithmetic.
    pub fn share(&self, stream: Stream) -> f64 {
        let mut x = mix(self.seed);
        x = mix(x ^ self.request);
        for attempt in self.path {
            x = mix(x ^ attempt);
        }
        x = mix(x ^ u64::from(self.occurrence));
        x = match stream {
            Stream::Chance => x,
            Stream::DelayChance => mix(x ^ 1),
            Stream::DelayJitter => mix(x ^ 2),
        };
        (x >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// `SplitMix64`: one step and its finalizer.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, settings::Generation};

    fn draw(request: u64, path: &[u64]) -> Draw<'_> {
        Draw {
            seed: 27,
            request,
            path,
            occurrence: 0,
        }
    }

    fn earlier(in_request: u64) -> Earlier {
        Earlier {
            in_request,
            in_process: in_request,
        }
    }

    #[test]
    fn first_counts_the_arrivals_before() {
        let fault = "fail:first=2".parse().unwrap();
        let then = |before| decide(&fault, earlier(before), draw(1, &[1])).then;
        assert_eq!(then(1), Kind::Fail(Fail::default()));
        assert_eq!(then(2), Kind::None);
    }

    #[test]
    fn a_delay_and_what_follows_are_decided_apart() {
        let fault = "delay:ms=20,first=1+fail:first=2".parse().unwrap();
        let verdict = |before| decide(&fault, earlier(before), draw(1, &[1]));
        assert_eq!(verdict(0).delay.as_millis(), 20);
        assert_eq!(verdict(1).delay.as_millis(), 0);
        assert_eq!(verdict(1).then, Kind::Fail(Fail::default()));
    }

    #[test]
    fn jitter_only_adds() {
        let fault = "delay:ms=20,jitter=10".parse().unwrap();
        let waits: Vec<_> = (1..100)
            .map(|request| decide(&fault, earlier(0), draw(request, &[1])).delay)
            .collect();
        assert!(
            waits
                .iter()
                .all(|wait| (20.0..30.0).contains(&(wait.as_secs_f64() * 1e3)))
        );
        assert!(waits.iter().any(|wait| wait.as_millis() >= 28));
    }

    #[test]
    fn a_share_of_ten_thousand_draws_lies_in_its_exact_binomial_band() {
        // Outside the band of 0.3 an honest generator falls with a chance of 1e-9 (the exact binomial, both tails).
        for stream in [Stream::Chance, Stream::DelayChance, Stream::DelayJitter] {
            for (p, band) in [(0.0, 0..=0), (0.3, 2_723..=3_282), (1.0, 10_000..=10_000)] {
                let hits = (1..=10_000)
                    .filter(|request| draw(*request, &[1, 2, 3]).share(stream) < p)
                    .count();
                assert!(band.contains(&hits), "{hits} of 10,000 at {p}");
            }
        }
    }

    #[test]
    fn path_occurrence_and_stream_change_the_draw() {
        let bits = |draw: Draw<'_>| draw.share(Stream::Chance).to_bits();
        let one = bits(draw(7, &[1, 1]));
        assert_ne!(one, bits(draw(7, &[1, 2])));
        assert_ne!(one, bits(draw(8, &[1, 1])));
        assert_ne!(one, draw(7, &[1, 1]).share(Stream::DelayChance).to_bits());
        assert_ne!(
            one,
            bits(Draw {
                occurrence: 1,
                ..draw(7, &[1, 1])
            })
        );
    }

    #[test]
    fn calls_of_one_arrival_draw_the_same_in_any_order() {
        let placed: ClientFault = "outside:fail:p=0.5".parse().unwrap();
        let draws = |calls: &[u32]| {
            let generation = Generation::first(Config::named("pricing"));
            let mut seen = Seen::default();
            let drawn = calls.iter().map(|call| {
                let context = Context {
                    call: *call,
                    ..Context::root(1, None, generation.clone())
                };
                (*call, verdict_in_caller(&placed, &context, &mut seen).then)
            });
            drawn.collect::<std::collections::BTreeMap<_, _>>()
        };
        let in_order = draws(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(in_order, draws(&[8, 3, 6, 1, 7, 2, 5, 4]));
        assert!(in_order.values().any(|then| *then == Kind::None) && in_order.values().any(|then| *then != Kind::None));
    }
}
