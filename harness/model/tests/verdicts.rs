//! The verdict never lies: damage of any kind, on any row, is never as predicted.
#![allow(clippy::unwrap_used, reason = "a panic in a test is the failure")]

mod support;

use model::verdict::{Disturbance, Judgement, Observation, Observed, ObservedLink, Reason, Verdict, judge};
use model::{Code, Count, Draws, Fault, Layer, Prediction, Topology, predict};
use std::collections::BTreeMap;
use support::{
    Ask, Counted, DOWN, Fail, REFUSE, Random, fail, headline, random_topology, walk_with_documented_draws,
    walk_with_undeclared, with_bottom,
};

/// What an undisturbed run of this chain shows.
fn whole(topology: &Topology, counted: &Counted) -> Observation {
    let service = |(number, service): (usize, &model::Service)| {
        // An Envoy makes no spans.
        let is_traced = (topology.callers.get(number + 1)).is_none_or(|caller| caller.layer != Layer::Envoy);
        let received = counted.received[number];
        Observed {
            name: service.name.clone(),
            received: Some(received),
            foreign: 0,
            traced: is_traced.then_some(received),
            spans_made: is_traced.then_some(received * 3),
            spans_collected: is_traced.then_some(received * 3),
            in_flight: 0,
            unanswered: 0,
            is_traced,
        }
    };
    let link = |(number, caller): (usize, &model::Caller)| ObservedLink {
        from: caller.name.clone(),
        to: topology.services[number].name.clone(),
        sent: Some(counted.sent[number]),
        received: Some(counted.received[number]),
        transport_failures: if topology.services[number].fault == REFUSE {
            counted.sent[number]
        } else {
            0
        },
        out_of_time: 0,
    };
    let mut failed_by_code = counted.ended.clone();
    let ok = failed_by_code.remove(&Code::OK).unwrap_or(0);
    Observation {
        services: topology.services.iter().enumerate().map(service).collect(),
        links: topology.callers.iter().enumerate().map(link).collect(),
        requests_sent: topology.load.requests,
        requests_ended: topology.load.requests,
        ok,
        failed_by_code,
        disturbances: Vec::new(),
        latest: None,
    }
}

fn down() -> (Prediction, Observation) {
    let topology = headline(fail(DOWN));
    (
        predict(&topology, Draws::Replay),
        whole(&topology, &walk_with_documented_draws(&topology)),
    )
}

fn kinds(judgement: &Judgement) -> Vec<&'static str> {
    judgement.reasons.iter().map(model::verdict::Reason::kind).collect()
}

/// Multiplies what arrives at the bottom as an undeclared layer would.
fn multiply_bottom(observation: &mut Observation, factor: u64) {
    let service = observation.services.last_mut().unwrap();
    for count in [
        &mut service.received,
        &mut service.traced,
        &mut service.spans_made,
        &mut service.spans_collected,
    ] {
        *count = count.map(|count| count * factor);
    }
    let link = observation.links.last_mut().unwrap();
    link.received = link.received.map(|count| count * factor);
}

fn every_disturbance() -> Vec<Disturbance> {
    let service = || "s2".to_owned();
    vec![
        Disturbance::ProcessDied {
            service: service(),
            how: "signal 9".to_owned(),
        },
        Disturbance::ProcessStopped {
            service: service(),
            pid: 17,
        },
        Disturbance::Unreachable {
            service: service(),
            what: "its counts".to_owned(),
        },
        Disturbance::TotalsWentBack {
            service: service(),
            from: 9,
            to: 1,
        },
        Disturbance::TransportErrors {
            from: "s1".to_owned(),
            to: service(),
            count: 1,
        },
        Disturbance::DuplicateSpans {
            service: service(),
            count: 1,
        },
        Disturbance::ConflictingSpans {
            service: service(),
            count: 2,
        },
        Disturbance::OrphanSpans {
            service: service(),
            count: 1,
        },
        Disturbance::NotSent { count: 1 },
        Disturbance::Unfinished { count: 1 },
        Disturbance::Interrupted,
        Disturbance::Mixed { count: 1 },
        Disturbance::RejectedByTransport {
            service: service(),
            count: 1,
        },
        Disturbance::NotSettled {
            service: service(),
            in_flight: 1,
        },
        Disturbance::DeadlinePassed {
            count: 1,
            place: "s1 > s2".to_owned(),
        },
        Disturbance::Unanswered {
            service: service(),
            count: 1,
        },
        Disturbance::FlushFailed {
            service: service(),
            error: "timed out".to_owned(),
        },
    ]
}

