//! The fault layer: behaves as the broken service itself, right around the handler. What an arrival gets is decided by
//! `crate::fault::verdict`; here it is obeyed. What a layer cannot do, such as resetting a connection, its answer asks for
//! (`crate::connection`).

use super::{Around, Below, ask};
use crate::{
    Request, Response, body,
    call::Context,
    code::Code,
    connection::{End, Instead},
    fault::{self, At, Fail, Kind, Reset, Verdict},
    outcome::{self, CallerLeft, Head, WorkDone},
    seen::Place,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use http_body::Frame;
use http_body_util::StreamBody;
use std::time::Duration;
use tonic::{Status, body::Body};

/// Fails arrivals as the fault in force when they came says.
#[derive(Debug, Clone, Copy)]
pub struct FaultLayer;

/// When the caller may try again, as a fault asks (gRFC A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";

impl Around for FaultLayer {
    async fn around(self, request: Request, mut below: impl Below) -> Response {
        let Some(context) = request.extensions().get::<Context>() else {
            return ask(&mut below, request).await;
        };
        let verdict = fault::verdict(
            &context.generation.config.fault,
            context,
            &mut context.generation.seen(),
        );
        match verdict.then {
            Kind::Overload { capacity, code } => {
                // A place is taken before the wait: the delay is the service's work.
                let place = context.generation.seen().enter(capacity);
                overload(place, code, verdict.delay, request, below).await
            }
            _ => {
                wait(verdict.delay).await;
                obey(verdict, request, below).await
            }
        }
    }
}

/// Zero is no wait at all: the timer would round it up to its next millisecond.
async fn wait(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

/// What follows the wait. Whatever does not run the handler reads the request first.
async fn obey(verdict: Verdict, request: Request, mut below: impl Below) -> Response {
    match verdict.then {
        // A closed port lets nothing in; what arrived before it closed is worked on until it is cut.
        Kind::None | Kind::Refuse => ask(&mut below, request).await,
        Kind::Fail(told) if told.at == At::After => {
            let response = ask(&mut below, request).await;
            match outcome::head(&response) {
                // Work that failed by itself keeps its own status.
                Head::TrailersOnly(own) if own != Code::Ok => response,
                _ => {
                    let mut failed: Response = status(told).into_http();
                    failed.extensions_mut().insert(WorkDone);
                    failed
                }
            }
        }
        Kind::Fail(told) => {
            body::drain(request.into_body()).await;
            match told.at {
                At::Headers => headers_first(&status(told)),
                At::Before | At::After => status(told).into_http(),
            }
        }
        Kind::Hang => {
            let left = request.extensions().get::<CallerLeft>().cloned();
            body::drain(request.into_body()).await;
            hang(left).await
        }
        Kind::Reset(Reset::Connection) => instead(Instead::End(End::Reset), request).await,
        Kind::Reset(Reset::Stream(reason)) => instead(Instead::ResetStream(reason), request).await,
        Kind::GoAway => instead(Instead::End(End::GoAway), request).await,
        Kind::Http { status } => {
            body::drain(request.into_body()).await;
            bare(status)
        }
        Kind::Overload { code, .. } => {
            body::drain(request.into_body()).await;
            failure(code).into_http()
        }
    }
}

fn failure(code: Code) -> Status {
    Status::new(code, "the injected fault")
}

fn status(told: Fail) -> Status {
    let mut status = failure(told.code);
    if let Some(ms) = told.pushback_ms
        && let Ok(value) = ms.to_string().parse()
    {
        status.metadata_mut().insert(PUSHBACK, value);
    }
    status
}

/// An answer that begins and then fails.
fn headers_first(status: &Status) -> Response {
    let mut trailers = HeaderMap::new();
    // Our own text and numbers are valid in a header.
    let _ = status.add_header(&mut trailers);
    let frames = [Ok::<_, Status>(Frame::<Bytes>::trailers(trailers))];
    let mut response = Response::new(Body::new(StreamBody::new(tokio_stream::iter(frames))));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

/// An answer that no gRPC server would give, as a proxy or a load balancer does.
fn bare(status: u16) -> Response {
    let mut response = Response::default();
    // The grammar lets only statuses through.
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    let text = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

/// An answer that is never sent. Its status is what the caller will make of it, for the SERVER span.
async fn instead(instead: Instead, request: Request) -> Response {
    body::drain(request.into_body()).await;
    let mut response: Response = failure(Code::Unavailable).into_http();
    response.extensions_mut().insert(instead);
    response
}

/// Never answers. The caller ends it, by dropping this, or by leaving where work goes on without its caller.
async fn hang(left: Option<CallerLeft>) -> Response {
    match left {
        Some(CallerLeft(mut left)) => while left.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
    failure(Code::Cancelled).into_http()
}

/// Works on it, late, when there is a place; turns it away at once when there is none.
async fn overload(
    place: Option<Place>,
    code: Code,
    delay: Duration,
    request: Request,
    mut below: impl Below,
) -> Response {
    let Some(place) = place else {
        body::drain(request.into_body()).await;
        return failure(code).into_http();
    };
    wait(delay).await;
    let response = ask(&mut below, request).await;
    // The place is given back when the answer has ended, or with the arrival.
    match outcome::head(&response) {
        Head::TrailersOnly(_) => response,
        Head::Committed => response.map(|inner| body::watch(inner, None, move |_| drop(place))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{call::AttemptPath, config::Config, layers::Wrap, settings::Generation};
    use std::{convert::Infallible, sync::Arc};
    use tower::{Layer as _, ServiceExt as _, service_fn};

    async fn code_of(generation: &Arc<Generation>, work: Code, request_number: u64, attempt: u32) -> (Code, bool) {
        let handler = service_fn(move |_: Request| async move {
            Ok::<Response, Infallible>(match work {
                Code::Ok => Response::default(),
                code => Status::new(code, "own").into_http(),
            })
        });
        let mut request = Request::default();
        let path = Some(AttemptPath::root(request_number).then(attempt));
        request.extensions_mut().insert(Context {
            path,
            attempt,
            ..Context::root(request_number, None, Arc::clone(generation))
        });
        let response = Wrap(FaultLayer).layer(handler).oneshot(request).await.unwrap();
        let code = match outcome::head(&response) {
            Head::TrailersOnly(code) => code,
            Head::Committed => Code::Ok,
        };
        (code, response.extensions().get::<WorkDone>().is_some())
    }

    fn under(fault: &str) -> Arc<Generation> {
        Generation::first(Config {
            fault: fault.parse().unwrap(),
            ..Config::named("inventory")
        })
    }

    #[tokio::test]
    async fn the_first_two_arrivals_of_each_request_fail() {
        let generation = under("fail:first=2");
        for request in 1..=2 {
            let mut codes = Vec::new();
            for attempt in 1..=3 {
                codes.push(code_of(&generation, Code::Ok, request, attempt).await.0);
            }
            assert_eq!(codes, [Code::Unavailable, Code::Unavailable, Code::Ok]);
        }
    }

    #[tokio::test]
    async fn in_the_scope_of_the_process_the_requests_share_the_count() {
        let generation = under("fail:first=2,scope=process");
        let mut codes = Vec::new();
        for request in 1..=3 {
            codes.push(code_of(&generation, Code::Ok, request, 1).await.0);
        }
        assert_eq!(codes, [Code::Unavailable, Code::Unavailable, Code::Ok]);
    }

    #[tokio::test]
    async fn after_the_work_it_fails_and_the_work_counts() {
        assert_eq!(
            code_of(&under("fail:at=after"), Code::Ok, 1, 1).await,
            (Code::Unavailable, true)
        );
        assert_eq!(
            code_of(&under("fail"), Code::Ok, 1, 1).await,
            (Code::Unavailable, false)
        );
    }

    #[tokio::test]
    async fn an_invalid_request_keeps_its_status_only_after_the_work() {
        assert_eq!(
            code_of(&under("fail:at=after"), Code::InvalidArgument, 1, 1).await,
            (Code::InvalidArgument, false)
        );
        assert_eq!(
            code_of(&under("fail"), Code::InvalidArgument, 1, 1).await,
            (Code::Unavailable, false)
        );
    }

    #[tokio::test]
    async fn the_same_path_again_is_another_draw_and_a_rerun_repeats_them() {
        let run = async || {
            let generation = under("fail:p=0.5");
            let mut codes = Vec::new();
            for _ in 0..64 {
                codes.push(code_of(&generation, Code::Ok, 1, 1).await.0);
            }
            codes
        };
        let first = run().await;
        assert!(first.contains(&Code::Ok) && first.contains(&Code::Unavailable));
        assert_eq!(first, run().await);
    }
}
