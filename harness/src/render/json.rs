//! Reports as JSON: pretty, ended by a newline, and safe to print on a terminal as it is.

use crate::report::{Comparison, Prediction, Report, Status, Sweep, Switched};
use serde::Serialize;
use std::fmt::Write as _;

/// One run.
pub fn report(report: &Report) -> Vec<u8> {
    pretty(report)
}

/// Several runs.
pub fn comparison(comparison: &Comparison) -> Vec<u8> {
    pretty(comparison)
}

/// The arithmetic alone.
pub fn prediction(prediction: &Prediction) -> Vec<u8> {
    pretty(prediction)
}

/// One run for each value.
pub fn sweep(sweep: &Sweep) -> Vec<u8> {
    pretty(sweep)
}

/// The state of a running chain.
pub fn status(status: &Status) -> Vec<u8> {
    pretty(status)
}

/// What a switch changed.
pub fn switched(switched: &Switched) -> Vec<u8> {
    pretty(switched)
}

fn pretty(value: &impl Serialize) -> Vec<u8> {
    let text = serde_json::to_string_pretty(value).expect("the report types have string keys and no failing parts");
    let mut out = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        // serde_json escapes what is below a blank; the rest of what steers a terminal it writes raw. Outside of
        // strings JSON is printable ASCII, so each of these letters stands in a string, where an escape means the same.
        if steers(letter) {
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        } else {
            out.push(letter);
        }
    }
    out.push('\n');
    out.into_bytes()
}

/// DEL, C1, marks of direction, separators of lines, the byte order mark.
fn steers(letter: char) -> bool {
    matches!(
        letter,
        '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn a_report_comes_back_as_it_was() {
        for sample in samples::reports() {
            let bytes = report(&sample);
            assert_eq!(serde_json::from_slice::<Report>(&bytes).unwrap(), sample);
            assert_eq!(bytes.last(), Some(&b'\n'));
        }
        let both = samples::comparison();
        assert_eq!(serde_json::from_slice::<Comparison>(&comparison(&both)).unwrap(), both);
        let sums = samples::prediction();
        assert_eq!(serde_json::from_slice::<Prediction>(&prediction(&sums)).unwrap(), sums);
        let values = samples::sweep();
        assert_eq!(serde_json::from_slice::<Sweep>(&sweep(&values)).unwrap(), values);
        let state = samples::status_full();
        assert_eq!(serde_json::from_slice::<Status>(&status(&state)).unwrap(), state);
        let switch = samples::switched();
        assert_eq!(serde_json::from_slice::<Switched>(&switched(&switch)).unwrap(), switch);
    }

    #[test]
    fn a_report_from_before_work_was_counted_is_read() {
        let sample = samples::headline();
        let mut value = serde_json::to_value(&sample).unwrap();
        value.as_object_mut().unwrap().remove("work");
        let read: Report = serde_json::from_value(value).unwrap();
        assert_eq!(read, Report { work: None, ..sample });
    }

    #[test]
    fn what_steers_a_terminal_is_escaped_and_kept() {
        let mut sample = samples::headline();
        sample.command = "run --item '\u{1b}\u{7f}\u{9b}\u{202e}\u{2028}\u{feff}e\u{301}'".to_owned();
        let bytes = report(&sample);
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(
            text.contains("\\u001b\\u007f\\u009b\\u202e\\u2028\\ufeffe\u{301}"),
            "{text}"
        );
        assert!(
            !text
                .chars()
                .any(|letter| steers(letter) || (letter.is_control() && letter != '\n'))
        );
        assert_eq!(
            serde_json::from_slice::<Report>(&bytes).unwrap().command,
            sample.command
        );
    }

    #[test]
    fn what_is_no_number_never_gets_out() {
        let mut sample = samples::headline();
        sample.timing.load_ms = f64::NAN;
        sample.timing.stop_ms = f64::INFINITY;
        sample.services[0].amplification = Some(f64::NAN);
        sample.links[0].factor = Some(f64::NEG_INFINITY);
        let value: serde_json::Value = serde_json::from_slice(&report(&sample)).unwrap();
        assert_eq!(value.pointer("/timing/load_ms"), Some(&serde_json::json!(0.0)));
        assert_eq!(value.pointer("/timing/stop_ms"), Some(&serde_json::json!(0.0)));
        assert!(value.pointer("/services/0/amplification").unwrap().is_null());
        assert!(value.pointer("/links/0/factor").unwrap().is_null());
    }

    #[test]
    fn large_counts_are_strings() {
        let mut sums = samples::prediction();
        sums.bottom.worst = crate::report::Count::Of(u128::MAX);
        let value: serde_json::Value = serde_json::from_slice(&prediction(&sums)).unwrap();
        assert_eq!(value.pointer("/bottom/worst").unwrap(), &u128::MAX.to_string());
    }
}
