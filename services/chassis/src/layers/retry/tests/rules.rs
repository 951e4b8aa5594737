//! Attempts one after another: pushback, tokens, budgets, an attempt's own time.

use super::{lab::*, *};
use crate::policy::{Budget, Throttle};

const DOWN: Code = Code::Unavailable;

fn fails() -> Step {
    says(DOWN)
}

fn throttle(max: u32, ratio_milli: u32) -> Throttle {
    let max_milli = max * 1_000;
    Throttle { max_milli, ratio_milli }
}

fn window(ratio_milli: u32) -> Budget {
    Budget::Window {
        ratio_milli,
        min_per_second: 0,
        ttl: Duration::from_secs(10),
    }
}

fn in_flight(percent: u32, min_concurrency: u32) -> Budget {
    Budget::InFlight {
        percent_milli: percent * 1_000,
        min_concurrency,
    }
}

fn backoff() -> Backoff {
    let (initial, max) = (Duration::from_millis(100), Duration::from_secs(10));
    Backoff {
        initial,
        multiplier: 2.0,
        max,
        jitter: Jitter::None,
    }
}

/// A failure that everything would refuse to try again.
fn hopeless() -> (Policy, Answered) {
    let policy = Policy {
        only_first_tries: true,
        ..policy(3)
    };
    let answered = Answered {
        made: 3,
        arrived_as: 2,
        head: Head::TrailersOnly(Code::Internal),
        failure: None,
        pushback: Pushback::Never,
        is_replayable: false,
        is_spent: true,
        is_throttled: true,
    };
    (policy, answered)
}

#[test]
fn the_checks_come_in_the_order_of_the_standard() {
    let (policy, mut answered) = hopeless();
    let mut expect = |reason, remedy: fn(&mut Answered)| {
        assert_eq!(decide(&policy, answered), Decision::Stop(reason));
        remedy(&mut answered);
    };
    expect(Refusal::Deadline, |answered| answered.is_spent = false);
    expect(Refusal::Code, |answered| answered.head = Head::TrailersOnly(DOWN));
    expect(Refusal::Throttle, |answered| answered.is_throttled = false);
    expect(Refusal::Limit, |answered| answered.made = 2);
    expect(Refusal::NotFirstTry, |answered| answered.arrived_as = 1);
    expect(Refusal::Pushback, |answered| answered.pushback = Pushback::Silent);
    expect(Refusal::Committed, |answered| answered.is_replayable = true);
    assert_eq!(decide(&policy, answered), Decision::Retry(None));
    answered.pushback = Pushback::After(Duration::from_millis(7));
    assert_eq!(
        decide(&policy, answered),
        Decision::Retry(Some(Duration::from_millis(7)))
    );
}

#[test]
fn a_token_goes_for_codes_that_are_tried_again_and_for_a_refusing_pushback_whatever_the_code() {
    let (policy, hopeless) = hopeless();
    let takes = |head, pushback, is_spent| {
        let answered = Answered {
            head,
            pushback,
            is_spent,
            ..hopeless
        };
        takes_token(&policy, &answered)
    };
    assert!(takes(Head::TrailersOnly(DOWN), Pushback::Silent, false));
    assert!(takes(Head::TrailersOnly(Code::Internal), Pushback::Never, false));
    assert!(!takes(Head::TrailersOnly(Code::Internal), Pushback::Silent, false));
    let wait = Pushback::After(Duration::ZERO);
    assert!(!takes(Head::TrailersOnly(Code::Internal), wait, false));
    assert!(!takes(Head::TrailersOnly(Code::Ok), Pushback::Never, false));
    assert!(!takes(Head::Committed, Pushback::Never, false));
    assert!(!takes(Head::TrailersOnly(DOWN), Pushback::Silent, true));
}

