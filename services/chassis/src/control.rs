//! The control port: ledger, control and health. Never refused, delayed or counted. The only file that imports the lab's wire.

use crate::{
    counts::{Counts, LinkCounts, Range, Reading, Record, Totals},
    export::Export,
    settings::{Live, SwitchError},
    stalls::{Stall, Stalls},
    telemetry::Telemetry,
};
use proto::lab::v1::{self as lab, control_server, ledger_server};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, service::Routes};

/// Records in one message.
const RECORDS_PER_MESSAGE: usize = 4096;
/// Copies of spans that may wait at least and at most, whatever is asked for: the whole queue is laid out at once.
const SPAN_QUEUE: (u64, u64) = (512, 65_536);
/// Copies that may wait for all followers together.
const SPAN_QUEUES: u64 = 4 * SPAN_QUEUE.1;
/// Most request numbers that are given away at once.
const MAX_RESERVED: u64 = 1 << 32;

/// The metadata key that carries the control port's secret, as `Bearer TOKEN` (RFC 6750).
pub const AUTHORIZATION: &str = "authorization";

/// What the control port needs to answer.
#[derive(Debug, Clone)]
pub struct Control {
    /// The settings in force.
    pub live: Arc<Live>,
    /// What was counted.
    pub counts: Arc<Counts>,
    /// Where spans go.
    pub telemetry: Arc<Telemetry>,
    /// When this process was held up.
    pub stalls: Arc<Stalls>,
    /// Turns true when the process is to leave.
    pub leaving: watch::Receiver<bool>,
    numbers: Arc<AtomicU64>,
    /// Copies that may wait now.
    queued: Arc<AtomicU64>,
}

/// A follower's share of the copies that may wait.
struct Share {
    queued: Arc<AtomicU64>,
    copies: u64,
}

impl Share {
    /// A share, or nothing where the sum would be too large.
    fn of(queued: &Arc<AtomicU64>, copies: u64) -> Option<Self> {
        let taken = queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            Some(now + copies).filter(|sum| *sum <= SPAN_QUEUES)
        });
        let queued = Arc::clone(queued);
        taken.is_ok().then_some(Self { queued, copies })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.queued.fetch_sub(self.copies, Ordering::Relaxed);
    }
}

impl Control {
    /// What answers on the control port.
    pub fn new(
        live: Arc<Live>,
        counts: Arc<Counts>,
        telemetry: Arc<Telemetry>,
        stalls: Arc<Stalls>,
        leaving: watch::Receiver<bool>,
    ) -> Self {
        Self {
            live,
            counts,
            telemetry,
            stalls,
            leaving,
            numbers: Arc::new(AtomicU64::new(1)),
            queued: Arc::default(),
        }
    }

    /// The routes of the control port. With a token, who does not know it is turned away.
    pub fn routes(self, token: Option<String>) -> Routes {
        let guard = move |request: Request<()>| match &token {
            Some(token) if !carries(&request, token) => Err(Status::unauthenticated(
                "this control port wants its token (RETRYSCOPE_CONTROL_TOKEN)",
            )),
            _ => Ok(request),
        };
        Routes::new(ledger_server::LedgerServer::with_interceptor(
            self.clone(),
            guard.clone(),
        ))
        .add_service(control_server::ControlServer::with_interceptor(self, guard))
    }
}

fn carries(request: &Request<()>, token: &str) -> bool {
    let given = request.metadata().get(AUTHORIZATION);
    let given = given
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    // Every byte is looked at: how long a wrong one takes must not tell how much of it was right.
    given.is_some_and(|given| {
        given.len() == token.len()
            && given
                .bytes()
                .zip(token.bytes())
                .fold(0, |differs, (a, b)| differs | (a ^ b))
                == 0
    })
}

#[tonic::async_trait]
impl ledger_server::Ledger for Control {
    async fn read(&self, request: Request<lab::ReadRequest>) -> Result<Response<lab::Totals>, Status> {
        let first = Some(request.into_inner().first).filter(|first| *first > 0);
        let reading = self
            .counts
            .read(first)
            .ok_or_else(|| Status::not_found("nobody follows these requests any more"))?;
        let service = self.live.now().config.service.clone();
        Ok(Response::new(totals(
            service,
            &reading,
            self.counts.rejected_by_transport(),
            &self.stalls,
        )))
    }

    type ReadRecordsStream = Pin<Box<dyn Stream<Item = Result<lab::Records, Status>> + Send>>;

    async fn read_records(
        &self,
        request: Request<lab::ReadRecordsRequest>,
    ) -> Result<Response<Self::ReadRecordsStream>, Status> {
        let lab::ReadRecordsRequest { first, count } = request.into_inner();
        let records = self.counts.records((count > 0).then_some(Range { first, count }));
        let batches: Vec<_> = records
            .chunks(RECORDS_PER_MESSAGE)
            .map(|batch| lab::Records {
                records: batch.iter().map(record).collect(),
            })
            .collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(batches).map(Ok))))
    }
}

fn totals(service: String, reading: &Reading, rejected_by_transport: u64, stalls: &Stalls) -> lab::Totals {
    let sum = reading.totals();
    let arrivals = reading.generations.iter().flat_map(|(generation, totals)| {
        totals.arrivals.iter().map(|(key, count)| lab::Arrivals {
            method: key.method.to_string(),
            attempt: key.attempt,
            generation: *generation,
            outcome: key.outcome.name().to_owned(),
            count: *count,
        })
    });
    lab::Totals {
        service,
        received: sum.received,
        in_flight: sum.in_flight,
        late: sum.late,
        work_done: sum.work_done,
        foreign: sum.foreign,
        rejected_by_transport,
        arrivals: arrivals.collect(),
        links: sum.links.into_iter().map(link).collect(),
        spans_made: Some(lab::Spans {
            server: sum.spans.server,
            client: sum.spans.client,
            internal: sum.spans.internal,
        }),
        records_lost: reading.records_lost,
        given_up_through: reading.given_up_through,
        generations: reading.generations.iter().map(generation).collect(),
        stalls: stalls.read().into_iter().map(stall).collect(),
    }
}

