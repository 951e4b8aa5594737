//! Reports made by hand, for the tests of the screens, of the JSON and of the schema.

use super::text::{Started, StartedService};
use crate::report::{
    Advice, Arrival, Bottom, BudgetCeiling, COMPARISON_SCHEMA, Capacity, Chance, Change, ChangeKind, Changed,
    Comparison, Count, Distribution, Expected, Forecast, Latency, Link, LiveCount, LiveGeneration, LiveLink,
    LiveService, Mixed, Note, Operations, PREDICTION_SCHEMA, PerSecond, Point, Predicted, PredictedLink,
    PredictedService, Prediction, PredictionKind, Process, Reason, Receipt, Repeats, Report, SCHEMA, STATUS_SCHEMA,
    SWEEP_SCHEMA, SWITCH_SCHEMA, Sample, Scope, Service, ServiceKind, Share, Status, Sweep, Switched, Times, Timing,
    Tries, Verdict, Work,
};
use serde_json::json;
use std::collections::BTreeMap;

/// The usual names.
pub(crate) const SHOP: [&str; 4] = ["frontend", "checkout", "pricing", "inventory"];

/// Every sample of one run.
pub(crate) fn reports() -> Vec<Report> {
    vec![
        headline(),
        single_owner(),
        transient(),
        thousand(),
        refused(),
        answered_for(),
        hidden(),
        hidden_and_lost_spans(),
        hidden_twice(),
        hidden_until_it_worked(),
        hidden_behind_a_proxy(),
        proxies(),
        proxies_that_differ(),
        envoys(),
        envoys_at_a_closed_port(),
        incomplete(),
        thirteen(),
        thirteen_with_an_owner(),
        thirteen_with_proxies(),
        thirteen_with_a_hidden_layer(),
        two_services(),
        long_names(),
        hostile(),
        full(),
    ]
}

/// A number that is sure.
pub(crate) fn exact(count: u64) -> Predicted {
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let mean = count as f64;
    Predicted {
        kind: PredictionKind::Exact,
        mean: Some(mean),
        sd: Some(0.0),
        min: Count::Of(count.into()),
        max: Count::Of(count.into()),
    }
}

/// One request down a chain whose bottom always fails: `attempts[n]` are those of the caller of service n, the client's
/// first.
fn chain(names: &[&str], attempts: &[u64]) -> Report {
    let mut arrivals = Vec::new();
    let mut paths = vec!["1:".to_owned()];
    let mut services = Vec::new();
    let mut links = Vec::new();
    let mut before = 1;
    for (place, (name, attempts)) in names.iter().zip(attempts).enumerate() {
        let dot = if place == 0 { "" } else { "." };
        let next: Vec<(String, String)> = paths
            .iter()
            .flat_map(|path| (1..=*attempts).map(move |attempt| (path.clone(), format!("{path}{dot}{attempt}"))))
            .collect();
        for (parent, path) in &next {
            arrivals.push(Arrival {
                service: (*name).to_owned(),
                path: path.clone(),
                parent: (place > 0).then(|| parent.clone()),
                code: "UNAVAILABLE".to_owned(),
                start_us: arrivals.len() as u64,
                duration_us: Some(150),
            });
        }
        paths = next.into_iter().map(|(_, path)| path).collect();
        let count = paths.len() as u64;
        services.push(service(name, count));
        links.push(link(
            if place == 0 { "client" } else { names[place - 1] },
            name,
            before,
            count,
        ));
        before = count;
    }
    let line: Vec<String> = std::iter::once("client")
        .chain(names.iter().copied())
        .zip(attempts.iter().copied().chain([0]))
        .map(|(name, attempts)| match attempts {
            0 => format!("{name} down"),
            1 => name.to_owned(),
            _ => format!("{name} x{attempts}"),
        })
        .collect();
    Report {
        schema: SCHEMA.to_owned(),
        command: "run --seed 27".to_owned(),
        chain: line.join(" > "),
        scenario: json!({"name": "per-hop", "load": {"requests": 1}}),
        expected: Vec::new(),
        verdict: Verdict::AsPredicted,
        reasons: Vec::new(),
        operations: Operations {
            requested: 1,
            sent: 1,
            failed: 1,
            by_code: BTreeMap::from([("UNAVAILABLE".to_owned(), 1)]),
            ..Operations::default()
        },
        receipts: vec![Receipt {
            operation: 1,
            trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned()),
            trace_url: None,
            owner: "none".to_owned(),
            declared_attempts: Count::Of(before.into()),
            observed_attempts: before,
            code: "UNAVAILABLE".to_owned(),
            attempts: arrivals,
        }],
        receipts_sample: Sample {
            operations: 1,
            of: 1,
            complete: true,
        },
        work: Some(all_in_vain(&services)),
        services,
        links,
        notes: Vec::new(),
        advice: Vec::new(),
        processes: Vec::new(),
        timing: Timing {
            started: "2026-11-29T12:00:00Z".to_owned(),
            ..Timing::default()
        },
        versions: BTreeMap::new(),
        seed: 27,
    }
}

