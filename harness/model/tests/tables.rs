//! The tables of the reference, row by row.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use model::{
    Code, Count, Draws, Fault, Kind, Layer, Prediction, Topology, formula, one_request, predict, worst, worst_sent,
};
use support::{DOWN, FAILED_PRECONDITION, Fail, NOT_FOUND, REFUSE, chain, fail, headline, with_bottom, with_proxies};

fn received(prediction: &Prediction) -> Vec<u128> {
    let exactly = |service: &model::ServicePrediction| {
        assert_eq!(service.received.min, service.received.max);
        assert_eq!(service.received.kind, Kind::Exact);
        let Count::Of(count) = service.received.min else {
            panic!("beyond")
        };
        count
    };
    prediction.services.iter().map(exactly).collect()
}

fn first(first: u64) -> Fault {
    fail(Fail {
        first: Some(first),
        ..DOWN
    })
}

#[test]
fn the_first_f_bottom_calls_fail() {
    for (failing, expected) in [
        (0, [1, 1, 1, 1]),
        (1, [1, 1, 1, 2]),
        (2, [1, 1, 1, 3]),
        (3, [1, 1, 2, 4]),
        (5, [1, 1, 2, 6]),
        (8, [1, 1, 3, 9]),
        (9, [1, 2, 4, 10]),
        (13, [1, 2, 5, 14]),
        (17, [1, 2, 6, 18]),
        (18, [1, 3, 7, 19]),
        (26, [1, 3, 9, 27]),
        (27, [1, 3, 9, 27]),
    ] {
        let prediction = predict(&headline(first(failing)), Draws::Forecast);
        assert_eq!(received(&prediction), expected, "first={failing}");
        assert_eq!(prediction.ok.min, Count::Of(u128::from(failing < 27)));
    }
}

#[test]
fn the_bottom_always_fails() {
    for (attempts, expected, all) in [
        (&[1, 3, 3, 3][..], &[1, 3, 9, 27][..], 40),
        (&[1, 3, 1, 1], &[1, 3, 3, 3], 10),
        (&[1, 1, 1, 3], &[1, 1, 1, 3], 6),
        (&[1, 3, 3, 1], &[1, 3, 9, 9], 22),
        (&[1, 2, 2, 2], &[1, 2, 4, 8], 15),
        (&[3, 3, 3, 3], &[3, 9, 27, 81], 120),
        (&[1, 5, 5, 5], &[1, 5, 25, 125], 156),
    ] {
        let prediction = predict(&with_bottom(attempts, fail(DOWN)), Draws::Forecast);
        assert_eq!(received(&prediction), expected);
        assert_eq!(prediction.total_arrivals, Count::Of(all));
        assert_eq!(prediction.per_request.arrivals_worst, Count::Of(all));
        assert_eq!(prediction.failed_by_code[&Code::UNAVAILABLE].min, Count::ONE);
    }
}

#[test]
fn an_application_and_a_proxy_of_three_on_every_hop() {
    for layer in [Layer::Proxy, Layer::Envoy] {
        let topology = with_proxies(3, 3, 3, layer, fail(DOWN));
        let prediction = predict(&topology, Draws::Forecast);
        let received = received(&prediction);
        // Every second service is the proxy.
        assert_eq!([received[0], received[2], received[4], received[6]], [1, 9, 81, 729]);
        assert_eq!([received[1], received[3], received[5]], [3, 27, 243]);
        assert_eq!(formula(&topology), "3 x 3 x 3 x 3 x 3 x 3");
        assert_eq!(prediction.per_request.still_fails, Some(1.0));
    }
}

