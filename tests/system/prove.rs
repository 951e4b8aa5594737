//! `run --prove`: what is suggested is applied and run, and comes out as the change's own name lets a reader work out by hand.

use crate::{
    support::{Ran, check, command, harness, run, run_with, test, test_with},
    telemetry::until,
};
use libtest_mimic::{Failed, Trial};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Chains whose changes are all run.
const CHAINS: u64 = 200;
/// How many of them at once.
const AT_ONCE: usize = 3;
/// Longest wait for two runs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most calls that one request may cause at the bottom of a chain.
const MOST_CALLS: u64 = 48;
/// Most layers of a chain that retry: each has several changes of its own.
const MOST_LAYERS: usize = 4;

pub fn tests() -> Vec<Trial> {
    vec![
        test(
            "prove::every_change_of_two_hundred_random_chains_comes_out_as_predicted",
            chains,
        ),
        test("prove::the_headline_is_proven_change_by_change", headline),
        test("prove::a_closed_port_is_proven_by_what_is_sent_there", closed),
        test("prove::what_cannot_arrive_is_proven_by_what_is_sent", only_sent),
        test("prove::what_is_drawn_is_proven_with_many_requests", drawn),
        test("prove::a_prediction_offers_exactly_what_a_run_proves", offered),
        test(
            "prove::a_change_that_is_too_big_is_named_before_anything_starts",
            || {
                let ran = run(&["run", "--prove", "--max-calls", "45"]);
                check(
                    ran.exit == 2 && ran.stderr.contains("--prove, 20 % budget") && ran.json.is_none(),
                    || format!("exit {}: {}", ran.exit, ran.stderr),
                )
            },
        ),
        test("prove::what_was_proven_before_an_interrupt_stays", interrupted),
        test_with(
            crate::envoy::program(),
            "Envoy",
            "tests/setup",
            "prove::what_an_envoy_cannot_do_is_named_and_the_rest_is_proven",
            |envoy| envoys(&envoy),
        ),
    ]
}

/// The rows of a report.
fn advice(ran: &Ran) -> Result<&Vec<Value>, Failed> {
    ran.report()?["advice"].as_array().ok_or_else(|| "no advice".into())
}

fn headline() -> Result<(), Failed> {
    let ran = run(&["run", "--prove"]);
    check(ran.exit == 0, || format!("exit {}: {}", ran.exit, ran.stderr))?;
    let rows: Vec<_> = advice(&ran)?
        .iter()
        .map(|row| {
            (
                row["change"].as_str().unwrap_or_default(),
                row["measured"].as_u64().unwrap_or_default(),
            )
        })
        .collect();
    let all = [
        ("retries off everywhere", 1),
        // 100 requests let 20 retries pass, 120 calls 24, 144 calls 28.
        ("20 % budget, 3 layers", 172),
        ("retry at frontend only", 3),
        ("retry at checkout only", 3),
        ("retry at pricing only", 3),
        ("retries off at frontend", 9),
        ("retries off at checkout", 9),
        ("retries off at pricing", 9),
    ];
    check(rows == all, || format!("{rows:?}"))?;
    let repeated = ran.report()?["command"].as_str().unwrap_or_default();
    check(repeated == "run per-hop --prove", || repeated.to_owned())?;
    check(
        ran.stdout.contains("8 changes were applied and run, all as predicted."),
        || ran.stdout.clone(),
    )
}

fn closed() -> Result<(), Failed> {
    let ran = run(&["run", "web x3*2 > api x2 > db refuse", "--prove"]);
    check(ran.exit == 0, || format!("exit {}: {}", ran.exit, ran.stderr))?;
    let found = advice(&ran)?
        .iter()
        .find(|row| row["change"] == "code retries off at web");
    let found = found.ok_or("no such change")?;
    check(found["measured"] == 4 && found["predicted"]["max"] == 4, || {
        found.to_string()
    })
}

/// What fails in its caller is counted where it is sent, and so is what a closed port refuses to somebody who may leave before.
fn only_sent() -> Result<(), Failed> {
    for flags in [
        &["web x3 > api x3 > db", "--fault", "db=fail:side=client@api"][..],
        &[
            "web x3 > api x3 > db refuse",
            "--set",
            "retry.backoff.initial=20ms",
            "--deadline",
            "300ms",
        ],
    ] {
        let ran = run(&[&["run", "--prove"], flags].concat());
        check(ran.exit == 0, || {
            format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
        })?;
        let rows = advice(&ran)?;
        check(rows.len() == 4, || format!("{rows:?}"))?;
        for row in rows {
            let measured = row["measured"].as_u64().unwrap_or_default();
            let failed = &row["failed"];
            check(measured >= 1 && *failed == row["requests"], || row.to_string())?;
        }
    }
    Ok(())
}

