//! The client stack: one chain over a connection, and the only way to call anyone.

use crate::{
    Request, Response, call,
    config::{Callee, Config, TransportCodes},
    counts::Counts,
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
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};
use thiserror::Error;
use tonic::transport::{Channel, Endpoint};
use tower::{ServiceBuilder, util::BoxCloneSyncService};

/// A way to call one callee.
pub type Outbound = BoxCloneSyncService<Request, Response, Infallible>;

/// Longest wait for a connection; tonic's own timers start only behind it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why nobody can be called.
#[derive(Debug, Error)]
pub enum OutboundError {
    /// The configuration names no callee.
    #[error("{0} calls nobody: RETRYSCOPE_CALLEE and RETRYSCOPE_CALLEE_ADDRESS are not set")]
    NoCallee(String),
    /// The address cannot be called.
    #[error("cannot call {0}")]
    Address(String, #[source] tonic::transport::Error),
}

/// Builds the client stack of a process for its callee. Connects with the first call.
pub fn outbound(config: &Config, counts: &Arc<Counts>) -> Result<Outbound, OutboundError> {
    let callee = config
        .callee
        .clone()
        .ok_or_else(|| OutboundError::NoCallee(config.service.clone()))?;
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
        use tower::ServiceExt as _;
        let channel = Channel::clone(&self.channel);
        let codes = request
            .extensions()
            .get::<call::Context>()
            .map_or(TransportCodes::default(), |context| {
                context.generation.config.transport_codes
            });
        Box::pin(async move {
            Ok(channel.oneshot(request).await.unwrap_or_else(|error| {
                let (status, failure) = outcome::of_transport(Box::new(error), codes);
                let mut response: Response = status.into_http();
                if let Some(failure) = failure {
                    response.extensions_mut().insert(failure);
                }
                response
            }))
        })
    }
}
