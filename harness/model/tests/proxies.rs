//! Proxies on the links, ours and Envoys: what they hand up, what they leave as it was, and what an Envoy alone does.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use Layer::{Envoy, Proxy};
use model::fault::ClientFault;
use model::{Backoff, Code, Count, Draws, Fault, Kind, Layer, Predicted, RetryOn, Throttle, Topology, predict};
use support::{documented_share, with_bottom};

const MS: u64 = 1_000;

fn fault(text: &str) -> Fault {
    text.parse().unwrap()
}

/// The client, then code of three attempts, then so many proxies of three, one behind the other, and the service.
fn code_over(proxies: &[Layer], bottom: &str) -> Topology {
    let attempts: Vec<u32> = [1, 3].into_iter().chain(proxies.iter().map(|_| 3)).collect();
    let mut topology = with_bottom(&attempts, fault(bottom));
    for (caller, layer) in topology.callers.iter_mut().skip(2).zip(proxies) {
        caller.layer = *layer;
    }
    topology
}

fn shown(predicted: &Predicted) -> String {
    if predicted.kind == Kind::Exact {
        predicted.min.to_string()
    } else {
        format!("{}-{}", predicted.min, predicted.max)
    }
}

fn received(topology: &Topology) -> Vec<String> {
    let prediction = predict(topology, Draws::Replay);
    let services = prediction.services.iter();
    services.map(|service| shown(&service.received)).collect()
}

/// The same for the room with a clock: the client makes one attempt, so that nothing comes to its callee as a retry.
fn by_the_clock(mut topology: Topology) -> Topology {
    topology.callers[1].policy.only_first_tries = true;
    topology
}

fn assert_received(topology: &Topology, expected: &[&str]) {
    assert_eq!(received(topology), expected);
    assert_eq!(received(&by_the_clock(topology.clone())), expected, "by the clock");
}

#[test]
fn an_answer_that_has_begun_is_final_to_everybody_up_to_the_next_code() {
    for text in ["fail:at=headers", "http:status=200"] {
        for proxies in [[Proxy, Proxy], [Envoy, Proxy], [Envoy, Envoy]] {
            let mut topology = code_over(&proxies, text);
            for caller in &mut topology.callers {
                caller.retry_on = RetryOn::Any;
            }
            assert_received(&topology, &["1", "1", "1", "1"]);
            // Whoever holds it back tries it again.
            topology.callers[1].policy.commits_late = true;
            assert_received(&topology, &["1", "3", "3", "3"]);
            if proxies[0] == Proxy {
                // A proxy that gives up hands it up as one that has begun.
                topology.callers[2].policy.commits_late = true;
                assert_received(&topology, &["1", "3", "9", "9"]);
                topology.callers[1].policy.commits_late = false;
                assert_received(&topology, &["1", "1", "3", "3"]);
            }
        }
    }
    // Two times code: the lower one's answer is new, and the upper one tries it again.
    let mut topology = with_bottom(&[1, 3, 3, 3], fault("fail:at=headers"));
    topology.callers[3].layer = Proxy;
    assert_received(&topology, &["1", "3", "3", "3"]);
}

#[test]
fn a_word_on_the_next_attempt_is_heard_by_everybody_up_to_the_next_code() {
    for proxy in [Proxy, Envoy] {
        let mut topology = code_over(&[proxy], "fail:pushback=-1");
        assert_received(&topology, &["1", "1", "1"]);
        topology.callers[2].policy.ignores_pushback = true;
        assert_received(&topology, &["1", "1", "3"]);
        topology.callers[1].policy.ignores_pushback = true;
        assert_received(&topology, &["1", "3", "9"]);
    }
    let mut topology = with_bottom(&[1, 3, 3, 3], fault("fail:pushback=-1"));
    topology.callers[3].layer = Proxy;
    assert_received(&topology, &["1", "3", "3", "3"]);
}

