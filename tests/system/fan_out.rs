//! Services that call the next one several times, as processes: at each place, in sequence and at once, with everything that
//! can fail beside it.

use crate::{
    hands_on::Up,
    policies::{all_as_predicted, combination},
    support::{Ran, check, run, run_plain, test},
};
use libtest_mimic::{Failed, Trial};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const CALLERS: [&str; 3] = ["frontend", "checkout", "pricing"];

pub fn tests() -> Vec<Trial> {
    let mut tests: Vec<Trial> = FACTS
        .into_iter()
        .map(|(name, arguments, received)| {
            test(&format!("fan_out::{name}"), move || {
                let ran = run(&[&["run"], arguments].concat());
                as_predicted(&ran)?;
                check(ran.services() == received, || format!("{:?}", ran.services()))
            })
        })
        .collect();
    tests.extend([
        test("fan_out::each_of_the_calls_has_its_own_attempts_paths_and_spans", paths),
        test(
            "fan_out::drawn_faults_are_replayed_whatever_the_order_of_arrival",
            drawn,
        ),
        test(
            "fan_out::calls_at_once_that_share_a_first_stay_within_their_bounds",
            shared_first,
        ),
        test("fan_out::a_hidden_layer_behind_several_calls_is_found", hidden),
        test("fan_out::an_item_is_asked_for_by_each_call_and_answered_once", healthy),
        test(
            "fan_out::who_only_forwards_is_refused_by_name_and_predicted",
            forwarders,
        ),
        test("fan_out::a_chain_that_is_up_is_told_how_often_to_call", live),
        test("fan_out::several_hundred_random_combinations", combinations),
    ]);
    tests
}

fn as_predicted(ran: &Ran) -> Result<(), Failed> {
    let reasons = ran.json.as_ref().map(|report| report["reasons"].to_string());
    check(ran.exit == 0, || {
        format!("exit {}: {}{} {reasons:?}", ran.exit, ran.stdout, ran.stderr)
    })
}

/// Arguments of a run and what arrives at each service.
const FACTS: [(&str, &[&str], &[u64]); 13] = [
    (
        "a_dead_service_ends_a_sequence_with_its_first_call",
        &["fan-out"],
        &[1, 3, 9, 27],
    ),
    ("calls_at_once_all_run", &["fan-out-parallel"], &[1, 3, 18, 54]),
    (
        "calls_at_once_at_the_top",
        &[
            "--set",
            "services.frontend.calls=3",
            "--set",
            "services.frontend.fan_out=parallel",
        ],
        &[1, 9, 27, 81],
    ),
    (
        "calls_at_once_at_the_last_caller",
        &[
            "--set",
            "services.pricing.calls=2",
            "--set",
            "services.pricing.fan_out=parallel",
        ],
        &[1, 3, 9, 54],
    ),
    (
        "a_first_in_a_sequence_at_the_top",
        // The first call fails twice at the bottom and is answered there; the second is answered at once.
        &["--set", "services.frontend.calls=2", "--fault", "fail:first=2"],
        &[1, 2, 2, 4],
    ),
    (
        "a_first_in_a_sequence_in_the_middle",
        &["--set", "services.checkout.calls=2", "--fault", "fail:first=2"],
        &[1, 1, 2, 4],
    ),
    (
        "a_first_in_a_sequence_at_the_last_caller",
        &["--set", "services.pricing.calls=2", "--fault", "fail:first=2"],
        &[1, 1, 1, 4],
    ),
    (
        "sequences_at_two_services_and_a_first_at_the_lower",
        &[
            "a x2 > b > c",
            "--set",
            "services.a.calls=3",
            "--fault",
            "b=fail:first=1",
            "--set",
            "services.b.calls=2",
        ],
        &[1, 4, 6],
    ),
    (
        "a_final_code_is_handed_up_once",
        &[
            "--set",
            "services.checkout.calls=4",
            "--set",
            "services.checkout.fan_out=parallel",
            "--fault",
            "fail:code=NOT_FOUND",
        ],
        &[1, 1, 4, 4],
    ),
    (
        "a_translated_failure_of_one_of_several_calls",
        &[
            "--set",
            "services.checkout.calls=2",
            "--set",
            "services.checkout.fan_out=parallel",
            "--set",
            "services.checkout.on_failure=INTERNAL",
        ],
        &[1, 1, 6, 18],
    ),
    (
        "several_calls_through_proxies",
        &[
            "client > web x2*2 > orders x2*2 > db down",
            "--set",
            "services.web.calls=2",
            "--set",
            "services.web.fan_out=parallel",
        ],
        &[1, 8, 32],
    ),
    (
        "several_calls_of_several_services_and_requests_at_once",
        &[
            "--set",
            "services.frontend.calls=2",
            "--set",
            "services.checkout.calls=2",
            "--set",
            "services.pricing.calls=2",
            "--set",
            "services.checkout.fan_out=parallel",
            "--fault",
            "none",
            "-n",
            "40",
            "-c",
            "8",
        ],
        &[40, 80, 160, 320],
    ),
    (
        "a_deadline_ends_a_sequence_between_its_calls",
        // Each call takes 400 ms, the request has a second: the third is cut off.
        &[
            "a > b",
            "--set",
            "services.a.calls=5",
            "--fault",
            "delay:ms=400",
            "--deadline",
            "1s",
        ],
        &[1, 3],
    ),
];

