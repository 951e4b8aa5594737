//! From what the services say of themselves to what the model understands: the only bridge between the two vocabularies.

use crate::scenario::{Load, Scenario};
use chassis::{
    config::{Config, OnFailure, PassedOn, TransportCodes},
    fault::Scope,
    policy::{Budget, Commit, Jitter, Policy, RetryOn},
};
use std::time::Duration;

/// The topology of a chain: the client's configuration, then those of the services from the top to the bottom.
pub fn topology(client: &Config, services: &[Config], load: &Load) -> model::Topology {
    topology_from(client, services, load, 1)
}

/// The same for requests that are numbered from `first` on.
pub fn topology_from(client: &Config, services: &[Config], load: &Load, first: u64) -> model::Topology {
    let above = std::iter::once(client).chain(services);
    model::Topology {
        callers: above.zip(services).map(|(caller, _)| self::caller(caller)).collect(),
        services: services.iter().map(service).collect(),
        load: model::Load {
            requests: load.requests,
            first_request: first,
            concurrency: load.concurrency.into(),
            seed: load.seed,
            deadline_us: load.deadline.map(micros),
            cancel_after_us: load.cancel_after.map(micros),
            interval_us: load.rate.map(|rate| micros(Duration::from_secs_f64(1.0 / rate))),
            invalid_item: load.item.is_empty(),
        },
    }
}

fn caller(config: &Config) -> model::Caller {
    model::Caller {
        name: config.service.clone(),
        attempts: config.retry.attempts,
        retry_on: match &config.retry.retry_on {
            RetryOn::Any => model::RetryOn::Any,
            RetryOn::Codes(codes) => model::RetryOn::Codes(codes.iter().map(|code| self::code(*code)).collect()),
        },
        policy: policy(&config.retry),
        client_fault: config.client_fault.map(|client| model::fault::ClientFault {
            fault: fault(&client.fault),
            inside: client.inside,
        }),
        raw_codes: config.transport_codes == TransportCodes::Raw,
    }
}

fn service(config: &Config) -> model::Service {
    model::Service {
        name: config.service.clone(),
        fault: fault(&config.fault),
        on_failure: match config.on_failure {
            OnFailure::Pass => None,
            OnFailure::Answer(answer) => Some(code(answer)),
        },
        passes_on: match config.deadline {
            PassedOn::Pass => model::PassesOn::Rest,
            PassedOn::Drop => model::PassesOn::Nothing,
            PassedOn::AtMost(most) => model::PassesOn::AtMost(micros(most)),
        },
        detached: config.detached,
    }
}

/// A fault as its text says: the model reads it by rules of its own.
fn fault(fault: &chassis::fault::Fault) -> model::Fault {
    let read = fault.to_string().parse();
    read.expect("the model reads every fault that is written")
}

fn policy(policy: &Policy) -> model::Policy {
    model::Policy {
        backoff: policy.backoff.map(|backoff| {
            let (least, most) = match backoff.jitter {
                Jitter::None => (1.0, 1.0),
                Jitter::PlusMinus20 => (0.8, 1.2),
                Jitter::Full => (0.0, 1.0),
            };
            model::Backoff {
                initial_us: micros(backoff.initial),
                multiplier: backoff.multiplier,
                max_us: micros(backoff.max),
                least,
                most,
            }
        }),
        attempt_timeout_us: policy.attempt_timeout.map(micros),
        commits_late: policy.commit == Commit::Message,
        ignores_pushback: !policy.pushback,
        throttle: policy.throttle.map(|throttle| model::Throttle {
            max_milli: throttle.max_milli.into(),
            ratio_milli: throttle.ratio_milli.into(),
        }),
        budget: policy.budget.map(|budget| match budget {
            Budget::InFlight {
                percent_milli,
                min_concurrency,
            } => model::Budget::InFlight {
                percent_milli: percent_milli.into(),
                min_concurrency: min_concurrency.into(),
            },
            Budget::Window {
                ratio_milli,
                min_per_second,
                ttl,
            } => model::Budget::Window {
                ratio_milli: ratio_milli.into(),
                reserve_milli: micros(ttl).saturating_mul(min_per_second.into()) / 1_000,
                ttl_us: micros(ttl),
            },
        }),
        hedge_us: policy.hedge.map(micros),
        only_first_tries: policy.only_first_tries,
    }
}

/// Whole microseconds.
fn micros(duration: Duration) -> u64 {
    chassis::call::micros(duration)
}

