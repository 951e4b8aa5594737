//! Whole screens of a chain that stays up, as they must come out.

use super::*;
use crate::{
    render::{samples, text::Style},
    report::{PredictionKind, Reason, Verdict},
};

const PROGRAM: &str = "target/release/harness";
const ATTACH: &str =
    "frontend=127.0.0.1:41235,checkout=127.0.0.1:41237,pricing=127.0.0.1:41239,inventory=127.0.0.1:41241";
const SAID: &str = "checkout: pricing: inventory: the injected fault";

#[test]
fn a_chain_that_is_up() {
    assert_eq!(
        up(&samples::started(&samples::SHOP), PROGRAM, Style::Plain),
        "\
4 services are up, from frontend down to inventory.

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==> inventory

service      call it at        ask it at (control)
frontend     127.0.0.1:50051   127.0.0.1:50061
checkout     127.0.0.1:50052   127.0.0.1:50062
pricing      127.0.0.1:50053   127.0.0.1:50063
inventory    127.0.0.1:50054   127.0.0.1:50064

In another terminal
  target/release/harness call      1 request, and every call it causes
  target/release/harness fail      inventory answers UNAVAILABLE
  target/release/harness retry 2   every caller makes 2 attempts
  target/release/harness heal      everything works again
  target/release/harness status    what has arrived so far

any client    grpcurl -plaintext -d '{\"item\":\"teapot\"}' 127.0.0.1:50051 \\
    shop.v1.Frontend/GetOffer

Ctrl-C ends it.
"
    );
}

#[test]
fn a_chain_on_other_ports_says_how_to_attach() {
    let mut started = samples::started(&samples::SHOP);
    started.attach = Some(ATTACH.to_owned());
    started.otlp = Some("http://127.0.0.1:4317".to_owned());
    started.chain = started.chain.replace("inventory'", "inventory fail:first=2'");
    assert_eq!(
        up(&started, "harness", Style::Plain),
        "\
4 services are up, from frontend down to inventory.

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==> inventory
                                                            fail:first=2

service      call it at        ask it at (control)
frontend     127.0.0.1:50051   127.0.0.1:50061
checkout     127.0.0.1:50052   127.0.0.1:50062
pricing      127.0.0.1:50053   127.0.0.1:50063
inventory    127.0.0.1:50054   127.0.0.1:50064

In another terminal
export RETRYSCOPE_ATTACH=\\
'frontend=127.0.0.1:41235,checkout=127.0.0.1:41237,pricing=127.0.0.1:41239,'\\
'inventory=127.0.0.1:41241'
  harness call      1 request, and every call it causes
  harness retry 2   every caller makes 2 attempts
  harness heal      everything works again
  harness status    what has arrived so far

any client    grpcurl -plaintext -d '{\"item\":\"teapot\"}' 127.0.0.1:50051 \\
    shop.v1.Frontend/GetOffer
traces go to  http://127.0.0.1:4317

Ctrl-C ends it.
"
    );
}

#[test]
fn a_call_that_failed() {
    assert_eq!(
        call(&samples::called(), Some(SAID), PROGRAM, Style::Plain),
        "\
27 calls arrived at inventory for 1 request, as predicted.

frontend     x                                        1
checkout     xxx                                      3
pricing      xxx xxx xxx                              9
inventory    xxx xxx xxx  xxx xxx xxx  xxx xxx xxx   27

             predicted     received      traced
             1 3 9 27      1 3 9 27      1 3 9 27      AS PREDICTED

answer        UNAVAILABLE: checkout: pricing: inventory: the injected fault
trace         http://127.0.0.1:16686/trace/4bf92f3577b34da6a3ce929d0e0e4736

next    target/release/harness heal     repair it
        target/release/harness call     once more
        target/release/harness status   what has arrived so far
"
    );
}

#[test]
fn a_call_that_was_answered_after_failures() {
    let mut report = samples::transient();
    report.command = format!("run 'a > b' --attach {ATTACH}");
    assert_eq!(
        call(&report, Some("the last failure"), "harness", Style::Plain),
        "\
3 calls arrived at inventory for 1 request, and the third was answered.

frontend     o      1
checkout     o      1
pricing      o      1
inventory    xxo    3

             predicted     received      traced
             1 1 1 3       1 1 1 3       1 1 1 3       AS PREDICTED

answer        OK

export RETRYSCOPE_ATTACH=\\
'frontend=127.0.0.1:41235,checkout=127.0.0.1:41237,pricing=127.0.0.1:41239,'\\
'inventory=127.0.0.1:41241'
next    harness heal     repair it
        harness call     once more
        harness status   what has arrived so far
"
    );
}

