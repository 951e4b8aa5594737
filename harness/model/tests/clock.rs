//! Time, limits and everything else that makes one attempt unlike the next: the facts of the field, and the clock against the
//! rooms that need none.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use model::fault::ClientFault;
use model::{
    Backoff, Budget, Code, Draws, Fault, Kind, PassesOn, Predicted, Prediction, RetryOn, Throttle, Topology, predict,
};
use support::{Ask, Random, chain, random_topology, with_bottom};

const MS: u64 = 1_000;

fn fault(text: &str) -> Fault {
    text.parse().unwrap()
}

fn received(topology: &Topology) -> Vec<String> {
    let prediction = predict(topology, Draws::Replay);
    prediction
        .services
        .iter()
        .map(|service| shown(&service.received))
        .collect()
}

/// `3` for what is exact, `3-5` for bounds.
fn shown(predicted: &Predicted) -> String {
    if predicted.kind == Kind::Exact {
        assert_eq!(predicted.min, predicted.max);
        predicted.min.to_string()
    } else {
        format!("{}-{}", predicted.min, predicted.max)
    }
}

fn requests(mut topology: Topology, requests: u64) -> Topology {
    topology.load.requests = requests;
    topology
}

fn at_once(mut topology: Topology, concurrency: u64) -> Topology {
    topology.load.concurrency = concurrency;
    topology
}

const TEN: Throttle = Throttle {
    max_milli: 10_000,
    ratio_milli: 100,
};

fn throttled(attempts: &[u32]) -> Topology {
    let mut topology = with_bottom(attempts, fault("fail"));
    topology
        .callers
        .iter_mut()
        .for_each(|caller| caller.policy.throttle = Some(TEN));
    topology
}

#[test]
fn a_throttle_shuts_after_three_retries() {
    assert_eq!(received(&requests(throttled(&[1, 3]), 10)), ["10", "13"]);
}

#[test]
fn three_throttles_in_a_row() {
    let headline = || throttled(&[1, 3, 3, 3]);
    assert_eq!(received(&headline()), ["1", "3", "6", "9"]);
    // The second request adds 1/2/2/2, every later one 1/1/1/1.
    assert_eq!(received(&requests(headline(), 2)), ["2", "5", "8", "11"]);
    assert_eq!(received(&requests(headline(), 3)), ["3", "6", "9", "12"]);
    assert_eq!(received(&requests(headline(), 10)), ["10", "13", "16", "19"]);
}

#[test]
fn the_table_of_retries_from_a_full_bucket() {
    // Retries before the door shuts, with so many tokens and attempts.
    for (tokens, row) in [
        (4, [1, 1, 1, 1]),
        (10, [2, 3, 3, 4]),
        (20, [5, 6, 7, 8]),
        (100, [25, 33, 37, 40]),
        (1000, [250, 333, 375, 400]),
    ] {
        for (attempts, retries) in (2..).zip(row) {
            let mut topology = requests(throttled(&[1, attempts]), 1_000);
            topology.callers[1].policy.throttle = Some(Throttle {
                max_milli: tokens * 1_000,
                ratio_milli: 100,
            });
            assert_eq!(
                received(&topology)[1],
                (1_000 + retries).to_string(),
                "{tokens} tokens, {attempts} attempts"
            );
        }
    }
}

#[test]
fn requests_at_once_empty_a_throttle_in_any_order() {
    // Four failures leave more than half of ten; one of them may have been a last attempt.
    assert_eq!(received(&at_once(requests(throttled(&[1, 3]), 10), 5)), ["10", "13-14"]);
    // As long as nothing fails it never binds.
    let mut healthy = at_once(requests(throttled(&[1, 3]), 10), 5);
    healthy.services[1].fault = Fault::NONE;
    assert_eq!(received(&healthy), ["10", "10"]);
}

