//! Figures per second, and whether the bottom service recovers by itself.

use super::super::{number, words::shown};
use super::requests;
use crate::report::{BEYOND, PerSecond, Prediction};

/// ` At 40 requests/s: 29,160 calls/s.`; nothing without a rate.
pub(super) fn at_rate(prediction: &Prediction) -> String {
    let bottom = prediction.services.last().and_then(|row| row.per_second);
    let Some((rate, calls)) = prediction.rate.zip(bottom) else {
        return String::new();
    };
    format!(
        " At {}: {}{}.",
        offered(rate),
        calls_per_second(calls),
        over(prediction)
    )
}

/// `While inventory fails, 40 requests/s become 1,080 calls/s; it can answer 500, so ...`; `None` where nobody asked.
pub(in crate::render) fn sentence(prediction: &Prediction) -> Option<String> {
    let (asked, rate) = prediction.capacity.as_ref().zip(prediction.rate)?;
    let name = shown(&prediction.bottom.service);
    let most = number::factor(asked.capacity);
    let (comes, is_one) = (offered(rate), is_one(rate));
    if !asked.keeps_up() {
        let are = if is_one { "is" } else { "are" };
        let calls = asked.offered.map_or_else(
            || format!("{BEYOND} calls/s"),
            |calls| calls_per_second(PerSecond { min: calls, max: calls }),
        );
        return Some(format!(
            "Even without retries {name} cannot keep up: {comes} {are} {calls} there, and it can answer {most}."
        ));
    }
    let some = if asked.failing < 1.0 {
        format!(" {} of its calls", number::share(asked.failing))
    } else {
        String::new()
    };
    let calls = match asked.load {
        Some(load) => format!(
            "{comes} {} {}{}",
            if is_one { "becomes" } else { "become" },
            calls_per_second(load),
            over(prediction)
        ),
        None => format!("each request becomes {BEYOND} calls"),
    };
    let so = match asked.recovers {
        Some(true) => "so it recovers",
        Some(false) => "so it may not recover",
        None => "so it may or may not recover",
    };
    Some(format!(
        "While {name} fails{some}, {calls}; it can answer {most}, {so} by itself once it is back."
    ))
}

/// Calls per second for a table: one number, or `40-142`.
pub(in crate::render) fn cell(of: PerSecond) -> String {
    if is_single(of) {
        number::factor(of.max)
    } else {
        format!("{}-{}", number::factor(of.min), number::factor(of.max))
    }
}

/// `1,080 calls/s`, or `40 to 142 calls/s`.
fn calls_per_second(of: PerSecond) -> String {
    if is_single(of) {
        let plural = if is_one(of.max) { "" } else { "s" };
        format!("{} call{plural}/s", number::factor(of.max))
    } else {
        format!("{} to {} calls/s", number::factor(of.min), number::factor(of.max))
    }
}

/// Requests that were not asked for, and that the figures rest on.
fn over(prediction: &Prediction) -> String {
    match prediction.rate_requests {
        Some(many) if many != requests(prediction) => format!(" (over {})", number::of(many, "request")),
        _ => String::new(),
    }
}

fn offered(rate: f64) -> String {
    let plural = if is_one(rate) { "" } else { "s" };
    format!("{} request{plural}/s", number::factor(rate))
}

fn is_one(figure: f64) -> bool {
    number::factor(figure) == "1"
}

/// Whether both ends are written alike.
fn is_single(of: PerSecond) -> bool {
    number::factor(of.min) == number::factor(of.max)
}
