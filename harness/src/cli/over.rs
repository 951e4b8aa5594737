//! `--over KEY=VALUES`: what a sweep varies, and the values in their order. Pure; what a value means for its key is read by
//! `sweep`.
//!
//! VALUES is a list with commas. `A..B` counts up by 1; behind a single value A, `B..C` goes on from A in steps of B - A, as a
//! shell's user writes `0,0.1..1`. Commas within quotes, brackets and braces part nothing.

use super::CliError;
use crate::sanitize::sanitize;

/// Most points of a sweep.
pub(super) const MAX_POINTS: usize = 1_000;
/// Most digits behind the point of a value in a range.
const MAX_DECIMALS: usize = 9;
/// Largest value in a range; with [`MAX_DECIMALS`] every sum of two still fits an `i128`.
const MAX_VALUE: i128 = 1_000_000_000_000;

/// What a sweep varies.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Over {
    /// The key as typed.
    pub(super) key: String,
    /// The values, each as it is set.
    pub(super) values: Vec<String>,
}

impl Over {
    /// Reads `KEY=VALUES`.
    pub(super) fn read(typed: &str) -> Result<Self, CliError> {
        let wrong = |what: &str| CliError::refused(format_args!("--over {}: {what}", shown(typed)));
        let (key, list) = typed
            .split_once('=')
            .ok_or_else(|| wrong("write KEY=VALUES, as in p=0,0.1..1 or attempts=1..4"))?;
        let key = key.trim();
        if key.is_empty() {
            return Err(wrong("there is no key before the =; write one, as in attempts=1..4"));
        }
        let parts = parts(list).map_err(|what| wrong(&what))?;
        let mut values = Vec::new();
        // The single value before a range, which gives it its step.
        let mut before = None;
        for part in parts {
            let part = part.trim();
            if part.is_empty() {
                return Err(wrong("a value is empty; write values with a comma between two of them"));
            }
            match range(part) {
                None => {
                    values.push(written(part));
                    before = Some(part);
                }
                Some((from, to)) => {
                    let room = MAX_POINTS - values.len().min(MAX_POINTS);
                    values.extend(counted(before, from, to, room).map_err(|what| wrong(&what))?);
                    before = None;
                }
            }
            if values.len() > MAX_POINTS {
                return Err(wrong(TOO_MANY));
            }
        }
        for (place, value) in values.iter().enumerate() {
            if values[..place].contains(value) {
                return Err(wrong(&format!("{} stands twice; each value is one run", shown(value))));
            }
        }
        let key = key.to_owned();
        Ok(Self { key, values })
    }
}

const TOO_MANY: &str = "these are more than 1000 values, the most of one sweep; write fewer, or a larger step";

fn shown(text: &str) -> String {
    if text.is_empty() {
        "''".to_owned()
    } else {
        sanitize(text)
    }
}

/// A list parted at its commas, but for those within quotes, brackets and braces.
fn parts(list: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let mut letters = list.char_indices();
    let mut open = Vec::new();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '"' | '\'' => {
                let mut escaped = false;
                let closes = letters.any(|(_, each)| {
                    let ends = each == letter && !escaped;
                    escaped = letter == '"' && each == '\\' && !escaped;
                    ends
                });
                if !closes {
                    return Err(format!("the quote {letter} is not closed"));
                }
            }
            '[' => open.push(']'),
            '{' => open.push('}'),
            ']' | '}' if open.pop() != Some(letter) => {
                return Err(format!("there is a {letter} that closes nothing"));
            }
            ',' if open.is_empty() => {
                parts.push(&list[begin..place]);
                begin = place + 1;
            }
            _ => {}
        }
    }
    if let Some(missing) = open.pop() {
        return Err(format!("a {missing} is missing"));
    }
    parts.push(&list[begin..]);
    Ok(parts)
}

/// The two ends of a range; `None` for a single value, which may have any dots within its quotes and brackets.
fn range(part: &str) -> Option<(&str, &str)> {
    if part.starts_with(['"', '\'', '[', '{']) {
        return None;
    }
    part.split_once("..").map(|(from, to)| (from.trim(), to.trim()))
}

