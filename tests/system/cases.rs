//! Every case of `tests/cases.json`: counts made by arithmetic that knows nothing of the code. A case states only what must
//! hold; keys it leaves out are not compared.

use crate::support::{Ran, repository, run};
use libtest_mimic::{Failed, Trial};
use serde_json::{Map, Value};

pub fn tests() -> Vec<Trial> {
    let text = std::fs::read_to_string(repository().join("tests/cases.json")).expect("the cases are there");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("the cases are JSON");
    let named = cases
        .into_iter()
        .map(|case| (format!("cases::{}", case["name"].as_str().unwrap_or("?")), case));
    named
        .map(|(name, case)| Trial::test(name, move || compare(&case)))
        .collect()
}

/// Keys that this checker knows; any other in a case would be silently untested.
const KEYS: [&str; 17] = [
    "name",
    "args",
    "scenario",
    "exit",
    "stderr_has",
    "received",
    "traced",
    "work_done",
    "predicted_mean",
    "sent",
    "factor",
    "receipt_parents",
    "ok",
    "failed",
    "by_code",
    "verdict",
    "timeout",
];

fn compare(case: &Value) -> Result<(), Failed> {
    let unknown: Vec<_> = object(case)
        .keys()
        .filter(|key| !KEYS.contains(&key.as_str()))
        .collect();
    if !unknown.is_empty() {
        return Err(format!("the case has keys that nobody checks: {unknown:?}").into());
    }
    let mut arguments: Vec<String> = serde_json::from_value(case["args"].clone())?;
    let folder = tempfile::tempdir()?;
    if let Some(scenario) = case["scenario"].as_str() {
        let file = folder.path().join("case.toml");
        std::fs::write(&file, scenario)?;
        arguments.insert(1, file.display().to_string());
    }
    let ran = run(&arguments);
    let mut wrong = Vec::new();
    let want_exit = case["exit"].as_i64().unwrap_or(0);
    if i64::from(ran.exit) != want_exit {
        wrong.push(format!("exit {}, wanted {want_exit}: {}", ran.exit, ran.stderr));
    }
    for text in case["stderr_has"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !ran.stderr.to_lowercase().contains(&text.to_lowercase()) {
            wrong.push(format!("stderr lacks {text:?}: {}", ran.stderr));
        }
    }
    if want_exit != 2 {
        wrong.extend(compare_report(case, &ran)?);
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n").into())
    }
}

fn compare_report(case: &Value, ran: &Ran) -> Result<Vec<String>, Failed> {
    let report = ran.report()?;
    let mut wrong = Vec::new();
    let mut within = |what: String, got: &Value, want: &Value| {
        let (low, high) = match want.as_array() {
            Some(range) => (range[0].as_f64(), range[1].as_f64()),
            None => (want.as_f64(), want.as_f64()),
        };
        let holds = got
            .as_f64()
            .zip(low.zip(high))
            .is_some_and(|(got, (low, high))| low <= got && got <= high);
        if !holds {
            wrong.push(format!("{what} is {got}, wanted {want}"));
        }
    };
    for key in ["received", "traced", "work_done"] {
        for (name, want) in object(&case[key]) {
            within(format!("{name} {key}"), &ran.service(name, key), want);
        }
    }
    for (name, want) in object(&case["predicted_mean"]) {
        let got = ran.service(name, "predicted")["mean"].clone();
        let want = want.as_f64().ok_or("a mean is a number")?;
        let slack = 1e-3 * want.max(1.0);
        within(
            format!("{name} predicted mean"),
            &got,
            &serde_json::json!([want - slack, want + slack]),
        );
    }
    for key in ["sent", "factor"] {
        for (name, want) in object(&case[key]) {
            let links = report["links"].as_array().ok_or("links")?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let of = |link: &&Value| format!("{}>{}", text(&link["from"]), text(&link["to"])) == *name;
            let link = links.iter().find(of).cloned().unwrap_or_default();
            within(format!("{name} {key}"), &link[key], want);
        }
    }
    for (name, want) in object(&case["receipt_parents"]) {
        let mut by_parent = std::collections::BTreeMap::new();
        for arrival in report["receipts"][0]["attempts"].as_array().into_iter().flatten() {
            if arrival["service"] == name.as_str() {
                *by_parent.entry(arrival["parent"].to_string()).or_insert(0_u64) += 1;
            }
        }
        let (parents, each) = (want[0].as_u64().ok_or("parents")?, want[1].as_u64().ok_or("each")?);
        if by_parent.len() as u64 != parents || by_parent.values().any(|count| *count != each) {
            wrong.push(format!(
                "receipt: {name} under its parents {by_parent:?}, wanted {want}"
            ));
        }
    }
    for key in ["ok", "failed", "by_code"] {
        if !case[key].is_null() && report["operations"][key] != case[key] {
            wrong.push(format!(
                "operations {key} {}, wanted {}",
                report["operations"][key], case[key]
            ));
        }
    }
    if !case["verdict"].is_null() && report["verdict"] != case["verdict"] {
        wrong.push(format!(
            "verdict {}, wanted {}: {}",
            report["verdict"], case["verdict"], report["reasons"]
        ));
    }
    Ok(wrong)
}

fn object(value: &Value) -> &Map<String, Value> {
    static NONE: std::sync::OnceLock<Map<String, Value>> = std::sync::OnceLock::new();
    value.as_object().unwrap_or_else(|| NONE.get_or_init(Map::new))
}
