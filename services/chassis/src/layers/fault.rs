//! The fault layer: behaves as the broken service itself, right around the handler. What an arrival gets is decided by
//! `crate::fault::verdict`; here it is obeyed. What a layer cannot do, such as resetting a connection, its answer asks for
//! (`crate::connection`).

use super::{Around, Below, ask};
use crate::{
    Request, Response, body,
    call::{Context, PUSHBACK},
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

impl Around for FaultLayer {
    async fn around(&self, request: Request, mut below: impl Below) -> Response {
        let Some(context) = request.extensions().get::<Context>() else {
            return ask(&mut below, request).await;
        };
        let generation = &context.generation;
        let mut verdict = fault::verdict(&generation.config.fault, context, &mut generation.seen());
        let mut place = None;
        if let Kind::Overload { capacity, code } = verdict.then {
            // Taken before the wait: the delay is the service's work.
            place = generation.seen().enter(capacity);
            verdict = match place {
                Some(_) => Verdict {
                    then: Kind::None,
                    ..verdict
                },
                None => Verdict {
                    delay: Duration::ZERO,
                    then: Kind::Fail(Fail {
                        code,
                        ..Fail::default()
                    }),
                },
            };
        }
        wait(verdict.delay).await;
        hold(place, obey(verdict.then, request, below).await)
    }
}

/// Zero is no wait at all: the timer would round it up to its next millisecond.
async fn wait(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

/// What follows the wait. Whatever does not run the handler reads the request first.
async fn obey(kind: Kind, request: Request, mut below: impl Below) -> Response {
    match kind {
        // A closed port lets nothing in; what arrived before it closed is worked on until it is cut. In an overload this one
        // has its place.
        Kind::None | Kind::Refuse | Kind::Overload { .. } => ask(&mut below, request).await,
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

/// Gives a place back when the answer has ended.
fn hold(place: Option<Place>, response: Response) -> Response {
    match (place, outcome::head(&response)) {
        (Some(place), Head::Committed) => response.map(|inner| body::watch(inner, None, move |_| drop(place))),
        _ => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{call::AttemptPath, config::Config, layers::Wrap, settings::Generation};
    use http_body_util::BodyExt as _;
    use std::{convert::Infallible, sync::Arc};
    use tokio::time::Instant;
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

    /// An arrival of a request of its own.
    fn arrival(generation: &Arc<Generation>, number: u64) -> Request {
        let mut request = Request::default();
        request.extensions_mut().insert(Context {
            path: Some(AttemptPath::root(number).then(1)),
            ..Context::root(number, None, Arc::clone(generation))
        });
        request
    }

    /// What the layer answers around a handler that must not run.
    async fn answer_of(fault: &str) -> Response {
        let handler = service_fn(|_: Request| async { panic!("the handler ran") as Result<Response, Infallible> });
        let request = arrival(&under(fault), 1);
        Wrap(FaultLayer).layer(handler).oneshot(request).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_comes_first_and_its_rounding_is_none() {
        for (fault, ms, code) in [
            ("delay:ms=50", 50, Code::Ok),
            ("delay:ms=50+fail", 50, Code::Unavailable),
            ("delay:ms=0", 0, Code::Ok),
            ("none", 0, Code::Ok),
        ] {
            let started = Instant::now();
            let answered = code_of(&under(fault), Code::Ok, 1, 1).await.0;
            assert_eq!((answered, started.elapsed().as_millis()), (code, ms), "{fault}");
        }
    }

    #[tokio::test]
    async fn headers_come_first_and_then_the_failure() {
        let answer = answer_of("fail:at=headers,code=ABORTED,pushback=20").await;
        assert_eq!(outcome::head(&answer), Head::Committed);
        assert_eq!(answer.headers()["content-type"], "application/grpc");
        let body = answer.into_body().collect().await.unwrap();
        let trailers = body.trailers().unwrap();
        assert_eq!(outcome::status_in(trailers), Some(Code::Aborted));
        assert_eq!(trailers[PUSHBACK], "20");
    }

    #[tokio::test]
    async fn a_pushback_goes_with_its_failure_and_with_no_other() {
        for (fault, pushback) in [
            ("fail:pushback=250", Some("250")),
            ("fail:pushback=-1", Some("-1")),
            ("fail", None),
        ] {
            let answer = answer_of(fault).await;
            let given = answer.headers().get(PUSHBACK).map(|value| value.to_str().unwrap());
            assert_eq!(given, pushback, "{fault}");
        }
        let generation = under("fail:at=after,pushback=250");
        let works = service_fn(|_: Request| async { Ok::<Response, Infallible>(Response::default()) });
        let layered = Wrap(FaultLayer).layer(works);
        let answer = layered.oneshot(arrival(&generation, 1)).await.unwrap();
        assert_eq!(answer.headers()[PUSHBACK], "250");
    }

    #[tokio::test]
    async fn a_bare_status_carries_no_status_of_grpc() {
        for (status, head) in [
            (503, Head::TrailersOnly(Code::Unavailable)),
            (404, Head::TrailersOnly(Code::Unimplemented)),
            (500, Head::TrailersOnly(Code::Unknown)),
            (200, Head::Committed),
        ] {
            let answer = answer_of(&format!("http:status={status}")).await;
            assert_eq!(answer.status(), status);
            assert_eq!(answer.headers()["content-type"], "text/plain");
            assert!(answer.headers().get("grpc-status").is_none());
            assert_eq!(outcome::head(&answer), head);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hang_ends_only_with_its_caller() {
        let hour = Duration::from_secs(3_600);
        assert!(tokio::time::timeout(hour, answer_of("hang")).await.is_err());
        let (stays, left) = tokio::sync::watch::channel(());
        let mut request = arrival(&under("hang"), 1);
        request.extensions_mut().insert(CallerLeft(left));
        let handler = service_fn(|_: Request| async { Ok::<Response, Infallible>(Response::default()) });
        let hangs = tokio::spawn(Wrap(FaultLayer).layer(handler).oneshot(request));
        tokio::time::sleep(hour).await;
        assert!(!hangs.is_finished());
        drop(stays);
        hangs.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_a_layer_cannot_do_its_answer_asks_for() {
        for (fault, asked) in [
            ("reset", Instead::End(End::Reset)),
            ("goaway", Instead::End(End::GoAway)),
            ("reset:of=stream,code=CANCEL", Instead::ResetStream(h2::Reason::CANCEL)),
        ] {
            assert_eq!(answer_of(fault).await.extensions().get(), Some(&asked), "{fault}");
        }
    }

    #[tokio::test]
    async fn a_request_is_read_before_any_answer_that_the_handler_does_not_give() {
        for fault in [
            "fail",
            "fail:at=headers",
            "http:status=503",
            "reset",
            "reset:of=stream",
            "goaway",
            "overload:capacity=0",
        ] {
            let (read, mut reading) = tokio::sync::mpsc::channel(1);
            let frames = futures_util::stream::once(async move {
                read.send(()).await.unwrap();
                Ok::<_, Status>(Frame::data(Bytes::from_static(b"x")))
            });
            let request = arrival(&under(fault), 1).map(|_| Body::new(StreamBody::new(frames)));
            let handler = service_fn(|_: Request| async { Ok::<Response, Infallible>(Response::default()) });
            Wrap(FaultLayer).layer(handler).oneshot(request).await.unwrap();
            assert!(reading.try_recv().is_ok(), "{fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_overload_works_on_so_many_and_turns_the_rest_away_at_once() {
        let generation = under("delay:ms=50+overload:capacity=2");
        let arrive = |number| tokio::spawn(code_late(Arc::clone(&generation), number));
        let started = Instant::now();
        let (first, second, third) = (arrive(1), arrive(2), arrive(3));
        // The waiting ones hold their places: the delay is the service's work.
        assert_eq!(third.await.unwrap(), Code::ResourceExhausted);
        assert_eq!(started.elapsed().as_millis(), 0);
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Code::Ok, Code::Ok));
        assert_eq!(started.elapsed().as_millis(), 50);
        assert_eq!(arrive(4).await.unwrap(), Code::Ok);
    }

    async fn code_late(generation: Arc<Generation>, number: u64) -> Code {
        code_of(&generation, Code::Ok, number, 1).await.0
    }

    #[tokio::test(start_paused = true)]
    async fn an_arrival_whose_caller_left_gives_its_place_back() {
        let generation = under("delay:ms=50+overload:capacity=1,code=UNAVAILABLE");
        let leaves = tokio::spawn(code_late(Arc::clone(&generation), 1));
        tokio::task::yield_now().await;
        assert_eq!(code_late(Arc::clone(&generation), 2).await, Code::Unavailable);
        leaves.abort();
        assert!(leaves.await.is_err());
        assert_eq!(code_late(generation, 3).await, Code::Ok);
    }
}
