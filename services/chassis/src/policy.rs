//! The retry policy of one caller: what may be set, how it is written, how long a back-off waits. Pure.

use crate::code::{self, Code};
use std::{fmt, str::FromStr, time::Duration};
use thiserror::Error;

/// Most attempts a policy may give one call.
pub const MAX_ATTEMPTS: u32 = 100;

/// When a caller tries again. The names follow gRFC A6.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Most attempts of one call, the first included: 1 to [`MAX_ATTEMPTS`].
    pub attempts: u32,
    /// Which failures are tried again.
    pub retry_on: RetryOn,
    /// Whether an attempt whose connection or stream failed is tried again like the code it stands for; otherwise answers
    /// alone are. (Envoy's words `connect-failure` and `reset`.)
    pub connect_failure: bool,
    /// The wait before a retry; `None` retries at once.
    pub backoff: Option<Backoff>,
    /// Limit of one attempt; when it expires the attempt has failed with `DEADLINE_EXCEEDED`.
    pub attempt_timeout: Option<Duration>,
    /// From where on an answer cannot be tried again.
    pub commit: Commit,
    /// Whether `grpc-retry-pushback-ms` is obeyed.
    pub pushback: bool,
    /// Retry tokens that failures take and successes give (gRFC A6).
    pub throttle: Option<Throttle>,
    /// A share of the traffic that retries may make.
    pub budget: Option<Budget>,
    /// Sends the next attempt after this wait without waiting for a failure; never together with `backoff`.
    pub hedge: Option<Duration>,
    /// Whether calls that themselves arrived as a retry are not tried again.
    pub only_first_tries: bool,
}

/// From where on an answer cannot be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Commit {
    /// From its headers on, when they are HTTP 200 and carry no `grpc-status` (gRFC A6, Envoy).
    #[default]
    Headers,
    /// From its second message on (Linkerd; like a loop around a stub): one message is held back, so that failing trailers
    /// right behind it can still be tried again.
    Message,
}

/// gRPC's `retryThrottling`, in thousandths of a token: a failure takes one token, a success gives `token_ratio`, and there
/// are retries only while more than half are left. One bucket for each caller process and link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// Thousandths of `max_tokens`; 1 to 1,000 tokens.
    pub max_milli: u32,
    /// Thousandths of `token_ratio`; above 0.
    pub ratio_milli: u32,
}

/// A share of the traffic that retries may make. One for each caller process and link, exact in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// Envoy's: at most a share of the attempts in flight are retries at once. A retry counts from its decision, through its
    /// wait, until its attempt has ended.
    InFlight {
        /// Thousandths of a percent.
        percent_milli: u32,
        /// So many retries at once are always allowed.
        min_concurrency: u32,
    },
    /// Finagle's: a call deposits `ratio` before its first attempt, a retry costs exactly 1, and both are forgotten after `ttl`.
    Window {
        /// Thousandths of a retry for each call.
        ratio_milli: u32,
        /// So many retries a second are allowed besides, as a reserve of `min_per_second * ttl`.
        min_per_second: u32,
        /// How long deposits and withdrawals count.
        ttl: Duration,
    },
}

/// Which failures are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryOn {
    /// Every failure but the caller's own deadline: the broken policy that people write.
    Any,
    /// These codes, ascending, without OK, without repeats.
    Codes(Vec<Code>),
}

/// `min(initial * multiplier^(retry - 1), max)`, then the jitter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// Wait before the first retry.
    pub initial: Duration,
    /// Growth from one retry to the next; above 0.
    pub multiplier: f64,
    /// Longest wait before the jitter.
    pub max: Duration,
    /// How the wait is spread.
    pub jitter: Jitter,
}

/// How a wait is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Jitter {
    /// Not at all.
    None,
    /// Times a number from 0.8 to 1.2, after the cap (gRFC A6 as changed in August 2024).
    #[default]
    PlusMinus20,
    /// Times a number from 0 to 1 (Envoy's rule).
    Full,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 1,
            retry_on: RetryOn::default(),
            connect_failure: true,
            backoff: None,
            attempt_timeout: None,
            commit: Commit::default(),
            pushback: true,
            throttle: None,
            budget: None,
            hedge: None,
            only_first_tries: false,
        }
    }
}

