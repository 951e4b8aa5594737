//! Forwards what the collector accepted to an outside OTLP collector, without ever holding up the count.
//!
//! The forwarder has a thread of its own and a bounded queue. When the outside collector is slow, hangs or is not
//! there, the queue fills, and what does not fit is counted as dropped. Each batch is tried once, for at most
//! [`ATTEMPT_LIMIT`], and never again: a retry is what this tool counts, so its own parts make none that nobody asked
//! for. Leaving takes at most [`LEAVE_LIMIT`]. Nothing is printed here; [`Forwarded`] says what became of it all.

use crate::{
    collector::thread,
    tally::{SERVICE_ATTRIBUTE, text_of},
};
use http::Uri;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, trace_service_client::TraceServiceClient,
};
use prost::Message;
use std::{
    error::Error,
    fmt::Write,
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout},
};
use tonic::transport::{Channel, Endpoint};

/// Most spans that wait to be forwarded; further ones are dropped and counted.
pub const QUEUE_SPANS: u64 = 65_536;
/// Most bytes that wait to be forwarded; further spans are dropped and counted.
pub const QUEUE_BYTES: u64 = 256 * 1024 * 1024;
/// Longest wait for the answer to one batch, connecting included.
pub const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);
/// Longest time that leaving takes when batches still wait.
pub const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// Most characters kept of an error's text.
const ERROR_CHARACTERS: usize = 300;
/// The port of OTLP over gRPC, of the OpenTelemetry protocol's specification.
const DEFAULT_PORT: u16 = 4317;

/// Where to forward.
#[derive(Debug, Clone)]
pub struct Forward {
    url: String,
    endpoint: Endpoint,
    /// Services whose spans get there by themselves.
    without: Vec<String>,
}

/// An address that nothing can be forwarded to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// It cannot be read as an address.
    #[error("{read:?} is no collector address; write http://HOST:PORT, for example http://127.0.0.1:4317")]
    NotAnAddress {
        /// What was read.
        read: String,
    },
    /// It asks for TLS.
    #[error("{read:?} asks for TLS, which the forwarder does not speak; write http://HOST:PORT of a collector nearby")]
    Tls {
        /// What was read.
        read: String,
    },
    /// It has no scheme, and its host is not this machine.
    #[error("{read:?} does not say how to talk to another machine; write http://{read}")]
    NoScheme {
        /// What was read.
        read: String,
    },
    /// It has a path, as addresses of OTLP over HTTP do.
    #[error("{read:?} has a path, which is OTLP over HTTP; OTLP over gRPC takes http://HOST:PORT, usually port 4317")]
    Path {
        /// What was read.
        read: String,
    },
}

impl Forward {
    /// Reads `http://HOST:PORT`. Without a port it is 4317; without a scheme the host must be this machine's loopback.
    pub fn to(read: &str) -> Result<Self, ForwardError> {
        let not_an_address = || ForwardError::NotAnAddress { read: read.to_owned() };
        let with_scheme = if read.contains("://") {
            read.to_owned()
        } else {
            format!("http://{read}")
        };
        let uri: Uri = with_scheme.parse().map_err(|_| not_an_address())?;
        let authority = uri.authority().ok_or_else(not_an_address)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(ForwardError::Tls { read: read.to_owned() }),
            _ => return Err(not_an_address()),
        }
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(not_an_address());
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(ForwardError::Path { read: read.to_owned() });
        }
        if !read.contains("://") && !is_loopback(authority.host()) {
            return Err(ForwardError::NoScheme { read: read.to_owned() });
        }
        let port = match authority.port() {
            Some(port) => port.as_str().parse().map_err(|_| not_an_address())?,
            None if authority.as_str().len() > authority.host().len() => return Err(not_an_address()),
            None => DEFAULT_PORT,
        };
        let url = format!("http://{}:{port}", authority.host());
        let endpoint = Endpoint::from_shared(url.clone()).map_err(|_| not_an_address())?;
        Ok(Self {
            url,
            endpoint: endpoint.connect_timeout(ATTEMPT_LIMIT).tcp_nodelay(true),
            without: Vec::new(),
        })
    }

    /// The same without the spans of these services.
    #[must_use]
    pub fn without(self, services: Vec<String>) -> Self {
        Self {
            without: services,
            ..self
        }
    }

    /// The address as it is used: `http://HOST:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What became of the spans that were to be forwarded. The three counts together are all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forwarded {
    /// Where they were forwarded to.
    pub url: String,
    /// Spans that the outside collector acknowledged.
    pub forwarded: u64,
    /// Spans that were never sent: the queue was full, or they still waited when it was time to leave.
    pub dropped: u64,
    /// Spans that were sent, or for which a connection was tried, and that were not acknowledged.
    pub failed: u64,
    /// The first error, for one line on stderr. Partly foreign text: clean it before it is printed.
    pub first_error: Option<String>,
}

