//! What a prediction rests on, in sentences: what the limits on retries do at this traffic, and how sure the numbers are.

use crate::scenario::Scenario;
use chassis::{
    fault::{Fail, Kind},
    policy::Policy,
};

/// A margin beyond which lateness is no matter: nothing waits for so long.
const NEVER_US: u64 = 60_000_000;

/// What the throttles and budgets do, those that do the same together.
pub fn limits(scenario: &Scenario, prediction: &model::Prediction) -> Vec<String> {
    let mut groups: Vec<(&'static str, Option<bool>, Vec<&str>)> = Vec::new();
    // Callers and their proxies.
    let configs = scenario.configs();
    for limit in &prediction.limits {
        let caller = configs.iter().find(|config| config.service == limit.caller);
        let kind = caller.map_or("limit", |config| kind(&config.retry));
        match groups
            .iter_mut()
            .find(|(known, binds, _)| *known == kind && *binds == limit.binds)
        {
            Some((.., callers)) => callers.push(&limit.caller),
            None => groups.push((kind, limit.binds, vec![&limit.caller])),
        }
    }
    groups
        .into_iter()
        .map(|(kind, binds, callers)| sentence(kind, binds, &callers))
        .collect()
}

fn kind(policy: &Policy) -> &'static str {
    match (policy.throttle.is_some(), policy.budget.is_some()) {
        (true, false) => "throttle",
        (false, true) => "budget",
        _ => "limit",
    }
}

fn sentence(kind: &str, binds: Option<bool>, callers: &[&str]) -> String {
    let many = callers.len() > 1;
    let whose = match callers {
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    };
    let (plural, does, refuses) = if many {
        ("s", "do", "refuse")
    } else {
        ("", "does", "refuses")
    };
    let it = if many { "they" } else { "it" };
    match binds {
        Some(false) => format!("The {kind}{plural} of {whose} {does} not bind at this traffic."),
        Some(true) => format!(
            "The {kind}{plural} of {whose} bind{} here: {it} {refuses} retries.",
            if many { "" } else { "s" }
        ),
        None => {
            format!("Whether the {kind}{plural} of {whose} {refuses} a retry depends on the order of events.")
        }
    }
}

/// That real Envoys run here without the limit that they have by themselves; `None` where they have one.
pub fn unlimited(scenario: &Scenario) -> Option<String> {
    let chain = &scenario.chain;
    let mut proxies = chain.callers().filter(|(_, caller)| caller.has_proxy());
    let is_unlimited = chain.has_envoys() && proxies.all(|(_, caller)| caller.proxy.budget.is_none());
    is_unlimited.then(|| {
        "The Envoys run without their own limit of 3 retries at once; --set sidecars.max_retries=3 puts it back."
            .to_owned()
    })
}

/// What is particular about the proxies on the links, and what stands there that no prediction knows.
pub fn links(scenario: &Scenario) -> Vec<String> {
    let chain = &scenario.chain;
    let mut notes = Vec::new();
    if chain.has_envoys() {
        notes.extend(unlimited(scenario));
        let mut proxies = chain.callers().filter(|(_, caller)| caller.has_proxy());
        if proxies.any(|(_, caller)| caller.proxy.backoff.is_none()) {
            notes.push("An Envoy always waits before a retry: up to 1 ms where no backoff is set.".to_owned());
        }
        if chain
            .services
            .iter()
            .any(|service| asks_for_a_wait(service.fault.fault.kind))
        {
            notes.push("An Envoy knows no pushback: it retries when it would anyway.".to_owned());
        }
    }
    for (name, caller) in chain.callers().filter(|(_, caller)| caller.undeclared > 1) {
        notes.push(format!(
            "The layer behind {name} that makes {} of each attempt is left out: nobody declared it, and a run finds it.",
            caller.undeclared
        ));
    }
    notes
}

fn asks_for_a_wait(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Fail(Fail {
            pushback_ms: Some(_),
            ..
        })
    )
}

/// How sure the counts are that depend on time, on limits or on an order; `None` where nothing does.
pub fn certainty(scenario: &Scenario, prediction: &model::Prediction) -> Option<String> {
    let is_exact = prediction
        .services
        .iter()
        .all(|service| service.received.min == service.received.max);
    if prediction.is_floor_and_ceiling {
        return (!is_exact).then(|| floor_and_ceiling(scenario).to_owned());
    }
    let margin_us = prediction.margin_us?;
    Some(match (is_exact, margin_us) {
        (true, 0 | NEVER_US..) => return None,
        (true, _) => format!(
            "Exact by the clock, unless this machine is {} ms late somewhere.",
            margin_us / 1_000
        ),
        (false, _) => {
            "Some events lie too near for their order to be certain: these are the least and the most that any \
                       order gives."
                .to_owned()
        }
    })
}

