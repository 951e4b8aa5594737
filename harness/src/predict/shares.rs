//! What policies cost and buy where the bottom service fails only a part of its calls.

use super::PARTS;
use crate::{
    advice::{self, Suggestion},
    plan,
    report::Share,
    scenario::{Scenario, Service},
};
use model::Topology;

/// As it is, then with the edits that are worth a look, at each share; or why that cannot be said, in a sentence. Where nobody
/// retries there is nothing to compare.
pub(super) fn of(scenario: &Scenario, topology: &Topology, suggestions: &[Suggestion]) -> Result<Vec<Share>, String> {
    if topology.callers.iter().all(|caller| caller.attempts <= 1) {
        return Ok(Vec::new());
    }
    if let Some(why) = why_not(scenario, topology) {
        return Err(why);
    }
    let mut policies = vec![("as it is".to_owned(), topology.clone())];
    policies.extend(advice::rivals(scenario, suggestions).iter().map(|edit| {
        let name = edit.name(&scenario.chain);
        (name, plan::of(&edit.apply(scenario)))
    }));
    let rows = policies.iter().flat_map(|(policy, topology)| {
        PARTS.into_iter().chain([1.0]).map(|failing| {
            let one = model::one_request(&model::failing_share(topology, failing));
            Share {
                policy: policy.clone(),
                failing,
                mean: one.mean,
                sd: one.sd,
                still_fails: one.still_fails,
            }
        })
    });
    Ok(rows.collect())
}

fn why_not(scenario: &Scenario, topology: &Topology) -> Option<String> {
    let (bottom, above) = scenario.chain.services.split_last()?;
    let name = &bottom.name;
    let left_out = format!("What it costs when {name} fails part of its calls is left out:");
    if topology.is_limited() {
        return Some(format!(
            "{left_out} with throttles or budgets it depends on the requests before."
        ));
    }
    let has_fault = |service: &&Service| !service.fault.fault.is_none();
    if let Some(Service { name, .. }) = above.iter().find(has_fault) {
        return Some(format!("{left_out} {name} has a fault of its own."));
    }
    let (caller, _) = bottom.fault.side.as_ref()?;
    Some(format!("{left_out} its fault sits in {caller}."))
}

/// That a share of failures costs more than all of them, where it does.
pub(super) fn note(bottom: &str, shares: &[Share]) -> Option<String> {
    let as_it_is = shares.iter().take_while(|share| share.policy == shares[0].policy);
    let (all, parts): (Vec<&Share>, Vec<&Share>) = as_it_is.partition(|share| share.failing >= 1.0);
    let all = all.first()?.mean?;
    let parts = parts
        .into_iter()
        .filter(|share| share.mean.is_some_and(|mean| mean > all));
    let most = parts.max_by(|one, other| one.mean.unwrap_or(0.0).total_cmp(&other.mean.unwrap_or(0.0)))?;
    Some(format!(
        "All calls failing is not the worst here: a sequence of calls goes on after an answer, so {bottom} gets more when {} % \
         of its calls fail.",
        most.failing * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::of;
    use crate::scenario::Overrides;

    type Change = fn(&mut Overrides);

    #[test]
    fn what_a_policy_costs_stands_beside_what_it_buys() {
        let rows: Vec<_> = of("per-hop", |_| ())
            .shares
            .iter()
            .map(|row| {
                let mean = (row.mean.unwrap() * 1e3).round() / 1e3;
                (
                    row.policy.clone(),
                    row.failing,
                    mean,
                    format!("{:.1e}", row.still_fails.unwrap()),
                )
            })
            .collect();
        let row = |policy: &str, failing, mean, fails: &str| (policy.to_owned(), failing, mean, fails.to_owned());
        // The table of the reference, section 8.1; p^9 and p^3 beside it.
        let all = [
            row("as it is", 0.1, 1.111, "1.0e-27"),
            row("as it is", 0.5, 2.0, "7.5e-9"),
            row("as it is", 0.9, 9.419, "5.8e-2"),
            row("as it is", 1.0, 27.0, "1.0e0"),
            row("retries off at frontend", 0.1, 1.111, "1.0e-9"),
            row("retries off at frontend", 0.5, 1.996, "2.0e-3"),
            row("retries off at frontend", 0.9, 6.126, "3.9e-1"),
            row("retries off at frontend", 1.0, 9.0, "1.0e0"),
            row("retry at frontend only", 0.1, 1.11, "1.0e-3"),
            row("retry at frontend only", 0.5, 1.75, "1.2e-1"),
            row("retry at frontend only", 0.9, 2.71, "7.3e-1"),
            row("retry at frontend only", 1.0, 3.0, "1.0e0"),
        ];
        assert_eq!(rows, all);
    }

    #[test]
    fn a_policy_is_compared_with_each_other_one_once() {
        let policies = |source: &str| {
            let mut policies: Vec<_> = of(source, |_| ()).shares.into_iter().map(|row| row.policy).collect();
            policies.dedup();
            policies
        };
        assert_eq!(policies("single-owner"), ["as it is", "retries off at frontend"]);
        // With two layers the best owner is the best single edit.
        assert_eq!(
            policies("web x3 > api x4 > db down"),
            ["as it is", "retries off at api"]
        );
        assert_eq!(policies("web > db down"), [""; 0]);
    }

    #[test]
    fn no_share_of_failures_is_told_where_it_would_not_be_true() {
        let budget: Change = |flags| flags.set = vec!["retry.budget={kind=\"in_flight\"}".to_owned()];
        let above: Change = |flags| flags.faults = vec![(Some("api".to_owned()), "down".parse().unwrap())];
        let side: Change = |flags| flags.faults = vec![(None, "fail:side=client@api".parse().unwrap())];
        for (change, why) in [
            (budget, "with throttles or budgets it depends on the requests before."),
            (above, "api has a fault of its own."),
            (side, "its fault sits in api."),
        ] {
            let told = of("web x3 > api x3 > db", change);
            assert_eq!(told.shares, []);
            let why = format!("What it costs when db fails part of its calls is left out: {why}");
            assert!(told.notes.contains(&why), "{:?}", told.notes);
            assert!(!told.notes.iter().any(|note| note.starts_with("The shares")));
        }
        // Who makes one attempt is not limited by its budget.
        let idle: Change = |flags| flags.set = vec!["client.retry.budget={kind=\"in_flight\"}".to_owned()];
        assert_ne!(of("web x3 > api x3 > db", idle).shares, []);
    }

    #[test]
    fn a_sequence_that_goes_on_costs_more_than_one_that_ends_and_says_so() {
        let says = |fan_out: &str| {
            let set = vec![
                "services.api.calls=3".to_owned(),
                format!("services.api.fan_out=\"{fan_out}\""),
            ];
            let told = of("web x4 > api x6 > db down", |flags| flags.set = set);
            told.notes
                .into_iter()
                .find(|note| note.starts_with("All calls failing"))
        };
        let note = says("sequence").unwrap();
        assert!(note.ends_with("so db gets more when 90 % of its calls fail."), "{note}");
        assert_eq!(says("parallel"), None);
    }
}