#[test]
fn a_whole_run_is_as_predicted_without_a_reason() {
    for fault in [Fault::NONE, fail(DOWN), REFUSE, fail(Fail { p: Some(0.5), ..DOWN })] {
        let mut topology = headline(fault);
        topology.load.requests = 7;
        let observation = whole(&topology, &walk_with_documented_draws(&topology));
        let judgement = judge(&predict(&topology, Draws::Replay), &observation);
        assert_eq!(
            judgement,
            Judgement {
                verdict: Verdict::AsPredicted,
                reasons: Vec::new()
            }
        );
    }
}

#[test]
fn each_disturbance_alone_is_incomplete_and_says_so() {
    for disturbance in every_disturbance() {
        let (prediction, mut observation) = down();
        let kind = disturbance.kind();
        observation.disturbances.push(disturbance);
        let judgement = judge(&prediction, &observation);
        assert_eq!(
            (judgement.verdict, kinds(&judgement)),
            (Verdict::Incomplete, vec![kind])
        );
    }
}

#[test]
fn each_disturbance_with_a_lower_count_stays_incomplete() {
    for disturbance in every_disturbance() {
        let (prediction, mut observation) = down();
        observation.disturbances.push(disturbance);
        observation.services[3].received = Some(20);
        observation.links[3].received = Some(20);
        assert_eq!(judge(&prediction, &observation).verdict, Verdict::Incomplete);
    }
}

#[test]
fn a_layer_nobody_declared_is_found_whatever_else_is_missing() {
    for disturbance in every_disturbance() {
        let (prediction, mut observation) = down();
        multiply_bottom(&mut observation, 4);
        observation.services[0].traced = None;
        observation.disturbances.push(disturbance);
        let judgement = judge(&prediction, &observation);
        assert_eq!(judgement.verdict, Verdict::NotAsPredicted);
        assert_eq!(judgement.reasons[0].kind(), "link_surplus");
        let text = judgement.reasons[0].to_string();
        assert!(
            text.starts_with("On s3 > s4, 27 attempts were sent and 108 received, 4 times as many"),
            "{text}"
        );
        assert!(kinds(&judgement).contains(&"count_missing"));
    }
}

#[test]
fn a_stranger_is_told_from_a_layer_and_never_fills_the_place_of_a_lost_call() {
    let (prediction, whole) = down();
    for lost in [false, true] {
        let mut observation = whole.clone();
        let more = |count: &mut Option<u64>| *count = count.map(|count| count + u64::from(!lost));
        let bottom = observation.services.last_mut().unwrap();
        bottom.foreign = 1;
        more(&mut bottom.received);
        more(&mut bottom.traced);
        more(&mut observation.links.last_mut().unwrap().received);
        let judgement = judge(&prediction, &observation);
        assert_eq!(judgement.verdict, Verdict::NotAsPredicted);
        assert_eq!(kinds(&judgement)[0], "strangers");
        assert!(!kinds(&judgement).contains(&"link_surplus"));
    }
}

#[test]
fn a_sender_whose_count_is_not_sound_proves_nothing() {
    for disturbance in every_disturbance().into_iter().take(4) {
        let (prediction, mut observation) = down();
        // s2 sends to s3: of its nine attempts only two are still known.
        observation.links[2].sent = Some(2);
        observation.disturbances.push(disturbance);
        assert_eq!(judge(&prediction, &observation).verdict, Verdict::Incomplete);
    }
}

