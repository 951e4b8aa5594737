//! Foreign gRPC clients against a running chain: Python's grpcio asks health, reflection and the shop itself, and calls through a
//! stub that it generates from `proto/`.

use crate::{
    support::{block_on, check, command, harness, repository, test_with},
    telemetry::{interrupt, until},
};
use chassis::{
    config::Config,
    process::{Announcement, UNTIL_STDIN_CLOSES},
};
use harness::{
    fleet::Fleet,
    lab::Lab,
    scenario::{Program, Role, Start},
};
use libtest_mimic::{Failed, Trial};
use proto::lab::v1::{ReadRequest, Totals, ledger_client::LedgerClient};
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tonic::transport::Endpoint;

/// Longest wait for a service to leave.
const LEAVING: Duration = Duration::from_secs(10);

pub fn tests() -> Vec<Trial> {
    let python = repository().join("target/foreign/bin/python");
    let has_grpcio = Command::new(&python)
        .args(["-c", "import grpc, grpc_health, grpc_reflection"])
        .output();
    let part = has_grpcio.is_ok_and(|output| output.status.success()).then_some(python);
    let name = "foreign::grpcio_finds_health_and_reflection_and_its_call_is_counted_and_those_are_not";
    let with_stub = |name, run: fn(&Path) -> Result<(), Failed>| {
        let part = python_with(&["grpc_reflection", "grpc_tools"]);
        test_with(
            part,
            "Python's grpcio with grpcio-tools",
            "tests/setup",
            name,
            move |python| run(&python),
        )
    };
    vec![
        test_with(part, "Python's grpcio", "tests/setup", name, asked_by_grpcio),
        with_stub(
            "foreign::a_generated_stub_and_reflection_alone_get_the_same_offer",
            same_offer,
        ),
        with_stub(
            "foreign::three_attempts_of_grpcio_make_81_of_27",
            three_attempts_of_grpcio,
        ),
    ]
}

/// Where pip put the foreign packages.
pub fn site_packages() -> Option<PathBuf> {
    let folders = std::fs::read_dir(repository().join("target/foreign/lib")).ok()?;
    let mut packages = folders.flatten().map(|folder| folder.path().join("site-packages"));
    packages.find(|folder| folder.is_dir())
}

/// The foreign Python, where it has all these packages.
pub fn python_with(packages: &[&str]) -> Option<PathBuf> {
    let folder = site_packages()?;
    let has_all = packages.iter().all(|package| folder.join(package).is_dir());
    has_all.then(|| repository().join("target/foreign/bin/python"))
}

/// What `tests/foreign/stub.py` prints when it calls the service at this address.
pub fn asked_with_stub(python: &Path, address: SocketAddr, arguments: &[&str]) -> Result<String, Failed> {
    let output = Command::new(python)
        .arg(repository().join("tests/foreign/stub.py"))
        .arg(repository().join("proto"))
        .arg(address.to_string())
        .args(arguments)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    check(output.status.success(), || {
        format!("{said}{}", String::from_utf8_lossy(&output.stderr))
    })?;
    Ok(said)
}

/// The four services, started without a fleet, as anyone could from a shell: by the environment, leaves first. Killed with this
/// handle.
pub struct ByHand {
    children: Vec<Child>,
    /// Where each of them listens; both lists go from the bottom to the top.
    announced: Vec<Announcement>,
}

/// How a service is told that its time is over.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// By a signal.
    Signal(Signal),
    /// Its standard input ends, as when the harness is gone.
    StdinCloses,
}

