//! The control port: ledger, control and health. Never refused, delayed or counted. The only file that imports the lab's wire.

use crate::{
    config::Config,
    counts::{Counts, LinkCounts, Record, SpanKind},
    inbound::FIRST_GENERATION,
    telemetry::Telemetry,
};
use proto::lab::v1::{self as lab, control_server, ledger_server};
use std::{pin::Pin, sync::Arc};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, service::Routes};

/// Records in one message.
const RECORDS_PER_MESSAGE: usize = 4096;

/// What the control port needs to answer.
#[derive(Debug, Clone)]
pub struct Control {
    /// The configuration in force, with the addresses that were taken.
    pub config: Arc<Config>,
    /// What was counted.
    pub counts: Arc<Counts>,
    /// Where spans go.
    pub telemetry: Arc<Telemetry>,
}

impl Control {
    /// The routes of the control port.
    pub fn routes(self) -> Routes {
        Routes::new(ledger_server::LedgerServer::new(self.clone()))
            .add_service(control_server::ControlServer::new(self))
    }
}

#[tonic::async_trait]
impl ledger_server::Ledger for Control {
    async fn read(&self, _: Request<lab::ReadRequest>) -> Result<Response<lab::Totals>, Status> {
        let totals = self.counts.totals();
        let spans = |kind| self.counts.spans_made(kind);
        Ok(Response::new(lab::Totals {
            service: self.config.service.clone(),
            received: totals.received,
            in_flight: totals.in_flight,
            late: totals.late,
            work_done: totals.work_done,
            foreign: totals.foreign,
            rejected_by_transport: self.counts.rejected_by_transport(),
            arrivals: totals
                .arrivals
                .into_iter()
                .map(|(key, count)| lab::Arrivals {
                    method: key.method.to_string(),
                    attempt: key.attempt,
                    generation: key.generation,
                    outcome: key.outcome.name().to_owned(),
                    count,
                })
                .collect(),
            links: totals.links.into_iter().map(link).collect(),
            spans_made: Some(lab::Spans {
                server: spans(SpanKind::Server),
                client: spans(SpanKind::Client),
                internal: spans(SpanKind::Internal),
            }),
            records_lost: totals.records_lost,
            given_up_through: totals.given_up_through,
        }))
    }

    type ReadRecordsStream = Pin<Box<dyn Stream<Item = Result<lab::Records, Status>> + Send>>;

    async fn read_records(
        &self,
        _: Request<lab::ReadRecordsRequest>,
    ) -> Result<Response<Self::ReadRecordsStream>, Status> {
        let records = self.counts.records();
        let batches: Vec<_> = records
            .chunks(RECORDS_PER_MESSAGE)
            .map(|batch| lab::Records {
                records: batch.iter().map(record).collect(),
            })
            .collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(batches).map(Ok))))
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
    }
}

#[tonic::async_trait]
impl control_server::Control for Control {
    async fn describe(&self, _: Request<lab::DescribeRequest>) -> Result<Response<lab::Description>, Status> {
        Ok(Response::new(lab::Description {
            config: self.config.write().into_iter().collect(),
            pid: std::process::id(),
            generation: FIRST_GENERATION,
        }))
    }

    async fn flush(&self, _: Request<lab::FlushRequest>) -> Result<Response<lab::Flushed>, Status> {
        let error = self.telemetry.flush().await.err().unwrap_or_default();
        Ok(Response::new(lab::Flushed { error }))
    }
}
