//! One run for each value: what was predicted for it, what came.

use super::{
    Style, command, hidden, number, run,
    words::{self, LABEL, Screen, shown},
};
use crate::report::{Point, Sweep, Verdict};
use std::{collections::BTreeSet, fmt::Write as _};

/// Columns of the values, at least and at most.
const VALUES: (usize, usize) = (6, 15);
/// Most values that have a bar.
const BARS: usize = 33;
/// Columns of the longest bar of calls, and of all requests failed.
const CALLS: usize = 27;
const FAILS: usize = 18;
/// Values that are named in the headline, at most.
const NAMED: usize = 4;
/// Runs of which it is told what is wrong, at most.
const TOLD: usize = 8;

/// The answer, the two curves as bars, the figures, what is wrong with which run, how to repeat it.
pub fn sweep(sweep: &Sweep, program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    screen.headline(&headline(sweep), style);
    screen.gap();
    let longest = sweep.points.iter().map(|point| shown(&point.value).len()).max();
    let values = longest
        .unwrap_or(0)
        .max(words::name(&sweep.over, VALUES.1).len())
        .clamp(VALUES.0, VALUES.1);
    let labels = labels(sweep, values);
    if sweep.points.len() <= BARS {
        bars(&mut screen, sweep, values, &labels);
        screen.gap();
    }
    table(&mut screen, sweep, values, &labels, style);
    screen.gap();
    for text in method(sweep) {
        screen.lines(words::wrapped("", 0, &text));
    }
    screen.gap();
    problems(&mut screen, sweep, style);
    screen.gap();
    let mut lines = command::wrapped(&format!("{:<LABEL$}", "repeat it"), program, &sweep.command);
    run::end_with_exit(&mut lines, sweep.exit_code());
    screen.lines(lines);
    screen.finish()
}

/// `p=0.3`.
pub(in crate::render) fn named(sweep: &Sweep, point: &Point) -> String {
    format!("{}={}", shown(&sweep.over), shown(&point.value))
}

/// The values, each in at most `width` columns.
fn labels(sweep: &Sweep, width: usize) -> Vec<String> {
    let values: Vec<&str> = sweep.points.iter().map(|point| point.value.as_str()).collect();
    told_apart(&values, |text| words::name(text, width))
}

/// Values cut to what fits, so that no two read the same: by what they differ in where their beginnings and ends are alike,
/// else by their place in the list. `fitted` cuts a text out of its middle.
pub(in crate::render) fn told_apart(values: &[&str], fitted: impl Fn(&str) -> String) -> Vec<String> {
    let are_told = |labels: &Vec<String>| labels.iter().collect::<BTreeSet<_>>().len() == labels.len();
    let plain: Vec<String> = values.iter().map(|value| fitted(value)).collect();
    if are_told(&plain) {
        return plain;
    }
    let by_difference: Vec<String> = differences(values).iter().map(|part| fitted(part)).collect();
    if are_told(&by_difference) {
        return by_difference;
    }
    let numbered = values
        .iter()
        .zip(1..)
        .map(|(value, place)| fitted(&format!("{place}: {value}")));
    numbered.collect()
}

/// What stands between the beginning and the end that all values have in common, with one letter of each.
fn differences(values: &[&str]) -> Vec<String> {
    let values: Vec<Vec<char>> = values.iter().map(|value| shown(value).chars().collect()).collect();
    let Some((first, others)) = values.split_first() else {
        return Vec::new();
    };
    let shortest = values.iter().map(Vec::len).min().unwrap_or(0);
    let begin = (0..shortest).find(|at| others.iter().any(|other| other[*at] != first[*at]));
    let begin = begin.unwrap_or(shortest);
    let alike = |back: &usize| {
        others
            .iter()
            .any(|other| other[other.len() - back] != first[first.len() - back])
    };
    let end = (1..=shortest - begin)
        .find(alike)
        .map_or(shortest - begin, |back| back - 1);
    let (begin, end) = (begin.saturating_sub(1), end.saturating_sub(1));
    let dots = |letters: usize| if letters > 0 { "..." } else { "" };
    let part = |value: &Vec<char>| value[begin..value.len() - end].iter().collect::<String>();
    values
        .iter()
        .map(|value| format!("{}{}{}", dots(begin), part(value), dots(end)))
        .collect()
}

