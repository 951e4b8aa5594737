//! The evidence of one run: what was read from the services, what the collector got, what went wrong. From here to the
//! observation that the model judges, and to the rows of the report.

use crate::{
    fleet::{Ended, Trouble},
    load::Loaded,
    report::{self, Arrival, Count, Link, Operations, Receipt, Repeats, Sample, Service, ServiceKind, Times},
    scenario::Scenario,
    tally::{self, Tally},
    viewer::{Viewer, trace_id},
};
use chassis::{
    address::Address,
    code::{self, Code},
    config::Layer,
    counts::{Counts, Outcome, Refusal},
    fault::Fault,
    policy::MAX_ATTEMPTS,
};
use model::verdict::{Disturbance, Late, Observation, Observed, ObservedLink};
use proto::lab::v1 as lab;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// Arrivals that the receipts of one report show, at most: whole requests up to it.
const RECEIPT_ARRIVALS: usize = 10_000;

/// Everything one run left.
pub struct Evidence {
    /// The services from the top to the bottom.
    pub services: Vec<Reading>,
    /// What the client counted.
    pub client: Arc<Counts>,
    /// What became of the requests.
    pub loaded: Loaded,
    /// The spans.
    pub tally: Tally,
    /// What went wrong and no fault asked for.
    pub disturbances: Vec<Disturbance>,
    /// The generation that was predicted, where services are attached that others may switch.
    pub generation: Option<u64>,
    /// How late the processes were.
    pub latest: Option<Late>,
}

/// What is known of one service.
pub struct Reading {
    /// Its name.
    pub name: String,
    /// How it misbehaves on command.
    pub fault: Fault,
    /// What it is to the chain.
    pub layer: Layer,
    /// What it counted by its own names, where it is an Envoy.
    pub envoy: Option<BTreeMap<String, u64>>,
    /// Its last totals; `None` when they could not be read.
    pub totals: Option<lab::Totals>,
    /// Its single arrivals; `None` when they could not be read.
    pub records: Option<Vec<lab::Record>>,
}

impl Reading {
    /// Whether it makes spans.
    fn is_traced(&self) -> bool {
        self.layer != Layer::Envoy
    }

    /// What only a ledger of ours knows.
    fn ledger(&self) -> Option<&lab::Totals> {
        self.totals.as_ref().filter(|_| self.is_traced())
    }
}

impl Evidence {
    /// Name of the caller on the link to service `index`, and that link by the caller's own count.
    fn link_to(&self, index: usize) -> (&str, Option<lab::Link>) {
        let to = &self.services[index].name;
        let Some(above) = index.checked_sub(1) else {
            let counted = self.client.totals().links.remove(to).unwrap_or_default();
            return (
                crate::chain_line::CLIENT,
                Some(chassis::control::link((to.clone(), counted))),
            );
        };
        let caller = &self.services[above];
        let link = caller.totals.as_ref().map(|totals| {
            let counted = totals.links.iter().find(|link| link.to == *to).cloned();
            counted.unwrap_or_else(|| lab::Link {
                to: to.clone(),
                ..lab::Link::default()
            })
        });
        (&caller.name, link)
    }