/// The near end of the queue.
#[derive(Debug)]
pub(crate) struct Forwarder {
    url: String,
    without: Vec<String>,
    queue: mpsc::UnboundedSender<Batch>,
    waiting: Arc<Waiting>,
    offered: u64,
    dropped: u64,
    leave: watch::Sender<Option<Instant>>,
    outcome: oneshot::Receiver<Forwarded>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Batch {
    request: ExportTraceServiceRequest,
    spans: u64,
    bytes: u64,
}

/// What waits in the queue or is being sent.
#[derive(Debug, Default)]
struct Waiting {
    spans: AtomicU64,
    bytes: AtomicU64,
}

impl Forwarder {
    /// Starts the thread; nothing is connected before the first batch.
    pub(crate) fn start(Forward { url, endpoint, without }: Forward) -> io::Result<Self> {
        let (queue, batches) = mpsc::unbounded_channel();
        let (leave, leaving) = watch::channel(None);
        let waiting = Arc::new(Waiting::default());
        let far_end = FarEnd {
            url: url.clone(),
            batches,
            waiting: Arc::clone(&waiting),
            leaving,
        };
        let make = move || far_end.run(endpoint);
        let (thread, outcome) = thread::spawn("forwarder", thread::runtime()?, make)?;
        Ok(Self {
            url,
            without,
            queue,
            waiting,
            offered: 0,
            dropped: 0,
            leave,
            outcome,
            thread,
        })
    }

    /// Takes out of a batch what gets there by itself; answers how many spans are left, `None` for all.
    pub(crate) fn sift(&self, request: &mut ExportTraceServiceRequest) -> Option<u64> {
        if self.without.is_empty() {
            return None;
        }
        request.resource_spans.retain(|group| {
            let resource = group.resource.as_ref();
            let name = resource.and_then(|resource| text_of(&resource.attributes, SERVICE_ATTRIBUTE));
            !name.is_some_and(|name| self.without.iter().any(|other| other == name))
        });
        let scopes = request.resource_spans.iter().flat_map(|group| &group.scope_spans);
        Some(scopes.map(|scope| scope.spans.len() as u64).sum())
    }

    /// Queues a batch, or counts it as dropped. Never waits.
    pub(crate) fn offer(&mut self, request: ExportTraceServiceRequest, spans: u64) {
        if spans == 0 {
            return;
        }
        self.offered += spans;
        let bytes = request.encoded_len() as u64;
        let has_room = self.waiting.spans.load(Ordering::Relaxed) + spans <= QUEUE_SPANS
            && self.waiting.bytes.load(Ordering::Relaxed) + bytes <= QUEUE_BYTES;
        if has_room {
            self.waiting.add(spans, bytes);
            if self.queue.send(Batch { request, spans, bytes }).is_ok() {
                return;
            }
        }
        self.dropped += spans;
    }

