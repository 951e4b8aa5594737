//! The layers: one file each, none leans on another. A layer is one async function around what lies below it; `Wrap` makes a
//! tower layer of it.

pub mod client_fault;
pub mod deadline;
pub mod detach;
pub mod fault;
pub mod ledger;
pub mod retry;
pub mod trace;

use crate::{Request, Response};
use futures_util::future::BoxFuture;
use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

/// What lies below a layer. Nothing in the stacks fails: every failure is an answer with a status, so that each layer sees
/// the same thing whoever made it.
pub trait Below: tower::Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send {}
impl<S> Below for S where
    S: tower::Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send
{
}

/// One async function around what lies below.
pub trait Around: Send + Sync + 'static {
    /// Answers a request, asking `below` as often as it likes.
    fn around(&self, request: Request, below: impl Below + 'static) -> impl Future<Output = Response> + Send;
}

/// Asks what lies below once.
pub async fn ask(below: &mut impl Below, request: Request) -> Response {
    use tower::ServiceExt as _;
    match below.ready().await {
        Ok(ready) => match ready.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        Err(never) => match never {},
    }
}

/// The tower layer of an [`Around`].
#[derive(Debug, Clone)]
pub struct Wrap<A>(pub A);

impl<A: Clone, S> tower::Layer<S> for Wrap<A> {
    type Service = Wrapped<A, S>;

    fn layer(&self, below: S) -> Self::Service {
        Wrapped(Arc::new((self.0.clone(), below)))
    }
}

/// A service with a layer around it. Behind one pointer: every layer clones what lies below it, once a request.
#[derive(Debug)]
pub struct Wrapped<A, S>(Arc<(A, S)>);

impl<A, S> Clone for Wrapped<A, S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: Around, S: Below + Sync + 'static> tower::Service<Request> for Wrapped<A, S> {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // `ask` waits for readiness, once per attempt.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let wrapped = Arc::clone(&self.0);
        Box::pin(async move {
            let (around, below) = &*wrapped;
            Ok(around.around(request, below.clone()).await)
        })
    }
}