#[test]
fn a_word_on_the_next_attempt_takes_its_time_at_every_proxy() {
    // Attempts of the proxy at 0, 100 and 200 ms, of the code again 100 ms later: the deadline comes in the second round.
    let mut topology = code_over(&[Proxy], "fail:pushback=100");
    topology.load.deadline_us = Some(450 * MS);
    assert_eq!(received(&topology), ["1", "2", "5"]);
    topology.callers[1].policy.ignores_pushback = true;
    topology.load.deadline_us = Some(350 * MS);
    assert_eq!(received(&topology), ["1", "2", "5"]);
    // A proxy that does not wait hands the word up to code that does.
    topology.callers[1].policy.ignores_pushback = false;
    topology.callers[2].policy.ignores_pushback = true;
    topology.load.deadline_us = Some(150 * MS);
    assert_eq!(received(&topology), ["1", "2", "6"]);
    // Code hands up no such word, so that nobody above it waits: this deadline is far.
    let mut topology = with_bottom(&[1, 3, 3], fault("fail:pushback=100"));
    topology.load.deadline_us = Some(750 * MS);
    assert_eq!(received(&topology), ["1", "3", "9"]);
    assert_eq!(predict(&topology, Draws::Replay).margin_us, None);
}

#[test]
fn a_failure_of_the_transport_is_one_to_who_called_and_an_answer_further_up() {
    for text in ["refuse", "reset", "goaway", "reset:of=stream"] {
        let arrives = text != "refuse";
        let counts = |topology: &Topology| {
            let prediction = predict(topology, Draws::Replay);
            let clock = predict(&by_the_clock(topology.clone()), Draws::Replay);
            let sent: Vec<String> = prediction.links.iter().map(|link| shown(&link.sent)).collect();
            let timed: Vec<String> = clock.links.iter().map(|link| shown(&link.sent)).collect();
            assert_eq!(sent, timed, "{text}");
            let bottom = &prediction.services.last().unwrap().received;
            assert_eq!(shown(bottom), if arrives { sent.last().unwrap().as_str() } else { "0" });
            sent
        };
        for proxy in [Proxy, Envoy] {
            let mut topology = code_over(&[proxy], text);
            topology.callers[2].answers_only = true;
            assert_eq!(counts(&topology), ["1", "3", "3"], "{text}");
            // The code above has an answer before it.
            topology.callers[1].answers_only = true;
            assert_eq!(counts(&topology), ["1", "3", "3"], "{text}");
            topology.callers[2].answers_only = false;
            assert_eq!(counts(&topology), ["1", "3", "9"], "{text}");
        }
        let mut topology = code_over(&[], text);
        topology.callers[1].answers_only = true;
        assert_eq!(counts(&topology), ["1", "1"], "{text}");
    }
}

#[test]
fn what_is_not_tried_again_for_its_transport_takes_no_token() {
    // Eleven failures would shut this bucket; the answers of a service that fails do.
    let throttled = |text: &str| {
        let mut topology = code_over(&[], text);
        topology.load.requests = 12;
        topology.callers[1].answers_only = true;
        topology.callers[1].policy.throttle = Some(Throttle {
            max_milli: 10_000,
            ratio_milli: 0,
        });
        predict(&topology, Draws::Replay)
    };
    let (cut, failed) = (throttled("reset"), throttled("fail"));
    assert_eq!(
        (shown(&cut.links[1].sent), cut.limits[0].binds),
        ("12".into(), Some(false))
    );
    assert_eq!(
        (shown(&failed.links[1].sent), failed.limits[0].binds),
        ("15".into(), Some(true))
    );
}

#[test]
fn whether_a_call_came_as_a_retry_is_asked_of_the_code_above_the_proxies() {
    // Code, two proxies, code. The lower code is called 27 times, 9 of them by the upper code's first attempt.
    for proxies in [[Proxy, Proxy], [Envoy, Proxy]] {
        let mut topology = with_bottom(&[1, 3, 3, 3, 3], fault("fail"));
        for (caller, layer) in topology.callers.iter_mut().skip(2).zip(proxies) {
            caller.layer = layer;
        }
        topology.callers[4].policy.only_first_tries = true;
        assert_eq!(received(&topology), ["1", "3", "9", "27", "45"]);
        // The upper proxy asks the same: it tries the first attempt of the code three times, the others once.
        topology.callers[2].policy.only_first_tries = true;
        assert_eq!(received(&topology), ["1", "3", "5", "15", "33"]);
    }
}

