//! Numbers as people read them. No figure is computed here, only written.

use crate::report::{Count, Predicted};

/// Longest number that a table cell writes in full.
const CELL: usize = 13;

/// `1,000`, `27,000`: groups of three. Numbers stay bare in JSON only.
pub(in crate::render) fn whole(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count: in full up to fifteen digits, `1.0e24` above, or the words for one beyond all.
pub(in crate::render) fn count(count: Count) -> String {
    match count {
        Count::Of(number) if number < 1_000_000_000_000_000 => whole(number),
        Count::Of(number) => format!("{:.1e}", number as f64),
        Count::Beyond => crate::report::BEYOND.to_owned(),
    }
}

/// A count that came so many times over; `None` beyond all.
pub(in crate::render) fn times(count: Count, times: u128) -> Option<Count> {
    match count {
        Count::Of(number) => number.checked_mul(times).map(Count::Of),
        Count::Beyond => None,
    }
}

/// `1 retry`, `27 retries`.
pub(in crate::render) fn retries(number: u64) -> String {
    format!("{} {}", whole(number), if number == 1 { "retry" } else { "retries" })
}

/// A count with its noun.
pub(in crate::render) fn counted(number: Count, noun: &str) -> String {
    let plural = if number == Count::Of(1) { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// A sentence whose numbers of four and more digits get commas. What names a thing stays as it is: ports, addresses,
/// process numbers, parts of words.
pub(in crate::render) fn in_sentence(text: &str) -> String {
    const NAMES: [&str; 5] = ["pid", "process", "port", "signal", "-CONT"];
    let mut out = String::with_capacity(text.len() + 8);
    let mut before = "";
    for (place, word) in text.split(' ').enumerate() {
        if place > 0 {
            out.push(' ');
        }
        let start = word.find(|letter: char| letter != '(').unwrap_or(word.len());
        let digits = word[start..].bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = word[start..].split_at(digits);
        let ends = matches!(rest, "" | "." | "," | ";" | ":" | ")" | ")." | ");" | "?" | "!");
        let plain = digits >= 4 && ends && !NAMES.contains(&before.trim_start_matches('('));
        match number.parse::<u128>() {
            Ok(value) if plain && !number.starts_with('0') => {
                out.push_str(&word[..start]);
                out.push_str(&whole(value));
                out.push_str(rest);
            }
            _ => out.push_str(word),
        }
        before = word;
    }
    out
}

/// A count for a table: in full up to ten digits, `7.63e12` above.
pub(in crate::render) fn cell(count: Count) -> String {
    match count {
        Count::Of(number) => {
            let full = whole(number);
            if full.len() <= CELL {
                full
            } else {
                scientific(number as f64, 2)
            }
        }
        Count::Beyond => ">3.4e38".to_owned(),
    }
}

/// A counted figure for a table; `-` where there is none.
pub(in crate::render) fn cell_or_dash(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| cell(Count::Of(number.into())))
}

/// What should arrive, for a table: one number, or `3-27`.
pub(in crate::render) fn expected(predicted: &Predicted) -> String {
    if predicted.min == predicted.max {
        cell(predicted.max)
    } else {
        format!("{}-{}", cell(predicted.min), cell(predicted.max))
    }
}

/// An average: `2.00`; from 1,000 on without decimals.
pub(in crate::render) fn mean(value: f64) -> String {
    if value < 999.995 {
        format!("{value:.2}")
    } else if value < 1e12 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1e3 and 1e12"
        )]
        let rounded = value.round() as u64;
        whole(rounded)
    } else {
        scientific(value, 2)
    }
}

/// A figure written one way; `-` where there is none.
pub(in crate::render) fn or_dash(value: Option<f64>, write: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), write)
}

/// A time in milliseconds, with three digits that say something: `0.87 ms`, `12.3 ms`, `1.25 s`.
pub(in crate::render) fn millis(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2} ms")
    } else if value < 99.95 {
        format!("{value:.1} ms")
    } else if value < 999.5 {
        format!("{value:.0} ms")
    } else {
        format!("{} s", mean(value / 1_000.0))
    }
}

/// A ratio: `4`, `1.50`, `0`.
pub(in crate::render) fn factor(value: f64) -> String {
    if value.fract() == 0.0 && (0.0..1e12).contains(&value) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, between 0 and 1e12"
        )]
        let number = value as u64;
        whole(number)
    } else {
        // 728 of 729 is not 1.00.
        let texts = (3..=4).map(|decimals| format!("{value:.decimals$}"));
        let is_told = |text: &String| text.trim_end_matches('0').len() > text.find('.').map_or(0, |point| point + 1);
        let mut texts = std::iter::once(mean(value)).chain(texts);
        texts.find(is_told).unwrap_or_else(|| format!("about {}", mean(value)))
    }
}

/// A ceiling: `1.728`, `2.99`, `36`; to a thousandth, from 1,000 on without decimals.
pub(super) fn ceiling(value: f64) -> String {
    if value < 999.9995 {
        trimmed(format!("{value:.3}"))
    } else {
        mean(value)
    }
}

