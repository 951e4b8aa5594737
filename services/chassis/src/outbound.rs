//! The client stack: one chain over a connection, and the only way to call anyone.

use crate::{
    Request, Response, call,
    config::{Callee, Config, Layer, TransportCodes},
    counts::Counts,
    direct::Direct,
    layers::{
        Below, Wrap,
        client_fault::ClientFaultLayer,
        deadline::DeadlineOut,
        retry::{Chances, Retry},
        trace::{TraceAttempt, TraceCall},
    },
    listen::CONNECTION_WINDOW,
    outcome,
};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};
use thiserror::Error;
use tonic::{
    Status,
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::{Layer as _, ServiceBuilder, util::BoxCloneSyncService};

/// A way to call one callee.
pub type Outbound = BoxCloneSyncService<Request, Response, Infallible>;

/// Longest wait for a connection; tonic's own timers start only behind it.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why nobody can be called.
#[derive(Debug, Error)]
pub enum OutboundError {
    /// The configuration names no callee.
    #[error("{0} calls nobody: RETRYSCOPE_CALLEE and RETRYSCOPE_CALLEE_ADDRESS are not set")]
    NoCallee(String),
    /// It is to be what no process here is.
    #[error("{0} would be an Envoy: RETRYSCOPE_LAYER is service, proxy or undeclared here")]
    Envoy(String),
    /// It is to call several times, and forwards each arrival once.
    #[error("{0} forwards what arrives, once: RETRYSCOPE_CALLS is 1 here")]
    OneCall(String),
    /// The address cannot be called.
    #[error("cannot call {0}")]
    Address(String, #[source] tonic::transport::Error),
}

/// Builds the client stack of a process for its callee. Connects with the first call.
pub fn outbound(config: &Config, counts: &Arc<Counts>) -> Result<Outbound, OutboundError> {
    let callee = callee(config)?;
    let address = format!("http://{}", callee.address);
    let endpoint = Endpoint::from_shared(address.clone()).map_err(|error| OutboundError::Address(address, error))?;
    let channel = endpoint
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(CONNECTION_WINDOW)
        .connect_lazy();
    let wire = Wire {
        channel: Arc::new(channel),
    };
    Ok(stack(config, callee, counts, wire))
}

/// Builds the client stack of a process that passes on what arrives, for its callee. Connects with the first call.
pub fn forwarding(config: &Config, counts: &Arc<Counts>) -> Result<Outbound, OutboundError> {
    let callee = callee(config)?;
    let wire = Direct::to(callee.address.clone());
    let retry = || Wrap(Retry::new(callee.clone(), Arc::clone(counts), chances(config.seed)));
    Ok(match config.layer {
        Layer::Service | Layer::Envoy => stack(config, callee, counts, wire),
        // Its call is its arrival, whose span holds the back-offs; it has no faults of its own.
        Layer::Proxy => BoxCloneSyncService::new(
            ServiceBuilder::new()
                .layer(retry())
                .layer(Wrap(DeadlineOut))
                .layer(Wrap(TraceAttempt {
                    counts: Arc::clone(counts),
                    callee: Arc::new(callee.clone()),
                }))
                .service(wire),
        ),
        // No span, no fault and no deadline of its own: nobody is to notice it but for what it repeats.
        Layer::Undeclared => BoxCloneSyncService::new(retry().layer(wire)),
    })
}

fn callee(config: &Config) -> Result<Callee, OutboundError> {
    let callee = config.callee.clone();
    callee.ok_or_else(|| OutboundError::NoCallee(config.service.clone()))
}

fn stack(config: &Config, callee: Callee, counts: &Arc<Counts>, wire: impl Below + Sync + 'static) -> Outbound {
    let shared = || Arc::clone(counts);
    let retry = Retry::new(callee.clone(), shared(), chances(config.seed));
    let callee = Arc::new(callee);
    let fault = |inside| ClientFaultLayer {
        inside,
        counts: shared(),
        callee: Arc::clone(&callee),
    };
    let layered = ServiceBuilder::new()
        // Outside the loop: one span for the call, which holds the back-offs.
        .layer(Wrap(TraceCall { counts: shared() }))
        // A fault of the caller's own that meets whole calls: what it fails is no attempt.
        .layer(Wrap(fault(false)))
        // One call in, n attempts out; all below happens once per attempt.
        .layer(Wrap(retry))
        // A fault of the caller's own that meets attempts: it takes their time before they are told what is
        // left of it, and what it fails leaves no attempt span.
        .layer(Wrap(fault(true)))
        // Inside the loop: a `grpc-timeout` copied to each attempt would multiply the deadline.
        .layer(Wrap(DeadlineOut))
        // A span per attempt; its context is what travels.
        .layer(Wrap(TraceAttempt {
            counts: shared(),
            callee,
        }))
        .service(wire);
    BoxCloneSyncService::new(layered)
}

fn chances(seed: u64) -> Chances {
    let mut random = StdRng::seed_from_u64(seed);
    Arc::new(Mutex::new(move || random.random::<f64>()))
}

/// The bottom of the stack: a connection whose failures become answers with a status.
#[derive(Debug, Clone)]
struct Wire {
    /// Behind one pointer: every layer above clones what lies below it.
    channel: Arc<Channel>,
}

impl tower::Service<Request> for Wire {
    type Response = Response;
    type Error = Infallible;
    type Future = futures_util::future::BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let channel = Channel::clone(&self.channel);
        let codes = codes(&request);
        Box::pin(async move {
            Ok(match send(channel, request).await {
                Ok(response) => response.map(|body| {
                    // A connection that is lost while the answer comes is lost like any other.
                    Body::new(body.map_err(move |status| outcome::of_transport(Box::new(status), codes).0))
                }),
                Err(error) => failed(Box::new(error), codes),
            })
        })
    }
}

/// Which codes a call is to see.
pub(crate) fn codes(request: &Request) -> TransportCodes {
    let context = request.extensions().get::<call::Context>();
    context.map_or(TransportCodes::default(), |context| {
        context.generation.config.transport_codes
    })
}

/// The answer that an attempt gets which the transport failed.
pub(crate) fn failed(error: tonic::codegen::StdError, codes: TransportCodes) -> Response {
    let (status, failure) = outcome::of_transport(error, codes);
    let mut response: Response = status.into_http();
    if let Some(failure) = failure {
        response.extensions_mut().insert(failure);
    }
    response
}

/// Most connections that one attempt is offered to.
pub(crate) const OFFERS: u32 = 4;

/// Sends an attempt. A channel may hand it to a connection that is just closing: of 1,000 attempts behind resets, a caller with
/// several threads never sent 150 to 220; one with a single thread has not been seen to. Such an attempt is offered to the next connection, as gRPC's own clients do
/// (gRFC A6, transparent retries); otherwise it would have been sent and could not have been received.
async fn send(channel: Channel, request: Request) -> Result<Response, tonic::transport::Error> {
    use tower::ServiceExt as _;
    let (head, body) = request.into_parts();
    let body = Offered::new(body);
    for _ in 1..OFFERS {
        let mut request = Request::new(Body::new(body.clone()));
        request.method_mut().clone_from(&head.method);
        request.uri_mut().clone_from(&head.uri);
        *request.version_mut() = head.version;
        request.headers_mut().clone_from(&head.headers);
        match channel.clone().oneshot(request).await {
            Err(error) if is_unsent(&error) && !body.is_begun() => {}
            sent => return sent,
        }
    }
    let request = Request::from_parts(head, Body::new(body));
    channel.oneshot(request).await
}

/// Whether the library gave a request up before it wrote any of it.
fn is_unsent(error: &tonic::transport::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_canceled)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A body that can be offered to another connection as long as nobody has begun to read it. Reading begins when the stream is
/// open, so an unread body proves that its request never left.
#[derive(Debug, Clone)]
struct Offered(Arc<Mutex<(Body, bool)>>);

impl Offered {
    fn new(body: Body) -> Self {
        Self(Arc::new(Mutex::new((body, false))))
    }

    fn lock(&self) -> MutexGuard<'_, (Body, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_begun(&self) -> bool {
        self.lock().1
    }
}