impl ByHand {
    /// Three attempts at every caller, this fault at inventory, and these settings at all of them.
    pub fn start(fault: &str, settings: &[(&str, &str)]) -> Result<Self, Failed> {
        let mut chain = Self {
            children: Vec::new(),
            announced: Vec::new(),
        };
        for name in ["inventory", "pricing", "checkout", "frontend"] {
            let mut service = command(&["service", name, UNTIL_STDIN_CLOSES]);
            service
                .env("RETRYSCOPE_ATTEMPTS", "3")
                .envs(settings.iter().copied())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            if let Some(below) = chain.announced.last() {
                service
                    .env("RETRYSCOPE_CALLEE", &below.service)
                    .env("RETRYSCOPE_CALLEE_ADDRESS", below.address.to_string());
            } else {
                service.env("RETRYSCOPE_FAULT", fault);
            }
            let mut child = service.spawn()?;
            let output = child.stdout.take().ok_or("no output")?;
            // Kept before it is read, so that it is killed whatever it says.
            chain.children.push(child);
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line)?;
            let announced = line.parse().map_err(|()| format!("{name} announced {line:?}"))?;
            chain.announced.push(announced);
        }
        Ok(chain)
    }

    /// What `--attach` takes.
    pub fn attach(&self) -> String {
        let pairs: Vec<_> = self
            .announced
            .iter()
            .map(|announced| format!("{}={}", announced.service, announced.control))
            .collect();
        pairs.join(",")
    }

    /// The frontend's service port.
    pub fn entry(&self) -> SocketAddr {
        self.announced[self.announced.len() - 1].address
    }

    /// What each service counted, from the top.
    fn totals(&self) -> Result<Vec<Totals>, Failed> {
        block_on(async {
            let mut all = Vec::new();
            for announced in self.announced.iter().rev() {
                let channel = Endpoint::from_shared(format!("http://{}", announced.control))?.connect_lazy();
                all.push(
                    LedgerClient::new(channel)
                        .read(ReadRequest::default())
                        .await?
                        .into_inner(),
                );
            }
            Ok(all)
        })
    }

    /// Sends one request in, as any client could; whether it is answered is its own matter.
    pub fn ask(&self) -> Result<(), Failed> {
        let address = format!("http://{}", self.entry());
        block_on(async {
            let channel = Endpoint::from_shared(address)?.connect().await?;
            let request = proto::shop::v1::GetOfferRequest {
                item: "teapot".to_owned(),
            };
            let mut client = proto::shop::v1::frontend_client::FrontendClient::new(channel);
            let _ = client.get_offer(request).await;
            Ok(())
        })
    }

    /// Ends all in this way, the top first, and waits until they are gone.
    pub fn end(mut self, way: Way) -> Result<(), Failed> {
        for child in self.children.iter_mut().rev() {
            match way {
                Way::Signal(signal) => interrupt(child, signal),
                Way::StdinCloses => drop(child.stdin.take()),
            }
            until(LEAVING, "the service leaves", || {
                matches!(child.try_wait(), Ok(Some(_)))
            })?;
        }
        Ok(())
    }

    /// Asks all to leave, which exports their last spans, and waits until they are gone.
    pub fn stop(self) -> Result<(), Failed> {
        self.end(Way::Signal(Signal::TERM))
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have left already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn same_offer(python: &Path) -> Result<(), Failed> {
    let chain = ByHand::start("none", &[])?;
    let said = asked_with_stub(python, chain.entry(), &["offer", "teapot"])?;
    let offers: BTreeMap<_, _> = said.lines().filter_map(|line| line.split_once(" offer ")).collect();
    let (stub, reflection) = (offers.get("stub"), offers.get("reflection"));
    check(stub.is_some() && stub == reflection, || said.clone())?;
    let offer: serde_json::Value = serde_json::from_str(stub.copied().unwrap_or_default())?;
    check(offer["item"] == "teapot" && offer["price"].as_u64() > Some(0), || {
        format!("not what the shop shows: {offer}")
    })?;
    for totals in chain.totals()? {
        check(totals.received == 2, || format!("{totals:?}"))?;
    }
    Ok(())
}

fn three_attempts_of_grpcio(python: &Path) -> Result<(), Failed> {
    let received = |chain: &ByHand| -> Result<Vec<u64>, Failed> {
        Ok(chain.totals()?.iter().map(|totals| totals.received).collect())
    };
    let once = ByHand::start("fail", &[])?;
    let said = asked_with_stub(python, once.entry(), &["retry", "1"])?;
    check(said.starts_with("stub UNAVAILABLE"), || said.clone())?;
    let counts = received(&once)?;
    check(counts == [1, 3, 9, 27], || format!("{counts:?}"))?;

    let chain = ByHand::start("fail", &[])?;
    let said = asked_with_stub(python, chain.entry(), &["retry", "3"])?;
    check(said.starts_with("stub UNAVAILABLE"), || said.clone())?;
    let counts = received(&chain)?;
    check(counts == [3, 9, 27, 81], || format!("{counts:?}"))?;
    // The frontend reads from grpcio's own metadata which attempt it has before it.
    let frontend = chain.totals()?.swap_remove(0);
    let attempts: BTreeMap<_, _> = frontend.arrivals.iter().map(|row| (row.attempt, row.count)).collect();
    check(attempts == BTreeMap::from([(1, 1), (2, 1), (3, 1)]), || {
        format!("{frontend:?}")
    })
}

fn asked_by_grpcio(python: PathBuf) -> Result<(), Failed> {
    block_on(async {
        let starts = [Role::Pricing, Role::Inventory].map(|role| Start {
            program: Program::Service(role),
            config: Config::named(role.name()),
        });
        let fleet = Fleet::spawn(&harness(), starts.to_vec(), None).await?;
        let address = fleet.members[0].address.to_string();
        let script = repository().join("tests/foreign/ask.py");
        let output = tokio::process::Command::new(python)
            .arg(script)
            .arg(&address)
            .output()
            .await?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        check(output.status.success(), || {
            format!("{said}{}", String::from_utf8_lossy(&output.stderr))
        })?;
        for wanted in [
            "health : SERVING",
            "health shop.v1.Pricing: SERVING",
            "health nobody: NOT_FOUND",
            "reflection v1 shop.v1.Pricing",
            "reflection v1alpha shop.v1.Pricing",
            "price teapot",
        ] {
            check(said.contains(wanted), || format!("{wanted:?} is not in:\n{said}"))?;
        }
        // Health and reflection are never counted; the one call is, as a request of its own.
        for member in &fleet.members {
            let totals = Lab::of(member).totals().await?;
            check(totals.received == 1 && totals.foreign == 1, || {
                format!("{}: {totals:?}", member.name)
            })?;
        }
        fleet.stop().await;
        Ok(())
    })
}
