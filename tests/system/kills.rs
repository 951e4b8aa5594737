//! Killed at any moment, the harness leaves nothing behind: no process, no port, no half file.

use crate::support::{check, command, test};
use libtest_mimic::{Failed, Trial};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

/// Kills.
const KILLS: u32 = 50;
/// How long a child may outlive the harness.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// Marks every process that one run starts.
const MARK: &str = "TEST_OF_KILLS";

pub fn tests() -> Vec<Trial> {
    vec![test(
        "kills::killed_fifty_times_at_random_moments_it_leaves_nothing_behind",
        || {
            let whole = undisturbed()?;
            for round in 0..KILLS {
                // Start, load, settle and write: anywhere in the time a whole run takes, and a little beyond.
                let moment = whole.mul_f64(rand::random_range(0.0..1.2));
                killed_after(moment, round).map_err(|error| {
                    let sentence = error.message().unwrap_or("failed").to_owned();
                    Failed::from(format!("killed after {moment:?} of {whole:?}: {sentence}"))
                })?;
            }
            Ok(())
        },
    )]
}

fn run_into(file: &Path, mark: &str) -> std::process::Command {
    let mut command = command(&[
        "run",
        "--fault",
        "fail",
        "-n",
        "200",
        "-c",
        "20",
        "--deadline",
        "none",
        "--json",
    ]);
    command
        .arg(file)
        .env(MARK, mark)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// How long a whole run takes.
fn undisturbed() -> Result<Duration, Failed> {
    let folder = tempfile::tempdir()?;
    let began = Instant::now();
    let status = run_into(&folder.path().join("report.json"), "whole").status()?;
    check(status.success(), || format!("an undisturbed run ends with {status}"))?;
    Ok(began.elapsed())
}

fn killed_after(moment: Duration, round: u32) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.json");
    let mark = format!("{}-{round}", std::process::id());
    let mut harness = run_into(&file, &mark).spawn()?;
    std::thread::sleep(moment);
    let ports = listening(&marked(&mark));
    harness.kill()?;
    let killed = Instant::now();
    let held = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_err();
    loop {
        let (left, held): (_, Vec<_>) = (marked(&mark), ports.iter().copied().filter(held).collect());
        if left.is_empty() && held.is_empty() {
            break;
        }
        check(killed.elapsed() < GONE_WITHIN, || {
            format!("still running: {left:?}; ports still held: {held:?}")
        })?;
        std::thread::sleep(Duration::from_millis(5));
    }
    harness.wait()?;
    if let Ok(text) = std::fs::read_to_string(&file) {
        let report: Result<serde_json::Value, _> = serde_json::from_str(&text);
        check(
            report.is_ok_and(|report| report["schema"] == "retryscope/report/v1"),
            || "half a report".to_owned(),
        )?;
    }
    Ok(())
}

/// Running processes that carry the mark. One that has ended and only waits to be reaped is gone.
fn marked(mark: &str) -> BTreeSet<u32> {
    let wanted = format!("{MARK}={mark}");
    let carries = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|pair| pair == wanted.as_bytes())
    };
    let runs = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .unwrap_or("Z")
            .to_owned();
        state != "Z" && state != "X"
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(carries).filter(runs).collect()
}

/// Loopback ports that these processes listen on.
fn listening(pids: &BTreeSet<u32>) -> BTreeSet<u16> {
    let descriptors = pids
        .iter()
        .flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten());
    let links = descriptors
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let inodes: BTreeSet<String> = links
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let rows = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Columns: 1 the local address, 3 the state (0A listens), 9 the inode.
    rows.filter(|row| row.len() > 9 && row[3] == "0A" && inodes.contains(row[9]))
        .filter_map(|row| u16::from_str_radix(row[1].rsplit(':').next()?, 16).ok())
        .collect()
}