#[test]
fn twelve_links_are_counted_whatever_stands_on_them() {
    let bottom = |topology: &Topology| *received(&predict(topology, Draws::Forecast)).last().unwrap();
    for (attempts, expected) in [(2, 4_096), (3, 531_441)] {
        let attempts: Vec<u32> = [1].into_iter().chain([attempts; 12]).collect();
        let mut topology = with_bottom(&attempts, fail(DOWN));
        topology.load.deadline_us = Some(10_000_000);
        assert_eq!(bottom(&topology), expected);
        // A relay that hands up what was begun does not end it, and one that translates it does.
        topology.services[6].on_failure = Some(FAILED_PRECONDITION);
        assert_eq!(bottom(&topology), u128::from(attempts[1]).pow(6));
    }
    for layer in [Layer::Proxy, Layer::Envoy] {
        let mut topology = with_proxies(12, 3, 3, layer, fail(DOWN));
        assert_eq!(bottom(&topology), 3_u128.pow(24));
        assert_eq!(formula(&topology), ["3"; 24].join(" x "));
        for caller in &mut topology.callers {
            caller.attempts = 100;
        }
        topology.callers[0].attempts = 1;
        let prediction = predict(&topology, Draws::Forecast);
        assert_eq!(prediction.services[24].received.min, Count::Beyond);
        assert_eq!(prediction.services[19].received.min, Count::Of(100_u128.pow(19)));
        // A `first` that runs out in the middle of such a tree costs a descent.
        topology.services[24].fault = first(1_000_000_007);
        let prediction = predict(&topology, Draws::Forecast);
        assert_eq!(prediction.services[24].received.min, Count::Of(1_000_000_008));
        assert_eq!(prediction.services[20].received.min, Count::Of(11));
    }
}

#[test]
fn twelve_links_of_proxies_have_a_closed_form_too() {
    // With every attempt on every layer the bottom is called until it works: 2 calls in the mean.
    let topology = with_proxies(12, 3, 3, Layer::Proxy, fail(Fail { p: Some(0.5), ..DOWN }));
    let prediction = predict(&topology, Draws::Forecast);
    assert!((prediction.per_request.mean.unwrap() - 2.0).abs() < 1e-9);
    assert_eq!(prediction.per_request.worst, Count::Of(3_u128.pow(24)));
}

#[test]
fn a_final_code_stops_the_multiplication_and_a_translation_starts_it_again() {
    let mut topology = headline(fail(DOWN));
    topology.services[2].on_failure = Some(FAILED_PRECONDITION);
    assert_eq!(received(&predict(&topology, Draws::Forecast)), [1, 1, 1, 3]);
    assert_eq!(formula(&topology), "3");

    topology.services[1].on_failure = Some(Code::UNAVAILABLE);
    assert_eq!(received(&predict(&topology, Draws::Forecast)), [1, 3, 3, 9]);
    assert_eq!(formula(&topology), "3 x 3");

    let mut topology = headline(fail(DOWN));
    topology.services[1].on_failure = Some(FAILED_PRECONDITION);
    assert_eq!(received(&predict(&topology, Draws::Forecast)), [1, 1, 3, 9]);

    let mut topology = headline(fail(Fail {
        code: NOT_FOUND,
        ..DOWN
    }));
    assert_eq!(received(&predict(&topology, Draws::Forecast)), [1, 1, 1, 1]);
    assert_eq!(formula(&topology), "1");
    topology.services[1].on_failure = Some(Code::UNAVAILABLE);
    topology.services[2].on_failure = Some(Code::UNAVAILABLE);
    assert_eq!(received(&predict(&topology, Draws::Forecast)), [1, 3, 9, 9]);
}

#[test]
fn a_closed_port_is_sent_to_and_receives_nothing() {
    let prediction = predict(&headline(REFUSE), Draws::Forecast);
    assert_eq!(received(&prediction), [1, 3, 9, 0]);
    assert_eq!(prediction.links[3].sent.min, Count::Of(27));
    assert_eq!(prediction.links[3].calls.min, Count::Of(9));
    assert_eq!(formula(&headline(REFUSE)), "3 x 3 x 3");
}

#[test]
fn an_invalid_item_is_answered_once_unless_the_fault_comes_first() {
    let mut topology = headline(fail(Fail { after: true, ..DOWN }));
    topology.load.invalid_item = true;
    let prediction = predict(&topology, Draws::Forecast);
    assert_eq!(received(&prediction), [1, 1, 1, 1]);
    assert_eq!(
        prediction.failed_by_code.keys().copied().collect::<Vec<_>>(),
        [Code::INVALID_ARGUMENT]
    );
    topology.services[3].fault = fail(DOWN);
    assert_eq!(received(&predict(&topology, Draws::Forecast)), [1, 3, 9, 27]);
}

#[test]
fn work_is_done_before_a_failure_that_comes_after_it() {
    let prediction = predict(&headline(fail(Fail { after: true, ..DOWN })), Draws::Forecast);
    assert_eq!(prediction.services[3].work_done.min, Count::Of(27));
    assert_eq!(prediction.services[2].work_done.max, Count::ZERO);
}

