//! The arithmetic alone: a scenario becomes a prediction, and no process is started.

use crate::{
    chain_line::CLIENT,
    plan,
    report::{
        self, Bottom, Change, PredictedLink, PredictedService, Prediction, PredictionKind, Scope, ServiceKind, Tries,
    },
    scenario::Scenario,
};
use chassis::config::PassedOn;

/// Predicts a scenario.
pub fn predict(scenario: &Scenario) -> Prediction {
    let configs = scenario.configs();
    let topology = plan::topology(&configs[0], &configs[1..], &scenario.load);
    let predicted = model::predict(&topology, model::Draws::Forecast);
    let is_service = |name: &str| scenario.chain.services.iter().any(|service| service.name == name);
    let services = predicted.services.iter().map(|service| PredictedService {
        service: service.name.clone(),
        kind: if is_service(&service.name) {
            ServiceKind::Service
        } else {
            ServiceKind::Sidecar
        },
        predicted: (&service.received).into(),
        per_second: None,
        distribution: None,
    });
    let services: Vec<PredictedService> = services.collect();
    let links = predicted.links.iter().map(|link| PredictedLink {
        from: link.from.clone(),
        to: link.to.clone(),
        sent: (&link.sent).into(),
    });
    let per_request = &predicted.per_request;
    let retrying: Vec<_> = topology
        .callers
        .iter()
        .filter(|caller| caller.attempts > 1)
        .map(|caller| caller.name.clone())
        .collect();
    Prediction {
        schema: report::PREDICTION_SCHEMA.to_owned(),
        command: scenario.repeat("predict"),
        chain: scenario.chain_line(),
        scenario: scenario.effective(),
        notes: notes(scenario, &predicted, &services),
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
            // A sum of nothing may be -0.0, which no reader wants to see.
            still_fails: per_request.still_fails.map(|chance| chance + 0.0),
        },
        tries_per_call: tries(scenario),
        formula: model::formula(&topology),
        changes: changes(&topology, &retrying, &|name| !is_service(name) && name != CLIENT),
        shares: Vec::new(),
        budget: None,
        rate: scenario.load.rate,
        capacity: None,
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

/// What each change leaves: the biggest cut first, among equal ones the fewest edits. Two names for one edit are one
/// change: where two callers retry, "only this one" is "not the other".
fn changes(topology: &model::Topology, retrying: &[String], is_proxy: &dyn Fn(&str) -> bool) -> Vec<Change> {
    let mut found: Vec<(report::Count, Vec<String>, Change)> = Vec::new();
    let mut changes = model::changes(topology);
    changes.sort_by_key(|change| !matches!(change.kind, model::ChangeKind::OneOwner { .. }));
    for change in changes {
        let (text, edited) = match change.kind {
            model::ChangeKind::OneOwner { caller } => {
                let others = retrying.iter().filter(|name| **name != caller).cloned();
                (format!("retry at {caller} only"), others.collect::<Vec<_>>())
            }
            model::ChangeKind::AttemptsToOne { caller } => (format!("no retries at {caller}"), vec![caller]),
        };
        if found.iter().any(|(_, known, _)| *known == edited) {
            continue;
        }
        let bottom = change.bottom.into();
        let change = Change {
            change: text,
            scope: if edited.len() == 1 {
                Scope::OneEdit
            } else {
                Scope::SeveralEdits
            },
            ceiling: None,
            command: String::new(),
            edits: edits(&edited, is_proxy),
            bottom,
            gives_up: format!(
                "retries of failures that only {} {}",
                listed(&edited),
                if edited.len() == 1 { "sees" } else { "see" }
            ),
        };
        found.push((bottom, edited, change));
    }
    found.sort_by_key(|(bottom, edited, _)| (*bottom, edited.len()));
    found.into_iter().map(|(_, _, change)| change).collect()
}

/// How many services, proxies and clients are edited.
fn edits(edited: &[String], is_proxy: &dyn Fn(&str) -> bool) -> String {
    let proxies = edited.iter().filter(|name| is_proxy(name)).count();
    let clients = edited.iter().filter(|name| *name == CLIENT).count();
    let kinds = [
        (clients, "client", "clients"),
        (edited.len() - proxies - clients, "service", "services"),
        (proxies, "proxy", "proxies"),
    ];
    let words = kinds.into_iter().filter(|(count, _, _)| *count > 0);
    let words = words.map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }));
    words.collect::<Vec<_>>().join(", ")
}

/// `a`, `a or b`, `a, b or c`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn notes(scenario: &Scenario, predicted: &model::Prediction, services: &[PredictedService]) -> Vec<String> {
    let faults: Vec<_> = scenario.chain.services.iter().map(|service| &service.fault).collect();
    let is_drawn = faults.iter().any(|fault| fault.fault.is_drawn());
    let is_shared = faults.iter().any(|fault| fault.fault.is_shared());
    let mut notes = crate::notes::limits(scenario, predicted);
    notes.extend(crate::notes::links(scenario));
    let certainty = crate::notes::certainty(scenario, predicted);
    if is_drawn && predicted.per_request.mean.is_none() {
        notes.push("What is drawn has no mean here; a run draws with its seed, and predicts one number.".to_owned());
    } else if is_drawn {
        notes.push(
            "The shares assume independent failures; real ones come in runs, so read them as the best case.".to_owned(),
        );
    } else if certainty.is_some() {
        notes.extend(certainty);
    } else if services.iter().all(|row| row.predicted.kind == PredictionKind::Exact) {
        notes.push("Exact: nothing here is left to chance.".to_owned());
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
        let mut overrides = Overrides::default();
        change(&mut overrides);
        predict(&Scenario::load(Some(source), &overrides).unwrap())
    }

    #[test]
    fn one_edit_is_one_change_and_fewer_edits_come_first() {
        let two = of("web x3 > api x4 > db down", |_| ()).changes;
        let rows: Vec<_> = two
            .iter()
            .map(|row| (row.change.as_str(), row.edits.as_str()))
            .collect();
        assert_eq!(
            rows,
            [("retry at web only", "1 service"), ("retry at api only", "1 service")]
        );
        assert_eq!(two[0].gives_up, "retries of failures that only api sees");

        // x9 against x3 x3: both leave 9, and one edit is less than two.
        let three = of("web x9 > api x3 > orders x3 > db down", |_| ()).changes;
        let nine: Vec<_> = three.iter().filter(|row| row.bottom == report::Count::Of(9)).collect();
        assert_eq!(nine[0].change, "no retries at web");
        assert_eq!(nine[1].change, "retry at web only");
    }

    #[test]
    fn the_tries_of_code_and_proxy_multiply_and_a_proxy_is_an_edit_of_its_own() {
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
        let edits = |change: &str| {
            let found = both.changes.iter().find(|row| row.change == change);
            found.map(|row| (row.edits.as_str(), row.bottom))
        };
        assert_eq!(
            edits("no retries at web-proxy"),
            Some(("1 proxy", report::Count::Of(9)))
        );
        assert_eq!(
            edits("retry at web only"),
            Some(("1 service, 1 proxy", report::Count::Of(3)))
        );
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
}
