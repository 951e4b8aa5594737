//! How the parts of a policy are written, one text each: the environment carries them, scenario files have tables of the
//! same keys.

use super::{Budget, Commit, Policy, PolicyError, Throttle};
use std::{fmt, str::FromStr, time::Duration};

/// Reads a number with up to three decimals as thousandths.
///
/// # Errors
/// `None` for anything else, and for what does not fit.
pub fn thousandths(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(decimals) {
        return None;
    }
    // Digits past the third decimal are ignored, as gRPC does with its token ratio.
    let decimals: String = decimals.chars().chain("000".chars()).take(3).collect();
    let milli = whole.parse::<u32>().ok()?.checked_mul(1_000)?;
    milli.checked_add(decimals.parse().ok()?)
}

/// Writes thousandths as a number with as many decimals as it needs.
pub fn fraction(milli: u32) -> String {
    (f64::from(milli) / 1_000.0).to_string()
}

/// The pairs of a text `key=value,key=value`.
fn pairs<'a>(part: &'static str, text: &'a str) -> Result<Vec<(&'a str, &'a str)>, PolicyError> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| wrong(part, pair, "write key=value"))?;
            Ok((key.trim(), value.trim()))
        })
        .collect()
}

fn wrong(part: &'static str, read: &str, right: &str) -> PolicyError {
    PolicyError::Part {
        part,
        right: format!("{}: {right}", read.trim()),
    }
}

fn duration(part: &'static str, value: &str) -> Result<Duration, PolicyError> {
    let read = humantime::parse_duration(value).map_err(|_| wrong(part, value, "write a duration such as 25ms"))?;
    if read > Policy::LONGEST {
        return Err(wrong(part, value, "at most 1h"));
    }
    Ok(read)
}

fn in_thousandths(part: &'static str, value: &str) -> Result<u32, PolicyError> {
    thousandths(value).ok_or_else(|| {
        wrong(
            part,
            value,
            "write a number from 0 to 4000000, with up to three decimals",
        )
    })
}

impl FromStr for Commit {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text.trim() {
            "headers" => Ok(Self::Headers),
            "message" => Ok(Self::Message),
            other => Err(wrong("commit", other, "write headers or message")),
        }
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Headers => "headers",
            Self::Message => "message",
        })
    }
}

impl Throttle {
    /// Most tokens a bucket may hold (gRFC A6).
    pub const MOST_TOKENS: u32 = 1_000;

    /// From thousandths.
    ///
    /// # Errors
    /// Outside A6's limits: `max_tokens` above 0 and at most 1,000, `token_ratio` above 0.
    pub fn checked(self) -> Result<Self, PolicyError> {
        if self.max_milli == 0 || self.max_milli > Self::MOST_TOKENS * 1_000 {
            return Err(wrong(
                "throttle",
                &fraction(self.max_milli),
                "max_tokens lies above 0 and at most 1000",
            ));
        }
        if self.ratio_milli == 0 {
            return Err(wrong(
                "throttle",
                "token_ratio",
                "it lies above 0, 0.001 at least; further decimals are ignored",
            ));
        }
        Ok(self)
    }
}

impl FromStr for Throttle {
    type Err = PolicyError;

    /// Reads `max_tokens=10,token_ratio=0.1`; both must be there.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        const PART: &str = "throttle";
        let (mut max, mut ratio) = (None, None);
        for (key, value) in pairs(PART, text)? {
            match key {
                "max_tokens" => max = Some(in_thousandths(PART, value)?),
                "token_ratio" => ratio = Some(in_thousandths(PART, value)?),
                other => return Err(wrong(PART, other, "the keys are max_tokens and token_ratio")),
            }
        }
        let (Some(max_milli), Some(ratio_milli)) = (max, ratio) else {
            return Err(wrong(PART, text, "write max_tokens and token_ratio"));
        };
        Self { max_milli, ratio_milli }.checked()
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (max, ratio) = (fraction(self.max_milli), fraction(self.ratio_milli));
        write!(f, "max_tokens={max},token_ratio={ratio}")
    }
}

impl Budget {
    /// Itself, when its figures make sense.
    ///
    /// # Errors
    /// More than 100 percent, a ratio above 1,000, a `ttl` of 0.
    pub fn checked(self) -> Result<Self, PolicyError> {
        const PART: &str = "budget";
        match self {
            Self::InFlight { percent_milli, .. } if percent_milli > 100_000 => {
                Err(wrong(PART, &fraction(percent_milli), "percent lies from 0 to 100"))
            }
            Self::Window { ratio_milli, .. } if ratio_milli > 1_000_000 => {
                Err(wrong(PART, &fraction(ratio_milli), "ratio lies from 0 to 1000"))
            }
            Self::Window { ttl, .. } if ttl.is_zero() => Err(wrong(PART, "0s", "ttl lies above 0")),
            Self::Window { min_per_second, .. } if min_per_second > 1_000_000 => Err(wrong(
                PART,
                &min_per_second.to_string(),
                "min_per_second lies from 0 to 1000000",
            )),
            Self::InFlight { .. } | Self::Window { .. } => Ok(self),
        }
    }
}

