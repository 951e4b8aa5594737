//! A chain that stays up: switched while it works, called by several, followed apart. The harness's own rooms are used
//! directly here, so that hundreds of sequences take seconds; the same through the command line stands in `hands_on`.

use crate::support::{check, harness, test};
use chassis::config::Config;
use harness::{
    attach::Attach,
    fleet::Fleet,
    lab::Token,
    report::{Report, Status, Verdict},
    run::{self, Attached, Hooks, Options, Ran},
    scenario::{Change, DEFAULT_MAX_CALLS, Overrides, Scenario},
    standing::Standing,
    status,
};
use libtest_mimic::{Failed, Trial};
use proto::shop::v1::{GetOfferRequest, frontend_client::FrontendClient};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use std::{
    collections::BTreeMap,
    future::Future,
    thread,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Random sequences, and how many of them one chain serves.
const SEQUENCES: u64 = 200;
const PER_CHAIN: u64 = 25;
/// Steps of one sequence.
const STEPS: usize = 6;
/// Longest wait for a chain to come to rest, or for a driver to send something.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn tests() -> Vec<Trial> {
    vec![
        test(
            "live::200_random_sequences_of_switches_and_calls_keep_every_total_exact_and_every_generation_apart",
            || {
                // Two chains side by side, as many as there are cores on a small machine.
                let halves = [0, 1].map(|half| {
                    thread::spawn(move || {
                        (0..SEQUENCES / PER_CHAIN)
                            .filter(|chain| chain % 2 == half)
                            .try_for_each(|chain| block_on(sequences(chain)).map_err(|failed| format!("{failed:?}")))
                    })
                });
                for half in halves {
                    half.join().map_err(|_| "a chain panicked")??;
                }
                Ok(())
            },
        ),
        test("live::requests_of_two_runs_at_once_are_told_apart", || {
            block_on(two_runs_at_once())
        }),
        test(
            "live::two_runs_that_put_different_faults_never_judge_each_others",
            || block_on(two_faults_at_once()),
        ),
        test(
            "live::a_fault_of_the_process_that_others_share_leaves_no_verdict",
            || block_on(shared_fault()),
        ),
        test("live::a_run_puts_its_settings_and_takes_them_back", || {
            block_on(a_run_takes_its_settings_back())
        }),
        test("live::a_driver_that_is_killed_leaves_nothing_behind", || {
            block_on(a_killed_driver())
        }),
    ]
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work)
}

/// A chain of the four services that stays up for a test.
struct Chain {
    fleet: Fleet,
    attach: Attach,
}

impl Chain {
    async fn up(overrides: &Overrides) -> Result<Self, Failed> {
        let scenario = Scenario::load(Some("per-hop"), overrides)?;
        let configs: Vec<Config> = scenario.configs().split_off(1);
        let fleet = Fleet::spawn(&harness(), scenario.starts(configs), None).await?;
        let attach = fleet.attach();
        Ok(Self { fleet, attach })
    }

    async fn standing(&self) -> Result<Standing, Failed> {
        Ok(Standing::find(&self.attach, &Token::default()).await?)
    }

    /// Puts settings in force, as `fail`, `heal` and `retry` do.
    async fn switch(&self, overrides: Overrides) -> Result<(), Failed> {
        let mut standing = self.standing().await?;
        let before = standing.configs();
        let change = Change {
            source: None,
            overrides,
        };
        let after = change.of(&Scenario::standing(&before)?)?.configs().split_off(1);
        let settings = standing.differences(&after);
        standing.switch(&settings).await?;
        Ok(())
    }

    async fn status(&self) -> Result<Status, Failed> {
        Ok(status::read(&self.standing().await?, None).await?)
    }

    async fn down(self) {
        self.fleet.stop().await;
    }
}

/// Runs what stands, with flags on top.
async fn attached(attach: Attach, overrides: Overrides) -> Result<Ran, Failed> {
    let standing = Standing::find(&attach, &Token::default()).await?;
    let change = Change {
        source: None,
        overrides,
    };
    let scenario = change.of(&Scenario::standing(&standing.configs())?)?;
    let options = Options {
        program: harness(),
        max_calls: DEFAULT_MAX_CALLS,
        forward: None,
        expectations: Vec::new(),
        interrupt: watch::channel(false).1,
        progress: watch::channel(0).0,
        hooks: Hooks::default(),
        attached: Some(Attached { standing, flag: None }),
        viewer: None,
    };
    Ok(run::run(&scenario, options).await?)
}

