//! The reasons of `harness/docs/why-not-tower-retry.md`, a test each.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tonic::{Status, body::Body};
use tower::{
    Layer as _, Service as _, ServiceExt as _,
    retry::{
        Policy, RetryLayer,
        budget::{Budget as _, TpsBudget},
    },
    service_fn,
};

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// Answers UNAVAILABLE as a gRPC server does, and counts the arrivals.
fn unavailable(
    arrivals: &Arc<AtomicU32>,
) -> impl tower::Service<Request, Response = Response, Error = Infallible, Future = Ready<Result<Response, Infallible>>>
+ Clone
+ use<> {
    let arrivals = Arc::clone(arrivals);
    service_fn(move |_: Request| {
        arrivals.fetch_add(1, Ordering::Relaxed);
        ready(Ok(Status::unavailable("down").into_http()))
    })
}

/// Retries whatever it is asked about, as far as the body lets it.
#[derive(Clone)]
struct Always {
    asked: Arc<AtomicU32>,
}

impl Policy<Request, Response, Infallible> for Always {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Request, _: &mut Result<Response, Infallible>) -> Option<Ready<()>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Some(ready(()))
    }

    fn clone_request(&mut self, _: &Request) -> Option<Request> {
        // `Body` is not `Clone`: there is nothing else to say.
        None
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_cloned_is_never_retried_and_nobody_is_told() {
    let (arrivals, asked) = (Arc::default(), Arc::default());
    let policy = Always {
        asked: Arc::clone(&asked),
    };
    let answer = RetryLayer::new(policy)
        .layer(unavailable(&arrivals))
        .oneshot(Request::default())
        .await
        .unwrap();
    assert_eq!(answer.headers()["grpc-status"], "14");
    assert_eq!(
        (arrivals.load(Ordering::Relaxed), asked.load(Ordering::Relaxed)),
        (1, 0)
    );
}

/// Retries errors, as most policies do.
#[derive(Clone)]
struct OnError;

impl Policy<Request, Response, Infallible> for OnError {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Request, result: &mut Result<Response, Infallible>) -> Option<Ready<()>> {
        result.is_err().then(|| ready(()))
    }

    fn clone_request(&mut self, _: &Request) -> Option<Request> {
        Some(Request::default())
    }
}

#[tokio::test]
async fn an_ok_response_can_be_a_failure() {
    let arrivals = Arc::default();
    let answer = RetryLayer::new(OnError)
        .layer(unavailable(&arrivals))
        .oneshot(Request::default())
        .await;
    assert_eq!(answer.unwrap().headers()["grpc-status"], "14");
    assert_eq!(arrivals.load(Ordering::Relaxed), 1);
}

#[test]
fn a_budget_of_60_percent_allows_100() {
    let budget = TpsBudget::new(Duration::from_secs(10), 0, 0.6);
    for _ in 0..100 {
        budget.deposit();
    }
    let allowed = (0..200).filter(|_| budget.withdraw()).count();
    assert_eq!(allowed, 100);
}

/// Counts its own retries and stops after three, it thinks.
#[derive(Clone, Default)]
struct ThreeInAll {
    retries: u32,
}

impl Policy<Request, Response, Infallible> for ThreeInAll {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Request, _: &mut Result<Response, Infallible>) -> Option<Ready<()>> {
        self.retries += 1;
        (self.retries <= 3).then(|| ready(()))
    }

    fn clone_request(&mut self, _: &Request) -> Option<Request> {
        Some(Request::default())
    }
}

#[tokio::test]
async fn what_a_policy_counts_in_itself_is_forgotten() {
    let arrivals = Arc::default();
    let mut service = RetryLayer::new(ThreeInAll::default()).layer(unavailable(&arrivals));
    for _ in 0..2 {
        service.ready().await.unwrap().call(Request::default()).await.unwrap();
    }
    // Three retries for each of the two calls, not three in all.
    assert_eq!(arrivals.load(Ordering::Relaxed), 2 * (1 + 3));
}
