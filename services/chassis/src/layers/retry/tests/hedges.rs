//! Attempts side by side.

use super::{lab::*, *};
use crate::policy::{Budget, Throttle};
use http_body::Frame;
use http_body_util::StreamBody;
use tonic::body::Body;

const DOWN: Code = Code::Unavailable;

fn hedged(attempts: u32, delay_ms: u64) -> Policy {
    Policy {
        hedge: Some(Duration::from_millis(delay_ms)),
        ..policy(attempts)
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_goes_out_every_delay_and_the_first_ok_wins() {
    let steps = [never(), says(Code::Ok).after(25), never(), never()];
    let lab = Lab::new(hedged(5, 10), steps);
    assert_eq!(lab.call().await.0, Code::Ok);
    assert_eq!((lab.at_ms(), lab.ms()), (vec![0, 10, 20, 30], 35));
    // The others are cancelled, and nothing was refused.
    assert_eq!((lab.dropped(), lab.refusals()), (3, vec![]));
}

#[tokio::test(start_paused = true)]
async fn hedges_are_numbered_as_retries_are() {
    let lab = Lab::new(hedged(3, 10), [never(), never(), says(Code::Ok)]);
    lab.call().await;
    assert_eq!(lab.paths(), ["17:1 after -", "17:2 after 1", "17:3 after 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_quick_answer_needs_no_hedge() {
    let lab = Lab::new(hedged(3, 10), [says(Code::Ok).after(9)]);
    assert_eq!(lab.call().await.0, Code::Ok);
    assert_eq!(lab.sent(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_sends_the_next_at_once_and_when_all_failed_the_last_goes_up() {
    let steps = [says(DOWN).after(30), says(DOWN).after(5), says(DOWN).after(50)];
    let lab = Lab::new(hedged(3, 20), steps);
    assert_eq!(lab.call().await.0, DOWN);
    // The second, sent at 20, fails at 25.
    assert_eq!((lab.at_ms(), lab.ms()), (vec![0, 20, 25], 75));
    assert_eq!(lab.refusals(), [("limit", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_code_that_nobody_tries_again_cancels_all_others() {
    let lab = Lab::new(hedged(3, 10), [never(), says(Code::InvalidArgument).after(5)]);
    assert_eq!(lab.call().await.0, Code::InvalidArgument);
    assert_eq!((lab.ms(), lab.dropped(), lab.refusals()), (15, 1, vec![("code", 1)]));
}

#[tokio::test(start_paused = true)]
async fn where_answers_alone_are_tried_again_a_failure_of_the_transport_cancels_all_others() {
    let answers_only = Policy {
        connect_failure: false,
        ..hedged(3, 10)
    };
    let lab = Lab::new(answers_only, [never(), loses(TransportFailure::Lost).after(5)]);
    assert_eq!(lab.call().await.0, DOWN);
    assert_eq!((lab.ms(), lab.dropped(), lab.refusals()), (15, 1, vec![("code", 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_commits_wins_whatever_its_trailers_say() {
    let lab = Lab::new(hedged(3, 10), [never(), begins(&["x"], &[("grpc-status", "14")])]);
    assert_eq!(lab.call().await, (DOWN, message("x")));
    assert_eq!(
        (lab.sent(), lab.dropped(), lab.refusals()),
        (2, 1, vec![("committed", 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn a_held_message_with_failing_trailers_does_not_win() {
    let steps = [
        begins(&["x"], &[("grpc-status", "14")]).after(15),
        never(),
        begins(&["y"], &[("grpc-status", "0")]).after(5),
    ];
    let commit = Commit::Message;
    let lab = Lab::new(
        Policy {
            commit,
            ..hedged(3, 10)
        },
        steps,
    );
    assert_eq!(lab.call().await, (Code::Ok, message("y")));
    assert_eq!((lab.at_ms(), lab.refusals()), (vec![0, 10, 15], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_refusing_pushback_stops_new_hedges_but_not_those_under_way() {
    let steps = || [says(Code::Ok).after(100), pushes(DOWN, &["-1"])];
    let lab = Lab::new(hedged(5, 10), steps());
    assert_eq!(lab.call().await.0, Code::Ok);
    assert_eq!((lab.sent(), lab.ms(), lab.refusals()), (2, 100, vec![]));
    let lab = Lab::new(hedged(5, 10), [says(DOWN).after(100), pushes(DOWN, &["-1"])]);
    assert_eq!(lab.call().await.0, DOWN);
    assert_eq!((lab.sent(), lab.refusals()), (2, vec![("pushback", 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_pushback_delays_the_next_hedge() {
    let steps = [never(), pushes(DOWN, &["70"]), never(), says(Code::Ok)];
    let lab = Lab::new(hedged(4, 10), steps);
    lab.call().await;
    assert_eq!(lab.at_ms(), [0, 10, 80, 90]);
}

#[tokio::test(start_paused = true)]
async fn a_throttle_refuses_hedges_and_is_counted_when_the_call_fails() {
    let (max_milli, ratio_milli) = (1_000, 100);
    let throttle = Some(Throttle { max_milli, ratio_milli });
    let lab = Lab::new(
        Policy {
            throttle,
            ..hedged(3, 10)
        },
        [says(DOWN), says(DOWN).after(30), says(Code::Ok).after(30)],
    );
    // The first failure shuts the door; the calls after it are alone.
    assert_eq!(lab.calls(3).await, [1, 1, 1]);
    assert_eq!(lab.refusals(), [("throttle", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_budget_limits_hedges_and_is_counted_when_the_call_fails() {
    let (min_per_second, ttl) = (0, Duration::from_secs(10));
    let budget = Some(Budget::Window {
        ratio_milli: 1_000,
        min_per_second,
        ttl,
    });
    let steps = [says(DOWN).after(50), says(DOWN).after(50)];
    let lab = Lab::new(
        Policy {
            budget,
            ..hedged(3, 10)
        },
        steps,
    );
    assert_eq!(lab.call().await.0, DOWN);
    assert_eq!((lab.at_ms(), lab.refusals()), (vec![0, 10], vec![("budget", 1)]));
    let in_flight = Some(Budget::InFlight {
        percent_milli: 100_000,
        min_concurrency: 0,
    });
    let steps = [never(), never(), never(), never(), says(Code::Ok)];
    let budget = in_flight;
    let lab = Lab::new(
        Policy {
            budget,
            ..hedged(5, 10)
        },
        steps,
    );
    lab.call().await;
    // Each hedge is itself one of the attempts in flight.
    assert_eq!(lab.sent(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_arrived_as_a_retry_is_not_hedged_where_only_first_tries_are() {
    let only_first_tries = true;
    let policy = Policy {
        only_first_tries,
        ..hedged(3, 10)
    };
    for (answer, refusals) in [(DOWN, vec![("not_first_try", 1)]), (Code::Ok, vec![])] {
        let lab = Lab::new(policy.clone(), [says(answer).after(50)]);
        let mut request = lab.request(None);
        request.extensions_mut().get_mut::<Context>().unwrap().attempt = 2;
        assert_eq!(lab.send(request).await.0, answer);
        assert_eq!((lab.sent(), lab.refusals()), (1, refusals));
    }
}

/// A request whose second half comes after so many milliseconds.
fn slow_request(lab: &Lab, ms: u64) -> Request {
    use tokio_stream::StreamExt as _;
    let late = async move {
        sleep(Duration::from_millis(ms)).await;
        Ok::<_, Status>(Frame::data(bytes::Bytes::from("two")))
    };
    let first = tokio_stream::once(Ok(Frame::data(bytes::Bytes::from("one"))));
    let late = futures_util::stream::once(late);
    let mut request = lab.request(None);
    *request.body_mut() = Body::new(StreamBody::new(Box::pin(first.chain(late))));
    request
}

#[tokio::test(start_paused = true)]
async fn a_hedge_waits_until_the_request_is_complete() {
    let lab = Lab::new(hedged(2, 10), [never(), says(Code::Ok)]);
    lab.send(slow_request(&lab, 40)).await;
    assert_eq!(lab.at_ms(), [0, 40]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_alone_reads_the_rest_of_the_request_itself() {
    let lab = Lab::new(hedged(2, 10), [says(DOWN), says(Code::Ok)]).unread();
    assert_eq!(lab.send(slow_request(&lab, 40)).await.0, Code::Ok);
    assert_eq!(lab.at_ms(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_too_long_to_repeat_is_not_hedged() {
    let lab = Lab::new(hedged(3, 10), [says(DOWN).after(50)]);
    let mut request = lab.request(None);
    *request.body_mut() = Body::new(http_body_util::Full::from(vec![0; body::REPLAY_LIMIT + 1]));
    lab.send(request).await;
    assert_eq!((lab.sent(), lab.refusals()), (1, vec![("committed", 1)]));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_spans_all_hedges() {
    let lab = Lab::new(hedged(9, 10), times(9, never));
    assert_eq!(lab.call_within(25).await, Code::DeadlineExceeded);
    assert_eq!((lab.at_ms(), lab.ms(), lab.dropped()), (vec![0, 10, 20], 25, 3));
    assert_eq!(lab.refusals(), [("deadline", 1)]);
    let lab = Lab::new(hedged(9, 10), [pushes(DOWN, &["500"])]);
    assert_eq!(lab.call_within(25).await, Code::DeadlineExceeded);
    assert_eq!((lab.sent(), lab.ms(), lab.refusals()), (1, 25, vec![("deadline", 1)]));
    let lab = Lab::new(hedged(9, 10), []);
    assert_eq!(lab.call_within(0).await, Code::DeadlineExceeded);
    assert_eq!((lab.sent(), lab.refusals()), (0, vec![("deadline", 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_cancels_all_hedges_and_is_counted_once() {
    let lab = Lab::new(hedged(9, 10), times(9, never));
    assert!(
        tokio::time::timeout(Duration::from_millis(25), lab.call())
            .await
            .is_err()
    );
    assert_eq!((lab.sent(), lab.dropped()), (3, 3));
    assert_eq!(lab.refusals(), [("cancelled", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_runs_out_of_its_own_time_is_a_failure_like_another() {
    let policy = Policy {
        attempt_timeout: Some(Duration::from_millis(15)),
        retry_on: "DEADLINE_EXCEEDED".parse().unwrap(),
        ..hedged(3, 10)
    };
    let lab = Lab::new(policy, times(3, never));
    assert_eq!(lab.call().await.0, Code::DeadlineExceeded);
    // The first runs out at 15 and sends the third.
    assert_eq!((lab.at_ms(), lab.ms(), lab.dropped()), (vec![0, 10, 15], 30, 3));
    assert_eq!(lab.refusals(), [("limit", 1)]);
}