#[test]
fn too_much_is_certain_when_only_evidence_was_lost_and_uncertain_when_retries_were_provoked() {
    for disturbance in every_disturbance() {
        let (prediction, mut observation) = down();
        multiply_bottom(&mut observation, 2);
        observation.links[3].sent = observation.links[3].received;
        let only_loses = matches!(
            disturbance.kind(),
            "duplicate_spans" | "conflicting_spans" | "orphan_spans" | "not_settled" | "flush_failed"
        );
        observation.disturbances.push(disturbance);
        let judgement = judge(&prediction, &observation);
        let expected = if only_loses {
            Verdict::NotAsPredicted
        } else {
            Verdict::Incomplete
        };
        assert_eq!(judgement.verdict, expected, "{:?}", kinds(&judgement));
        if only_loses {
            assert_eq!(kinds(&judgement)[..2], ["sent_surplus", "surplus"]);
        }
    }
}

#[test]
fn missing_spans_leave_no_verdict() {
    let (prediction, mut observation) = down();
    observation.services[3].traced = Some(24);
    observation.services[3].spans_collected = Some(78);
    let judgement = judge(&prediction, &observation);
    assert_eq!(judgement.verdict, Verdict::Incomplete);
    assert_eq!(kinds(&judgement), ["missing_spans", "missing_spans"]);
    assert_eq!(
        judgement.reasons[0].to_string(),
        "At s4, 27 attempts were received and 24 traced."
    );

    observation.services[3].is_traced = false;
    assert_eq!(judge(&prediction, &observation).verdict, Verdict::AsPredicted);
}

#[test]
fn too_little_with_whole_evidence_names_the_first_link_that_parts() {
    let topology = headline(fail(Fail { code: Code(5), ..DOWN }));
    let counted = walk_with_documented_draws(&topology);
    let (prediction, _) = down();
    let mut observation = whole(&topology, &counted);
    observation.failed_by_code = BTreeMap::from([(Code::UNAVAILABLE, 1)]);
    let judgement = judge(&prediction, &observation);
    assert_eq!(judgement.verdict, Verdict::NotAsPredicted);
    assert_eq!(
        judgement.reasons[0].to_string(),
        "On s1 > s2, only 1 attempt was sent; 3 were predicted."
    );
}

#[test]
fn what_was_sent_and_never_arrived_is_found_even_inside_bounds() {
    let mut topology = headline(fail(Fail {
        first: Some(12),
        per_process: true,
        ..DOWN
    }));
    topology.load.requests = 4;
    let observation = whole(&topology, &walk_with_documented_draws(&topology));
    topology.load.concurrency = 4;
    let mut prediction = predict(&topology, Draws::Replay);
    assert_eq!(judge(&prediction, &observation).verdict, Verdict::AsPredicted);
    prediction.services[3].received.min = Count::ZERO;
    let mut lost = observation.clone();
    let bottom = &mut lost.services[3];
    for count in [&mut bottom.received, &mut bottom.traced, &mut lost.links[3].received] {
        *count = count.map(|count| count - 1);
    }
    let judgement = judge(&prediction, &lost);
    assert_eq!(
        (judgement.verdict, kinds(&judgement)),
        (Verdict::NotAsPredicted, vec!["link_deficit"])
    );
}

#[test]
fn another_outcome_is_not_as_predicted() {
    let (prediction, mut observation) = down();
    observation.ok = 1;
    observation.failed_by_code.clear();
    let judgement = judge(&prediction, &observation);
    assert_eq!(
        (judgement.verdict, kinds(&judgement)),
        (Verdict::NotAsPredicted, vec!["outcome", "outcome"])
    );
    observation.ok = 0;
    observation.failed_by_code.insert(Code::INVALID_ARGUMENT, 1);
    assert_eq!(judge(&prediction, &observation).verdict, Verdict::NotAsPredicted);
}

#[test]
fn more_requests_than_planned_leave_no_verdict() {
    let mut topology = headline(fail(DOWN));
    let (prediction, _) = down();
    topology.load.requests = 2;
    let judgement = judge(&prediction, &whole(&topology, &walk_with_documented_draws(&topology)));
    assert_eq!(
        (judgement.verdict, kinds(&judgement)),
        (Verdict::Incomplete, vec!["requests_sent"])
    );
}

