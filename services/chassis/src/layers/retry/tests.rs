//! The layer against a scripted callee, in paused time.

mod hedges;
mod held;
mod lab;
mod rules;

use super::*;
use crate::{
    call,
    config::{Config, Layer},
    layers::Wrap,
    outcome,
    policy::{Backoff, Jitter, RetryOn},
    settings::Generation,
};
use std::convert::Infallible;
use tokio::time::sleep;
use tower::{Layer as _, ServiceExt as _, service_fn};

fn policy(attempts: u32) -> Policy {
    Policy {
        attempts,
        ..Policy::default()
    }
}

fn retry(counts: &Arc<Counts>) -> Wrap<Retry> {
    let callee = Callee {
        name: "inventory".into(),
        address: "127.0.0.1:1".parse().unwrap(),
    };
    Wrap(Retry::new(callee, Arc::clone(counts), Arc::new(Mutex::new(|| 0.5))))
}

fn request(retry: Policy, deadline: Option<Duration>) -> Request {
    let generation = Generation::first(Config {
        retry,
        ..Config::named("pricing")
    });
    let mut request = Request::new(tonic::body::Body::empty());
    request.extensions_mut().insert(Context::root(17, deadline, generation));
    request
}

/// Answers each attempt from a script; keeps the heads that arrived.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<Vec<Code>>>,
    arrived: Arc<Mutex<Vec<http::HeaderMap>>>,
}

impl Script {
    fn of(codes: &[Code]) -> Self {
        Self {
            answers: Arc::new(Mutex::new(codes.iter().rev().copied().collect())),
            arrived: Arc::default(),
        }
    }

    async fn run(&self, layer: Wrap<Retry>, request: Request) -> Code {
        let script = self.clone();
        let callee = service_fn(move |request: Request| {
            script.arrived.lock().unwrap().push(request.headers().clone());
            let code = script
                .answers
                .lock()
                .unwrap()
                .pop()
                .expect("an attempt beyond the script");
            std::future::ready(Ok::<Response, Infallible>(Status::new(code, "scripted").into_http()))
        });
        let response = layer.layer(callee).oneshot(request).await.unwrap();
        outcome::status_in(response.headers()).unwrap()
    }

    fn sent(&self) -> usize {
        self.arrived.lock().unwrap().len()
    }
}

fn refusals(counts: &Counts) -> Vec<(&'static str, u64)> {
    let totals = counts.totals();
    totals.links["inventory"]
        .not_retried
        .iter()
        .map(|(reason, count)| (reason.name(), *count))
        .collect()
}

#[tokio::test]
async fn three_attempts_are_one_try_and_two_retries() {
    let counts = Counts::new(0);
    let script = Script::of(&[Code::Unavailable; 3]);
    assert_eq!(
        script.run(retry(&counts), request(policy(3), None)).await,
        Code::Unavailable
    );
    assert_eq!(script.sent(), 3);
    assert_eq!(refusals(&counts), [("limit", 1)]);
    let link = &counts.totals().links["inventory"];
    assert_eq!((link.calls, link.sent), (1, 3));
}

#[tokio::test]
async fn every_attempt_carries_fresh_metadata() {
    let counts = Counts::new(0);
    let script = Script::of(&[Code::Unavailable, Code::Ok]);
    assert_eq!(script.run(retry(&counts), request(policy(3), None)).await, Code::Ok);
    let arrived = script.arrived.lock().unwrap();
    assert_eq!(arrived[0].get(call::PREVIOUS_ATTEMPTS), None);
    assert_eq!(arrived[1][call::PREVIOUS_ATTEMPTS], "1");
    assert_eq!(arrived[0][call::ATTEMPT_PATH], "17:1");
    assert_eq!(arrived[1][call::ATTEMPT_PATH], "17:2");
}

