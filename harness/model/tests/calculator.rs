//! The figures that people work out on paper, and the laws behind them, each by arithmetic that is not the model's.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use model::fault::Kind;
use model::{
    Budget, Count, Draws, FanOut, Fault, Layer, Topology, ceiling, distributions, failing_share, formula, is_only_sent,
    one_request, outage, predict, without_retries, worst,
};
use support::{DOWN, Fail, REFUSE, Random, chain, fail, with_bottom, with_proxies};

fn close(one: f64, other: f64, what: &str) {
    assert!(
        (one - other).abs() <= 1e-9 * other.abs().max(1e-300),
        "{what}: {one} for {other}"
    );
}

/// Callers and a bottom service that fails this share of its calls.
fn flaky(attempts: &[u32], p: f64) -> Topology {
    failing_share(&chain(attempts), p)
}

/// Three links, each caller with so many attempts, each through a proxy of as many, over a service that is down.
fn code_and_proxy(attempts: u32) -> Topology {
    with_proxies(3, attempts, attempts, Layer::Proxy, Fault::DOWN)
}

fn received(topology: &Topology) -> Vec<Count> {
    let services = predict(topology, Draws::Forecast).services;
    services.iter().map(|service| service.received.max).collect()
}

#[test]
fn the_calculators_own_figures() {
    let down = |attempts: &[u32]| with_bottom(attempts, Fault::DOWN);
    let counts = |counts: &[u64]| counts.iter().map(|count| Count::from(*count)).collect::<Vec<_>>();
    assert_eq!(received(&down(&[1, 3, 3, 3])), counts(&[1, 3, 9, 27]));
    assert_eq!(received(&down(&[1, 2, 2, 2])), counts(&[1, 2, 4, 8]));
    assert_eq!(received(&down(&[1, 3, 1, 1])), counts(&[1, 3, 3, 3]));
    assert_eq!(worst(&code_and_proxy(3)), 729.into());
    close(
        ceiling(&down(&[1, 3, 3, 3]), 20.0).bottom,
        1.728,
        "20 % at three layers",
    );
    close(ceiling(&code_and_proxy(3), 20.0).bottom, 2.985_984, "at six");
    assert_eq!(ceiling(&code_and_proxy(3), 20.0).layers, 6);
    close(
        ceiling(&down(&[1, 2, 2, 2]), 300.0).bottom,
        8.0,
        "no more than the attempts",
    );
    close(
        ceiling(&down(&[1, 3, 1, 1]), 10.0).bottom,
        1.1,
        "who does not retry has no budget",
    );
    let half = predict(&flaky(&[1, 3, 3, 3], 0.5), Draws::Forecast).per_request;
    assert!((half.mean.unwrap() - 2.0).abs() < 1e-7, "{half:?}");
}

#[test]
fn code_and_proxy_with_two_retries_each_make_729_of_one_call() {
    // 2 retries are 3 attempts: 9 tries of each call, at three hops.
    assert_eq!(received(&code_and_proxy(3)).last(), Some(&729.into()));
    assert_eq!(received(&code_and_proxy(2)).last(), Some(&64.into()));
}

/// The published mistake: one tier's factor under failure, raised to the depth. The tiers above see fewer failures than the
/// bottom does, so that the truth is far less.
#[test]
fn one_tiers_factor_to_the_power_of_the_depth_is_not_the_load() {
    let (p, attempts, depth) = (0.5_f64, 4, 3);
    let tier = (1.0 - p.powi(attempts)) / (1.0 - p);
    close(tier.powi(depth), 6.591_796_875, "the mistake");
    let told = predict(&flaky(&[1, 4, 4, 4], p), Draws::Forecast)
        .per_request
        .mean
        .unwrap();
    assert!((told - 2.0).abs() < 1e-9, "{told}");
}

/// Every way to write a number as a product of attempts along a chain of this length.
fn placements(product: u32, links: usize) -> Vec<Vec<u32>> {
    if links == 1 {
        return vec![vec![product]];
    }
    let factors = (1..=product).filter(|factor| product.is_multiple_of(*factor));
    factors
        .flat_map(|first| {
            placements(product / first, links - 1).into_iter().map(move |mut rest| {
                rest.insert(0, first);
                rest
            })
        })
        .collect()
}

