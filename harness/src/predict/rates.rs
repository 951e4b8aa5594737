//! What a rate makes of the counts, and whether the bottom service recovers by itself. Both rest on a prediction of the whole plan,
//! so that throttles and budgets are in them.

use super::PARTS;
use crate::report::{Capacity, PerSecond};
use model::{Count, Draws, Predicted, Topology};

/// Requests that throttles and budgets need before they show what they do to a steady traffic.
const ENOUGH: u64 = 100;

/// A plan with enough requests for an average.
pub(super) fn plan(topology: &Topology) -> Topology {
    let mut plan = topology.clone();
    if plan.is_limited() {
        plan.load.requests = plan.load.requests.max(ENOUGH);
    }
    plan
}

/// A total over so many requests, per second; `None` beyond counting.
pub(super) fn per_second(total: &Predicted, rate: f64, requests: u64) -> Option<PerSecond> {
    let of = |count: f64| count * rate / requests.max(1) as f64;
    let (min, max) = match total.mean {
        Some(mean) => (mean, mean),
        None => (total.min.as_f64()?, total.max.as_f64()?),
    };
    Some(PerSecond {
        min: of(min),
        max: of(max),
    })
}

/// Whether retries of calls that fail keep the bottom service down once what made it fail is over: they do where what is
/// offered, times the attempts, is more than it can answer (Bronson and others, `HotOS` 2021). Where some of the calls fail may
/// cost more than where all of them do, since a sequence of calls goes on after an answer.
pub(super) fn capacity(topology: &Topology, rate: f64, capacity: f64) -> Capacity {
    let down = plan(&model::outage(topology, 1.0));
    let predicted = model::predict(&down, Draws::Forecast);
    let whole = predicted.services.last().map(|bottom| &bottom.received);
    let mut failing = 1.0;
    let mut load = whole.and_then(|total| per_second(total, rate, predicted.requests));
    // One request alone says nothing of limits; beyond counting nothing is more.
    if let Some(load) = load.as_mut().filter(|_| !topology.is_limited()) {
        for part in PARTS {
            let mean = model::one_request(&model::outage(topology, part)).mean;
            let Some(calls) = mean.map(|mean| mean * rate).filter(|calls| *calls > load.max) else {
                continue;
            };
            (failing, *load) = (part, PerSecond { min: calls, max: calls });
        }
    }
    let offered = Count::as_f64(model::without_retries(topology)).map(|calls| calls * rate);
    let keeps_up = offered.is_some_and(|offered| offered < capacity);
    let recovers = match load {
        Some(load) if keeps_up && load.max < capacity => Some(true),
        Some(load) if keeps_up && load.min < capacity => None,
        _ => Some(false),
    };
    Capacity {
        capacity,
        offered,
        failing,
        load,
        recovers,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::asked;
    use super::super::{Prediction, Questions};
    use super::*;
    use crate::scenario::Overrides;

    fn rated(source: &str, rate: f64, capacity: f64, change: impl FnOnce(&mut Overrides)) -> Prediction {
        let questions = Questions {
            capacity: Some(capacity),
            ..Questions::default()
        };
        let change = |flags: &mut Overrides| {
            flags.rate = Some(rate);
            change(flags);
        };
        asked(source, change, &questions)
    }

    fn capacity(source: &str, rate: f64, capacity: f64, change: impl FnOnce(&mut Overrides)) -> Capacity {
        rated(source, rate, capacity, change).capacity.unwrap()
    }

    fn set(flags: &mut Overrides, keys: &[&str]) {
        flags.set = keys.iter().map(|key| (*key).to_owned()).collect();
    }

    /// Least and most, rounded to whole calls.
    fn rounded(load: Option<PerSecond>) -> Option<(f64, f64)> {
        load.map(|load| (load.min.round(), load.max.round()))
    }

    #[test]
    fn a_rate_times_the_attempts_stands_against_what_can_be_answered() {
        let says = |rate, most| {
            let capacity = capacity("per-hop", rate, most, |_| ());
            (capacity.keeps_up(), capacity.recovers)
        };
        // 40 x 27 (reference, section 10).
        assert_eq!(says(40.0, 1_080.5), (true, Some(true)));
        assert_eq!(says(40.0, 1_080.0), (true, Some(false)));
        assert_eq!(says(40.0, 40.0), (false, Some(false)));
    }

    #[test]
    fn figures_per_second_are_those_of_the_plan_where_limits_act() {
        let budget = |flags: &mut Overrides| {
            set(flags, &["retry.budget={kind=\"window\"}"]);
            flags.requests = Some(400);
        };
        let plan = rated("gw x2 > orders x3 > stock x4 > postgres down", 40.0, 500.0, budget);
        let total = &plan.services[3].predicted;
        let load = plan.capacity.unwrap().load.unwrap();
        assert!((load.max - total.max.about() / 10.0).abs() < 1e-9, "{load:?} {total:?}");
        assert!((load.min - total.min.about() / 10.0).abs() < 1e-9, "{load:?} {total:?}");
        assert_eq!(plan.services[3].per_second, Some(load));
        assert_eq!(
            (plan.capacity.unwrap().recovers, plan.rate_requests),
            (Some(true), Some(400))
        );
        let between = rated("gw x2 > orders x3 > stock x4 > postgres down", 40.0, 100.0, budget);
        assert_eq!(between.capacity.unwrap().recovers, None);
    }

    #[test]
    fn limits_are_asked_about_enough_requests() {
        let plan = |requests| rated("budget-window", 40.0, 60.0, |flags| flags.requests = Some(requests));
        let few = plan(1);
        assert_eq!(few.rate_requests, Some(100));
        // 100 requests let 20 retries pass, 120 calls 24, 144 calls 28.
        assert_eq!(rounded(few.capacity.unwrap().load), Some((69.0, 69.0)));
        assert_eq!(few.services[3].per_second, few.capacity.unwrap().load);
        assert_eq!(plan(100).capacity, few.capacity);
        assert_eq!(rated("per-hop", 40.0, 60.0, |_| ()).rate_requests, Some(1));
    }

    #[test]
    fn an_outage_of_the_bottom_is_asked_about_whatever_the_faults_are() {
        let load = |fault: &str| {
            let (service, fault) = fault.split_once('=').unwrap();
            let service = Some(service.to_owned());
            let faults = vec![(service, fault.parse().unwrap())];
            rounded(capacity("web x3 > api x3 > db", 40.0, 500.0, |flags| flags.faults = faults).load)
        };
        for fault in [
            "db=down",
            "db=none",
            "db=fail:p=0.5",
            "db=refuse",
            "api=down",
            "db=fail:side=client@api",
        ] {
            assert_eq!(load(fault), Some((360.0, 360.0)), "{fault}");
        }
        // What nobody tries again is not tried again in an outage either.
        assert_eq!(load("db=fail:code=NOT_FOUND"), Some((40.0, 40.0)));
    }

    #[test]
    fn calls_that_are_no_retries_count_before_the_first_retry() {
        let fan = |fan_out: &str, most: f64| {
            let keys = ["services.web.calls=3", &format!("services.web.fan_out=\"{fan_out}\"")];
            capacity("web > db", 40.0, most, |flags| set(flags, &keys))
        };
        for fan_out in ["parallel", "sequence"] {
            assert_eq!(fan(fan_out, 100.0).offered, Some(120.0));
            assert!(!fan(fan_out, 120.0).keeps_up() && fan(fan_out, 121.0).keeps_up());
        }
    }

    #[test]
    fn the_share_of_failures_that_costs_most_is_named() {
        let fan = |most| {
            capacity("web x4 > api x6 > db down", 40.0, most, |flags| {
                set(flags, &["services.api.calls=3"]);
            })
        };
        let found = fan(1_000.0);
        assert_eq!((found.failing, found.recovers), (0.9, Some(false)));
        assert!(found.load.unwrap().max > 960.0, "{found:?}");
        let plain = capacity("web x4 > db down", 40.0, 1.0, |_| ()).failing;
        assert!((plain - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_beyond_counting_has_no_figure() {
        let beyond = rated("per-hop", 1.0, 5.0, |flags| {
            flags.depth = Some(12);
            flags.attempts = Some(100);
            flags.sidecar_attempts = Some(100);
        });
        let capacity = beyond.capacity.unwrap();
        assert_eq!((capacity.load, capacity.recovers), (None, Some(false)));
        assert!(capacity.keeps_up());
        assert_eq!(beyond.services.last().unwrap().per_second, None);
    }
}
