//! Whole screens, as they must come out.

use super::*;
use crate::{
    render::samples,
    report::{Comparison, Count, Expected, Reason, Verdict},
};

const PROGRAM: &str = "target/release/harness";

fn screen_of(report: &crate::report::Report) -> String {
    run(report, "harness", Style::Plain)
}

#[test]
fn the_headline_run() {
    assert_eq!(
        screen_of(&samples::headline()),
        "\
27 calls arrived at inventory for 1 request, as predicted.

frontend     x                                        1
checkout     xxx                                      3
pricing      xxx xxx xxx                              9
inventory    xxx xxx xxx  xxx xxx xxx  xxx xxx xxx   27

             predicted     received      traced
             1 3 9 27      1 3 9 27      1 3 9 27      AS PREDICTED

requests      1 failed: UNAVAILABLE
repeat it     harness run --seed 27                                     exit 0
"
    );
}

#[test]
fn a_fault_that_passes() {
    assert_eq!(
        screen_of(&samples::transient()),
        "\
3 calls arrived at inventory for 1 request, and the third was answered.

frontend     o      1
checkout     o      1
pricing      o      1
inventory    xxo    3

             predicted     received      traced
             1 1 1 3       1 1 1 3       1 1 1 3       AS PREDICTED

requests      1 OK
repeat it     harness run --fault fail:first=2 --seed 27                exit 0
"
    );
}

#[test]
fn a_thousand_requests() {
    assert_eq!(
        screen_of(&samples::thousand()),
        "\
27,000 calls arrived at inventory for 1,000 requests, as predicted.

frontend     ##                                                    1,000
checkout     ######                                                3,000
pricing      #################                                     9,000
inventory    ##################################################   27,000

                predicted    received      traced
frontend            1,000       1,000       1,000
checkout            3,000       3,000       3,000
pricing             9,000       9,000       9,000
inventory          27,000      27,000      27,000
                                                       AS PREDICTED

requests      1,000 failed: UNAVAILABLE
receipts      a sample: 1 of 1,000 requests
repeat it     harness run --requests 1000 --concurrency 50 --seed 27    exit 0
"
    );
}

#[test]
fn a_closed_port() {
    assert_eq!(
        screen_of(&samples::refused()),
        "\
27 calls were sent to inventory for 1 request, and none arrived, as predicted.

frontend     x                          1
checkout     xxx                        3
pricing      xxx xxx xxx                9
inventory    (27 sent, none arrived)    0

link                        sent   received   factor
  client   > frontend          1          1        1
  frontend > checkout          3          3        1
  checkout > pricing           9          9        1
  pricing  > inventory        27          0        0

             predicted     received      traced
             1 3 9 0       1 3 9 0       1 3 9 0       AS PREDICTED

requests      1 failed: UNAVAILABLE
repeat it     harness run --fault refuse --seed 27                      exit 0
"
    );
}

#[test]
fn a_closed_port_that_something_answers_for() {
    assert_eq!(
        screen_of(&samples::answered_for()),
        "\
27 calls were sent to inventory, whose port is closed, and something else
answered them.

Something between pricing and inventory answers for inventory, and no
configuration declares it.

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==?==> inventory
               1                3                9                   0

link                        sent   received   factor
  client   > frontend          1          1        1
  frontend > checkout          3          3        1
  checkout > pricing           9          9        1
  pricing  > inventory        27          0        0   <-- here

             predicted     received      traced
             1 3 9 0       1 3 9 0       1 3 9 0       NOT AS PREDICTED

requests      1 failed: UNAVAILABLE
How we know   On pricing > inventory, 27 attempts were sent to a closed port and
              none was refused: something in between answered them.
Look for      a sidecar, a gateway or a load balancer on that link, which makes
              an answer of the failure that it meets.
repeat it     harness run --fault refuse --undeclared pricing=3 --seed 27
                                                                        exit 1
"
    );
}

#[test]
fn a_hidden_layer() {
    assert_eq!(
        screen_of(&samples::hidden()),
        "\
108 calls arrived at inventory. 27 were predicted. That is 4 times as many.

Something between pricing and inventory makes 4 calls out of 1, and no
configuration declares it.

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==?x4==> inventory
               1                3                9                    108

link                        sent   received   factor
  client   > frontend          1          1        1
  frontend > checkout          3          3        1
  checkout > pricing           9          9        1
  pricing  > inventory        27        108        4   <-- here

             predicted     received      traced
             1 3 9 27      1 3 9 108     1 3 9 108     NOT AS PREDICTED

requests      1 failed: UNAVAILABLE
How we know   pricing sent 27 attempts, by its own count and by its spans.
              inventory received each of these 27 exactly 4 times, under the
              same attempt path and the same parent span.
              x-envoy-attempt-count ran 1 2 3 4: the layer is an Envoy.
Look for      a sidecar or gateway on that link, an SDK with retries of its own
              under pricing's loop, a load balancer that replays.
Meant to be?  declare it:  harness run \\
    'frontend x3 > checkout x3 > pricing x3 > inventory down' \\
    --sidecar-attempts-at pricing=4
repeat it     harness run hidden-layer                                  exit 1
"
    );
}

/// The lines from the one that begins with `first` to the one before `end`.
fn part<'a>(text: &'a str, first: &str, end: &str) -> &'a str {
    let start = text.find(&format!("\n{first}")).unwrap_or_else(|| panic!("{text}")) + 1;
    let length = text[start..]
        .find(&format!("\n{end}"))
        .unwrap_or_else(|| panic!("{text}"));
    &text[start..=start + length]
}

#[test]
fn a_hidden_layer_beside_lost_spans_is_told_by_the_witness_that_is_whole() {
    let text = screen_of(&samples::hidden_and_lost_spans());
    assert!(
        text.starts_with("108 calls arrived at inventory. 27 were predicted. That is 4 times as many.\n"),
        "{text}"
    );
    assert_eq!(
        part(&text, "How we know", "Look for"),
        "\
How we know   pricing sent 27 attempts, by its own count.
              inventory received each of these 27 exactly 4 times, under the
              same attempt path.
Besides       At inventory, 108 attempts were received and 100 traced.
"
    );
    assert_eq!(
        part(&text, "Meant to be?", "repeat it"),
        "\
Meant to be?  declare it:  harness run \\
    'frontend x3 > checkout x3 > pricing x3 > inventory down' \\
    --sidecar-attempts-at pricing=4
"
    );
}

