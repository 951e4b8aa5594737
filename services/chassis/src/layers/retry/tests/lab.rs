//! A callee that does what a script says, and what its caller counted.

use super::*;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use std::collections::VecDeque;
use tonic::body::Body;

/// What becomes of one attempt: so many milliseconds, then this answer.
pub(super) struct Step {
    after_ms: u64,
    answer: Option<Response>,
}

/// An answer that never comes.
pub(super) fn never() -> Step {
    Step {
        after_ms: 0,
        answer: None,
    }
}

/// A trailers-only answer.
pub(super) fn says(code: Code) -> Step {
    answers(Status::new(code, "scripted").into_http())
}

/// No answer of the callee: the transport fails the attempt in this way.
pub(super) fn loses(failure: TransportFailure) -> Step {
    let mut response: Response = Status::unavailable("lost").into_http();
    response.extensions_mut().insert(failure);
    answers(response)
}

/// A trailers-only failure with these pushbacks.
pub(super) fn pushes(code: Code, pushbacks: &[&str]) -> Step {
    let mut response: Response = Status::new(code, "scripted").into_http();
    for pushback in pushbacks {
        response.headers_mut().append(call::PUSHBACK, pushback.parse().unwrap());
    }
    answers(response)
}

/// An answer with these messages and these trailers.
pub(super) fn begins(messages: &[&str], trailers: &[(&'static str, &str)]) -> Step {
    let trailers = trailers
        .iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
    let trailers = Frame::trailers(trailers.collect::<HeaderMap>());
    streams(
        messages
            .iter()
            .map(|text| Ok(Frame::data(message(text))))
            .chain([Ok(trailers)]),
    )
}

/// An answer of these frames.
pub(super) fn streams(frames: impl IntoIterator<Item = Result<Frame<Bytes>, Status>>) -> Step {
    let frames: Vec<_> = frames.into_iter().collect();
    answers(Response::new(Body::new(StreamBody::new(tokio_stream::iter(frames)))))
}

/// An answer whose head comes, and then nothing.
pub(super) fn hangs_after_its_head() -> Step {
    let nothing = tokio_stream::pending::<Result<Frame<Bytes>, Status>>();
    answers(Response::new(Body::new(StreamBody::new(nothing))))
}

/// A message as gRPC frames it.
pub(super) fn message(text: &str) -> Bytes {
    let mut message = vec![0];
    message.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    message.extend(text.as_bytes());
    message.into()
}

fn answers(response: Response) -> Step {
    Step {
        after_ms: 0,
        answer: Some(response),
    }
}

impl Step {
    pub(super) fn after(self, after_ms: u64) -> Self {
        Self { after_ms, ..self }
    }
}

/// What the callee saw.
#[derive(Debug, Default)]
struct Seen {
    /// When each attempt arrived, in milliseconds from the start.
    at_ms: Vec<u64>,
    /// Which attempts of its own layer they were.
    paths: Vec<String>,
    /// Attempts whose caller left before the answer.
    dropped: usize,
}

/// A caller with a policy, before a callee with a script.
#[derive(Clone)]
pub(super) struct Lab {
    pub(super) counts: Arc<Counts>,
    pub(super) generation: Arc<Generation>,
    started: Instant,
    steps: Arc<Mutex<VecDeque<Step>>>,
    seen: Arc<Mutex<Seen>>,
    reads_requests: bool,
}

impl Lab {
    pub(super) fn new(retry: Policy, steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            counts: Counts::new(0),
            generation: Generation::first(Config {
                retry: retry.checked().unwrap(),
                ..Config::named("pricing")
            }),
            started: Instant::now(),
            steps: Arc::new(Mutex::new(steps.into_iter().collect())),
            seen: Arc::default(),
            reads_requests: true,
        }
    }

    /// The same before a callee that leaves requests unread.
    pub(super) fn unread(self) -> Self {
        Self {
            reads_requests: false,
            ..self
        }
    }

    /// The same under settings of its own.
    pub(super) fn under(self, generation: Arc<Generation>) -> Self {
        Self { generation, ..self }
    }

    /// A call without a deadline: its code, and the bytes that came.
    pub(super) async fn call(&self) -> (Code, Bytes) {
        self.send(self.request(None)).await
    }

    /// A call with this deadline.
    pub(super) async fn call_within(&self, ms: u64) -> Code {
        self.send(self.request(Some(Duration::from_millis(ms)))).await.0
    }

    /// Calls one after another, without deadlines: how many attempts each made.
    pub(super) async fn calls(&self, calls: usize) -> Vec<usize> {
        let mut attempts = Vec::new();
        for _ in 0..calls {
            let before = self.sent();
            self.call().await;
            attempts.push(self.sent() - before);
        }
        attempts
    }

    pub(super) fn request(&self, deadline: Option<Duration>) -> Request {
        let mut request = Request::new(Body::empty());
        let context = Context::root(17, deadline, Arc::clone(&self.generation));
        request.extensions_mut().insert(context);
        request
    }

    pub(super) async fn send(&self, request: Request) -> (Code, Bytes) {
        let response = self.answer(request).await;
        let head = outcome::status_in(response.headers());
        match response.into_body().collect().await {
            Ok(body) => {
                let last = body.trailers().and_then(outcome::status_in);
                (head.or(last).unwrap_or(Code::Unknown), body.to_bytes())
            }
            Err(status) => (status.code(), Bytes::new()),
        }
    }

    pub(super) async fn answer(&self, request: Request) -> Response {
        let lab = self.clone();
        let callee = service_fn(move |request: Request| {
            let lab = lab.clone();
            async move { Ok::<_, Infallible>(lab.receive(request).await) }
        });
        retry(&self.counts).layer(callee).oneshot(request).await.unwrap()
    }

    async fn receive(&self, request: Request) -> Response {
        let mut dropped = OnDrop(Some(|| self.seen.lock().unwrap().dropped += 1));
        let step = self.steps.lock().unwrap().pop_front();
        let step = step.expect("an attempt beyond the script");
        {
            let mut seen = self.seen.lock().unwrap();
            seen.at_ms.push(self.ms());
            let path = request.headers()[call::ATTEMPT_PATH].to_str().unwrap().to_owned();
            let before = request.headers().get(call::PREVIOUS_ATTEMPTS);
            let before = before.map_or("-", |before| before.to_str().unwrap());
            seen.paths.push(format!("{path} after {before}"));
        }
        if self.reads_requests {
            let _ = request.into_body().collect().await;
        }
        if step.after_ms > 0 {
            sleep(Duration::from_millis(step.after_ms)).await;
        }
        let answer = match step.answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        };
        dropped.0 = None;
        drop(dropped);
        answer
    }

    /// Milliseconds since the start.
    pub(super) fn ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap()
    }

    pub(super) fn sent(&self) -> usize {
        self.at_ms().len()
    }

    pub(super) fn at_ms(&self) -> Vec<u64> {
        self.seen.lock().unwrap().at_ms.clone()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.seen.lock().unwrap().paths.clone()
    }

    pub(super) fn dropped(&self) -> usize {
        self.seen.lock().unwrap().dropped
    }

    /// Why calls were not tried again, and how many.
    pub(super) fn refusals(&self) -> Vec<(&'static str, u64)> {
        refusals(&self.counts)
    }
}

/// So many of the same step.
pub(super) fn times(count: usize, step: impl Fn() -> Step) -> impl Iterator<Item = Step> {
    std::iter::repeat_with(step).take(count)
}
