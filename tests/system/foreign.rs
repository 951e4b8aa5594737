//! Foreign gRPC clients against a running chain: Python's grpcio asks health, reflection and the shop itself.

use crate::support::{block_on, check, harness, repository, test_with};
use chassis::config::Config;
use harness::{
    fleet::{Fleet, Start},
    lab::Lab,
    scenario::Role,
};
use libtest_mimic::{Failed, Trial};
use std::{path::PathBuf, process::Command};

pub fn tests() -> Vec<Trial> {
    let python = repository().join("target/foreign/bin/python");
    let has_grpcio = Command::new(&python)
        .args(["-c", "import grpc, grpc_health, grpc_reflection"])
        .output();
    let part = has_grpcio.is_ok_and(|output| output.status.success()).then_some(python);
    let name = "foreign::grpcio_finds_health_and_reflection_and_its_call_is_counted_and_those_are_not";
    vec![test_with(part, "Python's grpcio", "tests/setup", name, asked_by_grpcio)]
}

fn asked_by_grpcio(python: PathBuf) -> Result<(), Failed> {
    block_on(async {
        let starts = [Role::Pricing, Role::Inventory].map(|role| Start {
            role,
            config: Config::named(role.name()),
        });
        let fleet = Fleet::spawn(&harness(), starts.to_vec()).await?;
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
