//! Mean, deviation, extremes and the chance of final failure against every way the draws can fall.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use model::{Code, Count, Distribution, Draws, Fault, Kind, Predicted, Topology, distributions, predict};
use std::collections::BTreeMap;
use support::{Ask, Counted, Random, Walk, random_topology};

/// Every way the draws of a run can fall, with its chance; `None` if there are more than `limit`.
fn enumerate(topology: &Topology, limit: usize) -> Option<Vec<(f64, Counted)>> {
    let mut ways = Vec::new();
    let mut script: Vec<bool> = Vec::new();
    loop {
        let (mut position, mut chance) = (0, 1.0);
        let drawn = |_: u64, _: &[u32], _: u64, p: f64| {
            if p <= 0.0 || p >= 1.0 {
                return p >= 1.0;
            }
            if position == script.len() {
                script.push(false);
            }
            position += 1;
            chance *= if script[position - 1] { p } else { 1.0 - p };
            script[position - 1]
        };
        let counted = Walk::new(topology, drawn).all();
        ways.push((chance, counted));
        if ways.len() > limit {
            return None;
        }
        while script.pop_if(|came| *came).is_some() {}
        match script.last_mut() {
            Some(last) => *last = true,
            None => return Some(ways),
        }
    }
}

fn assert_agrees(
    predicted: &Predicted,
    ways: &[(f64, Counted)],
    count: impl Fn(&Counted) -> u64,
    what: &str,
    of: &Topology,
) {
    let mean: f64 = ways.iter().map(|(chance, way)| chance * count(way) as f64).sum();
    let variance: f64 = ways
        .iter()
        .map(|(chance, way)| chance * (count(way) as f64 - mean).powi(2))
        .sum();
    let close = |one: f64, two: f64| (one - two).abs() < 1e-9 * two.max(1.0);
    assert!(
        close(predicted.mean.unwrap(), mean),
        "{what}: {predicted:?}, mean {mean}, {of:#?}"
    );
    assert!(
        close(predicted.sd.unwrap().powi(2), variance),
        "{what}: {predicted:?}, variance {variance}, {of:#?}"
    );
    let counts = || ways.iter().map(|(_, way)| Count::from(count(way)));
    assert_eq!(Some(predicted.min), counts().min(), "{what}: {of:#?}");
    assert_eq!(Some(predicted.max), counts().max(), "{what}: {of:#?}");
}

/// Each count of one request as often as the ways say, and the quantiles with it.
fn assert_distributed(distribution: &Distribution, ways: &[(f64, Counted)], number: usize, of: &Topology) {
    let mut expected = BTreeMap::<u64, f64>::new();
    for (chance, way) in ways {
        *expected.entry(way.received[number]).or_default() += chance;
    }
    expected.retain(|_, chance| *chance >= 1e-15);
    let counts: BTreeMap<u64, f64> = distribution.counts().unwrap().collect();
    let keys = |counts: &BTreeMap<u64, f64>| counts.keys().copied().collect::<Vec<_>>();
    assert_eq!(keys(&counts), keys(&expected), "{of:#?}");
    let mut sum = 0.0;
    for (count, chance) in &expected {
        assert!(
            (counts[count] - chance).abs() < 1e-12,
            "{count}: {counts:?} {expected:?} {of:#?}"
        );
        if *chance > 1e-9 {
            assert_eq!(distribution.quantile(sum + chance / 2.0), Some(*count), "{of:#?}");
        }
        sum += chance;
    }
}

fn against_every_way(seed: u64, ask: Ask, chains: usize) {
    let mut random = Random(seed);
    let (mut compared, mut distributed) = (0, 0);
    while compared < chains {
        let topology = random_topology(&mut random, ask);
        let drawn = |fault: &Fault| fault.when.p.is_some_and(|p| p > 0.0 && p < 1.0);
        if !topology.services.iter().any(|service| drawn(&service.fault)) {
            continue;
        }
        let Some(ways) = enumerate(&topology, 3_000) else {
            continue;
        };
        let prediction = predict(&topology, Draws::Forecast);
        if prediction.services[0].received.kind == Kind::Exact {
            // The only chance stood behind a `first=0`.
            continue;
        }
        for (number, service) in prediction.services.iter().enumerate() {
            assert_agrees(
                &service.received,
                &ways,
                |way| way.received[number],
                "received",
                &topology,
            );
            assert_agrees(
                &service.work_done,
                &ways,
                |way| way.work_done[number],
                "work done",
                &topology,
            );
            let link = &prediction.links[number];
            assert_agrees(&link.calls, &ways, |way| way.calls[number], "calls", &topology);
            assert_agrees(&link.sent, &ways, |way| way.sent[number], "sent", &topology);
        }
        let ended = |way: &Counted, code| way.ended.get(&code).copied().unwrap_or(0);
        assert_agrees(&prediction.ok, &ways, |way| ended(way, Code::OK), "ok", &topology);
        for (code, predicted) in &prediction.failed_by_code {
            assert_agrees(predicted, &ways, |way| ended(way, *code), "failed", &topology);
        }
        let requests = topology.load.requests as f64;
        let fails: f64 = ways
            .iter()
            .map(|(chance, way)| chance * (requests - ended(way, Code::OK) as f64))
            .sum();
        assert!((prediction.per_request.still_fails.unwrap() - fails / requests).abs() < 1e-9);
        for (number, distribution) in distributions(&topology).iter().enumerate() {
            match distribution {
                Some(distribution) if topology.load.requests == 1 => {
                    assert_distributed(distribution, &ways, number, &topology);
                    distributed += 1;
                }
                Some(_) => {}
                // A `first` that can run out is part of the state.
                None => assert!(ask.firsts, "{topology:#?}"),
            }
        }
        let all = |way: &Counted| way.received.iter().sum::<u64>();
        if topology.load.requests == 1 {
            assert_eq!(
                prediction.per_request.mean,
                prediction.services.last().unwrap().received.mean
            );
            let worst = ways.iter().map(|(_, way)| Count::from(all(way))).max();
            assert_eq!(Some(prediction.per_request.arrivals_worst), worst, "{topology:#?}");
            assert_eq!(
                prediction.per_request.worst,
                prediction.services.last().unwrap().received.max
            );
        }
        compared += 1;
    }
    assert!(ask.firsts || distributed > chains, "only {distributed}");
}

const SMALL: Ask = Ask {
    depth: 3,
    attempts: 3,
    requests: 2,
    chances: true,
    firsts: false,
    per_process: false,
    layers: 0,
};

#[test]
fn chances_alone() {
    against_every_way(0xACE, SMALL, 1_500);
}

#[test]
fn chances_and_firsts_together() {
    against_every_way(
        0xFACE,
        Ask {
            firsts: true,
            requests: 1,
            ..SMALL
        },
        1_500,
    );
}

#[test]
fn chances_and_firsts_of_the_process() {
    against_every_way(
        0xFADE,
        Ask {
            firsts: true,
            per_process: true,
            requests: 3,
            ..SMALL
        },
        1_000,
    );
}

#[test]
fn chances_below_proxies() {
    let ask = Ask {
        depth: 5,
        attempts: 2,
        requests: 1,
        layers: 50,
        ..SMALL
    };
    against_every_way(0x9_0C51, ask, 1_500);
    against_every_way(0x9_0C52, Ask { firsts: true, ..ask }, 500);
}