/// The same on a thread of its own: a client's spans go by thread.
fn beside(attach: Attach, overrides: Overrides) -> thread::JoinHandle<Result<Ran, String>> {
    thread::spawn(move || block_on(attached(attach, overrides)).map_err(|failed| format!("{failed:?}")))
}

fn received(report: &Report) -> Vec<u64> {
    report.services.iter().map(|row| row.received.unwrap_or(0)).collect()
}

fn as_predicted(report: &Report) -> Result<(), Failed> {
    check(report.verdict == Verdict::AsPredicted, || {
        format!("{:?}: {:?}, {:?}", report.chain, report.reasons, received(report))
    })
}

/// What is expected to have arrived at each service, by generation; 0 stands for the mixed ones.
type Expected = BTreeMap<u64, Vec<u64>>;

fn add(expected: &mut Expected, generation: u64, received: &[u64]) {
    let row = expected.entry(generation).or_insert_with(|| vec![0; received.len()]);
    row.iter_mut()
        .zip(received)
        .for_each(|(row, received)| *row += received);
}

async fn sequences(chain: u64) -> Result<(), Failed> {
    let up = Chain::up(&Overrides::default()).await?;
    let mut random = StdRng::seed_from_u64(chain);
    let mut expected = Expected::new();
    for sequence in 0..PER_CHAIN {
        for _ in 0..STEPS {
            step(&up, &mut random, &mut expected)
                .await
                .map_err(|failed| format!("chain {chain}, sequence {sequence}: {failed:?}"))?;
        }
        hold(&up.status().await?, &expected)
            .map_err(|failed| format!("chain {chain}, sequence {sequence}: {failed:?}"))?;
    }
    up.down().await;
    Ok(())
}

async fn step(up: &Chain, random: &mut StdRng, expected: &mut Expected) -> Result<(), Failed> {
    match random.random_range(0..8) {
        0 | 1 => up.switch(fail(random)).await,
        2 => up.switch(healed()).await,
        3 => up.switch(retry(random)).await,
        4 => {
            let standing = up.standing().await?;
            if standing.configs().iter().any(|config| config.fault.is_drawn()) {
                return Ok(());
            }
            let predicted = predicted(&standing)?;
            stranger(up).await?;
            add(expected, standing.generation(), &predicted);
            settled(up).await
        }
        5 => call_while_switching(up, random, expected).await,
        _ => {
            let ran = attached(up.attach.clone(), Overrides::default()).await?;
            as_predicted(&ran.report)?;
            let generation = ran.generation.ok_or("no generation")?;
            add(expected, generation, &received(&ran.report));
            Ok(())
        }
    }
}

fn fail(random: &mut StdRng) -> Overrides {
    let faults = [
        "fail",
        "fail:first=1",
        "fail:first=2",
        "fail:first=2,scope=process",
        "fail:p=0.5",
        "fail:code=NOT_FOUND",
        "fail:at=after",
        "refuse",
    ];
    let services = ["checkout", "pricing", "inventory", "inventory"];
    let fault = faults[random.random_range(0..faults.len())].parse().expect("a fault");
    let service = services[random.random_range(0..services.len())].to_owned();
    Overrides {
        faults: vec![(Some(service), fault)],
        ..Overrides::default()
    }
}

fn healed() -> Overrides {
    let services = ["frontend", "checkout", "pricing", "inventory"];
    let none = |service: &str| (Some(service.to_owned()), chassis::fault::Fault::NONE.into());
    Overrides {
        faults: services.into_iter().map(none).collect(),
        ..Overrides::default()
    }
}

fn retry(random: &mut StdRng) -> Overrides {
    let caller = ["frontend", "checkout", "pricing"][random.random_range(0..3)];
    Overrides {
        attempts_at: vec![(caller.to_owned(), random.random_range(1..=3))],
        ..Overrides::default()
    }
}

/// What one request will leave at each service.
fn predicted(standing: &Standing) -> Result<Vec<u64>, Failed> {
    let scenario = Scenario::standing(&standing.configs())?;
    let client = scenario.configs().remove(0);
    let services: Vec<_> = standing
        .services
        .iter()
        .map(|service| harness::plan::as_it_stands(service.described.config.clone(), service.described.seen))
        .collect();
    let topology = harness::plan::topology(&client, &services, &scenario.load);
    let prediction = model::predict(&topology, model::Draws::Forecast);
    let counts = prediction.services.iter().map(|service| {
        let received = &service.received;
        check(received.min == received.max, || format!("{received:?} is not exact"))?;
        Ok(received.max.to_string().parse()?)
    });
    counts.collect()
}