#[test]
fn with_independent_failures_only_the_product_of_all_attempts_counts() {
    for product in [2, 8, 12, 27, 64] {
        let ways = placements(product, 4);
        assert!(ways.len() >= 4, "{ways:?}");
        for p in [0.01_f64, 0.1, 0.3, 0.5, 0.9, 0.999] {
            let all = i32::try_from(product).unwrap();
            let (load, still_fails) = ((1.0 - p.powi(all)) / (1.0 - p), p.powi(all));
            for attempts in &ways {
                let told = predict(&flaky(attempts, p), Draws::Forecast).per_request;
                let what = format!("{attempts:?} at {p}");
                close(told.mean.unwrap(), load, &what);
                close(told.still_fails.unwrap(), still_fails, &what);
            }
        }
    }
}

/// Section by section: C = ceil(B / L) with B truncated geometric, at every service.
#[test]
fn the_closed_form_holds_at_every_service() {
    let mut random = Random(0x00C1_05ED);
    for _ in 0..2_000 {
        let depth = 1 + random.below(5);
        let attempts: Vec<u32> = (0..depth)
            .map(|_| 1 + u32::try_from(random.below(4)).unwrap())
            .collect();
        let p = random.pick(&[0.05_f64, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99]);
        let topology = flaky(&attempts, p);
        let told = predict(&topology, Draws::Forecast);
        let distributions = distributions(&topology);
        for at in 0..attempts.len() {
            let upto: u32 = attempts[..=at].iter().product();
            let below: u32 = attempts[at + 1..].iter().product();
            let q = p.powi(i32::try_from(below).unwrap());
            let mean: f64 = (0..upto).map(|b| q.powi(i32::try_from(b).unwrap())).sum();
            let second: f64 = (0..upto)
                .map(|b| f64::from(2 * b + 1) * q.powi(i32::try_from(b).unwrap()))
                .sum();
            let row = &told.services[at].received;
            let what = format!("{attempts:?} at {p}, service {at}");
            close(row.mean.unwrap(), mean, &what);
            let variance = second - mean * mean;
            assert!((row.sd.unwrap().powi(2) - variance).abs() < 1e-9 * second, "{what}");
            assert_eq!(row.max, u64::from(upto).into(), "{what}");
            let Some(distribution) = &distributions[at] else {
                panic!("{what}: no distribution")
            };
            let quantile = |share: f64| {
                (1..=upto)
                    .find(|count| *count == upto || 1.0 - q.powi(i32::try_from(*count).unwrap()) >= share - 1e-12)
                    .map(u64::from)
            };
            for share in [0.5, 0.9, 0.99] {
                assert_eq!(distribution.quantile(share), quantile(share), "{what}, {share}");
            }
            if let Some(counts) = distribution.counts() {
                for (count, chance) in counts {
                    let before = q.powi(i32::try_from(count - 1).unwrap());
                    let alone = if count == u64::from(upto) {
                        before
                    } else {
                        before * (1.0 - q)
                    };
                    assert!(
                        (chance - alone).abs() < 1e-14,
                        "{what}: {count} has {chance}, not {alone}"
                    );
                }
            }
        }
    }
}

/// First and second moments of a count, given how what causes it ends.
#[derive(Clone, Copy, Default)]
struct Given {
    chance: f64,
    first: f64,
    second: f64,
}

/// Moments given the end, over the loop of one caller after the other, with failures of their own in the middle.
/// `own[i]` is the chance that service i fails by itself before it calls down.
fn middle(attempts: &[u32], own: &[f64], target: usize) -> (f64, f64, f64) {
    let last = own.len() - 1;
    let (mut ok, mut retryable) = (Given::default(), Given::default());
    for hop in (0..own.len()).rev() {
        // The attempt at this hop.
        let o = own[hop];
        let (below_ok, below_failed) = (ok, retryable);
        if hop == last {
            ok = Given {
                chance: 1.0 - o,
                ..Given::default()
            };
            retryable = Given {
                chance: o,
                ..Given::default()
            };
        } else {
            ok = Given {
                chance: (1.0 - o) * below_ok.chance,
                ..below_ok
            };
            let chance = o + (1.0 - o) * below_failed.chance;
            let share = if chance > 0.0 {
                (1.0 - o) * below_failed.chance / chance
            } else {
                0.0
            };
            retryable = Given {
                chance,
                first: share * below_failed.first,
                second: share * below_failed.second,
            };
        }
        if hop == target {
            for given in [&mut ok, &mut retryable] {
                given.second += 2.0 * given.first + 1.0;
                given.first += 1.0;
            }
        }
        // The call: j failures and then an answer, or nothing but failures.
        let (s, r) = (ok.chance, retryable.chance);
        let times = |j: f64| {
            let first = j * retryable.first;
            (first, j * retryable.second + j * (j - 1.0) * retryable.first.powi(2))
        };
        let (mut chance, mut first, mut second) = (0.0, 0.0, 0.0);
        for j in 0..attempts[hop] {
            let weight = r.powi(i32::try_from(j).unwrap()) * s;
            let (before, before_second) = times(f64::from(j));
            chance += weight;
            first += weight * (before + ok.first);
            second += weight * (before_second + 2.0 * before * ok.first + ok.second);
        }
        let (all, all_second) = times(f64::from(attempts[hop]));
        ok = Given {
            chance,
            first: if chance > 0.0 { first / chance } else { 0.0 },
            second: if chance > 0.0 { second / chance } else { 0.0 },
        };
        retryable = Given {
            chance: r.powi(i32::try_from(attempts[hop]).unwrap()),
            first: all,
            second: all_second,
        };
    }
    let mean = ok.chance * ok.first + retryable.chance * retryable.first;
    let second = ok.chance * ok.second + retryable.chance * retryable.second;
    (mean, second - mean * mean, retryable.chance)
}