fn windowed(ratio_milli: u64, reserve_milli: u64) -> Topology {
    let mut topology = requests(with_bottom(&[1, 3], fault("fail")), 100);
    topology.callers[1].policy.budget = Some(Budget::Window {
        ratio_milli,
        reserve_milli,
        ttl_us: 10_000 * MS,
    });
    topology
}

#[test]
fn a_window_budget_lets_through_its_ratio_exactly() {
    for (ratio_milli, bottom) in [(0, "100"), (200, "120"), (300, "130"), (600, "160"), (1_000, "200")] {
        assert_eq!(received(&windowed(ratio_milli, 0)), ["100", bottom]);
        // Nor does the order of requests change it.
        assert_eq!(received(&at_once(windowed(ratio_milli, 0), 20)), ["100", bottom]);
    }
}

#[test]
fn a_reserve_that_pays_for_every_retry_does_not_bind() {
    let prediction = predict(&windowed(0, 200_000), Draws::Replay);
    assert_eq!(shown(&prediction.services[1].received), "300");
    assert_eq!(prediction.limits[0].binds, Some(false));
    let prediction = predict(&windowed(0, 10_000), Draws::Replay);
    assert_eq!(shown(&prediction.services[1].received), "110");
    assert_eq!(prediction.limits[0].binds, Some(true));
}

fn in_flight(min_concurrency: u64) -> Topology {
    let mut topology = with_bottom(&[1, 3, 3, 3], fault("fail"));
    for caller in &mut topology.callers {
        caller.policy.budget = Some(Budget::InFlight {
            percent_milli: 20_000,
            min_concurrency,
        });
    }
    topology
}

#[test]
fn one_request_at_a_time_gets_no_retry_from_a_share_and_every_one_from_the_floor() {
    assert_eq!(received(&requests(in_flight(0), 5)), ["5", "5", "5", "5"]);
    assert_eq!(received(&requests(in_flight(3), 5)), ["5", "15", "45", "135"]);
    assert!(
        predict(&in_flight(3), Draws::Replay)
            .limits
            .iter()
            .all(|limit| limit.binds == Some(false))
    );
}

#[test]
fn a_share_of_what_is_in_flight_has_a_ceiling() {
    let mut topology = at_once(requests(in_flight(3), 400), 40);
    topology.services[3].fault = fault("delay:ms=20+fail");
    let bottom = predict(&topology, Draws::Replay).services[3].received;
    // Real proxies gave 1.59 to 1.77 a request.
    assert!(
        bottom.min <= 636.into() && bottom.max >= 708.into() && bottom.max < (400 * 27).into(),
        "{bottom:?}"
    );
}

#[test]
fn only_first_tries_begin_anew_below_every_first_try() {
    let mut topology = with_bottom(&[1, 3, 3, 3], fault("fail"));
    topology
        .callers
        .iter_mut()
        .for_each(|caller| caller.policy.only_first_tries = true);
    assert_eq!(received(&topology), ["1", "3", "5", "11"]);
}

fn with_deadline(attempts: &[u32], bottom: &str, deadline_ms: u64) -> Topology {
    let mut topology = with_bottom(attempts, fault(bottom));
    topology.load.deadline_us = Some(deadline_ms * MS);
    topology
}

#[test]
fn a_deadline_far_away_changes_nothing_and_is_not_timed() {
    let far = predict(&with_deadline(&[1, 3, 3, 3], "delay:ms=20+fail", 10_000), Draws::Replay);
    assert_eq!(
        (shown(&far.services[3].received), far.margin_us),
        ("27".to_owned(), None)
    );
}

#[test]
fn a_slow_service_is_called_until_the_deadline() {
    // At 0, 100, 200 and 300 ms; the fifth would begin at 400.
    let topology = with_deadline(&[1, 10], "delay:ms=100+fail", 360);
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(shown(&prediction.services[1].received), "4");
    assert_eq!(
        prediction.failed_by_code.keys().collect::<Vec<_>>(),
        [&Code::DEADLINE_EXCEEDED]
    );
    assert_eq!(shown(&prediction.services[1].unanswered), "1");
    let margin = prediction.margin_us.unwrap();
    assert!((20_000..60_000).contains(&margin), "{margin}");
}

