//! The arithmetic alone: a scenario becomes a prediction, and no process is started.

use crate::{
    advice::{self, Suggestion},
    report::{
        self, Bottom, BudgetCeiling, Capacity, Chance, Distribution, PredictedLink, PredictedService, Prediction,
        PredictionKind, ServiceKind, Share, Tries,
    },
    scenario::{Load, Scenario},
};
use chassis::config::PassedOn;
use model::Topology;
use std::fmt::Write as _;

/// The shares of its calls that the bottom service fails, for what a policy costs and buys.
const FAILING: [f64; 4] = [0.1, 0.5, 0.9, 1.0];

/// What is asked besides the counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Questions {
    /// The ceiling of a budget of so many retries per hundred calls, from 0 to 100.
    pub budget: Option<f64>,
    /// Whether the bottom service recovers by itself, when it can answer so many calls per second. Wants a rate.
    pub capacity: Option<f64>,
}

/// Predicts a scenario.
pub fn predict(scenario: &Scenario) -> Prediction {
    predict_and_answer(scenario, &Questions::default())
}

/// Predicts a scenario and answers what is asked besides.
pub fn predict_and_answer(scenario: &Scenario, questions: &Questions) -> Prediction {
    let topology = advice::topology(scenario);
    let predicted = model::predict(&topology, model::Draws::Forecast);
    let is_service = |name: &str| scenario.chain.services.iter().any(|service| service.name == name);
    let suggestions = advice::suggestions(scenario);
    let distributions = distributions(&topology);
    let services = predicted.services.iter().zip(distributions);
    let services = services.map(|(service, distribution)| PredictedService {
        service: service.name.clone(),
        kind: if is_service(&service.name) {
            ServiceKind::Service
        } else {
            ServiceKind::Sidecar
        },
        predicted: (&service.received).into(),
        per_second: per_second(&service.received, &scenario.load),
        distribution,
    });
    let services: Vec<PredictedService> = services.collect();
    let links = predicted.links.iter().map(|link| PredictedLink {
        from: link.from.clone(),
        to: link.to.clone(),
        sent: (&link.sent).into(),
    });
    let per_request = &predicted.per_request;
    let shares = shares(scenario, &topology, &suggestions);
    let budget = questions.budget.map(|percent| budget(&topology, percent));
    let has_budget =
        budget.is_some_and(|budget| budget.layers > 0) || suggestions.iter().any(|row| row.edit.is_budget());
    let mut command = scenario.repeat("predict");
    for (flag, number) in [("--budget", questions.budget), ("--capacity", questions.capacity)] {
        if let Some(number) = number {
            let _ = write!(command, " {flag} {number}");
        }
    }
    Prediction {
        schema: report::PREDICTION_SCHEMA.to_owned(),
        command,
        chain: scenario.chain_line(),
        scenario: scenario.effective(),
        notes: notes(scenario, &predicted, &services, &shares, has_budget),
        services,
        links: links.collect(),
        bottom: Bottom {
            service: topology
                .services
                .last()
                .map(|service| service.name.clone())
                .unwrap_or_default(),
            worst: per_request.worst.into(),
            mean: per_request.mean,
            sd: per_request.sd,
            still_fails: per_request.still_fails.map(positive),
        },
        tries_per_call: tries(scenario),
        formula: model::formula(&topology),
        changes: suggestions.iter().map(|row| row.told(scenario)).collect(),
        shares,
        budget,
        rate: scenario.load.rate,
        capacity: scenario
            .load
            .rate
            .zip(questions.capacity)
            .map(|(rate, most)| capacity(&topology, rate, most)),
        seed: scenario.load.seed,
    }
}

fn tries(scenario: &Scenario) -> Vec<Tries> {
    let rows = scenario.chain.callers().map(|(name, caller)| {
        let (code, proxy) = (caller.retry.attempts, caller.proxy.attempts);
        Tries {
            caller: name.to_owned(),
            code,
            proxy,
            tries: u64::from(code) * u64::from(proxy),
        }
    });
    rows.collect()
}

/// What a policy costs and buys at each of [`FAILING`]: as it is, and with the owner that leaves least.
fn shares(scenario: &Scenario, topology: &Topology, suggestions: &[Suggestion]) -> Vec<Share> {
    if topology.callers.iter().all(|caller| caller.attempts <= 1) {
        return Vec::new();
    }
    let mut policies = vec![("as it is".to_owned(), topology.clone())];
    policies.extend(advice::best_owner(scenario, suggestions).map(|owner| {
        let name = owner.name(&scenario.chain);
        (name, advice::topology(&owner.apply(scenario)))
    }));
    let rows = policies.iter().flat_map(|(policy, topology)| {
        FAILING.map(|failing| {
            let one = model::one_request(&model::failing_share(topology, failing));
            Share {
                policy: policy.clone(),
                failing,
                mean: one.mean,
                sd: one.sd,
                still_fails: one.still_fails.map(positive),
            }
        })
    });
    rows.collect()
}

