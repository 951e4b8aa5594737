//! Sweeps: every point is a run of its own, and the curve is the one that arithmetic gives.

use crate::{
    formats::{fits, validator},
    support::{Ran, check, command, run, run_plain, test},
    telemetry::{interrupt, until},
};
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};

/// Longest wait for a sweep to come somewhere.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn tests() -> Vec<Trial> {
    vec![
        test("sweep::eight_attempts_give_one_curve_wherever_they_are_made", one_curve),
        test("sweep::attempts_multiply_at_every_hop", || {
            let ran = swept(&["--over", "attempts=1..4"], 0)?;
            check(received(&ran)? == [1.0, 8.0, 27.0, 64.0], || {
                format!("{:?}", received(&ran))
            })?;
            check(ran.stdout.starts_with("1 to 64 calls arrived at inventory"), || {
                ran.stdout.clone()
            })
        }),
        test("sweep::how_many_at_once_changes_no_draw", || {
            let words = ["--fault", "fail:p=0.5", "-n", "60", "--over", "concurrency=1,4,16"];
            let ran = swept(&words, 0)?;
            let counts = received(&ran)?;
            check(counts.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 1e-9), || {
                format!("{counts:?}")
            })?;
            let concurrency = |point: &Value| point["report"]["scenario"]["load"]["concurrency"].as_u64();
            let set: Vec<_> = points(&ran)?
                .iter()
                .map(|point| concurrency(point).unwrap_or(1))
                .collect();
            check(set == [1, 4, 16], || format!("{set:?}"))
        }),
        test("sweep::any_key_of_a_scenario_file_can_be_varied", || {
            let ran = swept(&["--over", "services.pricing.retry.attempts=1..3"], 0)?;
            check(received(&ran)? == [9.0, 18.0, 27.0], || format!("{:?}", received(&ran)))?;
            // The server tells pricing not to try again; who does not obey makes 27 of 9.
            let words = ["--fault", "fail:pushback=-1", "--over", "retry.pushback=true,false"];
            let ran = swept(&words, 0)?;
            check(received(&ran)? == [9.0, 27.0], || format!("{:?}", received(&ran)))?;
            check(points(&ran)?.iter().all(|point| point["number"].is_null()), || {
                "a word is no number".to_owned()
            })
        }),
        test("sweep::what_it_writes_fits_its_schema_and_repeats_it", || {
            let schema = validator("sweep-v1")?;
            let ran = swept(
                &["web x3 > db", "--over", "p=0,0.5..1", "-n", "20", "--seed", "random"],
                0,
            )?;
            fits(&schema, ran.report()?)?;
            let typed = ran.report()?["command"].as_str().unwrap_or_default().to_owned();
            let words = std::process::Command::new("bash")
                .args(["-c", &format!("printf '%s\\0' {typed}")])
                .output()?;
            let words = String::from_utf8(words.stdout)?;
            let again = run(&words.split_terminator('\0').collect::<Vec<_>>());
            check(received(&again)? == received(&ran)?, || {
                format!("{typed}: {:?}", received(&again))
            })
        }),
        test("sweep::it_ends_as_its_worst_point_does", || {
            let ran = swept(&["--undeclared", "pricing=4", "--over", "attempts=1..2"], 1)?;
            check(
                ran.stdout.contains("Not as predicted: attempts=1 and attempts=2.")
                    && ran.stdout.contains("Something between pricing and inventory"),
                || ran.stdout.clone(),
            )?;
            let ran = swept(&["--over", "attempts=1..3", "--expect", "inventory<=8"], 1)?;
            check(ran.stdout.contains("NOT EXPECTED  attempts=3: "), || ran.stdout.clone())
        }),
        test("sweep::nothing_starts_before_every_plan_is_checked", || {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("sweep.json");
            for (words, says) in [
                (
                    &["--over", "requests=1,1000000"][..],
                    "requests=1000000: this plan has 40000000 arrivals",
                ),
                (
                    &["--over", "attempts=1,30"],
                    "attempts=30: one request of this plan may cause",
                ),
                (&["--over", "p=0,1.5"], "--over p=1.5: write a chance from 0 to 1"),
                (&["--over", "p"], "write KEY=VALUES"),
                (&["--over", "p=0.."], "wants plain numbers"),
                (&["--over", "p=1..2000"], "more than 1000 values"),
                (&[], "sweep wants what it varies"),
                (
                    &["--over", "attempts=1..2", "--attach", "x.toml"],
                    "`run --attach` measures others",
                ),
                (
                    &["per-hop", "single-owner", "--over", "attempts=1"],
                    "sweep takes one scenario",
                ),
            ] {
                let words = [&["sweep", "--json", file.to_str().ok_or("a path")?], words].concat();
                let ran = run_plain(&words);
                check(ran.exit == 2 && ran.stdout.is_empty() && !file.exists(), || {
                    format!("{words:?}: exit {}: {}", ran.exit, ran.stdout)
                })?;
                let said = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
                check(said.starts_with("error: ") && said.contains(says), || {
                    format!("{words:?}: {said}")
                })?;
            }
            Ok(())
        }),
        test("sweep::an_interrupt_keeps_the_points_so_far", interrupted),
    ]
}