#[test]
fn a_deadline_that_meets_an_attempt_leaves_bounds() {
    assert_eq!(received(&with_deadline(&[1, 10], "delay:ms=100+fail", 402))[1], "4-5");
}

#[test]
fn one_request_of_many_that_meet_no_deadline_is_multiplied() {
    let topology = at_once(requests(with_deadline(&[1, 10], "delay:ms=100+fail", 360), 50), 2);
    assert_eq!(received(&topology)[1], "200");
}

#[test]
fn a_hang_lasts_until_somebody_gives_up() {
    assert_eq!(received(&with_deadline(&[1, 3], "hang", 200)), ["1", "1"]);
    let mut limited = with_deadline(&[1, 3], "hang", 2_000);
    limited.callers[1].policy.attempt_timeout_us = Some(100 * MS);
    // A timeout that nobody retries.
    assert_eq!(received(&limited), ["1", "1"]);
    limited.callers[1].retry_on = RetryOn::Codes(vec![Code::UNAVAILABLE, Code::DEADLINE_EXCEEDED]);
    assert_eq!(received(&limited), ["1", "3"]);
    // The last attempt begins at 200 ms and is the second that the deadline cuts.
    limited.load.deadline_us = Some(150 * MS);
    assert_eq!(received(&limited), ["1", "2"]);
    limited.services[1].fault = fault("hang:first=1");
    let prediction = predict(&limited, Draws::Replay);
    assert_eq!(
        (shown(&prediction.services[1].received), shown(&prediction.ok)),
        ("2".into(), "1".into())
    );
}

#[test]
fn back_off_fills_the_time_that_a_deadline_leaves() {
    let mut topology = with_deadline(&[1, 5], "fail", 250);
    topology.callers[1].policy.backoff = Some(Backoff {
        initial_us: 100 * MS,
        multiplier: 2.0,
        max_us: 1_000 * MS,
        least: 1.0,
        most: 1.0,
    });
    // At 0 and 100 ms; the next would be at 300.
    assert_eq!(received(&topology), ["1", "2"]);
    let policy = &mut topology.callers[1].policy;
    policy.backoff = policy.backoff.map(|backoff| Backoff { least: 0.0, ..backoff });
    assert_eq!(received(&topology), ["1", "2-5"]);
}

#[test]
fn detached_work_goes_on_when_everybody_has_left() {
    let mut topology = with_deadline(&[1, 1, 4], "delay:ms=100+fail", 150);
    assert_eq!(received(&topology), ["1", "1", "2"]);
    topology.services[1].detached = true;
    // It was told how much time was left, and keeps to it.
    assert_eq!(received(&topology), ["1", "1", "2"]);
    topology.services[1].passes_on = PassesOn::Nothing;
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(shown(&prediction.services[2].received), "4");
    assert_eq!(shown(&prediction.services[1].unanswered), "1");
    // Without detachment the chain falls with its caller, told or not.
    topology.services[1].detached = false;
    assert_eq!(received(&topology), ["1", "1", "2"]);
}

#[test]
fn a_service_with_a_shorter_deadline_of_its_own_is_asked_again() {
    let mut topology = with_deadline(&[1, 3, 1], "delay:ms=500", 5_000);
    topology.services[1].passes_on = PassesOn::AtMost(100 * MS);
    topology.callers[1].retry_on = RetryOn::Codes(vec![Code::DEADLINE_EXCEEDED]);
    assert_eq!(received(&topology), ["1", "3", "3"]);
}

#[test]
fn a_client_that_leaves_cancels_what_it_started() {
    let mut topology = with_bottom(&[1, 3, 3], fault("delay:ms=100+fail"));
    topology.load.cancel_after_us = Some(250 * MS);
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(received(&topology), ["1", "1", "3"]);
    assert_eq!(shown(&prediction.failed_by_code[&Code::CANCELLED]), "1");
}