/// A sum of nothing may be -0.0, which no reader wants to see.
fn positive(chance: f64) -> f64 {
    chance + 0.0
}

/// How often how many arrive at each service.
fn distributions(topology: &Topology) -> Vec<Option<Distribution>> {
    let told = |of: model::Distribution| {
        let at = |share: f64| {
            of.quantile(share)
                .map_or(report::Count::Beyond, |count| report::Count::Of(count.into()))
        };
        let counts = of.counts().map(|counts| {
            let counts = counts.map(|(count, chance)| Chance {
                count: report::Count::Of(count.into()),
                chance,
            });
            counts.collect()
        });
        Distribution {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            counts: counts.unwrap_or_default(),
        }
    };
    let all = model::distributions(topology).into_iter();
    all.map(|of| of.map(told)).collect()
}

/// Arrivals per second of a total over the run.
fn per_second(total: &model::Predicted, load: &Load) -> Option<f64> {
    let total = total.mean.or(total.max.as_f64())?;
    Some(load.rate? * total / load.requests as f64)
}

fn budget(topology: &Topology, percent: f64) -> BudgetCeiling {
    let model::Ceiling { layers, bottom } = model::ceiling(topology, percent);
    BudgetCeiling {
        percent,
        layers,
        bottom,
    }
}

/// A number of a sentence: whole, or with one decimal.
fn figure(number: f64) -> String {
    if number < 1e15 {
        ((number * 10.0).round() / 10.0).to_string()
    } else {
        format!("{number:.1e}")
    }
}

/// Whether retries of calls that fail keep the bottom service down once what made it fail is over: they do where what is
/// offered, times the attempts, is more than it can answer (Bronson and others, `HotOS` 2021).
fn capacity(topology: &Topology, rate: f64, capacity: f64) -> Capacity {
    let down = model::worst(&model::failing_share(topology, 1.0));
    let load = down.as_f64().map_or(f64::MAX, |calls| calls * rate);
    let bottom = topology.services.last().map_or("", |bottom| &bottom.name);
    let [offered, calls, most] = [rate, load, capacity].map(figure);
    let text = if rate >= capacity {
        format!("Even without retries {bottom} cannot keep up: {offered} requests/s come, and it can answer {most}.")
    } else if load < capacity {
        format!(
            "Once it is back, {bottom} recovers by itself: at {offered} requests/s it gets {calls} calls/s while calls fail, and \
             can answer {most}."
        )
    } else {
        format!(
            "Once it is back, {bottom} may not recover by itself: {offered} requests/s have become {calls} calls/s, and it can \
             answer {most}."
        )
    };
    Capacity {
        capacity,
        load,
        recovers: load < capacity,
        text,
    }
}