/// One field of an observation made different, whichever it is.
fn damage(observation: &mut Observation, random: &mut Random) {
    let row = usize::try_from(random.below(observation.services.len() as u64)).unwrap();
    let other = |count: Option<u64>, random: &mut Random| match random.below(3) {
        0 => None,
        1 => Some(count.unwrap_or(0) + 1 + random.below(5)),
        _ => count.and_then(|count| count.checked_sub(1 + random.below(count.max(1)))),
    };
    let service = &mut observation.services[row];
    let link = &mut observation.links[row];
    match random.below(16) {
        0 => service.received = other(service.received, random),
        1 => service.traced = other(service.traced, random),
        2 => service.spans_made = other(service.spans_made, random),
        3 => service.spans_collected = other(service.spans_collected, random),
        4 => service.in_flight += 1,
        5 => link.sent = other(link.sent, random),
        6 => link.received = other(link.received, random),
        7 => observation.requests_sent += 1,
        8 => observation.requests_ended += 1,
        9 => observation.ok += 1,
        10 => *observation.failed_by_code.entry(Code(13)).or_default() += 1,
        11 => drop(observation.services.remove(row)),
        12 => drop(observation.links.remove(row)),
        13 => observation.services.push(Observed {
            name: "stranger".to_owned(),
            ..Observed::default()
        }),
        14 => {
            let twice = observation.links[row].clone();
            observation.links.push(twice);
        }
        _ => observation.disturbances.push(every_disturbance().swap_remove(row)),
    }
}

#[test]
fn no_damage_whatever_is_as_predicted() {
    let mut random = Random(0xDA_4A6E);
    for round in 0..20_000 {
        let fault = match round % 4 {
            0 => Fault::NONE,
            1 => REFUSE,
            2 => fail(DOWN),
            _ => fail(Fail {
                p: Some(0.4),
                first: Some(3),
                ..DOWN
            }),
        };
        let mut topology = headline(fault);
        topology.load.requests = 1 + random.below(3);
        let prediction = predict(&topology, Draws::Replay);
        let mut observation = whole(&topology, &walk_with_documented_draws(&topology));
        damage(&mut observation, &mut random);
        let judgement = judge(&prediction, &observation);
        assert_ne!(judgement.verdict, Verdict::AsPredicted, "{observation:#?}");
        assert!(!judgement.reasons.is_empty());
    }
}

#[test]
fn reasons_are_sentences_in_the_words_of_the_house() {
    let (prediction, whole) = down();
    let mut random = Random(0x5EED);
    for _ in 0..5_000 {
        let mut observation = whole.clone();
        observation.disturbances = every_disturbance();
        for _ in 0..4 {
            if !observation.links.is_empty() && observation.links.len() == observation.services.len() {
                damage(&mut observation, &mut random);
            }
        }
        for reason in judge(&prediction, &observation).reasons {
            let text = reason.to_string();
            assert!(
                text.starts_with(|first: char| first.is_uppercase()) && text.ends_with('.'),
                "{text}"
            );
            assert!(
                !text.contains("operation") && !text.contains("ledger") && !text.contains("  "),
                "{text}"
            );
            assert!(
                reason
                    .kind()
                    .chars()
                    .all(|letter| letter.is_ascii_lowercase() || letter == '_')
            );
        }
    }
}

/// A service of 100 ms that is called until the deadline: the counts hold for 35 ms.
fn timed() -> (Prediction, Observation) {
    let mut topology = support::with_bottom(&[1, 10], "delay:ms=100+fail".parse().unwrap());
    topology.load.deadline_us = Some(360_000);
    let prediction = predict(&topology, Draws::Replay);
    let counted = Counted {
        calls: vec![1, 1],
        sent: vec![1, 4],
        received: vec![1, 4],
        work_done: vec![0, 0],
        ended: BTreeMap::from([(Code::DEADLINE_EXCEEDED, 1)]),
    };
    let mut observation = whole(&topology, &counted);
    observation.links[1].out_of_time = 1;
    observation.services[1].unanswered = 1;
    (prediction, observation)
}