#[test]
fn failures_in_the_middle_follow_the_recursion_over_conditional_moments() {
    // The example that was computed and simulated before.
    let own = [0.1, 0.2, 0.3, 0.6];
    for (at, known) in [1.0, 1.123, 1.387, 2.112].into_iter().enumerate() {
        let (mean, ..) = middle(&[1, 2, 3, 4], &own, at);
        assert!((mean - known).abs() < 5e-4, "{at}: {mean}");
    }
    let (_, variance, _) = middle(&[1, 2, 3, 4], &own, 3);
    assert!((variance - 3.691).abs() < 5e-4, "{variance}");
    let mut random = Random(0x82);
    for _ in 0..3_000 {
        let depth = 1 + random.below(5);
        let attempts: Vec<u32> = (0..depth)
            .map(|_| 1 + u32::try_from(random.below(5)).unwrap())
            .collect();
        let own: Vec<f64> = (0..depth)
            .map(|_| random.pick(&[0.0, 0.1, 0.2, 0.3, 0.6, 0.9]))
            .collect();
        let mut topology = chain(&attempts);
        for (service, p) in topology.services.iter_mut().zip(&own) {
            service.fault = fail(Fail { p: Some(*p), ..DOWN });
        }
        let told = predict(&topology, Draws::Forecast);
        for (at, service) in told.services.iter().enumerate() {
            let (mean, variance, fails) = middle(&attempts, &own, at);
            let what = format!("{attempts:?} {own:?} at {at}");
            close(service.received.mean.unwrap(), mean, &what);
            assert!(
                (service.received.sd.unwrap().powi(2) - variance).abs() < 1e-8 * (1.0 + mean * mean),
                "{what}: {:?} for {variance}",
                service.received
            );
            assert!((told.per_request.still_fails.unwrap() - fails).abs() < 1e-12, "{what}");
        }
    }
}

#[test]
fn a_share_keeps_how_the_bottom_fails_and_takes_away_what_limits_it() {
    let after = fail(Fail {
        after: true,
        first: Some(2),
        ..DOWN
    });
    let shared = failing_share(&with_bottom(&[1, 3], after), 0.25);
    let bottom = shared.services[1].fault;
    assert_eq!((bottom.when.p, bottom.when.first), (Some(0.25), None));
    assert!(matches!(bottom.kind, Kind::Fail(fail) if fail.after));
    for fault in [Fault::NONE, REFUSE, "hang".parse().unwrap()] {
        let shared = failing_share(&with_bottom(&[1, 3], fault), 1.0);
        assert_eq!(worst(&shared), 3.into());
        assert!(matches!(shared.services[1].fault.kind, Kind::Fail(_)));
    }
}

#[test]
fn twenty_six_digits_are_counted_and_far_tails_are_dropped_and_not_invented() {
    let mut deep = with_proxies(12, 11, 11, Layer::Proxy, Fault::DOWN);
    deep.callers[0].attempts = 11;
    let exactly = 11_u128.pow(25);
    assert_eq!(worst(&deep), Count::Of(exactly));
    let flaky = failing_share(&deep, 0.5);
    let bottom = distributions(&flaky).pop().unwrap().unwrap();
    assert_eq!((bottom.quantile(0.5), bottom.quantile(0.99)), (Some(1), Some(7)));
    // Half of all requests need more than ten thousand arrivals.
    let bottom = distributions(&failing_share(&deep, 0.9999)).pop().unwrap().unwrap();
    assert!(bottom.counts().is_none());
    assert_eq!((bottom.quantile(0.05), bottom.quantile(0.5)), (Some(513), None));
}