#[test]
fn to_an_envoy_every_failure_of_the_transport_is_unavailable() {
    for text in ["reset", "reset:of=stream,code=INTERNAL_ERROR", "goaway", "refuse"] {
        let mut topology = code_over(&[Envoy], text);
        topology.callers[2].raw_codes = true;
        let prediction = predict(&topology, Draws::Replay);
        assert_eq!(shown(&prediction.links[2].sent), "9", "{text}");
        let codes: Vec<&Code> = prediction.failed_by_code.keys().collect();
        assert_eq!(codes, [&Code::UNAVAILABLE], "{text}");
    }
    let ours = code_over(&[Proxy], "reset:of=stream,code=INTERNAL_ERROR");
    assert_eq!(received(&ours), ["1", "1", "1"]);
}

#[test]
fn an_envoy_knows_five_statuses() {
    for (name, attempts) in [
        ("UNAVAILABLE", "3"),
        ("CANCELLED", "3"),
        ("DEADLINE_EXCEEDED", "3"),
        ("INTERNAL", "3"),
        ("RESOURCE_EXHAUSTED", "3"),
        ("ABORTED", "1"),
        ("UNKNOWN", "1"),
    ] {
        let mut topology = code_over(&[Envoy], &format!("fail:code={name}"));
        topology.callers[1].attempts = 1;
        topology.callers[2].retry_on = RetryOn::Any;
        assert_received(&topology, &["1", "1", attempts]);
    }
}

#[test]
fn an_attempt_that_an_envoy_gives_up_is_unavailable_and_one_of_ours_out_of_time() {
    let slow_service = |layer, retry_on: &[Code]| {
        let mut topology = code_over(&[layer], "hang");
        topology.callers[1].attempts = 1;
        topology.callers[2].policy.attempt_timeout_us = Some(100 * MS);
        topology.callers[2].retry_on = RetryOn::Codes(retry_on.to_vec());
        topology
    };
    let slow = |layer, retry_on: &[Code]| {
        let prediction = predict(&slow_service(layer, retry_on), Draws::Replay);
        let code = *prediction.failed_by_code.keys().next().unwrap();
        (shown(&prediction.services[2].received), code)
    };
    assert_eq!(slow(Envoy, &[Code::UNAVAILABLE]), ("3".into(), Code::UNAVAILABLE));
    assert_eq!(slow(Envoy, &[Code::DEADLINE_EXCEEDED]), ("1".into(), Code::UNAVAILABLE));
    assert_eq!(slow(Proxy, &[Code::UNAVAILABLE]), ("1".into(), Code::DEADLINE_EXCEEDED));
    assert_eq!(
        slow(Proxy, &[Code::DEADLINE_EXCEEDED]),
        ("3".into(), Code::DEADLINE_EXCEEDED)
    );
    // To an Envoy it is a reset.
    let mut topology = slow_service(Envoy, &[Code::UNAVAILABLE]);
    topology.callers[2].answers_only = true;
    assert_eq!(received(&topology)[2], "1");
    // With a throttle and many at once there are only bounds, and they know it too.
    topology.callers[2].answers_only = false;
    topology.callers[2].policy.throttle = Some(BUCKET);
    (topology.load.requests, topology.load.concurrency) = (3, 3);
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(shown(&prediction.services[2].received), "0-9");
    assert_eq!(prediction.failed_by_code[&Code::UNAVAILABLE].max, Count::Of(3));
}

const BUCKET: Throttle = Throttle {
    max_milli: 1_000_000,
    ratio_milli: 0,
};