#[test]
fn a_predicted_deadline_is_no_disturbance_and_one_more_is() {
    let (prediction, mut observation) = timed();
    assert_eq!(judge(&prediction, &observation).verdict, Verdict::AsPredicted);
    observation.services[0].unanswered = 5;
    let judgement = judge(&prediction, &observation);
    assert_eq!(judgement.verdict, Verdict::Incomplete);
    assert_eq!(
        judgement.reasons[0].to_string(),
        "Arrivals at s1 that ended without an answer, more than were predicted to: 5."
    );
    observation.services[0].unanswered = 0;
    observation.links[0].out_of_time = 2;
    let judgement = judge(&prediction, &observation);
    assert_eq!(
        (judgement.verdict, kinds(&judgement)),
        (Verdict::Incomplete, vec!["deadline_passed"])
    );
}

#[test]
fn a_machine_that_was_late_leaves_no_verdict_on_counts_that_depend_on_time() {
    let (prediction, mut observation) = timed();
    observation.services[1].received = Some(3);
    observation.services[1].traced = Some(3);
    observation.services[1].spans_made = Some(9);
    observation.services[1].spans_collected = Some(9);
    observation.links[1].sent = Some(3);
    observation.links[1].received = Some(3);
    let late = |us| {
        Some(model::verdict::Late {
            process: "s2".to_owned(),
            us,
        })
    };
    observation.latest = late(3_000);
    assert_eq!(judge(&prediction, &observation).verdict, Verdict::NotAsPredicted);
    observation.latest = late(90_000);
    let judgement = judge(&prediction, &observation);
    assert_eq!(judgement.verdict, Verdict::Incomplete);
    assert_eq!(judgement.reasons[0].kind(), "late_clock");
    // Counts that agree agree, however late anybody was.
    let (prediction, mut observation) = timed();
    observation.latest = late(90_000);
    assert_eq!(judge(&prediction, &observation).verdict, Verdict::AsPredicted);
    // Where something was cut off, lateness is why.
    observation.services[0].unanswered = 5;
    assert_eq!(kinds(&judge(&prediction, &observation)), ["late_clock", "unanswered"]);
}

const ANY_CHAIN: Ask = Ask {
    depth: 6,
    attempts: 3,
    requests: 3,
    chances: true,
    firsts: true,
    per_process: true,
    layers: 50,
    calls: 1,
};

/// Takes some spans of some service away, where there are any.
fn lose_spans(observation: &mut Observation, random: &mut Random) {
    for service in &mut observation.services {
        if random.chance(50) {
            service.traced = service.traced.map(|spans| spans.saturating_sub(1 + random.below(3)));
            service.spans_collected = service
                .spans_collected
                .map(|spans| spans.saturating_sub(1 + random.below(3)));
        }
    }
}

/// The links of which a judgement says that more was received than sent.
fn multiplied(judgement: &Judgement) -> Vec<(&str, &str, u64, u64)> {
    let of = |reason| match reason {
        &Reason::LinkSurplus {
            ref from,
            ref to,
            sent,
            received,
        } => Some((from.as_str(), to.as_str(), sent, received)),
        _ => None,
    };
    judgement.reasons.iter().filter_map(of).collect()
}