/// The work of requests of which none was answered.
fn all_in_vain(services: &[Service]) -> Work {
    let rows = services.iter().filter(|row| row.kind == ServiceKind::Service);
    let arrivals = rows.filter_map(|row| row.received).sum();
    Work {
        arrivals,
        needed: 0,
        in_vain: arrivals,
    }
}

fn service(name: &str, count: u64) -> Service {
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let amplification = Some(count as f64);
    Service {
        service: name.to_owned(),
        kind: ServiceKind::Service,
        predicted: exact(count),
        received: Some(count),
        traced: Some(count),
        amplification,
        work_done: Some(0),
        late: Some(0),
        dropped: Some(0),
        expired: Some(0),
        in_flight: Some(0),
        envoy: None,
    }
}

fn link(from: &str, to: &str, calls: u64, count: u64) -> Link {
    Link {
        from: from.to_owned(),
        to: to.to_owned(),
        calls: Some(calls),
        sent: Some(count),
        received: Some(count),
        factor: Some(1.0),
        retry_ratio: Some(0.0),
        not_retried: BTreeMap::from([("limit".to_owned(), calls)]),
        transport_errors: Some(0),
        repeats: None,
    }
}

/// Three callers, three attempts each.
pub(crate) fn headline() -> Report {
    chain(&SHOP, &[1, 3, 3, 3])
}

/// The frontend alone retries.
pub(crate) fn single_owner() -> Report {
    let mut report = chain(&SHOP, &[1, 3, 1, 1]);
    report.command = "run --owner frontend --seed 27".to_owned();
    report.receipts[0].owner = "frontend".to_owned();
    report.scenario = json!({"name": "single-owner", "load": {"requests": 1}});
    report
}

/// Two runs.
pub(crate) fn comparison() -> Comparison {
    Comparison {
        schema: COMPARISON_SCHEMA.to_owned(),
        runs: vec![headline(), single_owner()],
        trace_difference_url: None,
    }
}

/// Chances of a failure below one caller that makes three attempts, one request each.
pub(crate) fn sweep() -> Sweep {
    let point = |p: &str, mean: f64, still_fails: f64, count: u64| {
        let mut report = chain(&["web", "db"], &[1, count]);
        report.command = format!("run 'web x3 > db fail:p={p}'");
        if still_fails < 1.0 {
            report.operations.ok = 1;
            report.operations.failed = 0;
            report.operations.by_code.clear();
        }
        Point {
            value: p.to_owned(),
            number: p.parse().ok(),
            mean: Some(mean),
            still_fails: Some(still_fails),
            report,
        }
    };
    Sweep {
        schema: SWEEP_SCHEMA.to_owned(),
        command: "sweep 'web x3 > db' --over p=0,0.5..1 -n 1".to_owned(),
        over: "p".to_owned(),
        planned: 3,
        points: vec![
            point("0", 1.0, 0.0, 1),
            point("0.5", 1.75, 0.125, 2),
            point("1", 3.0, 1.0, 3),
        ],
        curve: [
            (0.0, 1.0, 0.0),
            (0.25, 1.3125, 0.015_625),
            (0.5, 1.75, 0.125),
            (1.0, 3.0, 1.0),
        ]
        .map(|(number, mean, still_fails)| Forecast {
            number,
            mean,
            still_fails,
        })
        .into(),
        seed: Some(27),
    }
}

/// The bottom recovers on the third call.
pub(crate) fn transient() -> Report {
    let mut report = chain(&SHOP, &[1, 1, 1, 3]);
    report.command = "run --fault fail:first=2 --seed 27".to_owned();
    report.chain = "client > frontend x3 > checkout x3 > pricing x3 > inventory fail:first=2".to_owned();
    report.operations = Operations {
        requested: 1,
        sent: 1,
        ok: 1,
        ..Operations::default()
    };
    report.work = Some(Work {
        arrivals: 6,
        needed: 4,
        in_vain: 2,
    });
    for arrival in &mut report.receipts[0].attempts {
        if arrival.service != "inventory" || arrival.path.ends_with(".3") {
            arrival.code = "OK".to_owned();
        }
    }
    report.receipts[0].code = "OK".to_owned();
    report
}

/// A thousand requests.
pub(crate) fn thousand() -> Report {
    let mut report = headline();
    report.command = "run --requests 1000 --concurrency 50 --seed 27".to_owned();
    for (row, link) in report.services.iter_mut().zip(&mut report.links) {
        let count = row.received.unwrap() * 1000;
        row.predicted = exact(count);
        (row.received, row.traced) = (Some(count), Some(count));
        (link.sent, link.received) = (Some(count), Some(count));
    }
    report.operations.requested = 1000;
    report.operations.sent = 1000;
    report.operations.failed = 1000;
    report.operations.by_code = BTreeMap::from([("UNAVAILABLE".to_owned(), 1000)]);
    report.receipts_sample = Sample {
        operations: 1,
        of: 1000,
        complete: false,
    };
    report.work = Some(all_in_vain(&report.services));
    report
}

