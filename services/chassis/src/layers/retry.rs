//! The retry layer: one call in, up to `attempts` attempts out. The subject of the project, so it is our own, short and
//! readable; why it is not `tower::retry` has a page of its own (`harness/docs/why-not-tower-retry.md`).
//!
//! `decide` says what follows an answer, `Retry` does it. The deadline belongs to the call: it spans all attempts and waits,
//! and the caller's clock decides. One attempt is in `attempt.rs`, attempts side by side are in `hedge.rs`.

mod attempt;
mod hedge;

pub use attempt::Pushback;

use super::{Around, Below, ask};
use crate::{
    Request, Response,
    allowance::Place,
    body::{self, Ending},
    call::Context,
    code::Code,
    config::Callee,
    counts::{Counts, LinkCounts, Refusal},
    outcome::{Head, TransportFailure},
    policy::{Commit, Policy},
};
use attempt::{Answer, Call, End, Said};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

/// What a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// Attempts made, this one included.
    pub made: u32,
    /// Which attempt of the caller above this call arrived as.
    pub arrived_as: u32,
    /// What the answer says.
    pub head: Head,
    /// How the transport failed it, where it is no answer of the callee's.
    pub failure: Option<TransportFailure>,
    /// What it says about the next attempt; silent where the policy does not listen.
    pub pushback: Pushback,
    /// Whether the request could be sent again.
    pub is_replayable: bool,
    /// Whether the call's deadline has passed.
    pub is_spent: bool,
    /// Whether too few retry tokens are left, now that this failure has taken one.
    pub is_throttled: bool,
}

/// What follows an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It goes to the caller: it is an OK, or has begun.
    Deliver,
    /// The failure goes to the caller, and this is why.
    Stop(Refusal),
    /// Another attempt, as far as the budget allows; after exactly this wait where the callee asked for one.
    Retry(Option<Duration>),
}

/// Whether an answer takes a retry token: a failure that may be tried again, or one that asks for no retry.
pub fn takes_token(policy: &Policy, answered: &Answered) -> bool {
    match answered.head {
        _ if answered.is_spent => false,
        Head::Committed | Head::TrailersOnly(Code::Ok) => false,
        Head::TrailersOnly(code) => is_retried(policy, code, answered.failure) || answered.pushback == Pushback::Never,
    }
}

/// Whether a failure is of those that are tried again.
fn is_retried(policy: &Policy, code: Code, failure: Option<TransportFailure>) -> bool {
    policy.retry_on.contains(code) && (policy.connect_failure || failure.is_none())
}

/// Whether an answer goes to the caller whatever the policy says.
fn is_good(head: Head) -> bool {
    matches!(head, Head::Committed | Head::TrailersOnly(Code::Ok))
}