#[test]
fn a_layer_nobody_declared_is_found_on_any_link_of_a_thousand_chains_that_fail() {
    let mut random = Random(0x1A_7E2);
    for round in 0..1_000 {
        let depth = 1 + random.below(6);
        let attempts: Vec<u32> = (0..depth)
            .map(|_| u32::try_from(1 + random.below(3)).unwrap())
            .collect();
        let mut topology = with_bottom(&attempts, fail(DOWN));
        for caller in topology.callers.iter_mut().skip(1) {
            caller.layer = random.pick(&[Layer::Code, Layer::Proxy, Layer::Envoy]);
        }
        topology.load.requests = 1 + random.below(3);
        let behind = usize::try_from(random.below(depth)).unwrap();
        let factor = 2 + random.below(4);
        let counted = walk_with_undeclared(&topology, behind, u32::try_from(factor).unwrap());
        let prediction = predict(&topology, Draws::Replay);
        let mut observation = whole(&topology, &counted);
        if round % 2 == 1 {
            lose_spans(&mut observation, &mut random);
            observation.disturbances.push(Disturbance::DuplicateSpans {
                service: topology.services[0].name.clone(),
                count: 1,
            });
        }
        let judgement = judge(&prediction, &observation);
        let (from, to) = (&topology.callers[behind].name, &topology.services[behind].name);
        let sent = counted.sent[behind];
        assert_eq!(judgement.verdict, Verdict::NotAsPredicted);
        assert_eq!(
            multiplied(&judgement),
            [(from.as_str(), to.as_str(), sent, sent * factor)]
        );
        // What follows from it further down is said after it.
        assert_eq!(judgement.reasons[0].kind(), "link_surplus");
        let text = judgement.reasons[0].to_string();
        assert!(text.contains(&format!(", {factor} times as many: ")), "{text}");
        let named = |kind| kinds(&judgement).iter().filter(|named| **named == kind).count();
        let below = topology.services.len() - behind;
        assert_eq!((named("surplus"), named("sent_surplus")), (below, below - 1));
    }
}

#[test]
fn a_layer_nobody_declared_is_found_wherever_it_tried_again() {
    let mut random = Random(0x41DE);
    let (mut found, mut idle) = (0, 0);
    while found < 1_000 {
        let topology = random_topology(&mut random, ANY_CHAIN);
        let behind = usize::try_from(random.below(topology.callers.len() as u64)).unwrap();
        let attempts = u32::try_from(2 + random.below(4)).unwrap();
        let counted = walk_with_undeclared(&topology, behind, attempts);
        let mut observation = whole(&topology, &counted);
        let (sent, received) = (counted.sent[behind], counted.received[behind]);
        let answers = topology.services[behind].fault == REFUSE && sent > 0;
        if answers {
            observation.links[behind].transport_failures = 0;
        }
        let lost = random.chance(50);
        if lost {
            lose_spans(&mut observation, &mut random);
        }
        let judgement = judge(&predict(&topology, Draws::Replay), &observation);
        if received <= sent {
            // It passed everything on once, or nothing arrived.
            assert_eq!(multiplied(&judgement), []);
            assert_eq!(kinds(&judgement).contains(&"answered_for"), answers, "{topology:#?}");
            if answers {
                assert_eq!(judgement.verdict, Verdict::NotAsPredicted);
                continue;
            }
            if !lost && counted == walk_with_documented_draws(&topology) {
                assert_eq!(judgement.verdict, Verdict::AsPredicted, "{topology:#?}");
                idle += 1;
            }
            continue;
        }
        let (from, to) = (&topology.callers[behind].name, &topology.services[behind].name);
        assert_eq!(
            multiplied(&judgement),
            [(from.as_str(), to.as_str(), sent, received)],
            "{topology:#?}"
        );
        assert_eq!(
            (judgement.verdict, judgement.reasons[0].kind()),
            (Verdict::NotAsPredicted, "link_surplus")
        );
        found += 1;
    }
    assert!(idle > 300, "{idle}");
}

#[test]
fn no_layer_is_found_in_two_thousand_chains_that_declare_all_of_theirs() {
    let mut random = Random(0x0_1D1E);
    for _ in 0..2_000 {
        let topology = random_topology(&mut random, ANY_CHAIN);
        let prediction = predict(&topology, Draws::Replay);
        let mut observation = whole(&topology, &walk_with_documented_draws(&topology));
        let judgement = judge(&prediction, &observation);
        assert_eq!(
            (judgement.verdict, judgement.reasons),
            (Verdict::AsPredicted, Vec::new()),
            "{topology:#?}"
        );
        lose_spans(&mut observation, &mut random);
        assert_eq!(multiplied(&judge(&prediction, &observation)), []);
    }
}

