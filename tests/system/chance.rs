//! Drawn faults: a rerun repeats them, another seed draws others, and the model replays them.

use crate::support::{check, run, test};
use libtest_mimic::Trial;

pub fn tests() -> Vec<Trial> {
    vec![
        test("chance::a_rerun_draws_the_same_whatever_the_order_of_arrival", || {
            let arguments = |concurrency: &'static str, seed: &'static str| {
                [
                    "run",
                    "--fault",
                    "fail:p=0.5",
                    "-n",
                    "300",
                    "-c",
                    concurrency,
                    "--seed",
                    seed,
                ]
            };
            let one = run(&arguments("1", "7")).received();
            check(one == run(&arguments("16", "7")).received(), || {
                "the order of arrival changed a draw".to_owned()
            })?;
            check(one != run(&arguments("1", "8")).received(), || {
                "another seed drew the same".to_owned()
            })
        }),
        test(
            "chance::the_prediction_of_a_run_is_the_replayed_count_and_its_mean_the_closed_form",
            || {
                let ran = run(&["run", "--fault", "fail:p=0.3", "-n", "500", "-c", "8"]);
                check(ran.exit == 0, || format!("exit {}: {}", ran.exit, ran.stderr))?;
                let predicted = ran.service("inventory", "predicted");
                check(
                    predicted["kind"] == "exact" && predicted["min"] == predicted["max"],
                    || predicted.to_string(),
                )?;
                check(predicted["min"] == ran.service("inventory", "received"), || {
                    predicted.to_string()
                })?;
                // One bottom service that fails with p and 27 attempts in all: (1 - p^27) / (1 - p).
                let mean = 500.0 * (1.0 - 0.3_f64.powi(27)) / 0.7;
                let close = predicted["mean"]
                    .as_f64()
                    .is_some_and(|got| (got - mean).abs() < 1e-6 * mean);
                check(close, || format!("mean {}, wanted {mean}", predicted["mean"]))
            },
        ),
        test("chance::two_services_that_draw_do_not_draw_alike", || {
            let ran = run(&[
                "run",
                "--attempts",
                "1",
                "--fault",
                "pricing=fail:p=0.5",
                "--fault",
                "fail:p=0.5",
                "-n",
                "400",
            ]);
            check(ran.exit == 0, || format!("exit {}: {}", ran.exit, ran.stderr))?;
            let ok = ran.report()?["operations"]["ok"].as_u64().unwrap_or(0);
            // Independent draws leave about 100 of 400; equal draws would leave about 200 or 0. 50 to 160 is beyond 1e-7.
            check((50..=160).contains(&ok), || format!("{ok} of 400 got through"))
        }),
    ]
}
