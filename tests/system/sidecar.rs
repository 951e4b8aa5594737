//! The sidecar as a process between foreign programs: any service works through it as without it.

use crate::{
    foreign::python_with,
    support::{block_on, check, command, repository, test, test_with},
};
use chassis::process::{Announcement, UNTIL_STDIN_CLOSES};
use libtest_mimic::{Failed, Trial};
use proto::{
    lab::v1::{ReadRecordsRequest, ReadRequest, Record, Totals, ledger_client::LedgerClient},
    shop::v1::{GetStockRequest, inventory_client::InventoryClient},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};
use tonic::transport::{Channel, Endpoint};

/// Most memory that a sidecar may take while streams of 300 MB wait in front of a reader that has stopped: it holds about 2 MiB
/// of each, and this build of the program takes some 20 MiB by itself.
const SMALL_KIB: u64 = 80 * 1024;
/// What a stream of the test carries.
const STREAM: u64 = 4_800 * 65_536;

pub fn tests() -> Vec<Trial> {
    let with_grpcio = |name, run: fn(&Path) -> Result<(), Failed>| {
        let part = python_with(&["grpc"]);
        test_with(part, "Python's grpcio", "tests/setup", name, move |python| run(&python))
    };
    vec![
        with_grpcio(
            "sidecar::any_service_of_grpcio_is_the_same_through_one_proxy_and_through_two",
            |python| {
                let direct = seen(python, &[])?;
                same(&direct, &seen(python, &["proxy"])?, without_ours)?;
                same(&direct, &seen(python, &["proxy", "proxy"])?, without_ours)
            },
        ),
        with_grpcio(
            "sidecar::nothing_of_a_layer_that_nobody_declared_is_in_what_passes_it",
            |python| {
                same(
                    &seen(python, &[])?,
                    &seen(python, &["undeclared", "undeclared"])?,
                    |case| case,
                )
            },
        ),
        with_grpcio(
            "sidecar::a_service_in_the_middle_passes_what_is_ok_and_answers_failures_for_itself",
            |python| same(&seen(python, &[])?, &seen(python, &["service"])?, of_a_service),
        ),
        with_grpcio("sidecar::a_stream_waits_for_its_reader_in_constant_memory", streams),
        test(
            "sidecar::a_proxy_writes_its_attempts_into_the_path_and_a_hidden_layer_does_not",
            || {
                // Who brings no path gets one where he comes first: there his first attempt is 1.
                check_paths("proxy", &["1.1", "1.2", "1.3"], 1)?;
                check_paths("undeclared", &["1", "1", "1"], 3)
            },
        ),
    ]
}

/// A program of ours or a foreign one that has said where it listens. It lives as long as this.
struct Running {
    child: Child,
    said: String,
}

impl Running {
    fn start(mut program: Command) -> Result<Self, Failed> {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        // Made before the line is read, so that it is ended whatever it says.
        let mut running = Self {
            child,
            said: String::new(),
        };
        BufReader::new(output).read_line(&mut running.said)?;
        Ok(running)
    }

    /// One of our programs under these settings.
    fn ours(name: &str, settings: &[(&str, &str)]) -> Result<(Self, Announcement), Failed> {
        let mut program = command(&["service", name, UNTIL_STDIN_CLOSES]);
        program.envs(settings.iter().copied());
        let running = Self::start(program)?;
        let announced = running
            .said
            .parse()
            .map_err(|()| format!("{name} said {:?}", running.said))?;
        Ok((running, announced))
    }

    /// A sidecar in front of whoever is at this address, with three attempts.
    fn sidecar(layer: &str, callee: SocketAddr) -> Result<(Self, Announcement), Failed> {
        let settings = [
            ("RETRYSCOPE_LAYER", layer),
            ("RETRYSCOPE_ATTEMPTS", "3"),
            ("RETRYSCOPE_CALLEE", "anything"),
            ("RETRYSCOPE_CALLEE_ADDRESS", &callee.to_string()),
        ];
        Self::ours("sidecar", &settings)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have left already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn anything(python: &Path, arguments: &[&str]) -> Command {
    let mut script = Command::new(python);
    script
        .arg(repository().join("tests/foreign/anything.py"))
        .args(arguments);
    script
}

fn channel(address: SocketAddr) -> Result<Channel, Failed> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.connect_lazy())
}

fn totals(control: SocketAddr) -> Result<Totals, Failed> {
    block_on(async {
        let read = LedgerClient::new(channel(control)?)
            .read(ReadRequest::default())
            .await?;
        Ok(read.into_inner())
    })
}

type Cases = BTreeMap<String, Value>;