/// Why nothing but a floor and a ceiling is known.
fn floor_and_ceiling(scenario: &Scenario) -> &'static str {
    let load = &scenario.load;
    let is_crowd = load.requests > 1 && (load.concurrency > 1 || load.rate.is_some());
    let cuts = scenario
        .chain
        .services
        .iter()
        .any(|service| service.fault.own().cuts_connections());
    match (is_crowd, cuts) {
        (_, true) => "A floor and a ceiling: a connection that is cut takes along every other call on it.",
        (true, false) => "A floor and a ceiling: requests at once share limits, and their order decides.",
        (false, false) => "A floor and a ceiling: there are more orders of events than can be followed.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan, scenario::Overrides};

    fn told(source: &str, set: &[&str], requests: u64, concurrency: u32) -> (Vec<String>, Option<String>) {
        let overrides = Overrides {
            set: set.iter().map(|set| (*set).to_owned()).collect(),
            requests: Some(requests),
            concurrency: Some(concurrency),
            ..Overrides::default()
        };
        let scenario = Scenario::load(Some(source), &overrides).unwrap();
        let prediction = model::predict(&plan::of(&scenario), model::Draws::Forecast);
        (limits(&scenario, &prediction), certainty(&scenario, &prediction))
    }

    #[test]
    fn a_limit_says_in_plain_words_whether_it_binds() {
        let budget = "retry.budget={kind=\"in_flight\"}";
        let chain = "a x3 > b x3 > c down";
        let idle = "The budgets of a and b do not bind at this traffic.";
        assert_eq!(told(chain, &[budget], 5, 1).0, [idle]);
        let order = "Whether the budgets of a and b refuse a retry depends on the order of events.";
        assert_eq!(told(chain, &[budget], 50, 20).0, [order]);
        let throttle = "retry.throttle={max_tokens=10,token_ratio=0.1}";
        let binds = ["The throttles of a and b bind here: they refuse retries.".to_owned()];
        assert_eq!(told(chain, &[throttle], 10, 1).0, binds);
    }

    #[test]
    fn the_limit_of_a_proxy_is_told_by_its_name() {
        let told = told("a x3*3 > b down", &["sidecars.retry.budget={kind=\"in_flight\"}"], 5, 1).0;
        assert_eq!(told, ["The budget of a-proxy does not bind at this traffic."]);
    }

    #[test]
    fn what_is_particular_about_a_link_is_told() {
        let told = |source: &str, set: &[&str], undeclared: &[(&str, u32)]| {
            let overrides = Overrides {
                set: set.iter().map(|set| (*set).to_owned()).collect(),
                undeclared: undeclared
                    .iter()
                    .map(|(name, number)| ((*name).to_owned(), *number))
                    .collect(),
                ..Overrides::default()
            };
            links(&Scenario::load(Some(source), &overrides).unwrap())
        };
        let envoy = "sidecars.kind=envoy";
        let wait = "An Envoy always waits before a retry: up to 1 ms where no backoff is set.";
        assert_eq!(told("a x3*3 > b down", &[], &[]), [""; 0]);
        let unlimited =
            "The Envoys run without their own limit of 3 retries at once; --set sidecars.max_retries=3 puts it back.";
        assert_eq!(told("a x3*3 > b down", &[envoy], &[]), [unlimited, wait]);
        let three = "sidecars.max_retries=3";
        assert_eq!(told("a x3*3 > b down", &[envoy, three], &[]), [wait]);
        let waits = "sidecars.retry.backoff={initial=\"5ms\",jitter=\"full\"}";
        assert_eq!(told("a x3*3 > b down", &[envoy, waits, three], &[]), [""; 0]);
        assert_eq!(told("a x3 > b down", &[envoy], &[]), [""; 0]);
        let deaf = "An Envoy knows no pushback: it retries when it would anyway.";
        assert_eq!(told("a x3*3 > b fail:pushback=-1", &[envoy, waits, three], &[]), [deaf]);
        let hidden =
            "The layer behind a that makes 4 of each attempt is left out: nobody declared it, and a run finds it.";
        assert_eq!(told("a x3 > b down", &[], &[("a", 4)]), [hidden]);
    }

    #[test]
    fn what_depends_on_time_says_for_how_much_it_holds() {
        let slow = |deadline: &str| {
            let deadline = format!("load.deadline={deadline}");
            told("a x10 > b delay:ms=100+fail", &[&deadline], 1, 1).1.unwrap()
        };
        assert!(
            slow("350ms").starts_with("Exact by the clock, unless"),
            "{}",
            slow("350ms")
        );
        assert!(slow("402ms").contains("any order"), "{}", slow("402ms"));
        assert_eq!(told("a x3 > b down", &[], 1, 1).1, None);
    }
}