/// A configuration as it will act on what comes next, where so many arrivals have come under it before: what
/// `scope=process` counts goes on.
pub fn as_it_stands(mut config: Config, seen: u64) -> Config {
    let delay = config.fault.delay.as_mut().map(|delay| &mut delay.when);
    for when in std::iter::once(&mut config.fault.when).chain(delay) {
        if when.scope == Scope::Process
            && let Some(first) = &mut when.first
        {
            *first = first.saturating_sub(seen);
        }
    }
    config
}

/// A status code by its number.
pub fn code(code: chassis::code::Code) -> model::Code {
    model::Code(code as i32)
}

/// Refuses a scenario whose counts the model cannot know.
///
/// # Errors
/// As [`check_waits`].
pub fn check(scenario: &Scenario) -> Result<(), String> {
    let mut services = scenario.configs();
    let client = services.remove(0);
    let forecast = model::predict(&topology(&client, &services, &scenario.load), model::Draws::Forecast);
    check_waits(&client, &services, &scenario.load, &forecast)
}

/// Refuses back-offs that a request's deadline may cut short: the model's clock knows no waits, so its counts would not be
/// what arrives.
///
/// # Errors
/// A sentence with both times and the way on.
pub fn check_waits(
    client: &Config,
    services: &[Config],
    load: &Load,
    forecast: &model::Prediction,
) -> Result<(), String> {
    let Some(deadline) = load.deadline else { return Ok(()) };
    let sent = forecast
        .links
        .iter()
        .fold(model::Count::ZERO, |sum, link| sum + link.sent.max);
    let once = model::Count::from(load.requests.saturating_mul(services.len() as u64));
    let nobody_retries = sent <= once;
    let longest = std::iter::once(client)
        .chain(services)
        .rev()
        .fold(0.0, |below, caller| waits(caller, below));
    if nobody_retries || longest <= deadline.as_secs_f64() {
        return Ok(());
    }
    Err(format!(
        "the back-offs of one request may take {longest:.1} s in all, and its deadline is {}: it would be cut short; shorten \
         the back-offs, or give it all the time it takes with --deadline none",
        humantime::format_duration(deadline)
    ))
}

/// Seconds that one call of this caller may wait at most, when each attempt waits `below` further down.
fn waits(caller: &Config, below: f64) -> f64 {
    let attempts = caller.retry.attempts;
    let own = |retry| {
        caller
            .retry
            .backoff
            .map_or(0.0, |backoff| backoff.wait(retry, 1.0).as_secs_f64())
    };
    f64::from(attempts) * below + (1..attempts).map(own).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chassis::policy::{Backoff, Jitter, Policy};
    use std::time::Duration;

    fn caller(attempts: u32, backoff: Option<Backoff>) -> Config {
        Config {
            retry: Policy {
                attempts,
                backoff,
                ..Policy::default()
            },
            ..Config::named("caller")
        }
    }

    #[test]
    fn waits_are_refused_on_a_closed_port_too_and_only_where_somebody_retries() {
        let check = |flags: &[&str]| {
            let words = ["harness", "predict"].iter().chain(flags).map(std::ffi::OsString::from);
            match crate::cli::parse(words) {
                Ok(crate::cli::Command::Predict(crate::cli::Predict {
                    subject: crate::cli::Subject::Own { scenario, .. },
                    ..
                })) => super::check(&scenario),
                other => panic!("{other:?}"),
            }
        };
        let backoff = "retry.backoff={ initial = \"6s\", multiplier = 1, max = \"6s\", jitter = \"none\" }";
        for line in ["web x3 > db refuse", "web > api x3 > db refuse", "web x3 > db down"] {
            assert!(
                check(&[line, "--set", backoff])
                    .unwrap_err()
                    .contains("--deadline none"),
                "{line}"
            );
        }
        for line in ["web x3 > db", "web > db down", "web x2 > db down"] {
            assert_eq!(check(&[line, "--set", backoff]), Ok(()), "{line}");
        }
    }

    #[test]
    fn nested_back_offs_add_up() {
        let (initial, max) = (Duration::from_millis(600), Duration::from_secs(5));
        let backoff = Some(Backoff {
            initial,
            multiplier: 2.0,
            max,
            jitter: Jitter::None,
        });
        // 0.6 + 1.2, and three times that below two waits of the same kind above.
        assert!((waits(&caller(3, backoff), 0.0) - 1.8).abs() < 1e-9);
        assert!((waits(&caller(3, backoff), 1.8) - (3.0 * 1.8 + 1.8)).abs() < 1e-9);
        assert!(waits(&caller(3, None), 0.0).abs() < 1e-9);
    }
}
