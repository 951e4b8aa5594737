//! Real Envoys on the links: the same counts as our own proxies for whatever both can show, their statistics beside the ledger,
//! and what their own limit of three retries at once does under load.

use crate::support::{Ran, block_on, check, command, harness, repository, run, run_with, test_with};
use chassis::{
    config::{Callee, Config},
    policy::Policy,
};
use harness::{
    envoy::Envoy,
    fleet::Fleet,
    scenario::{BUILT_IN, Program, Role, Start},
};
use libtest_mimic::{Failed, Trial};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use std::path::{Path, PathBuf};

/// Random cases that both kinds of proxy are held to.
const CASES: usize = 80;

/// What a test does with an Envoy.
type Body = fn(&Path) -> Result<(), Failed>;

pub fn tests() -> Vec<Trial> {
    let tests: [(&str, Body); 8] = [
        ("three_hops_give_27_and_their_statistics_say_the_same", three_hops),
        ("three_hops_give_27_for_every_request_under_load", under_load),
        ("random_cases_come_out_as_with_our_own_proxies", random_cases),
        ("their_own_limit_refuses_retries_under_load_and_is_named", own_limit),
        ("code_and_envoys_multiply_to_729", code_and_proxies),
        ("the_built_in_scenarios_about_them_come_out", built_in),
        ("none_outlives_the_harness", none_outlives),
        (
            "one_that_nobody_declared_is_convicted_and_called_by_its_name",
            undeclared,
        ),
    ];
    let tests = tests.into_iter().map(|(name, body)| {
        test_with(
            program(),
            "Envoy",
            "tests/setup",
            &format!("envoy::{name}"),
            move |envoy| body(&envoy),
        )
    });
    tests.collect()
}

/// An Envoy, where one is installed.
pub fn program() -> Option<PathBuf> {
    let installed = repository().join("target/foreign/bin/envoy");
    installed
        .exists()
        .then_some(installed)
        .or_else(|| harness::envoy::find().ok())
}

/// Runs the program with this Envoy.
fn with(envoy: &Path, arguments: &[&str]) -> Ran {
    run_with(&[("RETRYSCOPE_ENVOY", envoy.as_os_str())], arguments)
}

const PROXIES: [&str; 4] = ["--attempts", "1", "--sidecar-attempts", "3"];

fn envoys<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["run", "--sidecar", "envoy"]
        .iter()
        .chain(&PROXIES)
        .chain(more)
        .copied()
        .collect()
}

fn three_hops(envoy: &Path) -> Result<(), Failed> {
    let ran = with(envoy, &envoys(&["--fault", "fail"]));
    check(ran.exit == 0, || {
        format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
    })?;
    check(ran.services() == [1, 3, 9, 27], || format!("{:?}", ran.services()))?;
    check(ran.rows("service", "traced") == [1, 3, 9, 27], || ran.stdout.clone())?;
    let statistic = |name: &str| ran.rows("sidecar", &format!("envoy/{name}"));
    for (name, counted) in [
        ("downstream_rq_total", [1, 3, 9]),
        ("upstream_rq_total", [3, 9, 27]),
        ("upstream_rq_retry", [2, 6, 18]),
        ("upstream_rq_retry_limit_exceeded", [1, 3, 9]),
        ("upstream_rq_retry_overflow", [0, 0, 0]),
    ] {
        check(statistic(name) == counted, || format!("{name}: {:?}", statistic(name)))?;
    }
    let traced = ran.service("pricing-proxy", "traced");
    check(traced.is_null(), || format!("{traced} spans of an Envoy"))
}

fn under_load(envoy: &Path) -> Result<(), Failed> {
    let load = ["--fault", "fail", "-n", "300", "-c", "30", "--deadline", "none"];
    let ran = with(envoy, &envoys(&load));
    check(ran.exit == 0, || {
        format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
    })?;
    check(ran.services() == [300, 900, 2_700, 8_100], || {
        format!("{:?}", ran.services())
    })
}

fn code_and_proxies(envoy: &Path) -> Result<(), Failed> {
    let arguments = [
        "run",
        "--sidecar",
        "envoy",
        "--sidecar-attempts",
        "3",
        "--fault",
        "fail",
    ];
    let ran = with(envoy, &arguments);
    check(ran.exit == 0, || {
        format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
    })?;
    check(ran.services() == [1, 9, 81, 729], || format!("{:?}", ran.services()))
}