    /// What the model judges.
    pub fn observation(&self, requested: u64) -> Observation {
        let mut disturbances = self.disturbances.clone();
        let mut services = Vec::new();
        let mut links = Vec::new();
        for (index, reading) in self.services.iter().enumerate() {
            let tallied = self.tally.services.get(&reading.name).copied().unwrap_or_default();
            let totals = reading.totals.as_ref();
            let (from, link) = self.link_to(index);
            services.push(Observed {
                name: reading.name.clone(),
                received: totals.map(|totals| totals.received),
                foreign: totals.map_or(0, |totals| totals.foreign),
                traced: reading.is_traced().then_some(tallied.server),
                spans_made: totals.map(spans_made).filter(|_| reading.is_traced()),
                spans_collected: reading.is_traced().then(|| tallied.distinct()),
                in_flight: totals.map_or(0, |totals| totals.in_flight),
                unanswered: totals.map_or(0, unanswered),
                is_traced: reading.is_traced(),
            });
            links.push(ObservedLink {
                from: from.to_owned(),
                to: reading.name.clone(),
                sent: link.as_ref().map(|link| link.sent),
                received: totals.map(|totals| totals.received),
                transport_failures: link.as_ref().map_or(0, transport_failures),
                out_of_time: link.as_ref().map_or(0, out_of_time),
            });
            disturbances.extend(totals.into_iter().flat_map(service_disturbances));
        }
        for (service, tallied) in &self.tally.services {
            let service = || service.clone();
            let found = [
                (
                    tallied.duplicates,
                    Disturbance::DuplicateSpans {
                        service: service(),
                        count: tallied.duplicates,
                    },
                ),
                (
                    tallied.conflicts,
                    Disturbance::ConflictingSpans {
                        service: service(),
                        count: tallied.conflicts,
                    },
                ),
                (
                    tallied.orphans,
                    Disturbance::OrphanSpans {
                        service: service(),
                        count: tallied.orphans,
                    },
                ),
            ];
            disturbances.extend(
                found
                    .into_iter()
                    .filter(|(count, _)| *count > 0)
                    .map(|(_, found)| found),
            );
        }
        let operations = self.operations(requested);
        if operations.not_sent > 0 {
            disturbances.push(Disturbance::NotSent {
                count: operations.not_sent,
            });
        }
        if operations.mixed > 0 {
            disturbances.push(Disturbance::Mixed {
                count: operations.mixed,
            });
        }
        if operations.unfinished > 0 {
            disturbances.push(Disturbance::Unfinished {
                count: operations.unfinished,
            });
        }
        // The cause first: what follows from it reads as noise without it.
        disturbances.sort_by_key(rank);
        Observation {
            services,
            links,
            requests_sent: operations.sent,
            requests_ended: operations.ok + operations.failed,
            ok: operations.ok,
            failed_by_code: self
                .failed_by_code()
                .map(|(code, count)| (crate::plan::code(code), count))
                .collect(),
            disturbances,
            latest: self.latest.clone(),
        }
    }

    fn failed_by_code(&self) -> impl Iterator<Item = (Code, u64)> {
        let mut by_code = BTreeMap::new();
        for code in self.loaded.ended.values().map(|ended| ended.code) {
            if code != Code::Ok {
                *by_code.entry(code as i32).or_insert(0) += 1;
            }
        }
        by_code.into_iter().map(|(code, count)| (Code::from_i32(code), count))
    }

    /// Requests that met other settings than the predicted ones. At least 1 where the totals say so and the records that would
    /// tell which are gone.
    fn mixed(&self) -> u64 {
        let Some(generation) = self.generation else { return 0 };
        let is_other = |other: &u64| *other != generation;
        let records = self
            .services
            .iter()
            .filter_map(|reading| reading.records.as_ref())
            .flatten();
        let met: BTreeSet<_> = records
            .filter(|record| is_other(&record.generation))
            .map(|record| record.request)
            .collect();
        let totals = self.services.iter().filter_map(|reading| reading.totals.as_ref());
        let any = totals
            .flat_map(|totals| &totals.generations)
            .any(|counted| counted.received > 0 && is_other(&counted.generation));
        (met.len() as u64).max(any.into())
    }

    /// What became of the requests.
    pub fn operations(&self, requested: u64) -> Operations {
        let ended = self.loaded.ended.len() as u64;
        let ok = self
            .loaded
            .ended
            .values()
            .filter(|ended| ended.code == Code::Ok)
            .count() as u64;
        Operations {
            requested,
            sent: self.loaded.sent,
            not_sent: requested - self.loaded.sent,
            ok,
            failed: ended - ok,
            unfinished: self.loaded.sent - ended,
            mixed: self.mixed(),
            by_code: self
                .failed_by_code()
                .map(|(code, count)| (code::name(code).to_owned(), count))
                .collect(),
        }
    }