#[test]
fn a_hedge_is_sent_when_the_first_is_slow_and_the_first_answer_wins() {
    let mut topology = with_bottom(&[1, 3], fault("delay:ms=300,first=1"));
    topology.callers[1].policy.hedge_us = Some(100 * MS);
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(
        (shown(&prediction.services[1].received), shown(&prediction.ok)),
        ("2".into(), "1".into())
    );
    assert_eq!(shown(&prediction.services[1].unanswered), "1");
    // A slow service gets every hedge.
    topology.services[1].fault = fault("delay:ms=300");
    assert_eq!(received(&topology)[1], "3");
    // A failure sends the next at once.
    topology.services[1].fault = fault("fail:first=2");
    assert_eq!(received(&topology)[1], "3");
    // A code that is final ends the call.
    topology.services[1].fault = fault("fail:code=NOT_FOUND,first=1");
    assert_eq!(received(&topology)[1], "1");
}

#[test]
fn a_hedge_that_meets_the_answer_leaves_bounds_whichever_comes_first() {
    let sent = |attempts: &[u32], ms: u64, hedge_ms: u64| {
        let mut topology = with_bottom(attempts, fault(&format!("delay:ms={ms}")));
        for caller in &mut topology.callers[1..] {
            caller.policy.hedge_us = Some(hedge_ms * MS);
        }
        shown(&predict(&topology, Draws::Replay).links[attempts.len() - 1].sent)
    };
    let at_one_link: Vec<String> = [2, 4, 9, 10, 11, 17, 19].map(|ms| sent(&[1, 2], ms, 10)).into();
    assert_eq!(at_one_link, ["1", "1-2", "1-2", "1-2", "1-2", "1-2", "2"]);
    // The last hedge, below the hedge of the upper caller, meets the answer to its first attempt.
    assert_eq!(sent(&[1, 2, 2], 40, 20), "3-4");
    assert_eq!(sent(&[1, 2, 2], 60, 20), "4");
}

#[test]
fn hedges_multiply_down_a_chain() {
    let mut topology = with_bottom(&[1, 2, 2], fault("delay:ms=400"));
    topology.callers[1].policy.hedge_us = Some(60 * MS);
    topology.callers[2].policy.hedge_us = Some(150 * MS);
    assert_eq!(received(&topology), ["1", "2", "4"]);
}

#[test]
fn a_callee_says_when_to_come_again_and_whether() {
    assert_eq!(
        received(&with_bottom(&[1, 3, 3, 3], fault("fail:pushback=-1"))),
        ["1", "3", "9", "9"]
    );
    let mut later = with_deadline(&[1, 3], "fail:pushback=100", 150);
    assert_eq!(received(&later), ["1", "2"]);
    later.callers[1].policy.ignores_pushback = true;
    assert_eq!(received(&later), ["1", "3"]);
}

#[test]
fn an_answer_that_has_begun_is_tried_again_only_by_who_holds_it_back() {
    let mut topology = with_bottom(&[1, 3, 3, 3], fault("fail:at=headers"));
    assert_eq!(received(&topology), ["1", "3", "9", "9"]);
    topology.callers[3].policy.commits_late = true;
    assert_eq!(received(&topology), ["1", "3", "9", "27"]);
}

#[test]
fn cut_connections_are_tried_again_unless_raw_codes_hide_them() {
    for text in ["reset", "goaway", "reset:of=stream"] {
        let mut topology = with_bottom(&[1, 3, 3, 3], fault(text));
        let prediction = predict(&topology, Draws::Replay);
        assert_eq!(shown(&prediction.services[3].received), "27", "{text}");
        assert_eq!(shown(&prediction.links[3].cut), "27");
        if text != "reset:of=stream" {
            topology.callers[3].raw_codes = true;
            assert_eq!(received(&topology), ["1", "1", "1", "1"]);
        }
    }
    let crowd = at_once(requests(with_bottom(&[1, 3], fault("reset")), 10), 5);
    let prediction = predict(&crowd, Draws::Replay);
    assert_eq!(prediction.services[1].received.kind, Kind::Bounds);
}