#[test]
fn a_call_that_met_a_switch() {
    assert_eq!(
        call(&samples::called_mixed(), Some(SAID), PROGRAM, Style::Plain),
        "\
No verdict. Somebody switched the settings while the request was under way.

             predicted     received      traced
             1 3 9 27      1 3 9 9       1 3 9 9       INCOMPLETE

answer        UNAVAILABLE: checkout: pricing: inventory: the injected fault
Way on        once more, while nobody switches.
trace         http://127.0.0.1:16686/trace/4bf92f3577b34da6a3ce929d0e0e4736

next    target/release/harness heal     repair it
        target/release/harness call     once more
        target/release/harness status   what has arrived so far
"
    );
}

#[test]
fn a_switch_that_breaks_something() {
    assert_eq!(
        switched(&samples::switched(), PROGRAM, Style::Plain),
        "\
27 calls will arrive at inventory for 1 request: it answers UNAVAILABLE now.

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==> inventory
               1                3                9               27

In force at all 4 services now: settings 3. What is different:
  inventory    fault   none -> fail

next    target/release/harness call     see what arrives
        target/release/harness heal     repair it
        target/release/harness status   what has arrived so far
"
    );
}

#[test]
fn a_switch_of_attempts_names_the_way_back() {
    let mut switch = samples::switched();
    switch.prediction.formula = "2 x 2 x 2".to_owned();
    for (row, count) in switch.prediction.services.iter_mut().zip([1, 2, 4, 8]) {
        row.predicted = samples::exact(count);
    }
    switch.prediction.tries_per_call = samples::SHOP[..3]
        .iter()
        .map(|name| samples::tries(name, 2, 1))
        .collect();
    switch.changes = samples::SHOP[..3]
        .iter()
        .map(|name| samples::changed(name, "attempts", "3", "2"))
        .collect();
    assert_eq!(
        switched(&switch, "harness", Style::Plain),
        "\
8 calls will arrive at inventory for 1 request if it stays down.

client ---> frontend ==x2==> checkout ==x2==> pricing ==x2==> inventory
               1                2                4                8

In force at all 4 services now: settings 3. What is different:
  frontend     attempts   3 -> 2
  checkout     attempts   3 -> 2
  pricing      attempts   3 -> 2

next    harness call      see what arrives
        harness retry 3   as it was
        harness status    what has arrived so far
"
    );
}

#[test]
fn a_switch_that_changes_nothing() {
    let mut switch = samples::switched();
    switch.changes.clear();
    assert_eq!(
        switched(&switch, "harness", Style::Plain),
        "\
Nothing changed: 27 calls will arrive at inventory for 1 request if it stays
down.

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==> inventory
               1                3                9               27

Still in force at all 4 services: settings 3.

next    harness call     see what arrives
        harness heal     repair it
        harness status   what has arrived so far
"
    );
}

#[test]
fn what_has_arrived_so_far() {
    assert_eq!(
        status(&samples::status(), PROGRAM, Style::Plain),
        "\
27 calls arrived at inventory for 1 at frontend under settings 3, now in force.

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==> inventory
               1                3                9               27

settings 3   attempts   retry on      fault
frontend            3   UNAVAILABLE   none
checkout            3   UNAVAILABLE   none
pricing             3   UNAVAILABLE   none
inventory           -   -             fail

arrived                frontend   checkout   pricing   inventory
settings 3, in force          1          3         9          27
settings 2                   35        100       131         140
settings 1                    5          5         5           5
in all                       41        108       145         172
  in flight                   0          0         0           0

next    target/release/harness call   1 request
        target/release/harness heal   repair it
repeat  target/release/harness status
"
    );
}