    /// The rows of the services.
    pub fn services(&self, prediction: &model::Prediction) -> Vec<Service> {
        let requests = self.loaded.sent;
        let rows = self
            .services
            .iter()
            .zip(&prediction.services)
            .map(|(reading, predicted)| {
                let totals = reading.totals.as_ref();
                let ledger = reading.ledger();
                let ended_as = |outcome: &str| {
                    ledger.map(|totals| {
                        let matching = totals.arrivals.iter().filter(|arrivals| arrivals.outcome == outcome);
                        matching.map(|arrivals| arrivals.count).sum()
                    })
                };
                let received = totals.map(|totals| totals.received);
                Service {
                    service: reading.name.clone(),
                    kind: match reading.layer {
                        Layer::Proxy | Layer::Envoy => ServiceKind::Sidecar,
                        Layer::Service | Layer::Undeclared => ServiceKind::Service,
                    },
                    predicted: (&predicted.received).into(),
                    received,
                    traced: reading.is_traced().then(|| self.tally.server(&reading.name)),
                    amplification: received.and_then(|received| ratio(received, requests)),
                    work_done: ledger.map(|totals| totals.work_done),
                    late: ledger.map(|totals| totals.late),
                    dropped: ended_as(Outcome::Dropped.name()),
                    expired: ended_as(Outcome::Expired.name()),
                    in_flight: totals.map(|totals| totals.in_flight),
                    envoy: reading.envoy.clone(),
                }
            });
        rows.collect()
    }

    /// The rows of the links.
    pub fn links(&self, prediction: &model::Prediction) -> Vec<Link> {
        let services = self.services.iter().zip(&prediction.links).enumerate();
        let rows = services.map(|(index, (reading, predicted))| {
            let (from, link) = self.link_to(index);
            // Those that a fault asked for are no errors.
            let asked_for = at_most(predicted.cut.max).saturating_add(at_most(predicted.lost.max));
            let unasked = |link: &lab::Link| transport_failures(link).saturating_sub(asked_for);
            let received = reading.totals.as_ref().map(|totals| totals.received);
            let (calls, sent) = (
                link.as_ref().map(|link| link.calls),
                link.as_ref().map(|link| link.sent),
            );
            Link {
                from: from.to_owned(),
                to: reading.name.clone(),
                calls,
                sent,
                received,
                factor: received.zip(sent).and_then(|(received, sent)| ratio(received, sent)),
                retry_ratio: sent
                    .zip(calls)
                    .and_then(|(sent, calls)| ratio(sent.saturating_sub(calls), calls)),
                not_retried: link
                    .as_ref()
                    .map(|link| link.not_retried.clone().into_iter().collect())
                    .unwrap_or_default(),
                transport_errors: link.as_ref().map(unasked),
                repeats: link.as_ref().and_then(|link| self.repeats(index, link.sent)),
            }
        });
        rows.collect()
    }

    /// How often each attempt arrived at a service, where more arrived than its caller sent.
    fn repeats(&self, index: usize, sent: u64) -> Option<Repeats> {
        let reading = &self.services[index];
        let totals = reading.ledger().filter(|totals| totals.received > sent)?;
        let records = reading.records.as_deref().unwrap_or_default();
        let mut by_path: HashMap<(u64, &str), u64> = HashMap::new();
        let mut envoy_attempts = BTreeMap::new();
        for record in records {
            *by_path.entry((record.request, &record.path)).or_default() += 1;
            // Anybody can write that header; nobody tries so often.
            if (1..=MAX_ATTEMPTS).contains(&record.envoy_attempt) {
                *envoy_attempts.entry(record.envoy_attempt).or_default() += 1;
            }
        }
        let is_whole = records.len() as u64 == totals.received;
        let spans = self.tally.services.get(&reading.name).copied().unwrap_or_default();
        let mut paths = tally::Times::default();
        for times in by_path.into_values() {
            paths.add(times);
        }
        Some(Repeats {
            by_path: told(paths).filter(|_| is_whole),
            by_parent: told(spans.parents).filter(|_| spans.server == totals.received),
            envoy_attempts,
        })
    }