impl Budget {
    /// Envoy's figures: 20 %, and three at once in any case.
    pub const IN_FLIGHT: Self = Self::InFlight {
        percent_milli: 20_000,
        min_concurrency: 3,
    };
    /// Finagle's figures: 20 %, and ten a second in any case, over ten seconds.
    pub const WINDOW: Self = Self::Window {
        ratio_milli: 200,
        min_per_second: 10,
        ttl: Duration::from_secs(10),
    };
}

impl Policy {
    /// Longest wait or limit that may be set.
    pub const LONGEST: Duration = Duration::from_secs(3600);

    /// Itself, when its parts go together.
    ///
    /// # Errors
    /// A hedge beside a back-off.
    pub fn checked(self) -> Result<Self, PolicyError> {
        if self.hedge.is_some() && self.backoff.is_some() {
            return Err(PolicyError::HedgeWithBackoff);
        }
        Ok(self)
    }
}

impl Default for RetryOn {
    fn default() -> Self {
        Self::Codes(vec![Code::Unavailable])
    }
}

impl Default for Backoff {
    /// A6's example figures: 100 ms, doubling, at most 1 s.
    fn default() -> Self {
        let (initial, max) = (Duration::from_millis(100), Duration::from_secs(1));
        Self {
            initial,
            multiplier: 2.0,
            max,
            jitter: Jitter::default(),
        }
    }
}

impl RetryOn {
    /// Whether a failure with this code may be tried again.
    pub fn contains(&self, code: Code) -> bool {
        match self {
            Self::Any => code != Code::Ok,
            Self::Codes(codes) => codes.contains(&code),
        }
    }
}

impl Backoff {
    /// The wait before retry `retry` (1 is the second attempt). `chance` is a number from 0 (included) to 1 (excluded).
    pub fn wait(&self, retry: u32, chance: f64) -> Duration {
        let grown = self.initial.as_secs_f64() * self.multiplier.powf(f64::from(retry.saturating_sub(1)));
        let capped = grown.min(self.max.as_secs_f64());
        let spread = match self.jitter {
            Jitter::None => 1.0,
            Jitter::PlusMinus20 => 0.8 + 0.4 * chance,
            Jitter::Full => chance,
        };
        Duration::from_secs_f64(capped * spread)
    }
}

/// Why a text is no policy part.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// Attempts out of range.
    #[error("attempts = {0}: write 1 to {MAX_ATTEMPTS}, the first attempt included")]
    Attempts(String),
    /// A code that is none.
    #[error(transparent)]
    Code(#[from] code::CodeError),
    /// An empty list of codes.
    #[error("retry_on is empty: name a status code, or set attempts = 1 to switch retries off")]
    NoCodes,
    /// Something about the back-off.
    #[error("backoff: {0}")]
    Backoff(String),
    /// A hedge beside a back-off.
    #[error("hedge and backoff exclude each other: a hedge does not wait for a failure (gRFC A6 has one or the other)")]
    HedgeWithBackoff,
    /// A part of the policy that cannot be read.
    #[error("{part}: {right}")]
    Part {
        /// Which.
        part: &'static str,
        /// What would be right.
        right: String,
    },
}

mod parts;

pub use parts::{fraction, thousandths};

/// Reads a number of attempts.
///
/// # Errors
/// Outside 1 to [`MAX_ATTEMPTS`].
pub fn parse_attempts(text: &str) -> Result<u32, PolicyError> {
    match text.trim().parse() {
        Ok(attempts) if (1..=MAX_ATTEMPTS).contains(&attempts) => Ok(attempts),
        _ => Err(PolicyError::Attempts(text.trim().to_owned())),
    }
}

impl FromStr for RetryOn {
    type Err = PolicyError;

    /// Reads `any` or codes with commas between them.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        if text.trim().eq_ignore_ascii_case("any") {
            return Ok(Self::Any);
        }
        let names = text.split(',').filter(|name| !name.trim().is_empty());
        let mut codes = names.map(code::parse_failure).collect::<Result<Vec<_>, _>>()?;
        if codes.is_empty() {
            return Err(PolicyError::NoCodes);
        }
        codes.sort_by_key(|code| *code as i32);
        codes.dedup();
        Ok(Self::Codes(codes))
    }
}

