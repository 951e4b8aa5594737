//! The tally: spans in, counts out. Pure: no socket, no clock, no task.
//!
//! [`Intake`] takes batches while a run goes on; [`Intake::finish`] closes it and gives the [`Tally`]. Spans are told
//! apart by (trace id, span id), so an export that was retried after its answer got lost changes no count: the second
//! copy of a span is a duplicate. The order in which batches arrive never matters: what depends on other spans
//! (orphans) is computed once, at the end, and of several spans that claim the same ids the same one is kept
//! whichever came first.
//!
//! A span is held in 40 bytes and 8 to 16 more of index; names and attributes are hashed, never stored.

mod index;
mod record;
mod requests;
#[cfg(test)]
mod tests;

pub use record::has_valid_ids;

use index::Index;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, resource::v1::Resource, trace::v1::Span,
};
pub(crate) use record::text_of;
use record::{Kind, Record, Refusal, ids_of, record_of};
use requests::Requests;
use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::RandomState},
    hash::BuildHasher,
};

/// Most distinct spans one run holds. Those above are counted in [`Tally::overflowed`].
pub const MAX_SPANS: usize = 8_000_000;
/// Most services one run holds. Spans of further ones are counted in [`Tally::overflowed`].
pub const MAX_SERVICES: usize = 256;
/// Longest `service.name`, in bytes. Spans under a longer one are counted in [`Tally::unnamed`].
pub const MAX_SERVICE_NAME: usize = 256;
/// Most differing copies remembered as such; above it a repeated one is counted as a conflict each time.
pub const MAX_CONFLICTS: usize = 65_536;
/// Most conflicts that [`Tally::named_conflicts`] names.
pub const MAX_NAMED_CONFLICTS: usize = 16;
pub use chassis::conventions::RUN as RUN_ATTRIBUTE;
/// The resource attribute that names the service, of the OpenTelemetry resource conventions.
pub(crate) const SERVICE_ATTRIBUTE: &str = "service.name";

/// What the collector saw of one run. All counts are spans.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// By `service.name`.
    pub services: BTreeMap<String, ServiceTally>,
    /// Spans of another run, or of a named service that carries no run at all. Never traced.
    pub foreign: u64,
    /// Spans whose resource lacks a usable `service.name`, and names no other run. Nobody can say whose they are.
    pub unnamed: u64,
    /// Spans refused because their trace id or span id is all zero or of the wrong length.
    pub rejected: u64,
    /// Spans of this run that came when [`MAX_SPANS`] or [`MAX_SERVICES`] was reached: the counts above are then
    /// floors.
    pub overflowed: u64,
    /// Distinct spans that end before they start. Their duration is taken as zero; no other count changes.
    pub clock_went_back: u64,
    /// Distinct trace ids of this run.
    pub traces: u64,
    /// The first few conflicts, ordered by trace id and span id.
    pub named_conflicts: Vec<Conflict>,
    requests: Requests,
}

/// What the collector saw of one service. All counts are spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceTally {
    /// Distinct spans of kind SERVER: what the report calls `traced`.
    pub server: u64,
    /// Distinct spans of kind CLIENT: attempts.
    pub client: u64,
    /// Distinct spans of kind INTERNAL: calls.
    pub internal: u64,
    /// Distinct spans of any other kind, or of none.
    pub other: u64,
    /// Further copies of a span, equal to one that was seen. In none of the counts above.
    pub duplicates: u64,
    /// Spans under the ids of another span, with different content. In none of the counts above.
    pub conflicts: u64,
    /// Distinct spans whose parent is not among the collected spans of the same trace: where the evidence has a hole.
    pub orphans: u64,
    /// SERVER spans under the same parent: how often single attempts arrived. Spans without a parent count for none.
    pub parents: Times,
}

/// How often each of several things came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// How many different ones came.
    pub different: u64,
    /// How often the rarest came.
    pub least: u64,
    /// How often the most frequent came.
    pub most: u64,
}