    /// Single requests with their arrivals, and how much of the run they are.
    pub fn receipts(&self, scenario: &Scenario, viewer: Option<&Viewer>) -> (Vec<Receipt>, Sample) {
        let totals = self.services.iter().filter_map(|reading| reading.totals.as_ref());
        // Requests up to this one may have lost arrivals somewhere; above it every service has all of them.
        let given_up = totals.map(|totals| totals.given_up_through).max().unwrap_or(0);
        let mut by_request: BTreeMap<u64, Vec<(&str, &lab::Record)>> = BTreeMap::new();
        for reading in &self.services {
            for record in reading
                .records
                .iter()
                .flatten()
                .filter(|record| record.request > given_up)
            {
                by_request
                    .entry(record.request)
                    .or_default()
                    .push((&reading.name, record));
            }
        }
        let first_us = by_request
            .values()
            .flatten()
            .map(|(_, record)| record.start_us)
            .min()
            .unwrap_or(0);
        let owner = owner(scenario);
        let declared = declared_attempts(scenario);
        let bottom = self.services.last().map_or("", |reading| reading.name.as_str());
        let mut receipts: Vec<Receipt> = Vec::new();
        let mut shown = 0;
        for (request, mut arrivals) in by_request {
            shown += arrivals.len();
            if shown > RECEIPT_ARRIVALS && !receipts.is_empty() {
                break;
            }
            arrivals.sort_by_key(|(_, record)| record.start_us);
            let ended = self.loaded.ended.get(&request);
            let trace = ended.map(|ended| ended.trace).filter(|trace| *trace != 0);
            receipts.push(Receipt {
                operation: request,
                trace_id: trace.map(trace_id),
                trace_url: viewer.zip(trace).map(|(viewer, trace)| viewer.address(trace)),
                owner: owner.clone(),
                declared_attempts: declared,
                observed_attempts: arrivals.iter().filter(|(service, _)| *service == bottom).count() as u64,
                code: ended.map_or("unfinished", |ended| code::name(ended.code)).to_owned(),
                attempts: arrivals
                    .iter()
                    .map(|(service, record)| arrival(service, record, first_us))
                    .collect(),
            });
        }
        let operations = receipts.len() as u64;
        let all_read = self.services.iter().all(|reading| reading.records.is_some());
        let complete = all_read && given_up == 0 && operations == self.loaded.sent;
        (
            receipts,
            Sample {
                operations,
                of: self.loaded.sent,
                complete,
            },
        )
    }
}

/// Spans that a process says it made.
pub fn spans_made(totals: &lab::Totals) -> u64 {
    totals
        .spans_made
        .map_or(0, |spans| spans.server + spans.client + spans.internal)
}

/// Attempts that the transport ended.
fn transport_failures(link: &lab::Link) -> u64 {
    link.transport_errors + link.connect_refused
}

/// Calls that ended because their deadline had passed.
fn out_of_time(link: &lab::Link) -> u64 {
    link.not_retried.get(Refusal::Deadline.name()).copied().unwrap_or(0)
}

/// Arrivals that ended without an answer.
fn unanswered(totals: &lab::Totals) -> u64 {
    let left = [Outcome::Dropped.name(), Outcome::Expired.name()];
    let unanswered = totals
        .arrivals
        .iter()
        .filter(|arrivals| left.contains(&arrivals.outcome.as_str()));
    unanswered.map(|arrivals| arrivals.count).sum()
}

fn at_most(count: model::Count) -> u64 {
    match count {
        model::Count::Of(count) => u64::try_from(count).unwrap_or(u64::MAX),
        model::Count::Beyond => u64::MAX,
    }
}

fn service_disturbances(totals: &lab::Totals) -> Vec<Disturbance> {
    let service = || totals.service.clone();
    let mut found = Vec::new();
    if totals.rejected_by_transport > 0 {
        found.push(Disturbance::RejectedByTransport {
            service: service(),
            count: totals.rejected_by_transport,
        });
    }
    if totals.in_flight > 0 {
        found.push(Disturbance::NotSettled {
            service: service(),
            in_flight: totals.in_flight,
        });
    }
    found
}

/// Which disturbance explains the others: lower comes first.
fn rank(disturbance: &Disturbance) -> u8 {
    match disturbance {
        Disturbance::Interrupted => 0,
        Disturbance::ProcessDied { .. } | Disturbance::ProcessStopped { .. } => 1,
        Disturbance::Unreachable { .. } | Disturbance::TotalsWentBack { .. } => 2,
        Disturbance::Mixed { .. } | Disturbance::DeadlinePassed { .. } | Disturbance::Unanswered { .. } => 3,
        Disturbance::TransportErrors { .. } | Disturbance::RejectedByTransport { .. } => 4,
        Disturbance::Unfinished { .. } | Disturbance::NotSent { .. } | Disturbance::NotSettled { .. } => 5,
        _ => 6,
    }
}

