//! The state of a running chain: what each service says, and what arrived under which settings.

use crate::{
    attach::Attach,
    lab::{Lab, LabError},
    report::{LiveCount, LiveGeneration, LiveLink, LiveService, Mixed, STATUS_SCHEMA, Status},
    scenario::{Scenario, duration},
    standing::{Service, Standing},
};
use futures_util::future::join_all;
use proto::lab::v1 as lab;
use std::collections::{BTreeMap, BTreeSet};

/// Reads the state. `attach` is what a flag said to find the chain.
pub async fn read(standing: &Standing, attach: Option<&Attach>) -> Result<Status, LabError> {
    let labs = standing.labs();
    // The records first: an arrival between the two readings is then in the totals alone, and counts as not mixed.
    let records: Result<Vec<_>, _> = join_all(labs.iter().map(Lab::records)).await.into_iter().collect();
    let totals: Result<Vec<_>, _> = join_all(labs.iter().map(Lab::totals)).await.into_iter().collect();
    Ok(status(standing, attach, &totals?, &records?))
}

fn status(
    standing: &Standing,
    attach: Option<&Attach>,
    totals: &[lab::Totals],
    records: &[Vec<lab::Record>],
) -> Status {
    let mut command = "status".to_owned();
    if let Some(attach) = attach {
        command = format!("{command} {}", attach.flag());
    }
    let chain =
        Scenario::standing(&standing.configs()).map_or_else(|_| String::new(), |scenario| scenario.chain_line());
    let mixed = mixed(records);
    let rows = standing.services.iter().zip(totals);
    Status {
        schema: STATUS_SCHEMA.to_owned(),
        command,
        chain,
        generation: standing.generation(),
        services: rows.map(|(service, totals)| self::service(service, totals)).collect(),
        links: links(standing, totals),
        generations: generations(standing, totals, records, &mixed),
        mixed: Mixed {
            operations: mixed.len() as u64,
            complete: totals.iter().all(|totals| totals.records_lost == 0),
            services: standing
                .services
                .iter()
                .zip(records)
                .map(|(service, records)| count(&service.name, records, |record| mixed.contains(&record.request)))
                .collect(),
        },
    }
}

fn service(service: &Service, totals: &lab::Totals) -> LiveService {
    let config = &service.described.config;
    let calls = config.callee.is_some();
    let policy = calls.then_some(&config.retry);
    LiveService {
        service: service.name.clone(),
        address: service.address.to_string(),
        control: service.lab.address().to_string(),
        pid: service.described.pid,
        generation: service.described.generation,
        attempts: policy.map(|policy| policy.attempts),
        retry_on: policy.map(|policy| policy.retry_on.to_string()),
        backoff: policy
            .and_then(|policy| policy.backoff)
            .map(|backoff| backoff.to_string()),
        attempt_timeout: policy.and_then(|policy| policy.attempt_timeout).map(duration),
        commit: policy.map(|policy| policy.commit.to_string()),
        pushback: policy.map(|policy| policy.pushback),
        throttle: policy
            .and_then(|policy| policy.throttle)
            .map(|throttle| throttle.to_string()),
        budget: policy.and_then(|policy| policy.budget).map(|budget| budget.to_string()),
        hedge: policy.and_then(|policy| policy.hedge).map(duration),
        only_first_tries: policy.map(|policy| policy.only_first_tries),
        on_failure: calls.then(|| config.on_failure.to_string()),
        deadline: calls.then(|| config.deadline.to_string()),
        detached: config.detached,
        calls: calls.then_some(config.calls),
        fan_out: calls.then(|| config.fan_out.to_string()),
        transport_codes: config.transport_codes.to_string(),
        fault: config.fault.to_string(),
        client_fault: config.client_fault.filter(|_| calls).map(|fault| fault.to_string()),
        exports: !service.described.exports_to.is_empty(),
        received: totals.received,
        in_flight: totals.in_flight,
        work_done: totals.work_done,
        late: totals.late,
        foreign: totals.foreign,
    }
}

fn links(standing: &Standing, totals: &[lab::Totals]) -> Vec<LiveLink> {
    let pairs = standing.services.windows(2).zip(totals.windows(2));
    let rows = pairs.map(|(services, totals)| {
        let (from, to) = (&services[0].name, &services[1].name);
        let link = totals[0].links.iter().find(|link| link.to == *to);
        LiveLink {
            from: from.clone(),
            to: to.clone(),
            calls: link.map_or(0, |link| link.calls),
            sent: link.map_or(0, |link| link.sent),
            received: totals[1].received,
        }
    });
    rows.collect()
}

/// Requests whose arrivals met more than one generation anywhere.
fn mixed(records: &[Vec<lab::Record>]) -> BTreeSet<u64> {
    let mut met: BTreeMap<u64, u64> = BTreeMap::new();
    let mut mixed = BTreeSet::new();
    for record in records.iter().flatten() {
        let first = *met.entry(record.request).or_insert(record.generation);
        if first != record.generation {
            mixed.insert(record.request);
        }
    }
    mixed
}

/// What arrived under each generation, without what the mixed requests left there.
fn generations(
    standing: &Standing,
    totals: &[lab::Totals],
    records: &[Vec<lab::Record>],
    mixed: &BTreeSet<u64>,
) -> Vec<LiveGeneration> {
    let numbers: BTreeSet<_> = totals
        .iter()
        .flat_map(|totals| &totals.generations)
        .map(|counted| counted.generation)
        .chain([standing.generation()])
        .collect();
    // What is too long ago to be told apart has number 0 in the totals, and its own in the records.
    let told_apart = |number: u64| if numbers.contains(&number) { number } else { 0 };
    let of = |number: u64| {
        let rows = standing.services.iter().zip(totals).zip(records);
        let rows = rows.map(|((service, totals), records)| {
            let all = totals.generations.iter().find(|counted| counted.generation == number);
            let apart = count(&service.name, records, |record| {
                told_apart(record.generation) == number && mixed.contains(&record.request)
            });
            LiveCount {
                received: all.map_or(0, |all| all.received).saturating_sub(apart.received),
                in_flight: all.map_or(0, |all| all.in_flight).saturating_sub(apart.in_flight),
                ..apart
            }
        });
        LiveGeneration {
            generation: number,
            services: rows.collect(),
        }
    };
    numbers.iter().copied().map(of).collect()
}

fn count(service: &str, records: &[lab::Record], wanted: impl Fn(&lab::Record) -> bool) -> LiveCount {
    let wanted = records.iter().filter(|record| wanted(record));
    let (mut received, mut in_flight) = (0, 0);
    for record in wanted {
        received += 1;
        in_flight += u64::from(record.duration_us.is_none());
    }
    LiveCount {
        service: service.to_owned(),
        received,
        in_flight,
    }
}
