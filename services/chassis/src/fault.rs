//! What a fault is: its grammar, its draw and its decision. Pure; `layers::fault` and `listen` obey it.
//!
//! The grammar is the same on the command line, in scenario files and in the environment: `KIND[:key=value,…]`.

use crate::code::{self, Code};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// How a service misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Fault {
    /// It works.
    #[default]
    None,
    /// It answers with a failure.
    Fail(Fail),
    /// Its service port is closed: attempts are sent and never received.
    Refuse,
}

/// The keys of `fail`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fail {
    /// What it answers.
    pub code: Code,
    /// Only the first so many arrivals fail; `None` means every one.
    pub first: Option<u64>,
    /// Chance of each arrival, 0 to 1; `None` means certain.
    pub p: Option<f64>,
    /// What `first` counts over.
    pub scope: Scope,
    /// When in the course of an arrival it fails.
    pub at: At,
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

/// When `fail` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum At {
    /// Before the work, as a trailers-only answer.
    #[default]
    Before,
    /// The work is done, then the answer is a failure. Work that fails by itself keeps its own status.
    After,
}

impl Default for Fail {
    fn default() -> Self {
        Self {
            code: Code::Unavailable,
            first: None,
            p: None,
            scope: Scope::Request,
            at: At::Before,
        }
    }
}

impl Fault {
    /// Whether an arrival's fate is drawn.
    pub fn is_drawn(&self) -> bool {
        matches!(self, Self::Fail(Fail { p: Some(_), .. }))
    }
}

/// Why a text is no fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FaultError {
    /// The kind is not known.
    #[error("`{0}` is not a fault; write none, down, refuse, fail, or fail with keys such as fail:first=2")]
    UnknownKind(String),
    /// The kind or key belongs to the plan and is not built.
    #[error(
        "`{0}` is not built yet; the faults built are none, fail (code, first, p, scope, at=before|after) and refuse"
    )]
    NotBuilt(String),
    /// The key is not known.
    #[error("`{key}` is not a key of the fault `{kind}` (its keys: {known})")]
    UnknownKey {
        /// The fault's kind.
        kind: &'static str,
        /// The key as read.
        key: String,
        /// The keys that exist.
        known: &'static str,
    },
    /// A key stands twice.
    #[error("the key `{0}` is given twice in one fault")]
    Twice(String),
    /// A pair without `=`.
    #[error("`{0}` in a fault is not key=value")]
    NotAPair(String),
    /// A value that the key cannot take.
    #[error("`{key}={value}` in a fault: {right}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value as read.
        value: String,
        /// What would be right.
        right: String,
    },
}

/// Kinds and keys the design names and this version refuses.
const PLANNED_KINDS: [&str; 6] = ["delay", "hang", "reset", "goaway", "http", "overload"];
const FAIL_KEYS: &str = "code, first, p, scope, at";

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let text = text.trim();
        if text.contains('+') {
            return Err(FaultError::NotBuilt(text.to_owned()));
        }
        let (kind, keys) = text
            .split_once(':')
            .map_or((text, None), |(kind, keys)| (kind, Some(keys)));
        let without_keys = |fault, kind| match keys {
            None => Ok(fault),
            Some(keys) => Err(FaultError::UnknownKey {
                kind,
                key: keys.to_owned(),
                known: "none",
            }),
        };
        match kind {
            "none" => without_keys(Self::None, "none"),
            "down" => without_keys(Self::Fail(Fail::default()), "down"),
            "refuse" => without_keys(Self::Refuse, "refuse"),
            "fail" => keys.unwrap_or("").parse().map(Self::Fail),
            planned if PLANNED_KINDS.contains(&planned) => Err(FaultError::NotBuilt(planned.to_owned())),
            other => Err(FaultError::UnknownKind(other.to_owned())),
        }
    }
}

impl FromStr for Fail {
    type Err = FaultError;

    /// Reads the part behind `fail:`; empty is the plain `fail`.
    fn from_str(keys: &str) -> Result<Self, FaultError> {
        let mut fail = Self::default();
        let mut seen = Vec::new();
        for pair in keys.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| FaultError::NotAPair(pair.trim().to_owned()))?;
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return Err(FaultError::Twice(key.to_owned()));
            }
            seen.push(key);
            let wrong = |key, right: &str| FaultError::Value {
                key,
                value: value.to_owned(),
                right: right.to_owned(),
            };
            match key {
                "code" => {
                    fail.code = code::parse_failure(value).map_err(|error| wrong("code", &error.to_string()))?;
                }
                "first" => {
                    let first = value
                        .parse()
                        .map_err(|_| wrong("first", "write a whole number, 0 or more"))?;
                    fail.first = Some(first);
                }
                "p" => {
                    let p: f64 = value.parse().map_err(|_| wrong("p", "write a chance from 0 to 1"))?;
                    if !(0.0..=1.0).contains(&p) {
                        return Err(wrong("p", "a chance lies from 0 to 1"));
                    }
                    fail.p = Some(p);
                }
                "scope" => {
                    fail.scope = match value {
                        "request" => Scope::Request,
                        "process" => Scope::Process,
                        _ => return Err(wrong("scope", "write request or process")),
                    }
                }
                "at" => {
                    fail.at = match value {
                        "before" => At::Before,
                        "after" => At::After,
                        "headers" => return Err(FaultError::NotBuilt("at=headers".to_owned())),
                        _ => return Err(wrong("at", "write before or after")),
                    }
                }
                "pushback" | "side" | "loop" => return Err(FaultError::NotBuilt(key.to_owned())),
                _ => {
                    let key = key.to_owned();
                    return Err(FaultError::UnknownKey {
                        kind: "fail",
                        key,
                        known: FAIL_KEYS,
                    });
                }
            }
        }
        if fail.scope == Scope::Process && fail.first.is_none() {
            let right = "scope says what first counts over; give first=N too".to_owned();
            return Err(FaultError::Value {
                key: "scope",
                value: "process".to_owned(),
                right,
            });
        }
        Ok(fail)
    }
}

