//! Whole screens of predictions, as they must come out.

use super::*;
use crate::{
    render::samples,
    report::{Change, ChangeKind, Count, PredictionKind},
};
use serde_json::json;

#[test]
fn the_arithmetic_of_the_headline() {
    assert_eq!(
        prediction(&samples::prediction(), "harness", Style::Plain),
        "\
27 calls will arrive at inventory for 1 request if it stays down.  3 x 3 x 3

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==> inventory
               1                3                9               27

One edit                    at inventory  you edit    afterwards
  retries off at frontend              9  1 service   checkout is tried once
Several edits
  20 % budget, 3 layers    1.728 at most  3 services  20 % retries at most
  retry at frontend only               3  2 services  frontend retries all below

Exact for a service that is down.

run it    harness run --seed 27
prove it  harness run --seed 27 --prove
repeat    harness predict --seed 27
"
    );
}

#[test]
fn the_arithmetic_with_everything_that_can_be_asked() {
    let text = prediction(&samples::prediction_full(), "harness", Style::Plain);
    assert!(
        text.starts_with(
            "\
27 calls will arrive at inventory for 1 request if it stays down. At 20
requests/s: 540 calls/s.
  3 x 3 x 3
"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "
If inventory fails part of its calls          50 %      90 %     100 %
calls at inventory
  as it is                                    2.00      9.42        27
  retry at frontend only                      1.75      2.71         3
requests that still fail
  as it is                                  7.5e-9  < 1e-300     100 %
  retry at frontend only                    12.5 %    72.9 %     100 %

3 layers can retry. With a budget of 20 % at each of them: 1.728 calls at
inventory for 1 request, at most.
While inventory fails, 20 requests/s become 540 calls/s; it can answer 100, so
it may not recover by itself once it is back.

Exact for a service that is down.
"
        ),
        "{text}"
    );
}

#[test]
fn a_chance_too_small_to_write_is_none_only_where_the_fault_passes() {
    let mut sums = samples::prediction();
    sums.services[3].predicted.kind = PredictionKind::Statistical;
    (sums.bottom.still_fails, sums.bottom.sd) = (Some(0.0), Some(1.41));
    let told = |sums: &mut crate::report::Prediction, fault: &str| {
        sums.chain = format!("client > frontend x3 > checkout x3 > pricing x3 > inventory {fault}");
        prediction(sums, "harness", Style::Plain)
    };
    let text = told(&mut sums, "fail:p=0.5");
    assert!(text.contains("\nRequests that still fail: < 1e-300. "), "{text}");
    let text = told(&mut sums, "fail:p=0.5,first=2");
    assert!(text.contains("\nRequests that still fail: 0 %. "), "{text}");
}

#[test]
fn what_a_change_gives_up_has_a_line_where_no_column_fits() {
    let mut sums = samples::prediction();
    sums.changes[1].edits = "2 services, 1 mesh setting".to_owned();
    sums.changes[1].gives_up = "10000 tries of a call, not 30000".to_owned();
    let text = prediction(&sums, "harness", Style::Plain);
    assert!(
        text.contains(
            "
One edit                    at inventory  you edit
  retries off at frontend              9  1 service
      then checkout is tried once
Several edits
  20 % budget, 3 layers    1.728 at most  3 services
      then 20 % retries at most
  retry at frontend only               3  2 services, 1 mesh setting
      then 10,000 tries of a call, not 30,000
"
        ),
        "{text}"
    );
}

#[test]
fn requests_that_differ_have_an_average_and_a_worst_one() {
    let mut sums = samples::prediction();
    sums.scenario = json!({"load": {"requests": 100}});
    sums.services[3].predicted = samples::exact(172);
    let first = |sums: &crate::report::Prediction| {
        let text = prediction(sums, "harness", Style::Plain);
        text.split("\n\n").next().unwrap().replace('\n', " ")
    };
    (sums.bottom.worst, sums.bottom.mean) = (Count::Of(4), Some(1.72));
    let average = "1.72 calls on average will arrive at inventory for 1 request, 4 at most. For 100 requests: 172.";
    assert!(first(&sums).starts_with(average), "{}", first(&sums));
    assert!(prediction(&sums, "harness", Style::Plain).contains("at inventory for 1, at most"));
    // Also where the average is whole.
    (sums.bottom.worst, sums.bottom.mean) = (Count::Of(27), Some(3.0));
    assert!(first(&sums).starts_with("3.00 calls on average"), "{}", first(&sums));
    sums.bottom.mean = Some(27.0);
    assert!(first(&sums).starts_with("27 calls will arrive at inventory for 1 request"));
}