#[test]
fn an_outage_is_of_the_bottom_alone() {
    let mut ill = chain(&[1, 3, 3]);
    ill.services[1].fault = Fault::DOWN;
    ill.callers[2].client_fault = Some(model::fault::ClientFault {
        fault: Fault::DOWN,
        inside: true,
    });
    assert_eq!(worst(&failing_share(&ill, 1.0)), Count::ZERO);
    let out = outage(&ill, 1.0);
    assert_eq!(worst(&out), 9.into());
    // All of its calls is no matter of chance.
    assert_eq!(out.services[2].fault, Fault::DOWN);
    assert_eq!(outage(&ill, 0.5).services[2].fault.when.p, Some(0.5));
}

#[test]
fn calls_of_services_are_no_retries() {
    let mut fan = chain(&[1, 3, 2]);
    (fan.services[0].calls, fan.services[1].calls) = (2, 5);
    for fan_out in [FanOut::Parallel, FanOut::Sequence] {
        fan.services[0].fan_out = fan_out;
        assert_eq!(without_retries(&fan), 10.into());
    }
    assert_eq!(without_retries(&chain(&[3, 3])), Count::ONE);
}

#[test]
fn calls_in_sequence_cost_most_where_some_of_them_are_answered() {
    let mut fan = chain(&[1, 3]);
    fan.services[0].calls = 3;
    let mean = |share: f64| one_request(&failing_share(&fan, share)).mean.unwrap();
    close(mean(1.0), 3.0, "the first of three calls, three times");
    // Each call ends well with 1 - p^3, and takes (1 - p^3) / (1 - p) attempts.
    let by_hand = |p: f64| {
        let ends_well: f64 = 1.0 - p.powi(3);
        (1.0 + ends_well + ends_well * ends_well) * ends_well / (1.0 - p)
    };
    for share in [0.1, 0.5, 0.9] {
        close(mean(share), by_hand(share), "by hand");
    }
    assert!(mean(0.5) > mean(1.0));
}

#[test]
fn formula_and_ceiling_know_calls_that_multiply_from_calls_that_end_at_the_first_failure() {
    let mut fan = with_bottom(&[1, 3, 2], Fault::DOWN);
    fan.services[0].calls = 4;
    assert_eq!((worst(&fan), formula(&fan).as_str()), (6.into(), "3 x 2"));
    close(ceiling(&fan, 20.0).bottom, 1.44, "in sequence");
    fan.services[0].fan_out = FanOut::Parallel;
    assert_eq!((worst(&fan), formula(&fan).as_str()), (24.into(), "4 calls x 3 x 2"));
    close(ceiling(&fan, 20.0).bottom, 4.0 * 1.44, "in parallel");
}

#[test]
fn what_only_leaves_its_caller_is_told_from_what_arrives() {
    assert!(is_only_sent(&with_bottom(&[1, 3, 3], REFUSE)));
    assert!(!is_only_sent(&with_bottom(&[1, 3, 3], Fault::DOWN)));
    // Nobody calls the bottom at all.
    let mut above = chain(&[1, 3, 3]);
    above.services[1].fault = Fault::DOWN;
    assert!(!is_only_sent(&above));
    let mut client = chain(&[1, 3, 3]);
    client.callers[2].client_fault = Some(model::fault::ClientFault {
        fault: Fault::DOWN,
        inside: true,
    });
    assert!(is_only_sent(&client));
}

#[test]
fn one_request_may_spend_what_others_have_paid_into_a_budget() {
    let mut paid = with_bottom(&[1, 3, 3], Fault::DOWN);
    for caller in &mut paid.callers {
        caller.policy.budget = Some(Budget::Window {
            ratio_milli: 200,
            reserve_milli: 0,
            ttl_us: 10_000_000,
        });
    }
    (paid.load.requests, paid.load.concurrency) = (100, 100);
    let crowd = predict(&paid, Draws::Forecast);
    assert_eq!(crowd.services[2].received.max, 144.into());
    assert_eq!(crowd.per_request.worst, 9.into());
    assert!(paid.is_limited() && !chain(&[1, 3]).is_limited());
}

#[test]
fn a_chance_of_nothing_has_no_sign() {
    let chance = one_request(&chain(&[1, 3])).still_fails.unwrap();
    assert!(chance == 0.0 && chance.is_sign_positive());
}