/// Points as typed where that is up or down all along, else by their numbers; as typed too where a value is none.
fn in_order(sweep: &Sweep) -> Vec<&Point> {
    let mut points: Vec<&Point> = sweep.points.iter().collect();
    let goes_down = points.windows(2).all(|pair| pair[0].number >= pair[1].number);
    if is_numeric(sweep) && !goes_down {
        points.sort_by(|one, other| one.number.unwrap_or(0.0).total_cmp(&other.number.unwrap_or(0.0)));
    }
    points
}

/// Whether every value is a number.
fn is_numeric(sweep: &Sweep) -> bool {
    sweep.points.iter().all(|point| point.number.is_some())
}

/// The answer in a sentence or two.
pub(in crate::render) fn headline(sweep: &Sweep) -> String {
    let of = |verdict: Verdict| -> Vec<&Point> {
        let points = sweep.points.iter();
        points.filter(|point| point.report.verdict == verdict).collect()
    };
    let listed = |points: &[&Point]| {
        if points.len() > NAMED {
            format!("{} of {} values", points.len(), sweep.points.len())
        } else {
            words::listed(&points.iter().map(|point| named(sweep, point)).collect::<Vec<_>>())
        }
    };
    let (without, wrong) = (of(Verdict::Incomplete), of(Verdict::NotAsPredicted));
    let mut text = String::new();
    if sweep.is_cut_short() {
        let (made, planned) = (sweep.points.len() as u64, number::of(sweep.planned, "value"));
        let were = if made == 1 { "was" } else { "were" };
        text = format!("Only {} of {planned} {were} run. ", number::whole(made));
    }
    if !without.is_empty() {
        let _ = write!(text, "No verdict on {}. ", listed(&without));
    }
    text += &curve(sweep);
    if without.is_empty() && !wrong.is_empty() {
        let _ = write!(text, " Not as predicted: {}.", listed(&wrong));
    }
    text
}

/// Where both curves begin and where they end.
fn curve(sweep: &Sweep) -> String {
    let points = in_order(sweep);
    let [first, .., last] = points.as_slice() else {
        let Some(point) = sweep.points.first() else {
            return "Nothing was counted.".to_owned();
        };
        let calls = counted(&number::or_dash(point.received(), number::factor));
        return format!(
            "{calls} arrived at {} for 1 request at {}.",
            bottom(sweep),
            named(sweep, point)
        );
    };
    let of = |of: fn(&Point) -> Option<f64>, write: fn(f64) -> String| -> String {
        let texts = |points: &mut dyn Iterator<Item = &Point>| -> Vec<String> {
            points.map(|point| number::or_dash(of(point), write)).collect()
        };
        if texts(&mut points.iter().copied())
            .windows(2)
            .all(|pair| pair[0] == pair[1])
        {
            texts(&mut points.iter().copied().take(1)).concat()
        } else if is_numeric(sweep) || points.len() > NAMED {
            texts(&mut [*first, *last].into_iter()).join(" to ")
        } else {
            words::listed(&texts(&mut points.iter().copied()))
        }
    };
    let how = if is_numeric(sweep) {
        format!(
            "as {} went from {} to {}",
            shown(&sweep.over),
            shown(&first.value),
            shown(&last.value)
        )
    } else if points.len() > NAMED {
        format!("over {} values of {}", points.len(), shown(&sweep.over))
    } else {
        let values: Vec<String> = points.iter().map(|point| shown(&point.value)).collect();
        format!("with {} at {}", shown(&sweep.over), words::listed(&values))
    };
    format!(
        "{} arrived at {} for 1 request {how}. Requests that failed: {}.",
        counted(&of(Point::received, number::factor)),
        bottom(sweep),
        of(Point::failed, number::share)
    )
}

/// Figures with their noun.
pub(in crate::render) fn counted(figures: &str) -> String {
    format!("{figures} call{}", if figures == "1" { "" } else { "s" })
}

/// The service at the bottom of all runs.
pub(in crate::render) fn bottom(sweep: &Sweep) -> String {
    let rows = sweep.points.iter().filter_map(|point| point.report.services.last());
    let mut names: Vec<String> = rows.map(|row| shown(&row.service)).collect();
    names.dedup();
    match names.as_slice() {
        [name] => name.clone(),
        _ => "the bottom service".to_owned(),
    }
}

