//! The README is true: its commands run, its screens are what comes out, its scenario file is read.

use crate::{
    hands_on::Up,
    support::{FIXED_PORTS, check, command, harness, repository, run_plain, test},
    telemetry::{interrupt, until},
};
use harness::scenario::{BUILT_IN, BuiltIn};
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// Longest wait for ports that connections have left behind (TCP's TIME-WAIT takes 60 s on Linux).
const PORTS_FREE: Duration = Duration::from_secs(180);
/// Longest wait for a chain to stand.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn tests() -> Vec<Trial> {
    vec![
        test("readme::every_command_block_runs", every_command),
        test("readme::the_first_screen_is_what_comes_out", || {
            let blocks = blocks("text")?;
            let shown = run_plain(&["--color", "never"]).stdout;
            let shown: Vec<_> = shown.lines().collect();
            let first = blocks.first().ok_or("no screen in the README")?;
            for line in first.lines().filter(|line| !line.is_empty()) {
                check(shown.contains(&line), || {
                    format!("{line:?} does not come out:\n{}", shown.join("\n"))
                })?;
            }
            Ok(())
        }),
        test("readme::the_predictions_are_what_comes_out", || {
            let blocks = blocks("text")?;
            for (begins, arguments) in [
                ("27 calls will arrive", &["predict"][..]),
                (
                    "3 layers can retry",
                    &["predict", "--rate", "40", "--capacity", "500", "--budget", "10"],
                ),
            ] {
                let block = blocks.iter().find(|block| block.starts_with(begins));
                let block = block.ok_or_else(|| format!("no screen in the README begins with {begins:?}"))?;
                let shown = run_plain(arguments).stdout;
                for line in block.lines() {
                    check(shown.lines().any(|known| known == line), || {
                        format!("{line:?} does not come out:\n{shown}")
                    })?;
                }
            }
            Ok(())
        }),
        test("readme::every_row_of_the_table_can_be_typed", || {
            let text = readme()?;
            let rows: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("| ")).collect();
            let typed: Vec<_> = rows
                .iter()
                .filter_map(|row| row.split('`').find(|cell| cell.starts_with("harness ")))
                .collect();
            check(typed.len() >= 6, || format!("only {typed:?}"))?;
            for line in typed {
                if line == "harness up" {
                    stays_up(line)?;
                    continue;
                }
                // An outside collector is the user's own; without one the run is the same, and says so.
                in_a_shell(line)?;
            }
            Ok(())
        }),
        test("readme::the_scenario_file_is_one", || {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("single-owner.toml");
            std::fs::write(&file, blocks("toml")?.first().ok_or("no scenario in the README")?)?;
            let ran = run_plain(&["run".as_ref(), file.as_os_str()]);
            check(ran.exit == 0 && ran.stdout.starts_with("3 calls arrived"), || {
                format!("{}{}", ran.stdout, ran.stderr)
            })
        }),
        test("readme::every_file_it_names_is_there", || {
            let text = readme()?;
            let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for link in links.filter(|link| !link.contains("://")) {
                check(repository().join(link).exists(), || format!("{link} is not there"))?;
            }
            Ok(())
        }),
        test("readme::the_page_on_tower_names_tests_that_exist", || {
            let page = std::fs::read_to_string(repository().join("harness/docs/why-not-tower-retry.md"))?;
            let tests = std::fs::read_to_string(repository().join("services/chassis/tests/why_not_tower_retry.rs"))?;
            let named: Vec<_> = page
                .split('`')
                .filter(|word| word.contains('_') && !word.contains([':', '/', ' ', '.']))
                .collect();
            let named: Vec<_> = named.into_iter().filter(|word| word.split('_').count() > 3).collect();
            check(named.len() >= 4, || format!("the page names {named:?}"))?;
            for name in named {
                check(tests.contains(&format!("fn {name}()")), || format!("no test {name}"))?;
            }
            Ok(())
        }),
    ]
}

fn readme() -> Result<String, Failed> {
    Ok(std::fs::read_to_string(repository().join("README.md"))?)
}

/// The fenced blocks of one language.
fn blocks(language: &str) -> Result<Vec<String>, Failed> {
    let text = readme()?;
    let fenced = text.split("```").skip(1).step_by(2);
    let of_language = fenced.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n').map(str::to_owned));
    Ok(of_language.collect())
}

