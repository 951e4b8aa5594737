//! The retry layer: one call in, up to `attempts` attempts out. The subject of the project, so it is our own, short and
//! readable; why it is not `tower::retry` has a page of its own (`harness/docs/why-not-tower-retry.md`).
//!
//! `decide` says what follows an answer, `Retry` does it. The deadline belongs to the call: it spans all attempts and waits,
//! and the caller's clock decides.

use super::{Around, Below, ask};
use crate::{
    Request, Response,
    body::{self, Ending, Recording},
    call::{self, Context},
    code::Code,
    config::Callee,
    counts::{Counts, LinkCounts, Refusal},
    outcome::{self, Head, TransportFailure},
    policy::Policy,
};
use http::HeaderValue;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tonic::Status;

/// What a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// Attempts made, this one included.
    pub made: u32,
    /// What the head of the answer says.
    pub head: Head,
    /// Whether the request could be sent again.
    pub is_replayable: bool,
    /// Whether the call's deadline has passed.
    pub is_spent: bool,
}

/// What follows an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It goes to the caller: it is an OK, or has begun.
    Deliver,
    /// The failure goes to the caller, and this is why.
    Stop(Refusal),
    /// Another attempt.
    Retry,
}

/// Decides what follows an answer. The order of the checks is that of gRFC A6 and its implementations: committed, then the
/// status, then the number of attempts; a deadline that has passed comes before all, since the caller's clock decides.
pub fn decide(policy: &Policy, answered: Answered) -> Decision {
    let code = match answered.head {
        _ if answered.is_spent => return Decision::Stop(Refusal::Deadline),
        Head::Committed | Head::TrailersOnly(Code::Ok) => return Decision::Deliver,
        Head::TrailersOnly(code) => code,
    };
    if !policy.retry_on.contains(code) {
        Decision::Stop(Refusal::Code)
    } else if answered.made >= policy.attempts {
        Decision::Stop(Refusal::Limit)
    } else if answered.is_replayable {
        Decision::Retry
    } else {
        Decision::Stop(Refusal::Committed)
    }
}

/// Chances for the jitter: numbers from 0 (included) to 1 (excluded).
pub type Chances = Arc<Mutex<dyn FnMut() -> f64 + Send>>;

/// Tries a call as often as the policy allows.
#[derive(Clone)]
pub struct Retry {
    callee: Arc<Callee>,
    counts: Arc<Counts>,
    chances: Chances,
}

impl Retry {
    /// A layer for calls to one callee. Each call goes by the policy that its context carries.
    pub fn new(callee: Callee, counts: Arc<Counts>, chances: Chances) -> Self {
        Self {
            callee: Arc::new(callee),
            counts,
            chances,
        }
    }

    fn count(&self, context: &Context, change: impl FnOnce(&mut LinkCounts)) {
        self.counts.on_link(&self.callee.name, context, change);
    }

    fn refuse(&self, context: &Context, reason: Refusal) {
        self.count(context, |link| *link.not_retried.entry(reason).or_default() += 1);
    }

    /// The wait before the next attempt, when `made` attempts were made.
    fn wait(&self, policy: &Policy, made: u32) -> Option<Duration> {
        let backoff = policy.backoff?;
        let chance = (self.chances.lock().unwrap_or_else(PoisonError::into_inner))();
        Some(backoff.wait(made, chance))
    }

    /// One attempt: what goes out, and what came back by the call's deadline.
    async fn attempt(&self, call: &Call, made: u32, below: &mut impl Below) -> Response {
        self.count(&call.context, |link| link.sent += 1);
        let answer = ask(below, call.request(made));
        let Some(deadline) = call.context.deadline else {
            return answer.await;
        };
        timeout_at(deadline, answer)
            .await
            .unwrap_or_else(|_| deadline_exceeded())
    }

    /// An answer that has begun goes on to the caller; whether it ends as a failure shows in its trailers.
    fn deliver(self, response: Response, context: Context) -> Response {
        if outcome::head(&response) != Head::Committed {
            return response;
        }
        response.map(|inner| {
            body::watch(inner, context.deadline, move |ending| {
                let retry_on = &context.generation.config.retry.retry_on;
                match ending {
                    Ending::Code(Code::Ok) | Ending::Dropped => {}
                    Ending::Code(Code::DeadlineExceeded) => self.refuse(&context, Refusal::Deadline),
                    Ending::Code(code) if !retry_on.contains(code) => self.refuse(&context, Refusal::Code),
                    Ending::Code(_) => self.refuse(&context, Refusal::Committed),
                    Ending::Broken => {
                        self.count(&context, |link| link.transport_errors += 1);
                        self.refuse(&context, Refusal::Committed);
                    }
                }
            })
        })
    }
}