/// Two callers with two attempts each before a closed port, and something that answers in its place.
fn answered_for() -> (Prediction, Observation) {
    let topology = with_bottom(&[1, 2, 2], REFUSE);
    let mut observation = whole(&topology, &walk_with_documented_draws(&topology));
    observation.links[2].transport_failures = 0;
    (predict(&topology, Draws::Replay), observation)
}

#[test]
fn attempts_at_a_closed_port_of_which_none_is_refused_were_answered_by_something_else() {
    let (prediction, whole) = answered_for();
    let judgement = judge(&prediction, &whole);
    assert_eq!(judgement.verdict, Verdict::NotAsPredicted);
    assert_eq!(kinds(&judgement), ["answered_for"]);
    assert_eq!(
        judgement.reasons[0].to_string(),
        "On s2 > s3, 4 attempts were sent to a closed port and none was refused: something in between answered them."
    );
    // One that was refused got there.
    let mut refused = whole.clone();
    refused.links[2].transport_failures = 1;
    assert_eq!(judge(&prediction, &refused).verdict, Verdict::AsPredicted);
    // Lost spans take nothing from it; whatever may have ended attempts before they got there does.
    for disturbance in every_disturbance() {
        let is_of_spans = disturbance.kind().ends_with("_spans") || disturbance.kind() == "flush_failed";
        let mut disturbed = whole.clone();
        disturbed.services[0].spans_collected = None;
        disturbed.disturbances.push(disturbance);
        let judgement = judge(&prediction, &disturbed);
        let expected = if is_of_spans {
            Verdict::NotAsPredicted
        } else {
            Verdict::Incomplete
        };
        assert_eq!(judgement.verdict, expected, "{:?}", kinds(&judgement));
    }
    let mut going_on = whole.clone();
    going_on.services[1].in_flight = 1;
    assert_eq!(judge(&prediction, &going_on).verdict, Verdict::Incomplete);
}

#[test]
fn attempts_that_may_end_before_they_reach_a_closed_port_convict_nobody() {
    let refuses_all = |change: &dyn Fn(&mut Topology)| {
        let mut topology = with_bottom(&[1, 2, 2], REFUSE);
        change(&mut topology);
        predict(&topology, Draws::Replay).links[2].refuses_all
    };
    assert!(refuses_all(&|_| {}));
    // Nothing waits here, so that a deadline of a second is never met.
    assert!(refuses_all(&|topology| topology.load.deadline_us = Some(1_000_000)));
    assert!(!refuses_all(&|topology| topology.load.deadline_us = Some(0)));
    assert!(!refuses_all(&|topology| topology.load.cancel_after_us = Some(0)));
    let cut = |topology: &mut Topology| topology.services[1].fault = "reset:p=0.5".parse().unwrap();
    assert!(refuses_all(&cut));
    assert!(!refuses_all(&|topology| {
        cut(topology);
        (topology.load.requests, topology.load.concurrency) = (4, 2);
    }));
    let fails_in_the_caller = |inside| {
        refuses_all(&|topology: &mut Topology| {
            topology.callers[2].client_fault = Some(model::fault::ClientFault {
                fault: fail(DOWN),
                inside,
            });
        })
    };
    assert!(!fails_in_the_caller(true));
    // Outside its loop it fails calls, and of a call that it fails nothing is sent.
    assert!(fails_in_the_caller(false));
    assert!(!refuses_all(&|topology| topology.services[2].fault = fail(DOWN)));
}

#[test]
fn a_hidden_layer_behind_a_sender_that_died_is_not_proven_and_behind_any_other_is() {
    let topology = headline(fail(DOWN));
    let prediction = predict(&topology, Draws::Replay);
    for behind in 0..4 {
        for died in 0..4 {
            let mut observation = whole(&topology, &walk_with_undeclared(&topology, behind, 4));
            observation.disturbances.push(Disturbance::ProcessDied {
                service: topology.callers[died].name.clone(),
                how: "signal 9".to_owned(),
            });
            let judgement = judge(&prediction, &observation);
            let expected = if died == behind {
                Verdict::Incomplete
            } else {
                Verdict::NotAsPredicted
            };
            assert_eq!(judgement.verdict, expected, "behind {behind}, {died} died");
        }
    }
}
