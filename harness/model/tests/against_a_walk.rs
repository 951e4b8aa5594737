//! The model against a walk of every arrival, over random chains.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use model::{Draws, fault, predict};
use support::{Ask, Random, assert_exact, random_clockwork, random_topology, walk_with_documented_draws};

const ANYTHING: Ask = Ask {
    depth: 4,
    attempts: 5,
    requests: 4,
    chances: false,
    firsts: true,
    per_process: true,
    layers: 0,
    calls: 1,
};

#[test]
fn twenty_thousand_chains_without_chance_agree() {
    let mut random = Random(0x1D_C0DE);
    for _ in 0..20_000 {
        let topology = random_topology(&mut random, ANYTHING);
        assert_exact(&topology, &walk_with_documented_draws(&topology));
        let prediction = predict(&topology, Draws::Forecast);
        for service in &prediction.services {
            assert_eq!(service.received.sd, Some(0.0));
            assert_eq!(service.received.mean, service.received.min.as_f64());
        }
    }
}

#[test]
fn twenty_thousand_replays_agree() {
    let mut random = Random(0x00BA_DD1E);
    let mut walked = 0;
    while walked < 20_000 {
        let topology = random_topology(
            &mut random,
            Ask {
                chances: true,
                ..ANYTHING
            },
        );
        // The moments of chance and a long first together have tests of their own, and take longer.
        let long = |fault: &model::Fault| fault.when.first.is_some_and(|first| first > 3);
        if topology.services.iter().any(|service| long(&service.fault)) {
            continue;
        }
        assert_exact(&topology, &walk_with_documented_draws(&topology));
        walked += 1;
    }
}

#[test]
fn requests_at_once_are_exact_where_they_do_not_meet() {
    let mut random = Random(0x7EA);
    for _ in 0..2_000 {
        let mut topology = random_topology(
            &mut random,
            Ask {
                chances: true,
                firsts: false,
                per_process: false,
                layers: 50,
                ..ANYTHING
            },
        );
        topology.load.concurrency = 16;
        // What cuts a connection cuts those of others.
        let cuts = |service: &model::Service| {
            matches!(
                service.fault.kind,
                fault::Kind::Cut(fault::Cut::Connection | fault::Cut::GoAway)
            )
        };
        if topology.services.iter().any(cuts) {
            continue;
        }
        assert_exact(&topology, &walk_with_documented_draws(&topology));
    }
}

#[test]
fn many_requests_agree() {
    let mut random = Random(0xFEED);
    for _ in 0..300 {
        let topology = random_topology(
            &mut random,
            Ask {
                requests: 120,
                attempts: 3,
                ..ANYTHING
            },
        );
        assert_exact(&topology, &walk_with_documented_draws(&topology));
    }
}

const LAYERED: Ask = Ask {
    depth: 6,
    attempts: 3,
    requests: 3,
    chances: false,
    firsts: true,
    per_process: true,
    layers: 50,
    calls: 1,
};

#[test]
fn twenty_thousand_chains_of_proxies_agree() {
    let mut random = Random(0x9_0C51E5);
    for _ in 0..20_000 {
        let topology = random_topology(&mut random, LAYERED);
        assert_exact(&topology, &walk_with_documented_draws(&topology));
    }
}

#[test]
fn ten_thousand_replays_through_proxies_agree() {
    let mut random = Random(0x0E_170E);
    for _ in 0..10_000 {
        let ask = Ask {
            chances: true,
            firsts: random.chance(30),
            ..LAYERED
        };
        let topology = random_topology(&mut random, ask);
        assert_exact(&topology, &walk_with_documented_draws(&topology));
    }
}

#[test]
fn the_clock_agrees_on_six_thousand_chains_of_proxies() {
    let mut random = Random(0x71_C70C);
    for round in 0..6_000 {
        let ask = Ask {
            chances: round % 2 == 0,
            ..LAYERED
        };
        let mut topology = random_topology(&mut random, ask);
        random_clockwork(&mut topology, &mut random, ask);
        assert_exact(&topology, &walk_with_documented_draws(&topology));
    }
}
