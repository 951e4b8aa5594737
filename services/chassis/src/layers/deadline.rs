//! Deadlines: inbound, work ends when the time it was given is over; outbound, each attempt is told the time that is left.
//!
//! Outbound it sits inside the retry layer: a `grpc-timeout` that is copied to each attempt silently multiplies the deadline.

use super::{Around, Below, ask};
use crate::{
    Request, Response,
    call::{self, Context},
    outcome::Expired,
};
use http::HeaderValue;
use tokio::time::Instant;
use tonic::Status;

/// Ends work at its deadline with `DEADLINE_EXCEEDED`.
#[derive(Debug, Clone, Copy)]
pub struct DeadlineIn;

impl Around for DeadlineIn {
    async fn around(&self, request: Request, mut below: impl Below) -> Response {
        let deadline = request
            .extensions()
            .get::<Context>()
            .and_then(|context| context.deadline);
        let Some(deadline) = deadline else {
            return ask(&mut below, request).await;
        };
        if Instant::now() >= deadline {
            return expired();
        }
        tokio::time::timeout_at(deadline, ask(&mut below, request))
            .await
            .unwrap_or_else(|_| expired())
    }
}

fn expired() -> Response {
    let mut response = Status::deadline_exceeded("the deadline passed before the work was done").into_http();
    response.extensions_mut().insert(Expired);
    response
}

/// Tells each attempt the time that is left.
#[derive(Debug, Clone, Copy)]
pub struct DeadlineOut;

impl Around for DeadlineOut {
    async fn around(&self, mut request: Request, mut below: impl Below) -> Response {
        let context = request.extensions().get::<Context>();
        let left = context
            .and_then(|context| context.deadline)
            .map(|deadline| deadline - Instant::now());
        let request_deadline = context.and_then(|context| context.request_deadline_us);
        if let Some(value) = left.and_then(|left| HeaderValue::try_from(call::format_timeout(left)).ok()) {
            request.headers_mut().insert(call::TIMEOUT, value);
        }
        if let Some(deadline) = request_deadline {
            request
                .headers_mut()
                .insert(call::DEADLINE, HeaderValue::from(deadline));
        }
        ask(&mut below, request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, layers::Wrap, settings::Generation};
    use std::{convert::Infallible, time::Duration};
    use tower::{Layer as _, ServiceExt as _, service_fn};

    fn context(deadline: Option<Duration>) -> Context {
        Context::root(1, deadline, Generation::first(Config::named("pricing")))
    }

    fn request(context: Context) -> Request {
        let mut request = Request::default();
        request.extensions_mut().insert(context);
        request
    }

    #[tokio::test(start_paused = true)]
    async fn each_attempt_is_told_what_is_left() {
        let told = service_fn(|request: Request| async move {
            let timeout = request.headers()[call::TIMEOUT].clone();
            Ok::<_, Infallible>(
                http::Response::builder()
                    .header("told", timeout)
                    .body(tonic::body::Body::empty())
                    .unwrap(),
            )
        });
        let context = context(Some(Duration::from_secs(10)));
        tokio::time::advance(Duration::from_secs(4)).await;
        let answer = Wrap(DeadlineOut).layer(told).oneshot(request(context)).await.unwrap();
        assert_eq!(answer.headers()["told"], "6000000u");
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_at_its_deadline() {
        let never = service_fn(|_: Request| std::future::pending::<Result<Response, Infallible>>());
        let context = context(Some(Duration::from_millis(50)));
        let started = Instant::now();
        let answer = Wrap(DeadlineIn).layer(never).oneshot(request(context)).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4");
        assert!(answer.extensions().get::<Expired>().is_some());
        assert_eq!(started.elapsed().as_millis(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn an_arrival_without_time_does_no_work() {
        let work = service_fn(|_: Request| async { panic!("the work began") as Result<Response, Infallible> });
        let context = context(Some(Duration::ZERO));
        let answer = Wrap(DeadlineIn).layer(work).oneshot(request(context)).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4");
    }
}
