//! A chain that stays up, through the command line: kept, called, broken, healed, looked at, attached to, and left behind clean.

use crate::{
    foreign::{ByHand, asked_with_stub, python_with},
    support::{Ran, check, command, harness, run, run_plain, test, test_with},
    telemetry::{interrupt, until},
};
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    io::Read as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// Longest wait for a chain to stand, or to be gone.
const PATIENCE: Duration = Duration::from_secs(20);
/// What `call` exits with for UNAVAILABLE.
const UNAVAILABLE: i32 = 64 + 14;

pub fn tests() -> Vec<Trial> {
    let python = python_with(&["grpc_reflection", "grpc_tools"]);
    vec![
        test(
            "hands_on::a_chain_is_called_broken_healed_and_looked_at",
            broken_and_healed,
        ),
        test("hands_on::up_leaves_at_ctrl_c_and_nothing_stays_behind", leaves),
        test(
            "hands_on::retry_changes_what_is_set_already_and_an_owner_always_retries",
            retried,
        ),
        test("hands_on::up_takes_no_file_of_others_and_no_client", refused_up),
        test("hands_on::a_busy_port_is_named_before_anything_starts", busy),
        test(
            "hands_on::up_starts_as_a_line_says_on_the_ports_it_is_given",
            starts_as_said,
        ),
        test("hands_on::run_compare_and_predict_take_what_the_services_say", || {
            attached()
        }),
        test("hands_on::services_started_by_hand_are_attached_to", by_hand),
        test(
            "hands_on::a_chain_without_a_service_is_refused_by_name",
            incomplete_chain,
        ),
        test("hands_on::nobody_to_attach_to_is_said_with_what_to_type", nobody),
        test(
            "hands_on::a_killed_service_is_named_and_leaves_no_verdict",
            killed_service,
        ),
        test("hands_on::off_the_loopback_the_control_port_wants_its_token", || {
            token()
        }),
        test("hands_on::a_token_file_is_made_once", token_file),
        test_with(
            python,
            "Python's grpcio with grpcio-tools",
            "tests/setup",
            "hands_on::a_grpcio_client_is_its_own_request_all_the_way_down",
            |python| stranger(&python),
        ),
    ]
}

/// Free ports for all services but pricing.
const FREE_BUT_PRICING: [(&str, &str); 6] = [
    ("--port", "frontend=0"),
    ("--control-port", "frontend=0"),
    ("--port", "checkout=0"),
    ("--control-port", "checkout=0"),
    ("--port", "inventory=0"),
    ("--control-port", "inventory=0"),
];

/// `harness up` on free ports, told to leave with this handle.
pub struct Up {
    child: Child,
    folder: TempDir,
}

