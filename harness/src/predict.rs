//! The arithmetic alone: a scenario becomes a prediction, and no process is started.

use crate::{
    chain_line::proxy_name,
    plan,
    report::{self, Bottom, Change, PredictedService, Prediction, ServiceKind, Tries},
    scenario::Scenario,
};
use chassis::fault::{Fault, Scope};

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
        services: services.collect(),
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
        changes: model::changes(&topology)
            .into_iter()
            .map(|change| self::change(change, &retrying))
            .collect(),
        notes: notes(scenario),
        seed: scenario.load.seed,
    }
}

fn tries(scenario: &Scenario) -> Vec<Tries> {
    let services = &scenario.chain.services;
    let callers = services.split_last().map_or(&[][..], |(_, callers)| callers);
    let client = std::iter::once((crate::chain_line::CLIENT, &scenario.chain.client));
    let callers = client.chain(callers.iter().map(|service| (service.name.as_str(), &service.caller)));
    let rows = callers.map(|(name, caller)| {
        let (code, proxy) = (caller.retry.attempts, caller.proxy_attempts.0);
        Tries {
            caller: name.to_owned(),
            code,
            proxy,
            tries: u64::from(code) * u64::from(proxy),
        }
    });
    rows.collect()
}

fn change(change: model::Change, retrying: &[String]) -> Change {
    let others = |caller: &str| {
        retrying
            .iter()
            .filter(|name| *name != caller)
            .cloned()
            .collect::<Vec<_>>()
    };
    let (text, edited, gives_up) = match change.kind {
        model::ChangeKind::OneOwner { caller } => (format!("retry at {caller} only"), others(&caller), others(&caller)),
        model::ChangeKind::AttemptsToOne { caller } => {
            (format!("no retries at {caller}"), vec![caller.clone()], vec![caller])
        }
    };
    Change {
        change: text,
        edits: edits(&edited),
        bottom: change.bottom.into(),
        gives_up: format!(
            "retries of failures that only {} {}",
            listed(&gives_up),
            if gives_up.len() == 1 { "sees" } else { "see" }
        ),
    }
}

/// How many services, proxies and clients are edited.
fn edits(edited: &[String]) -> String {
    let is_proxy = |name: &&String| name.ends_with(&proxy_name(""));
    let proxies = edited.iter().filter(is_proxy).count();
    let clients = edited.iter().filter(|name| *name == crate::chain_line::CLIENT).count();
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

fn notes(scenario: &Scenario) -> Vec<String> {
    let faults: Vec<_> = scenario.chain.services.iter().map(|service| service.fault).collect();
    let drawn = |fault: &Fault| matches!(fault, Fault::Fail(fail) if fail.p.is_some());
    let shared = |fault: &Fault| matches!(fault, Fault::Fail(fail) if fail.scope == Scope::Process);
    let mut notes = Vec::new();
    if faults.iter().any(drawn) {
        notes.push(
            "The shares assume independent failures; real ones come in runs, so read them as the best case.".to_owned(),
        );
    } else {
        notes.push("Exact: nothing here is left to chance.".to_owned());
    }
    if faults.iter().any(shared) && scenario.load.concurrency > 1 {
        notes.push(
            "Requests at the same time share the first failures; their order decides, so these are bounds.".to_owned(),
        );
    }
    if faults.contains(&Fault::Refuse) {
        notes.push(
            "A closed port receives nothing: the attempts are sent, and counted only where they are sent.".to_owned(),
        );
    }
    if let Some(deadline) = scenario.load.deadline {
        let deadline = humantime::format_duration(deadline);
        notes.push(format!(
            "As if no request needs longer than its deadline of {deadline}."
        ));
    }
    notes
}