/// One draw proves little.
fn drawn() -> Result<(), Failed> {
    let ran = run(&["run", "web x2 > db fail:p=0.5", "--prove"]);
    check(ran.exit == 0, || format!("exit {}: {}", ran.exit, ran.stderr))?;
    let report = ran.report()?;
    let command = report["command"].as_str().unwrap_or_default();
    check(
        command.ends_with(" -n 200 --prove")
            && ran.stderr.contains("one draw proves little, so there are 200 requests"),
        || format!("{command}: {}", ran.stderr),
    )?;
    let off = advice(&ran)?.iter().find(|row| row["change"] == "retries off at web");
    let off = off.ok_or("no such change")?;
    // Without retries about half of them fail, and each of them is called once.
    let failed = off["failed"].as_u64().unwrap_or_default();
    check(off["measured"] == 200 && (60..140).contains(&failed), || {
        off.to_string()
    })
}

fn offered() -> Result<(), Failed> {
    let line = "client x2 > web x3*2 > db down";
    let (predicted, proven) = (run(&["predict", line]), run(&["run", line, "--prove"]));
    let changes = predicted.report()?["changes"].as_array().ok_or("no changes")?;
    let rows = advice(&proven)?;
    check(changes.len() == rows.len() && rows.len() > 5, || format!("{rows:?}"))?;
    for (change, row) in changes.iter().zip(rows) {
        for key in ["change", "scope", "edits", "ceiling", "command"] {
            check(change[key] == row[key], || format!("{key}: {change} {row}"))?;
        }
        if change["ceiling"].is_null() {
            check(change["bottom"] == row["measured"], || format!("{change} {row}"))?;
        }
        // What is printed runs the change by itself.
        let typed = format!(
            "'{}' {} --json -",
            harness().display(),
            change["command"].as_str().unwrap_or_default()
        );
        let ran = Command::new("sh").args(["-c", &typed]).output()?;
        let report: Value = serde_json::from_slice(&ran.stdout)?;
        let bottom = report["services"].as_array().and_then(|rows| rows.last());
        check(
            bottom.is_some_and(|bottom| bottom["received"] == row["measured"]),
            || format!("{typed}: {bottom:?}"),
        )?;
    }
    Ok(())
}

/// The interrupt comes while the second change runs: the first has been measured by then, and the last cannot have been.
fn interrupted() -> Result<(), Failed> {
    const DEPTH: usize = 8;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.json");
    let depth = DEPTH.to_string();
    let child = command(&["run", "--depth", &depth, "--attempts", "2", "--prove", "--json"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id())?).ok_or("a process number")?;
    let mut services = BTreeSet::new();
    until(PATIENCE, "the second change runs", || {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()));
        services.extend(children.unwrap_or_default().split_whitespace().map(str::to_owned));
        services.len() > 2 * (DEPTH + 1)
    })?;
    kill_process(pid, Signal::INT)?;
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.code() == Some(3), || {
        format!("{:?}: {complaint}", output.status)
    })?;
    let report: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    check(report["verdict"] == "as_predicted", || report["reasons"].to_string())?;
    let rows = report["advice"].as_array().ok_or("no advice")?;
    let [first, .., last] = rows.as_slice() else {
        return Err(report["advice"].to_string().into());
    };
    check(first["verdict"] == "as_predicted" && first["measured"] == 1, || {
        first.to_string()
    })?;
    check(last["verdict"] == "incomplete" && last["measured"].is_null(), || {
        last.to_string()
    })
}

fn envoys(envoy: &Path) -> Result<(), Failed> {
    let ran = run_with(
        &[("RETRYSCOPE_ENVOY", envoy.as_os_str())],
        &["run", "web x2*2 > db down", "--sidecar", "envoy", "--prove"],
    );
    check(ran.exit == 0, || {
        format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
    })?;
    let rows = advice(&ran)?;
    let (budget, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| !row["ceiling"].is_null());
    check(budget.len() == 1 && budget[0]["verdict"].is_null(), || {
        format!("{budget:?}")
    })?;
    check(
        others.len() == 2 && others.iter().all(|row| row["verdict"] == "as_predicted"),
        || format!("{others:?}"),
    )?;
    let notes = ran.report()?["notes"].to_string();
    check(
        notes.contains("unproven") && notes.contains("web-proxy is an Envoy"),
        || notes.clone(),
    )
}