impl Around for Retry {
    async fn around(self, request: Request, mut below: impl Below) -> Response {
        let call = Call::new(request);
        let (context, policy) = (&call.context, &call.context.generation.config.retry);
        self.count(context, |link| link.calls += 1);
        let mut cancelled = OnDrop(Some(|| self.refuse(context, Refusal::Cancelled)));
        let mut made = 0;
        let response = loop {
            if context.is_spent() {
                self.refuse(context, Refusal::Deadline);
                break deadline_exceeded();
            }
            made += 1;
            let response = self.attempt(&call, made, &mut below).await;
            self.count_transport(context, &response);
            let answered = Answered {
                made,
                head: outcome::head(&response),
                is_replayable: call.body.is_replayable(),
                is_spent: context.is_spent(),
            };
            match decide(policy, answered) {
                Decision::Deliver => break response,
                Decision::Stop(reason) => {
                    self.refuse(context, reason);
                    break if reason == Refusal::Deadline {
                        deadline_exceeded()
                    } else {
                        response
                    };
                }
                Decision::Retry => match (self.wait(policy, made), context.deadline) {
                    (None, _) => {}
                    (Some(wait), None) => sleep(wait).await,
                    // The wait is cut by the call's deadline; the next round then sends nothing.
                    (Some(wait), Some(deadline)) => sleep_until(deadline.min(Instant::now() + wait)).await,
                },
            }
        };
        cancelled.0 = None;
        drop(cancelled);
        self.deliver(response, call.context)
    }
}

impl Retry {
    fn count_transport(&self, context: &Context, response: &Response) {
        match response.extensions().get::<TransportFailure>() {
            Some(TransportFailure::Refused) => self.count(context, |link| link.connect_refused += 1),
            Some(TransportFailure::Lost | TransportFailure::StreamReset) => {
                self.count(context, |link| link.transport_errors += 1);
            }
            None => {}
        }
    }
}

fn deadline_exceeded() -> Response {
    Status::deadline_exceeded("the call's deadline passed").into_http()
}

/// Runs when a call is dropped before its end.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

/// What is the same for all attempts of a call.
struct Call {
    head: http::request::Parts,
    body: Recording,
    context: Context,
}

impl Call {
    fn new(request: Request) -> Self {
        let (mut head, body) = request.into_parts();
        let context = head.extensions.remove().unwrap_or_else(Context::nobodys);
        Self {
            head,
            body: Recording::new(body),
            context,
        }
    }

    /// Attempt number `made`, with metadata of its own: what the arrival above carried is never copied.
    fn request(&self, made: u32) -> Request {
        let mut request = http::Request::new(self.body.replay());
        request.method_mut().clone_from(&self.head.method);
        request.uri_mut().clone_from(&self.head.uri);
        *request.version_mut() = self.head.version;
        request.headers_mut().clone_from(&self.head.headers);
        if made > 1 {
            request
                .headers_mut()
                .insert(call::PREVIOUS_ATTEMPTS, HeaderValue::from(made - 1));
        }
        let path = self.context.path.as_ref().map(|path| path.then(made));
        if let Some(value) = path
            .as_ref()
            .and_then(|path| HeaderValue::try_from(path.to_string()).ok())
        {
            request.headers_mut().insert(call::ATTEMPT_PATH, value);
        }
        request.extensions_mut().insert(Context {
            path,
            attempt: made,
            ..self.context.clone()
        });
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Config,
        layers::Wrap,
        policy::{Backoff, Jitter, RetryOn},
        settings::Generation,
    };
    use std::convert::Infallible;
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

    #[tokio::test]
    async fn a_call_whose_caller_left_is_counted() {
        let counts = Counts::new(0);
        let never = service_fn(|_: Request| std::future::pending::<Result<Response, Infallible>>());
        let call = retry(&counts).layer(never).oneshot(request(policy(3), None));
        assert!(tokio::time::timeout(Duration::from_millis(1), call).await.is_err());
        assert_eq!(refusals(&counts), [("cancelled", 1)]);
    }
}
