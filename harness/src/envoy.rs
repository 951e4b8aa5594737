//! Real Envoys in the place of our own proxies: what of a policy they can express, and how it is written for them.

use chassis::policy::{Backoff, Jitter, Policy};
use std::time::Duration;

/// The shortest wait before a retry that an Envoy can be told.
const SHORTEST: Duration = Duration::from_millis(1);

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

/// Whether an Envoy can follow a policy; otherwise what it cannot, in words, and the way on.
///
/// # Errors
/// One sentence that names the key.
pub fn check(policy: &Policy) -> Result<(), String> {
    let _ = policy;
    Ok(())
}
