//! What the tests share: running the program, reading its reports, finding foreign parts.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Mutex,
};

/// The program under test.
pub fn harness() -> PathBuf {
    env!("CARGO_BIN_EXE_harness").into()
}

/// The top of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the harness lies in the repository")
        .to_owned()
}

/// What one run of the program gave.
pub struct Ran {
    /// Exit code.
    pub exit: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The JSON that `--json` wrote, if it did.
    pub json: Option<Value>,
}

/// Runs the program with `--json FILE` behind the arguments.
pub fn run<A: AsRef<OsStr>>(arguments: &[A]) -> Ran {
    run_with(&[], arguments)
}

/// The same with these variables.
pub fn run_with<A: AsRef<OsStr>>(variables: &[(&str, &OsStr)], arguments: &[A]) -> Ran {
    let folder = tempfile::tempdir().expect("a folder for the report");
    let file = folder.path().join("report.json");
    let output = command(arguments)
        .envs(variables.iter().copied())
        .arg("--json")
        .arg(&file)
        .output()
        .expect("the program runs");
    let mut ran = read(&output);
    ran.json = std::fs::read(&file)
        .ok()
        .map(|bytes| serde_json::from_slice(&bytes).expect("the report is JSON"));
    ran
}

/// Runs the program with these arguments alone.
pub fn run_plain<A: AsRef<OsStr>>(arguments: &[A]) -> Ran {
    read(&command(arguments).output().expect("the program runs"))
}

/// The program with these arguments and without what the user's environment may add.
pub fn command<A: AsRef<OsStr>>(arguments: &[A]) -> Command {
    let mut command = Command::new(harness());
    command.args(arguments).current_dir(repository());
    for (name, _) in std::env::vars_os() {
        // GitHub's: a test is no step, and writes no summary.
        let foreign = ["OTEL_", "RETRYSCOPE_", "GITHUB_"];
        if foreign.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    command
}

fn read(output: &Output) -> Ran {
    Ran {
        exit: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        json: None,
    }
}

impl Ran {
    /// The report.
    pub fn report(&self) -> Result<&Value, Failed> {
        self.json
            .as_ref()
            .ok_or_else(|| format!("no report; exit {}: {}", self.exit, self.stderr).into())
    }

    /// One figure of one service; `Null` when it is not there.
    pub fn service(&self, name: &str, key: &str) -> Value {
        let services = self.json.as_ref().and_then(|report| report["services"].as_array());
        let row = services.and_then(|rows| rows.iter().find(|row| row["service"] == name));
        row.map_or(Value::Null, |row| row[key].clone())
    }

    /// `received` of each service from the top, proxies left out.
    pub fn services(&self) -> Vec<u64> {
        self.rows("service", "received")
    }

    /// One figure of every row of a kind, from the top; a path such as `envoy/upstream_rq_retry` leads into it.
    pub fn rows(&self, kind: &str, path: &str) -> Vec<u64> {
        let rows = self.json.as_ref().and_then(|report| report["services"].as_array());
        let rows = rows.into_iter().flatten().filter(|row| row["kind"] == kind);
        rows.filter_map(|row| row.pointer(&format!("/{path}"))?.as_u64())
            .collect()
    }

    /// `received` of each service and proxy from the top.
    pub fn received(&self) -> Vec<u64> {
        let services = self.json.as_ref().and_then(|report| report["services"].as_array());
        services
            .into_iter()
            .flatten()
            .filter_map(|row| row["received"].as_u64())
            .collect()
    }
}

/// Fails with a sentence unless the condition holds.
pub fn check(holds: bool, sentence: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(sentence().into()) }
}

/// A test of this name.
pub fn test(name: &str, run: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    Trial::test(name.to_owned(), run)
}

/// Held by a test that uses the fixed ports of `up` and of the compose file.
pub static FIXED_PORTS: Mutex<()> = Mutex::new(());

static MISSING: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// A test that needs a foreign part: skipped, loudly, where it is missing.
pub fn test_with(
    part: Option<PathBuf>,
    part_name: &str,
    brings: &str,
    name: &str,
    run: impl FnOnce(PathBuf) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    if let Some(part) = part {
        return Trial::test(name.to_owned(), move || run(part));
    }
    let mut missing = MISSING.lock().expect("no test holds this while it fails");
    missing.push((format!("{part_name} ({name})"), brings.to_owned()));
    Trial::test(name.to_owned(), || Ok(())).with_ignored_flag(true)
}

/// The parts that were not found, with the command that brings each.
pub fn missing_parts() -> Vec<(String, String)> {
    MISSING.lock().expect("no test holds this while it fails").clone()
}

/// A runtime of one thread, as the program itself uses.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}