/// What the figures rest on. `shares` and `has_budget` say which figures there are besides the counts.
fn notes(
    scenario: &Scenario,
    predicted: &model::Prediction,
    services: &[PredictedService],
    shares: &[Share],
    has_budget: bool,
) -> Vec<String> {
    let faults: Vec<_> = scenario.chain.services.iter().map(|service| &service.fault).collect();
    let is_drawn = faults.iter().any(|fault| fault.fault.is_drawn());
    let is_shared = faults.iter().any(|fault| fault.fault.is_shared());
    let mut notes = crate::notes::limits(scenario, predicted);
    notes.extend(crate::notes::links(scenario));
    let certainty = crate::notes::certainty(scenario, predicted);
    let has_mean = predicted.per_request.mean.is_some();
    if is_drawn {
        if !has_mean {
            notes
                .push("What is drawn has no mean here; a run draws with its seed, and predicts one number.".to_owned());
        }
    } else if certainty.is_some() {
        notes.extend(certainty);
    } else if services.iter().all(|row| row.predicted.kind == PredictionKind::Exact) {
        notes.push("Exact: nothing here is left to chance.".to_owned());
    }
    if (is_drawn && has_mean) || shares.iter().any(|row| row.failing < 1.0 && row.mean.is_some()) {
        notes.push(
            "The shares assume independent failures; real ones come in runs, so read them as the best case.".to_owned(),
        );
    }
    if has_budget {
        notes.push(
            "A budget is a ceiling under steady traffic: for one request alone, after quiet times, it does not bind."
                .to_owned(),
        );
    }
    let is_bounded = services.iter().any(|row| row.predicted.kind == PredictionKind::Bounds);
    let is_ordered = predicted.margin_us.is_none() && !predicted.is_floor_and_ceiling;
    if is_bounded && is_shared && is_ordered && scenario.load.concurrency > 1 {
        notes.push(
            "Requests at the same time share the first failures; their order decides, so these are bounds.".to_owned(),
        );
    }
    if faults.iter().any(|fault| fault.own().refuses()) {
        notes.push(
            "A closed port receives nothing: the attempts are sent, and counted only where they are sent.".to_owned(),
        );
    }
    for service in &scenario.chain.services {
        if let Some((caller, inside)) = &service.fault.side {
            let place = if *inside { "inside" } else { "outside" };
            notes.push(format!(
                "The fault of {} sits in {caller}, {place} its retry loop: what it fails is never sent.",
                service.name
            ));
        }
    }
    if let Some(deadline) = scenario.load.deadline.filter(|_| !takes_time(scenario)) {
        let deadline = humantime::format_duration(deadline);
        notes.push(format!(
            "As if no request needs longer than its deadline of {deadline}."
        ));
    }
    notes
}