#[test]
fn first_of_the_process_is_shared_by_the_requests() {
    let mut topology = headline(fail(Fail {
        first: Some(30),
        per_process: true,
        ..DOWN
    }));
    topology.load.requests = 1_000_000_000_000;
    let prediction = predict(&topology, Draws::Forecast);
    // 27 arrivals fail the first request, 3 more and one that works make the second, and the rest find it healed.
    assert_eq!(
        prediction.services[3].received.min,
        Count::Of(27 + 4 + (1_000_000_000_000 - 2))
    );
    assert_eq!(prediction.failed_by_code[&Code::UNAVAILABLE].max, Count::ONE);
    assert_eq!(prediction.per_request.worst, Count::Of(27));
}

#[test]
fn twelve_layers_of_a_hundred_attempts_are_counted_to_the_last_digit() {
    let mut topology = with_bottom(&[100; 12], fail(DOWN));
    let prediction = predict(&topology, Draws::Forecast);
    assert_eq!(prediction.services[11].received.min, Count::Of(100_u128.pow(12)));
    assert_eq!(formula(&topology), ["100"; 12].join(" x "));

    // A threshold in the middle of the tree costs a descent, not a walk: B = F + 1, C = ceil(B / L).
    let failing = 123_456_789_012_345_678;
    topology.services[11].fault = first(failing);
    let prediction = predict(&topology, Draws::Forecast);
    for (service, prediction) in prediction.services.iter().enumerate() {
        let bottom_calls = 100_u128.pow(u32::try_from(11 - service).unwrap());
        assert_eq!(
            prediction.received.min,
            Count::Of((u128::from(failing) + 1).div_ceil(bottom_calls))
        );
    }
    assert_eq!(prediction.ok.min, Count::ONE);
}

#[test]
fn what_no_number_holds_is_beyond() {
    let mut topology = with_bottom(&[100; 26], fail(DOWN));
    topology.load.requests = u64::MAX;
    let prediction = predict(&topology, Draws::Replay);
    assert_eq!(prediction.services[25].received.max, Count::Beyond);
    assert_eq!(prediction.services[25].received.mean, None);
    assert_eq!(prediction.total_arrivals, Count::Beyond);
    assert_eq!(
        prediction.services[8].received.min,
        Count::Of(100_u128.pow(9) * u128::from(u64::MAX))
    );
    assert_eq!(formula(&topology).split(" x ").count(), 26);

    let mut topology = with_bottom(&[100; 20], Fault::NONE);
    topology.load.requests = u64::MAX;
    for (p, concurrency) in [(None, 1), (None, 100), (Some(0.999), 1), (Some(0.999), 100)] {
        topology.services[19].fault = fail(Fail {
            p,
            first: Some(u64::MAX),
            per_process: true,
            ..DOWN
        });
        topology.services[3].fault = fail(Fail {
            p,
            first: Some(u64::MAX),
            ..DOWN
        });
        topology.load.concurrency = concurrency;
        let prediction = predict(&topology, Draws::Replay);
        assert!(prediction.services[19].received.max >= prediction.services[19].received.min);
        assert_eq!(
            prediction.services[0].received.max,
            Count::Of(100 * u128::from(u64::MAX))
        );
    }
    let _ = formula(&topology);
}

#[test]
fn the_mean_of_the_closed_form_and_what_it_is_for_four_thousand_requests() {
    let mut topology = headline(fail(Fail { p: Some(0.5), ..DOWN }));
    topology.load.requests = 4_000;
    let prediction = predict(&topology, Draws::Forecast);
    let means = [
        4_000.0,
        4_007.827_758_789_062_5,
        4_571.428_537_368_774,
        7_999.999_940_395_355,
    ];
    for (service, mean) in prediction.services.iter().zip(means) {
        let predicted = service.received.mean.unwrap();
        assert!((predicted - mean).abs() < 1e-9 * mean, "{}: {predicted}", service.name);
        assert_eq!(service.received.kind, Kind::Statistical);
    }
    assert_eq!(prediction.total_arrivals, Count::Of(20_580));
    assert_eq!(prediction.per_request.worst, Count::Of(27));
    assert_eq!(prediction.services[3].received.min, Count::Of(4_000));
    assert_eq!(prediction.services[3].received.max, Count::Of(4_000 * 27));
}

