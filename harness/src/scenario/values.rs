//! Values that files and flags share: their limits, how they are read, what would be right. Pure.

use super::suggest::did_you_mean;
use crate::{
    chain_line::MAX_SERVICES,
    sanitize::{sanitize, sanitize_message},
};
use chassis::{code, policy::RetryOn};
use std::time::Duration;

/// Most requests of one run.
pub const MAX_REQUESTS: u64 = 10_000_000;
/// Most requests at once.
pub const MAX_CONCURRENCY: u32 = 5_000;
/// Longest deadline of a request.
pub const MAX_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// Most bytes of an item: a longer request body is not replayed, so it would not be repeated either.
pub const MAX_ITEM: usize = 60_000;
/// Most links between services.
pub const MAX_DEPTH: usize = MAX_SERVICES - 1;
/// Most requests at once where requests start by the clock and nothing says how many.
pub const OPEN_CONCURRENCY: u32 = 1_000;
/// Most and fewest requests that are started per second.
pub const RATES: std::ops::RangeInclusive<f64> = 0.0001..=1_000_000.0;
/// Most characters of a scenario's name.
pub(super) const MAX_SCENARIO_NAME: usize = 60;

/// A setting that `none` switches off, where leaving it out would mean something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrNone<T> {
    /// Switched off.
    None,
    /// Set to this.
    Is(T),
}

impl<T> From<OrNone<T>> for Option<T> {
    fn from(setting: OrNone<T>) -> Self {
        match setting {
            OrNone::None => None,
            OrNone::Is(value) => Some(value),
        }
    }
}

/// What a deadline may be.
pub(crate) const DEADLINE_RIGHT: &str = "write a duration above 0 and at most 24h, such as 10s or 500ms, or none";
/// What a rate may be.
pub(crate) const RATE_RIGHT: &str = "write requests per second, from 0.0001 to 1000000";
/// What the time may be after which a request is dropped.
pub(crate) const CANCEL_RIGHT: &str = "write a duration above 0 and at most 24h, such as 50ms";
/// What a seed may be.
pub(crate) const SEED_RIGHT: &str = "write a whole number from 0 to 18446744073709551615, or random";

/// Reads a deadline.
pub(crate) fn parse_deadline(text: &str) -> Option<OrNone<Duration>> {
    if text.trim() == "none" {
        return Some(OrNone::None);
    }
    let deadline = humantime::parse_duration(text.trim()).ok()?;
    (!deadline.is_zero() && deadline <= MAX_DEADLINE).then_some(OrNone::Is(deadline))
}

/// A rate within its limits.
pub(crate) fn checked_rate(rate: f64) -> Option<f64> {
    RATES.contains(&rate).then_some(rate)
}

/// Reads a rate in plain digits.
pub(crate) fn parse_rate(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| plain).and_then(checked_rate)
}

/// Requests at once where nothing says how many.
pub(crate) fn default_concurrency(rate: Option<f64>) -> u32 {
    if rate.is_some() { OPEN_CONCURRENCY } else { 1 }
}

/// Reads the time after which a request is dropped.
pub(crate) fn parse_cancel_after(text: &str) -> Option<Duration> {
    match parse_deadline(text)? {
        OrNone::None => None,
        OrNone::Is(after) => Some(after),
    }
}

/// Reads a seed; `random` draws one that is short enough to be typed again.
pub(crate) fn parse_seed(text: &str) -> Option<u64> {
    if text.trim() == "random" {
        Some(rand::random::<u32>().into())
    } else {
        text.trim().parse().ok()
    }
}

/// An item that can be sent and typed again, or what is wrong with it.
pub(crate) fn checked_item(item: &str) -> Result<&str, String> {
    if item.len() > MAX_ITEM {
        return Err(format!(
            "an item is at most {MAX_ITEM} bytes long, this one has {}",
            item.len()
        ));
    }
    if item.contains('\0') {
        Err("an item has no NUL in it".to_owned())
    } else {
        Ok(item)
    }
}

/// Reads `any` or a list of codes with commas, and suggests the code that was meant.
pub(crate) fn parse_retry_on(text: &str) -> Result<RetryOn, String> {
    text.parse().map_err(|error: chassis::policy::PolicyError| {
        let stranger = text
            .split(',')
            .map(str::trim)
            .find(|name| code::parse_failure(name).is_err())
            .unwrap_or(text);
        let candidates = code::failure_names().chain(["any"]);
        let hint = did_you_mean(stranger, candidates);
        // Who is told the right name needs no list of all.
        sanitize_message(&if hint.is_empty() {
            error.to_string()
        } else {
            format!("`{}` is not a status code{hint}", sanitize(stranger))
        })
    })
}
