//! The collector: takes spans over OTLP gRPC from the services, hands them to the tally, and passes them on outside
//! if asked.
//!
//! It lives on a thread of its own. All batches go through one bounded queue to one owner, the [`Intake`]; a batch is
//! acknowledged only after the owner has it, so a sender that got its answer knows that its spans count, and a full
//! queue slows senders down rather than losing anything. What the spans mean is said in [`crate::tally`].

pub(crate) mod thread;

use crate::{
    forward::{Forward, Forwarded, Forwarder},
    tally::{Intake, Tally, has_valid_ids},
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    pin::pin,
    thread::JoinHandle,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_stream::StreamExt as _;
use tonic::{
    Request, Response, Status,
    codec::CompressionEncoding,
    transport::{Server, server::TcpIncoming},
};

/// Most batches that wait for the tally; senders of further ones wait for their turn.
pub const QUEUE_BATCHES: usize = 64;
/// Largest batch in bytes, after decompression. A larger one is refused whole, by tonic.
pub const MAX_BATCH_BYTES: usize = 64 * 1024 * 1024;
/// Most batches one connection sends at once.
pub const MAX_STREAMS: u32 = 128;
/// Receive window in bytes of a connection and of a stream: a burst of batches never waits for window updates.
pub const WINDOW_BYTES: u32 = 256 * 1024 * 1024;
/// Longest wait at the end for peers that are still connected. A silent one would otherwise be waited for without end.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// Pause after a connection could not be accepted, so that running out of file descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A running collector. Dropping it stops it and throws the counts away.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    progress: watch::Receiver<Progress>,
    stop: oneshot::Sender<()>,
    outcome: oneshot::Receiver<Collected>,
    thread: JoinHandle<()>,
}

/// Distinct spans by service, in the order in which the services were first seen.
type Progress = Vec<(String, u64)>;

/// What a collector leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// The counts.
    pub tally: Tally,
    /// What became of the spans outside; `None` when nothing was to be forwarded.
    pub forwarded: Option<Forwarded>,
}

