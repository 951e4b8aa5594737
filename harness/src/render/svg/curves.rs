//! A sweep as two panels over one axis: calls at the bottom for one request, and requests that still fail. What was
//! predicted is a line, what came is a dot.

use super::{
    chain::{origin, verdict, version},
    page::{Anchor, BLUE, HEADING, INK, MARGIN, Page, RED, SMALL, SMALL_BLUE, Stroke, WIDTH, at, circle, cross},
    ticks::Axis,
};
use crate::{
    render::text::{number, sweep as screen, words::shown},
    report::{Point, Sweep, Verdict},
};
use std::fmt::Write as _;

/// Units of the numbers beside the upright axis.
const NUMBERS: f64 = 110.0;
/// Units of the words at the ends of the lines.
const ENDS: f64 = 136.0;
/// Where the panels begin and end.
const LEFT: f64 = MARGIN + NUMBERS;
const RIGHT: f64 = WIDTH - MARGIN - ENDS;
/// Units of a panel from top to bottom.
const PANEL: f64 = 220.0;
/// Units of a dot, from its middle.
const DOT: f64 = 5.5;
/// Points of which a screen reader hears each.
const SPOKEN: usize = 30;

/// A line for what was predicted, a dot for what came: calls at the bottom, and requests that still fail.
pub fn sweep(sweep: &Sweep) -> String {
    let bottom = screen::bottom(sweep);
    let points = in_order(sweep);
    let line = sweep.points.first().map(|point| {
        let value = shown(&point.value);
        format!("With {} = {value}: {}", shown(&sweep.over), shown(&point.report.chain))
    });
    let mut page = Page::new(
        &screen::headline(sweep),
        &line.unwrap_or_default(),
        description(&sweep.over, &points),
    );
    let across = Across::of(&points);
    let calls = Panel {
        title: format!("Calls at {} for 1 request", HEADING.fitted(&bottom, 480.0)),
        dots: "received",
        values: points
            .iter()
            .map(|point| [finite(point.mean), finite(point.received())])
            .collect(),
    };
    let percent = |share: Option<f64>| finite(share).map(|share| 100.0 * share);
    let failures = Panel {
        title: "Requests that still fail, %".to_owned(),
        dots: "failed",
        values: points
            .iter()
            .map(|point| [percent(point.still_fails), percent(point.failed())])
            .collect(),
    };
    let verdicts: Vec<Verdict> = points.iter().map(|point| point.report.verdict).collect();
    for panel in [&calls, &failures] {
        panel.draw(&mut page, &across, &verdicts);
        page.y += 22.0;
    }
    page.y -= 10.0;
    across.draw(&mut page);
    page.text(
        f64::midpoint(LEFT, RIGHT),
        page.y + 20.0,
        Anchor::Middle,
        SMALL,
        &SMALL.fitted(&named(&sweep.over), RIGHT - LEFT),
    );
    page.y += 34.0;
    key(&mut page, &verdicts);
    page.caption(&about(sweep), &[&sweep.command]);
    page.finish()
}

/// Points from the left: by their numbers, where all have one.
fn in_order(sweep: &Sweep) -> Vec<&Point> {
    let mut points: Vec<&Point> = sweep.points.iter().collect();
    if are_numbers(&points) {
        points.sort_by(|one, other| one.number.unwrap_or(0.0).total_cmp(&other.number.unwrap_or(0.0)));
    }
    points
}