/// The paths of the arrivals at a service in the one receipt of a report.
fn arrived<'a>(report: &'a Value, service: &str) -> Vec<&'a Value> {
    let arrivals = report["receipts"][0]["attempts"].as_array();
    let arrivals = arrivals.into_iter().flatten();
    arrivals.filter(|arrival| arrival["service"] == service).collect()
}

fn paths() -> Result<(), Failed> {
    let ran = run(&["run", "fan-out-parallel", "--attempts", "2", "--owner", "pricing"]);
    as_predicted(&ran)?;
    let report = ran.report()?;
    let paths = |service| -> BTreeSet<_> {
        arrived(report, service)
            .iter()
            .map(|each| each["path"].as_str())
            .collect()
    };
    let parents = |service| -> BTreeSet<_> {
        arrived(report, service)
            .iter()
            .map(|each| each["parent"].as_str())
            .collect()
    };
    let told = |paths: &[&'static str]| -> BTreeSet<_> { paths.iter().copied().map(Some).collect() };
    check(paths("pricing") == told(&["1:1.1.1", "1:1.1.2-1"]), || {
        format!("{:?}", paths("pricing"))
    })?;
    check(parents("pricing") == told(&["1:1.1"]), || {
        format!("{:?}", parents("pricing"))
    })?;
    let bottom = ["1:1.1.1.1", "1:1.1.1.2", "1:1.1.2-1.1", "1:1.1.2-1.2"];
    check(paths("inventory") == told(&bottom), || {
        format!("{:?}", paths("inventory"))
    })?;
    check(parents("inventory") == paths("pricing"), || {
        format!("{:?}", parents("inventory"))
    })?;
    // The client's call, frontend's, checkout's two and one of each pricing.
    let calls: Vec<_> = report["links"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|link| (link["calls"].clone(), link["sent"].clone()))
        .collect();
    let expected = [(1, 1), (1, 1), (2, 2), (2, 4)].map(|(calls, sent)| (json!(calls), json!(sent)));
    check(calls == expected, || format!("{calls:?}"))?;
    let says = "checkout calls pricing 2 times for each call that arrives there, all at once.";
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    check(text.contains(says), || ran.stdout.clone())
}

fn drawn() -> Result<(), Failed> {
    for (at, fan_out) in [
        ("frontend", "parallel"),
        ("checkout", "sequence"),
        ("pricing", "parallel"),
    ] {
        let counts = |concurrency: &str| -> Result<Vec<u64>, Failed> {
            let ran = run(&[
                "run",
                "--set",
                &format!("services.{at}.calls=3"),
                "--set",
                &format!("services.{at}.fan_out={fan_out}"),
                "--fault",
                "fail:p=0.5",
                "--fault",
                "pricing=fail:p=0.2",
                "-n",
                "150",
                "-c",
                concurrency,
                "--attempts",
                "2",
            ]);
            as_predicted(&ran)?;
            let predicted = ran.service("inventory", "predicted");
            check(predicted["kind"] == "exact", || predicted.to_string())?;
            Ok(ran.services())
        };
        let (one, many) = (counts("1")?, counts("12")?);
        check(one == many, || format!("{at}: {one:?} and {many:?}"))?;
    }
    Ok(())
}

fn shared_first() -> Result<(), Failed> {
    for first in 1..=6 {
        for at in CALLERS {
            let ran = run(&[
                "run",
                "--set",
                &format!("services.{at}.calls=2"),
                "--set",
                &format!("services.{at}.fan_out=parallel"),
                "--fault",
                &format!("fail:first={first}"),
                "-n",
                "5",
            ]);
            as_predicted(&ran)?;
        }
    }
    Ok(())
}

fn hidden() -> Result<(), Failed> {
    for fan_out in ["sequence", "parallel"] {
        let ran = run(&[
            "run",
            "--set",
            "services.checkout.calls=2",
            "--set",
            &format!("services.checkout.fan_out={fan_out}"),
            "--undeclared",
            "checkout=4",
            "--fault",
            "fail:code=UNAVAILABLE",
        ]);
        check(ran.exit == 1, || {
            format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
        })?;
        let report = ran.report()?;
        let links = report["links"].as_array();
        let link = links.into_iter().flatten().find(|link| link["to"] == "pricing");
        let factor = link.map(|link| link["factor"].clone());
        check(factor == Some(json!(4.0)), || format!("{factor:?}"))?;
        let says = ["checkout and pricing", "exactly 4 times", "same attempt path"];
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        check(says.iter().all(|says| text.contains(says)), || ran.stdout.clone())?;
    }
    Ok(())
}

fn healthy() -> Result<(), Failed> {
    for at in CALLERS {
        for fan_out in ["sequence", "parallel"] {
            let ran = run(&[
                "run",
                "--fault",
                "none",
                "--set",
                &format!("services.{at}.calls=100"),
                "--set",
                &format!("services.{at}.fan_out={fan_out}"),
            ]);
            as_predicted(&ran)?;
            check(ran.report()?["operations"]["ok"] == 1, || ran.stdout.clone())?;
        }
    }
    Ok(())
}

fn forwarders() -> Result<(), Failed> {
    let arguments = ["a > b > c > d > e", "--set", "services.d.calls=2"];
    let ran = run_plain(&[&["run"], &arguments[..]].concat());
    check(ran.exit == 2 && ran.stderr.contains("d has calls = 2"), || {
        format!("exit {}: {}", ran.exit, ran.stderr)
    })?;
    let ran = run_plain(&[&["predict"], &arguments[..]].concat());
    check(
        ran.exit == 0 && ran.stdout.starts_with("2 calls will arrive at e"),
        || format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr),
    )
}

