//! Real Envoys in the place of our own proxies: what of a policy they can express, how it is written for them (`config`), how
//! one is started and asked (`process`), and what its statistics say (`statistics`).
//!
//! Sources: Envoy's `route_components.proto` and `circuit_breaker.proto`, and its router's documentation; what was measured
//! with Envoy 1.40.

mod config;
mod process;
mod statistics;

pub use process::{Envoy, EnvoyError, find, run_tied};
pub use statistics::Statistics;

use chassis::{
    code::{self, Code},
    policy::{Backoff, Budget, Commit, Jitter, Policy, RetryOn},
};
use std::time::Duration;

/// The shortest wait before a retry that an Envoy can be told.
const SHORTEST: Duration = Duration::from_millis(1);

/// The codes that it has words for. It looks for them in the headers alone.
const WORDS: [(Code, &str); 5] = [
    (Code::Cancelled, "cancelled"),
    (Code::DeadlineExceeded, "deadline-exceeded"),
    (Code::Internal, "internal"),
    (Code::ResourceExhausted, "resource-exhausted"),
    (Code::Unavailable, "unavailable"),
];

/// A policy as an Envoy follows it: it always waits before a retry, and knows nothing of a pushback.
pub fn policy(policy: &Policy) -> Policy {
    Policy {
        pushback: false,
        backoff: policy.backoff.or(Some(Backoff {
            initial: SHORTEST,
            multiplier: 2.0,
            max: SHORTEST,
            jitter: Jitter::Full,
        })),
        ..policy.clone()
    }
}

/// Whether an Envoy can follow a policy; otherwise what it does not know: the key, and what it has instead.
///
/// # Errors
/// These words.
pub fn check(policy: &Policy) -> Result<(), String> {
    let known = || WORDS.map(|(code, _)| code::name(code)).join(", ");
    match &policy.retry_on {
        RetryOn::Any => return Err(format!("retry_on = any (it retries on {})", known())),
        RetryOn::Codes(codes) => {
            if let Some(code) = codes.iter().find(|code| word(**code).is_none()) {
                return Err(format!("retry_on {} (it retries on {})", code::name(*code), known()));
            }
        }
    }
    if let Some(Backoff {
        initial,
        multiplier,
        max,
        jitter,
    }) = policy.backoff
    {
        let is_whole = |time: Duration| time.subsec_nanos().is_multiple_of(1_000_000) && time >= SHORTEST;
        if jitter != Jitter::Full || (multiplier - 2.0).abs() > f64::EPSILON {
            return Err(
                "such backoff (its own doubles and has full jitter: multiplier = 2.0, jitter = \"full\")".to_owned(),
            );
        }
        if !is_whole(initial) || !is_whole(max) || max < initial {
            return Err("such backoff (whole milliseconds from 1ms on, and max at least initial)".to_owned());
        }
    }
    let unknown = [
        (
            policy.commit != Commit::Headers,
            "commit = message (an answer commits with its headers)",
        ),
        (policy.throttle.is_some(), "throttle (it has a budget in_flight)"),
        (
            matches!(policy.budget, Some(Budget::Window { .. })),
            "budget of kind window (it has in_flight)",
        ),
        (policy.hedge.is_some(), "hedge"),
        (policy.only_first_tries, "only_first_tries"),
    ];
    match unknown.into_iter().find(|(is_set, _)| *is_set) {
        Some((_, what)) => Err(what.to_owned()),
        None => Ok(()),
    }
}

fn word(code: Code) -> Option<&'static str> {
    WORDS.iter().find(|(known, _)| *known == code).map(|(_, word)| *word)
}

/// What `retry_on` says for a policy, and the HTTP statuses that stand for its codes.
fn retry_on(policy: &Policy) -> (String, Vec<u16>) {
    let RetryOn::Codes(codes) = &policy.retry_on else {
        return (String::new(), Vec::new());
    };
    let mut words: Vec<_> = codes.iter().filter_map(|code| word(*code)).collect();
    let mut statuses = Vec::new();
    if codes.contains(&Code::Unavailable) {
        if policy.connect_failure {
            // `reset` alone covers a failed connection too; both are named for whoever reads the configuration.
            words.extend(["connect-failure", "reset"]);
        }
        statuses.extend([429, 502, 503, 504]);
    }
    if codes.contains(&Code::Internal) {
        statuses.extend([400, 431]);
    }
    if !statuses.is_empty() {
        words.push("retriable-status-codes");
    }
    (words.join(","), statuses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Policy)) -> Policy {
        let mut policy = Policy {
            attempts: 3,
            ..Policy::default()
        };
        change(&mut policy);
        policy
    }

    #[test]
    fn what_an_envoy_cannot_follow_is_named() {
        let second = Duration::from_secs(1);
        let backoff = |initial, max, jitter| Backoff {
            initial: Duration::from_micros(initial),
            multiplier: 2.0,
            max: Duration::from_micros(max),
            jitter,
        };
        for (named, policy) in [
            ("any", with(|policy| policy.retry_on = RetryOn::Any)),
            (
                "NOT_FOUND",
                with(|policy| policy.retry_on = RetryOn::Codes(vec![Code::Unavailable, Code::NotFound])),
            ),
            (
                "full",
                with(|policy| policy.backoff = Some(backoff(5_000, 9_000, Jitter::None))),
            ),
            (
                "1ms",
                with(|policy| policy.backoff = Some(backoff(500, 9_000, Jitter::Full))),
            ),
            (
                "at least",
                with(|policy| policy.backoff = Some(backoff(9_000, 5_000, Jitter::Full))),
            ),
            ("commit", with(|policy| policy.commit = Commit::Message)),
            ("window", with(|policy| policy.budget = Some(Budget::WINDOW))),
            ("hedge", with(|policy| policy.hedge = Some(second))),
            ("only_first_tries", with(|policy| policy.only_first_tries = true)),
        ] {
            let error = check(&policy).unwrap_err();
            assert!(error.contains(named), "{named}: {error}");
        }
        for policy in [
            with(|_| ()),
            with(|policy| policy.pushback = false),
            with(|policy| policy.budget = Some(Budget::IN_FLIGHT)),
            with(|policy| policy.backoff = Some(backoff(5_000, 5_000, Jitter::Full))),
            super::policy(&with(|_| ())),
        ] {
            assert_eq!(check(&policy), Ok(()));
        }
    }

    #[test]
    fn codes_and_failures_of_the_transport_become_its_words() {
        let words = |codes: &[Code], connect_failure| {
            retry_on(&with(|policy| {
                policy.retry_on = RetryOn::Codes(codes.to_vec());
                policy.connect_failure = connect_failure;
            }))
        };
        assert_eq!(
            words(&[Code::Unavailable], true),
            (
                "unavailable,connect-failure,reset,retriable-status-codes".to_owned(),
                vec![429, 502, 503, 504]
            )
        );
        assert_eq!(
            words(&[Code::Unavailable], false).0,
            "unavailable,retriable-status-codes"
        );
        assert_eq!(words(&[Code::Cancelled], true), ("cancelled".to_owned(), Vec::new()));
        assert_eq!(words(&[Code::Internal], true).1, [400, 431]);
    }
}