/// A single value: numbers lose what says nothing, everything else stays as typed.
fn written(part: &str) -> String {
    /// Digits that a float keeps.
    const DIGITS: usize = 15;
    if let Some(decimal) = Decimal::read(part) {
        return decimal.to_string();
    }
    // `.5`, `1.` and `5e-1` are other ways to write what a plain decimal can say.
    let is_number = part.len() <= DIGITS
        && part
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number = part.parse::<f64>().ok().filter(|_| is_number);
    let plain = number.and_then(|number| Decimal::read(&number.to_string()));
    plain.map_or_else(|| part.to_owned(), |decimal| decimal.to_string())
}

/// The values of a range, which are at most `room`.
fn counted(before: Option<&str>, from: &str, to: &str, room: usize) -> Result<Vec<String>, String> {
    let number = |text: &str| {
        Decimal::read(text).ok_or_else(|| {
            format!(
                "the range {}..{} wants plain numbers, such as 1..4 or 0,0.1..1; other values are written one by one, with \
                 commas",
                shown(from),
                shown(to)
            )
        })
    };
    let (first, last) = (number(from)?, number(to)?);
    let step = match before {
        None => Decimal { units: 1, decimals: 0 },
        Some(before) => {
            let before = Decimal::read(before).ok_or_else(|| {
                format!(
                    "the range {from}..{to} gets its step from the value before it, and {} is no plain number",
                    shown(before)
                )
            })?;
            first.minus(before)
        }
    };
    let decimals = first.decimals.max(last.decimals).max(step.decimals);
    let [mut at, last, step] = [first, last, step].map(|decimal| decimal.scaled(decimals));
    if step == 0 || (last - at).signum() * step.signum() < 0 {
        let written = Decimal { units: step, decimals };
        let way_on = if before.is_some() {
            format!("{from}..{to} goes in steps of {written} and never gets to {to}")
        } else {
            format!("{from}..{to} counts up; write {from},NEXT..{to} to count down")
        };
        return Err(way_on);
    }
    if at != last && (last - at).abs() < step.abs() {
        let written = |units: i128| Decimal { units, decimals }.to_string();
        let smallest = (last - at).signum();
        let way_on = if before.is_some() {
            format!("write a smaller step, or {from},{to}")
        } else {
            format!("write {from},{}..{to}", written(at + smallest))
        };
        return Err(format!(
            "{from}..{to} goes in steps of {} and gets no further than {from}; {way_on}",
            written(step)
        ));
    }
    let mut values = Vec::new();
    while (last - at).signum() * step.signum() >= 0 {
        values.push(Decimal { units: at, decimals }.to_string());
        if values.len() > room {
            return Err(TOO_MANY.to_owned());
        }
        at += step;
    }
    Ok(values)
}

/// A decimal number as typed: exact, since 0.1 ten times over is 1.
#[derive(Debug, Clone, Copy)]
struct Decimal {
    units: i128,
    decimals: usize,
}

impl Decimal {
    /// Digits with at most one point, and a minus before them.
    fn read(text: &str) -> Option<Self> {
        let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = !whole.is_empty() && is_plain(whole) && is_plain(part) && !digits.ends_with('.');
        if !is_number || part.len() > MAX_DECIMALS {
            return None;
        }
        let units: i128 = format!("{whole}{part}").parse().ok()?;
        let decimal = Self {
            units: sign * units,
            decimals: part.len(),
        };
        (units <= MAX_VALUE * 10_i128.pow(u32::try_from(part.len()).ok()?)).then_some(decimal)
    }

    fn scaled(self, decimals: usize) -> i128 {
        let zeros = u32::try_from(decimals - self.decimals).unwrap_or(0);
        self.units * 10_i128.pow(zeros)
    }