/// Both curves lying on their side.
fn bars(screen: &mut Screen, sweep: &Sweep, values: usize, labels: &[String]) {
    let most = sweep.points.iter().filter_map(Point::received).fold(0.0, f64::max);
    let bar = |value: Option<f64>, most: f64, columns: usize| {
        let value = value.filter(|value| *value > 0.0 && most > 0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the columns"
        )]
        let length = value.map_or(0, |value| (value / most * columns as f64).ceil() as usize);
        "#".repeat(length.min(columns))
    };
    let over = words::name(&sweep.over, values);
    screen.line(format!(
        "{over:<values$}  {:<width$}requests that failed",
        format!("calls at {}, for 1 request", words::name(&bottom(sweep), 11)),
        width = CALLS + 12
    ));
    for (point, value) in sweep.points.iter().zip(labels) {
        let (received, failed) = (point.received(), point.failed());
        screen.line(format!(
            "{value:<values$}  {:<CALLS$}{:>9}   {:<FAILS$}{:>6}",
            bar(received, most, CALLS),
            number::or_dash(received, number::mean),
            bar(failed, 1.0, FAILS),
            number::or_dash(failed, number::share),
        ));
    }
}

fn table(screen: &mut Screen, sweep: &Sweep, values: usize, labels: &[String], style: Style) {
    let over = words::name(&sweep.over, values);
    screen.line(format!(
        "{:values$}{:>24}{:>23}",
        "", "calls for 1 request", "requests that fail"
    ));
    screen.line(format!(
        "{over:<values$}{:>12}{:>12}{:>13}{:>10}",
        "predicted", "received", "predicted", "failed"
    ));
    for (point, value) in sweep.points.iter().zip(labels) {
        screen.line(format!(
            "{value:<values$}{:>12}{:>12}{:>13}{:>10}  {}",
            number::or_dash(point.mean, number::mean),
            number::or_dash(point.received(), number::mean),
            number::or_dash(point.still_fails, number::share),
            number::or_dash(point.failed(), number::share),
            style.verdict(point.report.verdict)
        ));
    }
}

/// `200 requests for each value`, and at which fewer were sent; `None` where values have different ones.
pub(in crate::render) fn requests(sweep: &Sweep) -> Option<String> {
    let requested = |point: &Point| point.report.operations.requested;
    let each = requested(sweep.points.first()?);
    if sweep.points.iter().any(|point| requested(point) != each) {
        return None;
    }
    let fewer = sweep.points.iter().filter(|point| point.report.operations.sent < each);
    let fewer: Vec<String> = fewer
        .map(|point| {
            let sent = number::whole(point.report.operations.sent);
            format!("{sent} at {}", named(sweep, point))
        })
        .collect();
    let but = match fewer.len() {
        0 => String::new(),
        1..=NAMED => format!(", but {}", words::listed(&fewer)),
        many => format!(", but fewer at {}", number::of(many as u64, "value")),
    };
    Some(format!("{} for each value{but}", number::of(each, "request")))
}

/// How many requests there were, and what the two predictions are.
pub(in crate::render) fn method(sweep: &Sweep) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(requests) = requests(sweep) {
        texts.push(format!("{requests}; -n N sends others."));
    }
    // A request that may fail or not is drawn, even where each makes the same number of calls.
    let is_drawn = |point: &Point| {
        let may_fail = point.still_fails.is_some_and(|chance| chance > 0.0 && chance < 1.0);
        may_fail || run::drawn(&point.report).is_some()
    };
    if sweep.points.iter().any(is_drawn) {
        let seed = match sweep.seed {
            None => ", each by its own seed.".to_owned(),
            Some(seed) if sweep.points.len() < 2 => format!(", those of seed {seed}."),
            Some(seed) => format!(
                ", those of seed {seed}. All values share them, so neighbours tend to stray \
                 from the average the same way."
            ),
        };
        texts.push(format!(
            "Predicted is the average over all draws, for failures that are independent: the best case. The verdict holds each \
             run against the count that its own draws give{seed}"
        ));
    }
    if sweep.points.iter().any(|point| point.mean.is_none()) {
        texts
            .push("Where there is no average, no closed form is known; the verdict has its own prediction.".to_owned());
    }
    texts
}