/// The port of the bottom is closed.
pub(crate) fn refused() -> Report {
    let mut report = headline();
    report.command = "run --fault refuse --seed 27".to_owned();
    report.services[3] = Service {
        amplification: Some(0.0),
        ..service("inventory", 0)
    };
    report.links[3].received = Some(0);
    report.links[3].factor = Some(0.0);
    report.receipts[0]
        .attempts
        .retain(|arrival| arrival.service != "inventory");
    report.receipts[0].observed_attempts = 0;
    report
}

/// The same, and a layer that nobody declared answers for it.
pub(crate) fn answered_for() -> Report {
    let mut report = refused();
    report.command = "run --fault refuse --undeclared pricing=3 --seed 27".to_owned();
    report.verdict = Verdict::NotAsPredicted;
    report.reasons.push(reason(
        "answered_for",
        "On pricing > inventory, 27 attempts were sent to a closed port and none was refused: something in between \
         answered them.",
    ));
    report
}

/// Something makes `times` calls out of one on a link, and everything below it is called as much more often.
fn hide(report: &mut Report, link: usize, times: u64) {
    let grow = |count: &mut Option<u64>| *count = count.map(|count| count * times);
    for (place, row) in report.links.iter_mut().enumerate().skip(link) {
        if place > link {
            grow(&mut row.sent);
            grow(&mut row.calls);
        }
        grow(&mut row.received);
    }
    for row in report.services.iter_mut().skip(link) {
        grow(&mut row.received);
        grow(&mut row.traced);
    }
    let row = &mut report.links[link];
    row.factor = Some(as_factor(times));
    row.repeats = Some(repeats(row.sent.unwrap(), times, times));
    let (from, to) = (row.from.clone(), row.to.clone());
    let (sent, received) = (row.sent.unwrap(), row.received.unwrap());
    report.verdict = Verdict::NotAsPredicted;
    report.reasons.push(reason(
        "link_surplus",
        &format!(
            "On {from} > {to}, {sent} attempts were sent and {received} received, {times} times as many: a layer that no \
             configuration names multiplies on this link."
        ),
    ));
    for row in &report.services[link..] {
        let text = format!(
            "At {}, called by somebody, {} attempts arrived; fewer were predicted.",
            row.service,
            row.received.unwrap()
        );
        report.reasons.push(reason("surplus", &text));
    }
    report.reasons.sort_by_key(|reason| reason.kind != "link_surplus");
}

fn as_factor(times: u64) -> f64 {
    f64::from(u32::try_from(times).unwrap())
}

fn reason(kind: &str, text: &str) -> Reason {
    Reason {
        kind: kind.to_owned(),
        text: text.to_owned(),
    }
}

/// Each of `different` attempts came `least` to `most` times, by both witnesses.
pub(crate) fn repeats(different: u64, least: u64, most: u64) -> Repeats {
    let times = Times { different, least, most };
    Repeats {
        by_path: Some(times),
        by_parent: Some(times),
        envoy_attempts: BTreeMap::new(),
    }
}

/// Something makes four calls out of one: an Envoy, by its header.
pub(crate) fn hidden() -> Report {
    let mut report = headline();
    report.command = "run hidden-layer".to_owned();
    report.scenario = json!({"name": "hidden-layer", "load": {"requests": 1}, "undeclared": {"pricing": 4}});
    hide(&mut report, 3, 4);
    if let Some(repeats) = &mut report.links[3].repeats {
        repeats.envoy_attempts = (1..=4).map(|attempt| (attempt, 27)).collect();
    }
    report
}

/// The same, and not every span of it came.
pub(crate) fn hidden_and_lost_spans() -> Report {
    let mut report = hidden();
    report.command = "run 'frontend x3 > checkout x3 > pricing x3 > inventory down' --undeclared pricing=4".to_owned();
    report.services[3].traced = Some(100);
    if let Some(repeats) = &mut report.links[3].repeats {
        repeats.by_parent = None;
        repeats.envoy_attempts.clear();
    }
    report.reasons.push(reason(
        "missing_spans",
        "At inventory, 108 attempts were received and 100 traced.",
    ));
    report
}

/// Two layers that nobody declared.
pub(crate) fn hidden_twice() -> Report {
    let mut report = headline();
    report.command = "run 'frontend x3 > checkout x3 > pricing x3 > inventory down' --undeclared frontend=2 \
                      --undeclared pricing=4"
        .to_owned();
    hide(&mut report, 1, 2);
    hide(&mut report, 3, 4);
    // The upper layer has sent each path twice already.
    report.links[3].repeats.as_mut().unwrap().by_path = repeats(27, 8, 8).by_path;
    report
}