#[test]
fn a_state_with_all_there_is_to_say() {
    assert_eq!(
        status(&samples::status_full(), "harness", Style::Plain),
        "\
27 calls arrived at inventory for 1 at frontend under settings 3, now in force.

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==> inventory
               1                3                9               27

settings 3   attempts   retry on                         fault
frontend            3   UNAVAILABLE                      none
checkout            3   UNAVAILABLE, DEADLINE_EXCEEDED   none
pricing             3   UNAVAILABLE                      none
inventory           -   -                                fail:first=2

limit         frontend gives each attempt 250ms
hedge         frontend sends its next attempt after 50ms, without a failure
throttle      frontend retries while more than half of its tokens are left:
              max_tokens=10, token_ratio=0.1
deadline      frontend passes none on
back-off      checkout waits before it tries again: initial=25ms, multiplier=2,
              max=250ms, jitter=full
budget        of checkout's retries: kind=window, ratio=0.2, min_per_second=0,
              ttl=10s
commit        checkout retries answers that have begun, up to a second message
deadline      checkout passes on 1s at most
detached      checkout works on when its caller has left
calls         checkout calls pricing 2 times for each call that arrives there,
              all at once.
pushback      pricing retries also where it is asked not to
first tries   pricing retries no call that is a retry itself
fault         in pricing, outside its retry loop: delay:ms=20+fail:first=1
on failure    pricing answers INTERNAL when its own call failed
codes         raw at pricing, as the transport gives them
Not the same  pricing has settings 2, not 3: a request meets both. Switch again
              to put one in force everywhere.

arrived                frontend   checkout   pricing   inventory
settings 3, in force          1          3         9          27
settings 2                   35        100       131         140
settings 1                    5          5         5           5
met two settings              2          4         8          16
in all                       43        112       153         188
  by other clients           40         40        40          40
  late                        0          0         0           3
  in flight                   0          0         0           1
Switches      2 requests met two settings and are counted apart, and may be
              more: records of single calls had to be given up.
link          pricing > inventory: 190 sent, 172 arrived

export RETRYSCOPE_ATTACH=\\
'frontend=127.0.0.1:41235,checkout=127.0.0.1:41237,pricing=127.0.0.1:41239,'\\
'inventory=127.0.0.1:41241'
next    harness call   1 request
        harness heal   repair it
repeat  harness status
"
    );
}

/// The first paragraph of a screen, as one line.
fn opening(text: &str) -> String {
    text.split("\n\n").next().unwrap().replace('\n', " ")
}

#[test]
fn a_shorter_chain_is_entered_lower() {
    for (names, method) in [
        (&["web", "db"][..], "shop.v1.Pricing/GetPrice"),
        (&["web", "api", "db"][..], "shop.v1.Checkout/GetQuote"),
    ] {
        let text = up(&samples::started(names), "harness", Style::Plain);
        assert!(text.contains(method), "{text}");
        assert!(
            text.contains("\n  harness fail      db answers UNAVAILABLE\n"),
            "{text}"
        );
    }
}

#[test]
fn a_call_that_works_offers_to_break_it() {
    let mut report = samples::transient();
    report.chain = "client > frontend x3 > inventory".to_owned();
    let text = call(&report, None, "harness", Style::Plain);
    assert!(text.contains("\nnext    harness fail     break it\n"), "{text}");
    assert!(text.contains("\nanswer        OK\n"), "{text}");
    report.operations.ok = 0;
    let text = call(&report, None, "harness", Style::Plain);
    assert!(text.contains("\nanswer        none\n"), "{text}");
}

#[test]
fn a_hidden_layer_is_found_by_a_call() {
    let text = call(&samples::hidden(), Some(SAID), "harness", Style::Plain);
    assert!(
        text.starts_with("108 calls arrived at inventory. 27 were predicted."),
        "{text}"
    );
    for part in [
        "<-- here",
        "NOT AS PREDICTED",
        "\nHow we know ",
        "\nLook for ",
        "\nanswer        UNAVAILABLE: checkout:",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("repeat it"), "{text}");
}

#[test]
fn requests_that_met_a_switch_are_no_riddle() {
    let mut report = samples::thousand();
    report.verdict = Verdict::Incomplete;
    report.operations.mixed = 3;
    report.reasons = vec![Reason {
        kind: "mixed".to_owned(),
        text: "Requests that met more than one setting: 3.".to_owned(),
    }];
    let text = super::super::run(&report, "harness", Style::Plain);
    assert!(
        text.starts_with("No verdict. 3 of 1,000 requests met a switch of the settings.\n"),
        "{text}"
    );
    assert!(
        text.contains("\nrequests      1,000 failed: UNAVAILABLE, 3 met a switch of the settings\n"),
        "{text}"
    );
}

