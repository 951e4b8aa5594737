//! The headline under load: every one of 40,000 arrivals counted, received and traced.

use crate::support::{check, run, test};
use libtest_mimic::Trial;

pub fn tests() -> Vec<Trial> {
    vec![test(
        "amplification::a_thousand_requests_at_once_fifty_are_exact_ten_times_in_a_row",
        || {
            for round in 1..=10 {
                let ran = run(&["run", "--fault", "fail", "-n", "1000", "-c", "50"]);
                let report = ran.report()?;
                let reasons = &report["reasons"];
                check(ran.exit == 0, || {
                    format!("round {round}: exit {}: {} {reasons}", ran.exit, ran.stderr)
                })?;
                let expected = [
                    ("frontend", 1_000),
                    ("checkout", 3_000),
                    ("pricing", 9_000),
                    ("inventory", 27_000),
                ];
                for (service, count) in expected {
                    for key in ["received", "traced"] {
                        let got = ran.service(service, key);
                        check(got == count, || {
                            format!("round {round}: {service} {key} {got}, wanted {count}")
                        })?;
                    }
                }
            }
            Ok(())
        },
    )]
}