/// One random case, without the kind of proxy.
fn case(random: &mut StdRng) -> Vec<String> {
    const FAULTS: [&str; 20] = [
        "fail",
        "fail:at=headers",
        "fail:at=after",
        "refuse",
        "reset",
        "goaway",
        "reset:of=stream",
        "http:status=503",
        "http:status=502",
        "http:status=500",
        "http:status=404",
        "http:status=200",
        "overload:capacity=0",
        "fail:code=CANCELLED",
        "fail:code=INTERNAL",
        "fail:code=RESOURCE_EXHAUSTED",
        "fail:code=DEADLINE_EXCEEDED",
        "fail:code=NOT_FOUND",
        "none",
        "fail:pushback=5",
    ];
    const CODES: [&str; 5] = [
        "UNAVAILABLE",
        "CANCELLED",
        "INTERNAL",
        "RESOURCE_EXHAUSTED",
        "DEADLINE_EXCEEDED",
    ];
    let pick = |random: &mut StdRng, from: &[&str]| (*from.choose(random).expect("not empty")).to_owned();
    let depth = random.random_range(1..=3);
    let mut arguments: Vec<String> = ["run", "--deadline", "none", "--depth"].map(str::to_owned).to_vec();
    arguments.push(depth.to_string());
    let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    flag("--attempts", random.random_range(1..=2).to_string());
    flag("--sidecar-attempts", random.random_range(2..=4).to_string());
    if random.random_bool(0.3) {
        flag(
            "--sidecar-attempts-at",
            format!("client={}", random.random_range(2..=3)),
        );
    }
    let mut fault = pick(random, &FAULTS);
    let first = random.random_bool(0.5) && !["none", "refuse", "overload:capacity=0"].contains(&fault.as_str());
    if first {
        let separator = if fault.contains(':') { ',' } else { ':' };
        fault = format!("{fault}{separator}first={}", random.random_range(1..=9));
    }
    flag("--fault", fault);
    if random.random_bool(0.5) {
        let codes: Vec<_> = CODES.iter().filter(|_| random.random_bool(0.5)).copied().collect();
        if !codes.is_empty() {
            flag("--retry-on", codes.join(","));
        }
    }
    if random.random_bool(0.4) {
        flag("--set", "retry.connect_failure=false".to_owned());
    }
    if random.random_bool(0.3) {
        flag("--set", "services.pricing.on_failure=UNAVAILABLE".to_owned());
    }
    flag("-n", random.random_range(1..=3).to_string());
    arguments
}

fn random_cases(envoy: &Path) -> Result<(), Failed> {
    let mut random = StdRng::seed_from_u64(27);
    for number in 1..=CASES {
        let case = case(&mut random);
        let of = |kind| {
            let arguments: Vec<_> = case.iter().map(String::as_str).chain(["--sidecar", kind]).collect();
            let ran = with(envoy, &arguments);
            check(ran.exit == 0, || {
                let reasons = ran.json.as_ref().map(|report| report["reasons"].to_string());
                format!(
                    "case {number}, {kind}: {case:?}: exit {}: {reasons:?} {}",
                    ran.exit, ran.stderr
                )
            })?;
            Ok::<_, Failed>(ran)
        };
        let (own, real) = (of("builtin")?, of("envoy")?);
        check(own.received() == real.received(), || {
            format!(
                "case {number}: {case:?}: {:?} with our own, {:?} with Envoys",
                own.received(),
                real.received()
            )
        })?;
        let codes = |ran: &Ran| ran.json.as_ref().map(|report| report["operations"]["by_code"].clone());
        check(codes(&own) == codes(&real), || {
            format!("case {number}: {case:?}: {:?} and {:?}", codes(&own), codes(&real))
        })?;
    }
    Ok(())
}

/// Requests at once, and arrivals a request at the bottom that three Envoys with their default of three retries at once stay
/// below, whatever the machine does: the more at once, the fewer.
const FALL: [(u32, u32, f64); 5] = [
    (2, 2, 27.0),
    (4, 4, 26.9),
    (10, 10, 15.0),
    (20, 20, 12.0),
    (400, 40, 7.6),
];

fn own_limit(envoy: &Path) -> Result<(), Failed> {
    for (requests, at_once, most) in FALL {
        let (requests, at_once_flag) = (requests.to_string(), at_once.to_string());
        let ran = with(
            envoy,
            &envoys(&[
                "--fault",
                "delay:ms=20+fail",
                "--set",
                "sidecars.max_retries=3",
                "--set",
                "sidecars.retry.backoff={initial=\"25ms\",multiplier=2.0,max=\"250ms\",jitter=\"full\"}",
                "--deadline",
                "none",
                "-n",
                &requests,
                "-c",
                &at_once_flag,
            ]),
        );
        check(ran.exit == 0, || {
            format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
        })?;
        let received = ran.services();
        let requests: f64 = requests.parse()?;
        let share = received.last().map_or(0.0, |bottom| *bottom as f64 / requests);
        check(share <= most && (at_once > 3 || share >= most), || {
            format!("{at_once} at once: {share} at the bottom a request, above {most}: {received:?}")
        })?;
        let refused: u64 = ran.rows("sidecar", "envoy/upstream_rq_retry_overflow").iter().sum();
        let named = ran.stdout.contains("upstream_rq_retry_overflow");
        check((refused > 0) == (at_once > 3) && named == (refused > 0), || {
            format!("{refused} retries refused:\n{}", ran.stdout)
        })?;
    }
    Ok(())
}