#[test]
fn two_hidden_layers_are_both_named_and_what_follows_from_them_is_quiet() {
    let text = screen_of(&samples::hidden_twice());
    assert_eq!(
        part(&text, "Something", "link"),
        "\
Something between frontend and checkout makes 2 calls out of 1, and no
configuration declares it.
Something between pricing and inventory makes 4 calls out of 1, and no
configuration declares it.

client ---> frontend ==x3==?x2==> checkout ==x3==> pricing
               1                     6               18
    ==x3==?x4==> inventory
                    216

"
    );
    assert_eq!(
        part(&text, "How we know", "Look for"),
        "\
How we know   frontend sent 3 attempts, by its own count and by its spans.
              checkout received each of these 3 exactly twice, under the same
              attempt path and the same parent span.
              pricing sent 54 attempts, by its own count and by its spans.
              inventory received each of these 54 exactly 4 times, under the
              same parent span.
              inventory received calls under 27 different attempt paths, exactly
              8 times each.
              What arrived too often at pricing follows from them.
"
    );
    assert_eq!(
        part(&text, "Meant to be?", "repeat it"),
        "\
Meant to be?  declare it:  harness run \\
    'frontend x3 > checkout x3 > pricing x3 > inventory down' \\
    --sidecar-attempts-at frontend=2 --sidecar-attempts-at pricing=4
"
    );
}

#[test]
fn a_surplus_that_the_hidden_layers_do_not_explain_is_said() {
    let mut report = samples::hidden_twice();
    report.services[2].received = Some(19);
    let text = screen_of(&report);
    assert!(text.contains("\nBesides       At checkout, called"), "{text}");
    assert!(!text.contains("follows from"), "{text}");
}

#[test]
fn a_hidden_layer_that_stopped_when_a_call_worked_has_no_one_number() {
    assert_eq!(
        screen_of(&samples::hidden_until_it_worked()),
        "\
5 calls arrived at inventory, as predicted, but pricing sent only 3.

Something between pricing and inventory made up to 3 calls out of 1, and no
configuration declares it.

client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==?==> inventory
               3                3                3                   5

link                        sent   received   factor
  client   > frontend          3          3        1
  frontend > checkout          3          3        1
  checkout > pricing           3          3        1
  pricing  > inventory         3          5     1.67   <-- here

             predicted     received      traced
             3 3 3 5       3 3 3 5       3 3 3 5       NOT AS PREDICTED

requests      3 OK
How we know   pricing sent 3 attempts, by its own count and by its spans.
              inventory received each of these 3 between 1 and 3 times, under
              the same attempt path and the same parent span.
Besides       On pricing > inventory, only 3 attempts were sent; 5 were
              predicted.
Look for      a sidecar or gateway on that link, an SDK with retries of its own
              under pricing's loop, a load balancer that replays.
repeat it     harness run \\
    'frontend x3 > checkout x3 > pricing x3 > inventory '\\
'fail:first=2,scope=process' -n 3 --undeclared pricing=4                exit 1
"
    );
}

#[test]
fn what_is_hidden_behind_a_proxy_multiplies_what_the_proxy_makes() {
    let mut report = samples::hidden_behind_a_proxy();
    let text = screen_of(&report);
    assert!(
        text.contains("\nclient ---> web ==x1*2==> orders ==x3*2==?x4==> ledger\n"),
        "{text}"
    );
    assert!(
        text.contains("\nLook for      a second proxy or a gateway behind orders-proxy,"),
        "{text}"
    );
    assert!(text.contains("--sidecar-attempts-at orders=8\n"), "{text}");
    // Nobody else's processes can be started anew with a proxy.
    report.processes = samples::full().processes;
    report.processes[0].owned = false;
    assert!(!screen_of(&report).contains("declare it"));
}

#[test]
fn the_header_of_an_envoy_convicts_only_an_envoy_that_nobody_declared() {
    let mut report = samples::hidden();
    let header = |report: &mut crate::report::Report, counts: std::ops::RangeInclusive<u32>| {
        let repeats = report.links[3].repeats.as_mut().unwrap();
        repeats.envoy_attempts = counts.map(|count| (count, 27)).collect();
        screen_of(report)
    };
    assert!(header(&mut report, 1..=2).contains("ran 1 2: an Envoy has a part in it."));
    assert!(!header(&mut report, 1..=1).contains("x-envoy"));
    report.services[2].envoy = Some(std::collections::BTreeMap::new());
    let text = header(&mut report, 1..=4);
    assert!(!text.contains("x-envoy"), "{text}");
    assert!(
        text.contains("pricing sent 27 attempts, by its own statistics"),
        "{text}"
    );
}

#[test]
fn an_envoys_own_retries_share_a_path_and_are_not_taken_for_single_attempts() {
    let mut report = samples::hidden();
    let repeats = samples::repeats(9, 12, 12);
    report.links[3].repeats = Some(crate::report::Repeats {
        by_parent: None,
        ..repeats.clone()
    });
    let text = screen_of(&report);
    assert!(
        text.contains(
            "inventory received calls under 9 different attempt paths, exactly\n              \
             12 times each.\n"
        ),
        "{text}"
    );
    assert!(text.contains("makes 4 calls out of 1"), "{text}");
    report.links[3].repeats = Some(repeats);
    let text = screen_of(&report).replace("\n              ", " ");
    assert!(
        text.contains("calls under 9 different attempt paths and parent spans, exactly 12 times each."),
        "{text}"
    );
}

#[test]
fn strangers_are_no_hidden_layer() {
    let mut report = samples::hidden();
    report.reasons = vec![Reason {
        kind: "strangers".to_owned(),
        text: "Arrivals at inventory that carried no attempt path of this run: 81.".to_owned(),
    }];
    report.links[3].repeats = Some(samples::repeats(27, 1, 1));
    let text = screen_of(&report);
    assert!(text.contains("\n81 calls at inventory carry no attempt path"), "{text}");
    assert!(!text.contains("?x4") && !text.contains("declare it"), "{text}");
}

