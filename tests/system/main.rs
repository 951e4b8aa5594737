//! The whole house as processes: every test here runs the real program over real sockets.
//!
//! The runner can skip: a test whose foreign part is not installed says so by name, with the command that brings it, and counts
//! as skipped. The last line is `N passed, N failed, N skipped`.

// A test binary has no public face: `pub` here is between its own rooms. Each room is one list
// of tests, however long, and a runner prints what it found.
#![allow(unreachable_pub, clippy::too_many_lines, clippy::print_stdout)]

mod amplification;
mod cases;
mod chance;
mod compare;
mod compose;
mod damage;
mod envoy;
mod fan_out;
mod figures;
mod foreign;
mod formats;
mod hands_on;
mod kills;
mod live;
mod markdown;
mod policies;
mod property;
mod prove;
mod proxies;
mod readme;
mod sidecar;
mod support;
mod sweep;
mod telemetry;
mod usage;
mod walls;

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let groups: [Vec<Trial>; 25] = [
        // First: it wants the usual ports, and every connection that the others close keeps a port of its own for a minute.
        readme::tests(),
        walls::tests(),
        cases::tests(),
        usage::tests(),
        formats::tests(),
        figures::tests(),
        chance::tests(),
        compare::tests(),
        sweep::tests(),
        markdown::tests(),
        foreign::tests(),
        sidecar::tests(),
        telemetry::tests(),
        damage::tests(),
        kills::tests(),
        live::tests(),
        hands_on::tests(),
        policies::tests(),
        property::tests(),
        fan_out::tests(),
        proxies::tests(),
        prove::tests(),
        envoy::tests(),
        amplification::tests(),
        compose::tests(),
    ];
    let conclusion = libtest_mimic::run(&arguments, groups.into_iter().flatten().collect());
    for (name, command) in support::missing_parts() {
        println!("SKIPPED for want of {name}: run {command}");
    }
    let (passed, failed, skipped) = (conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored);
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    conclusion.exit_code()
}