/// Runs what stays up as it is typed, on its own ports, and drives it as it is typed.
fn stays_up(line: &str) -> Result<(), Failed> {
    let _ports = FIXED_PORTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let until_free = Instant::now() + PORTS_FREE;
    loop {
        match driven(line) {
            // The usual ports lie where the system takes ports from for any connection. One that was closed holds its port
            // for a minute.
            Err(complaint) if complaint.contains("cannot be had") && Instant::now() < until_free => {
                std::thread::sleep(Duration::from_millis(500));
            }
            Err(complaint) => return Err(complaint.into()),
            Ok(()) => return Ok(()),
        }
    }
}

fn driven(line: &str) -> Result<(), String> {
    let said = |error: std::io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(said)?;
    let [output, complaint] = ["output", "complaint"].map(|name| folder.path().join(name));
    let read = |file: &Path| std::fs::read_to_string(file).unwrap_or_default();
    let arguments: Vec<_> = line.split(' ').skip(1).collect();
    let mut up = command(&arguments)
        .stdout(std::fs::File::create(&output).map_err(said)?)
        .stderr(std::fs::File::create(&complaint).map_err(said)?)
        .spawn()
        .map_err(said)?;
    let _ = until(PATIENCE, "the chain stands", || {
        matches!(up.try_wait(), Ok(Some(_))) || read(&output).contains("Ctrl-C")
    });
    let call = run_plain(&["call"]);
    interrupt(&up, Signal::INT);
    let left = until(PATIENCE, "up leaves", || matches!(up.try_wait(), Ok(Some(_))));
    let status = up.wait().map_err(said)?;
    let all = format!("{}{}{}", call.stdout, call.stderr, read(&complaint));
    if call.exit == 0 && status.success() && left.is_ok() {
        Ok(())
    } else {
        Err(format!("{status}, call exits {}: {all}", call.exit))
    }
}

/// The words that drive a chain which is up.
const DRIVERS: [&str; 5] = ["call", "fail", "heal", "retry", "status"];

fn every_command() -> Result<(), Failed> {
    let blocks = blocks("console")?;
    let commands: Vec<_> = blocks
        .iter()
        .flat_map(|block| block.lines())
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    check(commands.len() >= 6, || format!("only {commands:?}"))?;
    let up = Up::of_four(&[])?;
    for line in commands {
        match line {
            line if line.split(' ').nth(1).is_some_and(|word| DRIVERS.contains(&word)) => {
                let words: Vec<_> = line.split(' ').skip(1).collect();
                let ran = up.ask(&words);
                // A failed call says with which code.
                let is_failed_call = words[0] == "call" && ran.exit > 64;
                check(ran.exit == 0 || is_failed_call, || format!("{line}: {}", ran.stderr))?;
            }
            // This very test runs under the second one, and the first builds what is tested here.
            "cargo run --release" => {
                let ran = run_plain::<&str>(&[]);
                check(ran.exit == 0, || format!("{line}: {}", ran.stderr))?;
            }
            "cargo test --workspace" => {
                let ci = std::fs::read_to_string(repository().join(".ci/run"))?;
                check(ci.lines().any(|ci_line| ci_line == line), || {
                    format!(".ci/run does not run {line}")
                })?;
            }
            line => in_a_shell(line)?,
        }
    }
    Ok(())
}

/// Runs a line in a shell, with the program under test in place of the installed one.
fn in_a_shell(line: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let program = harness();
    let rest = line
        .strip_prefix("target/release/harness")
        .or_else(|| line.strip_prefix("harness"))
        .ok_or("not our program")?;
    let mut shell = command::<&str>(&[]);
    let environment: Vec<_> = shell
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    shell = std::process::Command::new("sh");
    shell
        .args(["-c", &format!("'{}'{rest}", program.display())])
        .current_dir(folder.path());
    for (name, value) in environment {
        if value.is_none() {
            shell.env_remove(name);
        }
    }
    let output = shell.output()?;
    // A scenario may be about something that is found, and ends so.
    let found = BUILT_IN
        .iter()
        .find(|built_in| line.ends_with(&format!(" {}", built_in.name)));
    let wanted = found.map_or(0, BuiltIn::exit_code);
    check(output.status.code() == Some(wanted.into()), || {
        format!("{line}: {}", String::from_utf8_lossy(&output.stderr))
    })
}