#[test]
fn proxies_stand_among_the_services_and_in_a_block_of_their_own() {
    assert_eq!(
        screen_of(&samples::proxies()),
        "\
729 calls arrived at ledger for 1 request, as predicted.

web             #                                                      1
web-proxy       #                                                      3
orders          #                                                      9
orders-proxy    ##                                                    27
billing         ######                                                81
billing-proxy   #################                                    243
ledger          ##################################################   729

             predicted     received      traced
             1 9 81 729    1 9 81 729    1 9 81 729    AS PREDICTED

proxies       web-proxy 3, orders-proxy 27, billing-proxy 243, as predicted
requests      1 failed: UNAVAILABLE
repeat it     harness run \\
    'web x3*3 > orders x3*3 > billing x3*3 > ledger down'               exit 0
"
    );
}

#[test]
fn a_proxy_that_differs_is_named_with_its_figures() {
    let text = screen_of(&samples::proxies_that_differ());
    assert!(
        text.starts_with("250 calls arrived at billing-proxy. 243 were predicted. That is 7 too many.\n"),
        "{text}"
    );
    assert!(
        text.contains("\nclient ---> web ==x3*3==> orders ==x3*3==> billing ==x3*3==> ledger\n"),
        "{text}"
    );
    assert_eq!(
        part(&text, "proxies", "requests"),
        "\
proxies       orders-proxy 27, as predicted; web-proxy 3 (predicted 3, traced
              2); billing-proxy 250 (predicted 243, traced 243)
"
    );
}

#[test]
fn envoys_say_what_they_refused_and_their_missing_spans_are_no_gap() {
    let mut report = samples::envoys();
    assert_eq!(
        screen_of(&report),
        "\
632 calls arrived at inventory for 400 requests, within the predicted 400 to
10,800.

frontend         ################################                     400
frontend-proxy   ################################                     400
checkout         ###################################                  444
checkout-proxy   ###################################                  444
pricing          ########################################             508
pricing-proxy    ########################################             508
inventory        ##################################################   632

                 predicted    received      traced
frontend               400         400         400
checkout         400-1,200         444         444
pricing          400-3,600         508         508
inventory       400-10,800         632         632
                                                       AS PREDICTED

proxies       frontend-proxy 400, checkout-proxy 444, pricing-proxy 508, as
              predicted
Envoy         refused retries over its limit (upstream_rq_retry_overflow):
              frontend-proxy 756 of 800, checkout-proxy 824 of 888,
              pricing-proxy 892 of 1,016
requests      400 failed: UNAVAILABLE
receipts      a sample: 12 of 400 requests
repeat it     harness run envoy-defaults                                exit 0
"
    );
    report.verdict = Verdict::Incomplete;
    report.reasons = samples::incomplete().reasons;
    report.reasons[0].kind = "unfinished".to_owned();
    let text = screen_of(&report);
    assert!(
        text.contains(" Traced says the same as\n              received.\n"),
        "{text}"
    );
}

#[test]
fn envoys_that_could_not_connect_say_so() {
    let text = screen_of(&samples::envoys_at_a_closed_port());
    assert_eq!(
        part(&text, "proxy", "requests"),
        "\
proxy         web-proxy 3, as predicted
Envoy         refused none of 3 retries
              connections that failed (upstream_cx_connect_fail): web-proxy 6
"
    );
}

#[test]
fn thirteen_services_fit_a_screen() {
    assert_eq!(
        screen_of(&samples::thirteen()),
        "\
4,096 calls arrived at inventory for 1 request, as predicted.

frontend     #                                                        1
checkout     #                                                        2
pricing      #                                                        4
relay-1      #                                                        8
relay-2      #                                                       16
relay-3      #                                                       32
relay-4      #                                                       64
relay-5      ##                                                     128
relay-6      ###                                                    256
relay-7      ######                                                 512
relay-8      #############                                        1,024
relay-9      #########################                            2,048
inventory    ##################################################   4,096

                predicted    received      traced
frontend                1           1           1
  11 between them, each with three equal figures
inventory           4,096       4,096       4,096
                                                       AS PREDICTED

requests      1 failed: UNAVAILABLE
repeat it     harness run long-chain                                    exit 0
"
    );
}

#[test]
fn figures_that_differ_are_never_folded_nor_any_without_a_verdict() {
    let mut report = samples::thirteen();
    report.verdict = Verdict::Incomplete;
    report.reasons = samples::incomplete().reasons;
    let text = screen_of(&report);
    for row in &report.services {
        assert!(text.contains(&format!("\n{} ", row.service)), "{text}");
    }
    let hidden = samples::thirteen_with_a_hidden_layer();
    let text = screen_of(&hidden);
    assert_eq!(
        part(&text, "link", "  relay-3"),
        "\
link                        sent   received   factor
  client   > frontend          1          1        1
  3 links between them, where as many arrived as were sent
  relay-1  > relay-2          16         16        1
  relay-2  > relay-3          32         96        3   <-- here
"
    );
    let rows = part(
        &text,
        "                predicted",
        "                                    ",
    );
    assert_eq!(rows.matches("relay-").count(), 8, "{rows}");
    assert!(
        text.contains("\nfrontend                1           1           1\n  3 between them,"),
        "{text}"
    );
    assert!(
        text.contains("              What arrived too often at the 7 services down to inventory follows\n"),
        "{text}"
    );
}

#[test]
fn what_twenty_five_layers_say_alike_is_one_line() {
    let mut report = samples::thirteen_with_proxies();
    let text = screen_of(&report);
    assert_eq!(
        part(&text, "proxies", "repeat it").replace("\n              ", " "),
        "\
proxies       12, from frontend-proxy 2 down to relay-9-proxy 16,384, as predicted
requests      1 failed: UNAVAILABLE
not retried   25 links from client > frontend down to relay-9-proxy > inventory: \
50, the deadline had passed; 32,767, attempts used up
arrivals      at 25 services and proxies: 25 late, 50 ended by the deadline
"
    );
    report.verdict = Verdict::Incomplete;
    report.reasons = (1..=20)
        .map(|place| Reason {
            kind: "in_flight".to_owned(),
            text: format!("Reason {place}."),
        })
        .collect();
    let text = screen_of(&report);
    assert!(
        text.contains("              Reason 9.\n              11 more are in the report (--json).\n"),
        "{text}"
    );
    assert!(!text.contains("Reason 10."), "{text}");
}

