//! From what the services say of themselves to what the model understands: the only bridge between the two vocabularies.

use crate::scenario::{Load, Scenario};
use chassis::{
    config::{Config, FanOut, Layer, OnFailure, PassedOn, TransportCodes},
    fault::Scope,
    policy::{Budget, Commit, Jitter, Policy, RetryOn},
};
use std::time::Duration;

/// The topology of a scenario: what the model is asked about it before anything runs.
pub fn of(scenario: &Scenario) -> model::Topology {
    let configs = scenario.configs();
    topology(&configs[0], &configs[1..], &scenario.load)
}

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
        layer: match config.layer {
            Layer::Service | Layer::Undeclared => model::Layer::Code,
            Layer::Proxy => model::Layer::Proxy,
            Layer::Envoy => model::Layer::Envoy,
        },
        attempts: config.retry.attempts,
        retry_on: match &config.retry.retry_on {
            RetryOn::Any => model::RetryOn::Any,
            RetryOn::Codes(codes) => model::RetryOn::Codes(codes.iter().map(|code| self::code(*code)).collect()),
        },
        answers_only: !config.retry.connect_failure,
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
        calls: config.calls,
        fan_out: match config.fan_out {
            FanOut::Sequence => model::FanOut::Sequence,
            FanOut::Parallel => model::FanOut::Parallel,
        },
    }
}

/// A fault as its text says: the model reads it by rules of its own.
fn fault(fault: &chassis::fault::Fault) -> model::Fault {
    // Most services work, and a prediction of many changes asks for each of them many times.
    if *fault == chassis::fault::Fault::NONE {
        return model::Fault::NONE;
    }
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

#[cfg(test)]
mod tests {
    use model::fault::{Cut, Kind};

    #[test]
    fn the_model_reads_what_a_service_says_of_its_fault() {
        let read = |text: &str| super::fault(&text.parse().expect("a fault"));
        assert_eq!(read("down"), model::Fault::DOWN);
        let slow = read("delay:ms=20,jitter=5,first=3+fail:code=NOT_FOUND,at=after,p=0.25,first=1,scope=process");
        let delay = slow.delay.expect("a delay");
        assert_eq!((delay.ms, delay.jitter_ms, delay.when.first), (20, 5, Some(3)));
        assert_eq!(
            (slow.when.first, slow.when.p, slow.when.per_process),
            (Some(1), Some(0.25), true)
        );
        let answer = model::fault::Fail {
            code: model::Code(5),
            after: true,
            ..model::fault::Fail::DOWN
        };
        assert_eq!(slow.kind, Kind::Fail(answer));
        for (text, kind) in [
            ("none", Kind::None),
            ("hang:first=1", Kind::Hang),
            ("refuse", Kind::Refuse),
            ("reset", Kind::Cut(Cut::Connection)),
            (
                "reset:of=stream,code=CANCEL",
                Kind::Cut(Cut::Stream(model::Code::CANCELLED)),
            ),
            ("goaway", Kind::Cut(Cut::GoAway)),
        ] {
            assert_eq!(read(text).kind, kind, "{text}");
        }
        let overload = Kind::Overload {
            capacity: 3,
            code: model::Code::RESOURCE_EXHAUSTED,
        };
        assert_eq!(read("overload:capacity=3").kind, overload);
        for (text, code) in [("http:status=503", 14), ("http:status=500", 2), ("http:status=404", 12)] {
            let answer = model::fault::Fail {
                code: model::Code(code),
                ..model::fault::Fail::DOWN
            };
            assert_eq!(read(text).kind, Kind::Fail(answer), "{text}");
        }
    }
}
