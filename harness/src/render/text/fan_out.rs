//! Services that call the next one several times: a sentence for each, below the picture, whose arrows show attempts alone.

use super::words::shown;
use serde_json::Value;

/// Services that have a sentence for themselves, at most.
const SINGLE: usize = 3;

/// One sentence for each service that makes several calls, or one for all where there are many. `scenario` is the one in force,
/// `services` are those of the chain from the top.
pub(super) fn sentences<'a>(scenario: &Value, services: impl Iterator<Item = &'a str>) -> Vec<String> {
    let services: Vec<&str> = services.collect();
    let several = services.windows(2).filter_map(|pair| {
        let calls = calls(scenario, pair[0])?;
        let fan_out = scenario.get("services")?.get(pair[0])?.get("fan_out");
        let is_parallel = fan_out.and_then(Value::as_str) == Some("parallel");
        Some((pair[0], pair[1], calls, is_parallel))
    });
    let several: Vec<_> = several.collect();
    if several.len() > SINGLE {
        let each = several.iter().map(|(caller, _, calls, is_parallel)| {
            format!(
                "{} {calls}{}",
                shown(caller),
                if *is_parallel { " at once" } else { "" }
            )
        });
        let each: Vec<_> = each.collect();
        return vec![format!("Calls for each one that arrives: {}.", each.join(", "))];
    }
    let each = several
        .iter()
        .map(|(caller, callee, calls, is_parallel)| of_one(&shown(caller), &shown(callee), *calls, *is_parallel));
    each.collect()
}

/// How often a service calls the next for each call that arrives there; `None` where that is once.
pub(in crate::render) fn calls(scenario: &Value, service: &str) -> Option<u64> {
    let calls = scenario.get("services")?.get(service)?.get("calls")?.as_u64();
    calls.filter(|calls| *calls > 1)
}

/// What a caller does for each call that arrives there.
pub(super) fn of_one(caller: &str, next: &str, calls: u64, is_parallel: bool) -> String {
    let how = if is_parallel {
        "all at once"
    } else {
        "one after the other, up to the first that fails"
    };
    format!("{caller} calls {next} {calls} times for each call that arrives there, {how}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_that_calls_several_times_has_a_sentence() {
        let services = ["web", "orders", "db"];
        let told = |scenario: Value| sentences(&scenario, services.into_iter());
        assert!(told(json!({"services": {"web": {"calls": 1}, "orders": {}}})).is_empty());
        assert_eq!(
            told(json!({"services": {"web": {"calls": 2}, "orders": {"calls": 3, "fan_out": "parallel"}}})),
            [
                "web calls orders 2 times for each call that arrives there, one after the other, up to the first that fails.",
                "orders calls db 3 times for each call that arrives there, all at once."
            ]
        );
    }

    #[test]
    fn many_of_them_share_one() {
        let services = ["a", "b", "c", "d", "e"];
        let calls = json!({"calls": 2});
        let scenario =
            json!({"services": {"a": calls, "b": calls, "c": calls, "d": {"calls": 3, "fan_out": "parallel"}}});
        assert_eq!(
            sentences(&scenario, services.into_iter()),
            ["Calls for each one that arrives: a 2, b 2, c 2, d 3 at once."]
        );
    }
}