/// What is wrong with which run, on which link, and what was expected and did not come.
fn problems(screen: &mut Screen, sweep: &Sweep, style: Style) {
    let labels = labels(sweep, LABEL - 1);
    let all = sweep.points.iter().zip(&labels);
    let wrong: Vec<_> = all
        .filter(|(point, _)| point.report.verdict != Verdict::AsPredicted)
        .collect();
    for (point, label) in wrong.iter().take(TOLD) {
        screen.lines(words::labelled(label, &run::headline(&point.report)));
        for link in run::broken(&point.report) {
            screen.lines(words::labelled("", &hidden::what_it_does(&point.report, link)));
        }
    }
    let more = wrong.len().saturating_sub(TOLD);
    if more > 0 {
        let text = format!("{} more are in the report (--json).", number::whole(more as u64));
        screen.lines(words::labelled("", &text));
    }
    for point in &sweep.points {
        for expected in point.report.expected.iter().filter(|expected| !expected.met) {
            screen.lines(run::expectation(expected, &format!("{}: ", named(sweep, point)), style));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn values_that_differ_in_their_middle_are_told_apart() {
        let fitted = |text: &str| words::name(text, 15);
        let of = |values: &[&str]| told_apart(values, fitted);
        assert_eq!(of(&["true", "false"]), ["true", "false"]);
        let values = ["a item which is red and long", "a item which is blue and long"];
        assert_eq!(of(&values), ["... red ...", "... blue ..."]);
        assert_eq!(
            of(&["{first=1, last=100000}", "{first=1, last=200000}"]),
            ["...=10...", "...=20..."]
        );
        // They differ at both ends, and the middle of what differs is cut away.
        let both = [
            "1aaaaaaaaaaaaa1aaaaaaaaaaaaa1",
            "1aaaaaaaaaaaaa2aaaaaaaaaaaaa1",
            "2aaaaaaaaaaaaa1aaaaaaaaaaaaa2",
        ];
        let labels = of(&both);
        assert_eq!(labels, ["1: 1aa...aaaaa1", "2: 1aa...aaaaa1", "3: 2aa...aaaaa2"]);
        assert_eq!(
            of(&["abcdefghijklmnopqrst", "abcdefghijklmnopqrst"])[1],
            "2: abc...opqrst"
        );
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn values_out_of_order_are_told_by_their_numbers() {
        let told = |order: [usize; 3]| {
            let mut sweep = samples::sweep();
            sweep.points = order.map(|place| sweep.points[place].clone()).into();
            headline(&sweep)
        };
        let up = "1 to 3 calls arrived at db for 1 request as p went from 0 to 1. Requests that failed: 0 % to 100 %.";
        assert_eq!(told([0, 1, 2]), up);
        assert_eq!(told([2, 0, 1]), up);
        assert_eq!(told([1, 2, 0]), up);
        assert!(told([2, 1, 0]).contains("3 to 1 calls arrived at db for 1 request as p went from 1 to 0."));
    }

    #[test]
    fn a_sweep_says_whose_draws_its_values_have() {
        let mut sweep = samples::sweep();
        let said = |sweep: &Sweep| method(sweep).join(" ");
        assert!(said(&sweep).contains("those of seed 27. All values share them"));
        sweep.seed = None;
        assert!(said(&sweep).ends_with("each by its own seed."), "{}", said(&sweep));
        // As many calls however the draws fall, and not as many failures.
        for point in &mut sweep.points {
            (point.mean, point.report.services[1].predicted) = (Some(1.0), samples::exact(1));
        }
        assert!(said(&sweep).contains("average over all draws"), "{}", said(&sweep));
        for point in &mut sweep.points {
            point.still_fails = Some(1.0);
        }
        assert!(!said(&sweep).contains("draws"), "{}", said(&sweep));
    }

    #[test]
    fn requests_that_were_not_sent_are_not_counted_among_those_of_each_value() {
        let mut sweep = samples::sweep();
        for point in &mut sweep.points {
            (point.report.operations.requested, point.report.operations.sent) = (300, 300);
        }
        assert_eq!(requests(&sweep).unwrap(), "300 requests for each value");
        sweep.points[2].report.operations.sent = 259;
        assert_eq!(requests(&sweep).unwrap(), "300 requests for each value, but 259 at p=1");
        sweep.points[2].report.operations.requested = 259;
        assert_eq!(requests(&sweep), None);
    }
}