/// Why there is no collector.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// No port could be had.
    #[error("the collector could not listen")]
    Listen(#[source] io::Error),
    /// Its thread or its runtime could not be started.
    #[error("the collector could not be started")]
    Start(#[source] io::Error),
    /// Its thread ended before it was told to.
    #[error("the collector ended before its time; its counts are lost")]
    Died,
}

impl Collector {
    /// Starts collecting the run with this nonce on a free loopback port.
    pub fn start(run: impl Into<String>, forward: Option<Forward>) -> Result<Self, CollectorError> {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), run, forward)
    }

    /// The same on another address of this machine, for services that run elsewhere. Only spans with the nonce count.
    pub fn start_on(address: IpAddr, run: impl Into<String>, forward: Option<Forward>) -> Result<Self, CollectorError> {
        let listener = TcpListener::bind((address, 0)).map_err(CollectorError::Listen)?;
        listener.set_nonblocking(true).map_err(CollectorError::Listen)?;
        let address = listener.local_addr().map_err(CollectorError::Listen)?;
        let runtime = thread::runtime().map_err(CollectorError::Start)?;
        let listener = {
            let _within = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(CollectorError::Listen)?
        };
        let forwarder = forward
            .map(Forwarder::start)
            .transpose()
            .map_err(CollectorError::Start)?;
        let (publish, progress) = watch::channel(Progress::new());
        let owner = Owner {
            intake: Intake::new(run),
            forwarder,
            publish,
        };
        let (stop, stopped) = oneshot::channel();
        let (thread, outcome) = thread::spawn("collector", runtime, move || collect(listener, owner, stopped))
            .map_err(CollectorError::Start)?;
        Ok(Self {
            address,
            progress,
            stop,
            outcome,
            thread,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Distinct spans so far by service, of every kind. Cheap: it asks nobody.
    pub fn progress(&self) -> Vec<(String, u64)> {
        self.progress.borrow().clone()
    }

    /// Waits until each of these services has at least so many distinct spans, of every kind, and then returns true
    /// at once. False when that has not come to pass within `limit`, or the collector has died.
    pub async fn wait_for(&self, wanted: &[(String, u64)], limit: Duration) -> bool {
        let mut progress = self.progress.clone();
        let reached =
            progress.wait_for(|progress| wanted.iter().all(|(service, spans)| has(progress, service, *spans)));
        matches!(timeout(limit, reached).await, Ok(Ok(_)))
    }

    /// Stops and gives the counts. Peers that are still sending have [`DRAIN_LIMIT`]; forwarding has its own limit
    /// after it. Must be called within a tokio runtime, which it does not block.
    pub async fn finish(self) -> Result<Collected, CollectorError> {
        // A collector that has died is found out in the next line.
        let _ = self.stop.send(());
        let collected = self.outcome.await.map_err(|_| CollectorError::Died)?;
        spawn_blocking(|| self.thread.join())
            .await
            .ok()
            .and_then(Result::ok)
            .ok_or(CollectorError::Died)?;
        Ok(collected)
    }
}

fn has(progress: &Progress, service: &str, spans: u64) -> bool {
    spans == 0 || progress.iter().any(|(name, count)| name == service && *count >= spans)
}

/// The only one that touches the tally.
#[derive(Debug)]
struct Owner {
    intake: Intake,
    forwarder: Option<Forwarder>,
    publish: watch::Sender<Progress>,
}

/// A batch on its way to the owner.
#[derive(Debug)]
struct Batch {
    request: ExportTraceServiceRequest,
    answer: oneshot::Sender<ExportTraceServiceResponse>,
}

/// The life of the collector's thread. `stopped` says whether to drain (a message) or to leave at once (its sender is
/// gone).
async fn collect(listener: tokio::net::TcpListener, mut owner: Owner, stopped: oneshot::Receiver<()>) -> Collected {
    let (queue, mut batches) = mpsc::channel(QUEUE_BATCHES);
    let serving = async {
        let (close, closed) = oneshot::channel::<()>();
        let mut server = pin!(serve(listener, queue, closed));
        let drains = tokio::select! {
            () = &mut server => false,
            stopped = stopped => stopped.is_ok(),
        };
        drop(close);
        if drains {
            // Whoever is still connected then is silent, and has nothing that was acknowledged.
            let _ = timeout(DRAIN_LIMIT, server).await;
        }
        drains
    };
    let drained = {
        let mut serving = pin!(serving);
        loop {
            tokio::select! {
                Some(batch) = batches.recv() => owner.take(batch),
                drained = &mut serving => break drained,
            }
        }
    };
    batches.close();
    while let Ok(batch) = batches.try_recv() {
        owner.take(batch);
    }
    let Owner {
        intake,
        forwarder,
        publish: _publish,
    } = owner;
    // Dropped unasked, a forwarder leaves at once.
    let leaving = forwarder.filter(|_| drained).map(Forwarder::leave);
    let tally = intake.finish();
    let forwarded = match leaving {
        Some(leaving) => Some(leaving.done().await),
        None => None,
    };
    Collected { tally, forwarded }
}

impl Owner {
    fn take(&mut self, Batch { mut request, answer }: Batch) {
        let ingested = self.intake.ingest(&request);
        self.publish
            .send_if_modified(|progress| update(progress, self.intake.progress()));
        let partial = ExportTracePartialSuccess {
            rejected_spans: i64::try_from(ingested.rejected).unwrap_or(i64::MAX),
            error_message: ingested.reason,
        };
        let partial_success = (partial != ExportTracePartialSuccess::default()).then_some(partial);
        // A sender that has left misses its answer; its spans count all the same, and a repeated batch changes nothing.
        let _ = answer.send(ExportTraceServiceResponse { partial_success });
        if let Some(forwarder) = &mut self.forwarder {
            if ingested.rejected > 0 {
                request
                    .resource_spans
                    .iter_mut()
                    .flat_map(|group| &mut group.scope_spans)
                    .for_each(|scope| scope.spans.retain(has_valid_ids));
            }
            let spans = forwarder.sift(&mut request).unwrap_or(ingested.accepted);
            forwarder.offer(request, spans);
        }
    }
}

/// Writes the counts over the old ones; says whether anything is new.
fn update<'a>(progress: &mut Progress, counts: impl Iterator<Item = (&'a str, u64)>) -> bool {
    let mut is_new = false;
    for (place, (service, count)) in counts.enumerate() {
        match progress.get_mut(place) {
            Some((_, old)) if *old == count => continue,
            Some((_, old)) => *old = count,
            None => progress.push((service.to_owned(), count)),
        }
        is_new = true;
    }
    is_new
}

/// Serves until `closed`, then until the last connection has ended.
async fn serve(listener: tokio::net::TcpListener, queue: mpsc::Sender<Batch>, closed: oneshot::Receiver<()>) {
    let service = TraceServiceServer::new(Door { queue })
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(MAX_BATCH_BYTES);
    let incoming = TcpIncoming::from(listener)
        .with_nodelay(Some(true))
        .then(|accepted| async {
            if accepted.is_err() {
                sleep(ACCEPT_PAUSE).await;
            }
            accepted
        })
        .filter(Result::is_ok);
    let served = Server::builder()
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, async {
            // Closed by being dropped.
            let _ = closed.await;
        })
        .await;
    debug_assert!(served.is_ok(), "no failed accept gets this far: {served:?}");
}

/// The gRPC service: puts batches in the queue and waits for the owner's answer.
#[derive(Debug)]
struct Door {
    queue: mpsc::Sender<Batch>,
}

#[tonic::async_trait]
impl TraceService for Door {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let closing = || Status::unavailable("the collector is closing; these spans were not counted");
        let (answer, answered) = oneshot::channel();
        let batch = Batch {
            request: request.into_inner(),
            answer,
        };
        self.queue.send(batch).await.map_err(|_| closing())?;
        answered.await.map(Response::new).map_err(|_| closing())
    }
}

#[cfg(test)]
mod tests;
