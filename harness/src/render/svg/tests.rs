//! Every figure: well-formed, whole, nothing over anything else, nothing off the page, and nothing foreign in it but text.

use super::{
    comparison,
    page::{BLUE, INK, RED, Type},
    prediction, run, sweep,
};
use crate::{
    render::samples,
    report::{Comparison, Count, Point, Predicted, Prediction, PredictionKind, Report, Sweep, Verdict},
};
use roxmltree::{Document, Node};

const HEADLINE: usize = 100 * 1024;
const ANY: usize = 300 * 1024;
/// Elements that a figure is made of. None of them can load or run anything.
const ELEMENTS: [&str; 6] = ["svg", "title", "desc", "rect", "text", "path"];

fn drawn() -> Vec<(String, String)> {
    let mut figures = Vec::new();
    for (number, report) in reports().iter().enumerate() {
        figures.push((format!("run {number}"), run(report)));
    }
    for (number, sums) in predictions().iter().enumerate() {
        figures.push((format!("prediction {number}"), prediction(sums)));
    }
    for (number, several) in comparisons().iter().enumerate() {
        figures.push((format!("comparison {number}"), comparison(several)));
    }
    for (number, over) in sweeps().iter().enumerate() {
        figures.push((format!("sweep {number}"), sweep(over)));
    }
    figures
}

fn reports() -> Vec<Report> {
    let mut reports = samples::reports();
    let mut widest = samples::thirteen_with_proxies();
    for (number, row) in widest.services.iter_mut().enumerate() {
        row.service = format!("{}{number}", ["W", "m", "i"][number % 3].repeat(61));
        row.received = Some(u64::MAX - number as u64);
        row.amplification = Some(1.844_674_407_370_955e19);
        row.predicted.max = Count::Beyond;
    }
    reports.push(widest);
    let mut marked_up = samples::headline();
    marked_up.services[0].service = "</text><script>alert(1)</script>&\"'".to_owned();
    marked_up.links[1].from = marked_up.services[0].service.clone();
    marked_up.chain = "client > <b>&amp; x3".to_owned();
    reports.push(marked_up);
    let mut none = samples::headline();
    none.services.clear();
    none.links.clear();
    reports.push(none);
    let mut nothing = samples::thousand();
    for row in &mut nothing.services {
        row.received = Some(0);
        row.amplification = Some(f64::NAN);
    }
    reports.push(nothing);
    let mut client = samples::headline();
    client.chain = client.chain.replace("client", "client x3");
    client.receipts[0].attempts[0].code = "in_flight".to_owned();
    reports.push(client);
    reports
}

fn predicted(kind: PredictionKind, mean: Option<f64>, min: u128, max: Count) -> Predicted {
    Predicted {
        kind,
        mean,
        sd: mean,
        min: Count::Of(min),
        max,
    }
}

fn predictions() -> Vec<Prediction> {
    let with = |requests: u64, rows: [Predicted; 4]| {
        let mut sums = samples::prediction();
        sums.scenario["load"]["requests"] = requests.into();
        for (row, predicted) in sums.services.iter_mut().zip(rows) {
            row.predicted = predicted;
        }
        sums
    };
    let large = 10_u128.pow(26);
    let exact = |count: Count| predicted(PredictionKind::Exact, None, 0, count);
    let mut refused = with(1, [1, 3, 9, 0].map(samples::exact));
    refused.bottom.worst = Count::Of(0);
    vec![
        samples::prediction(),
        refused,
        with(1000, [1000, 3000, 9000, 27_000].map(samples::exact)),
        with(1, [1, 2, 3, 3].map(samples::exact)),
        with(
            1,
            [1.0, 1.1, 1.5, 2.0].map(|mean| predicted(PredictionKind::Statistical, Some(mean), 1, Count::Of(27))),
        ),
        with(
            400,
            [1, 3, 9, 27].map(|most| predicted(PredictionKind::Bounds, None, 400, Count::Of(400 * most))),
        ),
        with(
            1,
            [Count::Of(1), Count::Of(large), Count::Beyond, Count::Beyond].map(exact),
        ),
        with(
            1,
            [1e10, 1e20, 1e26, f64::INFINITY]
                .map(|mean| predicted(PredictionKind::Statistical, Some(mean), 0, Count::Beyond)),
        ),
    ]
}

