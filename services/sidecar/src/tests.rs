//! The three forwarders before a callee that does what a script says.

use super::*;
use bytes::Bytes;
use chassis::{
    call::{ATTEMPT_PATH, ENVOY_ATTEMPT, PREVIOUS_ATTEMPTS, PUSHBACK, TIMEOUT},
    config::{OnFailure, PassedOn},
    settings::Generation,
};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use std::{convert::Infallible, sync::Mutex};
use tonic::body::Body;
use tower::{ServiceExt as _, service_fn};

/// What came out of a forwarder at the other end.
type Passed = Arc<Mutex<Option<http::request::Parts>>>;

/// Sends a request with these headers through a forwarder whose callee gives this answer.
async fn through(
    forwarder: impl Around + Clone,
    config: Config,
    headers: HeaderMap,
    answer: Response,
) -> (http::request::Parts, Response) {
    let passed = Passed::default();
    let (keep, answer) = (Arc::clone(&passed), Arc::new(Mutex::new(Some(answer))));
    let callee = service_fn(move |request: Request| {
        *keep.lock().unwrap() = Some(request.into_parts().0);
        let answer = answer.lock().unwrap().take().expect("asked once");
        async { Ok::<_, Infallible>(answer) }
    });
    let mut request = Request::default();
    *request.headers_mut() = headers;
    let context = Context::read(request.headers(), Generation::first(config));
    request.extensions_mut().insert(context);
    let response = Wrap(forwarder).layer(callee).oneshot(request).await.unwrap();
    let passed = passed.lock().unwrap().take().expect("it was asked");
    (passed, response)
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| (http::HeaderName::from_static(name), value.parse().unwrap());
    pairs.iter().map(pair).collect()
}

fn as_layer(layer: Layer) -> Config {
    Config {
        layer,
        ..Config::named("relay-1")
    }
}

fn message(text: &str) -> Frame<Bytes> {
    let mut message = vec![0];
    message.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    message.extend(text.as_bytes());
    Frame::data(message.into())
}