#[test]
fn the_table_of_chances() {
    for (p, means, sd, still_fails) in [
        (0.1, [1.000, 1.001, 1.111], 0.35, 1e-27),
        (0.3, [1.000, 1.028, 1.429], 0.78, 8e-15),
        (0.5, [1.002, 1.143, 2.000], 1.41, 7.5e-9),
        (0.7, [1.042, 1.522, 3.333], 2.79, 6.6e-5),
        (0.9, [1.538, 3.476, 9.419], 7.67, 0.058),
        (0.99, [2.748, 8.002, 23.77], 6.92, 0.762),
    ] {
        let prediction = predict(&headline(fail(Fail { p: Some(p), ..DOWN })), Draws::Forecast);
        for (service, mean) in prediction.services[1..].iter().zip(means) {
            let predicted = service.received.mean.unwrap();
            assert!(
                (predicted - mean).abs() < 6e-3_f64.min(mean * 6e-4),
                "{p} {}: {predicted}",
                service.name
            );
        }
        let request = prediction.per_request;
        assert!((request.sd.unwrap() - sd).abs() < 5.1e-3, "{p}: {:?}", request.sd);
        assert!(
            (request.still_fails.unwrap() / still_fails - 1.0).abs() < 0.07,
            "{p}: {:?}",
            request.still_fails
        );
    }
    let certain = predict(&headline(fail(Fail { p: Some(1.0), ..DOWN })), Draws::Forecast);
    assert_eq!(received(&certain), [1, 3, 9, 27]);
    assert_eq!(certain.per_request.still_fails, Some(1.0));
}

#[test]
fn failures_of_several_services_as_in_the_reference() {
    // n = 2, 3, 4, own failures .1, .2, .3 above a bottom that fails with .6: there the first hop is the user's own.
    let mut topology = with_bottom(&[2, 3, 4], fail(Fail { p: Some(0.6), ..DOWN }));
    let mut above = chain(&[1]);
    topology.callers.insert(0, above.callers.remove(0));
    topology.services.insert(0, above.services.remove(0));
    for (service, p) in [(0, 0.1), (1, 0.2), (2, 0.3)] {
        topology.services[service].fault = fail(Fail { p: Some(p), ..DOWN });
    }
    let prediction = predict(&topology, Draws::Forecast);
    let means = [1.0, 1.123, 1.387, 2.112];
    for (service, mean) in prediction.services.iter().zip(means) {
        assert!(
            (service.received.mean.unwrap() - mean).abs() < 5.1e-4,
            "{:?}",
            service.received.mean
        );
    }
    let sd = prediction.services[3].received.sd.unwrap();
    assert!((sd * sd - 3.691).abs() < 5.1e-4, "{}", sd * sd);
}

#[test]
fn the_formula_names_what_multiplies() {
    assert_eq!(formula(&with_bottom(&[1, 3, 1, 1], fail(DOWN))), "3");
    assert_eq!(formula(&headline(Fault::NONE)), "1");
    assert_eq!(formula(&headline(first(2))), "3");
    assert_eq!(formula(&headline(fail(Fail { p: Some(0.5), ..DOWN }))), "3 x 3 x 3");
}

#[test]
fn what_is_sent_to_a_closed_port_is_the_worst_of_one_request() {
    let mut refused = headline(REFUSE);
    refused.load.requests = 40;
    assert_eq!((worst(&refused), worst_sent(&refused)), (Count::ZERO, Count::Of(27)));
    let mut down = headline(fail(DOWN));
    assert_eq!(worst_sent(&down), worst(&down));
    assert_eq!(one_request(&down), predict(&down, Draws::Forecast).per_request);
    down.load.requests = 40;
    assert_eq!(one_request(&down).mean, Some(27.0));
    assert_eq!(worst_sent(&chain(&[])), Count::ZERO);
}

#[test]
fn an_empty_chain_and_an_empty_load_are_answered() {
    let prediction = predict(&chain(&[]), Draws::Replay);
    assert_eq!(prediction.ok.min, Count::ONE);
    for fault in [
        Fault::NONE,
        fail(Fail {
            p: Some(0.5),
            first: Some(3),
            per_process: true,
            ..DOWN
        }),
    ] {
        for concurrency in [0, 1, 8] {
            let mut topology = headline(fault);
            topology.load.requests = 0;
            topology.load.concurrency = concurrency;
            assert_eq!(predict(&topology, Draws::Replay).total_arrivals, Count::ZERO);
        }
    }
}