#[test]
fn what_is_true_now_depends_on_the_fault() {
    let mut switch = samples::switched();
    let mut first = |service: &str, fault: &str| {
        switch.prediction.scenario = serde_json::json!({"services": {service: {"fault": fault}}});
        switch.changes = vec![samples::changed(service, "fault", "fail", fault)];
        opening(&switched(&switch, "harness", Style::Plain))
    };
    let calls = "27 calls will arrive at inventory for 1 request";
    assert_eq!(first("inventory", "none"), format!("{calls}: nothing fails now."));
    assert_eq!(
        first("inventory", "fail:code=INTERNAL"),
        format!("{calls}: it answers INTERNAL now.")
    );
    assert_eq!(
        first("pricing", "fail"),
        format!("{calls}: pricing answers UNAVAILABLE now.")
    );
    assert_eq!(
        first("inventory", "fail:first=2"),
        format!("{calls} if it fails the first 2.")
    );
    switch.prediction.services[3].predicted.kind = PredictionKind::Statistical;
    switch.prediction.bottom.mean = Some(2.0);
    let text = switched(&switch, "harness", Style::Plain);
    assert!(text.starts_with("2.00 calls on average will arrive"), "{text}");
    assert!(text.contains("Requests that still fail:"), "{text}");
}

#[test]
fn what_was_repaired_can_be_broken_again() {
    let mut switch = samples::switched();
    switch.prediction.scenario = serde_json::json!({"services": {"inventory": {"fault": "none"}}});
    switch.changes = vec![samples::changed("inventory", "fault", "fail:first=2", "none")];
    let text = switched(&switch, "harness", Style::Plain);
    assert!(
        text.contains("\n        harness fail inventory=fail:first=2   break it again\n"),
        "{text}"
    );
    switch.prediction.scenario =
        serde_json::json!({"services": {"pricing": {"fault": "fail"}, "inventory": {"fault": "fail"}}});
    switch.changes = vec![samples::changed("pricing", "fault", "none", "fail")];
    let text = switched(&switch, "harness", Style::Plain);
    assert!(text.contains("\n        harness heal pricing   repair it\n"), "{text}");
    switch.changes = vec![samples::changed("pricing", "attempts", "3", "2")];
    let text = switched(&switch, "harness", Style::Plain);
    assert!(!text.contains("harness retry"), "the others had 2 before: {text}");
}

#[test]
fn nothing_has_arrived_yet() {
    let mut state = samples::status();
    state.generation = 4;
    state.generations.push(crate::report::LiveGeneration {
        generation: 4,
        services: samples::counts(&samples::SHOP, &[0; 4]),
    });
    let text = status(&state, "harness", Style::Plain);
    assert!(
        text.starts_with("0 calls arrived under settings 4, now in force.\n"),
        "{text}"
    );
}

#[test]
fn many_earlier_settings_are_cut_and_counted() {
    let mut state = samples::status();
    let services = state.generations[0].services.clone();
    state.generation = 40;
    state.generations = (0..=40)
        .map(|generation| crate::report::LiveGeneration {
            generation,
            services: services.clone(),
        })
        .collect();
    let text = status(&state, "harness", Style::Plain);
    assert!(
        text.contains("\nsettings 30  ") && !text.contains("\nsettings 29 "),
        "{text}"
    );
    assert!(
        text.contains("\nOlder         30 rows are in the report (--json), and among all.\n"),
        "{text}"
    );
    state.generations.truncate(3);
    let text = status(&state, "harness", Style::Plain);
    assert!(text.contains("\nolder settings "), "{text}");
}

#[test]
fn large_figures_and_long_names_keep_their_columns() {
    let names = ["a".repeat(40), "b".repeat(40), "c".repeat(40), "d".repeat(40)];
    let mut state = samples::status_of(&[&names[0], &names[1], &names[2], &names[3]]);
    state.services[3].received = 1_234_567_890;
    let text = status(&state, "harness", Style::Plain);
    assert!(
        text.contains("\narrived                aaaa...aaaa   bbbb...bbbb   cccc...cccc   ddddd...ddddd\n"),
        "{text}"
    );
    for row in &mut state.services {
        row.received = u64::MAX;
        row.in_flight = 9_999_999_999;
    }
    let text = status(&state, "harness", Style::Plain);
    assert!(
        text.contains("\narrived                at each service, from the top\n"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn the_words_of_the_code_stay_out_of_what_stays_up() {
    let screens = [
        up(&samples::started(&samples::SHOP), "harness", Style::Plain),
        call(&samples::called_mixed(), Some(SAID), "harness", Style::Plain),
        switched(&samples::switched(), "harness", Style::Plain),
        status(&samples::status_full(), "harness", Style::Plain),
    ];
    for text in screens {
        for word in ["operation", "generation", "amplification", "ledger", "mixed", "foreign"] {
            assert!(!text.to_lowercase().contains(word), "{word}: {text}");
        }
    }
}