#[test]
fn the_arithmetic_in_the_right_words() {
    let first = |sums: &crate::report::Prediction| {
        prediction(sums, "harness", Style::Plain)
            .lines()
            .next()
            .unwrap()
            .to_owned()
    };
    let mut sums = samples::prediction();
    sums.chain = "client > frontend > checkout > pricing x3 > inventory fail:first=2".to_owned();
    sums.services[3].predicted = samples::exact(3);
    (sums.bottom.mean, sums.bottom.still_fails, sums.formula) = (Some(3.0), Some(0.0), "3".to_owned());
    assert_eq!(
        first(&sums),
        "3 calls will arrive at inventory for 1 request, and the third will be answered."
    );

    sums.chain = "frontend > checkout > pricing > inventory".to_owned();
    sums.services[3].predicted = samples::exact(1);
    assert_eq!(
        first(&sums),
        "1 call will arrive at inventory for 1 request if nothing fails."
    );

    sums.chain = "frontend > checkout > pricing > inventory refuse".to_owned();
    sums.services[3].predicted = samples::exact(0);
    assert!(
        prediction(&sums, "harness", Style::Plain).starts_with(
            "27 calls will be sent to inventory for 1 request, and none will arrive: its port\nis closed."
        ),
        "{}",
        prediction(&sums, "harness", Style::Plain)
    );
    sums.links[3].sent = samples::exact(1);
    assert_eq!(
        first(&sums),
        "1 call will be sent to inventory for 1 request, and it will not arrive: its port"
    );

    sums.links[3].sent = samples::exact(0);
    sums.scenario = json!({"services": {"pricing": {"fault": "fail:p=0.1"}}});
    assert_eq!(
        first(&sums),
        "0 calls will arrive at inventory for 1 request with the faults as set."
    );
}

#[test]
fn the_arithmetic_of_what_is_invalid_or_done_in_vain() {
    let headline = |sums: &crate::report::Prediction| {
        let text = prediction(sums, "harness", Style::Plain);
        text.split("\n\n").next().unwrap().replace('\n', " ")
    };
    let mut sums = samples::prediction();
    sums.formula = "27".to_owned();
    sums.chain = "frontend > checkout > pricing > inventory fail:at=after".to_owned();
    assert_eq!(
        headline(&sums),
        "27 calls will arrive at inventory for 1 request if it does the work and then fails."
    );
    sums.chain = "frontend > checkout > pricing > inventory fail:code=INTERNAL".to_owned();
    assert_eq!(
        headline(&sums),
        "27 calls will arrive at inventory for 1 request if it answers INTERNAL."
    );

    sums.chain = "frontend > checkout > pricing > inventory".to_owned();
    let policy = |codes: serde_json::Value| {
        json!({
            "load": {"item": ""},
            "services": {"pricing": {"retry": {"retry_on": codes}}, "inventory": {"fault": "none"}},
        })
    };
    sums.scenario = policy(json!("any"));
    assert_eq!(
        headline(&sums),
        "27 calls will arrive at inventory for 1 request: it is invalid, and every code is retried."
    );
    sums.scenario = policy(json!(["INVALID_ARGUMENT"]));
    assert_eq!(
        headline(&sums),
        "27 calls will arrive at inventory for 1 request: it is invalid, and it is tried again all the same."
    );
    sums.services[3].predicted = samples::exact(1);
    sums.scenario = policy(json!(["UNAVAILABLE"]));
    assert_eq!(
        headline(&sums),
        "1 call will arrive at inventory for 1 request: it is invalid, and nobody tries it again."
    );
}

#[test]
fn what_a_change_leaves_is_the_worst_case_under_chance() {
    let mut sums = samples::prediction();
    for row in &mut sums.services {
        row.predicted.kind = PredictionKind::Statistical;
    }
    let text = prediction(&sums, "harness", Style::Plain);
    assert!(
        text.contains(
            "\nOne edit                   at inventory, at most  you edit\n  \
             retries off at frontend                      9  1 service\n      \
             then checkout is tried once\n"
        ),
        "{text}"
    );
}