#[test]
fn an_overload_needs_requests_at_once() {
    let topology = requests(with_bottom(&[1, 3], fault("overload:capacity=1")), 10);
    assert_eq!(received(&topology), ["10", "10"]);
    let none = with_bottom(&[1, 3], fault("overload:capacity=0,code=UNAVAILABLE"));
    assert_eq!(received(&none), ["1", "3"]);
    let crowd = at_once(topology, 3);
    assert_eq!(predict(&crowd, Draws::Replay).services[1].received.max, 10.into());
}

#[test]
fn an_open_loop_overlaps_as_its_pace_says() {
    // 100 ms of work, a request every 60: the second finds the first inside, the third does not.
    let mut topology = requests(with_bottom(&[1, 1], fault("delay:ms=100+overload:capacity=1")), 3);
    topology.load.concurrency = 10;
    topology.load.interval_us = Some(60 * MS);
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(shown(&prediction.ok), "2");
    assert_eq!(shown(&prediction.failed_by_code[&Code::RESOURCE_EXHAUSTED]), "1");
}

#[test]
fn a_fault_in_the_caller_meets_attempts_inside_its_loop_and_calls_outside() {
    let client = |inside| {
        let mut topology = chain(&[1, 3, 3]);
        topology.callers[2].client_fault = Some(ClientFault {
            fault: fault("fail"),
            inside,
        });
        predict(&topology, Draws::Replay)
    };
    let counts = |prediction: &Prediction| {
        let link = &prediction.links[2];
        [
            shown(&link.calls),
            shown(&link.sent),
            shown(&link.lost),
            shown(&prediction.services[2].received),
        ]
    };
    assert_eq!(counts(&client(true)), ["3", "9", "9", "0"]);
    assert_eq!(counts(&client(false)), ["3", "0", "0", "0"]);
}

#[test]
fn a_callee_that_says_when_to_come_again_says_it_for_hedges_too() {
    let mut topology = with_deadline(&[1, 3], "fail:pushback=200", 150);
    topology.callers[1].policy.hedge_us = Some(40 * MS);
    assert_eq!(received(&topology), ["1", "1"]);
    topology.load.deadline_us = None;
    assert_eq!(received(&topology), ["1", "3"]);
    // The answers of three hedges ask for a wait each, and the fourth attempt is sent once.
    let mut topology = with_bottom(&[1, 4], fault("delay:ms=200+fail:pushback=300"));
    topology.callers[1].policy.hedge_us = Some(70 * MS);
    assert_eq!(received(&topology)[1], "4");
}

#[test]
fn a_callee_that_wants_no_more_attempts_leaves_those_under_way() {
    // Attempts at 0, 50 and 100 ms; the first fails at 120 and asks for no more, the second is answered at 170.
    let mut topology = with_bottom(&[1, 4], fault("delay:ms=120+fail:pushback=-1,first=1"));
    topology.callers[1].policy.hedge_us = Some(50 * MS);
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(
        (shown(&prediction.services[1].received), shown(&prediction.ok)),
        ("3".into(), "1".into())
    );
}

#[test]
fn a_hedge_waits_for_a_request_that_has_not_left() {
    let mut topology = chain(&[1, 2]);
    topology.callers[1].policy.hedge_us = Some(50 * MS);
    topology.callers[1].client_fault = Some(ClientFault {
        fault: fault("delay:ms=200,first=1"),
        inside: true,
    });
    topology.load.deadline_us = Some(120 * MS);
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(shown(&prediction.links[1].sent), "1");
}