fn comparisons() -> Vec<Comparison> {
    let of = |runs: Vec<Report>| Comparison {
        runs,
        ..samples::comparison()
    };
    vec![
        samples::comparison(),
        of(samples::reports()),
        of(reports()),
        of(vec![samples::headline()]),
        of(Vec::new()),
        of(vec![samples::proxies(), samples::two_services()]),
        of(vec![samples::hidden(), samples::incomplete()]),
    ]
}

fn sweeps() -> Vec<Sweep> {
    let all = |over: &str, values: &mut dyn Iterator<Item = String>, received: u64| {
        let points = values.map(|value| point(&value, Some((1.0, 0.5)), received, 50));
        swept(over, points.collect())
    };
    let mut unlike = failures();
    unlike.points[1].report.verdict = Verdict::NotAsPredicted;
    unlike.points[2].report.verdict = Verdict::Incomplete;
    unlike.points[3].mean = None;
    unlike.points[3].still_fails = Some(f64::NAN);
    unlike.points[4].mean = Some(f64::INFINITY);
    unlike.points[4].report.services[3].amplification = None;
    let mut large = failures();
    for point in &mut large.points {
        point.mean = point.mean.map(|mean| mean * 1e26);
    }
    let mut hostile = failures();
    hostile.over = "</text><script>".repeat(20);
    hostile.command = format!("sweep '{}'", "<b>\u{202e}".repeat(1000));
    for point in &mut hostile.points {
        point.value = format!("<{}>\u{1b}", "W".repeat(100));
        point.number = None;
        point.report.services[3].service = "W".repeat(63);
    }
    let mut unordered = failures();
    unordered.points.reverse();
    let mut cut_short = failures();
    cut_short.planned = 11;
    vec![
        samples::sweep(),
        cut_short,
        failures(),
        unlike,
        large,
        hostile,
        unordered,
        all("p", &mut ["0.5".to_owned()].into_iter(), 300),
        all("p", &mut ["0".to_owned()].into_iter(), 0),
        all("p", &mut std::iter::empty(), 0),
        all("p", &mut ["0.5", "0.5", "0.5"].map(str::to_owned).into_iter(), 300),
        all("attempts", &mut (1..=1000).map(|number| number.to_string()), 300),
        all(
            "retry_on",
            &mut ["UNAVAILABLE", "any", "none"].map(str::to_owned).into_iter(),
            300,
        ),
        all(
            "services.pricing.fault",
            &mut (1..=1000).map(|number| format!("delay:ms={number}")),
            0,
        ),
    ]
}

/// One value of a sweep: 100 requests, so many calls at the bottom, so many requests that failed.
fn point(value: &str, predicted: Option<(f64, f64)>, received: u64, failed: u64) -> Point {
    let mut report = samples::thousand();
    report.receipts.clear();
    report.operations.requested = 100;
    report.operations.failed = failed;
    report.operations.ok = 100 - failed;
    let bottom = &mut report.services[3];
    bottom.received = Some(received);
    bottom.amplification = Some(received as f64 / 100.0);
    Point {
        value: value.to_owned(),
        number: value.parse().ok(),
        mean: predicted.map(|(mean, _)| mean),
        still_fails: predicted.map(|(_, fails)| fails),
        report,
    }
}

fn swept(over: &str, points: Vec<Point>) -> Sweep {
    Sweep {
        command: format!("sweep --over {over}=..."),
        over: over.to_owned(),
        planned: points.len() as u64,
        points,
        curve: Vec::new(),
        ..samples::sweep()
    }
}

/// Failures from none to all.
fn failures() -> Sweep {
    let points = [
        ("0", 1.0, 0.0, 100, 0),
        ("0.25", 1.333, 3.8e-6, 131, 0),
        ("0.5", 2.0, 0.002, 211, 0),
        ("0.75", 3.98, 0.075, 402, 7),
        ("1", 27.0, 1.0, 2700, 100),
    ];
    let points =
        points.map(|(value, mean, fails, received, failed)| point(value, Some((mean, fails)), received, failed));
    swept("p", points.into())
}