#[test]
fn proxies_have_a_row_of_their_own_beside_all_services() {
    let runs = vec![samples::proxies(), samples::envoys(), samples::headline()];
    let both = Comparison {
        runs,
        ..samples::comparison()
    };
    let text = comparison(&both, "harness", Style::Plain);
    assert!(
        text.contains(
            "\nat all services                    820             1,984                40\n\
             at all proxies                     273             1,352                 -\n"
        ),
        "{text}"
    );
}

#[test]
fn no_verdict_without_the_spans() {
    assert_eq!(
        screen_of(&samples::incomplete()),
        "\
No verdict. 3 of inventory's 27 spans never came; the ledger counted 27 calls.

             predicted     received      traced
             1 3 9 27      1 3 9 27      1 3 9 24      INCOMPLETE

requests      1 failed: UNAVAILABLE
Why           inventory made 27 spans and exported 24; its queue held 24.
What holds    received agrees with the prediction. Traced cannot confirm it.
repeat it     harness run per-hop --seed 27                             exit 3
"
    );
}

#[test]
fn another_reason_for_no_verdict_is_the_headline_and_said_once() {
    let mut report = samples::incomplete();
    report.services[3].received = None;
    report.services[3].traced = None;
    report.reasons = vec![Reason {
        kind: "dead_process".to_owned(),
        text: "inventory died: killed by signal 9".to_owned(),
    }];
    let text = screen_of(&report);
    assert!(
        text.starts_with("No verdict. inventory died: killed by signal 9.\n\n"),
        "{text}"
    );
    assert_eq!(text.matches("signal 9").count(), 1, "{text}");
    assert!(
        text.contains("1 3 9 27      1 3 9 -       1 3 9 -       INCOMPLETE"),
        "{text}"
    );
    assert!(text.contains("unknown at inventory"), "{text}");
}

#[test]
fn two_services_and_names_of_forty_columns() {
    assert_eq!(
        screen_of(&samples::two_services()),
        "\
3 calls arrived at db for 1 request, as predicted.

web          x      1
db           xxx    3

             predicted     received      traced
             1 3           1 3           1 3           AS PREDICTED

requests      1 failed: UNAVAILABLE
repeat it     harness run 'web x3 > db down' --seed 27                  exit 0
"
    );
    assert!(screen_of(&samples::long_names()).contains(&format!("\n{}              1 ", "a".repeat(40))));
}

#[test]
fn fewer_more_and_one() {
    let mut report = samples::headline();
    report.verdict = Verdict::NotAsPredicted;
    let mut first = |received: u64, predicted: u64| {
        report.services[3].received = Some(received);
        report.services[3].predicted = samples::exact(predicted);
        screen_of(&report).lines().next().unwrap().to_owned()
    };
    assert_eq!(
        first(9, 27),
        "9 calls arrived at inventory. 27 were predicted. That is 18 too few."
    );
    assert_eq!(
        first(30, 27),
        "30 calls arrived at inventory. 27 were predicted. That is 3 too many."
    );
    assert_eq!(
        first(2, 1),
        "2 calls arrived at inventory. 1 was predicted. That is twice as many."
    );
    assert_eq!(
        first(1, 3),
        "1 call arrived at inventory. 3 were predicted. That is 2 too few."
    );
    assert_eq!(
        first(27, 27),
        "27 calls arrived at inventory, as predicted, but not all else came out."
    );
    report.services[3].predicted.min = Count::Of(3);
    report.services[3].predicted.max = Count::Of(9);
    let text = screen_of(&report);
    assert!(
        text.starts_with("27 calls arrived at inventory. 3 to 9 were predicted. That is 18 too many."),
        "{text}"
    );
}

#[test]
fn a_missed_expectation_ends_with_1_and_its_sentence() {
    let mut report = samples::headline();
    report.expected = vec![Expected {
        expression: "12".to_owned(),
        met: false,
        text: "You expected 12. 27 were predicted and 27 arrived.".to_owned(),
    }];
    let text = screen_of(&report);
    assert!(
        text.contains("\nNOT EXPECTED  You expected 12. 27 were predicted and 27 arrived.\n"),
        "{text}"
    );
    assert!(text.ends_with("exit 1\n"), "{text}");
}

