//! What the user says beforehand: `--expect inventory=27`, read, and held against what was predicted and what arrived. Pure.

use crate::{
    report::Expected,
    sanitize::sanitize,
    scenario::{grouped, suggest::did_you_mean},
};
use std::{cmp::Ordering, fmt};
use thiserror::Error;

/// Most digits behind the point of a share.
const MAX_DECIMALS: usize = 9;
/// Words that are no service unless the chain has one of that name.
const TOTAL: &str = "total";
const FAILS: &str = "fails";

/// One `--expect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// As typed.
    text: String,
    subject: Subject,
    comparison: Comparison,
    value: Value,
}

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// Arrivals at the bottom service.
    Bottom,
    /// Arrivals at this service.
    Service(String),
    /// Arrivals at all services together.
    Total,
    /// Requests that ended with a failure.
    Fails,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    AtMost,
    AtLeast,
    Below,
    Above,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// A number of calls or requests.
    Count(u64),
    /// A share of the requests: `digits` divided by 100 and by 10 for each decimal.
    Percent { digits: u64, decimals: u32 },
}

/// What an expectation is held against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// What each service received, top first; `None` where no count came.
    pub services: Vec<(String, Option<u64>)>,
    /// How each service's prediction reads (`27`, `24 to 30`); an entry `total` is the sum's.
    pub predicted: Vec<(String, String)>,
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that failed.
    pub failed: u64,
}

/// Why a text is no expectation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExpectError {
    /// Nothing that could be compared.
    #[error("--expect {0}: write {FORMS}")]
    Form(String),
    /// A value that is no number.
    #[error("--expect {text}: `{value}` is no whole number; write {FORMS}")]
    Number {
        /// The expression.
        text: String,
        /// The value as read.
        value: String,
    },
    /// A share of something that is not the requests.
    #[error("--expect {0}: only fails takes a share in %, of the requests")]
    Share(String),
    /// A share above everything or too fine.
    #[error("--expect {0}: a share lies from 0% to 100%, with at most {MAX_DECIMALS} decimals")]
    ShareRange(String),
    /// A service that is not in the chain.
    #[error("--expect {text}: no service `{name}` is in this chain{hint} (services: {known}; or total, fails)")]
    Unknown {
        /// The expression.
        text: String,
        /// The name as read.
        name: String,
        /// `; did you mean …?`, or nothing.
        hint: String,
        /// The services.
        known: String,
    },
}

const FORMS: &str =
    "inventory=27, inventory<=30, total=40, fails<=0.1%, or 27 for the bottom service (= <= >= < > compare)";

impl Expectation {
    /// Reads an expression for a chain of these services.
    pub fn parse(text: &str, services: &[&str]) -> Result<Self, ExpectError> {
        let shown = sanitize(text.trim());
        let is_comparison = |each: char| matches!(each, '=' | '<' | '>');
        let (subject, comparison, value) = match text.split_once(is_comparison) {
            None => (None, Comparison::Equal, text),
            Some((subject, _)) => {
                let rest = &text[subject.len()..];
                let end = rest.find(|each| !is_comparison(each)).unwrap_or(rest.len());
                let (comparison, value) = rest.split_at(end);
                let comparison = Comparison::read(comparison).ok_or_else(|| ExpectError::Form(shown.clone()))?;
                (Some(subject.trim()), comparison, value)
            }
        };
        let value = value.trim();
        if value.is_empty() {
            return Err(ExpectError::Form(shown));
        }
        let subject = match subject {
            None | Some("") => Subject::Bottom,
            Some(name) if services.contains(&name) => Subject::Service(name.to_owned()),
            Some(TOTAL) => Subject::Total,
            Some(FAILS) => Subject::Fails,
            // `!=`, `~=` and the like.
            Some(name) if name.ends_with(|last: char| !last.is_alphanumeric() && !matches!(last, '-' | '_' | '.')) => {
                return Err(ExpectError::Form(shown));
            }
            Some(name) => {
                let hint = did_you_mean(name, services.iter().copied().chain([TOTAL, FAILS]));
                return Err(ExpectError::Unknown {
                    text: shown,
                    name: sanitize(name),
                    hint,
                    known: services.join(", "),
                });
            }
        };
        let value = match value.strip_suffix('%') {
            Some(_) if subject != Subject::Fails => return Err(ExpectError::Share(shown)),
            Some(share) => read_share(share.trim()).ok_or(ExpectError::ShareRange(shown))?,
            None => match value.parse() {
                Ok(count) => Value::Count(count),
                Err(_) => {
                    return Err(ExpectError::Number {
                        text: shown,
                        value: sanitize(value),
                    });
                }
            },
        };
        Ok(Self {
            text: text.trim().to_owned(),
            subject,
            comparison,
            value,
        })
    }