/// How often each of several things came; `None` where nothing did.
fn told(times: tally::Times) -> Option<Times> {
    let tally::Times { different, least, most } = times;
    (different > 0).then_some(Times { different, least, most })
}

fn ratio(numerator: u64, denominator: u64) -> Option<f64> {
    (denominator > 0).then(|| numerator as f64 / denominator as f64)
}

fn arrival(service: &str, record: &lab::Record, first_us: u64) -> Arrival {
    let parent = record
        .path
        .rsplit_once('.')
        .map(|(parent, _)| format!("{}:{parent}", record.request));
    Arrival {
        service: service.to_owned(),
        path: format!("{}:{}", record.request, record.path),
        parent,
        code: if record.outcome.is_empty() {
            "in_flight".to_owned()
        } else {
            record.outcome.clone()
        },
        start_us: record.start_us.saturating_sub(first_us),
        duration_us: record.duration_us,
    }
}

/// The attempts of every layer that is declared, the client's first.
fn attempts(scenario: &Scenario) -> impl Iterator<Item = (String, u32)> {
    let configs = scenario.configs().into_iter();
    configs.map(|config| (config.service, config.retry.attempts))
}

/// The only layer with more than one attempt; `none` when several have, or no layer has.
fn owner(scenario: &Scenario) -> String {
    let mut retrying = attempts(scenario)
        .filter(|(_, attempts)| *attempts > 1)
        .map(|(name, _)| name);
    match (retrying.next(), retrying.next()) {
        (Some(owner), None) => owner,
        _ => "none".to_owned(),
    }
}

/// Most arrivals at the bottom that the configuration allows for one request.
fn declared_attempts(scenario: &Scenario) -> Count {
    let attempts = attempts(scenario).map(|(_, attempts)| attempts);
    let mut factors = attempts.chain(scenario.chain.services.iter().map(|service| service.calls));
    let product = factors.try_fold(1_u128, |product, factor| product.checked_mul(factor.into()));
    product.map_or(Count::Beyond, Count::Of)
}

/// What a troubled process means for the evidence.
pub fn disturbance(service: String, pid: u32, trouble: Trouble) -> Disturbance {
    match trouble {
        Trouble::Died(how) => Disturbance::ProcessDied { service, how },
        Trouble::Stopped => Disturbance::ProcessStopped { service, pid },
    }
}

impl From<&model::Predicted> for report::Predicted {
    fn from(predicted: &model::Predicted) -> Self {
        Self {
            kind: match predicted.kind {
                model::Kind::Exact => report::PredictionKind::Exact,
                model::Kind::Statistical => report::PredictionKind::Statistical,
                model::Kind::Bounds => report::PredictionKind::Bounds,
            },
            mean: predicted.mean,
            sd: predicted.sd,
            min: predicted.min.into(),
            max: predicted.max.into(),
        }
    }
}

impl From<model::Count> for Count {
    fn from(count: model::Count) -> Self {
        match count {
            model::Count::Of(count) => Self::Of(count),
            model::Count::Beyond => Self::Beyond,
        }
    }
}

/// A process that took part.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its service.
    pub name: String,
    /// Its service port.
    pub address: Address,
    /// Its process number.
    pub pid: u32,
    /// Whether the run started it.
    pub is_own: bool,
}

/// The rows of the processes.
pub fn processes(members: &[Process], ended: &[Ended]) -> Vec<report::Process> {
    let rows = members.iter().map(|process| report::Process {
        service: process.name.clone(),
        address: process.address.to_string(),
        pid: Some(process.pid),
        owned: process.is_own,
        loopback: process.address.is_loopback(),
        stopped: ended
            .iter()
            .find(|ended| ended.name == process.name)
            .map(|ended| ended.how.clone())
            .unwrap_or_default(),
    });
    rows.collect()
}