/// A text and the box that it takes at most: left, top, right, bottom.
struct Set<'a> {
    text: &'a str,
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

fn number(node: &Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

fn texts<'a>(document: &'a Document<'a>) -> Vec<Set<'a>> {
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    texts
        .map(|node| {
            let kind = Type {
                size: number(&node, "font-size"),
                is_bold: node.attribute("font-weight").is_some(),
                is_code: node.attribute("font-family").is_some(),
                ink: "",
            };
            let text = node.text().unwrap_or_default();
            let width = kind.width(text);
            let x = number(&node, "x");
            let left = match node.attribute("text-anchor") {
                None => x,
                Some("middle") => x - width / 2.0,
                Some(_) => x - width,
            };
            let y = number(&node, "y");
            Set {
                text,
                left,
                top: y - 0.78 * kind.size,
                right: left + width,
                bottom: y + 0.22 * kind.size,
            }
        })
        .collect()
}

fn size(document: &Document<'_>) -> (f64, f64) {
    let view: Vec<f64> = document
        .root_element()
        .attribute("viewBox")
        .unwrap()
        .split(' ')
        .map(|part| part.parse().unwrap())
        .collect();
    (view[2], view[3])
}

#[test]
fn every_figure_is_well_formed_and_says_what_it_is() {
    for (name, figure) in drawn() {
        let document = Document::parse(&figure).unwrap_or_else(|error| panic!("{name}: {error}\n{figure}"));
        let root = document.root_element();
        assert_eq!(root.attribute("role"), Some("img"), "{name}");
        for child in ["title", "desc"] {
            let words = root
                .children()
                .find(|node| node.has_tag_name(child))
                .and_then(|node| node.text());
            assert!(
                child == "desc" || words.is_some_and(|words| !words.is_empty()),
                "{name}: no {child}"
            );
        }
        assert!(figure.ends_with("</svg>\n"), "{name}");
    }
}

#[test]
fn no_text_lies_on_another_or_off_the_page() {
    for (name, figure) in drawn() {
        let document = Document::parse(&figure).unwrap();
        let (width, height) = size(&document);
        let texts = texts(&document);
        for (place, one) in texts.iter().enumerate() {
            let is_inside = one.left >= 0.0 && one.top >= 0.0 && one.right <= width && one.bottom <= height;
            assert!(is_inside, "{name}: {:?} leaves the page", one.text);
            for other in &texts[..place] {
                let is_apart = one.left >= other.right
                    || other.left >= one.right
                    || one.top >= other.bottom
                    || other.top >= one.bottom;
                assert!(is_apart, "{name}: {:?} lies on {:?}", one.text, other.text);
            }
        }
    }
}

#[test]
fn nothing_is_drawn_off_the_page_or_at_no_number() {
    for (name, figure) in drawn() {
        let document = Document::parse(&figure).unwrap();
        let (width, height) = size(&document);
        for path in document.descendants().filter(|node| node.has_tag_name("path")) {
            let data = path.attribute("d").unwrap();
            assert!(!data.contains("NaN") && !data.contains("inf"), "{name}: {data}");
            for piece in data.split('M').skip(1) {
                let mut numbers =
                    piece.split(|letter: char| letter != '.' && letter != '-' && !letter.is_ascii_digit());
                let x: f64 = numbers.next().unwrap().parse().unwrap();
                let y: f64 = numbers.next().unwrap().parse().unwrap();
                let is_inside = (0.0..=width).contains(&x) && (0.0..=height).contains(&y);
                assert!(is_inside, "{name}: {piece}");
            }
        }
    }
}

#[test]
fn what_is_foreign_stays_text() {
    for (name, figure) in drawn() {
        let document = Document::parse(&figure).unwrap();
        for node in document.descendants().filter(Node::is_element) {
            let tag = node.tag_name().name();
            assert!(ELEMENTS.contains(&tag), "{name}: <{tag}>");
            for attribute in node.attributes() {
                let (key, value) = (attribute.name(), attribute.value());
                assert!(!key.starts_with("on") && key != "href", "{name}: {key}");
                assert!(!value.contains("url("), "{name}: {value}");
            }
        }
        let odd = figure
            .chars()
            .find(|letter| *letter != '\n' && !(' '..='~').contains(letter));
        assert_eq!(odd, None, "{name}");
    }
}

#[test]
fn figures_are_small_and_the_same_each_time() {
    let headline = run(&samples::headline());
    assert!(headline.len() <= HEADLINE, "{}", headline.len());
    for ((name, figure), (_, again)) in drawn().into_iter().zip(drawn()) {
        assert!(figure.len() <= ANY, "{name}: {}", figure.len());
        assert_eq!(figure, again, "{name}");
    }
}

/// Pieces of the paths in one colour.
fn pieces(figure: &str, ink: &str) -> usize {
    let document = Document::parse(figure).unwrap();
    let paths = document.descendants().filter(|node| node.has_tag_name("path"));
    let inked = paths.filter(|node| node.attribute("stroke") == Some(ink));
    inked
        .map(|node| node.attribute("d").unwrap().matches('M').count())
        .sum()
}

#[test]
fn each_call_that_arrived_and_failed_is_a_cross() {
    // One cross more explains the others.
    assert_eq!(pieces(&run(&samples::headline()), RED), 1 + 3 + 9 + 27 + 1);
    assert_eq!(pieces(&run(&samples::single_owner()), RED), 1 + 3 + 3 + 3 + 1);
    assert_eq!(pieces(&run(&samples::transient()), RED), 2 + 1);
    assert_eq!(pieces(&run(&samples::proxies()), RED), 1093 + 1);
    assert_eq!(pieces(&comparison(&samples::comparison()), RED), 40 + 10 + 1);
}

fn says(figure: &str, text: &str) -> bool {
    let document = Document::parse(figure).unwrap();
    texts(&document).iter().any(|set| set.text.contains(text))
}

#[test]
fn predicted_stands_beside_received_where_they_differ() {
    let hidden = run(&samples::hidden());
    assert!(
        says(&hidden, "108") && says(&hidden, "27 predicted") && says(&hidden, "x3 ?x4"),
        "{hidden}"
    );
    let agreed = run(&samples::headline());
    assert!(says(&agreed, "27") && !says(&agreed, "27 predicted"), "{agreed}");
}

#[test]
fn a_row_says_how_often_its_callers_call_and_try() {
    let mut report = samples::headline();
    report.scenario = serde_json::json!({"services": {"checkout": {"calls": 2, "fan_out": "parallel"}}});
    assert!(says(&run(&report), "2 calls x3"));
    assert!(!says(&run(&samples::headline()), "calls x3"));
}

#[test]
fn calls_to_a_closed_port_are_rings_and_no_crosses() {
    let figure = run(&samples::refused());
    assert!(
        says(&figure, "27 sent") && says(&figure, "sent, does not arrive"),
        "{figure}"
    );
    assert_eq!(pieces(&figure, RED), 1 + 3 + 9 + 1);
}

#[test]
fn many_requests_are_counted_for_one() {
    let figure = run(&samples::thousand());
    assert!(
        says(&figure, "27,000 in all") && says(&figure, "1,000 requests."),
        "{figure}"
    );
}

#[test]
fn a_point_that_is_not_as_predicted_looks_like_no_other() {
    let plain = sweep(&failures());
    assert!(pieces(&plain, RED) == 0 && !says(&plain, "not as predicted"), "{plain}");
    let mut one = failures();
    one.points[2].report.verdict = Verdict::NotAsPredicted;
    let figure = sweep(&one);
    // A ring and a cross in each of two panels, and in the words that explain them.
    assert_eq!(pieces(&figure, RED), 6);
    assert!(says(&figure, "4 as predicted, 1 not as predicted."), "{figure}");
}

#[test]
fn dots_are_calls_received_above_and_requests_failed_below() {
    let figure = sweep(&failures());
    let document = Document::parse(&figure).unwrap();
    let words: Vec<&str> = texts(&document).into_iter().map(|set| set.text).collect();
    let count = |word: &str| words.iter().filter(|text| **text == word).count();
    assert_eq!([count("predicted"), count("received"), count("failed")], [2, 1, 1]);
}

#[test]
fn a_sweep_in_any_order_is_drawn_by_its_numbers() {
    let mut turned = failures();
    turned.points.reverse();
    let (one, other) = (sweep(&failures()), sweep(&turned));
    let lines = |figure: &str| -> Vec<String> {
        let document = Document::parse(figure).unwrap();
        let paths = document.descendants().filter_map(|node| node.attribute("d"));
        paths.map(str::to_owned).collect()
    };
    assert_eq!(lines(&one), lines(&other));
}

#[test]
fn many_points_are_dots_without_rims_below_the_line() {
    let of = |number: u64| {
        let values = (0..number).map(|place| point(&place.to_string(), Some((1.0, 0.5)), 300, 50));
        sweep(&swept("attempts", values.collect()))
    };
    let rims = |figure: &str| {
        let document = Document::parse(figure).unwrap();
        let of_points = |path: &roxmltree::Node| path.attribute("d").is_some_and(|data| data.matches('M').count() > 10);
        let rims = document
            .descendants()
            .filter(|node| node.attribute("fill") == Some(INK));
        let rims: Vec<_> = rims
            .filter(of_points)
            .map(|node| node.has_attribute("stroke"))
            .collect();
        rims
    };
    assert_eq!(rims(&of(20)), [true, true]);
    assert_eq!(rims(&of(199)), [false, false]);
    assert_eq!(rims(&of(1000)), [false, false]);
}

#[test]
fn chances_far_below_one_request_of_the_run_do_not_stretch_the_axis() {
    let points = [("0", 0.0), ("0.001", 3e-12)].map(|(p, fails)| point(p, Some((1.0, fails)), 100, 0));
    let figure = sweep(&swept("p", points.into()));
    // One of 100 requests is 1 %.
    assert!(says(&figure, "1.0") && !says(&figure, "0.000000"), "{figure}");
}

#[test]
fn dots_are_named_after_what_they_are_and_one_call_is_one() {
    let figure = sweep(&failures());
    let document = Document::parse(&figure).unwrap();
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    let named: Vec<_> = texts
        .filter_map(|node| node.text())
        .filter(|text| ["predicted", "received", "failed"].contains(text))
        .collect();
    assert_eq!(named, ["received", "predicted", "failed", "predicted"]);
    assert!(figure.contains("p = 0: 1 call predicted, 1 received;"), "{figure}");
}

#[test]
fn the_line_goes_through_what_is_known_between_the_values() {
    let pieces_of_lines = |sweep_: &Sweep| -> Vec<usize> {
        let figure = sweep(sweep_);
        let document = Document::parse(&figure).unwrap();
        let lines = document
            .descendants()
            .filter(|node| node.attribute("stroke") == Some(BLUE));
        let lines = lines.filter_map(|node| node.attribute("d"));
        let pieces = lines.map(|data| data.matches('L').count());
        pieces.filter(|pieces| *pieces > 0).collect()
    };
    let mut chances = samples::sweep();
    assert_eq!(pieces_of_lines(&chances), [3, 3], "four numbers for three values");
    chances.curve.clear();
    assert_eq!(pieces_of_lines(&chances), [2, 2]);
    // What was not run has no place on the axis.
    let mut cut_short = samples::sweep();
    cut_short.points.truncate(2);
    assert_eq!(pieces_of_lines(&cut_short), [2, 2]);
}

#[test]
fn values_with_seeds_of_their_own_have_no_common_one() {
    let mut seeds = failures();
    seeds.seed = None;
    let figure = sweep(&seeds);
    assert!(says(&figure, "Each value has its own seed."), "{figure}");
    assert!(!says(&figure, "Seed"), "{figure}");
}

#[test]
fn every_caption_repeats_its_figure() {
    for (figure, command) in [
        (run(&samples::headline()), "harness run --seed 27"),
        (prediction(&samples::prediction()), "harness predict --seed 27"),
        (
            comparison(&samples::comparison()),
            "harness run --owner frontend --seed 27",
        ),
        (sweep(&failures()), "harness sweep --over p=..."),
    ] {
        assert!(says(&figure, command) && says(&figure, "Seed 27."), "{figure}");
    }
}
