//! Random scenarios with real processes: what arrives is what the model says, or the test prints the command that shows it.

use crate::support::{run, test};
use libtest_mimic::Trial;
use proptest::{
    prelude::*,
    sample::{select, subsequence},
    test_runner::{Config, TestRunner},
};

/// Scenarios that are run.
const SCENARIOS: u32 = 300;

pub fn tests() -> Vec<Trial> {
    vec![test(
        "property::three_hundred_random_scenarios_come_out_as_predicted",
        || {
            let config = Config {
                cases: SCENARIOS,
                max_shrink_iters: 60,
                failure_persistence: None,
                ..Config::default()
            };
            let mut runner = TestRunner::new(config);
            let outcome = runner.run(&arguments(), |arguments| {
                let ran = run(&arguments);
                let reasons = ran.json.as_ref().map(|report| report["reasons"].to_string());
                prop_assert!(
                    ran.exit == 0,
                    "exit {}: {} {:?}\nharness {}",
                    ran.exit,
                    ran.stderr,
                    reasons,
                    shown(&arguments)
                );
                Ok(())
            });
            outcome.map_err(|error| error.to_string().into())
        },
    )]
}

fn shown(arguments: &[String]) -> String {
    arguments
        .iter()
        .map(|argument| format!("'{argument}'"))
        .collect::<Vec<_>>()
        .join(" ")
}

const CODES: [&str; 4] = ["UNAVAILABLE", "NOT_FOUND", "ABORTED", "INVALID_ARGUMENT"];

/// The names of the chain with so many links between services.
fn names(depth: usize) -> &'static [&'static str] {
    &["frontend", "checkout", "pricing", "inventory"][3 - depth..]
}

fn fault() -> impl Strategy<Value = String> {
    let fail = (
        prop::option::of(select(&CODES[..])),
        prop::option::of((0..12_u32, any::<bool>())),
        prop::option::of(0..=10_u32),
        any::<bool>(),
    );
    let fail = fail.prop_map(|(code, first, tenths, after)| {
        let mut keys = Vec::new();
        keys.extend(code.map(|code| format!("code={code}")));
        if let Some((first, per_process)) = first {
            keys.push(format!("first={first}"));
            keys.extend(per_process.then(|| "scope=process".to_owned()));
        }
        keys.extend(tenths.map(|tenths| format!("p={}", f64::from(tenths) / 10.0)));
        keys.extend(after.then(|| "at=after".to_owned()));
        if keys.is_empty() {
            "fail".to_owned()
        } else {
            format!("fail:{}", keys.join(","))
        }
    });
    prop_oneof![1 => Just("none".to_owned()), 1 => Just("refuse".to_owned()), 6 => fail]
}

fn retry_on() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just("UNAVAILABLE".to_owned()),
        1 => Just("any".to_owned()),
        2 => subsequence(&CODES[..], 1..=3).prop_map(|codes| codes.join(",")),
    ]
}

/// The arguments of one run: any depth, 1 to 5 attempts for every caller, any fault on any services, any owner.
fn arguments() -> impl Strategy<Value = Vec<String>> {
    let shape = (
        1..=3_usize,
        prop::collection::vec(1..=5_u32, 4),
        prop::option::weighted(0.3, 0..4_usize),
    );
    let behaviour = (
        prop::collection::vec(fault(), 4),
        // The bottom fails in every scenario, the others now and then.
        prop::collection::vec(prop::bool::weighted(0.2), 3),
        retry_on(),
        prop::collection::vec(prop::option::weighted(0.15, select(&CODES[..])), 3),
    );
    let load = (1..=6_u32, 1..=4_u32, prop::bool::weighted(0.1), any::<u16>());
    (shape, behaviour, load).prop_map(|((depth, attempts, owner), (faults, also, retry_on, answers), load)| {
        let names = names(depth);
        let (bottom, callers) = names.split_last().expect("a chain has a bottom");
        let mut arguments: Vec<String> = ["run", "--depth", &depth.to_string()].map(str::to_owned).to_vec();
        let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        for (caller, attempts) in std::iter::once(&"client").chain(callers).zip(&attempts) {
            flag("--attempts-at", format!("{caller}={attempts}"));
        }
        if let Some(owner) = owner {
            let owner = if owner == 0 {
                "client"
            } else {
                callers[(owner - 1) % callers.len()]
            };
            flag("--owner", owner.to_owned());
        }
        flag("--retry-on", retry_on);
        flag("--fault", format!("{bottom}={}", faults[3]));
        for (position, caller) in callers.iter().enumerate() {
            if also[position] {
                flag("--fault", format!("{caller}={}", faults[position]));
            }
            if let Some(answer) = answers[position] {
                flag("--set", format!("services.{caller}.on_failure={answer}"));
            }
        }
        let (requests, concurrency, is_invalid, seed) = load;
        flag("-n", requests.to_string());
        flag("-c", concurrency.to_string());
        flag("--seed", seed.to_string());
        // A slow machine must not turn a count into a deadline.
        flag("--deadline", "none".to_owned());
        if is_invalid {
            flag("--item", String::new());
        }
        arguments
    })
}