/// Somebody else's request, without a path of ours.
async fn stranger(up: &Chain) -> Result<(), Failed> {
    let address = format!("http://{}", up.fleet.members[0].address);
    let channel = tonic::transport::Channel::from_shared(address)?.connect().await?;
    let mut client = FrontendClient::new(channel);
    let request = GetOfferRequest {
        item: "teapot".to_owned(),
    };
    // Whether it is answered depends on the settings; what it leaves is counted.
    let _ = client.get_offer(request).await;
    Ok(())
}

/// Waits until nothing is in flight.
async fn settled(up: &Chain) -> Result<(), Failed> {
    let began = Instant::now();
    while up.status().await?.services.iter().any(|service| service.in_flight > 0) {
        check(began.elapsed() < PATIENCE, || "something stays in flight".to_owned())?;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// A call that takes its time, and a switch somewhere in it.
async fn call_while_switching(up: &Chain, random: &mut StdRng, expected: &mut Expected) -> Result<(), Failed> {
    let backoff = r#"retry.backoff={ initial = "5ms", multiplier = 1, max = "5ms", jitter = "none" }"#;
    up.switch(healed()).await?;
    let slow = Overrides {
        set: ["frontend", "checkout", "pricing"]
            .map(|caller| format!("services.{caller}.{backoff}"))
            .to_vec(),
        faults: vec![(None, "fail".parse().expect("a fault"))],
        ..Overrides::default()
    };
    up.switch(slow).await?;
    let before = up.status().await?;
    let call = beside(up.attach.clone(), Overrides::default());
    tokio::time::sleep(Duration::from_millis(random.random_range(0..60))).await;
    up.switch(fail(random)).await?;
    let ran = call.join().map_err(|_| "the call panicked")?;
    let plain = Overrides {
        set: ["frontend", "checkout", "pricing"]
            .map(|caller| format!("services.{caller}.retry.backoff=\"none\""))
            .to_vec(),
        ..healed()
    };
    let ran = match ran {
        Ok(ran) => ran,
        // The switch came before the first request: nothing was sent, and the call says why.
        Err(error) if error.contains("Contended") || error.contains("switching") => return up.switch(plain).await,
        Err(error) => return Err(error.into()),
    };
    let after = up.status().await?;
    let report = &ran.report;
    if report.operations.mixed == 0 {
        let closed = report.reasons.iter().any(|reason| reason.kind == "transport_errors");
        if !closed {
            as_predicted(report)?;
        }
        add(expected, ran.generation.ok_or("no generation")?, &received(report));
    } else {
        // Nobody judges it, and nothing of it is lost: either it met both settings, or the later ones alone.
        check(report.verdict == Verdict::Incomplete, || {
            format!("{:?}", report.verdict)
        })?;
        let met_both = after.mixed.operations - before.mixed.operations;
        check(met_both <= 1, || format!("{:?}, then {:?}", before.mixed, after.mixed))?;
        let generation = if met_both == 1 { 0 } else { after.generation };
        add(expected, generation, &received(report));
    }
    up.switch(plain).await
}

/// Every total is the sum of what is told apart, and each part is what was expected.
fn hold(status: &Status, expected: &Expected) -> Result<(), Failed> {
    for (place, service) in status.services.iter().enumerate() {
        let counted = |generation: u64| {
            let row = status.generations.iter().find(|row| row.generation == generation);
            row.map_or(0, |row| row.services[place].received)
        };
        let wanted = |generation: u64| expected.get(&generation).map_or(0, |row| row[place]);
        for row in &status.generations {
            let (counted, wanted) = (counted(row.generation), wanted(row.generation));
            check(counted == wanted, || {
                format!(
                    "settings {}: {counted} arrivals at {}, expected {wanted}",
                    row.generation, service.service
                )
            })?;
        }
        let mixed = status.mixed.services[place].received;
        check(mixed == wanted(0), || {
            format!("mixed: {mixed} arrivals at {}, expected {}", service.service, wanted(0))
        })?;
        let sum: u64 = status.generations.iter().map(|row| counted(row.generation)).sum();
        check(service.received == sum + mixed && service.in_flight == 0, || {
            format!(
                "{}: {} in all, {sum} told apart, {mixed} mixed",
                service.service, service.received
            )
        })?;
    }
    check(status.mixed.complete, || "records were given up".to_owned())
}

async fn two_runs_at_once() -> Result<(), Failed> {
    let up = Chain::up(&Overrides::default()).await?;
    let many = |requests| Overrides {
        requests: Some(requests),
        concurrency: Some(4),
        ..Overrides::default()
    };
    let runs = [40, 30, 20].map(|requests| (requests, beside(up.attach.clone(), many(requests))));
    for (requests, run) in runs {
        let ran = run.join().map_err(|_| "a run panicked")??;
        as_predicted(&ran.report)?;
        let wanted = [1, 3, 9, 27].map(|each| each * requests);
        check(received(&ran.report) == wanted, || {
            format!("{:?}", received(&ran.report))
        })?;
    }
    let status = up.status().await?;
    let all: Vec<_> = status.services.iter().map(|service| service.received).collect();
    check(all == [90, 270, 810, 2430], || format!("{all:?}"))?;
    up.down().await;
    Ok(())
}

/// Each ends with the counts of its own fault, or without a verdict.
async fn two_faults_at_once() -> Result<(), Failed> {
    let up = Chain::up(&Overrides::default()).await?;
    for _ in 0..6 {
        let runs = [("fail:first=1", 2), ("fail:first=2", 3)].map(|(fault, each)| {
            let overrides = Overrides {
                faults: vec![(None, fault.parse().expect("a fault"))],
                requests: Some(30),
                concurrency: Some(4),
                ..Overrides::default()
            };
            (each, beside(up.attach.clone(), overrides))
        });
        for (each, run) in runs {
            match run.join().map_err(|_| "a run panicked")? {
                Ok(ran) if ran.report.verdict == Verdict::AsPredicted => {
                    let counts = received(&ran.report);
                    check(counts[3] == 30 * each, || format!("{counts:?}, {each} each"))?;
                }
                Ok(ran) => check(ran.report.verdict == Verdict::Incomplete, || {
                    format!("{:?}: {:?}", ran.report.verdict, ran.report.reasons)
                })?,
                Err(error) => check(error.contains("switching") || error.contains("Contended"), || {
                    error.clone()
                })?,
            }
        }
    }
    up.down().await;
    Ok(())
}

async fn shared_fault() -> Result<(), Failed> {
    let up = Chain::up(&Overrides::default()).await?;
    let backoff = r#"retry.backoff={ initial = "20ms", multiplier = 1, max = "20ms", jitter = "none" }"#;
    up.switch(Overrides {
        faults: vec![(None, "fail:first=20,scope=process".parse().expect("a fault"))],
        set: vec![format!("services.pricing.{backoff}")],
        ..Overrides::default()
    })
    .await?;
    let run = beside(up.attach.clone(), Overrides::default());
    while up.status().await?.services[3].received == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stranger(&up).await?;
    let ran = run.join().map_err(|_| "the run panicked")??;
    check(ran.report.verdict == Verdict::Incomplete, || {
        format!("{:?}: {:?}", ran.report.verdict, received(&ran.report))
    })?;
    check(
        ran.report.reasons.iter().any(|reason| reason.kind == "shared_fault"),
        || format!("{:?}", ran.report.reasons),
    )?;
    up.down().await;
    Ok(())
}

async fn a_run_takes_its_settings_back() -> Result<(), Failed> {
    let up = Chain::up(&Overrides::default()).await?;
    let before = up.standing().await?.configs();
    let other = Overrides {
        attempts: Some(2),
        faults: vec![(None, "fail:first=1".parse().expect("a fault"))],
        ..Overrides::default()
    };
    let ran = attached(up.attach.clone(), other).await?;
    as_predicted(&ran.report)?;
    check(received(&ran.report) == [1, 1, 1, 2], || {
        format!("{:?}", received(&ran.report))
    })?;
    let after = up.standing().await?;
    check(after.configs() == before && after.generation() == 3, || {
        format!("settings {}: {:?}", after.generation(), after.configs())
    })?;
    up.down().await;
    Ok(())
}

/// Kills a program that follows requests; the services forget it, and serve the next one.
async fn a_killed_driver() -> Result<(), Failed> {
    let up = Chain::up(&Overrides::default()).await?;
    for _ in 0..3 {
        let mut driver = crate::support::command(&["run", "--attach"])
            .arg(up.attach.to_string())
            .args([
                "-n",
                "50000",
                "-c",
                "4",
                "--deadline",
                "none",
                "--max-calls",
                "10000000",
            ])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()?;
        let before = up.status().await?.services[3].received;
        let began = Instant::now();
        while up.status().await?.services[3].received == before {
            check(driver.try_wait()?.is_none(), || "the driver ended by itself".to_owned())?;
            check(began.elapsed() < PATIENCE, || "the driver sends nothing".to_owned())?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        driver.kill()?;
        driver.wait()?;
        settled(&up).await?;
        let ran = attached(up.attach.clone(), Overrides::default()).await?;
        as_predicted(&ran.report)?;
    }
    up.down().await;
    Ok(())
}
