//! Tests only: a service behind real sockets with the whole server stack around it, and the whole client stack to call it.

use crate::{
    Request, Response,
    call::Context,
    code::Code,
    config::{Callee, Config},
    counts::{Counts, Totals},
    inbound,
    listen::Port,
    outbound::{self, Outbound, OutboundError},
    outcome::{self, Head, TransportFailure},
    settings::{Generation, Live},
};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    task::{self, Poll},
};
use tokio::sync::watch;
use tonic::{Status, body::Body, server::NamedService};
use tower::ServiceExt as _;

/// The one method of the service.
pub(crate) const METHOD: &str = "/test.Works/Work";

/// A service that answers OK.
#[derive(Debug, Clone, Copy)]
struct Works;

impl NamedService for Works {
    const NAME: &'static str = "test.Works";
}

impl tower::Service<Request> for Works {
    type Response = Response;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        let trailers = http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
        let frames = [
            Ok::<_, Status>(Frame::data(Bytes::from_static(&[0; 5]))),
            Ok(Frame::trailers(trailers)),
        ];
        let mut response = Response::new(Body::new(StreamBody::new(tokio_stream::iter(frames))));
        let grpc = http::HeaderValue::from_static("application/grpc");
        response.headers_mut().insert("content-type", grpc);
        std::future::ready(Ok(response))
    }
}

/// A service that runs.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) counts: Arc<Counts>,
    pub(crate) live: Arc<Live>,
    /// It runs until this is dropped.
    _stop: watch::Sender<bool>,
}

/// Starts the service, as this fault has it.
pub(crate) fn serve(fault: &str) -> Served {
    serve_with(fault, |_| ())
}

/// Starts the service; `change` says what else is special about it.
pub(crate) fn serve_with(fault: &str, change: impl FnOnce(&mut Config)) -> Served {
    let counts = Counts::new(10);
    let mut config = Config::named("inventory");
    config.fault = fault.parse().unwrap();
    change(&mut config);
    let live = Live::new(config);
    let shop = inbound::shop(&live, &counts, Works);
    let (leave, left) = watch::channel(false);
    let port = Port::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), *live.gate().borrow()).unwrap();
    let address = port.address();
    tokio::spawn(shop.serve(port, live.gate(), Arc::clone(&counts), left));
    Served {
        address,
        counts,
        live,
        _stop: leave,
    }
}

impl Served {
    /// How the arrivals ended, once all of them have.
    pub(crate) async fn outcomes(&self) -> BTreeMap<&'static str, u64> {
        let totals = settled(&self.counts).await;
        let mut outcomes = BTreeMap::new();
        for (key, count) in &totals.arrivals {
            *outcomes.entry(key.outcome.name()).or_default() += count;
        }
        outcomes
    }

    /// Puts another fault in force.
    pub(crate) fn switch(&self, number: u64, fault: &str) {
        let settings = BTreeMap::from([(crate::config::FAULT.to_owned(), fault.to_owned())]);
        self.live.switch(number, &settings).unwrap();
    }
}

/// What was counted, once nothing is in flight.
pub(crate) async fn settled(counts: &Counts) -> Totals {
    loop {
        let totals = counts.totals();
        if totals.in_flight == 0 {
            return totals;
        }
        tokio::task::yield_now().await;
    }
}

/// Somebody who calls it.
pub(crate) struct Caller {
    pub(crate) counts: Arc<Counts>,
    outbound: Outbound,
    generation: Arc<Generation>,
}

/// The client stack to this address; `change` says what is special about the caller.
pub(crate) fn caller(address: SocketAddr, change: impl FnOnce(&mut Config)) -> Caller {
    caller_by(outbound::outbound, address, change)
}

/// One of the ways to build a client stack.
pub(crate) type Build = fn(&Config, &Arc<Counts>) -> Result<Outbound, OutboundError>;

/// The client stack that is built like this.
pub(crate) fn caller_by(build: Build, address: SocketAddr, change: impl FnOnce(&mut Config)) -> Caller {
    let mut config = Config::named("pricing");
    config.callee = Some(Callee {
        name: "inventory".into(),
        address: address.to_string().parse().unwrap(),
    });
    change(&mut config);
    let counts = Counts::new(0);
    Caller {
        outbound: build(&config, &counts).unwrap(),
        counts,
        generation: Generation::first(config),
    }
}

impl Caller {
    /// Calls once, as often as the policy tries, and reads the answer to its end.
    pub(crate) async fn call(&self, number: u64) -> (Code, Option<TransportFailure>) {
        let mut request = Request::new(Body::new(Full::from(vec![0; 5])));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = METHOD.parse().unwrap();
        request
            .extensions_mut()
            .insert(Context::root(number, None, Arc::clone(&self.generation)));
        let response = self.outbound.clone().oneshot(request).await.unwrap();
        let failure = response.extensions().get().copied();
        let code = match outcome::head(&response) {
            Head::TrailersOnly(code) => code,
            Head::Committed => match response.into_body().collect().await {
                Ok(body) => body.trailers().and_then(outcome::status_in).unwrap_or(Code::Unknown),
                Err(status) => status.code(),
            },
        };
        (code, failure)
    }

    /// Attempts sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.counts.totals().links["inventory"].sent
    }
}