impl FromStr for Budget {
    type Err = PolicyError;

    /// Reads `kind=in_flight,percent=20,min_concurrency=3` or `kind=window,ratio=0.2,min_per_second=10,ttl=10s`; keys left out
    /// keep these figures, the kind must be there.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        const PART: &str = "budget";
        let pairs = pairs(PART, text)?;
        let kind = pairs.iter().find(|(key, _)| *key == "kind").map(|(_, kind)| *kind);
        let mut budget = match kind {
            Some("in_flight") => Self::IN_FLIGHT,
            Some("window") => Self::WINDOW,
            Some(other) => return Err(wrong(PART, other, "kind is in_flight or window")),
            None => return Err(wrong(PART, text, "write kind=in_flight or kind=window")),
        };
        let whole = |value: &str| {
            value
                .parse()
                .map_err(|_| wrong(PART, value, "write a whole number from 0 to 4294967295"))
        };
        for (key, value) in pairs {
            match (&mut budget, key) {
                (_, "kind") => {}
                (Self::InFlight { percent_milli, .. }, "percent") => *percent_milli = in_thousandths(PART, value)?,
                (Self::InFlight { min_concurrency, .. }, "min_concurrency") => *min_concurrency = whole(value)?,
                (Self::Window { ratio_milli, .. }, "ratio") => *ratio_milli = in_thousandths(PART, value)?,
                (Self::Window { min_per_second, .. }, "min_per_second") => *min_per_second = whole(value)?,
                (Self::Window { ttl, .. }, "ttl") => *ttl = duration(PART, value)?,
                (Self::InFlight { .. }, other) => {
                    return Err(wrong(
                        PART,
                        other,
                        "the keys of in_flight are percent and min_concurrency",
                    ));
                }
                (Self::Window { .. }, other) => {
                    return Err(wrong(
                        PART,
                        other,
                        "the keys of window are ratio, min_per_second and ttl",
                    ));
                }
            }
        }
        budget.checked()
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight {
                percent_milli,
                min_concurrency,
            } => {
                let percent = fraction(*percent_milli);
                write!(f, "kind=in_flight,percent={percent},min_concurrency={min_concurrency}")
            }
            Self::Window {
                ratio_milli,
                min_per_second,
                ttl,
            } => {
                let (ratio, ttl) = (fraction(*ratio_milli), humantime::format_duration(*ttl).to_string());
                let ttl = ttl.replace(' ', "");
                write!(f, "kind=window,ratio={ratio},min_per_second={min_per_second},ttl={ttl}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousandths_are_exact() {
        for (text, milli) in [("0.6", 600), ("0.3", 300), ("10", 10_000), ("0.0019", 1), ("1.", 1_000)] {
            assert_eq!(thousandths(text), Some(milli), "{text}");
        }
        for text in ["", ".5", "-1", "1e3", "0,2", "5000000"] {
            assert_eq!(thousandths(text), None, "{text}");
        }
        assert_eq!(
            (fraction(200), fraction(10_000), fraction(1)),
            ("0.2".into(), "10".into(), "0.001".into())
        );
    }

    #[test]
    fn what_is_written_is_read_back_and_keys_left_out_have_their_figures() {
        for text in [
            "kind=in_flight,percent=20,min_concurrency=3",
            "kind=window,ratio=0.2,min_per_second=10,ttl=10s",
        ] {
            assert_eq!(text.parse::<Budget>().unwrap().to_string(), text);
            let kind = text.split(',').next().unwrap();
            assert_eq!(kind.parse::<Budget>().unwrap().to_string(), text);
        }
        let throttle = "max_tokens=10,token_ratio=0.1";
        assert_eq!(throttle.parse::<Throttle>().unwrap().to_string(), throttle);
    }

    #[test]
    fn each_wrong_part_is_named() {
        for (text, named) in [
            ("percent=20", "kind=in_flight"),
            ("kind=in_flight,ratio=0.2", "min_concurrency"),
            ("kind=in_flight,percent=101", "0 to 100"),
            ("kind=window,ttl=0s", "above 0"),
            ("kind=window,ratio=many", "many"),
            ("kind=leaky", "leaky"),
        ] {
            let error = text.parse::<Budget>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
        for (text, named) in [
            ("max_tokens=10", "token_ratio"),
            ("max_tokens=1001,token_ratio=0.1", "1000"),
            ("max_tokens=10,token_ratio=0", "above 0"),
            ("max_tokens=10,token_ratio=0.1,x=1", "x"),
        ] {
            let error = text.parse::<Throttle>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