/// A chance: `12.5 %`, `100 %`, and `7.5e-9` where a per cent figure would round to nothing.
pub(in crate::render) fn share(chance: f64) -> String {
    if chance <= 0.0 {
        "0 %".to_owned()
    } else if chance < 0.0005 {
        scientific(chance, 1)
    } else if (0.9995..1.0).contains(&chance) {
        "over 99.9 %".to_owned()
    } else {
        format!("{} %", trimmed(format!("{:.1}", chance * 100.0)))
    }
}

/// A chance that is small and not none: what a floating-point number does not hold is no certainty.
pub(in crate::render) fn some_share(chance: f64) -> String {
    if chance <= 0.0 {
        "< 1e-300".to_owned()
    } else {
        share(chance)
    }
}

/// The place in a row, in words up to the tenth.
pub(in crate::render) fn ordinal(place: u64) -> String {
    const WORDS: [&str; 10] = [
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    ];
    if let 1..=10 = place {
        return WORDS[usize::from(u8::try_from(place - 1).unwrap_or(0))].to_owned();
    }
    let ending = match (place % 100, place % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{}{ending}", whole(place))
}

/// `1 call`, `27 calls`, `0 calls`.
pub(in crate::render) fn of(number: impl Into<u128>, noun: &str) -> String {
    let number = number.into();
    format!("{} {noun}{}", whole(number), if number == 1 { "" } else { "s" })
}

fn scientific(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => format!("{}e{exponent}", trimmed(mantissa.to_owned())),
        None => text,
    }
}

fn trimmed(text: String) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PredictionKind;

    #[test]
    fn numbers_get_commas() {
        for (number, text) in [
            (0_u64, "0"),
            (27, "27"),
            (999, "999"),
            (1000, "1,000"),
            (27_000, "27,000"),
        ] {
            assert_eq!(whole(number), text);
        }
        assert_eq!(whole(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(count(Count::Of(1_000_000)), "1,000,000");
        assert_eq!(count(Count::Beyond), "more than 3.4e38");
        assert_eq!(count(Count::Of(999_999_999_999_999)), "999,999,999,999,999");
        assert_eq!(count(Count::Of(10_u128.pow(24))), "1.0e24");
        assert_eq!(counted(Count::Of(1), "call"), "1 call");
        assert_eq!(counted(Count::Beyond, "call"), "more than 3.4e38 calls");
    }

    #[test]
    fn numbers_in_sentences_get_commas_and_names_do_not() {
        for (text, shown) in [
            (
                "Requests planned: 20000; started: 96.",
                "Requests planned: 20,000; started: 96.",
            ),
            ("inventory died (pid 12345)", "inventory died (pid 12345)"),
            ("`kill -CONT 12345` lets it go on", "`kill -CONT 12345` lets it go on"),
            ("no answer from 127.0.0.1:50051.", "no answer from 127.0.0.1:50051."),
            (
                "web-1000 sent 1000 (2000) on port 50051",
                "web-1000 sent 1,000 (2,000) on port 50051",
            ),
        ] {
            assert_eq!(in_sentence(text), shown);
        }
    }

    #[test]
    fn cells_stay_narrow() {
        assert_eq!(cell(Count::Of(9_999_999_999)), "9,999,999,999");
        assert_eq!(cell(Count::Of(7_625_597_484_987)), "7.63e12");
        assert_eq!(cell(Count::Of(u128::MAX)), "3.4e38");
        assert_eq!(cell_or_dash(None), "-");
        let bounds = Predicted {
            kind: PredictionKind::Bounds,
            mean: None,
            sd: None,
            min: Count::Of(3),
            max: Count::Of(27_000),
        };
        assert_eq!(expected(&bounds), "3-27,000");
    }

    #[test]
    fn chances_read_as_in_a_newspaper_until_they_vanish() {
        for (chance, text) in [
            (0.0, "0 %"),
            (1e-27, "1e-27"),
            (7.5e-9, "7.5e-9"),
            (0.001, "0.1 %"),
            (0.058, "5.8 %"),
            (0.125, "12.5 %"),
            (0.729, "72.9 %"),
            (0.99999, "over 99.9 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(share(chance), text);
        }
    }

    #[test]
    fn averages_and_factors() {
        for (value, text) in [
            (2.0, "2.00"),
            (1.111, "1.11"),
            (999.996, "1,000"),
            (27_000.4, "27,000"),
            (5e13, "5e13"),
        ] {
            assert_eq!(mean(value), text);
        }
        for (value, text) in [
            (4.0, "4"),
            (0.0, "0"),
            (1.5, "1.50"),
            (27_000.0, "27,000"),
            (728.0 / 729.0, "0.999"),
            (1.00004, "about 1.00"),
            (2_000.4, "2,000"),
        ] {
            assert_eq!(factor(value), text);
        }
    }

    #[test]
    fn singular_plural_and_places() {
        assert_eq!(of(1_u64, "call"), "1 call");
        assert_eq!(of(0_u64, "call"), "0 calls");
        assert_eq!(of(1000_u64, "request"), "1,000 requests");
        for (place, text) in [
            (1, "first"),
            (3, "third"),
            (10, "tenth"),
            (11, "11th"),
            (22, "22nd"),
            (113, "113th"),
        ] {
            assert_eq!(ordinal(place), text);
        }
    }
}