#[test]
fn a_time_that_is_passed_on_runs_from_the_arrival() {
    let slow = |passed_ms: u64| {
        let mut topology = chain(&[1, 1, 1]);
        topology.services[1].fault = fault("delay:ms=200");
        topology.services[2].fault = fault("delay:ms=100");
        topology.services[1].passes_on = PassesOn::AtMost(passed_ms * MS);
        shown(&predict(&topology, Draws::Replay).ok)
    };
    assert_eq!((slow(250), slow(400)), ("0".to_owned(), "1".to_owned()));
}

#[test]
fn a_bare_200_has_begun_its_answer() {
    let mut topology = with_bottom(&[1, 3, 3, 3], fault("http:status=200"));
    topology
        .callers
        .iter_mut()
        .for_each(|caller| caller.retry_on = RetryOn::Any);
    assert_eq!(received(&topology), ["1", "3", "9", "9"]);
}

#[test]
fn a_timer_that_is_as_short_as_the_way_leaves_bounds() {
    let mut topology = chain(&[1, 1]);
    topology.load.cancel_after_us = Some(5 * MS);
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(
        (shown(&prediction.ok), prediction.ok.kind),
        ("0-1".to_owned(), Kind::Bounds)
    );
}

#[test]
fn requests_of_an_open_loop_that_meet_at_a_place_leave_bounds() {
    // The second arrives as the first leaves.
    let mut topology = requests(chain(&[1, 1, 1]), 2);
    topology.services[0].fault = fault("overload:capacity=1");
    topology.services[1].fault = fault("delay:ms=50");
    topology.load.concurrency = 10;
    topology.load.interval_us = Some(52 * MS);
    assert_eq!(shown(&predict(&topology, Draws::Replay).ok), "1-2");
}

#[test]
fn an_overload_of_many_says_what_one_request_does() {
    let crowd = at_once(requests(with_bottom(&[1, 3, 3], fault("overload:capacity=5")), 20), 20);
    let prediction = predict(&crowd, Draws::Replay);
    assert_eq!(
        (prediction.per_request.worst, prediction.per_request.arrivals_worst),
        (1.into(), 3.into())
    );
}

#[test]
fn a_ceiling_of_what_is_in_flight_counts_on_no_delay_behind_a_failure() {
    let mut topology = at_once(requests(chain(&[1, 3, 1]), 400), 40);
    topology.services[1].fault = fault("fail:p=0.98");
    topology.services[2].fault = fault("delay:ms=50+fail");
    topology.callers[1].policy.budget = Some(Budget::InFlight {
        percent_milli: 20_000,
        min_concurrency: 3,
    });
    assert_eq!(predict(&topology, Draws::Replay).services[1].received.max, 1_200.into());
}

#[test]
fn hedges_at_every_hop_of_the_headline_are_followed() {
    let mut topology = with_bottom(&[1, 3, 3, 3], fault("delay:ms=400+fail"));
    topology
        .callers
        .iter_mut()
        .skip(1)
        .for_each(|caller| caller.policy.hedge_us = Some(100 * MS));
    assert_eq!(received(&topology), ["1", "3", "9", "27"]);
}

#[test]
fn work_that_is_cut_short_as_it_begins_may_stay_unanswered() {
    // The caller's limit and that of its own caller end at the same time: the second arrival comes as everybody leaves.
    let mut topology = with_bottom(&[1, 3], fault("delay:ms=300,first=1"));
    topology.callers[1].retry_on = RetryOn::Any;
    topology
        .callers
        .iter_mut()
        .for_each(|caller| caller.policy.attempt_timeout_us = Some(160 * MS));
    let service = &predict(&topology, Draws::Replay).services[1];
    assert_eq!(
        (shown(&service.received), service.unanswered.max),
        ("1-2".to_owned(), 2.into())
    );
}

#[test]
fn a_throttle_is_no_ceiling_for_hedges() {
    let mut topology = at_once(requests(with_bottom(&[1, 3], fault("delay:ms=70")), 10), 2);
    topology.callers[1].policy.hedge_us = Some(20 * MS);
    topology.callers[1].policy.throttle = Some(TEN);
    assert_eq!(predict(&topology, Draws::Replay).services[1].received.max, 30.into());
}

