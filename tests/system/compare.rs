//! Runs side by side: what stands beside what, and what was done in vain.

use crate::support::{Ran, check, run, run_plain, test};
use libtest_mimic::Trial;

pub fn tests() -> Vec<Trial> {
    vec![
        test("compare::every_figure_is_a_row_and_every_run_a_column", || {
            let ran = run(&["compare", "per-hop", "single-owner", "transient"]);
            check(ran.exit == 0, || format!("{}{}", ran.stdout, ran.stderr))?;
            for row in [
                "predicted 27 3 3",
                "received 27 3 3",
                "against run 1 -24 -24",
                "traced 27 3 3",
                "at all services 40 10 6",
                "work in vain 40 10 2",
                "requests OK 0 0 1",
                "requests failed 1 1 0",
                "AS PREDICTED AS PREDICTED AS PREDICTED",
            ] {
                check(has_row(&ran, row), || format!("{row}\n{}", ran.stdout))?;
            }
            let times = ran
                .stdout
                .lines()
                .filter(|line| line.starts_with("median") || line.starts_with("99th"));
            check(
                times.filter(|line| line.matches(" ms").count() == 3).count() == 2,
                || ran.stdout.clone(),
            )?;
            check(ran.stdout.lines().all(|line| line.len() <= 80), || ran.stdout.clone())
        }),
        test("compare::work_in_vain_is_what_no_answer_needed", || {
            for (words, due) in [
                (&["run"][..], [40, 0, 40]),
                (&["run", "transient"], [6, 4, 2]),
                (&["run", "--fault", "none", "-n", "5"], [20, 20, 0]),
                (&["run", "refused"], [13, 0, 13]),
                // The proxies pass on what the services do: 1 + 2 + 4 + 8 at the services.
                (&["run", "--attempts", "1", "--sidecar-attempts", "2"], [15, 0, 15]),
            ] {
                let ran = run(words);
                let work = &ran.report()?["work"];
                let found = ["arrivals", "needed", "in_vain"].map(|key| work[key].as_u64());
                check(found == due.map(Some), || format!("{words:?}: {work}"))?;
            }
            Ok(())
        }),
        test("compare::a_hidden_layer_is_named_with_its_link", || {
            let ran = run(&["compare", "per-hop", "hidden-layer"]);
            check(ran.exit == 1, || format!("exit {}", ran.exit))?;
            let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            check(
                text.contains("Not as predicted: run 2.")
                    && text.contains("Something between pricing and inventory makes 4 calls out of 1"),
                || ran.stdout.clone(),
            )
        }),
        test("compare::a_report_from_before_work_was_counted_is_still_read", || {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("old.json");
            let mut report = run(&["run", "single-owner"]).report()?.clone();
            report.as_object_mut().ok_or("a report")?.remove("work");
            std::fs::write(&file, report.to_string())?;
            let ran = run_plain(&["compare", "per-hop", file.to_str().ok_or("a path")?]);
            check(ran.exit == 0 && has_row(&ran, "work in vain 40 -"), || {
                format!("{}{}", ran.stdout, ran.stderr)
            })
        }),
        test("compare::one_scenario_twice_is_told_apart", || {
            let ran = run_plain(&["compare", "per-hop", "per-hop"]);
            check(ran.stdout.contains("\n2   as run 1, once more, begun "), || {
                ran.stdout.clone()
            })
        }),
    ]
}

/// Whether a line has these words, whatever stands between them.
fn has_row(ran: &Ran, row: &str) -> bool {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    ran.stdout.lines().any(|line| words(line) == row)
}