fn live() -> Result<(), Failed> {
    let up = Up::of_four(&["--fault", "down"])?;
    let called = |received: [u64; 4]| {
        let ran = up.ask(&["call"]);
        check(ran.received() == received, || {
            format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
        })
    };
    called([1, 3, 9, 27])?;
    let calls = ["retry", "--set", "services.checkout.calls=2"];
    let told = up.ask(&[&calls[..], &["--set", "services.checkout.fan_out=parallel"]].concat());
    check(told.stdout.starts_with("54 calls will arrive at inventory"), || {
        format!("{}{}", told.stdout, told.stderr)
    })?;
    called([1, 3, 18, 54])?;
    let status = up.ask(&["status"]);
    let row = status.report()?["services"][1].clone();
    check(row["calls"] == 2 && row["fan_out"] == "parallel", || row.to_string())?;
    as_predicted(&up.ask(&["run", "-n", "3"]))?;
    // The sequence of the scenario is in force for its request alone.
    let sequence = up.ask(&["run", "fan-out"]);
    as_predicted(&sequence)?;
    check(sequence.services() == [1, 3, 9, 27], || sequence.stdout.clone())?;
    called([1, 3, 18, 54])
}

/// Combinations of policies, faults and times that are run with several calls.
const COMBINATIONS: u64 = 400;

fn combinations() -> Result<(), Failed> {
    all_as_predicted(COMBINATIONS, |number| {
        let mut random = StdRng::seed_from_u64(number);
        let mut arguments = combination(100_000 + number);
        let mut set = |text: String| arguments.extend(["--set".to_owned(), text]);
        for at in CALLERS {
            if random.random_bool(0.5) {
                set(format!("services.{at}.calls={}", random.random_range(2..=3)));
                let fan_out = ["sequence", "parallel"].choose(&mut random).expect("there are two");
                set(format!("services.{at}.fan_out={fan_out}"));
            }
        }
        arguments
    })
}
