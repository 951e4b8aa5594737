//! What leaves the program as data: real reports against the schema files, and the numbers in them.

use crate::support::{check, repository, run, run_plain, test};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

pub fn tests() -> Vec<Trial> {
    vec![
        test("formats::reports_of_every_kind_fit_the_schema", || {
            let schema = validator("report-v1")?;
            for arguments in [
                &["run"][..],
                &["run", "refused"],
                &["run", "flaky", "-n", "50"],
                &["run", "--expect", "12"],
                &["run", "web x2 > db fail:first=3,scope=process", "-n", "4", "-c", "4"],
                &["run", "--item", "\u{1b}[31m<script>\u{202e}", "--fault", "none"],
                &["run", "--deadline", "none", "--seed", "18446744073709551615"],
            ] {
                let ran = run(arguments);
                fits(&schema, ran.report()?).map_err(|error| format!("{arguments:?}: {error:?}"))?;
            }
            Ok(())
        }),
        test("formats::comparisons_and_predictions_fit_their_schemas", || {
            let comparison = validator("comparison-v1")?;
            fits(&comparison, run::<&str>(&[]).report()?)?;
            fits(
                &comparison,
                run(&["compare", "per-hop", "single-owner", "transient"]).report()?,
            )?;
            let prediction = validator("prediction-v1")?;
            for arguments in [
                &["predict"][..],
                &["predict", "flaky"],
                &[
                    "predict",
                    "flaky",
                    "--rate",
                    "40",
                    "--capacity",
                    "500",
                    "--budget",
                    "20",
                ],
                &["predict", "--depth", "12", "--attempts", "100"],
                &["predict", "client x9 > web x3*3 > db down"],
            ] {
                fits(&prediction, run(arguments).report()?).map_err(|error| format!("{arguments:?}: {error:?}"))?;
            }
            Ok(())
        }),
        test("formats::big_numbers_are_strings_and_never_wrapped", || {
            let bottom = |arguments: &[&str]| -> Result<Value, Failed> {
                Ok(run(arguments).report()?["bottom"]["worst"].clone())
            };
            let exact = bottom(&["predict", "--depth", "12", "--attempts", "100"])?;
            check(exact == format!("1{}", "00".repeat(12)), || exact.to_string())?;
            let line = (0..12)
                .map(|number| format!("a{number} x100*100"))
                .collect::<Vec<_>>()
                .join(" > ")
                + " > db down";
            let beyond = bottom(&["predict", &line])?;
            check(beyond == "more than 3.4e38", || beyond.to_string())
        }),
        test("formats::the_same_line_and_flags_repeat_a_run", || {
            for arguments in [
                &["run", "--fault", "fail:first=2", "-n", "3"][..],
                &[
                    "run",
                    "client x2 > web x3 > orders x2 > ledger down",
                    "--fault",
                    "orders=fail:p=0.25",
                    "--seed",
                    "5",
                ],
                &["run", "nested-transient", "--attempts-at", "client=2"],
                &[
                    "run",
                    "--retry-on",
                    "any",
                    "--item",
                    "",
                    "--set",
                    "services.checkout.on_failure=ABORTED",
                ],
            ] {
                let first = run(arguments);
                let command = first.report()?["command"].as_str().unwrap_or_default().to_owned();
                // The words go through a real shell, as a reader would paste them.
                let words = std::process::Command::new("bash")
                    .args(["-c", &format!("printf '%s\\0' {command}")])
                    .output()?;
                let words = String::from_utf8(words.stdout)?;
                let words: Vec<&str> = words.split_terminator('\0').collect();
                let again = run(&words);
                for key in ["services", "links", "chain", "command"] {
                    let (one, other) = (&first.report()?[key], &again.report()?[key]);
                    check(one == other, || format!("{command}: {key} differ\n{one}\n{other}"))?;
                }
            }
            Ok(())
        }),
        test("formats::json_on_stdout_is_alone_there", || {
            for arguments in [
                &["run", "--json", "-"][..],
                &["--json", "-"],
                &["predict", "--json", "-"],
                &["compare", "per-hop", "refused", "--json", "-"],
            ] {
                let ran = run_plain(arguments);
                let parsed: Result<Value, _> = serde_json::from_str(&ran.stdout);
                check(parsed.is_ok(), || format!("{arguments:?}: {}", ran.stdout))?;
            }
            Ok(())
        }),
    ]
}

/// A schema of ours.
pub fn validator(name: &str) -> Result<jsonschema::Validator, Failed> {
    let folder = repository().join("harness/schema");
    let read = |name: &str| -> Result<Value, Failed> {
        Ok(serde_json::from_slice(&std::fs::read(
            folder.join(format!("{name}.schema.json")),
        )?)?)
    };
    // The comparison refers to the report's file beside it.
    let registry = jsonschema::Registry::new()
        .add("file:///schema/report-v1.schema.json", read("report-v1")?)?
        .prepare()?;
    let options = jsonschema::draft202012::options();
    Ok(options
        .with_base_uri("file:///schema/this.json")
        .with_registry(&registry)
        .build(&read(name)?)?)
}

/// Fails with what does not fit.
pub fn fits(schema: &jsonschema::Validator, report: &Value) -> Result<(), Failed> {
    let errors: Vec<_> = schema
        .iter_errors(report)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect();
    check(errors.is_empty(), || errors.join("\n"))
}