/// A sweep that ends so.
fn swept(words: &[&str], exit: i32) -> Result<Ran, Failed> {
    let ran = run(&[&["sweep"], words].concat());
    check(ran.exit == exit, || {
        format!("{words:?}: exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
    })?;
    Ok(ran)
}

fn points(ran: &Ran) -> Result<&Vec<Value>, Failed> {
    Ok(ran.report()?["points"].as_array().ok_or("no points")?)
}

fn bottom(point: &Value) -> &Value {
    let rows = point["report"]["services"].as_array();
    rows.and_then(|rows| rows.last()).unwrap_or(&Value::Null)
}

/// Calls at the bottom for one request at each point.
fn received(ran: &Ran) -> Result<Vec<f64>, Failed> {
    let counts = points(ran)?.iter().map(|point| bottom(point)["amplification"].as_f64());
    Ok(counts.collect::<Option<_>>().ok_or("a point without a count")?)
}

/// Eight attempts at one place, and two at each of three: a request ends with the first answer among eight draws either way.
fn one_curve() -> Result<(), Failed> {
    const REQUESTS: f64 = 200.0;
    let of = |line: &'static str| swept(&[line, "--over", "p=0,0.25..1"], 0);
    for ran in [
        of("web x8 > api > orders > db")?,
        of("web x2 > api x2 > orders x2 > db")?,
    ] {
        let values: Vec<_> = points(&ran)?.iter().map(|point| point["value"].clone()).collect();
        check(values == ["0", "0.25", "0.5", "0.75", "1"], || format!("{values:?}"))?;
        for point in points(&ran)? {
            let p = point["number"].as_f64().ok_or("a chance is a number")?;
            let still_fails = p.powi(8);
            // How many draws until the first answer, eight at most.
            let chance = |draws: i32| p.powi(draws - 1) * if draws == 8 { 1.0 } else { 1.0 - p };
            let mean: f64 = (1..=8).map(|draws| f64::from(draws) * chance(draws)).sum();
            let square: f64 = (1..=8).map(|draws| f64::from(draws * draws) * chance(draws)).sum();
            let closed = if p < 1.0 { (1.0 - still_fails) / (1.0 - p) } else { 8.0 };
            for (key, due) in [("mean", closed), ("still_fails", still_fails)] {
                let found = point[key].as_f64().ok_or("a closed form")?;
                check((found - due).abs() < 1e-9, || {
                    format!("p={p}: {key} {found}, due {due}")
                })?;
            }
            check(point["report"]["verdict"] == "as_predicted", || format!("p={p}"))?;
            let (row, operations) = (bottom(point), &point["report"]["operations"]);
            let predicted = &row["predicted"];
            check(
                predicted["min"].as_u64() <= row["received"].as_u64()
                    && row["received"].as_u64() <= predicted["max"].as_u64(),
                || row.to_string(),
            )?;
            // Seven deviations: a seed that is further off is found once in 10^11.
            let received = row["amplification"].as_f64().ok_or("a count")?;
            let allowed = 7.0 * ((square - mean * mean).max(0.0) / REQUESTS).sqrt() + 1e-9;
            check((received - mean).abs() <= allowed, || {
                format!("p={p}: {received} for {mean}")
            })?;
            let failed = operations["failed"].as_f64().ok_or("a count")? / REQUESTS;
            let allowed = 7.0 * (still_fails * (1.0 - still_fails) / REQUESTS).sqrt() + 1e-9;
            check((failed - still_fails).abs() <= allowed, || {
                format!("p={p}: {failed} for {still_fails}")
            })?;
        }
    }
    Ok(())
}

/// Ended when services of a second point have been seen: the first is whole then.
fn interrupted() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("sweep.json");
    let mut child = command(&["sweep", "--over", "requests=1..500", "--json"])
        .arg(&file)
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let mut seen = BTreeSet::new();
    let second = until(PATIENCE, "the second point begins", || {
        let now = std::fs::read_to_string(&children).unwrap_or_default();
        seen.extend(now.split_whitespace().map(str::to_owned));
        // Four services a point; a harness that has ended has none.
        seen.len() > 4 || matches!(child.try_wait(), Ok(Some(_)))
    });
    interrupt(&child, Signal::INT);
    let output = child.wait_with_output()?;
    second?;
    check(output.status.code() == Some(3), || format!("{:?}", output.status))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    check(text.starts_with("Only ") && text.contains(" of 500 values "), || {
        text.clone()
    })?;
    let json: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    fits(&validator("sweep-v1")?, &json)?;
    let made = json["points"].as_array().map_or(0, Vec::len);
    check((1..500).contains(&made) && json["planned"] == 500, || {
        format!("{made} points")
    })
}
