//! The JSON Schema files against what is really written.

use super::{json, samples};
use crate::report::Comparison;
use jsonschema::{Registry, Validator};
use serde_json::{Value, json};

const REPORT: &str = include_str!("../../schema/report-v1.schema.json");
const COMPARISON: &str = include_str!("../../schema/comparison-v1.schema.json");
const PREDICTION: &str = include_str!("../../schema/prediction-v1.schema.json");
const SWEEP: &str = include_str!("../../schema/sweep-v1.schema.json");
const STATUS: &str = include_str!("../../schema/status-v1.schema.json");
const SWITCH: &str = include_str!("../../schema/switch-v1.schema.json");

fn read(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

fn validator(schema: &str) -> Validator {
    let schema = read(schema.as_bytes());
    jsonschema::meta::validate(&schema)
        .map_err(|error| error.to_string())
        .unwrap();
    // The comparison and the sweep name the report's file beside them, the switch the prediction's.
    let registry = Registry::new()
        .add("file:///schema/report-v1.schema.json", read(REPORT.as_bytes()))
        .unwrap()
        .add("file:///schema/prediction-v1.schema.json", read(PREDICTION.as_bytes()))
        .unwrap()
        .prepare()
        .unwrap();
    jsonschema::draft202012::options()
        .with_base_uri("file:///schema/this.json")
        .with_registry(&registry)
        .build(&schema)
        .unwrap()
}

#[track_caller]
fn holds(validator: &Validator, value: &Value) {
    let faults: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn what_is_written_is_what_the_schemas_say() {
    let reports = validator(REPORT);
    for mut report in samples::reports() {
        // Codes and reasons are words of ours; a report with foreign ones is refused.
        if report.operations.by_code.keys().any(|code| code.contains(':')) {
            assert!(!reports.is_valid(&read(&json::report(&report))));
            report.operations.by_code.clear();
            report.links.iter_mut().for_each(|link| link.not_retried.clear());
        }
        holds(&reports, &read(&json::report(&report)));
    }
    holds(&validator(COMPARISON), &read(&json::comparison(&samples::comparison())));
    holds(&validator(PREDICTION), &read(&json::prediction(&samples::prediction())));
    holds(
        &validator(PREDICTION),
        &read(&json::prediction(&samples::prediction_full())),
    );
    holds(&validator(SWEEP), &read(&json::sweep(&samples::sweep())));
    holds(&validator(STATUS), &read(&json::status(&samples::status())));
    holds(&validator(STATUS), &read(&json::status(&samples::status_full())));
    holds(&validator(SWITCH), &read(&json::switched(&samples::switched())));
    let mut nothing = samples::switched();
    nothing.changes.clear();
    holds(&validator(SWITCH), &read(&json::switched(&nothing)));
    for report in [samples::called(), samples::called_mixed()] {
        holds(&reports, &read(&json::report(&report)));
    }
}

#[test]
fn what_may_be_unknown_may_be_null() {
    let mut report = samples::headline();
    for row in &mut report.services {
        (row.received, row.traced, row.amplification, row.work_done) = (None, None, None, None);
        (row.late, row.dropped, row.expired, row.in_flight) = (None, None, None, None);
        (row.predicted.mean, row.predicted.sd) = (None, None);
        row.predicted.min = crate::report::Count::Of(u128::MAX);
        row.predicted.max = crate::report::Count::Beyond;
    }
    for link in &mut report.links {
        (link.calls, link.sent, link.received, link.factor) = (None, None, None, None);
        (link.retry_ratio, link.transport_errors) = (None, None);
    }
    report.links[3].repeats = Some(crate::report::Repeats {
        by_path: None,
        by_parent: None,
        envoy_attempts: std::collections::BTreeMap::new(),
    });
    report.receipts[0].attempts[0].duration_us = None;
    report.work = None;
    holds(&validator(REPORT), &read(&json::report(&report)));

    let mut values = samples::sweep();
    let point = &mut values.points[0];
    (point.number, point.mean, point.still_fails) = (None, None, None);
    holds(&validator(SWEEP), &read(&json::sweep(&values)));
    values.points.clear();
    values.curve.clear();
    values.seed = None;
    holds(&validator(SWEEP), &read(&json::sweep(&values)));

    let mut sums = samples::prediction();
    (sums.bottom.mean, sums.bottom.sd, sums.bottom.still_fails) = (None, None, None);
    holds(&validator(PREDICTION), &read(&json::prediction(&sums)));
}

/// Puts a value at a path; `None` takes the key away.
fn damage(value: &Value, path: &str, with: Option<Value>) -> Value {
    let mut value = value.clone();
    let (parent, key) = path.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap_or_else(|| panic!("{path}"));
    match (parent, with) {
        (Value::Object(object), Some(with)) => {
            object.insert(key.to_owned(), with);
        }
        (Value::Object(object), None) => {
            object.remove(key).unwrap_or_else(|| panic!("{path}"));
        }
        (other, _) => panic!("{path}: {other}"),
    }
    value
}

#[test]
fn damaged_reports_are_refused() {
    let validator = validator(REPORT);
    let good = read(&json::report(&samples::full()));
    holds(&validator, &good);
    for (path, with) in [
        ("/schema", None),
        ("/schema", Some(json!("retryscope/report/v2"))),
        ("/seed", None),
        ("/seed", Some(json!(-1))),
        ("/surprise", Some(json!(1))),
        ("/verdict", Some(json!("fine"))),
        ("/verdict", Some(json!("AsPredicted"))),
        ("/scenario", Some(json!("per-hop"))),
        ("/expected/0/met", Some(json!("yes"))),
        ("/reasons/0/kind", Some(json!(""))),
        ("/operations/mixed", None),
        ("/operations/ok", Some(json!(1.5))),
        ("/operations/by_code/UNAVAILABLE", Some(json!(0))),
        ("/operations/by_code/not a code", Some(json!(1))),
        ("/services/0/received", Some(json!("27"))),
        ("/services/0/received", None),
        ("/services/0/kind", Some(json!("proxy"))),
        ("/services/0/extra", Some(json!(0))),
        ("/services/0/predicted/kind", Some(json!("sure"))),
        ("/services/0/predicted/max", Some(json!(null))),
        ("/services/0/predicted/max", Some(json!("many"))),
        ("/services/0/predicted/max", Some(json!(-1))),
        ("/services/0/envoy/upstream_rq_retry", Some(json!(-1))),
        ("/services/0/envoy/Upstream", Some(json!(1))),
        ("/services/0/envoy", Some(json!(null))),
        ("/work/in_vain", Some(json!(-1))),
        ("/work/needed", None),
        ("/work", Some(json!(13))),
        ("/links/0/factor", Some(json!("1"))),
        ("/links/0/repeats/by_path", None),
        ("/links/0/repeats/by_path/least", None),
        ("/links/0/repeats/by_parent/most", Some(json!(0.5))),
        ("/links/0/repeats/envoy_attempts/0", Some(json!(1))),
        ("/links/0/repeats/envoy_attempts/first", Some(json!(1))),
        ("/links/0/repeats/surprise", Some(json!(1))),
        ("/links/0/not_retried", Some(json!([]))),
        ("/receipts/0/attempts/0/path", Some(json!(null))),
        ("/receipts/0/attempts/0/start_us", Some(json!(0.5))),
        ("/receipts_sample/complete", Some(json!(1))),
        ("/advice/0/predicted", Some(json!(3))),
        ("/advice/0/scope", Some(json!("OneEdit"))),
        ("/advice/0/verdict", Some(json!("fine"))),
        ("/advice/0/ceiling", Some(json!("1.728"))),
        ("/advice/0/requests", None),
        ("/advice/0/failed", Some(json!(-1))),
        ("/processes/0/pid", Some(json!("27"))),
        ("/timing/load_ms", Some(json!(null))),
        ("/timing/request_ms/p99", None),
        ("/versions/harness", Some(json!(1))),
    ] {
        assert!(
            !validator.is_valid(&damage(&good, path, with.clone())),
            "{path} {with:?}"
        );
    }
}

#[test]
fn damaged_comparisons_and_predictions_are_refused() {
    let runs = validator(COMPARISON);
    let good = read(&json::comparison(&samples::comparison()));
    assert!(!runs.is_valid(&damage(&good, "/runs/1/verdict", Some(json!("fine")))));
    assert!(!runs.is_valid(&damage(&good, "/runs", Some(json!([])))));
    assert!(!runs.is_valid(&damage(&good, "/surprise", Some(json!(1)))));
    let report = read(&json::report(&samples::headline()));
    assert!(!runs.is_valid(&report) && !validator(REPORT).is_valid(&good));

    let sums = validator(PREDICTION);
    let good = read(&json::prediction(&samples::prediction_full()));
    holds(&sums, &good);
    for (path, with) in [
        ("/bottom/worst", Some(json!(null))),
        ("/shares/0/failing", Some(json!(1.5))),
        ("/shares/0/still_fails", None),
        ("/budget/percent", Some(json!(101))),
        ("/capacity/recovers", Some(json!("yes"))),
        ("/rate", Some(json!("20"))),
        ("/services/0/per_second", None),
        ("/services/0/distribution/p99", Some(json!(null))),
        ("/services/0/distribution/counts/0/chance", Some(json!(2))),
        ("/changes/0/scope", Some(json!("no_edit"))),
        ("/changes/0/ceiling", Some(json!("1.728"))),
        ("/changes/0/command", None),
        ("/bottom/still_fails", Some(json!(1.1))),
        ("/tries_per_call/0/code", Some(json!(0))),
        ("/changes/0/gives_up", None),
        ("/changes/0/kind", Some(json!("off"))),
        ("/changes/0/at", Some(json!(1))),
        ("/capacity/failing", Some(json!(1.5))),
        ("/capacity/load/max", Some(json!(null))),
        ("/rate_requests", Some(json!(0))),
        ("/notes", Some(json!([1]))),
        ("/verdict", Some(json!("as_predicted"))),
    ] {
        assert!(!sums.is_valid(&damage(&good, path, with.clone())), "{path} {with:?}");
    }
}

#[test]
fn damaged_sweeps_are_refused() {
    let validator = validator(SWEEP);
    let good = read(&json::sweep(&samples::sweep()));
    for (path, with) in [
        ("/schema", Some(json!("retryscope/sweep/v2"))),
        ("/over", Some(json!(""))),
        ("/planned", None),
        ("/planned", Some(json!(0))),
        ("/points", Some(json!({}))),
        ("/points/0/value", Some(json!(0.1))),
        ("/points/0/number", Some(json!("0.1"))),
        ("/points/0/mean", Some(json!(-1))),
        ("/points/0/still_fails", Some(json!(1.1))),
        ("/points/0/report", None),
        ("/points/0/report/verdict", Some(json!("fine"))),
        ("/points/0/surprise", Some(json!(1))),
        ("/curve/0/still_fails", Some(json!(1.1))),
        ("/curve/0/number", Some(json!(null))),
        ("/seed", Some(json!(-1))),
        ("/surprise", Some(json!(1))),
    ] {
        assert!(
            !validator.is_valid(&damage(&good, path, with.clone())),
            "{path} {with:?}"
        );
    }
}

#[test]
fn damaged_states_and_switches_are_refused() {
    let status = validator(STATUS);
    let good = read(&json::status(&samples::status_full()));
    holds(&status, &good);
    for (path, with) in [
        ("/schema", Some(json!("retryscope/status/v2"))),
        ("/command", None),
        ("/surprise", Some(json!(1))),
        ("/generation", Some(json!("3"))),
        ("/services/0/attempts", Some(json!(0))),
        ("/services/0/attempts", Some(json!(101))),
        ("/services/0/attempts", None),
        ("/services/0/retry_on", Some(json!("unavailable"))),
        ("/services/0/on_failure", Some(json!("drop"))),
        ("/services/0/transport_codes", Some(json!("cooked"))),
        ("/services/0/fault", Some(json!(""))),
        ("/services/0/commit", Some(json!("trailers"))),
        ("/services/0/pushback", Some(json!("true"))),
        ("/services/0/budget", Some(json!("20%"))),
        ("/services/0/only_first_tries", None),
        ("/services/0/detached", Some(json!(null))),
        ("/services/0/calls", Some(json!(0))),
        ("/services/0/fan_out", Some(json!("serial"))),
        ("/services/0/client_fault", Some(json!("fail"))),
        ("/services/0/exports", Some(json!(null))),
        ("/services/0/foreign", Some(json!(-1))),
        ("/services/0/extra", Some(json!(0))),
        ("/links/0/sent", Some(json!(null))),
        ("/generations/0/generation", Some(json!(-1))),
        ("/generations/0/services/0/received", Some(json!(1.5))),
        ("/mixed/complete", Some(json!("yes"))),
        ("/mixed/operations", None),
        ("/mixed/services/0/in_flight", None),
    ] {
        assert!(!status.is_valid(&damage(&good, path, with.clone())), "{path} {with:?}");
    }

    let switch = validator(SWITCH);
    let good = read(&json::switched(&samples::switched()));
    holds(&switch, &good);
    for (path, with) in [
        ("/schema", None),
        ("/generation", Some(json!(-1))),
        ("/changes", Some(json!(null))),
        ("/changes/0/setting", Some(json!("colour"))),
        ("/changes/0/from", Some(json!(""))),
        ("/changes/0/to", None),
        ("/prediction", Some(json!({}))),
        ("/prediction/bottom/worst", Some(json!(null))),
        ("/prediction/surprise", Some(json!(1))),
        ("/surprise", Some(json!(1))),
    ] {
        assert!(!switch.is_valid(&damage(&good, path, with.clone())), "{path} {with:?}");
    }
}

/// Walks a value along its schema: every key of ours is described, nothing in it is empty.
fn described(value: &Value, schema: &Value, root: &Value, path: &str) {
    match schema.get("$ref").and_then(Value::as_str) {
        Some(file) if !file.starts_with('#') => {
            let other = match file {
                "report-v1.schema.json" => read(REPORT.as_bytes()),
                "prediction-v1.schema.json" => read(PREDICTION.as_bytes()),
                _ => panic!("{path} is another file's: {file}"),
            };
            return described(value, &other, &other, path);
        }
        Some(reference) => {
            let target = root
                .pointer(reference.trim_start_matches('#'))
                .unwrap_or_else(|| panic!("{reference}"));
            return described(value, target, root, path);
        }
        None => {}
    }
    // Of alternatives, the one that describes an object is meant.
    if let Some(other) = schema
        .get("oneOf")
        .and_then(Value::as_array)
        .filter(|_| value.is_object())
    {
        let object = other.iter().find(|schema| schema.get("$ref").is_some()).unwrap();
        return described(value, object, root, path);
    }
    match value {
        Value::Object(object) => {
            let Some(properties) = schema.get("properties") else {
                // The scenario is another format's; the others are maps of words and counts.
                let known = [
                    "scenario",
                    "versions",
                    "by_code",
                    "not_retried",
                    "envoy",
                    "envoy_attempts",
                ];
                assert!(
                    known.contains(&path.rsplit('/').next().unwrap()),
                    "{path} has no properties"
                );
                return;
            };
            assert_eq!(schema.get("additionalProperties"), Some(&json!(false)), "{path}");
            assert_eq!(
                object.len(),
                properties.as_object().unwrap().len(),
                "{path}: a key the report does not have"
            );
            for (key, value) in object {
                let property = properties
                    .get(key)
                    .unwrap_or_else(|| panic!("{path}/{key} is not in the schema"));
                let text = property.get("description").and_then(Value::as_str).unwrap_or("");
                assert!(
                    text.len() > 3 && text.ends_with('.'),
                    "{path}/{key} is not described: {text:?}"
                );
                if key.ends_with("_ms") || key.ends_with("_us") {
                    assert!(text.contains("seconds"), "{path}/{key} has no unit: {text}");
                }
                described(value, property, root, &format!("{path}/{key}"));
            }
        }
        Value::Array(items) => {
            assert!(!items.is_empty(), "{path} is empty: the sample must be full");
            for item in items {
                described(item, schema.get("items").unwrap(), root, path);
            }
        }
        _ => {}
    }
}

#[test]
fn every_key_is_described() {
    let full = samples::full();
    let both = Comparison {
        runs: vec![full.clone()],
        ..samples::comparison()
    };
    let mut switched = samples::switched();
    switched.prediction = samples::prediction_full();
    let mut values = samples::sweep();
    for point in &mut values.points {
        point.report = full.clone();
    }
    for (schema, bytes) in [
        (REPORT, json::report(&full)),
        (COMPARISON, json::comparison(&both)),
        (PREDICTION, json::prediction(&samples::prediction_full())),
        (SWEEP, json::sweep(&values)),
        (STATUS, json::status(&samples::status_full())),
        (SWITCH, json::switched(&switched)),
    ] {
        let schema = read(schema.as_bytes());
        described(&read(&bytes), &schema, &schema, "");
    }
}
