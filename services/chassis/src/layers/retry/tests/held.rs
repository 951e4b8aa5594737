//! `commit = message`: one message is held back until it is known what comes behind it.

use super::{lab::*, *};
use http_body::Frame;

fn held(attempts: u32) -> Policy {
    Policy {
        commit: Commit::Message,
        ..policy(attempts)
    }
}

const FAILED: &[(&str, &str)] = &[("grpc-status", "14")];
const OK: &[(&str, &str)] = &[("grpc-status", "0")];

#[tokio::test(start_paused = true)]
async fn failing_trailers_behind_a_message_are_tried_again_and_the_message_is_not_seen() {
    let steps = [begins(&["lost"], FAILED), begins(&[], FAILED), begins(&["kept"], OK)];
    let lab = Lab::new(held(3), steps);
    assert_eq!(lab.call().await, (Code::Ok, message("kept")));
    assert_eq!((lab.sent(), lab.refusals()), (3, vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_last_failure_goes_up_with_its_message_and_is_counted_once() {
    let lab = Lab::new(held(2), [begins(&["one"], FAILED), begins(&["two"], FAILED)]);
    assert_eq!(lab.call().await, (Code::Unavailable, message("two")));
    assert_eq!(lab.refusals(), [("limit", 1)]);
    let lab = Lab::new(held(2), [begins(&["one"], &[("grpc-status", "3")])]);
    assert_eq!(lab.call().await, (Code::InvalidArgument, message("one")));
    assert_eq!(lab.refusals(), [("code", 1)]);
    // Without a status in its trailers an answer is UNKNOWN, as gRPC says.
    let lab = Lab::new(held(2), [begins(&["one"], &[])]);
    assert_eq!(lab.call().await.0, Code::Unknown);
    assert_eq!(lab.refusals(), [("code", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_second_message_commits_and_all_flows_on() {
    let lab = Lab::new(held(3), [begins(&["one", "two"], FAILED)]);
    let both = [message("one"), message("two")].concat();
    assert_eq!(lab.call().await, (Code::Unavailable, both.into()));
    assert_eq!((lab.sent(), lab.refusals()), (1, vec![("committed", 1)]));
}

#[tokio::test(start_paused = true)]
async fn headers_commit_where_headers_are_asked_for() {
    let lab = Lab::new(policy(3), [begins(&["one"], FAILED)]);
    assert_eq!(lab.call().await, (Code::Unavailable, message("one")));
    assert_eq!((lab.sent(), lab.refusals()), (1, vec![("committed", 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_pushback_in_held_trailers_is_obeyed() {
    let waits = &[("grpc-status", "14"), (call::PUSHBACK, "40")];
    let refuses = &[("grpc-status", "14"), (call::PUSHBACK, "-1")];
    let lab = Lab::new(held(3), [begins(&["x"], waits), begins(&["x"], refuses)]);
    lab.call().await;
    assert_eq!((lab.at_ms(), lab.refusals()), (vec![0, 40], vec![("pushback", 1)]));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_while_it_is_held_is_a_transport_failure() {
    let breaks = || streams([Ok(Frame::data(message("x"))), Err(Status::unknown("transport error"))]);
    let lab = Lab::new(held(2), [breaks(), begins(&["x"], OK)]);
    assert_eq!(lab.call().await.0, Code::Ok);
    assert_eq!(lab.counts.totals().links["inventory"].transport_errors, 1);
    let lab = Lab::new(held(2), [breaks(), breaks()]);
    assert_eq!(lab.call().await.0, Code::Unavailable);
    assert_eq!(lab.counts.totals().links["inventory"].transport_errors, 2);
    assert_eq!(lab.refusals(), [("limit", 1)]);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_and_an_attempts_own_time_cover_the_holding() {
    let lab = Lab::new(held(3), [hangs_after_its_head()]);
    assert_eq!(lab.call_within(40).await, Code::DeadlineExceeded);
    assert_eq!((lab.ms(), lab.refusals()), (40, vec![("deadline", 1)]));
    let policy = Policy {
        attempt_timeout: Some(Duration::from_millis(25)),
        retry_on: "DEADLINE_EXCEEDED".parse().unwrap(),
        ..held(2)
    };
    let lab = Lab::new(policy, [hangs_after_its_head(), begins(&["x"], OK)]);
    assert_eq!(lab.call().await, (Code::Ok, message("x")));
    assert_eq!(lab.at_ms(), [0, 25]);
}

#[tokio::test(start_paused = true)]
async fn a_begun_answer_whose_trailers_say_deadline_exceeded_is_no_deadline_of_ours() {
    let lab = Lab::new(policy(3), [begins(&["x"], &[("grpc-status", "4")])]);
    assert_eq!(lab.call_within(100).await, Code::DeadlineExceeded);
    assert_eq!(lab.refusals(), [("code", 1)]);
}
