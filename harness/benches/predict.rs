//! What the arithmetic costs: the longest chain with the most layers, beside a program that only says its version. Whole
//! processes, in pairs, so that whatever else the machine does meets both.
//!
//! `cargo bench -p harness --bench predict`

// A benchmark prints what it found, and ends where something is not as it must be.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::{
    process::Command,
    time::{Duration, Instant},
};

/// Pairs that are timed.
const PAIRS: usize = 300;
/// 13 services in a row, 11 attempts in the code of each caller and 11 in each proxy, 11 at the client.
const DEEPEST: [&str; 9] = [
    "predict",
    "--depth",
    "12",
    "--attempts",
    "11",
    "--sidecar-attempts",
    "11",
    "--attempts-at",
    "client=11",
];
/// 11 to the power of its 25 layers.
const BOTTOM: &str = "108347059433883722041830251";
/// What the answer may cost beside the version.
const AIM: Duration = Duration::from_millis(5);

fn main() {
    // `cargo test --benches` runs it too, and wants nothing that takes long; `cargo bench` says so.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let answer = Command::new(env!("CARGO_BIN_EXE_harness"))
        .args(DEEPEST)
        .args(["--json", "-"])
        .output()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer["bottom"]["worst"], BOTTOM, "the exact number");
    let (mut version, mut predict) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        version.push(timed(&["--version"]));
        predict.push(timed(&DEEPEST));
    }
    let (version, predict) = (median(version), median(predict));
    let more = predict.saturating_sub(version);
    println!("harness --version           {version:>9.2?}   median of {PAIRS}");
    println!("harness predict, 25 layers  {predict:>9.2?}");
    let verdict = if more <= AIM { "within" } else { "MISSED" };
    println!("difference                  {more:>9.2?}   aim: at most {AIM:?}, {verdict}");
}

fn timed(arguments: &[&str]) -> Duration {
    let begun = Instant::now();
    let ended = Command::new(env!("CARGO_BIN_EXE_harness"))
        .args(arguments)
        .output()
        .unwrap();
    let took = begun.elapsed();
    assert!(ended.status.success(), "{arguments:?}");
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