    /// Takes no more, and gives what waits [`LEAVE_LIMIT`] from now.
    pub(crate) fn leave(self) -> Leaving {
        self.leave.send_replace(Some(Instant::now() + LEAVE_LIMIT));
        let Self {
            url,
            offered,
            dropped,
            leave,
            outcome,
            thread,
            ..
        } = self;
        Leaving {
            url,
            offered,
            dropped,
            _leave: leave,
            outcome,
            thread,
        }
    }
}

impl Waiting {
    fn add(&self, spans: u64, bytes: u64) {
        self.spans.fetch_add(spans, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, batch: &Batch) {
        self.spans.fetch_sub(batch.spans, Ordering::Relaxed);
        self.bytes.fetch_sub(batch.bytes, Ordering::Relaxed);
    }
}

/// A forwarder on its way out.
#[derive(Debug)]
pub(crate) struct Leaving {
    url: String,
    offered: u64,
    dropped: u64,
    /// Kept, since losing it means that nobody waits.
    _leave: watch::Sender<Option<Instant>>,
    outcome: oneshot::Receiver<Forwarded>,
    thread: JoinHandle<()>,
}

impl Leaving {
    /// What became of the spans. Blocks the thread for no longer than it takes a finished thread to end.
    pub(crate) async fn done(self) -> Forwarded {
        let outcome = self.outcome.await;
        // Its panic, if there was one, is reported below.
        let _ = self.thread.join();
        match outcome {
            Ok(outcome) => Forwarded {
                dropped: self.dropped + outcome.dropped,
                ..outcome
            },
            Err(_) => Forwarded {
                url: self.url,
                forwarded: 0,
                dropped: self.dropped,
                failed: self.offered - self.dropped,
                first_error: Some("the forwarder ended early; what it had sent is not known".to_owned()),
            },
        }
    }
}

/// The far end of the queue, on its own thread.
struct FarEnd {
    url: String,
    batches: mpsc::UnboundedReceiver<Batch>,
    waiting: Arc<Waiting>,
    leaving: watch::Receiver<Option<Instant>>,
}

impl FarEnd {
    async fn run(mut self, endpoint: Endpoint) -> Forwarded {
        let mut client = TraceServiceClient::new(endpoint.connect_lazy());
        let mut so_far = Forwarded {
            url: self.url.clone(),
            ..Forwarded::default()
        };
        let time_is_up = time_to_leave(self.leaving.clone());
        tokio::pin!(time_is_up);
        let mut leaves_now = false;
        while let Some(batch) = self.batches.recv().await {
            self.waiting.remove(&batch);
            if leaves_now {
                so_far.dropped += batch.spans;
                continue;
            }
            let error = tokio::select! {
                error = send(&mut client, batch.request, batch.spans, &mut so_far) => error,
                () = &mut time_is_up => {
                    leaves_now = true;
                    so_far.failed += batch.spans;
                    Some(format!("no answer within {} s of leaving", LEAVE_LIMIT.as_secs()))
                }
            };
            if let (None, Some(error)) = (&so_far.first_error, error) {
                so_far.first_error = Some(
                    format!("{}: {error}", self.url)
                        .chars()
                        .take(ERROR_CHARACTERS)
                        .collect(),
                );
            }
        }
        so_far
    }
}

/// Ends when the time given for leaving is over, or at once when nobody waits for the outcome.
async fn time_to_leave(mut leaving: watch::Receiver<Option<Instant>>) {
    let until = leaving.wait_for(Option::is_some).await.ok().and_then(|until| *until);
    if let Some(until) = until {
        sleep_until(until).await;
    }
}

/// One attempt. Counts the batch, and gives the error if there is one.
async fn send(
    client: &mut TraceServiceClient<Channel>,
    request: ExportTraceServiceRequest,
    spans: u64,
    so_far: &mut Forwarded,
) -> Option<String> {
    match timeout(ATTEMPT_LIMIT, client.export(request)).await {
        Err(_) => {
            so_far.failed += spans;
            Some(format!("no answer within {} s", ATTEMPT_LIMIT.as_secs()))
        }
        Ok(Err(status)) => {
            so_far.failed += spans;
            Some(chain_of(&status))
        }
        Ok(Ok(answer)) => {
            let partial = answer.into_inner().partial_success.unwrap_or_default();
            let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(spans);
            so_far.forwarded += spans - rejected;
            so_far.failed += rejected;
            (rejected > 0).then(|| format!("{rejected} spans rejected: {}", partial.error_message))
        }
    }
}

/// A status and what caused it, each text once.
fn chain_of(status: &tonic::Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    let mut cause = status.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {said}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