#[test]
fn the_limits_of_who_never_tries_again_do_not_bind() {
    let crowd = |text: &str| {
        let mut topology = code_over(&[Proxy], text);
        topology.callers[1].policy.throttle = Some(Throttle {
            max_milli: 10_000,
            ratio_milli: 0,
        });
        (topology.load.requests, topology.load.concurrency) = (10, 5);
        predict(&topology, Draws::Replay).limits[0].binds
    };
    assert_eq!((crowd("fail:at=headers"), crowd("fail")), (Some(false), None));
}

#[test]
fn the_back_off_that_an_envoy_needs_changes_no_count() {
    for links in [3_u32, 12] {
        let attempts: Vec<u32> = [1].into_iter().chain((0..2 * links).map(|_| 3)).collect();
        let mut topology = with_bottom(&attempts, fault("fail"));
        topology.load.deadline_us = Some(10_000 * MS);
        for caller in topology.callers.iter_mut().skip(2).step_by(2) {
            caller.layer = Envoy;
            caller.policy.backoff = Some(Backoff {
                initial_us: MS,
                multiplier: 2.0,
                max_us: MS,
                least: 0.0,
                most: 1.0,
            });
        }
        let prediction = predict(&topology, Draws::Replay);
        assert_eq!(
            shown(&prediction.services.last().unwrap().received),
            9_u64.pow(links).to_string()
        );
        assert_eq!(prediction.margin_us, None);
    }
}

#[test]
fn attempts_of_an_envoy_draw_by_how_often_their_path_has_come() {
    // One attempt of everybody but the Envoy, which makes as many as it takes: paths 1.1, again and again.
    let (seed, p) = (27, 0.7);
    for request in 1..=200 {
        let mut topology = with_bottom(&[1, 1, 40], fault("fail:p=0.7"));
        topology.callers[2].layer = Envoy;
        topology.load.first_request = request;
        let tries = |path: &dyn Fn(u32) -> Vec<u32>, occurrence: &dyn Fn(u32) -> u64| {
            let fails = |tried: &u32| documented_share(seed, request, &path(*tried), occurrence(*tried)) < p;
            (1..40).take_while(fails).count() + 1
        };
        let repeated = tries(&|_| vec![1, 1], &|tried| u64::from(tried - 1)).to_string();
        assert_received(&topology, &["1", "1", &repeated]);
        topology.callers[2].layer = Proxy;
        let numbered = tries(&|tried| vec![1, 1, tried], &|_| 0).to_string();
        assert_received(&topology, &["1", "1", &numbered]);
    }
}

#[test]
fn a_fault_in_a_caller_below_an_envoy_draws_by_how_often_its_path_has_come() {
    for inside in [true, false] {
        let mut told_apart = 0;
        for request in 1..=100 {
            // The Envoy's attempts meet a caller whose own fault fails some of them.
            let mut topology = with_bottom(&[1, 40, 1], Fault::NONE);
            topology.callers[1].layer = Envoy;
            topology.callers[2].client_fault = Some(ClientFault {
                fault: fault("fail:p=0.7"),
                inside,
            });
            topology.load.first_request = request;
            let path: &[u32] = if inside { &[1, 1, u32::MAX] } else { &[1, u32::MAX - 1] };
            let fails = |tried: &u64| documented_share(27, request, path, tried - 1) < 0.7;
            let tries = (1..40).take_while(fails).count() + 1;
            told_apart += usize::from(tries > 1);
            assert_eq!(received(&topology)[1], tries.to_string());
        }
        assert!(told_apart > 20);
    }
}

#[test]
fn detached_work_below_an_envoy_with_a_deadline_has_bounds_and_no_false_number() {
    let mut topology = with_bottom(&[1, 3, 4], fault("delay:ms=100+fail"));
    topology.callers[1].layer = Envoy;
    topology.services[1].detached = true;
    topology.load.deadline_us = Some(250 * MS);
    let prediction = predict(&topology, Draws::Replay);
    // The Envoy tells an attempt that is sent late the whole time, and so its work goes on for longer.
    assert!(prediction.services[2].received.max >= Count::Of(4));
    assert_eq!(prediction.services[2].received.kind, Kind::Bounds);
    topology.callers[1].layer = Proxy;
    assert_eq!(received(&topology)[2], "3");
}
