//! The program as people use it: every built-in scenario, wrong input, signals, places that cannot be written, a closed pipe.

use crate::support::{check, command, harness, run, run_plain, test};
use harness::scenario::{BUILT_IN, BuiltIn};
use libtest_mimic::{Failed, Trial};
use std::{
    io::{Read as _, Write as _},
    os::unix::fs::FileTypeExt as _,
    process::Stdio,
    time::{Duration, Instant},
};

pub fn tests() -> Vec<Trial> {
    vec![
        test(
            "usage::every_built_in_scenario_is_listed_and_comes_out_as_it_says",
            || {
                let listed = run_plain(&["scenarios"]).stdout;
                for built_in in BUILT_IN {
                    let BuiltIn { name, .. } = built_in;
                    check(listed.contains(&format!("\n{name} ")), || {
                        format!("{name} is not listed: {listed}")
                    })?;
                    // The tests of real Envoys run that one, where there are any.
                    if built_in.needs_envoy() {
                        continue;
                    }
                    let ran = run(&["run", name]);
                    let due = i32::from(built_in.exit_code());
                    check(ran.exit == due, || {
                        format!(
                            "{name}: exit {} instead of {due}: {}{}",
                            ran.exit, ran.stdout, ran.stderr
                        )
                    })?;
                }
                Ok(())
            },
        ),
        test("usage::the_workshop_takes_one_to_four_attempts", || {
            for attempts in 1..=4_u64 {
                let client = format!("client={attempts}");
                let nested = [
                    "run",
                    "nested-unavailable",
                    "--attempts-at",
                    &client,
                    "--attempts",
                    &attempts.to_string(),
                ]
                .map(str::to_owned);
                let ran = run(&nested);
                check(
                    ran.exit == 0 && ran.received() == [attempts, attempts * attempts],
                    || format!("nested {attempts}: {:?}", ran.received()),
                )?;
                let ran = run(&["run", "single-owner-unavailable", "--attempts-at", &client]);
                check(ran.exit == 0 && ran.received() == [attempts, attempts], || {
                    format!("single {attempts}: {:?}", ran.received())
                })?;
                for name in ["nested-invalid", "single-owner-invalid"] {
                    let ran = run(&["run", name, "--attempts-at", &client]);
                    check(ran.exit == 0 && ran.received() == [1, 1], || {
                        format!("{name} {attempts}: {:?}", ran.received())
                    })?;
                }
                for first in 0..=4_u64 {
                    let fault = format!("fail:first={first}");
                    let ran = run(&[
                        "run",
                        "single-owner-transient",
                        "--attempts-at",
                        &client,
                        "--fault",
                        &fault,
                    ]);
                    let sent = attempts.min(first + 1);
                    check(ran.exit == 0 && ran.received() == [sent, sent], || {
                        format!("{fault}, {attempts}: {:?}", ran.received())
                    })?;
                }
            }
            Ok(())
        }),
        test("usage::the_first_ctrl_c_settles_and_says_incomplete", || {
            // Until it falls into the middle of the load: when that begins is the machine's affair.
            for tenths in 1..30 {
                let interrupted = interrupted(&["INT"], Duration::from_millis(tenths * 100))?;
                let operations = &interrupted.report["operations"];
                let count = |key: &str| operations[key].as_u64().unwrap_or(0);
                check(interrupted.exit == Some(3), || {
                    format!("exit {:?}: {}", interrupted.exit, interrupted.stdout)
                })?;
                if interrupted.report.is_null() {
                    // It came while the services were still starting: nothing was measured, nothing is shown.
                    check(interrupted.stdout.is_empty(), || interrupted.stdout.clone())?;
                    continue;
                }
                check(interrupted.stdout.contains("INCOMPLETE"), || interrupted.stdout.clone())?;
                check(count("sent") + count("not_sent") == 100_000, || operations.to_string())?;
                if count("sent") > 0 {
                    // Everything that was sent was counted, and what was counted is whole.
                    let inventory = interrupted.report["services"][3]["received"].as_u64();
                    check(inventory == Some(count("sent")), || {
                        format!("{operations}, {inventory:?} at inventory")
                    })?;
                    let kinds = interrupted.report["reasons"].to_string();
                    return check(kinds.contains("interrupted") && !kinds.contains("spans"), || {
                        kinds.clone()
                    });
                }
            }
            Err("the load never began".into())
        }),
        test(
            "usage::the_second_ctrl_c_leaves_at_once_and_leaves_nothing_behind",
            || {
                // With a service stopped there is something to wait for after the first one.
                let interrupted = interrupted(&["INT", "INT"], Duration::from_secs(1))?;
                check(interrupted.exit == Some(130), || {
                    format!("exit {:?}: {}", interrupted.exit, interrupted.stdout)
                })?;
                check(interrupted.left.is_empty(), || {
                    format!("still there: {:?}", interrupted.left)
                })
            },
        ),
        test(
            "usage::a_place_that_cannot_be_written_is_refused_before_anything_starts",
            || {
                for place in ["/no/such/folder/report.json", "/"] {
                    let ran = run_plain(&["run", "--json", place]);
                    check(ran.exit == 2 && ran.stderr.contains(place), || {
                        format!("{place}: exit {}: {}", ran.exit, ran.stderr)
                    })?;
                    check(ran.stdout.is_empty(), || format!("{place}: {}", ran.stdout))?;
                }
                Ok(())
            },
        ),
        test("usage::a_full_disk_still_shows_what_was_measured", || {
            let ran = run_plain(&["run", "--json", "/dev/full"]);
            check(ran.exit == 3 && ran.stderr.contains("/dev/full"), || {
                format!("exit {}: {}", ran.exit, ran.stderr)
            })?;
            check(ran.stdout.starts_with("27 calls arrived"), || ran.stdout.clone())
        }),
        test("usage::text_that_cannot_be_written_is_no_success", || {
            let full = std::fs::OpenOptions::new().write(true).open("/dev/full")?;
            for arguments in [&["run"][..], &["predict"], &["scenarios"], &[]] {
                let output = command(arguments)
                    .stdout(full.try_clone()?)
                    .stderr(Stdio::piped())
                    .output()?;
                let said = String::from_utf8_lossy(&output.stderr);
                check(output.status.code() == Some(3) && said.contains("stdout"), || {
                    format!("{arguments:?}: {said}")
                })?;
            }
            Ok(())
        }),
        test("usage::a_pipe_that_nobody_reads_does_not_make_it_deaf", || {
            let folder = tempfile::tempdir()?;
            let pipe = folder.path().join("pipe");
            check(
                std::process::Command::new("mkfifo").arg(&pipe).status()?.success(),
                || "mkfifo".to_owned(),
            )?;
            let mut child = command(&["run", "--json"])
                .arg(&pipe)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            // Until it waits for a reader; then twice, as a person would.
            std::thread::sleep(Duration::from_secs(2));
            for _ in 0..2 {
                kill("INT", child.id())?;
                std::thread::sleep(Duration::from_millis(300));
            }
            let deadline = Instant::now() + Duration::from_secs(2);
            while child.try_wait()?.is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            let ended = child.try_wait()?;
            if ended.is_none() {
                child.kill()?;
                child.wait()?;
            }
            check(ended.is_some_and(|status| status.code() == Some(130)), || {
                format!("{ended:?}")
            })
        }),
        test("usage::devices_are_written_through", || {
            let ran = run_plain(&["run", "--json", "/dev/null"]);
            check(ran.exit == 0, || ran.stderr.clone())?;
            check(std::fs::metadata("/dev/null")?.file_type().is_char_device(), || {
                "/dev/null was replaced".to_owned()
            })
        }),
        test("usage::a_reader_who_leaves_early_is_a_quiet_end", || {
            let mut child = command(&["run"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            drop(child.stdout.take());
            let mut said = String::new();
            child.stderr.take().ok_or("stderr")?.read_to_string(&mut said)?;
            let status = child.wait()?;
            check(status.code() == Some(0) && said.is_empty(), || {
                format!("{status}: {said}")
            })
        }),
        test("usage::colour_only_where_it_is_wanted", || {
            let plain = run_plain(&["run"]).stdout;
            check(!plain.contains('\u{1b}'), || plain.clone())?;
            let coloured = run_plain(&["run", "--color", "always"]).stdout;
            check(coloured.contains('\u{1b}'), || coloured.clone())?;
            let stripped = strip(&coloured);
            check(stripped == plain, || format!("colour changes letters:\n{stripped}"))
        }),
        test("usage::lines_are_plain_ascii_and_fit_eighty_columns", || {
            for arguments in [
                &["run"][..],
                &["run", "refused"],
                &["run", "flaky"],
                &["predict"],
                &["predict", "flaky"],
                &["predict", "sidecars"],
                &["predict", "long-chain"],
                &["predict", "hidden-layer"],
                &["predict", "envoy-defaults"],
                &["scenarios"],
                &["compare", "per-hop", "single-owner"],
                &[],
            ] {
                let ran = run_plain(arguments);
                for line in ran.stdout.lines() {
                    // A path of the program longer than a line is the machine's, not ours.
                    let ours = line.replace(&harness().display().to_string(), "harness");
                    check(ours.is_ascii() && ours.len() <= 80, || {
                        format!("{arguments:?}: {line:?}")
                    })?;
                }
            }
            Ok(())
        }),
        test("usage::the_users_otel_variables_change_no_evidence", || {
            for (name, value) in [
                ("OTEL_TRACES_SAMPLER", "always_off"),
                ("OTEL_SERVICE_NAME", "x"),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,retryscope.run=y"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "1"),
                ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "0"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "a=b"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9"),
                ("OTEL_SDK_DISABLED", "true"),
                ("RETRYSCOPE_FAULT", "none"),
                ("http_proxy", "http://127.0.0.1:9"),
                ("RUST_LOG", "trace"),
            ] {
                let output = command(&["run"]).env(name, value).output()?;
                check(output.status.code() == Some(0), || {
                    format!("{name}={value}: {}", String::from_utf8_lossy(&output.stderr))
                })?;
            }
            Ok(())
        }),
        test("usage::a_variable_that_cannot_be_read_is_refused_by_name", || {
            for name in ["RETRYSCOPE_ATTACH", "RETRYSCOPE_TRACE_URL"] {
                let output = command(&["run"]).env(name, "x").output()?;
                let said = String::from_utf8_lossy(&output.stderr);
                check(output.status.code() == Some(2) && said.contains(name), || {
                    said.to_string()
                })?;
            }
            Ok(())
        }),
        test("usage::an_outside_collector_that_is_absent_changes_no_count", || {
            let ran = run(&["run", "--otlp", "http://127.0.0.1:9"]);
            check(ran.exit == 0, || format!("exit {}: {}", ran.exit, ran.stderr))?;
            check(
                ran.stderr.contains("127.0.0.1:9") && ran.stderr.matches("warning").count() == 1,
                || ran.stderr.clone(),
            )
        }),
        test("usage::the_users_collector_gets_the_traces_too_and_it_is_said", || {
            let output = command(&["run"])
                .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
                .output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            check(
                output.status.code() == Some(0) && said.contains("OTEL_EXPORTER_OTLP_ENDPOINT"),
                || said.to_string(),
            )
        }),
        test("usage::health_asks_a_service", || {
            let ran = run_plain(&["health", "127.0.0.1:9"]);
            check(ran.exit == 1 && ran.stderr.contains("127.0.0.1:9"), || {
                format!("exit {}: {}", ran.exit, ran.stderr)
            })?;
            let mut service = command(&["service", "inventory", "--until-stdin-closes"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let mut line = String::new();
            std::io::BufRead::read_line(
                &mut std::io::BufReader::new(service.stdout.take().ok_or("stdout")?),
                &mut line,
            )?;
            for port in ["service=", "control="] {
                let address = line
                    .split_whitespace()
                    .find_map(|word| word.strip_prefix(port))
                    .ok_or("no address")?;
                let ran = run_plain(&["health", address]);
                check(ran.exit == 0, || format!("{port}{address}: {}", ran.stderr))?;
            }
            drop(service.stdin.take());
            check(service.wait()?.success(), || {
                "the service did not end with its stdin".to_owned()
            })
        }),
        test("usage::saved_reports_are_compared_and_a_wrong_file_is_named", || {
            let folder = tempfile::tempdir()?;
            let saved = folder.path().join("saved.json").display().to_string();
            run_plain(&["run", "single-owner", "--json", &saved]);
            let ran = run_plain(&["compare", "per-hop", &saved]);
            check(
                ran.exit == 0 && ran.stdout.contains("27") && ran.stdout.contains("-24"),
                || format!("{}{}", ran.stdout, ran.stderr),
            )?;
            let mut file = std::fs::File::create(&saved)?;
            file.write_all(b"{\"schema\": \"something\"}")?;
            let ran = run_plain(&["compare", "per-hop", &saved]);
            check(ran.exit == 2 && ran.stderr.contains("saved.json"), || {
                format!("exit {}: {}", ran.exit, ran.stderr)
            })
        }),
        test(
            "usage::a_run_that_never_fits_its_deadline_is_refused_with_the_flag",
            || {
                let ran = run_plain(&["run", "--attempts", "22"]);
                check(ran.exit == 2 && ran.stderr.contains("--deadline none"), || {
                    format!("exit {}: {}", ran.exit, ran.stderr)
                })
            },
        ),
    ]
}

struct Interrupted {
    exit: Option<i32>,
    stdout: String,
    report: serde_json::Value,
    /// Services that outlived the harness by a second.
    left: Vec<u32>,
}

/// Sends signals to a long run, a third of a second apart. With more than one, a service is stopped before.
fn interrupted(signals: &[&str], after: Duration) -> Result<Interrupted, Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.json");
    let arguments = ["run", "--fault", "none", "-n", "100000", "-c", "4", "--json"];
    let child = command(&arguments)
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let up = Instant::now() + Duration::from_secs(20);
    while children(child.id()).len() < 4 {
        check(Instant::now() < up, || "four services never came up".to_owned())?;
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(after);
    let mut left = children(child.id());
    if let ([_, _, ..], Some(stopped)) = (signals, left.first()) {
        kill("STOP", *stopped)?;
    }
    for (position, signal) in signals.iter().enumerate() {
        if position > 0 {
            std::thread::sleep(Duration::from_millis(300));
        }
        kill(signal, child.id())?;
    }
    let output = child.wait_with_output()?;
    let report = std::fs::read(&file)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline && !left.is_empty() {
        left.retain(|pid| !matches!(state_and_parent(*pid), None | Some(('Z' | 'X', _))));
        std::thread::sleep(Duration::from_millis(5));
    }
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Interrupted {
        exit: output.status.code(),
        stdout,
        report,
        left,
    })
}

fn kill(signal: &str, pid: u32) -> Result<(), Failed> {
    let status = std::process::Command::new("kill")
        .args([format!("-{signal}"), pid.to_string()])
        .status()?;
    check(status.success(), || format!("{pid} had ended before {signal}"))
}

/// The processes that this one started.
fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| state_and_parent(*pid).is_some_and(|(_, above)| above == parent))
        .collect()
}

/// What the system says of a process: its state's letter and who started it.
fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// The text without colour.
fn strip(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            letters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(letter);
        }
    }
    plain
}