impl Up {
    fn start(arguments: &[&str], services: &[&str]) -> Result<Self, Failed> {
        let folder = tempfile::tempdir()?;
        let mut up = command(&["up"]);
        up.args(arguments);
        for service in services {
            up.args([
                "--port",
                &format!("{service}=0"),
                "--control-port",
                &format!("{service}=0"),
            ]);
        }
        let child = up
            .arg("--ready-file")
            .arg(folder.path().join("ready.toml"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut up = Self { child, folder };
        let ready = up.ready();
        let stands = until(PATIENCE, "the chain stands", || {
            ready.exists() || matches!(up.child.try_wait(), Ok(Some(_)))
        });
        if ready.exists() {
            return Ok(up);
        }
        let mut said = String::new();
        let _ = up.child.kill();
        up.child.stderr.take().ok_or("no stderr")?.read_to_string(&mut said)?;
        stands?;
        Err(said.into())
    }

    pub fn of_four(arguments: &[&str]) -> Result<Self, Failed> {
        Self::start(arguments, &["frontend", "checkout", "pricing", "inventory"])
    }

    fn ready(&self) -> PathBuf {
        self.folder.path().join("ready.toml")
    }

    /// A command about this chain, with its JSON where it has one.
    pub fn ask(&self, words: &[&str]) -> Ran {
        let ready = self.ready();
        let mut all: Vec<_> = words.iter().map(std::ffi::OsString::from).collect();
        all.extend(["--attach".into(), ready.into_os_string()]);
        run(&all)
    }

    fn status(&self) -> Result<Value, Failed> {
        let asked = self.ask(&["status"]);
        check(asked.exit == 0, || asked.stderr.clone())?;
        Ok(asked.report()?.clone())
    }

    /// Ctrl-C; answers the exit code and what was said.
    fn leave(mut self) -> Result<(Option<i32>, String), Failed> {
        interrupt(&self.child, Signal::INT);
        until(PATIENCE, "up leaves", || matches!(self.child.try_wait(), Ok(Some(_))))?;
        let mut said = String::new();
        self.child.stdout.take().ok_or("no stdout")?.read_to_string(&mut said)?;
        check(!self.ready().exists(), || "the ready file stayed".to_owned())?;
        Ok((self.child.wait()?.code(), said))
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exits(ran: &Ran, exit: i32) -> Result<(), Failed> {
    check(ran.exit == exit, || {
        format!("exit {}, expected {exit}: {}{}", ran.exit, ran.stdout, ran.stderr)
    })
}

fn counts(ran: &Ran, received: &[u64]) -> Result<(), Failed> {
    check(ran.received() == received, || {
        format!("{:?}, expected {received:?}\n{}", ran.received(), ran.stdout)
    })
}

fn broken_and_healed() -> Result<(), Failed> {
    let up = Up::of_four(&[])?;
    let call = |exit, received: [u64; 4]| {
        let ran = up.ask(&["call"]);
        exits(&ran, exit)?;
        check(ran.report()?["verdict"] == "as_predicted", || ran.stdout.clone())?;
        counts(&ran, &received)
    };
    call(0, [1, 1, 1, 1])?;
    let failed = up.ask(&["fail"]);
    exits(&failed, 0)?;
    check(failed.report()?["changes"][0]["service"] == "inventory", || {
        failed.stdout.clone()
    })?;
    call(UNAVAILABLE, [1, 3, 9, 27])?;
    exits(&up.ask(&["retry", "2"]), 0)?;
    call(UNAVAILABLE, [1, 2, 4, 8])?;
    exits(
        &up.ask(&["retry", "--owner", "frontend", "--attempts-at", "frontend=3"]),
        0,
    )?;
    call(UNAVAILABLE, [1, 3, 3, 3])?;
    exits(&up.ask(&["fail", "fail:first=2"]), 0)?;
    call(0, [1, 3, 3, 3])?;
    exits(&up.ask(&["fail", "checkout=fail:code=NOT_FOUND"]), 0)?;
    // Only what is named works again.
    exits(&up.ask(&["heal", "inventory"]), 0)?;
    call(64 + 5, [1, 1, 0, 0])?;
    let status = up.status()?;
    check(status["generation"] == 7, || format!("{status:#}"))?;
    let totals: Vec<_> = status["services"]
        .as_array()
        .ok_or("no services")?
        .iter()
        .map(|row| row["received"].as_u64())
        .collect();
    check(totals == [Some(6), Some(13), Some(20), Some(42)], || {
        format!("{totals:?}")
    })?;
    check(status["mixed"]["operations"] == 0, || format!("{status:#}"))?;
    let faults = [1, 3].map(|place| &status["services"][place]["fault"]);
    check(faults == ["fail:code=NOT_FOUND", "none"], || format!("{status:#}"))
}

fn leaves() -> Result<(), Failed> {
    let up = Up::of_four(&["--fault", "fail"])?;
    let pids: Vec<_> = up.status()?["services"]
        .as_array()
        .ok_or("no services")?
        .iter()
        .filter_map(|row| row["pid"].as_u64())
        .collect();
    check(pids.len() == 4, || format!("{pids:?}"))?;
    let (exit, said) = up.leave()?;
    check(exit == Some(0) && said.contains("frontend"), || {
        format!("{exit:?}: {said}")
    })?;
    for pid in pids {
        check(!Path::new(&format!("/proc/{pid}")).exists(), || {
            format!("{pid} is still there")
        })?;
    }
    Ok(())
}

fn retried() -> Result<(), Failed> {
    let up = Up::of_four(&["--fault", "fail"])?;
    let backoffs = |up: &Up| -> Result<Vec<Value>, Failed> {
        let status = up.status()?;
        let rows = status["services"].as_array().ok_or("no services")?;
        Ok(rows[..3].iter().map(|row| row["backoff"].clone()).collect())
    };
    for (value, shown) in [
        ("{initial='10ms'}", "initial=10ms"),
        ("{initial='60ms'}", "initial=60ms"),
    ] {
        exits(&up.ask(&["retry", "--set", &format!("retry.backoff={value}")]), 0)?;
        let now = backoffs(&up)?;
        let is_set = |backoff: &Value| backoff.as_str().is_some_and(|text| text.contains(shown));
        check(now.iter().all(is_set), || format!("{now:?}"))?;
    }
    exits(&up.ask(&["retry", "--set", "retry.backoff=none"]), 0)?;
    let now = backoffs(&up)?;
    check(now.iter().all(Value::is_null), || format!("{now:?}"))?;
    exits(&up.ask(&["retry", "--retry-on", "any"]), 0)?;
    check(up.status()?["services"][0]["retry_on"] == "any", || {
        "not any".to_owned()
    })?;
    for (owner, wanted) in [
        ("frontend", [1, 3, 3, 3]),
        ("checkout", [1, 1, 3, 3]),
        ("pricing", [1, 1, 1, 3]),
    ] {
        exits(&up.ask(&["retry", "--owner", owner]), 0)?;
        let ran = up.ask(&["call"]);
        exits(&ran, UNAVAILABLE)?;
        counts(&ran, &wanted)?;
    }
    Ok(())
}

fn refused_up() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mine = folder.path().join("mine.toml");
    std::fs::write(&mine, "precious = true\n")?;
    let ran = run_plain(&["up".as_ref(), "--ready-file".as_ref(), mine.as_os_str()]);
    exits(&ran, 2)?;
    check(std::fs::read_to_string(&mine)? == "precious = true\n", || {
        "it was written".to_owned()
    })?;
    let up = Up::of_four(&[])?;
    let ran = run_plain(&["up".as_ref(), "--ready-file".as_ref(), up.ready().as_os_str()]);
    exits(&ran, 2)?;
    check(ran.stderr.contains("still up") || ran.stderr.contains("port"), || {
        ran.stderr.clone()
    })?;
    let ran = run_plain(&["up", "client x3 > web x3 > db"]);
    exits(&ran, 2)?;
    check(ran.stderr.contains("call --attempts-at client=3"), || {
        ran.stderr.clone()
    })
}

fn busy() -> Result<(), Failed> {
    let holder = TcpListener::bind("127.0.0.1:0")?;
    let port = holder.local_addr()?.port();
    for flag in ["--port", "--control-port"] {
        let held = format!("pricing={port}");
        let others = FREE_BUT_PRICING.iter().flat_map(|(flag, free)| [*flag, *free]);
        let free = if flag == "--port" { "--control-port" } else { "--port" };
        let words: Vec<_> = others.chain([flag, held.as_str(), free, "pricing=0"]).collect();
        let ran = run_plain(&[&["up"], words.as_slice()].concat());
        exits(&ran, 2)?;
        check(
            ran.stderr.contains(&port.to_string()) && ran.stderr.contains("pricing") && ran.stderr.contains(flag),
            || ran.stderr.clone(),
        )?;
    }
    Ok(())
}

fn starts_as_said() -> Result<(), Failed> {
    let up = Up::start(&["client > web x2 > api x3 > db down"], &["web", "api", "db"])?;
    let ran = up.ask(&["call"]);
    exits(&ran, UNAVAILABLE)?;
    counts(&ran, &[1, 2, 6])?;
    let (exit, said) = up.leave()?;
    check(
        exit == Some(0) && said.contains("web") && said.contains("GetQuote"),
        || said.clone(),
    )
}

fn attached() -> Result<(), Failed> {
    let up = Up::of_four(&[])?;
    let before = up.status()?;
    // As they stand, not as per-hop.
    let stands = up.ask(&["run", "-n", "10", "-c", "3"]);
    exits(&stands, 0)?;
    counts(&stands, &[10, 10, 10, 10])?;
    check(stands.report()?["processes"][0]["owned"] == false, || {
        stands.stdout.clone()
    })?;
    let put = up.ask(&["run", "per-hop", "-n", "5", "--expect", "inventory=135"]);
    exits(&put, 0)?;
    counts(&put, &[5, 15, 45, 135])?;
    let drawn = up.ask(&["run", "--fault", "fail:p=0.5", "-n", "40", "-c", "8", "--seed", "7"]);
    exits(&drawn, 0)?;
    check(drawn.report()?["seed"] == 7, || drawn.stdout.clone())?;
    let predicted = up.ask(&["predict", "--attempts", "4", "--fault", "fail"]);
    exits(&predicted, 0)?;
    check(predicted.report()?["bottom"]["worst"] == 64, || {
        predicted.stdout.clone()
    })?;
    let compared = up.ask(&["compare", "per-hop", "single-owner"]);
    exits(&compared, 0)?;
    let bottoms: Vec<_> = compared.report()?["runs"]
        .as_array()
        .ok_or("no runs")?
        .iter()
        .map(|run| run["services"][3]["received"].as_u64())
        .collect();
    check(bottoms == [Some(27), Some(3)], || format!("{bottoms:?}"))?;
    let wrong = up.ask(&["run", "web x3 > db down"]);
    exits(&wrong, 2)?;
    check(wrong.stderr.contains("frontend > checkout"), || wrong.stderr.clone())?;
    // What the runs put in force is gone again.
    let after = up.status()?;
    for (place, row) in before["services"].as_array().ok_or("no services")?.iter().enumerate() {
        for setting in ["attempts", "fault", "retry_on"] {
            let now = &after["services"][place][setting];
            check(*now == row[setting], || {
                format!("{setting}: {now}, was {}", row[setting])
            })?;
        }
    }
    Ok(())
}

fn by_hand() -> Result<(), Failed> {
    let chain = ByHand::start("fail", &[])?;
    let ran = run(&["run", "--attach", &chain.attach()]);
    exits(&ran, 0)?;
    counts(&ran, &[1, 3, 9, 27])?;
    let mut by_variable = command(&["call"]);
    let output = by_variable.env("RETRYSCOPE_ATTACH", chain.attach()).output()?;
    check(output.status.code() == Some(UNAVAILABLE), || {
        String::from_utf8_lossy(&output.stderr).into_owned()
    })?;
    chain.stop()
}

fn incomplete_chain() -> Result<(), Failed> {
    let chain = ByHand::start("none", &[])?;
    let attach = chain.attach();
    let without: Vec<_> = attach.split(',').filter(|pair| !pair.starts_with("pricing=")).collect();
    let ran = run(&["run", "--attach", &without.join(",")]);
    exits(&ran, 2)?;
    check(ran.stderr.contains("pricing"), || ran.stderr.clone())?;
    let swapped = attach.replace("pricing=", "pricer=");
    let ran = run(&["status", "--attach", &swapped]);
    exits(&ran, 2)?;
    check(ran.stderr.contains("pricer") && ran.stderr.contains("pricing"), || {
        ran.stderr.clone()
    })
}

fn nobody() -> Result<(), Failed> {
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let attach = format!("web=127.0.0.1:{free},db=127.0.0.1:{free}");
    for words in [&["call"][..], &["status"], &["fail"], &["run"]] {
        let ran = run(&[words, &["--attach", &attach]].concat());
        exits(&ran, 3)?;
        check(ran.stderr.contains(&free.to_string()), || ran.stderr.clone())?;
    }
    Ok(())
}

fn killed_service() -> Result<(), Failed> {
    let up = Up::of_four(&[])?;
    let pid = up.status()?["services"][3]["pid"].as_i64().ok_or("no pid")?;
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .ok_or("a pid")?;
    rustix::process::kill_process(pid, Signal::KILL)?;
    let ran = up.ask(&["call"]);
    exits(&ran, 3)?;
    check(ran.stderr.contains("inventory"), || ran.stderr.clone())?;
    let (exit, _) = up.leave()?;
    check(exit == Some(3), || format!("{exit:?}"))
}

fn token() -> Result<(), Failed> {
    let refused = command(&["service", "inventory"])
        .env("RETRYSCOPE_CONTROL_LISTEN", "0.0.0.0:0")
        .output()?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    check(
        refused.status.code() == Some(2) && said.contains("RETRYSCOPE_CONTROL_TOKEN"),
        || said.clone(),
    )?;
    let secret = "correct-horse";
    let chain = ByHand::start(
        "fail",
        &[
            ("RETRYSCOPE_CONTROL_TOKEN", secret),
            ("RETRYSCOPE_CONTROL_LISTEN", "0.0.0.0:0"),
        ],
    )?;
    let attach = chain.attach().replace("0.0.0.0", "127.0.0.1");
    let call = |token: Option<&str>| {
        let mut call = command(&["call", "--attach", &attach]);
        call.envs(token.map(|token| ("RETRYSCOPE_CONTROL_TOKEN", token)));
        call.output()
    };
    for wrong in [None, Some("wrong"), Some("correct-horsf"), Some("correct-hors")] {
        let output = call(wrong)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        check(output.status.code() == Some(2) && said.contains("token"), || {
            said.clone()
        })?;
    }
    let output = call(Some(secret))?;
    check(output.status.code() == Some(UNAVAILABLE), || {
        String::from_utf8_lossy(&output.stderr).into_owned()
    })?;
    // Health is what a container's check asks, and needs no secret.
    let control = attach.rsplit('=').next().unwrap_or_default().to_owned();
    exits(&run_plain(&["health", &control]), 0)
}

fn token_file() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("token");
    let made = |file: &Path| -> Result<String, Failed> {
        let output = Command::new(harness()).arg("token").arg(file).output()?;
        check(output.status.success(), || {
            String::from_utf8_lossy(&output.stderr).into_owned()
        })?;
        Ok(std::fs::read_to_string(file)?)
    };
    let first = made(&file)?;
    check(first.trim().len() == 64, || first.clone())?;
    check(made(&file)? == first, || "a second one was made".to_owned())?;
    check(made(&folder.path().join("other"))? != first, || "not random".to_owned())?;
    let ran = run_plain(&["token", "/nowhere/token"]);
    exits(&ran, 2)
}

fn stranger(python: &Path) -> Result<(), Failed> {
    let up = Up::of_four(&["--fault", "fail"])?;
    let entry = up.status()?["services"][0]["address"]
        .as_str()
        .ok_or("no address")?
        .parse()?;
    exits(&up.ask(&["call"]), UNAVAILABLE)?;
    let said = asked_with_stub(python, entry, &["retry", "1"])?;
    check(said.starts_with("stub UNAVAILABLE"), || said.clone())?;
    let status = up.status()?;
    let column = |key: &str| -> Vec<_> {
        let rows = status["services"].as_array().into_iter().flatten();
        rows.filter_map(|row| row[key].as_u64()).collect()
    };
    check(column("received") == [2, 6, 18, 54], || format!("{status:#}"))?;
    check(column("foreign") == [1, 3, 9, 27], || format!("{status:#}"))?;
    // A fault of each request counts it as one, with no path of ours.
    exits(&up.ask(&["fail", "fail:first=2"]), 0)?;
    let said = asked_with_stub(python, entry, &["offer", "teapot"])?;
    check(said.contains("stub offer") && said.contains("reflection offer"), || {
        said.clone()
    })?;
    let status = up.status()?;
    let now = status["generations"]
        .as_array()
        .and_then(|rows| rows.last())
        .ok_or("no settings")?;
    let received: Vec<_> = now["services"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| row["received"].as_u64())
        .collect();
    check(received == [2, 2, 2, 6], || format!("{now:#}"))?;
    check(status["mixed"]["operations"] == 0, || format!("{status:#}"))
}