/// Three requests, of which the first meets two failures: a hidden layer stops as soon as a call works.
pub(crate) fn hidden_until_it_worked() -> Report {
    let mut report = chain(&SHOP, &[3, 1, 1, 1]);
    let fault = "fail:first=2,scope=process";
    report.chain = format!("client > frontend x3 > checkout x3 > pricing x3 > inventory {fault}");
    report.command = format!("run '{}' -n 3 --undeclared pricing=4", &report.chain[9..]);
    report.operations = Operations {
        requested: 3,
        sent: 3,
        ok: 3,
        ..Operations::default()
    };
    report.verdict = Verdict::NotAsPredicted;
    report.services[3].predicted = exact(5);
    report.services[3].received = Some(5);
    report.services[3].traced = Some(5);
    report.links[3].received = Some(5);
    report.links[3].factor = Some(5.0 / 3.0);
    report.links[3].repeats = Some(repeats(3, 1, 3));
    report.receipts.clear();
    report.reasons = vec![
        reason(
            "link_surplus",
            "On pricing > inventory, 3 attempts were sent and 5 received: 2 more than anybody sent.",
        ),
        reason(
            "sent_deficit",
            "On pricing > inventory, only 3 attempts were sent; 5 were predicted.",
        ),
    ];
    report
}

/// Callers with a proxy under each: `(name, attempts in its code, attempts of its proxy)`. The bottom fails.
fn with_proxies(callers: &[(&str, u64, u64)], bottom: &str) -> Report {
    let proxies: Vec<String> = callers.iter().map(|(name, ..)| format!("{name}-proxy")).collect();
    let mut names = Vec::new();
    let mut attempts = vec![1];
    for ((name, code, proxy), proxy_name) in callers.iter().zip(&proxies) {
        names.extend([*name, proxy_name.as_str()]);
        attempts.extend([*code, *proxy]);
    }
    names.push(bottom);
    let mut report = chain(&names, &attempts);
    for row in &mut report.services {
        if proxies.contains(&row.service) {
            row.kind = ServiceKind::Sidecar;
        }
    }
    report.work = Some(all_in_vain(&report.services));
    let line: Vec<String> = callers
        .iter()
        .map(|(name, code, proxy)| format!("{name} x{code}*{proxy}"))
        .collect();
    report.chain = format!("client > {} > {bottom} down", line.join(" > "));
    report.command = format!("run '{} > {bottom} down'", line.join(" > "));
    report
}

/// Three attempts in the code and three in the proxy, at each of three callers.
pub(crate) fn proxies() -> Report {
    with_proxies(&[("web", 3, 3), ("orders", 3, 3), ("billing", 3, 3)], "ledger")
}

/// A proxy that is not declared as it is.
pub(crate) fn hidden_behind_a_proxy() -> Report {
    let mut report = with_proxies(&[("web", 1, 2), ("orders", 3, 2)], "ledger");
    hide(&mut report, 4, 4);
    report.links[4].repeats.as_mut().unwrap().by_parent = None;
    report
}

/// A proxy got more than was predicted, and one span of another is missing.
pub(crate) fn proxies_that_differ() -> Report {
    let mut report = proxies();
    report.verdict = Verdict::NotAsPredicted;
    report.services[1].traced = Some(2);
    report.services[5].received = Some(250);
    report.reasons = vec![reason(
        "surplus",
        "At billing-proxy, called by billing, 250 attempts arrived; 243 were predicted.",
    )];
    report
}

/// Real Envoys, each with its usual limit of 3 retries at once.
pub(crate) fn envoys() -> Report {
    let mut report = with_proxies(
        &[("frontend", 1, 3), ("checkout", 1, 3), ("pricing", 1, 3)],
        "inventory",
    );
    report.command = "run envoy-defaults".to_owned();
    report.scenario = json!({"name": "envoy-defaults", "load": {"requests": 400, "concurrency": 40}});
    let counts = [400, 400, 444, 444, 508, 508, 632];
    let most = [400, 400, 1200, 1200, 3600, 3600, 10_800];
    for (place, row) in report.services.iter_mut().enumerate() {
        row.predicted = Predicted {
            kind: PredictionKind::Bounds,
            mean: None,
            sd: None,
            min: Count::Of(400),
            max: Count::Of(most[place]),
        };
        (row.received, row.traced) = (Some(counts[place]), Some(counts[place]));
        report.links[place].sent = Some(counts[place]);
        report.links[place].received = Some(counts[place]);
        if row.kind == ServiceKind::Sidecar {
            row.traced = None;
            (row.work_done, row.late, row.dropped, row.expired, row.in_flight) = (None, None, None, None, None);
            let retries = counts[place + 1] - counts[place];
            row.envoy = Some(statistics(counts[place], retries, 2 * counts[place] - retries, 0));
        }
    }
    report.operations.requested = 400;
    report.operations.sent = 400;
    report.operations.failed = 400;
    report.operations.by_code = BTreeMap::from([("UNAVAILABLE".to_owned(), 400)]);
    report.receipts_sample = Sample {
        operations: 12,
        of: 400,
        complete: false,
    };
    report.work = Some(all_in_vain(&report.services));
    report
}