    fn minus(self, other: Self) -> Self {
        let decimals = self.decimals.max(other.decimals);
        Self {
            units: self.scaled(decimals) - other.scaled(decimals),
            decimals,
        }
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = format!("{:0>width$}", self.units.unsigned_abs(), width = self.decimals + 1);
        let (whole, part) = digits.split_at(digits.len() - self.decimals);
        let part = part.trim_end_matches('0');
        let sign = if self.units < 0 { "-" } else { "" };
        let point = if part.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{part}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(typed: &str) -> Vec<String> {
        Over::read(typed).unwrap().values
    }

    #[test]
    fn a_range_is_exact_and_mixes_with_single_values() {
        let tenths = ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"];
        assert_eq!(values("p=0,0.1..1"), tenths);
        assert_eq!(values("p=0,0.25..1"), ["0", "0.25", "0.5", "0.75", "1"]);
        assert_eq!(values("attempts=1..4"), ["1", "2", "3", "4"]);
        assert_eq!(values("attempts=1,2,4..8"), ["1", "2", "4", "6", "8"]);
        assert_eq!(
            values("attempts=1..3, 10..11"),
            ["1", "2", "3", "10", "11"],
            "behind a range the step is 1 again"
        );
        assert_eq!(values("p=1,0.5..0"), ["1", "0.5", "0"]);
        assert_eq!(
            values("p=0,0.3..1"),
            ["0", "0.3", "0.6", "0.9"],
            "the end is hit or not"
        );
        assert_eq!(values("p=0.50,007"), ["0.5", "7"]);
        assert_eq!(values("x.y=-1..1"), ["-1", "0", "1"]);
    }

    #[test]
    fn commas_and_dots_within_a_value_part_nothing() {
        let typed = "retry.budget={ kind = \"in_flight\", percent = 20 },none";
        assert_eq!(values(typed), ["{ kind = \"in_flight\", percent = 20 }", "none"]);
        let typed = "retry.retry_on=[\"ABORTED\", \"UNAVAILABLE\"],any";
        assert_eq!(values(typed), ["[\"ABORTED\", \"UNAVAILABLE\"]", "any"]);
        assert_eq!(
            values(r#"load.item="a,b..c","d\",e",'f,"g'"#),
            [r#""a,b..c""#, r#""d\",e""#, "'f,\"g'"]
        );
        assert_eq!(values("retry.pushback=true,false"), ["true", "false"]);
        assert_eq!(values("deadline=100ms,1s,none"), ["100ms", "1s", "none"]);
    }

    #[test]
    fn what_is_no_list_is_refused_with_what_would_be_right() {
        let many = format!("p={}", vec!["0"; 1_001].join(","));
        for (typed, says) in [
            ("p", "write KEY=VALUES"),
            ("", "'': write KEY=VALUES"),
            ("=1", "no key before the ="),
            ("p=", "a value is empty"),
            ("p=0,,1", "a value is empty"),
            ("p=0,1,", "a value is empty"),
            ("p=..1", "the range ''..1 wants plain numbers"),
            ("p=0..", "the range 0..'' wants plain numbers"),
            ("p=0..1..2", "wants plain numbers"),
            ("deadline=1s..3s", "the range 1s..3s wants plain numbers"),
            ("p=a,1..3", "gets its step from the value before it, and a is no plain"),
            ("p=1,1..3", "in steps of 0 and never gets to 3"),
            ("p=5,1..3", "in steps of -4 and never gets to 3"),
            ("p=3..1", "3..1 counts up; write 3,NEXT..1 to count down"),
            (
                "p=0.1..0.5",
                "0.1..0.5 goes in steps of 1 and gets no further than 0.1; write 0.1,0.2..0.5",
            ),
            ("p=0..0.75", "write 0,0.01..0.75"),
            (
                "p=0,0.5..0.9",
                "in steps of 0.5 and gets no further than 0.5; write a smaller step, or 0.5,0.9",
            ),
            ("p=1..1001", "more than 1000 values"),
            ("p=0,0.000000001..1", "more than 1000 values"),
            ("p=1..1000,1001", "more than 1000 values"),
            (many.as_str(), "more than 1000 values"),
            ("p=0.5,0.50", "0.5 stands twice"),
            ("p=1..3,2", "2 stands twice"),
            ("x.y=[1", "a ] is missing"),
            ("x.y=1]", "a ] that closes nothing"),
            ("x.y=\"a", "the quote \" is not closed"),
        ] {
            let error = Over::read(typed).unwrap_err();
            assert!(error.text.contains(says), "{typed}: {}", error.text);
            assert!(error.text.starts_with("error: --over ") && error.exit_code == 2);
        }
        assert_eq!(values("p=1..1000").len(), 1_000);
        assert_eq!(values("attempts=3..3"), ["3"], "the end itself");
    }
}