impl Times {
    /// One more, that came so often.
    pub fn add(&mut self, times: u64) {
        self.least = if self.different == 0 {
            times
        } else {
            self.least.min(times)
        };
        self.most = self.most.max(times);
        self.different += 1;
    }
}

impl ServiceTally {
    /// Distinct spans of every kind.
    pub fn distinct(&self) -> u64 {
        self.server + self.client + self.internal + self.other
    }
}

/// Two different spans under the same ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The trace id, its 16 bytes read as one big-endian number.
    pub trace: u128,
    /// The span id, its 8 bytes read as one big-endian number.
    pub span: u64,
    /// The service whose span was counted.
    pub counted: String,
    /// The service whose span was not.
    pub refused: String,
}

impl Tally {
    /// SERVER spans of one service; 0 for a service that sent none.
    pub fn server(&self, service: &str) -> u64 {
        self.services.get(service).map_or(0, |tally| tally.server)
    }

    /// SERVER spans of one request by service. `trace` is the trace id, its 16 bytes read as one big-endian number.
    /// Services without one are absent; so is everything for a trace that was never seen.
    pub fn per_request(&self, trace: u128) -> BTreeMap<&str, u64> {
        self.requests.of(trace)
    }

    /// Every request that left a span, ordered by trace id, with its SERVER spans by service.
    pub fn requests(&self) -> impl Iterator<Item = (u128, BTreeMap<&str, u64>)> {
        self.requests.all()
    }
}

/// What became of one batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ingested {
    /// Spans taken, foreign ones and duplicates included.
    pub accepted: u64,
    /// Spans refused for their ids.
    pub rejected: u64,
    /// What to tell the sender; empty when there is nothing to say.
    pub reason: String,
}

/// Takes the batches of one run.
#[derive(Debug)]
pub struct Intake {
    run: String,
    max_spans: usize,
    keys: RandomState,
    traces: Vec<u128>,
    trace_index: Index,
    spans: Vec<Record>,
    span_index: Index,
    services: Vec<Seen>,
    service_index: HashMap<String, u16>,
    /// Copies that differ from the one that is kept.
    variants: HashSet<Variant>,
    foreign: u64,
    unnamed: u64,
    rejected: u64,
    overflowed: u64,
}

/// A service while its spans come in.
#[derive(Debug)]
struct Seen {
    name: String,
    distinct: u64,
    duplicates: u64,
    conflicts: u64,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Variant {
    position: u32,
    service: u16,
    content: u64,
}

/// Whose spans a resource holds.
#[derive(Debug, Clone, Copy)]
enum Source {
    Service(u16),
    Foreign,
    Unnamed,
    OneServiceTooMany,
}

impl Intake {
    /// An empty tally of the run with this nonce.
    pub fn new(run: impl Into<String>) -> Self {
        Self {
            run: run.into(),
            max_spans: MAX_SPANS,
            keys: RandomState::new(),
            traces: Vec::new(),
            trace_index: Index::default(),
            spans: Vec::new(),
            span_index: Index::default(),
            services: Vec::new(),
            service_index: HashMap::new(),
            variants: HashSet::new(),
            foreign: 0,
            unnamed: 0,
            rejected: 0,
            overflowed: 0,
        }
    }