/// An answer that begins with these headers and goes on with these frames.
fn begins(of: &[(&'static str, &str)], frames: Vec<Result<Frame<Bytes>, Status>>) -> Response {
    let mut response = Response::new(Body::new(StreamBody::new(tokio_stream::iter(frames))));
    *response.headers_mut() = headers(of);
    response
}

fn trailers(code: &str) -> Frame<Bytes> {
    Frame::trailers(headers(&[
        ("grpc-status", code),
        ("grpc-message", "below"),
        (PUSHBACK, "77"),
    ]))
}

/// The head, and the frames behind it.
async fn read(response: Response) -> (HeaderMap, Vec<Frame<Bytes>>) {
    let (head, mut body) = response.into_parts();
    let mut frames = Vec::new();
    while let Some(frame) = body.frame().await {
        frames.push(frame.unwrap());
    }
    (head.headers, frames)
}

const CAME: [(&str, &str); 6] = [
    (ATTEMPT_PATH, "17:1.2"),
    (PREVIOUS_ATTEMPTS, "1"),
    (ENVOY_ATTEMPT, "3"),
    (TIMEOUT, "9S"),
    ("user-agent", "grpc-go/1.0"),
    ("own-bin", "AAE"),
];

#[tokio::test]
async fn every_header_passes_a_proxy_and_a_hidden_layer() {
    for (is_hidden, layer) in [(false, Layer::Proxy), (true, Layer::Undeclared)] {
        let config = as_layer(layer);
        let hidden = Hidden {
            live: Live::new(config.clone()),
        };
        let answer = Response::default();
        let (passed, _) = if is_hidden {
            through(hidden, config, headers(&CAME), answer).await
        } else {
            through(Proxy, config, headers(&CAME), answer).await
        };
        assert_eq!(passed.headers, headers(&CAME));
        // What the stack behind goes by.
        let context: &Context = passed.extensions.get().unwrap();
        assert_eq!(
            (context.path.is_none(), context.deadline.is_none()),
            (is_hidden, is_hidden)
        );
    }
}

#[tokio::test]
async fn a_service_in_the_middle_begins_to_count_attempts_anew() {
    let (passed, _) = through(Relay, as_layer(Layer::Service), headers(&CAME), Response::default()).await;
    assert_eq!(passed.headers, headers(&[CAME[0], CAME[3], CAME[4], CAME[5]]));
    let context: &Context = passed.extensions.get().unwrap();
    // Whether its own call was a retry is for its policy to know.
    assert_eq!(context.attempt, 2);
}

#[tokio::test]
async fn a_deadline_that_is_dropped_is_told_to_nobody() {
    for layer in [Layer::Service, Layer::Proxy] {
        let config = Config {
            deadline: PassedOn::Drop,
            ..as_layer(layer)
        };
        let answer = Response::default();
        let (passed, _) = match layer {
            Layer::Service => through(Relay, config, headers(&CAME), answer).await,
            _ => through(Proxy, config, headers(&CAME), answer).await,
        };
        assert!(!passed.headers.contains_key(TIMEOUT), "{layer}");
        assert_eq!(passed.extensions.get::<Context>().unwrap().deadline, None);
    }
}

/// Failures in all the places where a status can stand.
fn failures() -> Vec<Response> {
    let only: Response = Status::unavailable("below").into_http();
    let mut pushing = only;
    pushing.headers_mut().insert(PUSHBACK, "77".parse().unwrap());
    vec![
        pushing,
        begins(&[("own", "x")], vec![Ok(trailers("14"))]),
        begins(&[("own", "x")], vec![Ok(message("one")), Ok(trailers("14"))]),
    ]
}

#[tokio::test]
async fn failures_pass_a_proxy_as_they_came() {
    for (answer, same) in failures().into_iter().zip(failures()) {
        let (_, answer) = through(Proxy, as_layer(Layer::Proxy), HeaderMap::new(), answer).await;
        let ((head, frames), (same_head, same_frames)) = (read(answer).await, read(same).await);
        let said = |frames: &[Frame<Bytes>]| -> Vec<_> {
            let parts = frames
                .iter()
                .map(|frame| (frame.data_ref().cloned(), frame.trailers_ref().cloned()));
            parts.collect()
        };
        assert_eq!((head, said(&frames)), (same_head, said(&same_frames)));
    }
}

#[tokio::test]
async fn a_service_in_the_middle_answers_failures_for_itself_and_with_nothing_from_below() {
    for (on_failure, code) in [(OnFailure::Pass, "14"), (OnFailure::Answer(Code::Aborted), "10")] {
        let broken = vec![Ok(message("one")), Err(Status::unavailable("below"))];
        for answer in failures().into_iter().chain([begins(&[("own", "x")], broken)]) {
            let config = Config {
                on_failure,
                ..as_layer(Layer::Service)
            };
            let (_, response) = through(Relay, config, HeaderMap::new(), answer).await;
            let (head, frames) = read(response).await;
            assert_eq!((&head["grpc-status"], frames.len()), (&code.parse().unwrap(), 0));
            assert!(head["grpc-message"].to_str().unwrap().ends_with("below"), "{head:?}");
            assert!(!head.contains_key(PUSHBACK) && !head.contains_key("own"), "{head:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_without_a_status_has_the_code_that_grpc_gives_it() {
    for (status, code) in [(503, "14"), (404, "12"), (200, "2")] {
        let mut bare = Response::default();
        *bare.status_mut() = http::StatusCode::from_u16(status).unwrap();
        let (_, response) = through(Relay, as_layer(Layer::Service), HeaderMap::new(), bare).await;
        assert_eq!(
            (response.status(), &response.headers()["grpc-status"]),
            (http::StatusCode::OK, &code.parse().unwrap())
        );
    }
}

#[tokio::test]
async fn what_is_ok_or_a_stream_passes_a_service_in_the_middle_whole() {
    let own = [("own", "x")];
    for frames in [
        || vec![Ok(message("one")), Ok(trailers("0"))],
        || vec![Ok(message("one")), Ok(message("two")), Ok(trailers("14"))],
    ] {
        let answer = begins(&own, frames());
        let (_, response) = through(Relay, as_layer(Layer::Service), HeaderMap::new(), answer).await;
        let (head, passed) = read(response).await;
        assert_eq!((head, passed.len()), (headers(&own), frames().len()));
        let last = passed.last().and_then(Frame::trailers_ref);
        assert_eq!(last.map(|trailers| &trailers[PUSHBACK]), Some(&"77".parse().unwrap()));
    }
}

#[tokio::test]
async fn a_conversation_passes_a_service_in_the_middle_message_by_message() {
    // The callee answers the first message and waits for the next.
    let callee = service_fn(|request: Request| async move {
        let (said, _listening) = (message("hello"), request.into_body());
        let waits = tokio_stream::pending::<Result<Frame<Bytes>, Status>>();
        let said = tokio_stream::StreamExt::chain(tokio_stream::iter([Ok(said)]), waits);
        Ok::<_, Infallible>(Response::new(Body::new(StreamBody::new(said))))
    });
    let asks = tokio_stream::iter([Ok::<_, Status>(message("one"))]);
    let asks = tokio_stream::StreamExt::chain(asks, tokio_stream::pending());
    let mut request = Request::new(Body::new(StreamBody::new(asks)));
    let context = Context::unread(Generation::first(as_layer(Layer::Service)));
    request.extensions_mut().insert(context);
    let response = Wrap(Relay).layer(callee).oneshot(request).await.unwrap();
    assert!(response.into_body().frame().await.unwrap().unwrap().is_data());
}