fn statistics(received: u64, retries: u64, refused: u64, unconnected: u64) -> BTreeMap<String, u64> {
    [
        ("downstream_rq_total", received),
        ("upstream_rq_total", received + retries),
        ("upstream_rq_retry", retries),
        ("upstream_rq_retry_overflow", refused),
        ("upstream_rq_retry_limit_exceeded", 0),
        ("upstream_rq_retry_success", 0),
        ("upstream_cx_connect_fail", unconnected),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .into()
}

/// A real Envoy that nobody answers: it sends nothing.
pub(crate) fn envoys_at_a_closed_port() -> Report {
    let mut report = with_proxies(&[("web", 3, 2)], "db");
    report.command = "run 'web x3*2 > db refuse' --sidecar envoy".to_owned();
    report.chain = "client > web x3*2 > db refuse".to_owned();
    report.services[1].traced = None;
    report.services[1].envoy = Some(statistics(3, 3, 0, 6));
    report.services[2] = service("db", 0);
    report.links[2] = Link {
        factor: None,
        ..link("web-proxy", "db", 3, 0)
    };
    report.receipts[0].attempts.retain(|arrival| arrival.service == "web");
    report
}

/// The names of the longest chain.
const THIRTEEN: [&str; 13] = [
    "frontend",
    "checkout",
    "pricing",
    "relay-1",
    "relay-2",
    "relay-3",
    "relay-4",
    "relay-5",
    "relay-6",
    "relay-7",
    "relay-8",
    "relay-9",
    "inventory",
];

/// The longest chain, two attempts everywhere.
pub(crate) fn thirteen() -> Report {
    let mut attempts = [2; 13];
    attempts[0] = 1;
    let mut report = chain(&THIRTEEN, &attempts);
    report.command = "run long-chain".to_owned();
    report
}

/// The longest chain, and the frontend alone retries.
pub(crate) fn thirteen_with_an_owner() -> Report {
    let mut attempts = [1; 13];
    attempts[1] = 3;
    let mut report = chain(&THIRTEEN, &attempts);
    let line = report.chain.replace("client > ", "");
    report.command = format!("run '{line}'");
    for link in &mut report.links {
        link.not_retried = BTreeMap::from([("code".to_owned(), 3)]);
    }
    report
}

/// The longest chain with a proxy under each caller, of which two try twice.
pub(crate) fn thirteen_with_proxies() -> Report {
    let callers: Vec<(&str, u64, u64)> = (0..)
        .zip(&THIRTEEN[..12])
        .map(|(place, name)| (*name, 1 + u64::from(place % 4 == 0), 2))
        .collect();
    let mut report = with_proxies(&callers, "inventory");
    for row in &mut report.services {
        row.late = Some(1);
        row.expired = Some(2);
    }
    for link in &mut report.links {
        link.not_retried.insert("deadline".to_owned(), 2);
    }
    report.receipts.clear();
    report
}

/// The longest chain, and something in its upper half that nobody declared.
pub(crate) fn thirteen_with_a_hidden_layer() -> Report {
    let mut report = thirteen();
    report.command = report.chain.replace("client > ", "run '") + "' --undeclared relay-2=3";
    hide(&mut report, 5, 3);
    report
}

/// Three spans are missing.
pub(crate) fn incomplete() -> Report {
    let mut report = headline();
    report.command = "run per-hop --seed 27".to_owned();
    report.verdict = Verdict::Incomplete;
    report.services[3].traced = Some(24);
    report.reasons = vec![Reason {
        kind: "missing_spans".to_owned(),
        text: "inventory made 27 spans and exported 24; its queue held 24".to_owned(),
    }];
    report
}

/// The shortest chain.
pub(crate) fn two_services() -> Report {
    let mut report = chain(&["web", "db"], &[1, 3]);
    report.command = "run 'web x3 > db down' --seed 27".to_owned();
    report
}

/// Names as long as they may be.
pub(crate) fn long_names() -> Report {
    let names = ["a".repeat(40), "b".repeat(40), "c".repeat(40), "d".repeat(40)];
    let mut report = chain(&[&names[0], &names[1], &names[2], &names[3]], &[1, 3, 3, 3]);
    report.command = format!(
        "run '{} x3 > {} x3 > {} x3 > {} down'",
        names[0], names[1], names[2], names[3]
    );
    report
}

/// Everything foreign wants to be something else.
pub(crate) fn hostile() -> Report {
    let names = [
        "::set-env name=x::y",
        "a\u{1b}[31mb",
        "c\nd\r",
        "\u{202e}##[group]\u{9b}",
    ];
    let mut report = chain(&names, &[1, 3, 3, 3]);
    report.command = "run --item '\u{1b}]0;x\u{7}\n::stop-commands::t \u{202e}' ::debug::x".to_owned();
    report.verdict = Verdict::NotAsPredicted;
    report.links[3].received = Some(54);
    report.links[3].factor = Some(2.0);
    report.services[3].received = Some(54);
    report.links[2].not_retried.insert("::warning::z".to_owned(), 2);
    report.operations.by_code = BTreeMap::from([("::error::\u{1b}[2J".to_owned(), 1)]);
    report.reasons = vec![Reason {
        kind: "surplus".to_owned(),
        text: format!("{}\n::add-mask::x", "w".repeat(66)),
    }];
    report.expected = vec![Expected {
        expression: "x".to_owned(),
        met: false,
        text: "\n::group::y\u{2028}".to_owned(),
    }];
    report
}

/// A report in which nothing is empty or null.
pub(crate) fn full() -> Report {
    let mut report = headline();
    report.expected = vec![Expected {
        expression: "inventory=27".to_owned(),
        met: true,
        text: "You expected 27. 27 were predicted and 27 arrived.".to_owned(),
    }];
    report.reasons = vec![Reason {
        kind: "note".to_owned(),
        text: "nothing".to_owned(),
    }];
    report.notes = vec![Note {
        kind: "limit".to_owned(),
        text: "The budget of pricing does not bind at this traffic.".to_owned(),
    }];
    report.advice = vec![Advice {
        change: "one owner".to_owned(),
        scope: Scope::SeveralEdits,
        edits: "2 services".to_owned(),
        predicted: exact(3),
        measured: Some(3),
        failed: Some(1),
        requests: 1,
        ceiling: None,
        verdict: Some(Verdict::AsPredicted),
        command: "run --owner frontend".to_owned(),
    }];
    report.processes = vec![Process {
        service: "inventory".to_owned(),
        address: "127.0.0.1:50051".to_owned(),
        pid: Some(27),
        owned: true,
        loopback: true,
        stopped: "exited 0".to_owned(),
    }];
    for row in &mut report.services {
        row.envoy = Some(statistics(1, 2, 3, 4));
    }
    for link in &mut report.links {
        link.repeats = Some(Repeats {
            envoy_attempts: BTreeMap::from([(1, 27)]),
            ..repeats(27, 1, 4)
        });
    }
    report.timing.request_ms = Some(Latency {
        min: 1.0,
        p50: 1.5,
        p99: 2.0,
        max: 2.0,
    });
    report.versions = BTreeMap::from([("harness".to_owned(), "0.1.0".to_owned())]);
    report
}

/// The arithmetic of the headline.
pub(crate) fn prediction() -> Prediction {
    let report = headline();
    let change = |scope: Scope, change: &str, edits: &str, bottom: u128, gives_up: &str| Change {
        change: change.to_owned(),
        kind: ChangeKind::CodeOff,
        at: Some("frontend".to_owned()),
        edits: edits.to_owned(),
        scope,
        bottom: Count::Of(bottom),
        ceiling: None,
        gives_up: gives_up.to_owned(),
        command: "run --owner frontend".to_owned(),
    };
    Prediction {
        schema: PREDICTION_SCHEMA.to_owned(),
        command: "predict --seed 27".to_owned(),
        chain: report.chain.clone(),
        scenario: report.scenario.clone(),
        services: report
            .services
            .iter()
            .map(|row| PredictedService {
                service: row.service.clone(),
                kind: row.kind,
                predicted: row.predicted.clone(),
                per_second: None,
                distribution: None,
            })
            .collect(),
        links: report
            .links
            .iter()
            .map(|link| PredictedLink {
                from: link.from.clone(),
                to: link.to.clone(),
                sent: exact(link.sent.unwrap_or(0)),
            })
            .collect(),
        bottom: Bottom {
            service: "inventory".to_owned(),
            worst: Count::Of(27),
            mean: Some(27.0),
            sd: Some(0.0),
            still_fails: Some(1.0),
        },
        tries_per_call: SHOP[..3].iter().map(|name| tries(name, 3, 1)).collect(),
        formula: "3 x 3 x 3".to_owned(),
        changes: vec![
            Change {
                kind: ChangeKind::Budget,
                at: None,
                ceiling: Some(1.728),
                ..change(
                    Scope::SeveralEdits,
                    "20 % budget, 3 layers",
                    "3 services",
                    27,
                    "20 % retries at most",
                )
            },
            Change {
                kind: ChangeKind::OwnerCode,
                ..change(
                    Scope::SeveralEdits,
                    "retry at frontend only",
                    "2 services",
                    3,
                    "frontend retries all below",
                )
            },
            change(
                Scope::OneEdit,
                "retries off at frontend",
                "1 service",
                9,
                "checkout is tried once",
            ),
        ],
        shares: Vec::new(),
        budget: None,
        rate: None,
        rate_requests: None,
        capacity: None,
        notes: vec!["Exact for a service that is down".to_owned()],
        seed: 27,
    }
}

/// The arithmetic with everything in it that can be asked for.
pub(crate) fn prediction_full() -> Prediction {
    let mut full = prediction();
    for row in &mut full.services {
        row.per_second = Some(PerSecond { min: 540.0, max: 540.0 });
        row.distribution = Some(Distribution {
            p50: Count::Of(1),
            p90: Count::Of(4),
            p99: Count::Of(27),
            counts: vec![Chance {
                count: Count::Of(27),
                chance: 1.0,
            }],
        });
    }
    let share = |policy: &str, failing: f64, mean: f64, still_fails: f64| Share {
        policy: policy.to_owned(),
        failing,
        mean: Some(mean),
        sd: Some(if failing < 1.0 { 1.41 } else { 0.0 }),
        still_fails: Some(still_fails),
    };
    full.shares = vec![
        share("as it is", 0.5, 2.0, 7.5e-9),
        share("as it is", 0.9, 9.419, 0.0),
        share("as it is", 1.0, 27.0, 1.0),
        share("retry at frontend only", 0.5, 1.75, 0.125),
        share("retry at frontend only", 0.9, 2.71, 0.729),
        share("retry at frontend only", 1.0, 3.0, 1.0),
    ];
    full.budget = Some(BudgetCeiling {
        percent: 20.0,
        layers: 3,
        bottom: 1.728,
    });
    full.rate = Some(20.0);
    full.rate_requests = Some(1);
    full.capacity = Some(Capacity {
        capacity: 100.0,
        offered: Some(20.0),
        failing: 1.0,
        load: Some(PerSecond { min: 540.0, max: 540.0 }),
        recovers: Some(false),
    });
    full
}

/// A chain that has just come up.
pub(crate) fn started(names: &[&str]) -> Started {
    let at = |first: u16| {
        (first..)
            .map(|port| format!("127.0.0.1:{port}"))
            .take(names.len())
            .collect::<Vec<_>>()
    };
    let places = at(50051).into_iter().zip(at(50061));
    let (bottom, callers) = names.split_last().unwrap();
    let callers: Vec<String> = callers.iter().map(|name| format!("{name} x3")).collect();
    Started {
        chain: format!("'client > {} > {bottom}'", callers.join(" > ")),
        services: names
            .iter()
            .zip(places)
            .map(|(name, (address, control))| StartedService {
                name: (*name).to_owned(),
                address,
                control,
            })
            .collect(),
        attach: None,
        otlp: None,
    }
}

/// One request to a chain that is up, whose bottom fails.
pub(crate) fn called() -> Report {
    let mut report = headline();
    report.command = "run 'frontend x3 > checkout x3 > pricing x3 > inventory down'".to_owned();
    report.scenario = json!({"services": {"frontend": {"fault": "none"}, "inventory": {"fault": "fail"}}});
    report.receipts[0].trace_url = Some(trace_url("4bf92f3577b34da6a3ce929d0e0e4736"));
    report
}

/// The same, while somebody switched.
pub(crate) fn called_mixed() -> Report {
    let mut report = called();
    report.verdict = Verdict::Incomplete;
    report.operations.mixed = 1;
    report.services[3].received = Some(9);
    report.services[3].traced = Some(9);
    report.reasons = vec![Reason {
        kind: "mixed".to_owned(),
        text: "Requests that met more than one setting: 1.".to_owned(),
    }];
    report
}

/// Where a viewer shows a trace.
pub(crate) fn trace_url(id: &str) -> String {
    format!("http://127.0.0.1:16686/trace/{id}")
}

/// The bottom has been broken.
pub(crate) fn switched() -> Switched {
    let mut prediction = prediction();
    prediction.scenario = json!({"services": {"inventory": {"fault": "fail"}}, "load": {"requests": 1}});
    Switched {
        schema: SWITCH_SCHEMA.to_owned(),
        command: "fail".to_owned(),
        generation: 3,
        changes: vec![changed("inventory", "fault", "none", "fail")],
        prediction,
    }
}

/// A setting that is different now.
pub(crate) fn changed(service: &str, setting: &str, from: &str, to: &str) -> Changed {
    Changed {
        service: service.to_owned(),
        setting: setting.to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

/// Counts of the services of a chain, from the top.
pub(crate) fn counts(names: &[&str], received: &[u64]) -> Vec<LiveCount> {
    let rows = names.iter().zip(received).map(|(name, received)| LiveCount {
        service: (*name).to_owned(),
        received: *received,
        in_flight: 0,
    });
    rows.collect()
}

/// A chain that has been up for a while: broken by its third settings, called once since.
pub(crate) fn status() -> Status {
    status_of(&SHOP)
}

/// The same with other names.
pub(crate) fn status_of(names: &[&str; 4]) -> Status {
    let services = names
        .iter()
        .zip(["50051", "50052", "50053", "50054"])
        .zip([41, 108, 145, 172]);
    let services = services.enumerate().map(|(place, ((name, port), received))| {
        let calls = place < 3;
        LiveService {
            service: (*name).to_owned(),
            address: format!("127.0.0.1:{port}"),
            control: format!("127.0.0.1:{}", port.replace("5005", "5006")),
            pid: 4711,
            generation: 3,
            attempts: calls.then_some(3),
            retry_on: calls.then(|| "UNAVAILABLE".to_owned()),
            backoff: None,
            attempt_timeout: None,
            commit: calls.then(|| "headers".to_owned()),
            pushback: calls.then_some(true),
            throttle: None,
            budget: None,
            hedge: None,
            only_first_tries: calls.then_some(false),
            deadline: calls.then(|| "pass".to_owned()),
            detached: false,
            calls: calls.then_some(1),
            fan_out: calls.then(|| "sequence".to_owned()),
            client_fault: None,
            on_failure: calls.then(|| "pass".to_owned()),
            transport_codes: "normalized".to_owned(),
            fault: if calls { "none" } else { "fail" }.to_owned(),
            exports: false,
            received,
            in_flight: 0,
            work_done: 5,
            late: 0,
            foreign: 0,
        }
    });
    let links = names.windows(2).zip([108, 145, 172]).map(|(pair, received)| LiveLink {
        from: pair[0].to_owned(),
        to: pair[1].to_owned(),
        calls: 41,
        sent: received,
        received,
    });
    let generations = [(1, [5, 5, 5, 5]), (2, [35, 100, 131, 140]), (3, [1, 3, 9, 27])];
    Status {
        schema: STATUS_SCHEMA.to_owned(),
        command: "status".to_owned(),
        chain: "client > frontend x3 > checkout x3 > pricing x3 > inventory down".to_owned(),
        generation: 3,
        services: services.collect(),
        links: links.collect(),
        generations: generations
            .into_iter()
            .map(|(generation, received)| LiveGeneration {
                generation,
                services: counts(names, &received),
            })
            .collect(),
        mixed: Mixed {
            operations: 0,
            complete: true,
            services: counts(names, &[0, 0, 0, 0]),
        },
    }
}

/// A state in which everything there is to say is said.
pub(crate) fn status_full() -> Status {
    let mut status = status();
    status.command = "status --attach frontend=127.0.0.1:41235,checkout=127.0.0.1:41237,pricing=127.0.0.1:41239,\
                      inventory=127.0.0.1:41241"
        .to_owned();
    status.mixed = Mixed {
        operations: 2,
        complete: false,
        services: counts(&SHOP, &[2, 4, 8, 16]),
    };
    for (row, received) in status.services.iter_mut().zip([43, 112, 153, 188]) {
        row.received = received;
        row.foreign = 40;
    }
    let [frontend, checkout, pricing, inventory] = status.services.as_mut_slice() else {
        unreachable!("four services")
    };
    checkout.backoff = Some("initial=25ms,multiplier=2,max=250ms,jitter=full".to_owned());
    checkout.retry_on = Some("UNAVAILABLE,DEADLINE_EXCEEDED".to_owned());
    pricing.on_failure = Some("INTERNAL".to_owned());
    pricing.transport_codes = "raw".to_owned();
    pricing.generation = 2;
    frontend.attempt_timeout = Some("250ms".to_owned());
    frontend.hedge = Some("50ms".to_owned());
    frontend.throttle = Some("max_tokens=10,token_ratio=0.1".to_owned());
    frontend.deadline = Some("drop".to_owned());
    checkout.budget = Some("kind=window,ratio=0.2,min_per_second=0,ttl=10s".to_owned());
    checkout.commit = Some("message".to_owned());
    checkout.deadline = Some("1s".to_owned());
    checkout.detached = true;
    checkout.calls = Some(2);
    checkout.fan_out = Some("parallel".to_owned());
    pricing.pushback = Some(false);
    pricing.only_first_tries = Some(true);
    pricing.client_fault = Some("outside:delay:ms=20+fail:first=1".to_owned());
    inventory.fault = "fail:first=2".to_owned();
    inventory.late = 3;
    inventory.in_flight = 1;
    status.links[2].sent = 190;
    status
}

/// How a caller tries.
pub(crate) fn tries(caller: &str, code: u32, proxy: u32) -> Tries {
    Tries {
        caller: caller.to_owned(),
        code,
        proxy,
        tries: u64::from(code) * u64::from(proxy),
    }
}