#[test]
fn refusals_to_retry_show_when_they_tell_something() {
    let mut report = samples::headline();
    report.links[3].not_retried.insert("budget".to_owned(), 12);
    report.services[3].late = Some(2);
    report.services[3].dropped = Some(1);
    report.services[2].expired = Some(1);
    report.scenario = serde_json::json!({"services": {
        "inventory": {"fault": "fail:first=1,side=client@pricing"},
        "pricing": {"fault": "delay:ms=20,side=client@checkout,loop=outside"},
        "checkout": {"fault": "fail"},
    }});
    report.links[2].transport_errors = Some(1);
    let text = screen_of(&report);
    assert!(
        text.contains("\nnot retried   pricing > inventory: 12, the budget was spent; 9, attempts used up\n"),
        "{text}"
    );
    assert!(
        text.contains("\ntransport     checkout > pricing: 1 failure that no fault asked for\n"),
        "{text}"
    );
    for line in [
        "\narrivals      pricing: 1 ended by the deadline; inventory: 2 late, 1 left by the\n              caller\n",
        "\nfault         in pricing, inside its retry loop: fail:first=1\n",
        "\nfault         in checkout, outside its retry loop: delay:ms=20\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("in frontend"), "{text}");
}

#[test]
fn a_full_house_has_a_way_on() {
    let mut report = samples::thousand();
    report.verdict = Verdict::Incomplete;
    report.operations.not_sent = 3;
    report.reasons = vec![Reason {
        kind: "not_sent".to_owned(),
        text: "Requests that were never sent: 3.".to_owned(),
    }];
    let way_on = "\nWay on        a lower --rate, or more requests at once (-c)";
    assert!(!screen_of(&report).contains(way_on));
    report.scenario = serde_json::json!({"load": {"rate": 500}});
    let text = screen_of(&report);
    assert!(text.contains(way_on), "{text}");
}

#[test]
fn reasons_not_to_retry_are_words_and_only_where_somebody_retries() {
    let mut report = samples::single_owner();
    let reasons = [("limit", 1), ("code", 3), ("cancelled", 2000), ("committed", 1)];
    for link in [1, 3] {
        report.links[link].not_retried = reasons
            .iter()
            .map(|(kind, count)| ((*kind).to_owned(), *count))
            .collect();
    }
    let text = screen_of(&report);
    assert!(
        text.contains(
            "\nnot retried   frontend > checkout: 2,000, the caller had left; 3, the code is\n              \
             not retried; 1, the answer had begun; 1, attempts used up\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "\nnot retried   pricing > inventory: 2,000, the caller had left; 1, the answer had\n              begun\n"
        ),
        "{text}"
    );
}

#[test]
fn draws_say_their_seed_and_work_in_vain_is_counted() {
    let mut report = samples::headline();
    report.services[3].predicted.mean = Some(2000.0);
    report.services[3].work_done = Some(27);
    let text = screen_of(&report);
    assert!(
        text.contains(
            "\nwork done     27 times at inventory, 0 requests answered\n\
             drawn         with seed 27; 2,000 would arrive on average\n"
        ),
        "{text}"
    );
    report.services[3].predicted.mean = Some(27.0);
    report.services[3].work_done = Some(0);
    let text = screen_of(&report);
    assert!(!text.contains("drawn") && !text.contains("work done"), "{text}");
}

#[test]
fn what_no_answer_needed_is_counted_where_some_were_answered() {
    let mut report = samples::thousand();
    let work = |needed| {
        Some(crate::report::Work {
            arrivals: 40_000,
            needed,
            in_vain: 40_000 - needed,
        })
    };
    assert!(!screen_of(&report).contains("in vain"));
    report.work = work(3_600);
    assert!(screen_of(&report).contains("\nin vain       36,400 of 40,000 arrivals at the services\n"));
    report.work = work(40_000);
    assert!(!screen_of(&report).contains("in vain"));
}

#[test]
fn an_interrupted_run_is_told_once_and_held_against_nothing() {
    let mut report = samples::incomplete();
    report.operations.not_sent = 19_904;
    report.services[3].received = Some(20);
    let reason = |kind: &str, text: &str| Reason {
        kind: kind.to_owned(),
        text: text.to_owned(),
    };
    report.reasons = vec![
        reason("interrupted", "The run was interrupted."),
        reason("not_sent", "Requests that were planned and never started: 19904."),
        reason("requests_sent", "Requests planned: 20000; started: 96."),
    ];
    let text = screen_of(&report);
    assert!(text.starts_with("No verdict. The run was interrupted.\n"), "{text}");
    assert!(
        text.contains("\nWhy           Requests that were planned and never started: 19,904.\n"),
        "{text}"
    );
    assert!(!text.contains("What ") && !text.contains("started: 96"), "{text}");
}

#[test]
fn a_deadline_that_passed_has_a_way_on() {
    let mut report = samples::incomplete();
    report.services[3].received = Some(26);
    report.reasons = vec![Reason {
        kind: "deadline_passed".to_owned(),
        text: "Calls that ran out of time on client > frontend, more than were predicted to: 1.".to_owned(),
    }];
    let text = screen_of(&report);
    assert!(
        text.contains("\nWay on        fewer requests at once (-c) or --deadline none.\n"),
        "{text}"
    );
    assert!(
        text.contains("\nWhat differs  received does not agree with the prediction at inventory."),
        "{text}"
    );
}

#[test]
fn a_met_expectation_is_not_said_twice() {
    let mut report = samples::headline();
    report.expected = vec![Expected {
        expression: "inventory=27".to_owned(),
        met: true,
        text: "You expected inventory=27. 27 were predicted and 27 arrived.".to_owned(),
    }];
    let text = screen_of(&report);
    assert!(
        text.contains("\nexpected      inventory=27: 27 were predicted and 27 arrived.\n"),
        "{text}"
    );
}

#[test]
fn one_row_that_needs_a_bar_makes_bars_of_all() {
    let mut report = samples::headline();
    report.services[3].received = Some(81);
    let text = screen_of(&report);
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.ends_with(" 81") || line.ends_with(" 1"))
        .collect();
    assert!(rows.iter().all(|row| row.contains('#')), "{text}");
    assert!(!text.contains("xxx"), "{text}");
}

