//! Our own proxies, chains longer than four, and layers that nobody declared.

use crate::{
    damage::{Tamper, damaged, relay},
    support::{Ran, check, run, test},
};
use harness::{
    report::{Report, Verdict},
    run::Hooks,
};
use libtest_mimic::{Failed, Trial};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

/// Random layers that nobody declared.
const HIDDEN: usize = 100;
/// Of them, those that are looked for while spans get lost.
const WITH_LOST_SPANS: usize = 25;
/// Random chains with proxies that hide nothing.
const DECLARED: usize = 120;

pub fn tests() -> Vec<Trial> {
    vec![
        test("proxies::code_and_proxies_multiply_to_729", || {
            let ran = predicted(&["run", "--sidecar-attempts", "3", "--fault", "fail"])?;
            check(ran.services() == [1, 9, 81, 729], || format!("{:?}", ran.services()))?;
            for (proxy, received) in [("frontend-proxy", 3), ("checkout-proxy", 27), ("pricing-proxy", 243)] {
                for key in ["received", "traced"] {
                    let got = ran.service(proxy, key);
                    check(got == received, || format!("{proxy} {key} {got}"))?;
                }
            }
            Ok(())
        }),
        test("proxies::depth_12_with_2_attempts_gives_4096", || {
            let ran = predicted(&[
                "run",
                "--depth",
                "12",
                "--attempts",
                "2",
                "--fault",
                "fail",
                "--deadline",
                "none",
            ])?;
            let doubled: Vec<u64> = (0..=12).map(|hop| 1 << hop).collect();
            check(ran.services() == doubled, || format!("{:?}", ran.services()))
        }),
        test("proxies::depth_12_with_3_attempts_gives_531441", || {
            let ran = predicted(&[
                "run",
                "--depth",
                "12",
                "--attempts",
                "3",
                "--fault",
                "fail",
                "--deadline",
                "none",
            ])?;
            let tripled: Vec<u64> = (0..=12).map(|hop| 3_u64.pow(hop)).collect();
            check(ran.services() == tripled, || format!("{:?}", ran.services()))?;
            check(ran.service("inventory", "traced") == 531_441, || ran.stdout.clone())
        }),
        test("proxies::a_hidden_layer_is_found_with_its_link_and_its_factor", hidden),
        test(
            "proxies::a_hidden_layer_is_found_while_spans_get_lost",
            hidden_with_lost_spans,
        ),
        test("proxies::none_is_found_where_none_is", none_hidden),
        test("proxies::two_hidden_layers_are_both_named", || {
            let ran = run(&[
                "run",
                "--fault",
                "fail",
                "--undeclared",
                "frontend=2",
                "--undeclared",
                "pricing=3",
            ]);
            check(ran.exit == 1, || format!("exit {}: {}", ran.exit, ran.stderr))?;
            for (to, factor) in [("checkout", 2.0), ("inventory", 3.0)] {
                check(self::factor(&ran, to) == Some(factor), || {
                    format!("{to}: {:?}", self::factor(&ran, to))
                })?;
            }
            for link in ["frontend and checkout", "pricing and inventory"] {
                check(ran.stdout.contains(link), || format!("{link}:\n{}", ran.stdout))?;
            }
            Ok(())
        }),
    ]
}

/// A run that comes out as predicted.
fn predicted(arguments: &[&str]) -> Result<Ran, Failed> {
    let ran = run(arguments);
    check(ran.exit == 0, || {
        let reasons = ran.json.as_ref().map(|report| report["reasons"].to_string());
        format!("{arguments:?}: exit {}: {} {reasons:?}", ran.exit, ran.stderr)
    })?;
    Ok(ran)
}

fn factor(ran: &Ran, to: &str) -> Option<f64> {
    let links = ran.json.as_ref()?["links"].as_array()?;
    links.iter().find(|link| link["to"] == to)?["factor"].as_f64()
}

/// A chain in which a layer hides.
struct Hiding {
    arguments: Vec<String>,
    /// The service whose link it sits on.
    to: String,
    attempts: u32,
}