impl fmt::Display for RetryOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Codes(codes) => {
                f.write_str(&codes.iter().map(|code| code::name(*code)).collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl FromStr for Jitter {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text.trim() {
            "none" => Ok(Self::None),
            "plus_minus_20" => Ok(Self::PlusMinus20),
            "full" => Ok(Self::Full),
            other => Err(PolicyError::Backoff(format!(
                "jitter = {other}: write none, plus_minus_20 or full"
            ))),
        }
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::PlusMinus20 => "plus_minus_20",
            Self::Full => "full",
        })
    }
}

impl FromStr for Backoff {
    type Err = PolicyError;

    /// Reads `initial=25ms,multiplier=2,max=250ms,jitter=full`; keys left out keep their defaults.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut backoff = Self::default();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let wrong = |right: &str| PolicyError::Backoff(format!("{}: {right}", pair.trim()));
            let (key, value) = pair.split_once('=').ok_or_else(|| wrong("write key=value"))?;
            let duration =
                || humantime::parse_duration(value.trim()).map_err(|_| wrong("write a duration such as 25ms"));
            match key.trim() {
                "initial" => backoff.initial = duration()?,
                "max" => backoff.max = duration()?,
                "multiplier" => {
                    backoff.multiplier = value.trim().parse().map_err(|_| wrong("write a number above 0"))?;
                }
                "jitter" => backoff.jitter = value.parse()?,
                _ => return Err(wrong("the keys are initial, multiplier, max, jitter")),
            }
        }
        backoff.checked()
    }
}

impl Backoff {
    /// Itself, when its figures make sense.
    ///
    /// # Errors
    /// A multiplier that is not above 0 (or above 1,000), waits above [`Policy::LONGEST`], an `initial` of 0.
    pub fn checked(self) -> Result<Self, PolicyError> {
        let wrong = |text: &str| Err(PolicyError::Backoff(text.to_owned()));
        if !(self.multiplier > 0.0 && self.multiplier <= 1000.0) {
            return wrong("multiplier: write a number above 0, at most 1000");
        }
        if self.initial.is_zero() {
            return wrong("initial = 0: leave the whole back-off out to retry at once");
        }
        if self.initial > Policy::LONGEST || self.max > Policy::LONGEST {
            return wrong("a wait is at most 1h");
        }
        Ok(self)
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (initial, max) = (
            humantime::format_duration(self.initial),
            humantime::format_duration(self.max),
        );
        let text = format!(
            "initial={initial},multiplier={},max={max},jitter={}",
            self.multiplier, self.jitter
        );
        // `1m 30s` is read back without its blanks too.
        f.write_str(&text.replace(' ', ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff(jitter: Jitter) -> Backoff {
        let (initial, max) = (Duration::from_millis(25), Duration::from_millis(250));
        Backoff {
            initial,
            multiplier: 2.0,
            max,
            jitter,
        }
    }

    #[test]
    fn the_wait_doubles_up_to_its_cap() {
        let waits: Vec<_> = (1..=6)
            .map(|retry| backoff(Jitter::None).wait(retry, 0.9).as_millis())
            .collect();
        assert_eq!(waits, [25, 50, 100, 200, 250, 250]);
    }

    #[test]
    fn plus_minus_20_is_applied_after_the_cap() {
        assert_eq!(backoff(Jitter::PlusMinus20).wait(9, 0.0).as_millis(), 200);
        assert_eq!(backoff(Jitter::PlusMinus20).wait(9, 0.999_999).as_millis(), 299);
    }

    #[test]
    fn full_jitter_starts_at_nothing() {
        assert_eq!(backoff(Jitter::Full).wait(1, 0.0), Duration::ZERO);
        assert_eq!(backoff(Jitter::Full).wait(1, 0.5), Duration::from_micros(12_500));
    }

    #[test]
    fn attempts_count_the_first_one_and_end_at_100() {
        assert_eq!(parse_attempts("100"), Ok(100));
        for wrong in ["0", "101", "-1", "three", ""] {
            assert!(
                parse_attempts(wrong).unwrap_err().to_string().contains("attempts"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn codes_are_sorted_and_named_once() {
        let on: RetryOn = "unavailable, ABORTED,UNAVAILABLE".parse().unwrap();
        assert_eq!(on.to_string(), "ABORTED,UNAVAILABLE");
        assert_eq!("".parse::<RetryOn>(), Err(PolicyError::NoCodes));
        assert!("any".parse::<RetryOn>().unwrap().contains(Code::InvalidArgument));
    }
}