    /// Takes one batch. Spans with impossible ids are refused one by one; the rest of the batch counts.
    pub fn ingest(&mut self, batch: &ExportTraceServiceRequest) -> Ingested {
        let mut accepted = 0;
        let mut refusals: BTreeMap<Refusal, u64> = BTreeMap::new();
        let overflowed_before = self.overflowed;
        for group in &batch.resource_spans {
            let source = self.source_of(group.resource.as_ref());
            for span in group.scope_spans.iter().flat_map(|scope| &scope.spans) {
                match ids_of(span) {
                    Ok(ids) => {
                        accepted += 1;
                        self.count(source, ids, span);
                    }
                    Err(refusal) => *refusals.entry(refusal).or_default() += 1,
                }
            }
        }
        let rejected = refusals.values().sum();
        self.rejected += rejected;
        let mut reasons: Vec<String> = refusals
            .iter()
            .map(|(why, spans)| format!("{why} ({spans} spans)"))
            .collect();
        if self.overflowed > overflowed_before {
            reasons.push(format!(
                "the tally is full: {} spans not held",
                self.overflowed - overflowed_before
            ));
        }
        Ingested {
            accepted,
            rejected,
            reason: reasons.join("; "),
        }
    }

    /// Distinct spans by service so far, in the order in which the services were first seen.
    pub fn progress(&self) -> impl Iterator<Item = (&str, u64)> {
        self.services.iter().map(|seen| (seen.name.as_str(), seen.distinct))
    }

    fn source_of(&mut self, resource: Option<&Resource>) -> Source {
        let attributes = resource.map_or(&[][..], |resource| &resource.attributes);
        let run = text_of(attributes, RUN_ATTRIBUTE);
        let name = text_of(attributes, SERVICE_ATTRIBUTE).filter(|name| (1..=MAX_SERVICE_NAME).contains(&name.len()));
        match (run, name) {
            (Some(run), _) if run != self.run => Source::Foreign,
            (_, None) => Source::Unnamed,
            (None, Some(_)) => Source::Foreign,
            (Some(_), Some(name)) => self.service(name),
        }
    }

    fn service(&mut self, name: &str) -> Source {
        if let Some(service) = self.service_index.get(name) {
            return Source::Service(*service);
        }
        if self.services.len() >= MAX_SERVICES {
            return Source::OneServiceTooMany;
        }
        let service = u16::try_from(self.services.len()).expect("MAX_SERVICES fits");
        self.services.push(Seen {
            name: name.to_owned(),
            distinct: 0,
            duplicates: 0,
            conflicts: 0,
        });
        self.service_index.insert(name.to_owned(), service);
        Source::Service(service)
    }

    fn count(&mut self, source: Source, (trace, id): (u128, u64), span: &Span) {
        match source {
            Source::Foreign => self.foreign += 1,
            Source::Unnamed => self.unnamed += 1,
            Source::OneServiceTooMany => self.overflowed += 1,
            Source::Service(service) => {
                let found = self.trace(trace).and_then(|trace| self.position(trace, id));
                match found {
                    Some(position) => self.again(position, record_of(span, id, service)),
                    None if self.spans.len() >= self.max_spans => self.overflowed += 1,
                    None => self.add(trace, record_of(span, id, service)),
                }
            }
        }
    }

    /// A span under ids that are new.
    fn add(&mut self, trace: u128, mut record: Record) {
        record.trace = self.trace(trace).unwrap_or_else(|| {
            let position = u32::try_from(self.traces.len()).expect("there are no more traces than spans");
            self.traces.push(trace);
            let (keys, traces) = (&self.keys, &self.traces);
            self.trace_index
                .insert(keys.hash_one(trace), position, |at| keys.hash_one(traces[at as usize]));
            position
        });
        let position = u32::try_from(self.spans.len()).expect("MAX_SPANS fits");
        self.spans.push(record);
        let (keys, spans) = (&self.keys, &self.spans);
        let hash_of = |at: u32| keys.hash_one((spans[at as usize].trace, spans[at as usize].span));
        self.span_index.insert(hash_of(position), position, hash_of);
        self.services[usize::from(record.service)].distinct += 1;
    }