impl fmt::Display for Fault {
    /// Writes what `FromStr` reads, defaults left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Refuse => f.write_str("refuse"),
            Self::Fail(fail) => {
                let default = Fail::default();
                let mut keys = Vec::new();
                if fail.code != default.code {
                    keys.push(format!("code={}", code::name(fail.code)));
                }
                keys.extend(fail.first.map(|first| format!("first={first}")));
                keys.extend(fail.p.map(|p| format!("p={p}")));
                if fail.scope == Scope::Process {
                    keys.push("scope=process".to_owned());
                }
                if fail.at == At::After {
                    keys.push("at=after".to_owned());
                }
                f.write_str("fail")?;
                if keys.is_empty() {
                    Ok(())
                } else {
                    write!(f, ":{}", keys.join(","))
                }
            }
        }
    }
}

/// What one arrival is to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The handler's own answer.
    Work,
    /// A trailers-only failure instead of the work.
    FailBefore(Code),
    /// The work, and then a failure in place of its success.
    FailAfter(Code),
}

/// What a decision may depend on.
#[derive(Debug, Clone, Copy)]
pub struct Draw<'a> {
    /// The run's seed.
    pub seed: u64,
    /// The request's number.
    pub request: u64,
    /// The attempt at each layer above, the client's first.
    pub path: &'a [u32],
    /// How often this path of this request has come before.
    pub occurrence: u32,
}

/// Decides one arrival. `before` is the number of earlier arrivals in the fault's own scope.
pub fn decide(fault: &Fault, before: u64, draw: Draw<'_>) -> Verdict {
    let Fault::Fail(fail) = fault else { return Verdict::Work };
    let in_range = fail.first.is_none_or(|first| before < first);
    let drawn = fail.p.is_none_or(|p| draw.share() < p);
    match fail.at {
        _ if !(in_range && drawn) => Verdict::Work,
        At::Before => Verdict::FailBefore(fail.code),
        At::After => Verdict::FailAfter(fail.code),
    }
}

impl Draw<'_> {
    /// A number from 0 (included) to 1 (excluded), the same for the same draw on every machine.
    ///
    /// The rule, for whoever replays it with code of their own: start with `x = mix(seed)`; then for the request's number,
    /// for each number of the path from the client's attempt down, and last for the occurrence, in this order,
    /// `x = mix(x XOR number)`; the draw is the upper 53 bits of `x` divided by 2^53. `mix` adds 0x9E3779B97F4A7C15 and applies
    /// the finalizer of `SplitMix64`, all in wrapping 64-bit arithmetic.
    pub fn share(&self) -> f64 {
        let mut x = mix(self.seed);
        x = mix(x ^ self.request);
        for attempt in self.path {
            x = mix(x ^ u64::from(*attempt));
        }
        x = mix(x ^ u64::from(self.occurrence));
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

    fn draw(request: u64, path: &[u32]) -> Draw<'_> {
        Draw {
            seed: 27,
            request,
            path,
            occurrence: 0,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "none",
            "refuse",
            "fail",
            "fail:first=2",
            "fail:p=0.5",
            "fail:code=NOT_FOUND,first=1,p=0.25,scope=process,at=after",
        ] {
            let fault: Fault = text.parse().unwrap();
            assert_eq!(fault.to_string(), text);
        }
        assert_eq!("down".parse(), Ok(Fault::Fail(Fail::default())));
    }

    #[test]
    fn each_wrong_text_is_named() {
        for (text, named) in [
            ("explode", "explode"),
            ("fail:p=1.5", "1.5"),
            ("fail:p=NaN", "NaN"),
            ("fail:first=-1", "-1"),
            ("fail:code=UNAVAILBLE", "UNAVAILBLE"),
            ("fail:code=OK", "OK"),
            ("fail:frist=2", "frist"),
            ("fail:first=1,first=2", "first"),
            ("fail:first", "first"),
            ("fail:scope=process", "first=N"),
            ("refuse:code=OK", "code=OK"),
            ("delay:ms=50", "delay"),
            ("fail:at=headers", "at=headers"),
            ("fail+refuse", "fail+refuse"),
        ] {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn first_counts_the_arrivals_before() {
        let fault = "fail:first=2".parse().unwrap();
        assert_eq!(decide(&fault, 1, draw(1, &[1])), Verdict::FailBefore(Code::Unavailable));
        assert_eq!(decide(&fault, 2, draw(1, &[1])), Verdict::Work);
    }

    #[test]
    fn a_share_of_ten_thousand_draws_lies_in_its_exact_binomial_band() {
        // Outside the band of 0.3 an honest generator falls with a chance of 1e-9 (the exact binomial, both tails).
        for (p, band) in [(0.0, 0..=0), (0.3, 2_723..=3_282), (1.0, 10_000..=10_000)] {
            let hits = (1..=10_000)
                .filter(|request| draw(*request, &[1, 2, 3]).share() < p)
                .count();
            assert!(band.contains(&hits), "{hits} of 10,000 at {p}");
        }
    }

    #[test]
    fn path_and_occurrence_change_the_draw() {
        let bits = |draw: Draw<'_>| draw.share().to_bits();
        let one = bits(draw(7, &[1, 1]));
        assert_ne!(one, bits(draw(7, &[1, 2])));
        assert_ne!(one, bits(draw(8, &[1, 1])));
        assert_ne!(
            one,
            bits(Draw {
                occurrence: 1,
                ..draw(7, &[1, 1])
            })
        );
    }
}