fn built_in(envoy: &Path) -> Result<(), Failed> {
    for built_in in BUILT_IN.iter().filter(|built_in| built_in.needs_envoy()) {
        let ran = with(envoy, &["run", built_in.name]);
        check(ran.exit == i32::from(built_in.exit_code()), || {
            format!("{}: exit {}: {}{}", built_in.name, ran.exit, ran.stdout, ran.stderr)
        })?;
    }
    Ok(())
}

fn none_outlives(envoy: &Path) -> Result<(), Failed> {
    use std::{
        process::Stdio,
        time::{Duration, Instant},
    };
    // One that is this test's own, so that no other test's Envoy is taken for it.
    let folder = tempfile::tempdir()?;
    let own: PathBuf = folder.path().join("envoy-of-this-test");
    std::os::unix::fs::symlink(real_program(envoy), &own)?;
    let running = || running(&own);
    let mut child = command(&envoys(&["--fault", "hang", "--deadline", "60s"]))
        .env("RETRYSCOPE_ENVOY", &own)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let began = Instant::now();
    // Three Envoys, and the harness's own word for them is not among their arguments.
    while running().len() < 3 {
        check(began.elapsed() < Duration::from_secs(20), || {
            "they never started".to_owned()
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait()?;
    let killed = Instant::now();
    while !running().is_empty() {
        check(killed.elapsed() < Duration::from_secs(5), || {
            format!("still there: {:?}", running())
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn undeclared(envoy: &Path) -> Result<(), Failed> {
    block_on(async {
        let start = |role: Role, callee: Option<Callee>| Start {
            program: Program::Service(role),
            config: Config {
                callee,
                ..Config::named(role.name())
            },
        };
        let inventory = Fleet::spawn(&harness(), vec![start(Role::Inventory, None)], None).await?;
        let forgotten = Config {
            callee: Some(Callee {
                name: "inventory".to_owned(),
                address: inventory.members[0].address.clone(),
            }),
            retry: harness::envoy::policy(&Policy {
                attempts: 4,
                ..Policy::default()
            }),
            ..Config::named("forgotten")
        };
        let (between, _child) = Envoy::spawn(&harness(), envoy, &forgotten).await?;
        let callee = Callee {
            name: "inventory".to_owned(),
            address: between.address.clone(),
        };
        let pricing = Fleet::spawn(&harness(), vec![start(Role::Pricing, Some(callee))], None).await?;
        let control = |fleet: &Fleet| fleet.members[0].control.to_string();
        let attach = format!("pricing={},inventory={}", control(&pricing), control(&inventory));
        let arguments = ["run", "--attach", &attach, "--attempts", "3", "--fault", "fail"];
        let ran = tokio::task::spawn_blocking({
            let arguments = arguments.map(str::to_owned);
            move || run(&arguments)
        });
        let ran = ran.await?;
        check(ran.exit == 1, || {
            format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
        })?;
        for said in [
            "12 calls arrived at inventory. 3 were predicted.",
            "Something between pricing and inventory makes 4 calls out of 1",
            "x-envoy-attempt-count ran 1 2 3 4: the layer is an Envoy",
        ] {
            check(ran.stdout.contains(said), || format!("{said}:\n{}", ran.stdout))?;
        }
        pricing.stop().await;
        inventory.stop().await;
        Ok(())
    })
}

/// The processes that this program is the first word of.
fn running(program: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    let program = program.to_string_lossy();
    lines.filter(|line| line.split('\0').next() == Some(&program)).collect()
}

/// The program itself, where `envoy` is the script of the Python package that starts it.
fn real_program(envoy: &Path) -> PathBuf {
    let package = repository().join("target/foreign/lib");
    let inside = std::fs::read_dir(package).into_iter().flatten().filter_map(Result::ok);
    let mut inside = inside.map(|entry| entry.path().join("site-packages/envoy/_bin/envoy"));
    inside.find(|path| path.is_file()).unwrap_or_else(|| envoy.to_owned())
}