#[test]
fn figures_of_any_length_stand_under_their_names() {
    let mut sums = samples::prediction();
    for (row, power) in sums.services.iter_mut().zip([9, 12, 14, 24]) {
        row.predicted.min = Count::Of(10_u128.pow(power));
        row.predicted.max = row.predicted.min;
    }
    sums.changes[1].bottom = Count::Of(10_u128.pow(24));
    sums.changes[2].bottom = Count::Of(10_u128.pow(14));
    let text = prediction(&sums, "harness", Style::Plain);
    assert!(text.starts_with("1.0e24 calls will arrive at inventory"), "{text}");
    assert!(
        text.contains("1.0e24  2 services") && text.contains("100,000,000,000,000  1 service"),
        "{text}"
    );
    let lines: Vec<&str> = text.lines().collect();
    let mut seen = 0;
    for pair in lines.windows(2).filter(|pair| pair[0].contains("==>")) {
        for (name, figure) in
            samples::SHOP
                .iter()
                .zip(["1,000,000,000", "1,000,000,000,000", "100,000,000,000,000", "1.0e24"])
        {
            if let (Some(name_at), Some(at)) = (pair[0].find(name), pair[1].find(&format!(" {figure}"))) {
                let (name, figure) = (2 * name_at + name.len(), 2 * (at + 1) + figure.len());
                assert!(name.abs_diff(figure) <= 1, "{text}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 4, "{text}");
}

#[test]
fn the_arithmetic_of_chance() {
    let mut sums = samples::prediction();
    sums.chain = "frontend x3 > checkout x3 > pricing x3 > inventory fail:p=0.5".to_owned();
    for (row, mean) in sums.services.iter_mut().zip([1.0, 1.0001, 1.142, 2.0]) {
        row.predicted.kind = PredictionKind::Statistical;
        row.predicted.mean = Some(mean);
        row.predicted.min = Count::Of(1);
    }
    (sums.bottom.mean, sums.bottom.sd, sums.bottom.still_fails) = (Some(2.0), Some(1.41), Some(7.5e-9));
    sums.changes.clear();
    sums.notes.clear();
    assert_eq!(
        prediction(&sums, "harness", Style::Plain),
        "\
2.00 calls on average will arrive at inventory for 1 request, 27 at most.
  3 x 3 x 3

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==> inventory
              1.00             1.00            1.14             2.00
Requests that still fail: 7.5e-9. One request strays from the average by 1.41
(one standard deviation).

run it    harness run --seed 27
repeat    harness predict --seed 27
"
    );
}

#[test]
fn the_arithmetic_with_proxies_and_many_requests() {
    let mut sums = samples::prediction();
    sums.tries_per_call = samples::SHOP[..3]
        .iter()
        .map(|name| samples::tries(name, 3, 3))
        .collect();
    for (row, count) in sums.services.iter_mut().zip([40, 360, 3240, 29_160]) {
        row.predicted = samples::exact(count);
    }
    (sums.bottom.worst, sums.bottom.mean) = (Count::Of(729), Some(729.0));
    sums.formula = "9 x 9 x 9".to_owned();
    sums.scenario = json!({"load": {"requests": 40}});
    let text = prediction(&sums, "harness", Style::Plain);
    assert!(
        text.starts_with(
            "\
729 calls will arrive at inventory for 1 request if it stays down. For 40
requests: 29,160.
  9 x 9 x 9

client ---> frontend ==x9==> checkout ==x9==> pricing ==x9==> inventory
               40              360             3,240           29,160
The counts are those of 40 requests.
Each call is tried 9 times: 3 in the code, each through 3 in the proxy.
"
        ),
        "{text}"
    );
    sums.tries_per_call = (1..=4).map(|place| samples::tries("a-caller", place, 2)).collect();
    let text = prediction(&sums, "harness", Style::Plain);
    assert!(
        text.contains(
            "\nAttempts in the code, each through those of the proxy: a-caller 1*2, a-caller\n\
             2*2, a-caller 3*2, a-caller 4*2.\n"
        ),
        "{text}"
    );
}

#[test]
fn a_run_is_offered_where_it_would_be_accepted() {
    let offered = |count: u64, deadline: &str, flags: &str| {
        let mut sums = samples::prediction();
        sums.services[3].predicted = samples::exact(count);
        sums.scenario = json!({"load": {"requests": 1, "deadline": deadline}});
        sums.command = format!("predict{flags}");
        let text = prediction(&sums, "harness", Style::Plain);
        let line = text.lines().find_map(|line| line.strip_prefix("run it    "));
        line.map(str::to_owned)
    };
    assert_eq!(offered(900, "1s", "").as_deref(), Some("harness run"));
    assert_eq!(
        offered(9_900, "1s", " -n 1").as_deref(),
        Some("harness run -n 1 --deadline none")
    );
    assert_eq!(offered(9_900, "1s", " --deadline 1s"), None);
    assert_eq!(offered(9_900, "none", "").as_deref(), Some("harness run"));
    assert_eq!(offered(2_000_000, "none", ""), None);
}

#[test]
fn many_changes_that_leave_as_much_are_one_and_the_rest_is_counted() {
    let mut sums = samples::prediction();
    let like = sums.changes[1].clone();
    let change = |kind, at: &str, bottom: u128, edits: &str| Change {
        change: format!(
            "{} {at}",
            if kind == ChangeKind::CodeOff {
                "no retries at"
            } else {
                "retry at"
            }
        ),
        kind,
        at: Some(at.to_owned()),
        bottom: Count::Of(bottom),
        edits: edits.to_owned(),
        gives_up: "retries".to_owned(),
        ..like.clone()
    };
    let (one, two) = ("1 service", "2 services");
    let owner = ChangeKind::OwnerCode;
    sums.changes = vec![
        change(owner, "a", 3, two),
        change(owner, "b", 3, two),
        change(owner, "c", 3, two),
        change(owner, "d", 3, one),
        change(ChangeKind::OwnerWithProxy, "d and its proxy", 3, one),
    ];
    let rows = |sums: &crate::report::Prediction| {
        let text = prediction(sums, "harness", Style::Plain);
        let rows = text.lines().skip_while(|line| !line.starts_with("Several")).skip(1);
        let rows = rows.take_while(|line| line.starts_with(' '));
        // The last column is the same everywhere.
        let rows = rows.map(|row| row.strip_suffix("retries").unwrap_or(row).trim_end().to_owned());
        rows.collect::<Vec<_>>()
    };
    assert_eq!(rows(&sums).len(), 5, "few stand for themselves");
    sums.changes
        .extend((1..=8_u8).map(|place| change(ChangeKind::CodeOff, &place.to_string(), 9 + u128::from(place), one)));
    assert_eq!(
        rows(&sums),
        [
            "  retry at a                           3  2 services",
            "    or the same at 1 of 2 others",
            "  retry at d                           3  1 service",
            "  retry at d and its proxy             3  1 service",
            "  no retries at 1                     10  1 service",
            "  no retries at 2                     11  1 service",
            "  no retries at 3                     12  1 service",
            "  no retries at 4                     13  1 service",
            "  no retries at 5                     14  1 service",
            "  3 more cut less and are in the report (--json)",
        ]
    );
}

#[test]
fn what_comes_in_an_outage_stands_against_what_can_be_answered() {
    use crate::report::PerSecond;
    let said = |change: fn(&mut crate::report::Prediction, &mut crate::report::Capacity)| {
        let mut sums = samples::prediction_full();
        let mut asked = sums.capacity.unwrap();
        change(&mut sums, &mut asked);
        sums.capacity = Some(asked);
        super::prediction::capacity::sentence(&sums).unwrap()
    };
    let end = "by itself once it is back.";
    assert_eq!(
        said(|_, asked| asked.recovers = Some(true)),
        format!("While inventory fails, 20 requests/s become 540 calls/s; it can answer 100, so it recovers {end}")
    );
    assert_eq!(
        said(|sums, asked| {
            (sums.rate, sums.rate_requests) = (Some(1.0), Some(100));
            asked.load = Some(PerSecond {
                min: 12.5,
                max: 12_345.0,
            });
            (asked.offered, asked.recovers) = (Some(1.0), None);
        }),
        format!(
            "While inventory fails, 1 request/s becomes 12.50 to 12,345 calls/s (over 100 requests); it can answer 100, so \
             it may or may not recover {end}"
        )
    );
    assert_eq!(
        said(|_, asked| (asked.failing, asked.capacity) = (0.9, 20_000.0)),
        format!(
            "While inventory fails 90 % of its calls, 20 requests/s become 540 calls/s; it can answer 20,000, so it may not \
             recover {end}"
        )
    );
    assert_eq!(
        said(|_, asked| asked.load = None),
        format!(
            "While inventory fails, each request becomes more than 3.4e38 calls; it can answer 100, so it may not recover \
             {end}"
        )
    );
    let even = "Even without retries inventory cannot keep up:";
    assert_eq!(
        said(|_, asked| asked.offered = Some(1_200.0)),
        format!("{even} 20 requests/s are 1,200 calls/s there, and it can answer 100.")
    );
    assert_eq!(
        said(|sums, asked| {
            sums.rate = Some(1.0);
            (asked.offered, asked.capacity) = (Some(1.0), 0.5);
        }),
        format!("{even} 1 request/s is 1 call/s there, and it can answer 0.50.")
    );
}