/// One caller: its name, the attempts of its code and those of its proxy.
type Hop = (String, u64, u64);

/// A random chain: the client first.
fn chain(number: u64) -> Vec<Hop> {
    let mut random = StdRng::seed_from_u64(number);
    loop {
        let mut names = ["web", "a.b", "orders-2", "x3", "Billing", "ledger_1", "only"];
        names.shuffle(&mut random);
        let depth = random.random_range(1..=4);
        let names = std::iter::once("client").chain(names.into_iter().take(depth));
        let hops: Vec<Hop> = names
            .map(|name| {
                let mut attempts = || {
                    let retries = random.random_bool(0.5);
                    if retries { random.random_range(2..=4) } else { 1 }
                };
                (name.to_owned(), attempts(), attempts())
            })
            .collect();
        let factors = || hops.iter().flat_map(|(_, code, proxy)| [*code, *proxy]);
        let layers = factors().filter(|factor| *factor > 1).count();
        if (1..=MOST_LAYERS).contains(&layers) && factors().product::<u64>() <= MOST_CALLS {
            return hops;
        }
    }
}

fn line(hops: &[Hop]) -> String {
    let hops = hops
        .iter()
        .map(|(name, code, proxy)| format!("{name} x{code}*{proxy} > "));
    hops.collect::<String>() + "bottom down"
}

/// What a change of this name leaves, by hand; `None` for a budget.
fn by_hand(hops: &[Hop], change: &str) -> Option<u64> {
    let (what, at) = change.split_once(" at ").unwrap_or((change, ""));
    let (name, rest) = at.split_once(' ').unwrap_or((at, ""));
    let name = name.trim_end_matches(',');
    let factor = |(hop, code, proxy): &Hop| {
        let is_here = hop == name;
        let is_client = hop == "client";
        let (keeps_code, keeps_proxy) = match (what, rest) {
            ("retries off" | "code retries off", _) | ("retry", "only, in its proxy") if is_here => (false, true),
            ("proxy retries off", _) | ("retry", "only" | "only, in its code") if is_here => (true, false),
            ("retry", "only, code and proxy") if is_here => (true, true),
            ("retry", _) => (false, false),
            ("proxy retries off, whole mesh", _) => (true, false),
            ("retries off everywhere" | "code retries off in all services", _) => (is_client, true),
            _ => (true, true),
        };
        (if keeps_code { *code } else { 1 }) * (if keeps_proxy { *proxy } else { 1 })
    };
    (!change.contains("budget")).then(|| hops.iter().map(factor).product())
}

/// Runs a chain with its changes, and holds each against what can be worked out by hand.
fn proven(hops: &[Hop]) -> Result<usize, String> {
    let line = line(hops);
    let ran = run(&["run", &line, "--prove"]);
    let report = ran.json.as_ref().ok_or(&ran.stderr)?;
    if ran.exit != 0 {
        return Err(format!("exit {}: {} {}", ran.exit, report["reasons"], report["advice"]));
    }
    let rows = report["advice"].as_array().ok_or("no advice")?;
    for row in rows {
        let (predicted, measured) = (&row["predicted"], &row["measured"]);
        let is_right = row["verdict"] == "as_predicted"
            && predicted["kind"] == "exact"
            && [&predicted["min"], &predicted["max"]]
                .iter()
                .all(|count| *count == measured);
        let calls = by_hand(hops, row["change"].as_str().unwrap_or_default());
        let is_worked_out = if let Some(calls) = calls {
            *measured == calls && row["requests"] == 1
        } else {
            let [ceiling, requests, calls] =
                [&row["ceiling"], &row["requests"], measured].map(|number| number.as_f64().unwrap_or_default());
            calls > requests && calls <= requests * ceiling + 1e-6
        };
        if !(is_right && is_worked_out) {
            return Err(row.to_string());
        }
    }
    Ok(rows.len())
}

fn chains() -> Result<(), Failed> {
    let (next, changes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed) as u64;
                    if number >= CHAINS {
                        return;
                    }
                    let hops = chain(number);
                    match proven(&hops) {
                        Ok(rows) => _ = changes.fetch_add(rows, Ordering::Relaxed),
                        Err(why) => {
                            let text = format!("{why}\nharness run '{}' --prove", line(&hops));
                            wrong.lock().expect("no run fails while it holds this").push(text);
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("nobody holds it any more");
    check(wrong.is_empty(), || {
        format!("{} wrong:\n{}", wrong.len(), wrong.join("\n"))
    })?;
    let changes = changes.into_inner() as u64;
    check(changes > 5 * CHAINS, || format!("only {changes} changes"))
}