#[tokio::test(start_paused = true)]
async fn where_answers_alone_are_tried_again_a_failure_of_the_transport_ends_the_call() {
    use TransportFailure::{Lost, Refused, StreamReset};
    let answers_only = Policy {
        connect_failure: false,
        ..policy(3)
    };
    for failure in [Refused, Lost, StreamReset] {
        // The same code that comes as an answer is an answer.
        let lab = Lab::new(answers_only.clone(), [fails(), loses(failure)]);
        assert_eq!(lab.call().await.0, DOWN);
        assert_eq!((lab.sent(), lab.refusals()), (2, vec![("code", 1)]), "{failure:?}");
        let lab = Lab::new(policy(3), [loses(failure), fails(), says(Code::Ok)]);
        assert_eq!((lab.call().await.0, lab.sent()), (Code::Ok, 3), "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_not_tried_again_takes_no_token() {
    let answers_only = Policy {
        connect_failure: false,
        throttle: Some(throttle(4, 1)),
        ..policy(2)
    };
    // With a token taken by the first call, the second could not retry.
    let steps = [loses(TransportFailure::Lost), fails(), says(Code::Ok)];
    let lab = Lab::new(answers_only, steps);
    assert_eq!(lab.calls(2).await, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_pushback_is_waited_for_exactly_and_starts_the_back_off_anew() {
    let policy = Policy {
        backoff: Some(backoff()),
        ..policy(6)
    };
    let steps = [
        fails(),
        fails(),
        pushes(DOWN, &["77"]),
        pushes(DOWN, &["0"]),
        fails(),
        says(Code::Ok),
    ];
    let lab = Lab::new(policy, steps);
    assert_eq!(lab.call().await.0, Code::Ok);
    // 100 and 200 of the back-off, 77 and 0 of the callee, 100 anew.
    assert_eq!(lab.at_ms(), [0, 100, 300, 377, 377, 477]);
    assert_eq!(lab.refusals(), []);
}

#[tokio::test(start_paused = true)]
async fn a_negative_unreadable_or_doubled_pushback_ends_the_call() {
    for never in [&["-1"][..], &["soon"], &["007"], &["5", "5"]] {
        let lab = Lab::new(policy(3), [pushes(DOWN, never)]);
        assert_eq!(lab.call().await.0, DOWN);
        assert_eq!((lab.sent(), lab.refusals()), (1, vec![("pushback", 1)]), "{never:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pushback_allows_neither_another_code_nor_more_attempts() {
    let lab = Lab::new(policy(3), [pushes(Code::Internal, &["5"])]);
    lab.call().await;
    assert_eq!((lab.sent(), lab.refusals()), (1, vec![("code", 1)]));
    let lab = Lab::new(policy(2), times(2, || pushes(DOWN, &["5"])));
    lab.call().await;
    assert_eq!((lab.sent(), lab.refusals()), (2, vec![("limit", 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_policy_without_pushback_does_not_listen() {
    let policy = Policy {
        pushback: false,
        throttle: Some(throttle(10, 100)),
        ..policy(2)
    };
    let lab = Lab::new(policy, [pushes(DOWN, &["-1"]), pushes(Code::Internal, &["-1"])]);
    lab.call().await;
    assert_eq!((lab.at_ms(), lab.refusals()), (vec![0, 0], vec![("code", 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_pushback_beyond_the_deadline_sends_nothing_and_costs_nothing() {
    let policy = Policy {
        budget: Some(window(1_000)),
        ..policy(3)
    };
    let lab = Lab::new(policy, [pushes(DOWN, &["400"]), fails(), says(Code::Ok)]);
    assert_eq!(lab.call_within(250).await, Code::DeadlineExceeded);
    assert_eq!((lab.sent(), lab.ms()), (1, 250));
    assert_eq!(lab.refusals(), [("deadline", 1)]);
    // The withdrawal came back: two deposits pay for this retry and for one more.
    assert_eq!(lab.call().await.0, Code::Ok);
    assert!(lab.generation.allowance.retry(Instant::now()).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_throttle_shuts_after_as_many_attempts_as_the_reference_says() {
    let policy = Policy {
        throttle: Some(throttle(10, 100)),
        ..policy(3)
    };
    let lab = Lab::new(policy, times(100, fails));
    assert_eq!(lab.calls(6).await, [3, 2, 1, 1, 1, 1]);
    assert_eq!(lab.refusals(), [("limit", 1), ("throttle", 5)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_ok_gives_tokens_wherever_its_ok_shows() {
    for (commit, ok) in [
        (Commit::Headers, (|| says(Code::Ok)) as fn() -> Step),
        (Commit::Headers, || begins(&["x"], &[("grpc-status", "0")])),
        (Commit::Message, || begins(&["x"], &[("grpc-status", "0")])),
        (Commit::Message, || begins(&["x", "y"], &[("grpc-status", "0")])),
    ] {
        let policy = Policy {
            commit,
            throttle: Some(throttle(2, 500)),
            ..policy(2)
        };
        // Of two tokens one failure leaves exactly half, which shuts the door.
        let lab = Lab::new(policy, [fails(), ok()]);
        assert_eq!(lab.calls(1).await, [1]);
        assert!(!lab.generation.allowance.is_open());
        assert_eq!(lab.call().await.0, Code::Ok);
        assert!(lab.generation.allowance.is_open());
    }
}

#[tokio::test(start_paused = true)]
async fn other_codes_take_no_token_unless_a_pushback_refuses() {
    let policy = Policy {
        throttle: Some(throttle(10, 100)),
        ..policy(2)
    };
    let lab = Lab::new(
        policy.clone(),
        times(20, || says(Code::Internal)).chain([fails(), fails()]),
    );
    lab.calls(20).await;
    assert_eq!(lab.calls(1).await, [2]);
    let lab = Lab::new(policy, times(5, || pushes(Code::Internal, &["-1"])).chain([fails()]));
    lab.calls(5).await;
    assert_eq!(lab.calls(1).await, [1]);
    assert_eq!(lab.refusals(), [("code", 5), ("throttle", 1)]);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_full_again_with_each_generation() {
    let policy = Policy {
        throttle: Some(throttle(4, 100)),
        ..policy(2)
    };
    let lab = Lab::new(policy, times(10, fails));
    assert_eq!(lab.calls(2).await, [2, 1]);
    let generation = Generation::first(lab.generation.config.clone());
    let lab = lab.under(generation);
    assert_eq!(lab.calls(2).await, [2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_window_of_ratio_r_sends_exactly_1_plus_r() {
    for (ratio_milli, sent) in [(200, 120), (600, 160), (300, 130), (1_000, 200), (0, 100)] {
        let policy = Policy {
            budget: Some(window(ratio_milli)),
            ..policy(3)
        };
        let lab = Lab::new(policy, times(300, fails));
        lab.calls(100).await;
        assert_eq!(lab.sent(), sent, "ratio {ratio_milli}");
        assert_eq!(lab.refusals(), [("budget", 100)]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_is_asked_last() {
    let policy = Policy {
        budget: Some(window(0)),
        ..policy(1)
    };
    let lab = Lab::new(policy, [fails()]);
    lab.call().await;
    assert_eq!(lab.refusals(), [("limit", 1)]);
}

/// Calls at once, each with attempts of 50 ms that all fail: attempts in all.
async fn at_once(calls: usize, budget: Budget) -> usize {
    let budget = Some(budget);
    let policy = Policy { budget, ..policy(3) };
    let lab = Lab::new(policy, times(calls * 3, || fails().after(50)));
    futures_util::future::join_all((0..calls).map(|_| lab.call())).await;
    lab.sent()
}

#[tokio::test(start_paused = true)]
async fn retries_in_flight_are_limited_as_envoy_was_measured() {
    // Envoy's `max_retries: 3`, reference 5.2: 3 per call up to three at once, then so many.
    for (calls, sent) in [(1, 3), (3, 9), (4, 10), (10, 16), (50, 56)] {
        assert_eq!(at_once(calls, in_flight(0, 3)).await, sent, "{calls} at once");
    }
    assert_eq!(at_once(1, in_flight(20, 0)).await, 1);
    // Of 10 that fail together, the first finds 9 others, a fifth of which is 1; nobody finds as many again.
    assert_eq!(at_once(10, in_flight(20, 0)).await, 11);
    // A retry without back-off is in flight again at once, so the first three of 4 find 3 others each, and the fourth as many
    // retries; those then find two others and two retries.
    assert_eq!(at_once(4, in_flight(100, 0)).await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_gives_its_place_in_flight_back() {
    let policy = Policy {
        budget: Some(in_flight(0, 1)),
        backoff: Some(backoff()),
        ..policy(2)
    };
    let lab = Lab::new(policy, [fails(), fails(), never()]);
    // Left in its back-off, then left while its retry is under way.
    for ms in [50, 150] {
        let call = lab.call();
        assert!(tokio::time::timeout(Duration::from_millis(ms), call).await.is_err());
        assert!(lab.generation.allowance.retry(Instant::now()).is_some());
    }
    assert_eq!(lab.refusals(), [("cancelled", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_begun_answer_is_in_flight_until_it_has_ended() {
    let policy = Policy {
        budget: Some(in_flight(0, 1)),
        ..policy(2)
    };
    let lab = Lab::new(policy, [fails(), hangs_after_its_head()]);
    let answer = lab.answer(lab.request(None)).await;
    assert!(lab.generation.allowance.retry(Instant::now()).is_none());
    drop(answer);
    assert!(lab.generation.allowance.retry(Instant::now()).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_runs_out_of_its_own_time_has_failed_from_below() {
    let patient = Policy {
        attempt_timeout: Some(Duration::from_millis(30)),
        retry_on: "DEADLINE_EXCEEDED".parse().unwrap(),
        ..policy(3)
    };
    let lab = Lab::new(
        patient.clone(),
        [never(), says(Code::Ok).after(31), says(Code::Ok).after(29)],
    );
    assert_eq!(lab.call().await.0, Code::Ok);
    assert_eq!((lab.at_ms(), lab.dropped()), (vec![0, 30, 60], 2));
    // A policy that does not name the code does not try again; that is no deadline of the call.
    let retry_on = RetryOn::default();
    let lab = Lab::new(Policy { retry_on, ..patient }, [never()]);
    assert_eq!(lab.call_within(100).await, Code::DeadlineExceeded);
    assert_eq!((lab.ms(), lab.refusals()), (30, vec![("code", 1)]));
}

#[tokio::test(start_paused = true)]
async fn the_calls_deadline_comes_before_an_attempts_own_time() {
    for deadline_ms in [29, 30] {
        let policy = Policy {
            attempt_timeout: Some(Duration::from_millis(30)),
            retry_on: RetryOn::Any,
            ..policy(3)
        };
        let lab = Lab::new(policy, [never()]);
        assert_eq!(lab.call_within(deadline_ms).await, Code::DeadlineExceeded);
        assert_eq!((lab.sent(), lab.refusals()), (1, vec![("deadline", 1)]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_arrived_as_a_retry_is_not_tried_again_where_only_first_tries_are() {
    for (arrived_as, sent, reason) in [(1, 2, "limit"), (2, 1, "not_first_try")] {
        let policy = Policy {
            only_first_tries: true,
            ..policy(2)
        };
        let lab = Lab::new(policy, times(2, fails));
        let mut request = lab.request(None);
        request.extensions_mut().get_mut::<Context>().unwrap().attempt = arrived_as;
        lab.send(request).await;
        assert_eq!((lab.sent(), lab.refusals()), (sent, vec![(reason, 1)]));
    }
}