impl http_body::Body for Offered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut offered = self.lock();
        offered.1 = true;
        Pin::new(&mut offered.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        // Never true unread, or an empty body would be sent without anybody beginning to read it.
        let offered = self.lock();
        offered.1 && offered.0.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        code::{self, Code},
        outcome::TransportFailure,
        policy::RetryOn,
        testbed::{self, caller_by, serve},
    };
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::net::TcpListener;

    /// The stack of a service and that of a forwarder.
    const BOTH: [testbed::Build; 2] = [outbound, forwarding];

    /// On one thread, as every process of the chain is.
    #[tokio::test]
    async fn a_thousand_attempts_that_each_end_their_connection_are_all_received() {
        for (fault, build) in ["reset", "goaway"]
            .into_iter()
            .flat_map(|fault| BOTH.map(|build| (fault, build)))
        {
            let served = serve(fault);
            let caller = caller_by(build, served.address, |config| config.retry.attempts = 100);
            for number in 1..=10 {
                let answered = caller.call(number).await;
                assert_eq!(answered, (Code::Unavailable, Some(TransportFailure::Lost)));
            }
            let received = testbed::settled(&served.counts).await.received;
            assert_eq!((caller.sent(), received), (1_000, 1_000), "{fault}");
            assert_eq!(served.outcomes().await, [("cut", 1_000)].into());
            assert_eq!(caller.counts.totals().links["inventory"].transport_errors, 1_000);
        }
    }

    /// What one attempt gets there: tonic's own code, then the normalised one. The same from both stacks.
    async fn raw_and_normalised(address: SocketAddr) -> (&'static str, &'static str, Option<TransportFailure>) {
        let mut got = Vec::new();
        for build in BOTH {
            let ask = async |codes| {
                caller_by(build, address, |config| config.transport_codes = codes)
                    .call(1)
                    .await
            };
            let (raw, failure) = ask(TransportCodes::Raw).await;
            let (normalised, same) = ask(TransportCodes::Normalized).await;
            assert_eq!(failure, same);
            got.push((code::name(raw), code::name(normalised), failure));
        }
        assert_eq!(got[0], got[1]);
        got[0]
    }

    #[tokio::test]
    async fn each_end_of_an_attempt_has_its_raw_and_its_normalised_code() {
        use TransportFailure::{Lost, Refused, StreamReset};
        for (fault, raw, normalised, failure) in [
            ("reset", "UNKNOWN", "UNAVAILABLE", Lost),
            ("goaway", "UNKNOWN", "UNAVAILABLE", Lost),
            ("refuse", "UNAVAILABLE", "UNAVAILABLE", Refused),
        ] {
            let served = serve(fault);
            let got = raw_and_normalised(served.address).await;
            assert_eq!(got, (raw, normalised, Some(failure)), "{fault}");
        }
        for (reason, code) in [
            ("NO_ERROR", "INTERNAL"),
            ("PROTOCOL_ERROR", "INTERNAL"),
            ("INTERNAL_ERROR", "INTERNAL"),
            ("FLOW_CONTROL_ERROR", "INTERNAL"),
            ("SETTINGS_TIMEOUT", "INTERNAL"),
            ("STREAM_CLOSED", "UNKNOWN"),
            ("FRAME_SIZE_ERROR", "INTERNAL"),
            ("REFUSED_STREAM", "UNAVAILABLE"),
            ("CANCEL", "CANCELLED"),
            ("COMPRESSION_ERROR", "INTERNAL"),
            ("CONNECT_ERROR", "INTERNAL"),
            ("ENHANCE_YOUR_CALM", "RESOURCE_EXHAUSTED"),
            ("INADEQUATE_SECURITY", "PERMISSION_DENIED"),
            ("HTTP_1_1_REQUIRED", "UNKNOWN"),
        ] {
            let served = serve(&format!("reset:of=stream,code={reason}"));
            let got = raw_and_normalised(served.address).await;
            assert_eq!(got, (code, code, Some(StreamReset)), "{reason}");
        }
    }

    /// A peer that is no gRPC server.
    async fn peer() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn a_peer_that_closes_before_the_handshake_is_offered_an_attempt_so_often_and_no_more() {
        let (listener, address) = peer().await;
        let accepting = tokio::spawn(async move {
            // Two stacks, each under both kinds of codes.
            for _ in 0..4 * OFFERS {
                drop(listener.accept().await.unwrap());
            }
        });
        let got = raw_and_normalised(address).await;
        assert_eq!(got, ("CANCELLED", "UNAVAILABLE", Some(TransportFailure::Lost)));
        accepting.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_lost_in_the_middle_of_an_answer_is_unavailable() {
        let (listener, address) = peer().await;
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let (_, mut answer) = connection.accept().await.unwrap().unwrap();
                let mut body = answer.send_response(http::Response::new(()), false).unwrap();
                body.send_data("x".into(), false).unwrap();
                // Written out, then closed with the answer unfinished.
                std::future::poll_fn(|context| {
                    let _ = connection.poll_closed(context);
                    Poll::Ready(())
                })
                .await;
            }
        });
        let (raw, normalised, _) = raw_and_normalised(address).await;
        assert_eq!((raw, normalised), ("UNKNOWN", "UNAVAILABLE"));
    }

    #[tokio::test]
    async fn a_reset_stream_is_not_sent_again_by_itself() {
        for build in BOTH {
            let served = serve("reset:of=stream,first=1");
            let caller = caller_by(build, served.address, |config| config.retry.retry_on = RetryOn::Any);
            let (code, _) = caller.call(1).await;
            assert_eq!((code, served.counts.totals().received), (Code::Unavailable, 1));
        }
    }
}