fn are_numbers(points: &[&Point]) -> bool {
    points.iter().all(|point| point.number.is_some_and(f64::is_finite))
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// What is varied, with its unit.
fn named(over: &str) -> String {
    match over {
        "p" => "p, the share of calls that fail",
        "attempts" => "attempts of each caller",
        "concurrency" => "requests at once",
        "rate" => "requests per second",
        "requests" => "requests of a run",
        "deadline" => "deadline of a request",
        other => return shown(other),
    }
    .to_owned()
}

fn description(over: &str, points: &[&Point]) -> String {
    let over = shown(over);
    let value = |value: Option<f64>| finite(value).map_or_else(|| "unknown".to_owned(), number::factor);
    let share = |value: Option<f64>| finite(value).map_or_else(|| "unknown".to_owned(), number::share);
    let spoken = points.iter().take(SPOKEN).map(|point| {
        format!(
            "{over} = {}: {} calls predicted, {} received; {} of requests predicted to fail, {} failed.",
            shown(&point.value),
            value(point.mean),
            value(point.received()),
            share(point.still_fails),
            share(point.failed())
        )
    });
    let mut spoken: Vec<String> = spoken.collect();
    if points.len() > SPOKEN {
        spoken.push(format!("And {} more.", number::whole((points.len() - SPOKEN) as u64)));
    }
    spoken.join(" ")
}

/// What the figure rests on.
fn about(sweep: &Sweep) -> String {
    let count = |verdict: Verdict| {
        sweep
            .points
            .iter()
            .filter(|point| point.report.verdict == verdict)
            .count()
    };
    let runs = sweep.points.len();
    let mut parts = vec![format!("{}:", number::of(runs as u64, "run"))];
    let verdicts = [Verdict::AsPredicted, Verdict::NotAsPredicted, Verdict::Incomplete];
    let found = verdicts.into_iter().filter(|verdict| count(*verdict) > 0);
    let found: Vec<String> = found
        .map(|one| {
            let words = verdict(one).trim_end_matches('.').to_lowercase();
            format!("{} {words}", number::whole(count(one) as u64))
        })
        .collect();
    parts.push(format!("{}.", found.join(", ")));
    let requests: Vec<u64> = sweep
        .points
        .iter()
        .map(|point| point.report.operations.requested)
        .collect();
    if let Some(first) = requests
        .first()
        .filter(|first| requests.iter().all(|one| one == *first))
    {
        parts.push(format!("{} each.", number::of(*first, "request")));
    }
    if sweep.points.iter().all(|point| finite(point.mean).is_none()) {
        parts.push("No closed form is known: no line is drawn.".to_owned());
    }
    let version = sweep.points.first().and_then(|point| version(&point.report));
    parts.push(origin(sweep.seed, version));
    parts.join(" ")
}

/// The axis that both panels share.
struct Across {
    /// Units from the left, of each point.
    places: Vec<f64>,
    /// Units from the left, and what is written there.
    ticks: Vec<(f64, String)>,
}

impl Across {
    fn of(points: &[&Point]) -> Self {
        /// Points that are all named on the axis, at most.
        const NAMED: usize = 15;
        /// Units of a name on the axis, at most.
        const NAME: f64 = 150.0;
        let units = |place: f64| LEFT + 14.0 + (RIGHT - LEFT - 28.0) * place;
        let each = |places: &[f64]| {
            let names = points.iter().map(|point| SMALL.fitted(&point.value, NAME));
            places.iter().copied().zip(names).collect()
        };
        if are_numbers(points) {
            let numbers = || points.iter().filter_map(|point| point.number);
            let axis = Axis::between(
                numbers().fold(f64::INFINITY, f64::min),
                numbers().fold(f64::NEG_INFINITY, f64::max),
            );
            let places: Vec<f64> = numbers().map(|number| units(axis.place(number))).collect();
            let ticks = if points.len() <= NAMED {
                each(&places)
            } else {
                axis.ticks
                    .iter()
                    .map(|(value, text)| (units(axis.place(*value)), text.clone()))
                    .collect()
            };
            return Self { places, ticks };
        }
        let number = points.len().max(1) as f64;
        let places: Vec<f64> = (0..points.len())
            .map(|place| units((place as f64 + 0.5) / number))
            .collect();
        Self {
            ticks: each(&places),
            places,
        }
    }

    /// What is written under the ticks; what would touch the last one is left out.
    fn draw(&self, page: &mut Page) {
        let mut end = f64::NEG_INFINITY;
        for (x, text) in &self.ticks {
            let half = SMALL.width(text) / 2.0;
            if x - half < end {
                continue;
            }
            page.text(*x, page.y + 14.0, Anchor::Middle, SMALL, text);
            end = x + half + 10.0;
        }
        page.y += 24.0;
    }
}

fn axis_line() -> Stroke {
    Stroke {
        ink: "#7a7a7a",
        width: 1.2,
        ..Stroke::default()
    }
}

/// One panel: for each point what was predicted and what came.
struct Panel {
    title: String,
    /// What a dot is.
    dots: &'static str,
    values: Vec<[Option<f64>; 2]>,
}

impl Panel {
    fn draw(&self, page: &mut Page, across: &Across, verdicts: &[Verdict]) {
        page.text(MARGIN, page.y + HEADING.size, Anchor::Start, HEADING, &self.title);
        page.y += 44.0;
        let top = page.y;
        let axis = Axis::up_to(self.values.iter().flatten().flatten().copied().fold(0.0, f64::max));
        let height = |value: f64| top + PANEL * (1.0 - axis.place(value));
        let mut grid = String::new();
        for (value, text) in &axis.ticks {
            let y = height(*value);
            let _ = write!(grid, "M{} {}H{}", at(LEFT), at(y), at(RIGHT));
            page.text(LEFT - 12.0, y + 6.0, Anchor::End, SMALL, text);
        }
        page.path(
            grid,
            Stroke {
                ink: "#e3e3e3",
                width: 1.0,
                ..Stroke::default()
            },
        );
        page.path(
            format!("M{} {}V{}H{}", at(LEFT), at(top), at(top + PANEL), at(RIGHT)),
            axis_line(),
        );
        let points = || across.places.iter().zip(&self.values);
        let mut ticks = String::new();
        for (x, _) in &across.ticks {
            let _ = write!(ticks, "M{} {}v6", at(*x), at(top + PANEL));
        }
        page.path(ticks, axis_line());
        let predicted: Vec<_> = points()
            .map(|(x, [predicted, _])| predicted.map(|value| (*x, height(value))))
            .collect();
        page.path(line(&predicted), PREDICTED);
        self.dots(page, across, verdicts, &height);
        let last = |which: usize| self.values.iter().rev().find_map(|values| values[which]).map(&height);
        ends(page, top, last(0), (self.dots, last(1)));
        page.y = top + PANEL;
    }

    fn dots(&self, page: &mut Page, across: &Across, verdicts: &[Verdict], height: &impl Fn(f64) -> f64) {
        // Many dots become smaller, so that each still can be told.
        let radius = if self.values.len() > 60 { 2.5 } else { DOT };
        let mut paths = [String::new(), String::new(), String::new()];
        for ((x, values), verdict) in across.places.iter().zip(&self.values).zip(verdicts) {
            let Some(y) = values[1].map(height) else { continue };
            match verdict {
                Verdict::AsPredicted => paths[0].push_str(&circle(*x, y, radius)),
                Verdict::NotAsPredicted => paths[1].push_str(&missed(*x, y, radius)),
                Verdict::Incomplete => paths[2].push_str(&circle(*x, y, radius)),
            }
        }
        for (path, stroke) in paths.into_iter().zip([AS_PREDICTED, NOT_AS_PREDICTED, INCOMPLETE]) {
            page.path(path, stroke);
        }
    }
}

const PREDICTED: Stroke = Stroke {
    ink: BLUE,
    width: 3.0,
    fill: "",
    is_dashed: false,
};
const AS_PREDICTED: Stroke = Stroke {
    ink: "#ffffff",
    width: 1.2,
    fill: INK,
    is_dashed: false,
};
const NOT_AS_PREDICTED: Stroke = Stroke {
    ink: RED,
    width: 2.0,
    fill: "",
    is_dashed: false,
};
const INCOMPLETE: Stroke = Stroke {
    ink: INK,
    width: 1.5,
    fill: "#ffffff",
    is_dashed: false,
};

/// A dot that did not fall where it was predicted: a cross in a ring.
fn missed(x: f64, y: f64, radius: f64) -> String {
    circle(x, y, 1.5 * radius) + &cross(x, y, 0.8 * radius)
}

/// Straight from point to point; interrupted where nothing is known. A point alone is a dash.
fn line(points: &[Option<(f64, f64)>]) -> String {
    let mut path = String::new();
    for run in points.split(Option::is_none) {
        let run: Vec<&(f64, f64)> = run.iter().flatten().collect();
        match run.as_slice() {
            [(x, y)] => _ = write!(path, "M{} {}h24", at(x - 12.0), at(*y)),
            points => {
                for (number, (x, y)) in points.iter().enumerate() {
                    let _ = write!(path, "{}{} {}", if number > 0 { 'L' } else { 'M' }, at(*x), at(*y));
                }
            }
        }
    }
    path
}

/// What line and dots are, beside the last of each; moved apart where they would touch.
fn ends(page: &mut Page, top: f64, predicted: Option<f64>, (dots, counted): (&str, Option<f64>)) {
    const APART: f64 = 22.0;
    let (mut above, mut below) = (predicted, counted);
    if let (Some(one), Some(other)) = (predicted, counted)
        && (one - other).abs() < APART
    {
        let middle = f64::midpoint(one, other).clamp(top + APART / 2.0, top + PANEL - APART / 2.0);
        let half = if one <= other { APART / 2.0 } else { -APART / 2.0 };
        (above, below) = (Some(middle - half), Some(middle + half));
    }
    let x = RIGHT + 6.0;
    if let Some(y) = above {
        page.path(format!("M{} {}h18", at(x), at(y)), PREDICTED);
        page.text(x + 24.0, y + 6.0, Anchor::Start, SMALL_BLUE, "predicted");
    }
    if let Some(y) = below {
        page.path(circle(x + 9.0, y, DOT), AS_PREDICTED);
        page.text(x + 24.0, y + 6.0, Anchor::Start, SMALL, dots);
    }
}

/// What dots of other shapes mean, where there are some.
fn key(page: &mut Page, verdicts: &[Verdict]) {
    let mut x = LEFT;
    let line = page.y + 20.0;
    let kinds = [
        (Verdict::NotAsPredicted, "not as predicted"),
        (Verdict::Incomplete, "no verdict: the evidence is not whole"),
    ];
    for (kind, words) in kinds {
        if !verdicts.contains(&kind) {
            continue;
        }
        let middle = line - 6.0;
        match kind {
            Verdict::NotAsPredicted => page.path(missed(x + 8.0, middle, DOT), NOT_AS_PREDICTED),
            _ => page.path(circle(x + 8.0, middle, DOT), INCOMPLETE),
        }
        page.text(x + 26.0, line, Anchor::Start, SMALL, words);
        x += 26.0 + SMALL.width(words) + 24.0;
        page.y = line + 8.0;
    }
}