fn random_hiding(random: &mut StdRng) -> Hiding {
    let depth = random.random_range(1..=4_usize);
    let names = harness::scenario::default_names(depth);
    let (bottom, callers) = names.split_last().expect("a chain has a bottom");
    let callers: Vec<&str> = std::iter::once("client")
        .chain(callers.iter().map(String::as_str))
        .collect();
    let place = random.random_range(0..callers.len());
    let attempts = random.random_range(2..=5);
    let mut arguments: Vec<String> = ["run", "--deadline", "none", "--depth"].map(str::to_owned).to_vec();
    arguments.push(depth.to_string());
    let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    flag("--attempts", random.random_range(1..=3).to_string());
    flag("--undeclared", format!("{}={attempts}", callers[place]));
    if random.random_bool(0.3) {
        let proxied = callers.choose(random).expect("there is the client");
        flag(
            "--sidecar-attempts-at",
            format!("{proxied}={}", random.random_range(2..=3)),
        );
    }
    let faults = ["fail", "fail", "http:status=503", "fail:at=after", "reset:of=stream"];
    flag("--fault", (*faults.choose(random).expect("not empty")).to_owned());
    flag("-n", random.random_range(1..=3).to_string());
    Hiding {
        to: names.get(place).unwrap_or(bottom).clone(),
        arguments,
        attempts,
    }
}

fn hidden() -> Result<(), Failed> {
    let mut random = StdRng::seed_from_u64(4);
    for number in 1..=HIDDEN - WITH_LOST_SPANS {
        let Hiding {
            arguments,
            to,
            attempts,
        } = random_hiding(&mut random);
        let ran = run(&arguments);
        check(ran.exit == 1, || {
            format!("{number}: {arguments:?}: exit {}: {}", ran.exit, ran.stderr)
        })?;
        let report: Report = serde_json::from_value(ran.report()?.clone())?;
        is_found(&report, &to, attempts).map_err(|error| format!("{number}: {arguments:?}: {error}"))?;
    }
    Ok(())
}

/// The verdict names this link with this factor, proves it by every attempt path, and leaves the other links alone.
fn is_found(report: &Report, to: &str, attempts: u32) -> Result<(), String> {
    let found = |holds: bool, what: &dyn std::fmt::Debug| if holds { Ok(()) } else { Err(format!("{what:?}")) };
    found(report.verdict == Verdict::NotAsPredicted, &report.reasons)?;
    let first = report.reasons.first().ok_or("no reason")?;
    found(
        first.kind == "link_surplus" && first.text.contains(&format!("> {to}")),
        first,
    )?;
    for link in &report.links {
        let factor = if link.to == to { f64::from(attempts) } else { 1.0 };
        found(link.factor == Some(factor), link)?;
        found(link.repeats.is_some() == (link.to == to), link)?;
        if let Some(repeats) = &link.repeats {
            let by_path = repeats.by_path.ok_or("no paths")?;
            let times = u64::from(attempts);
            found((by_path.least, by_path.most) == (times, times), repeats)?;
        }
    }
    Ok(())
}

fn hidden_with_lost_spans() -> Result<(), Failed> {
    let mut random = StdRng::seed_from_u64(5);
    for number in 1..=WITH_LOST_SPANS {
        let attempts: u32 = random.random_range(2..=5);
        let caller = *["client", "frontend", "checkout", "pricing"]
            .choose(&mut random)
            .expect("not empty");
        let hooks = Hooks {
            collector: Some(relay(Tamper::DropOne)),
            ..Hooks::default()
        };
        let report = damaged(&[&format!("undeclared.{caller}={attempts}")], hooks)?;
        let to = match caller {
            "client" => "frontend",
            "frontend" => "checkout",
            "checkout" => "pricing",
            _ => "inventory",
        };
        is_found(&report, to, attempts).map_err(|error| format!("{number}: {caller}={attempts}: {error}"))?;
        let lost = report.reasons.iter().any(|reason| reason.kind == "missing_spans");
        check(lost, || format!("{number}: {:?}", report.reasons))?;
    }
    Ok(())
}

fn none_hidden() -> Result<(), Failed> {
    let mut random = StdRng::seed_from_u64(6);
    for number in 1..=DECLARED {
        let mut hiding = random_hiding(&mut random);
        let flag = hiding
            .arguments
            .iter()
            .position(|word| word == "--undeclared")
            .expect("it has one");
        hiding.arguments.drain(flag..flag + 2);
        let mut with_proxies = hiding.arguments.clone();
        with_proxies.extend(["--sidecar-attempts".to_owned(), random.random_range(1..=3).to_string()]);
        let ran = run(&with_proxies);
        check(ran.exit == 0, || {
            let reasons = ran.json.as_ref().map(|report| report["reasons"].to_string());
            format!(
                "{number}: {with_proxies:?}: exit {}: {} {reasons:?}",
                ran.exit, ran.stderr
            )
        })?;
    }
    Ok(())
}