/// Whether anything waits: times are then part of the plan.
fn takes_time(scenario: &Scenario) -> bool {
    let waits = scenario.chain.services.iter().any(|service| {
        let fault = &service.fault.fault;
        fault.delay.is_some() || fault.may_hang() || matches!(service.deadline, PassedOn::AtMost(_))
    });
    let limits = scenario.configs().iter().any(|config| {
        let policy = &config.retry;
        policy.backoff.is_some() || policy.attempt_timeout.is_some() || policy.hedge.is_some()
    });
    waits || limits || scenario.load.cancel_after.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Overrides;

    fn of(source: &str, change: impl FnOnce(&mut Overrides)) -> Prediction {
        asked(source, change, &Questions::default())
    }

    fn asked(source: &str, change: impl FnOnce(&mut Overrides), questions: &Questions) -> Prediction {
        let mut overrides = Overrides::default();
        change(&mut overrides);
        predict_and_answer(&Scenario::load(Some(source), &overrides).unwrap(), questions)
    }

    #[test]
    fn the_tries_of_code_and_proxy_multiply() {
        let both = of("web x3*3 > api x3 > db down", |flags| {
            flags.undeclared = vec![("api".to_owned(), 4)];
        });
        let tries: Vec<_> = both
            .tries_per_call
            .iter()
            .map(|row| (row.caller.as_str(), row.code, row.proxy, row.tries))
            .collect();
        assert_eq!(tries, [("client", 1, 1, 1), ("web", 3, 3, 9), ("api", 3, 1, 3)]);
        // Nobody declared the layer behind api: no row, no factor.
        let rows: Vec<_> = both
            .services
            .iter()
            .map(|row| (row.service.as_str(), row.kind))
            .collect();
        assert_eq!(
            rows,
            [
                ("web", ServiceKind::Service),
                ("web-proxy", ServiceKind::Sidecar),
                ("api", ServiceKind::Service),
                ("db", ServiceKind::Service)
            ]
        );
        assert_eq!(both.bottom.worst, report::Count::Of(27));
    }

    #[test]
    fn nothing_is_called_exact_beside_bounds() {
        let exact = |prediction: &Prediction| prediction.notes.iter().any(|note| note.starts_with("Exact"));
        assert!(exact(&of("per-hop", |_| ())));
        assert!(!exact(&of("flaky", |_| ())));
        let shared = of("per-hop", |flags| {
            flags.faults = vec![(None, "fail:first=20,scope=process".parse().unwrap())];
            flags.requests = Some(3);
            flags.concurrency = Some(3);
        });
        assert!(
            shared
                .services
                .iter()
                .any(|row| row.predicted.kind == PredictionKind::Bounds)
        );
        assert!(!exact(&shared));
    }

    #[test]
    fn a_fault_in_a_caller_is_told_with_its_place_and_waits_are_part_of_the_plan() {
        let says = |source: &str, text: &str| of(source, |_| ()).notes.iter().any(|note| note.contains(text));
        assert!(says("client-fault-outside", "sits in pricing, outside its retry loop"));
        assert!(says("client-fault-inside", "sits in pricing, inside its retry loop"));
        assert!(says("per-hop", "As if no request needs longer"));
        for timed in [
            "slow",
            "hang",
            "backoff",
            "cancelled",
            "attempt-timeout",
            "hedge-a-cheap-read",
        ] {
            assert!(!says(timed, "As if no request needs longer"), "{timed}");
        }
    }

    #[test]
    fn a_closed_port_still_has_a_link_that_carries_27() {
        let refused = of("refused", |_| ());
        assert_eq!(refused.links.last().unwrap().sent.max, report::Count::Of(27));
        assert_eq!(refused.services.last().unwrap().predicted.max, report::Count::Of(0));
    }

    #[test]
    fn what_a_policy_costs_stands_beside_what_it_buys() {
        let rows: Vec<_> = of("per-hop", |_| ())
            .shares
            .iter()
            .map(|row| {
                let mean = (row.mean.unwrap() * 1e3).round() / 1e3;
                (
                    row.policy.clone(),
                    row.failing,
                    mean,
                    format!("{:.1e}", row.still_fails.unwrap()),
                )
            })
            .collect();
        let row = |policy: &str, failing, mean, fails: &str| (policy.to_owned(), failing, mean, fails.to_owned());
        // The table of the reference, section 8.1, and p^3 beside it.
        let all = [
            row("as it is", 0.1, 1.111, "1.0e-27"),
            row("as it is", 0.5, 2.0, "7.5e-9"),
            row("as it is", 0.9, 9.419, "5.8e-2"),
            row("as it is", 1.0, 27.0, "1.0e0"),
            row("retry at frontend only", 0.1, 1.11, "1.0e-3"),
            row("retry at frontend only", 0.5, 1.75, "1.2e-1"),
            row("retry at frontend only", 0.9, 2.71, "7.3e-1"),
            row("retry at frontend only", 1.0, 3.0, "1.0e0"),
        ];
        assert_eq!(rows, all);
        assert_eq!(
            of("single-owner", |_| ()).shares.len(),
            4,
            "an owner is not compared with itself"
        );
        assert_eq!(of("web > db down", |_| ()).shares, []);
    }

    #[test]
    fn a_rate_a_budget_and_a_capacity_are_answered_and_repeated() {
        let rated = |rate: f64, capacity: f64| {
            let questions = Questions {
                budget: Some(20.0),
                capacity: Some(capacity),
            };
            asked("per-hop", |flags| flags.rate = Some(rate), &questions)
        };
        let all = rated(40.0, 1_080.5);
        assert!(
            all.command.ends_with("--rate 40 --budget 20 --capacity 1080.5"),
            "{}",
            all.command
        );
        let per_second: Vec<_> = all.services.iter().filter_map(|row| row.per_second).collect();
        assert_eq!(per_second, [40.0, 120.0, 360.0, 1_080.0]);
        let ceiling = all.budget.unwrap();
        assert_eq!(ceiling.layers, 3);
        assert!((ceiling.bottom - 1.728).abs() < 1e-9);
        // 40 x 27 against what it can answer (reference, section 10).
        let says = |rate, most| {
            let capacity = rated(rate, most).capacity.unwrap();
            (
                capacity.recovers,
                capacity.text.split(':').next().unwrap_or_default().to_owned(),
            )
        };
        let text = "Once it is back, inventory recovers by itself";
        assert_eq!(says(40.0, 1_080.5), (true, text.to_owned()));
        let text = "Once it is back, inventory may not recover by itself";
        assert_eq!(says(40.0, 1_080.0), (false, text.to_owned()));
        let text = "Even without retries inventory cannot keep up";
        assert_eq!(says(40.0, 40.0), (false, text.to_owned()));
        assert_eq!(of("per-hop", |_| ()).services[0].per_second, None);
    }

    #[test]
    fn most_requests_cause_few_calls_where_half_of_them_fail() {
        let half = of("per-hop", |flags| {
            flags.faults = vec![(None, "fail:p=0.5".parse().unwrap())];
        });
        let spread = half.services[3].distribution.as_ref().unwrap();
        let count = |count: u128| report::Count::Of(count);
        assert_eq!((spread.p50, spread.p90, spread.p99), (count(1), count(4), count(7)));
        // Trials until the first success: n calls with a chance of 2^-n.
        assert_eq!(spread.counts[2].count, count(3));
        assert!((spread.counts[2].chance - 0.125).abs() < 1e-12);
        assert!(of("per-hop", |_| ()).services[3].distribution.is_none());
    }
}