    /// A span under ids that were seen. Of several different ones the same is kept in whatever order they come.
    fn again(&mut self, position: u32, mut new: Record) {
        let old = self.spans[position as usize];
        new.trace = old.trace;
        let variant = |record: Record| Variant {
            position,
            service: record.service,
            content: record.content,
        };
        let repeated = variant(new) == variant(old) || self.variants.contains(&variant(new));
        if repeated {
            self.services[usize::from(new.service)].duplicates += 1;
        } else if self.variants.len() >= MAX_CONFLICTS {
            self.services[usize::from(new.service)].conflicts += 1;
        } else {
            let rank = |record: Record| (self.services[usize::from(record.service)].name.as_str(), record.content);
            let (kept, refused) = if rank(new) < rank(old) { (new, old) } else { (old, new) };
            self.variants.insert(variant(refused));
            self.spans[position as usize] = kept;
            self.services[usize::from(refused.service)].conflicts += 1;
            self.services[usize::from(old.service)].distinct -= 1;
            self.services[usize::from(kept.service)].distinct += 1;
        }
    }

    fn trace(&self, trace: u128) -> Option<u32> {
        self.trace_index
            .find(self.keys.hash_one(trace), |at| self.traces[at as usize] == trace)
    }

    fn position(&self, trace: u32, span: u64) -> Option<u32> {
        self.span_index.find(self.keys.hash_one((trace, span)), |at| {
            let record = &self.spans[at as usize];
            record.span == span && record.trace == trace
        })
    }

    /// Closes the run: orphans are found, the counts by request are made, and the spans themselves are let go.
    pub fn finish(self) -> Tally {
        let names: Vec<String> = self.services.iter().map(|seen| seen.name.clone()).collect();
        let mut services: Vec<ServiceTally> = self
            .services
            .iter()
            .map(|seen| ServiceTally {
                duplicates: seen.duplicates,
                conflicts: seen.conflicts,
                ..ServiceTally::default()
            })
            .collect();
        let mut clock_went_back = 0;
        let mut arrivals: HashMap<(u32, u16), u32> = HashMap::new();
        let mut attempts: Vec<(u16, u32, u64)> = Vec::new();
        for record in &self.spans {
            let service = &mut services[usize::from(record.service)];
            match record.kind {
                Kind::Server => {
                    service.server += 1;
                    *arrivals.entry((record.trace, record.service)).or_default() += 1;
                    if record.parent != 0 {
                        attempts.push((record.service, record.trace, record.parent));
                    }
                }
                Kind::Client => service.client += 1,
                Kind::Internal => service.internal += 1,
                Kind::Other => service.other += 1,
            }
            service.orphans += u64::from(self.is_orphan(record));
            clock_went_back += u64::from(record.clock_went_back);
        }
        attempts.sort_unstable();
        for same in attempts.chunk_by(|one, other| one == other) {
            services[usize::from(same[0].0)].parents.add(same.len() as u64);
        }
        Tally {
            foreign: self.foreign,
            unnamed: self.unnamed,
            rejected: self.rejected,
            overflowed: self.overflowed,
            clock_went_back,
            traces: self.traces.len() as u64,
            named_conflicts: self.name_conflicts(),
            requests: Requests::pack(&names, self.traces, &arrivals),
            services: names.into_iter().zip(services).collect(),
        }
    }

    fn is_orphan(&self, record: &Record) -> bool {
        record.parent_malformed
            || (record.parent != 0
                && (record.parent == record.span || self.position(record.trace, record.parent).is_none()))
    }

    fn name_conflicts(&self) -> Vec<Conflict> {
        let name = |service: u16| self.services[usize::from(service)].name.clone();
        let mut conflicts: Vec<Conflict> = self
            .variants
            .iter()
            .map(|variant| (self.spans[variant.position as usize], variant.service))
            .map(|(kept, refused)| Conflict {
                trace: self.traces[kept.trace as usize],
                span: kept.span,
                counted: name(kept.service),
                refused: name(refused),
            })
            .collect();
        conflicts.sort_unstable();
        conflicts.truncate(MAX_NAMED_CONFLICTS);
        conflicts
    }
}
