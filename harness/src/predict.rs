//! The arithmetic alone: a scenario becomes a prediction, and no process is started.
//!
//! Here: the counts and what they rest on. `predict/shares` has what policies cost and buy under a part of the failures,
//! `predict/rates` what a rate makes of it all. Start at [`predict_and_answer`].

mod rates;
mod shares;

use crate::{
    advice, plan,
    report::{
        self, Bottom, BudgetCeiling, Chance, Distribution, PredictedLink, PredictedService, Prediction, PredictionKind,
        ServiceKind, Share, Tries,
    },
    scenario::Scenario,
};
use chassis::config::PassedOn;
use model::Topology;
use std::fmt::Write as _;

/// The parts of its calls that the bottom service fails besides all of them, for what a policy costs and buys.
const PARTS: [f64; 3] = [0.1, 0.5, 0.9];

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
    let topology = plan::of(scenario);
    let predicted = model::predict(&topology, model::Draws::Forecast);
    let is_service = |name: &str| scenario.chain.services.iter().any(|service| service.name == name);
    let suggestions = advice::suggestions(scenario);
    let rate = scenario.load.rate;
    // Where limits act, few requests are no traffic.
    let many = rate.map(|_| rates::plan(&topology)).filter(|many| *many != topology);
    let many = many.map(|many| model::predict(&many, model::Draws::Forecast));
    let rated = many.as_ref().unwrap_or(&predicted);
    let distributions = distributions(&topology, &predicted);
    let services = predicted.services.iter().zip(&rated.services).zip(distributions);
    let services = services.map(|((service, rated_service), distribution)| PredictedService {
        service: service.name.clone(),
        kind: if is_service(&service.name) {
            ServiceKind::Service
        } else {
            ServiceKind::Sidecar
        },
        predicted: (&service.received).into(),
        per_second: rate.and_then(|rate| rates::per_second(&rated_service.received, rate, rated.requests)),
        distribution,
    });
    let services: Vec<PredictedService> = services.collect();
    let links = predicted.links.iter().map(|link| PredictedLink {
        from: link.from.clone(),
        to: link.to.clone(),
        sent: (&link.sent).into(),
    });
    let per_request = &predicted.per_request;
    let shares = shares::of(scenario, &topology, &suggestions);
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
        notes: notes(scenario, &predicted, &services, shares.as_deref(), has_budget),
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
            still_fails: per_request.still_fails,
        },
        tries_per_call: tries(scenario),
        formula: model::formula(&topology),
        changes: suggestions.iter().map(|row| row.told(scenario)).collect(),
        shares: shares.unwrap_or_default(),
        budget,
        rate,
        rate_requests: rate.map(|_| rated.requests),
        capacity: rate
            .zip(questions.capacity)
            .map(|(rate, most)| rates::capacity(&topology, rate, most)),
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

/// How often how many arrive at each service; nothing where nothing is left to chance.
fn distributions(topology: &Topology, predicted: &model::Prediction) -> Vec<Option<Distribution>> {
    let is_drawn = |service: &model::ServicePrediction| service.received.kind == model::Kind::Statistical;
    if !predicted.services.iter().any(is_drawn) {
        return vec![None; predicted.services.len()];
    }
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

fn budget(topology: &Topology, percent: f64) -> BudgetCeiling {
    let model::Ceiling { layers, bottom } = model::ceiling(topology, percent);
    BudgetCeiling {
        percent,
        layers,
        bottom,
    }
}

/// What the figures rest on. `shares` and `has_budget` say which figures there are besides the counts.
fn notes(
    scenario: &Scenario,
    predicted: &model::Prediction,
    services: &[PredictedService],
    shares: Result<&[Share], &String>,
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
    let is_shown = |row: &Share| row.failing < 1.0 && row.mean.is_some();
    if (is_drawn && has_mean) || shares.is_ok_and(|shares| shares.iter().any(is_shown)) {
        notes.push(
            "The shares assume independent failures; real ones come in runs, so read them as the best case.".to_owned(),
        );
    }
    match shares {
        Ok(shares) => {
            let bottom = services.last().map_or("", |row| &row.service);
            notes.extend(shares::note(bottom, shares));
        }
        Err(why) => notes.push(why.clone()),
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
                "The fault of {} sits in {caller}, {place} its retry loop: what it fails never arrives.",
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
    use crate::{report::PerSecond, scenario::Overrides};

    pub(super) fn of(source: &str, change: impl FnOnce(&mut Overrides)) -> Prediction {
        asked(source, change, &Questions::default())
    }

    pub(super) fn asked(source: &str, change: impl FnOnce(&mut Overrides), questions: &Questions) -> Prediction {
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
    fn a_rate_a_budget_and_a_capacity_are_answered_and_repeated() {
        let questions = Questions {
            budget: Some(20.0),
            capacity: Some(1_080.5),
        };
        let all = asked("per-hop", |flags| flags.rate = Some(40.0), &questions);
        assert!(
            all.command.ends_with("--rate 40 --budget 20 --capacity 1080.5"),
            "{}",
            all.command
        );
        let per_second: Vec<_> = all.services.iter().filter_map(|row| row.per_second).collect();
        let exactly = |calls| PerSecond { min: calls, max: calls };
        assert_eq!(per_second, [40.0, 120.0, 360.0, 1_080.0].map(exactly));
        let ceiling = all.budget.unwrap();
        assert_eq!(ceiling.layers, 3);
        assert!((ceiling.bottom - 1.728).abs() < 1e-9);
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