/// What grpcio's client saw of each case, and its server, with these layers between them. What the layers counted must fit.
fn seen(python: &Path, layers: &[&str]) -> Result<Cases, Failed> {
    let server = Running::start(anything(python, &["serve"]))?;
    let mut address: SocketAddr = server.said.trim().parse()?;
    let mut between = Vec::new();
    for layer in layers {
        let (running, announced) = Running::sidecar(layer, address)?;
        address = announced.address;
        between.push((*layer, running, announced));
    }
    let output = anything(python, &["call", &address.to_string()]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    check(output.status.success(), || {
        format!("{said}{}", String::from_utf8_lossy(&output.stderr))
    })?;
    let mut cases = Cases::new();
    for line in said.lines() {
        let case: Value = serde_json::from_str(line)?;
        cases.insert(case["case"].as_str().unwrap_or_default().to_owned(), case);
    }
    let calls = cases.remove("calls").and_then(|case| case["calls"].as_u64());
    for (layer, _, announced) in &between {
        if *layer != "undeclared" {
            check_counted(&totals(announced.control)?, calls)?;
        }
    }
    Ok(cases)
}

/// Every call was one arrival and one attempt: two of them failed behind the point of no return, and no other failure was one
/// that is tried again.
fn check_counted(totals: &Totals, calls: Option<u64>) -> Result<(), Failed> {
    let [link] = &totals.links[..] else {
        return Err(format!("{totals:?}").into());
    };
    let committed = link.not_retried.get("committed").copied();
    let counted = [Some(totals.received), Some(link.calls), Some(link.sent)];
    check(
        counted == [calls; 3] && totals.in_flight == 0 && committed == Some(2) && link.transport_errors == 0,
        || format!("{calls:?} calls, {totals:?}"),
    )
}

fn same(direct: &Cases, through: &Cases, compared: fn(Value) -> Value) -> Result<(), Failed> {
    check(direct.len() == 17 && direct.keys().eq(through.keys()), || {
        format!("{:?} and {:?}", direct.keys(), through.keys())
    })?;
    for (name, case) in direct {
        let (direct, through) = (compared(case.clone()), compared(through[name].clone()));
        check(direct == through, || {
            format!("{name}\ndirect:  {direct}\nthrough: {through}")
        })?;
    }
    Ok(())
}

/// A case without what a declared layer adds to the metadata.
fn without_ours(mut case: Value) -> Value {
    if let Some(said) = case["said"].as_object_mut() {
        said.remove("ours");
    }
    case
}

/// What is left of a case behind a service: of a failure nothing but its code.
fn of_a_service(case: Value) -> Value {
    if case["code"] == "OK" || case["code"] == "CANCELLED" {
        return without_ours(case);
    }
    case["code"].clone()
}

fn streams(python: &Path) -> Result<(), Failed> {
    let server = Running::start(anything(python, &["serve"]))?;
    let (sidecar, announced) = Running::sidecar("proxy", server.said.trim().parse()?)?;
    let output = anything(python, &["slow", &announced.address.to_string()]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = || format!("{said}{}", String::from_utf8_lossy(&output.stderr));
    check(output.status.success(), failed)?;
    let told = |word: &str| -> Vec<u64> {
        let lines = said.lines().filter_map(|line| line.strip_prefix(word));
        lines.filter_map(|number| number.trim().parse().ok()).collect()
    };
    check(told("read") == [STREAM; 2], failed)?;
    let stuck = told("stuck");
    check(stuck.len() == 2 && stuck.iter().all(|made| *made < STREAM / 4), || {
        format!("the readers did not stop: {said}")
    })?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", sidecar.child.id()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak.unwrap_or_default().trim().trim_end_matches(" kB").parse()?;
    check(peak < SMALL_KIB, || format!("at its peak it took {peak} KiB"))
}

/// One call through a layer with three attempts to an inventory that is down: the paths that arrive there, and how many of the
/// requests are strangers'.
fn check_paths(layer: &str, paths: &[&str], foreign: u64) -> Result<(), Failed> {
    let (_inventory, below) = Running::ours("inventory", &[("RETRYSCOPE_FAULT", "fail")])?;
    let (_sidecar, above) = Running::sidecar(layer, below.address)?;
    let (code, records): (_, Vec<Record>) = block_on(async {
        let asked = GetStockRequest {
            item: "teapot".to_owned(),
        };
        let answer = InventoryClient::new(channel(above.address)?).get_stock(asked).await;
        let mut ledger = LedgerClient::new(channel(below.control)?);
        let mut batches = ledger.read_records(ReadRecordsRequest::default()).await?.into_inner();
        let mut records = Vec::new();
        while let Some(batch) = batches.message().await? {
            records.extend(batch.records);
        }
        Ok::<_, Failed>((answer.err().map(|status| status.code()), records))
    })?;
    let mut arrived: Vec<_> = records.iter().map(|record| record.path.as_str()).collect();
    arrived.sort_unstable();
    let totals = totals(below.control)?;
    let fits = arrived == paths && code == Some(tonic::Code::Unavailable) && totals.received == 3;
    let requests: std::collections::BTreeSet<_> = records.iter().map(|record| record.request).collect();
    check(fits && requests.len() as u64 == foreign, || {
        format!("{layer}: {code:?} {records:?}")
    })
}