#[tokio::test]
async fn a_proxy_numbers_its_attempts_in_the_path_alone_and_a_hidden_layer_nowhere() {
    for (layer, paths) in [
        (Layer::Proxy, ["17:4.1", "17:4.2"]),
        (Layer::Undeclared, ["17:4", "17:4"]),
    ] {
        let script = Script::of(&[Code::Unavailable, Code::Ok]);
        let mut request = request(policy(3), None);
        let came = [
            (call::ATTEMPT_PATH, "17:4"),
            (call::PREVIOUS_ATTEMPTS, "3"),
            ("own", "x"),
        ];
        for (name, value) in came {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let generation = Generation::first(Config {
            layer,
            retry: policy(3),
            ..Config::named("pricing-proxy")
        });
        let context = Context::read(request.headers(), generation);
        request.extensions_mut().insert(context);
        assert_eq!(script.run(retry(&Counts::new(0)), request).await, Code::Ok);
        let arrived = script.arrived.lock().unwrap();
        for (headers, path) in arrived.iter().zip(paths) {
            assert_eq!(headers[call::ATTEMPT_PATH], path, "{layer}");
            assert_eq!(
                (&headers[call::PREVIOUS_ATTEMPTS], headers.len()),
                (&"3".parse().unwrap(), 3)
            );
        }
    }
}

#[tokio::test]
async fn a_final_code_is_not_tried_again_unless_anything_is() {
    let counts = Counts::new(0);
    let script = Script::of(&[Code::InvalidArgument; 3]);
    script.run(retry(&counts), request(policy(3), None)).await;
    assert_eq!((script.sent(), refusals(&counts)), (1, vec![("code", 1)]));
    let broken = Policy {
        retry_on: RetryOn::Any,
        ..policy(3)
    };
    let script = Script::of(&[Code::InvalidArgument; 3]);
    script.run(retry(&Counts::new(0)), request(broken, None)).await;
    assert_eq!(script.sent(), 3);
}

#[tokio::test]
async fn a_spent_deadline_sends_nothing() {
    let counts = Counts::new(0);
    let script = Script::of(&[]);
    let code = script
        .run(retry(&counts), request(policy(3), Some(Duration::ZERO)))
        .await;
    assert_eq!((code, script.sent()), (Code::DeadlineExceeded, 0));
    assert_eq!(refusals(&counts), [("deadline", 1)]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_deadline_is_the_callers_own_deadline() {
    let counts = Counts::new(0);
    let slow = service_fn(|_: Request| async {
        sleep(Duration::from_millis(50)).await;
        Ok::<Response, Infallible>(Response::default())
    });
    let layered = retry(&counts).layer(slow);
    let response = layered
        .oneshot(request(policy(3), Some(Duration::from_millis(50))))
        .await
        .unwrap();
    assert_eq!(outcome::status_in(response.headers()), Some(Code::DeadlineExceeded));
    assert_eq!(refusals(&counts), [("deadline", 1)]);
}

#[tokio::test(start_paused = true)]
async fn the_back_off_is_cut_by_the_deadline() {
    let counts = Counts::new(0);
    let (initial, max) = (Duration::from_millis(100), Duration::from_secs(1));
    let backoff = Some(Backoff {
        initial,
        multiplier: 2.0,
        max,
        jitter: Jitter::None,
    });
    let script = Script::of(&[Code::Unavailable; 2]);
    let started = Instant::now();
    let layer = retry(&counts);
    let request = request(Policy { backoff, ..policy(5) }, Some(Duration::from_millis(250)));
    let code = script.run(layer, request).await;
    // Attempts at 0 and 100 ms; the next would be at 300 ms.
    assert_eq!(
        (code, script.sent(), started.elapsed().as_millis()),
        (Code::DeadlineExceeded, 2, 250)
    );
}

#[tokio::test]
async fn an_answer_that_has_begun_is_never_tried_again() {
    use http_body_util::{BodyExt as _, StreamBody};
    let counts = Counts::new(0);
    let begun = service_fn(|_: Request| async {
        let trailers = http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "14".parse().unwrap())]);
        let frames = [Ok::<_, Status>(http_body::Frame::<bytes::Bytes>::trailers(trailers))];
        let body = tonic::body::Body::new(StreamBody::new(tokio_stream::iter(frames)));
        Ok::<Response, Infallible>(Response::new(body))
    });
    let response = retry(&counts)
        .layer(begun)
        .oneshot(request(policy(3), None))
        .await
        .unwrap();
    response.into_body().collect().await.unwrap();
    assert_eq!(counts.totals().links["inventory"].sent, 1);
    assert_eq!(refusals(&counts), [("committed", 1)]);
}