    /// Holds it against the counts. Without a count it is not met, and says so.
    pub fn judge(&self, counts: &Counts) -> Expected {
        let said = format!("You expected {}.", sanitize(&self.text));
        let (met, found) = match &self.subject {
            Subject::Fails => (Some(self.holds_for_failures(counts)), failures(counts)),
            Subject::Total => {
                let received: Option<u128> = counts.services.iter().map(|(_, count)| count.map(u128::from)).sum();
                self.arrivals(received, counts.predicted_total().as_deref())
            }
            Subject::Service(name) => self.at(counts, name),
            Subject::Bottom => {
                let bottom = counts.services.last().map_or("", |(name, _)| name.as_str());
                self.at(counts, bottom)
            }
        };
        Expected {
            expression: self.text.clone(),
            met: met.unwrap_or(false),
            text: format!("{said} {found}"),
        }
    }

    fn at(&self, counts: &Counts, name: &str) -> (Option<bool>, String) {
        let received = counts
            .services
            .iter()
            .find(|(service, _)| service == name)
            .and_then(|(_, count)| *count);
        let predicted = counts
            .predicted
            .iter()
            .find(|(service, _)| service == name)
            .map(|(_, text)| text.as_str());
        self.arrivals(received.map(u128::from), predicted)
    }

    fn arrivals(&self, received: Option<u128>, predicted: Option<&str>) -> (Option<bool>, String) {
        let Value::Count(expected) = self.value else {
            return (None, String::new());
        };
        let met = received.map(|received| self.comparison.holds(received.cmp(&expected.into())));
        let predicted = predicted.map(|text| {
            let were = if text == "1" { "was" } else { "were" };
            format!("{} {were} predicted", with_commas(text))
        });
        let found = match (predicted, received) {
            (Some(predicted), Some(received)) => format!("{predicted} and {} arrived.", grouped(received)),
            (None, Some(received)) => format!("{} arrived.", grouped(received)),
            (Some(predicted), None) => format!("{predicted}; how many arrived is not known."),
            (None, None) => "How many arrived is not known.".to_owned(),
        };
        (met, found)
    }

    fn holds_for_failures(&self, counts: &Counts) -> bool {
        let (failed, requests) = (u128::from(counts.failed), u128::from(counts.requests));
        self.comparison.holds(match self.value {
            Value::Count(expected) => failed.cmp(&expected.into()),
            // Both sides times 100 and 10 for each decimal, so that no share is ever rounded.
            Value::Percent { digits, decimals } => {
                (failed * 100 * 10_u128.pow(decimals)).cmp(&(u128::from(digits) * requests))
            }
        })
    }
}

impl fmt::Display for Expectation {
    /// As typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Comparison {
    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "=" | "==" => Self::Equal,
            "<=" => Self::AtMost,
            ">=" => Self::AtLeast,
            "<" => Self::Below,
            ">" => Self::Above,
            _ => return None,
        })
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::AtMost => ordering.is_le(),
            Self::AtLeast => ordering.is_ge(),
            Self::Below => ordering.is_lt(),
            Self::Above => ordering.is_gt(),
        }
    }
}

impl Counts {
    fn predicted_total(&self) -> Option<String> {
        let named_total = |(name, _): &&(String, String)| name == TOTAL;
        let is_service = self.services.iter().any(|(name, _)| name == TOTAL);
        if let Some((_, text)) = self.predicted.iter().find(named_total).filter(|_| !is_service) {
            return Some(text.clone());
        }
        let number = |(_, text): &(String, String)| text.replace(',', "").parse::<u128>().ok();
        let numbers: Option<Vec<_>> = self.predicted.iter().map(number).collect();
        let sum = numbers?.into_iter().try_fold(0_u128, u128::checked_add)?;
        (!self.predicted.is_empty()).then(|| grouped(sum))
    }
}