#[test]
fn sides_that_differ_by_a_flag_look_different() {
    let mut comparison_of = samples::comparison();
    let line = "'frontend x3 > checkout > pricing > inventory down'";
    comparison_of.runs[0].command = format!("run {line} -n 81 --expect 3");
    comparison_of.runs[1].command = format!("run {line}");
    comparison_of.runs[1].expected = vec![Expected {
        expression: "12".to_owned(),
        met: false,
        text: "You expected 12. 3 were predicted and 3 arrived.".to_owned(),
    }];
    let text = comparison(&comparison_of, "harness", Style::Plain);
    assert!(
        text.contains(
            "\n1   'frontend x3 > checkout > pricing > inventory down' -n 81\n\
             2   client > frontend x3 > checkout > pricing > inventory down\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("\nNOT EXPECTED  run 2: You expected 12. 3 were predicted and 3 arrived.\n"),
        "{text}"
    );
}

#[test]
fn what_is_asked_for_is_no_expectation_of_a_side() {
    let mut both = samples::comparison();
    let words = "'web x3 > db down' --item 'a --expect b' -n 81";
    both.runs[0].command = format!("run {words} --expect 3");
    let text = comparison(&both, "harness", Style::Plain);
    assert!(text.contains(&format!("\n1   {words}\n")), "{text}");
}

#[test]
fn the_headline_comparison() {
    assert_eq!(
        demo(&samples::comparison(), PROGRAM, Style::Plain),
        "\
27 calls arrived at inventory for 1 request. If only frontend retries: 3.

inventory answers UNAVAILABLE. A caller that retries makes 3 attempts, the first
try and 2 retries. Every x below is a call that arrived, and failed.

             every hop retries                            only frontend retries
frontend     x                                        1   x                   1
checkout     xxx                                      3   xxx                 3
pricing      xxx xxx xxx                              9   xxx                 3
inventory    xxx xxx xxx  xxx xxx xxx  xxx xxx xxx   27   xxx                 3

             predicted     received      traced
every hop    1 3 9 27      1 3 9 27      1 3 9 27      AS PREDICTED
one owner    1 3 3 3       1 3 3 3       1 3 3 3       AS PREDICTED

Neither saves this request, inventory stays down. They differ in the load.

next    target/release/harness up                                    break it
        target/release/harness predict 'web x3 > api x3 > db down'   your chain
        target/release/harness run --fault fail:first=2              it recovers
"
    );
}

#[test]
fn a_demo_without_a_verdict_says_so_first() {
    let both = Comparison {
        runs: vec![samples::headline(), samples::incomplete()],
        ..samples::comparison()
    };
    let text = demo(&both, PROGRAM, Style::Plain);
    assert!(
        text.starts_with("No verdict. 3 of inventory's 27 spans never came;"),
        "{text}"
    );
    assert!(
        text.contains("INCOMPLETE") && text.contains("its queue held 24."),
        "{text}"
    );
    assert!(!text.contains("Neither"), "{text}");
}

#[test]
fn runs_side_by_side() {
    assert_eq!(
        comparison(&samples::comparison(), "harness", Style::Plain),
        "\
27 and 3 calls arrived at inventory for 1 request.

1   per-hop: client > frontend x3 > checkout x3 > pricing x3 > inventory down
2   single-owner: client > frontend x3 > checkout > pricing > inventory down

at inventory                     run 1             run 2
predicted                           27                 3
received                            27                 3
  against run 1                                      -24
traced                              27                 3
for 1 request                       27                 3
at all services                     40                10
work in vain                        40                10
  against run 1                                      -30
requests OK                          0                 0
requests failed                      1                 1
  UNAVAILABLE                        1                 1
                          AS PREDICTED      AS PREDICTED

repeat it     harness run --seed 27
              harness run --owner frontend --seed 27                    exit 0
"
    );
    let runs = vec![
        samples::headline(),
        samples::hidden(),
        samples::incomplete(),
        samples::thousand(),
    ];
    let text = comparison(
        &Comparison {
            runs,
            ..samples::comparison()
        },
        "harness",
        Style::Plain,
    );
    assert!(
        text.starts_with("No verdict on run 3. 27, 108, 27 and 27,000 calls arrived at inventory."),
        "{text}"
    );
    assert!(
        text.contains("+81") && text.contains("+26,973") && text.ends_with("exit 3\n"),
        "{text}"
    );
}

#[test]
fn more_than_four_runs_stand_in_blocks_of_one_width() {
    let five = Comparison {
        runs: vec![
            samples::headline(),
            samples::hidden(),
            samples::transient(),
            samples::single_owner(),
            samples::incomplete(),
        ],
        ..samples::comparison()
    };
    let text = comparison(&five, "harness", Style::Plain);
    for line in [
        "at inventory                     run 1             run 2             run 3",
        "at inventory                     run 4             run 5",
        "received                            27               108                 3",
        "  against run 1                                      +81               -24",
        "  against run 1                    -24                 0",
        "requests OK                          0                 0                 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }

    let four = Comparison {
        runs: five.runs[..4].to_vec(),
        ..five
    };
    let text = comparison(&four, "harness", Style::Plain);
    assert!(
        text.contains(
            "\n                       AS PREDICTED         NOT AS   AS PREDICTED   AS PREDICTED\n\
             \x20                                        PREDICTED\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "\nrun 2         108 calls arrived at inventory. 27 were predicted. That is 4 times\n\
             \x20             as many.\n\
             \x20             Something between pricing and inventory makes 4 calls out of 1,\n"
        ),
        "the link is named: {text}"
    );
}

#[test]
fn sides_that_look_alike_are_told_apart() {
    let first = samples::headline();
    let mut later = first.clone();
    later.timing.started = "2026-11-30T08:00:00Z".to_owned();
    let mut newer = first.clone();
    newer.versions = std::collections::BTreeMap::from([("retryscope".to_owned(), "0.2.0".to_owned())]);
    let mut drawn = first.clone();
    drawn.seed = 7;
    let text = comparison(
        &Comparison {
            runs: vec![first.clone(), later, newer, drawn, first],
            ..samples::comparison()
        },
        "harness",
        Style::Plain,
    );
    assert!(
        text.contains(
            "\n2   as run 1, once more, begun 2026-11-30T08:00:00Z\n\
             3   as run 1, by version 0.2.0\n\
             4   as run 1, with seed 7\n\
             5   as run 1, the same report\n"
        ),
        "{text}"
    );
}

#[test]
fn what_all_sides_have_in_common_is_said_once() {
    let mut report = samples::thousand();
    report.scenario = serde_json::json!({"name": "per-hop", "load": {"requests": 1000, "concurrency": 16}});
    report.timing.request_ms = Some(crate::report::Latency {
        min: 0.5,
        p50: 0.874,
        p99: 12.34,
        max: 1500.0,
    });
    let mut other = samples::thousand();
    other.scenario = report.scenario.clone();
    let both = |runs| {
        let both = Comparison {
            runs,
            ..samples::comparison()
        };
        comparison(&both, "harness", Style::Plain)
    };
    let text = both(vec![report.clone(), other.clone()]);
    assert!(text.contains("\nEach of them: 1,000 requests, 16 at once.\n"), "{text}");
    assert!(!text.contains("\nrequests  ") && !text.contains("at once  "), "{text}");
    assert!(
        text.contains("\nmedian                         0.87 ms                 -\n")
            && text.contains("\n99th percentile                12.3 ms                 -\n"),
        "{text}"
    );
    assert!(!text.contains("against run 1"), "nothing differs: {text}");

    other.scenario = serde_json::json!({"name": "per-hop", "load": {"requests": 1000, "concurrency": 4}});
    other.work = None;
    let text = both(vec![report, other]);
    assert!(
        text.contains("\n  at once                           16                 4\n") && !text.contains("Each of them"),
        "{text}"
    );
    assert!(
        text.contains("\nwork in vain                    40,000                 -\n"),
        "{text}"
    );
}

#[test]
fn a_sweep() {
    assert_eq!(
        sweep(&samples::sweep(), "harness", Style::Plain),
        "\
1 to 3 calls arrived at db for 1 request as p went from 0 to 1. Requests that
failed: 0 % to 100 %.

p       calls at db, for 1 request             requests that failed
0       #########                       1.00                        0 %
0.5     ##################              2.00                        0 %
1       ###########################     3.00   ################## 100 %

           calls for 1 request     requests that fail
p        predicted    received    predicted    failed
0             1.00        1.00          0 %       0 %  AS PREDICTED
0.5           1.75        2.00       12.5 %       0 %  AS PREDICTED
1             3.00        3.00        100 %     100 %  AS PREDICTED

1 request for each value; -n N sends others.
Predicted is the average over all draws, for failures that are independent: the
best case. The verdict holds each run against the count that its own draws give,
those of seed 27. All values share them, so neighbours tend to stray from the
average the same way.

repeat it     harness sweep 'web x3 > db' --over p=0,0.5..1 -n 1        exit 0
"
    );
}

#[test]
fn a_sweep_says_what_is_wrong_with_which_value_and_what_was_not_run() {
    let mut wrong = samples::sweep();
    wrong.points[1].report = samples::hidden();
    wrong.points[2].report.expected = vec![Expected {
        expression: "2".to_owned(),
        met: false,
        text: "You expected 2. 3 were predicted and 3 arrived.".to_owned(),
    }];
    let text = sweep(&wrong, "harness", Style::Plain);
    assert!(text.contains("Not as predicted: p=0.5."), "{text}");
    assert!(
        text.contains("\n0.5           108 calls arrived at inventory. 27 were predicted.")
            && text.contains("Something between pricing and inventory makes 4 calls out of 1,")
            && text.contains("\nNOT EXPECTED  p=1: You expected 2. 3 were predicted and 3 arrived.\n"),
        "{text}"
    );
    assert!(text.ends_with("exit 1\n"), "{text}");

    let mut cut = samples::sweep();
    cut.points.truncate(1);
    let text = sweep(&cut, "harness", Style::Plain);
    assert!(
        text.starts_with("Only 1 of 3 values was run. 1 call arrived at db for 1 request at p=0.\n"),
        "{text}"
    );
    assert!(text.ends_with("exit 3\n"), "{text}");
    cut.points.clear();
    let text = sweep(&cut, "harness", Style::Plain);
    assert!(
        text.starts_with("Only 0 of 3 values were run. Nothing was counted.\n"),
        "{text}"
    );
}

#[test]
fn words_and_tables_are_values_of_a_sweep_too() {
    let mut words = samples::sweep();
    words.over = "retry.pushback".to_owned();
    words.points.truncate(2);
    words.planned = 2;
    for (point, value) in words.points.iter_mut().zip(["true", "false"]) {
        (point.value, point.number, point.mean) = (value.to_owned(), None, None);
    }
    let text = sweep(&words, "harness", Style::Plain);
    assert!(
        text.starts_with("1 and 2 calls arrived at db for 1 request with retry.pushback at true and false."),
        "{text}"
    );
    assert!(text.contains("no closed form is known"), "{text}");
}

/// Sweeps of every kind, the last with words that want to be something else.
fn sweeps() -> Vec<crate::report::Sweep> {
    let mut sweeps = vec![samples::sweep()];
    for report in samples::reports() {
        let mut sweep = samples::sweep();
        sweep.points[1].report = report;
        sweeps.push(sweep);
    }
    for text in ["\u{1b}[2J::set-env \u{202e}\n::x", &"z".repeat(300), &":#".repeat(90)] {
        let mut sweep = samples::sweep();
        text.clone_into(&mut sweep.over);
        sweep.command = format!("sweep '{text}'");
        for point in &mut sweep.points {
            (point.value, point.number) = (text.to_owned(), None);
            point.report = samples::hostile();
            point.mean = Some(1e300);
        }
        sweep.points = sweep.points.iter().cycle().take(100).cloned().collect();
        sweeps.push(sweep);
    }
    sweeps
}

#[test]
fn traces_stand_on_lines_of_their_own() {
    let mut report = samples::thousand();
    let first = report.receipts[0].clone();
    let id = |number: usize| format!("{number:032x}");
    report.receipts = (1..=1000)
        .map(|number| crate::report::Receipt {
            trace_url: Some(samples::trace_url(&id(number))),
            ..first.clone()
        })
        .collect();
    let text = screen_of(&report);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("http")).collect();
    assert_eq!(lines.len(), 10, "{text}");
    assert_eq!(lines[0], format!("traces        {}", samples::trace_url(&id(1))));
    assert_eq!(lines[9], format!("              {}", samples::trace_url(&id(10))));
    assert!(
        text.contains("\n              990 more are in the report (--json)\nrepeat it "),
        "{text}"
    );

    let long = format!("http://viewer/{}/1", "x".repeat(100));
    let mut report = samples::headline();
    report.receipts[0].trace_url = Some(long.clone());
    assert!(screen_of(&report).contains(&format!("\ntrace         {long}\n")));
    report.receipts[0].trace_url = Some("http://x\n::set-env".to_owned());
    assert!(
        !screen_of(&report).contains("trace   "),
        "what is no address is not shown"
    );
}

#[test]
fn two_runs_have_two_traces_and_their_difference() {
    let mut both = samples::comparison();
    for (run, id) in both.runs.iter_mut().zip(["aa", "bb"]) {
        run.receipts[0].trace_url = Some(samples::trace_url(id));
    }
    both.trace_difference_url = Some(samples::trace_url("aa...bb"));
    let text = demo(&both, PROGRAM, Style::Plain);
    assert!(
        text.contains(
            "

traces    every hop   http://127.0.0.1:16686/trace/aa
          one owner   http://127.0.0.1:16686/trace/bb
          difference  http://127.0.0.1:16686/trace/aa...bb

next    target"
        ),
        "{text}"
    );
    let text = comparison(&both, "harness", Style::Plain);
    assert!(
        text.contains(
            "

traces    run 1       http://127.0.0.1:16686/trace/aa
          run 2       http://127.0.0.1:16686/trace/bb
          difference  http://127.0.0.1:16686/trace/aa...bb

repeat it "
        ),
        "{text}"
    );
}

/// Screens of a chain that stays up, with names and values that want to be something else.
fn every_live_screen(program: &str, style: Style) -> Vec<String> {
    let mut screens = Vec::new();
    for report in samples::reports() {
        screens.push(call(&report, None, program, style));
        screens.push(call(
            &report,
            report.reasons.first().map(|why| why.text.as_str()),
            program,
            style,
        ));
    }
    for report in [samples::called(), samples::called_mixed()] {
        screens.push(call(&report, Some("checkout: the injected fault"), program, style));
    }
    screens.push(up(&samples::started(&samples::SHOP), program, style));
    screens.push(status(&samples::status(), program, style));
    screens.push(status(&samples::status_full(), program, style));
    screens.push(switched(&samples::switched(), program, style));
    let long = "y".repeat(40);
    for text in [
        "\u{1b}[2J::set-env \u{202e}\n::x",
        &long,
        &"z".repeat(300),
        &":#".repeat(90),
        &":".repeat(190),
    ] {
        let mut started = samples::started(&[text, &long, text, text]);
        started.attach = Some(format!("{text}=127.0.0.1:1,{text}=127.0.0.1:2"));
        started.otlp = Some(text.to_owned());
        screens.push(up(&started, program, style));
        for row in &mut started.services {
            (row.address, row.control) = (text.to_owned(), text.to_owned());
        }
        screens.push(up(&started, program, style));

        let mut report = samples::called();
        report.command = format!("run --attach '{text}=127.0.0.1:1'");
        report.receipts[0].trace_url = Some(text.to_owned());
        screens.push(call(&report, Some(text), program, style));

        let mut switch = samples::switched();
        for row in &mut switch.prediction.services {
            text.clone_into(&mut row.service);
        }
        switch.changes = vec![
            samples::changed(text, text, text, text),
            samples::changed(text, "fault", text, "none"),
        ];
        switch.prediction.scenario = serde_json::json!({"services": {text: {"fault": text}}});
        screens.push(switched(&switch, program, style));
        switch.prediction.scenario = serde_json::json!({});
        switch.changes.remove(0);
        screens.push(switched(&switch, program, style));

        let mut state = samples::status_of(&[text, text, &long, text]);
        state.command = format!("status --attach '{text}=127.0.0.1:1'");
        for row in &mut state.services {
            (row.fault, row.retry_on) = (text.to_owned(), Some(text.to_owned()));
            (row.backoff, row.on_failure) = (Some(text.to_owned()), Some(text.to_owned()));
            text.clone_into(&mut row.transport_codes);
            (row.received, row.generation) = (u64::MAX, 2);
        }
        state.links[0].sent = u64::MAX;
        screens.push(status(&state, program, style));
    }
    screens
}

/// Whether a line ends in the address of a trace, which is never broken.
fn is_address(line: &str) -> bool {
    line.rsplit(' ')
        .next()
        .is_some_and(|word| word.starts_with("http://127.0.0.1:16686/trace/"))
}

/// Every screen of every sample.
fn every_screen(program: &str, style: Style) -> Vec<String> {
    let mut screens = every_live_screen(program, style);
    let reports = samples::reports();
    screens.extend(reports.iter().map(|report| run(report, program, style)));
    for pair in reports.windows(2) {
        let both = Comparison {
            runs: pair.to_vec(),
            ..samples::comparison()
        };
        screens.push(demo(&both, program, style));
        screens.push(comparison(&both, program, style));
    }
    screens.push(comparison(
        &Comparison {
            runs: reports,
            ..samples::comparison()
        },
        program,
        style,
    ));
    screens.extend(sweeps().iter().map(|values| sweep(values, program, style)));
    let mut sums = samples::prediction();
    screens.push(prediction(&sums, program, style));
    let evil = "\u{1b}[2J::set-env \u{202e}\n::x";
    for text in [
        evil.to_owned(),
        "y".repeat(40),
        "z".repeat(300),
        ":#".repeat(90),
        ":".repeat(190),
    ] {
        for row in &mut sums.services {
            row.service.clone_from(&text);
            row.predicted.max = Count::Beyond;
        }
        sums.bottom.service.clone_from(&text);
        sums.bottom.worst = Count::Beyond;
        sums.chain = format!("{text} > {text} {text}");
        sums.command = format!("predict '{text}'");
        sums.formula = format!("{text} x {text}");
        sums.notes = vec![text.clone()];
        sums.tries_per_call = vec![samples::tries(&text, 100, 100)];
        for change in &mut sums.changes {
            (change.change, change.edits, change.gives_up) = (text.clone(), text.clone(), text.clone());
            change.bottom = Count::Of(u128::MAX);
        }
        screens.push(prediction(&sums, program, style));
        screens.push(scenarios(&[(text.clone(), text.clone())], program, style));
        screens.push(error(&text, style));
        screens.push(warning(&text, style));
    }
    screens
}

#[test]
fn every_line_is_ascii_of_eighty_columns_and_no_command() {
    for program in [
        "harness",
        PROGRAM,
        "/a folder/with a very long name/and another one below/harness",
    ] {
        for screen in every_screen(program, Style::Plain) {
            assert!(screen.ends_with('\n') && !screen.ends_with("\n\n"), "{screen}");
            for line in screen.lines() {
                assert!(
                    line.len() <= 80 || is_address(line),
                    "{} columns: {line}\n{screen}",
                    line.len()
                );
                assert!(
                    line.chars().all(|letter| letter == ' ' || letter.is_ascii_graphic()),
                    "{line:?}"
                );
                assert!(!line.trim_start().starts_with("::") && !line.contains("##["), "{line}");
                assert_eq!(line, line.trim_end());
            }
        }
    }
}

#[test]
fn colours_change_no_letter() {
    for (plain, coloured) in every_screen("harness", Style::Plain)
        .iter()
        .zip(every_screen("harness", Style::Coloured))
    {
        assert_eq!(&anstream::adapter::strip_str(&coloured).to_string(), plain);
        assert!(coloured.contains('\u{1b}') || coloured == *plain);
    }
}

/// With `--nocapture` this is the way to look at every sample.
#[test]
fn every_screen_ends_with_the_exit_code() {
    for report in samples::reports() {
        let text = screen_of(&report);
        println!("{text}\n{}\n", "-".repeat(80));
        assert!(text.ends_with(&format!("exit {}\n", report.exit_code())), "{text}");
    }
}

#[test]
fn the_words_of_the_code_stay_out() {
    for report in samples::reports() {
        let text = screen_of(&report).to_lowercase();
        for word in ["operation", "generation", "amplification"] {
            assert!(!text.contains(word), "{text}");
        }
    }
}
