//! Hedging (gRFC A6): the next attempt goes out after a delay, whether or not one has failed; the first good answer wins and
//! the others are dropped, which cancels them.

use super::{
    Decision, Retry,
    attempt::{Call, End},
    follow,
};
use crate::{allowance::Place, counts::Refusal, layers::Below};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use std::time::Duration;
use tokio::time::Instant;

impl Retry {
    /// Sends attempts side by side. What `decide` says after a failure is about the next attempt only: those under way go on,
    /// unless the code is one that nobody tries again.
    pub(super) async fn side_by_side(&self, call: &Call, delay: Duration, below: impl Below) -> End {
        let attempts = call.policy().attempts;
        let (mut running, mut sent) = (FuturesUnordered::new(), 0);
        // Whose place is taken already goes next; the first attempt's is.
        let (mut next, mut due) = (Some(call.allowance().first()), Instant::now());
        // Why no more are sent, once that is so, and the last failure.
        let (mut no_more, mut failed) = (None, None);
        loop {
            let is_alone = running.is_empty();
            tokio::select! {
                biased;
                Some(answer) = running.next() => match follow(call, sent, &answer) {
                    Decision::Deliver => return End::Delivered(answer),
                    Decision::Stop(reason @ (Refusal::Code | Refusal::Deadline)) => {
                        return End::Failed(reason, answer.said.response);
                    }
                    Decision::Stop(reason) => {
                        no_more.get_or_insert(reason);
                        next = None;
                        failed = Some(answer.said.response);
                    }
                    Decision::Retry(pushback) => {
                        if no_more.is_none() {
                            due = Instant::now() + pushback.unwrap_or_default();
                            next = next.or_else(|| answer.place.again(Instant::now()));
                            no_more = next.is_none().then_some(Refusal::Budget);
                        }
                        failed = Some(answer.said.response);
                    }
                },
                () = turn(call, due, is_alone), if no_more.is_none() => {
                    if call.context.is_spent() {
                        return End::deadline();
                    }
                    match next.take().map_or_else(|| hedge(call), Ok) {
                        Ok(place) => {
                            sent += 1;
                            running.push(self.attempt(call, sent, place, below.clone()));
                            due = Instant::now() + delay;
                            no_more = (sent >= attempts).then_some(Refusal::Limit);
                        }
                        Err(reason) => no_more = Some(reason),
                    }
                }
                else => return End::Failed(no_more.unwrap_or(Refusal::Limit), failed.unwrap_or_default()),
            }
        }
    }
}

/// Waits for the turn of the next attempt. Beside another, which may still be reading the request, it waits for its end.
async fn turn(call: &Call, due: Instant, is_alone: bool) {
    call.wait_until(due).await;
    if !is_alone {
        call.body.completed().await;
    }
}

/// The place of an attempt that follows no failure, or why there is none.
fn hedge(call: &Call) -> Result<Place, Refusal> {
    if !call.allowance().is_open() {
        Err(Refusal::Throttle)
    } else if call.policy().only_first_tries && call.context.attempt > 1 {
        Err(Refusal::NotFirstTry)
    } else if !call.body.is_replayable() {
        Err(Refusal::Committed)
    } else {
        call.allowance().retry(Instant::now()).ok_or(Refusal::Budget)
    }
}