/// `24 to 3000` as text shows it.
fn with_commas(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.parse() {
        Ok(number) => grouped(number),
        Err(_) => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn failures(counts: &Counts) -> String {
    let requests = if counts.requests == 1 { "request" } else { "requests" };
    format!(
        "{} of {} {requests} failed.",
        grouped(counts.failed.into()),
        grouped(counts.requests.into())
    )
}

/// `0.1` as a share in per cent.
fn read_share(text: &str) -> Option<Value> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 3 || fraction.len() > MAX_DECIMALS || !plain(whole) || !plain(fraction) {
        return None;
    }
    let decimals = u32::try_from(fraction.len()).ok()?;
    let digits: u64 = format!("{whole}{fraction}").parse().ok()?;
    (digits <= 100 * 10_u64.pow(decimals)).then_some(Value::Percent { digits, decimals })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: [&str; 4] = ["frontend", "checkout", "pricing", "inventory"];

    fn headline() -> Counts {
        let services = SHOP.into_iter().zip([1, 3, 9, 27]);
        Counts {
            services: services
                .clone()
                .map(|(name, count)| (name.to_owned(), Some(count)))
                .collect(),
            predicted: services
                .map(|(name, count)| (name.to_owned(), count.to_string()))
                .collect(),
            requests: 1,
            failed: 1,
        }
    }

    fn judged(text: &str, counts: &Counts) -> (bool, String) {
        let expected = Expectation::parse(text, &SHOP).unwrap().judge(counts);
        (expected.met, expected.text)
    }

    #[test]
    fn a_miss_says_what_was_expected_predicted_and_counted() {
        let (met, text) = judged("12", &headline());
        assert_eq!(
            (met, text.as_str()),
            (false, "You expected 12. 27 were predicted and 27 arrived.")
        );
        assert_eq!(
            judged("frontend>1", &headline()).1,
            "You expected frontend>1. 1 was predicted and 1 arrived."
        );
    }

    #[test]
    fn every_form_is_met_by_the_headline() {
        for text in [
            "27",
            "=27",
            "inventory=27",
            "inventory <= 30",
            "inventory>=27",
            "pricing<10",
            "pricing>8",
            "total=40",
            "fails=1",
            "fails<=100%",
        ] {
            assert!(judged(text, &headline()).0, "{text}");
        }
        assert_eq!(
            judged("total=40", &headline()).1,
            "You expected total=40. 40 were predicted and 40 arrived."
        );
    }

    #[test]
    fn shares_are_exact() {
        let of = |failed| Counts {
            requests: 1_000,
            failed,
            ..headline()
        };
        assert!(judged("fails<=0.1%", &of(1)).0);
        assert_eq!(
            judged("fails<=0.1%", &of(2)),
            (
                false,
                "You expected fails<=0.1%. 2 of 1,000 requests failed.".to_owned()
            )
        );
        assert!(judged("fails=0.200%", &of(2)).0);
    }

    #[test]
    fn a_missing_count_meets_nothing() {
        let mut counts = headline();
        counts.services[3].1 = None;
        let unknown = "You expected <=100. 27 were predicted; how many arrived is not known.";
        assert_eq!(judged("<=100", &counts), (false, unknown.to_owned()));
        assert!(!judged("total>0", &counts).0);
    }

    #[test]
    fn a_service_of_that_name_comes_before_the_word() {
        let expectation = Expectation::parse("total=5", &["web", "total"]).unwrap();
        let services = vec![("web".to_owned(), Some(1)), ("total".to_owned(), Some(5))];
        assert!(
            expectation
                .judge(&Counts {
                    services,
                    ..Counts::default()
                })
                .met
        );
    }

    #[test]
    fn each_mistake_is_named_with_what_would_be_right() {
        for (text, named) in [
            ("", "inventory=27"),
            ("inventory", "`inventory` is no whole number"),
            ("inventory=", "write inventory=27"),
            ("inventory=>3", "write inventory=27"),
            ("inventory!=5", "= <= >= < >"),
            ("inventory=-1", "`-1`"),
            ("inventory=2.5", "`2.5`"),
            ("inventroy=27", "did you mean `inventory`?"),
            ("client=1", "no service `client`"),
            ("inventory<=3%", "only fails"),
            ("fails<=101%", "0% to 100%"),
            ("fails<=x%", "0% to 100%"),
            ("fails<=0.0000000001%", "at most 9 decimals"),
        ] {
            let error = Expectation::parse(text, &SHOP).unwrap_err().to_string();
            assert!(
                error.starts_with("--expect") && error.contains(named),
                "{text}: {error}"
            );
        }
    }
}