/// Decides what follows an answer. The order of the checks is that of gRFC A6 and its implementations: committed, then the
/// status, the tokens, the number of attempts, the pushback; a deadline that has passed comes before all, since the caller's
/// clock decides. The budget comes after all, in the loop: it is asked only about a retry that nothing else forbids.
pub fn decide(policy: &Policy, answered: Answered) -> Decision {
    let code = match answered.head {
        _ if answered.is_spent => return Decision::Stop(Refusal::Deadline),
        Head::Committed | Head::TrailersOnly(Code::Ok) => return Decision::Deliver,
        Head::TrailersOnly(code) => code,
    };
    if !is_retried(policy, code, answered.failure) {
        Decision::Stop(Refusal::Code)
    } else if answered.is_throttled {
        Decision::Stop(Refusal::Throttle)
    } else if answered.made >= policy.attempts {
        Decision::Stop(Refusal::Limit)
    } else if policy.only_first_tries && answered.arrived_as > 1 {
        Decision::Stop(Refusal::NotFirstTry)
    } else if answered.pushback == Pushback::Never {
        Decision::Stop(Refusal::Pushback)
    } else if !answered.is_replayable {
        Decision::Stop(Refusal::Committed)
    } else if let Pushback::After(wait) = answered.pushback {
        Decision::Retry(Some(wait))
    } else {
        Decision::Retry(None)
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

impl Around for Retry {
    async fn around(&self, request: Request, below: impl Below) -> Response {
        let call = Call::new(request);
        self.count(&call.context, |link| link.calls += 1);
        let mut cancelled = OnDrop(Some(|| self.refuse(&call.context, Refusal::Cancelled)));
        let end = if call.context.is_spent() {
            End::deadline()
        } else if let Some(delay) = call.policy().hedge {
            self.side_by_side(&call, delay, below).await
        } else {
            self.one_by_one(&call, below).await
        };
        cancelled.0 = None;
        drop(cancelled);
        match end {
            End::Delivered(answer) => self.deliver(answer, call.context),
            // The one place where a call that failed here is counted.
            End::Failed(reason, response) => {
                self.refuse(&call.context, reason);
                if reason == Refusal::Deadline {
                    Status::deadline_exceeded("the call's deadline passed").into_http()
                } else {
                    response
                }
            }
        }
    }
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

    /// The loop: an attempt, a decision, a wait.
    async fn one_by_one(&self, call: &Call, below: impl Below) -> End {
        let (mut made, mut backoffs) = (0, 0);
        let mut place = call.allowance().first();
        loop {
            made += 1;
            let answer = self.attempt(call, made, place, below.clone()).await;
            let wait = match follow(call, made, &answer) {
                Decision::Deliver => return End::Delivered(answer),
                Decision::Stop(reason) => return End::Failed(reason, answer.said.response),
                Decision::Retry(Some(pushback)) => {
                    // A pushback starts the back-off anew.
                    backoffs = 0;
                    pushback
                }
                Decision::Retry(None) => {
                    backoffs += 1;
                    self.backoff(call.policy(), backoffs)
                }
            };
            let Some(next) = answer.place.again(Instant::now()) else {
                return End::Failed(Refusal::Budget, answer.said.response);
            };
            place = next;
            call.wait_until(Instant::now() + wait).await;
            // The wait is cut by the call's deadline, and then nothing is sent.
            if call.context.is_spent() {
                return End::deadline();
            }
        }
    }

    /// One attempt: what goes out, and what came back in time.
    async fn attempt(&self, call: &Call, made: u32, mut place: Place, mut below: impl Below) -> Answer {
        let (context, policy) = (&call.context, call.policy());
        self.count(context, |link| link.sent += 1);
        place.send(Instant::now());
        let answer = async {
            let response = ask(&mut below, call.request(made)).await;
            match policy.commit {
                Commit::Headers => Said::at_once(response),
                Commit::Message => Said::held(response, &call.body, context.generation.config.transport_codes).await,
            }
        };
        let own_limit = policy.attempt_timeout.map(|limit| Instant::now() + limit);
        let until = context.deadline.into_iter().chain(own_limit).min();
        let said = match until {
            None => answer.await,
            Some(until) => timeout_at(until, answer)
                .await
                .unwrap_or_else(|_| Said::timed_out("the attempt's time ran out")),
        };
        match said.failure() {
            Some(TransportFailure::Refused) => self.count(context, |link| link.connect_refused += 1),
            Some(TransportFailure::Lost | TransportFailure::StreamReset) => {
                self.count(context, |link| link.transport_errors += 1);
            }
            None => {}
        }
        Answer { said, place }
    }

    /// The wait before a retry that is number `backoffs` since the last pushback.
    fn backoff(&self, policy: &Policy, backoffs: u32) -> Duration {
        policy.backoff.map_or(Duration::ZERO, |backoff| {
            let chance = (self.chances.lock().unwrap_or_else(PoisonError::into_inner))();
            backoff.wait(backoffs, chance)
        })
    }

    /// An answer goes on to the caller. Whether one that has begun ends as a failure shows in its trailers; until then its
    /// attempt is under way.
    fn deliver(&self, answer: Answer, context: Context) -> Response {
        let Answer { said, place } = answer;
        if said.head != Head::Committed {
            context.generation.allowance.succeed();
            return said.response;
        }
        let retry = self.clone();
        said.response.map(|inner| {
            body::watch(inner, context.deadline, move |ending| {
                let _until_now = place;
                let retry_on = &context.generation.config.retry.retry_on;
                match ending {
                    Ending::Code(Code::Ok) => context.generation.allowance.succeed(),
                    Ending::Dropped => {}
                    Ending::Code(Code::DeadlineExceeded) if context.is_spent() => {
                        retry.refuse(&context, Refusal::Deadline);
                    }
                    Ending::Code(code) if !retry_on.contains(code) => retry.refuse(&context, Refusal::Code),
                    Ending::Code(_) => retry.refuse(&context, Refusal::Committed),
                    Ending::Broken => {
                        retry.count(&context, |link| link.transport_errors += 1);
                        retry.refuse(&context, Refusal::Committed);
                    }
                }
            })
        })
    }

    fn count(&self, context: &Context, change: impl FnOnce(&mut LinkCounts)) {
        self.counts.on_link(&self.callee.name, context, change);
    }

    fn refuse(&self, context: &Context, reason: Refusal) {
        self.count(context, |link| *link.not_retried.entry(reason).or_default() += 1);
    }
}

/// What follows an answer, its token taken.
fn follow(call: &Call, made: u32, answer: &Answer) -> Decision {
    let policy = call.policy();
    let mut answered = Answered {
        made,
        arrived_as: call.context.attempt,
        head: answer.said.head,
        failure: answer.said.failure(),
        pushback: if policy.pushback {
            answer.said.pushback
        } else {
            Pushback::Silent
        },
        // Asked of failures alone: what has begun or is OK may still be reading the request.
        is_replayable: !is_good(answer.said.head) && call.body.is_replayable(),
        is_spent: call.context.is_spent(),
        is_throttled: false,
    };
    if takes_token(policy, &answered) {
        answered.is_throttled = !call.allowance().fail();
    }
    decide(policy, answered)
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

#[cfg(test)]
mod tests;