#[test]
fn detached_work_outlives_the_limit_of_an_attempt() {
    // Three attempts of 83 ms; the third ends with the deadline, long after the client's limit of 29 ms.
    let mut topology = with_deadline(&[1, 3], "delay:ms=83+fail", 200);
    topology.callers[0].policy.attempt_timeout_us = Some(29 * MS);
    topology.services[0].detached = true;
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(received(&topology), ["1", "3"]);
    assert!(prediction.links[1].out_of_time.max >= 1.into());
}

#[test]
fn what_cannot_be_followed_has_a_ceiling() {
    let mut topology = with_bottom(&[4, 4, 4, 3], fault("delay:ms=113+fail"));
    for (caller, ms) in topology.callers.iter_mut().zip([41, 19, 11, 11]) {
        caller.policy.hedge_us = Some(ms * MS);
    }
    assert_eq!(predict(&topology, Draws::Replay).services[3].received.max, 192.into());
}

#[test]
fn the_clock_agrees_with_the_rooms_that_need_none() {
    let mut random = Random(0xC10C);
    let mut compared = 0;
    for round in 0..4_000 {
        let ask = Ask {
            depth: 4,
            attempts: 3,
            requests: 3,
            chances: true,
            firsts: true,
            per_process: true,
            layers: 50 * (round % 2),
            calls: 1,
        };
        let plain = random_topology(&mut random, ask);
        let expected = predict(&plain, Draws::Replay);
        // A bucket that this traffic cannot empty: it changes nothing and needs the clock.
        let most = plain
            .callers
            .iter()
            .map(|caller| u64::from(caller.attempts))
            .product::<u64>();
        if most * plain.load.requests >= 400 {
            continue;
        }
        let mut timed = plain.clone();
        for caller in &mut timed.callers {
            caller.policy.throttle = Some(Throttle {
                max_milli: 1_000_000,
                ratio_milli: 1_000,
            });
        }
        let found = predict(&timed, Draws::Replay);
        for (one, two) in expected.services.iter().zip(&found.services) {
            assert_eq!(shown(&one.received), shown(&two.received), "{plain:?}");
            assert_eq!(shown(&one.work_done), shown(&two.work_done), "{plain:?}");
        }
        for (one, two) in expected.links.iter().zip(&found.links) {
            assert_eq!(
                (shown(&one.sent), shown(&one.lost)),
                (shown(&two.sent), shown(&two.lost)),
                "{plain:?}"
            );
        }
        assert_eq!(shown(&expected.ok), shown(&found.ok), "{plain:?}");
        compared += 1;
    }
    assert!(compared > 2_000, "{compared}");
}

#[test]
fn where_only_a_floor_and_a_ceiling_are_known_a_client_that_leaves_may_end_before_its_deadline() {
    let mut topology = at_once(requests(with_bottom(&[1, 2, 2], fault("hang")), 2), 2);
    topology.callers[1].policy.throttle = Some(TEN);
    topology.callers[2].policy.throttle = Some(TEN);
    topology.services[0].passes_on = PassesOn::Nothing;
    topology.load.deadline_us = Some(1_230 * MS);
    let ended = |topology: &Topology, code| {
        let prediction = predict(topology, Draws::Replay);
        let predicted = prediction.failed_by_code.get(&code).copied();
        predicted.map(|predicted| shown(&predicted))
    };
    assert_eq!(ended(&topology, Code::DEADLINE_EXCEEDED).as_deref(), Some("2"));
    topology.load.cancel_after_us = Some(430 * MS);
    // Two ends are possible, and neither is certain for each of the two.
    for code in [Code::CANCELLED, Code::DEADLINE_EXCEEDED] {
        assert_eq!(ended(&topology, code).as_deref(), Some("0-2"), "{code}");
    }
}
