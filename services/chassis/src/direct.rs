//! The bottom of a forwarder's client stack: a connection that passes requests and answers on as they are.
//!
//! Not tonic's channel, which lies under the services: that names itself in `user-agent`, calls everybody by its own
//! authority, ends each call by a timer of its own, and queues what it is given behind one more task.

use crate::{
    Request, Response,
    address::Address,
    body::poll_filled,
    config::TransportCodes,
    listen::{CONNECTION_WINDOW, HEADER_LIST, STREAM_WINDOW},
    outbound::{CONNECT_TIMEOUT, OFFERS, codes, failed},
    outcome,
};
use bytes::Bytes;
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use http_body::Frame;
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};
use tokio::{net::TcpStream, time::timeout};
use tonic::{Status, body::Body, codegen::StdError};

/// A way to one callee. Clones share its connection.
#[derive(Debug, Clone)]
pub(crate) struct Direct(Arc<Way>);

#[derive(Debug)]
struct Way {
    address: Address,
    /// The connection that is used or being made, if there is one.
    line: Mutex<Option<Line>>,
}

/// A connection, as soon as it is there. All who need it wait for the same one.
type Line = Shared<BoxFuture<'static, Result<SendRequest<Body>, Unconnected>>>;

/// Why there is no connection: what can be told to several.
#[derive(Debug, Clone)]
struct Unconnected(io::ErrorKind, Arc<str>);

impl From<io::Error> for Unconnected {
    fn from(error: io::Error) -> Self {
        Self(error.kind(), error.to_string().into())
    }
}

impl From<Unconnected> for StdError {
    fn from(Unconnected(kind, text): Unconnected) -> Self {
        io::Error::new(kind, format!("cannot connect: {text}")).into()
    }
}

impl Direct {
    /// Connects with the first request.
    pub(crate) fn to(address: Address) -> Self {
        Self(Arc::new(Way {
            address,
            line: Mutex::default(),
        }))
    }

    /// The connection in use, or a new one where that has ended.
    fn line(&self) -> Line {
        let mut line = self.0.line.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = line.as_ref().filter(|line| match line.peek() {
            None => true,
            Some(made) => made.as_ref().is_ok_and(|sender| !sender.is_closed()),
        });
        match usable {
            Some(usable) => usable.clone(),
            None => line.insert(connecting(self.0.address.clone())).clone(),
        }
    }

    /// Sends an attempt. One that a connection ended without having written is offered to the next, as gRPC's own clients do
    /// (gRFC A6, transparent retries).
    async fn send(&self, mut request: Request) -> Result<http::Response<Incoming>, StdError> {
        let mut offers = 0;
        loop {
            offers += 1;
            let mut sender = self.line().await?;
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            match error.take_message().filter(|_| offers < OFFERS) {
                Some(unsent) => request = unsent,
                None => return Err(error.into_error().into()),
            }
        }
    }
}

/// Makes a connection in a task of its own: who waits for it may leave.
fn connecting(address: Address) -> Line {
    let made = tokio::spawn(connect(address));
    let made = async { made.await.unwrap_or_else(|gone| Err(io::Error::other(gone).into())) };
    made.boxed().shared()
}

async fn connect(address: Address) -> Result<SendRequest<Body>, Unconnected> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect((&*address.host, address.port)))
        .await
        .unwrap_or_else(|late| Err(late.into()))?;
    stream.set_nodelay(true)?;
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_header_list_size(HEADER_LIST);
    let (sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // Its end shows at the sender.
    tokio::spawn(connection);
    Ok(sender)
}

impl tower::Service<Request> for Direct {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let direct = self.clone();
        Box::pin(async move {
            let codes = codes(&request);
            if request.uri().authority().is_none() {
                // It came with a `host` instead, which goes on as it is. The library lets a request without an authority pass
                // only as one of HTTP/1.1.
                *request.version_mut() = http::Version::HTTP_11;
            }
            Ok(match direct.send(request).await {
                Ok(response) => response.map(|incoming| Body::new(Passed { incoming, codes })),
                Err(error) => failed(error, codes),
            })
        })
    }
}

/// An answer that comes. A connection that is lost meanwhile is lost like any other.
struct Passed {
    incoming: Incoming,
    codes: TransportCodes,
}

impl http_body::Body for Passed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let codes = self.codes;
        let frame = poll_filled(&mut self.incoming, context);
        frame.map_err(|error| outcome::of_transport(Box::new(error), codes).0)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }
}
