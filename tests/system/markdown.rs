//! Results as Markdown, on stdout and in the summary of a CI job.

use crate::support::{check, command, run_plain, test};
use libtest_mimic::{Failed, Trial};
use std::path::Path;

pub fn tests() -> Vec<Trial> {
    vec![
        test("markdown::every_result_is_a_heading_a_table_and_a_command", || {
            for (words, heading, command) in [
                (&["run"][..], "### 27 calls arrived at inventory", "harness run per-hop"),
                (
                    &["predict"],
                    "### 27 calls will arrive at inventory",
                    "harness predict per-hop",
                ),
                (
                    &["compare", "per-hop", "single-owner"],
                    "### 27 and 3 calls arrived at inventory",
                    "harness run single-owner",
                ),
                (
                    &["sweep", "--over", "attempts=1..3"],
                    "### 1 to 27 calls arrived at inventory",
                    "harness sweep --over attempts=1..3",
                ),
            ] {
                let ran = run_plain(&[words, &["--format", "markdown"]].concat());
                let lines: Vec<_> = ran.stdout.lines().collect();
                check(ran.exit == 0 && ran.stdout.starts_with(heading), || {
                    format!("{words:?}: {}{}", ran.stdout, ran.stderr)
                })?;
                check(lines.iter().any(|line| line.starts_with("| ---")), || {
                    ran.stdout.clone()
                })?;
                check(lines.contains(&command) && lines.last() == Some(&"```"), || {
                    ran.stdout.clone()
                })?;
            }
            Ok(())
        }),
        test("markdown::what_was_asked_for_cannot_end_the_fence", || {
            let ran = run_plain(&[
                "run",
                "--item",
                "```\n# heading",
                "--fault",
                "none",
                "--format",
                "markdown",
            ]);
            let lines: Vec<_> = ran.stdout.lines().collect();
            let opened = lines
                .iter()
                .find(|line| line.ends_with("sh") && line.starts_with("```"));
            let ticks = opened.ok_or("no fence")?.trim_end_matches("sh");
            check(lines.last() == Some(&ticks) && ran.exit == 0, || ran.stdout.clone())?;
            check(!lines.iter().any(|line| line.starts_with("# ")), || ran.stdout.clone())
        }),
        test("markdown::a_step_of_actions_gets_a_page_behind_those_it_has", || {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("summary.md");
            std::fs::write(&file, "what was there\n")?;
            let mut pages = vec!["what was there".to_owned()];
            for (words, heading) in [
                (
                    &["run", "--expect", "12"][..],
                    "### 27 calls arrived at inventory for 1 request, as predicted.",
                ),
                (
                    &["compare", "per-hop", "single-owner"],
                    "### 27 and 3 calls arrived at inventory for 1 request.",
                ),
                (
                    &["sweep", "--over", "attempts=1..2"],
                    "### 1 to 8 calls arrived at inventory for 1 request",
                ),
                (&[], "### 27 and 3 calls arrived at inventory for 1 request."),
            ] {
                let before = in_actions(words, None)?.0;
                let (exit, complaint) = in_actions(words, Some(&file))?;
                check(exit == before && complaint.is_empty(), || {
                    format!("{words:?}: {exit}: {complaint}")
                })?;
                pages.push(heading.to_owned());
                let text = std::fs::read_to_string(&file)?;
                let found: Vec<_> = text
                    .lines()
                    .filter(|line| line.starts_with("### ") || *line == "what was there")
                    .collect();
                let alike = found.len() == pages.len()
                    && found
                        .iter()
                        .zip(&pages)
                        .all(|(found, due)| found.starts_with(due.as_str()));
                check(alike, || text.clone())?;
            }
            // A prediction is no result of a job.
            in_actions(&["predict"], Some(&file))?;
            let text = std::fs::read_to_string(&file)?;
            check(
                text.matches("### ").count() == 4 && text.contains("You expected 12."),
                || text.clone(),
            )
        }),
        test("markdown::a_summary_that_cannot_be_written_is_a_warning", || {
            let folder = tempfile::tempdir()?;
            let (exit, complaint) = in_actions(&["run"], Some(folder.path()))?;
            check(
                exit == 0 && complaint.starts_with("warning: ") && complaint.contains("GITHUB_STEP_SUMMARY"),
                || format!("{exit}: {complaint}"),
            )
        }),
        test("markdown::outside_of_actions_no_summary_is_written", || {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("summary.md");
            let output = command(&["run"]).env("GITHUB_STEP_SUMMARY", &file).output()?;
            check(output.status.success() && !file.exists(), || format!("{output:?}"))
        }),
    ]
}

/// Exit code and standard error of a run within GitHub's Actions.
fn in_actions(words: &[&str], summary: Option<&Path>) -> Result<(i32, String), Failed> {
    let mut command = command(words);
    command.env("GITHUB_ACTIONS", "true");
    if let Some(file) = summary {
        command.env("GITHUB_STEP_SUMMARY", file);
    }
    let output = command.output()?;
    Ok((
        output.status.code().ok_or("a signal ended it")?,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}