fn stall(stall: Stall) -> lab::Stall {
    lab::Stall {
        at_us: stall.at_us,
        late_us: stall.late_us,
    }
}

fn generation((generation, totals): (&u64, &Totals)) -> lab::Generation {
    lab::Generation {
        generation: *generation,
        received: totals.received,
        in_flight: totals.in_flight,
        late: totals.late,
        work_done: totals.work_done,
        foreign: totals.foreign,
        links: totals.links.clone().into_iter().map(link).collect(),
    }
}

/// What a process sent on one link, as it goes over the wire.
pub fn link((to, counts): (String, LinkCounts)) -> lab::Link {
    lab::Link {
        to,
        calls: counts.calls,
        sent: counts.sent,
        not_retried: counts
            .not_retried
            .into_iter()
            .map(|(reason, count)| (reason.name().to_owned(), count))
            .collect(),
        connect_refused: counts.connect_refused,
        transport_errors: counts.transport_errors,
    }
}

fn record(record: &Record) -> lab::Record {
    lab::Record {
        request: record.request,
        path: record.path.clone(),
        attempt: record.attempt,
        start_us: record.start_us,
        duration_us: record.end.map(|(duration, _)| duration),
        outcome: record
            .end
            .map(|(_, outcome)| outcome.name().to_owned())
            .unwrap_or_default(),
        generation: record.generation,
        envoy_attempt: record.envoy_attempt,
    }
}

#[tonic::async_trait]
impl control_server::Control for Control {
    async fn describe(&self, _: Request<lab::DescribeRequest>) -> Result<Response<lab::Description>, Status> {
        let now = self.live.now();
        Ok(Response::new(lab::Description {
            config: now.config.write().into_iter().collect(),
            pid: std::process::id(),
            generation: now.number,
            exports_to: match &now.config.otlp {
                Export::None => String::new(),
                Export::To(url) => url.clone(),
                Export::Environment => "as its OTEL_* variables say".to_owned(),
            },
            highest_request: self.counts.highest_request(),
            seen: now.seen().arrivals(),
        }))
    }

    async fn switch(&self, request: Request<lab::SwitchRequest>) -> Result<Response<lab::Switched>, Status> {
        let lab::SwitchRequest { generation, settings } = request.into_inner();
        let switched = self.live.switch(generation, &settings.into_iter().collect());
        switched.map_err(|error| match error {
            SwitchError::Stale { .. } => Status::failed_precondition(error.to_string()),
            SwitchError::Fixed(_) | SwitchError::Config(_) => Status::invalid_argument(error.to_string()),
        })?;
        Ok(Response::new(lab::Switched {}))
    }

    async fn reserve(&self, request: Request<lab::ReserveRequest>) -> Result<Response<lab::Reserved>, Status> {
        let lab::ReserveRequest { count, at_least } = request.into_inner();
        let limit = crate::call::FOREIGN / 4;
        if !(1..=MAX_RESERVED).contains(&count) || at_least >= limit {
            return Err(Status::invalid_argument(format!(
                "{count} numbers from {at_least} on: reserve 1 to {MAX_RESERVED} below {limit}"
            )));
        }
        let mut first = 0;
        let _ = self.numbers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            first = next.max(at_least);
            Some(first + count)
        });
        Ok(Response::new(lab::Reserved { first }))
    }

    type FollowStream = Pin<Box<dyn Stream<Item = Result<lab::Following, Status>> + Send>>;

    async fn follow(&self, request: Request<lab::FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let lab::FollowRequest {
            first,
            count,
            otlp,
            run,
            span_queue,
        } = request.into_inner();
        let range = Range { first, count };
        if run.is_empty() {
            return Err(Status::invalid_argument("a nonce is wanted (run)"));
        }
        let followed = self
            .counts
            .follow(range)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        let queue = span_queue.clamp(SPAN_QUEUE.0, SPAN_QUEUE.1);
        let share = Share::of(&self.queued, queue).ok_or_else(|| {
            Status::resource_exhausted("other runs take all the room for copies of spans; try again when one has ended")
        })?;
        let queue = usize::try_from(queue).unwrap_or(usize::MAX);
        let copies = self
            .telemetry
            .follow(range, &otlp, &run, queue)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let mut leaving = self.leaving.clone();
        // Open until the other side closes it or is gone, whatever ended it: nothing of a follower stays behind.
        let open = async move {
            let _while_open = (followed, copies, share);
            let _ = leaving.wait_for(|leaving| *leaving).await;
            Err(Status::unavailable("the service is leaving"))
        };
        let stream = tokio_stream::once(Ok(lab::Following {})).chain(futures_util::stream::once(open));
        Ok(Response::new(Box::pin(stream)))
    }

    async fn flush(&self, request: Request<lab::FlushRequest>) -> Result<Response<lab::Flushed>, Status> {
        let run = request.into_inner().run;
        let error = self.telemetry.flush(&run).await.err().unwrap_or_default();
        Ok(Response::new(lab::Flushed { error }))
    }
}