#[tokio::test]
async fn a_request_too_long_to_repeat_is_sent_once() {
    use http_body_util::{BodyExt as _, Full};
    let counts = Counts::new(0);
    let reads = service_fn(|request: Request| async {
        request.into_body().collect().await.unwrap();
        Ok::<Response, Infallible>(Status::unavailable("").into_http())
    });
    let mut long = request(policy(3), None);
    *long.body_mut() = tonic::body::Body::new(Full::from(vec![0; body::REPLAY_LIMIT + 1]));
    retry(&counts).layer(reads).oneshot(long).await.unwrap();
    assert_eq!(refusals(&counts), [("committed", 1)]);
}

/// A request of these pieces whose end does not come.
fn open(pieces: &[&str]) -> Request {
    let pieces: Vec<_> = pieces
        .iter()
        .map(|text| Ok(http_body::Frame::data(lab::message(text))))
        .collect();
    let pieces = tokio_stream::iter(pieces);
    let open = tokio_stream::StreamExt::chain(pieces, tokio_stream::pending::<Result<_, Status>>());
    let mut request = request(policy(3), None);
    *request.body_mut() = tonic::body::Body::new(http_body_util::StreamBody::new(open));
    request
}

#[tokio::test]
async fn a_stream_is_sent_once_unless_nothing_of_it_was_sent() {
    use http_body_util::BodyExt as _;
    for (pieces, read, sent, refusal) in [
        (&["one", "two"][..], 2, 1, "committed"),
        (&["one"], 1, 1, "committed"),
        // A second message that is there already says as much as one that was sent.
        (&["one", "two"], 1, 1, "committed"),
        (&["one", "two"], 0, 3, "limit"),
    ] {
        let counts = Counts::new(0);
        let fails = service_fn(move |mut request: Request| async move {
            for _ in 0..read {
                request.body_mut().frame().await.unwrap().unwrap();
            }
            Ok::<Response, Infallible>(Status::unavailable("").into_http())
        });
        retry(&counts).layer(fails).oneshot(open(pieces)).await.unwrap();
        let counted = (counts.totals().links["inventory"].sent, refusals(&counts));
        assert_eq!(counted, (sent, vec![(refusal, 1)]), "{pieces:?} {read}");
    }
}

#[tokio::test]
async fn an_answer_that_begins_leaves_the_rest_of_the_request_to_whoever_reads_it() {
    use http_body_util::BodyExt as _;
    let (kept, body) = std::sync::mpsc::channel();
    let begins = service_fn(move |mut request: Request| {
        let kept = kept.clone();
        async move {
            request.body_mut().frame().await.unwrap().unwrap();
            kept.send(request.into_body()).unwrap();
            Ok::<Response, Infallible>(Response::default())
        }
    });
    let answer = retry(&Counts::new(0))
        .layer(begins)
        .oneshot(open(&["one", "two"]))
        .await
        .unwrap();
    let rest = body.recv().unwrap().frame().await.unwrap().unwrap();
    assert_eq!(rest.into_data().unwrap(), lab::message("two"));
    drop(answer);
}

#[tokio::test]
async fn a_call_whose_caller_left_is_counted() {
    let counts = Counts::new(0);
    let never = service_fn(|_: Request| std::future::pending::<Result<Response, Infallible>>());
    let call = retry(&counts).layer(never).oneshot(request(policy(3), None));
    assert!(tokio::time::timeout(Duration::from_millis(1), call).await.is_err());
    assert_eq!(refusals(&counts), [("cancelled", 1)]);
}
