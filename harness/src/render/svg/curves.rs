//! A sweep as two panels over one axis: calls at the bottom for one request, and requests that still fail. What was
//! predicted is a line, what came is a dot.

use super::{
    chain::{origin, verdict, version},
    page::{Anchor, BLUE, HEADING, INK, MARGIN, Page, RED, SMALL, SMALL_BLUE, Stroke, WIDTH, at, circle, cross},
    ticks::Axis,
};
use crate::{
    render::text::{number, sweep as screen, words::shown},
    report::{Forecast, Point, Sweep, Verdict},
};
use std::fmt::Write as _;

/// Units of the numbers beside the upright axis.
const NUMBERS: f64 = 110.0;
/// Units that half a name under the last tick may need beyond the margin.
const END: f64 = 40.0;
/// Where the panels begin and end.
const LEFT: f64 = MARGIN + NUMBERS;
const RIGHT: f64 = WIDTH - MARGIN - END;
/// Units of a panel from top to bottom.
const PANEL: f64 = 220.0;
/// Units of a dot, from its middle.
const DOT: f64 = 5.5;
/// The same where they stand so close that they would hide each other.
const SMALL_DOT: f64 = 2.5;
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
    let curve = |of: &dyn Fn(&Forecast) -> f64| -> Vec<(f64, f64)> {
        let known = sweep.curve.iter();
        known
            .filter_map(|forecast| Some((across.place(forecast.number)?, of(forecast))))
            .collect()
    };
    let calls = Panel {
        title: format!("Calls at {} for 1 request", HEADING.fitted(&bottom, 330.0)),
        came: "received",
        least: 0.0,
        curve: curve(&|forecast| forecast.mean),
        values: points
            .iter()
            .map(|point| [finite(point.mean), finite(point.received())])
            .collect(),
    };
    let percent = |share: Option<f64>| finite(share).map(|share| 100.0 * share);
    let failures = Panel {
        title: "Requests that still fail, %".to_owned(),
        came: "failed",
        // Chances that are far below one request of a run are as good as none.
        least: points
            .iter()
            .map(|point| one_of(point.report.operations.requested))
            .fold(0.0, f64::max),
        curve: curve(&|forecast| 100.0 * forecast.still_fails),
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

/// One request of so many, in per cent.
fn one_of(requests: u64) -> f64 {
    100.0 / requests.max(1) as f64
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
    let calls = |value: Option<f64>| {
        let known = finite(value).map(|value| screen::counted(&number::factor(value)));
        known.unwrap_or_else(|| "unknown calls".to_owned())
    };
    let received = |value: Option<f64>| finite(value).map_or_else(|| "unknown".to_owned(), number::factor);
    let share = |value: Option<f64>| finite(value).map_or_else(|| "unknown".to_owned(), number::share);
    let spoken = points.iter().take(SPOKEN).map(|point| {
        format!(
            "{over} = {}: {} predicted, {} received; {} of requests predicted to fail, {} failed.",
            shown(&point.value),
            calls(point.mean),
            received(point.received()),
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
    if let Some(requests) = screen::requests(sweep) {
        parts.push(format!("{requests}."));
    }
    if sweep.points.iter().all(|point| finite(point.mean).is_none()) {
        parts.push("No closed form is known: no line is drawn.".to_owned());
    }
    let version = sweep.points.first().and_then(|point| version(&point.report));
    parts.push(match sweep.seed {
        Some(seed) => origin(seed, version),
        None => "Each value has its own seed.".to_owned(),
    });
    parts.join(" ")
}

/// Units from the left of a place from 0 to 1.
fn units(place: f64) -> f64 {
    LEFT + 14.0 + (RIGHT - LEFT - 28.0) * place
}

/// The axis that both panels share.
struct Across {
    /// The axis of numbers; `None` where values are none.
    axis: Option<Axis>,
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
        let each = |places: &[f64]| {
            let values: Vec<&str> = points.iter().map(|point| point.value.as_str()).collect();
            let names = screen::told_apart(&values, |text| SMALL.fitted(text, NAME));
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
            return Self {
                axis: Some(axis),
                places,
                ticks,
            };
        }
        let number = points.len().max(1) as f64;
        let places: Vec<f64> = (0..points.len())
            .map(|place| units((place as f64 + 0.5) / number))
            .collect();
        Self {
            axis: None,
            ticks: each(&places),
            places,
        }
    }

    /// Units from the left, of a number that the axis has.
    fn place(&self, number: f64) -> Option<f64> {
        let axis = self.axis.as_ref()?;
        (axis.least..=axis.most)
            .contains(&number)
            .then(|| units(axis.place(number)))
    }

    /// Whether dots of the usual size would lie on each other.
    fn is_crowded(&self) -> bool {
        self.places.windows(2).any(|pair| pair[1] - pair[0] < 2.0 * DOT)
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
    /// What the dots are.
    came: &'static str,
    /// Where the upright axis ends, at least.
    least: f64,
    /// The line of what was predicted, where more of it is known than at the values: units from the left, and the value.
    curve: Vec<(f64, f64)>,
    /// What was predicted and what came.
    values: Vec<[Option<f64>; 2]>,
}

impl Panel {
    fn draw(&self, page: &mut Page, across: &Across, verdicts: &[Verdict]) {
        page.text(MARGIN, page.y + HEADING.size, Anchor::Start, HEADING, &self.title);
        self.legend(page);
        page.y += 44.0;
        let top = page.y;
        let axis = Axis::up_to(
            self.values
                .iter()
                .flatten()
                .flatten()
                .copied()
                .fold(self.least, f64::max),
        );
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
        let mut predicted: Vec<_> = points()
            .map(|(x, [predicted, _])| predicted.map(|value| (*x, height(value))))
            .collect();
        if !self.curve.is_empty() {
            predicted = self.curve.iter().map(|(x, value)| Some((*x, height(*value)))).collect();
        }
        let line = line(&predicted);
        if across.is_crowded() {
            // So many dots would hide the line.
            self.dots(page, across, verdicts, &height);
            page.path(
                line,
                Stroke {
                    width: 1.8,
                    ..PREDICTED
                },
            );
        } else {
            page.path(line, PREDICTED);
            self.dots(page, across, verdicts, &height);
        }
        page.y = top + PANEL;
    }

    /// What line and dots are, beside the title: next to the panel they would look like points of it.
    fn legend(&self, page: &mut Page) {
        let y = page.y + HEADING.size;
        let mut x = WIDTH - MARGIN - SMALL.width(self.came);
        page.text(x, y, Anchor::Start, SMALL, self.came);
        page.path(circle(x - 14.0, y - 6.0, DOT), AS_PREDICTED);
        x -= 44.0 + SMALL.width("predicted");
        page.text(x, y, Anchor::Start, SMALL_BLUE, "predicted");
        page.path(format!("M{} {}h18", at(x - 24.0), at(y - 6.0)), PREDICTED);
    }

    fn dots(&self, page: &mut Page, across: &Across, verdicts: &[Verdict], height: &impl Fn(f64) -> f64) {
        // A rim would be drawn over the neighbours.
        let (radius, rim) = if across.is_crowded() {
            (SMALL_DOT, "")
        } else {
            (DOT, AS_PREDICTED.ink)
        };
        let as_predicted = Stroke {
            ink: rim,
            ..AS_PREDICTED
        };
        let mut paths = [String::new(), String::new(), String::new()];
        for ((x, values), verdict) in across.places.iter().zip(&self.values).zip(verdicts) {
            let Some(y) = values[1].map(height) else { continue };
            match verdict {
                Verdict::AsPredicted => paths[0].push_str(&circle(*x, y, radius)),
                Verdict::NotAsPredicted => paths[1].push_str(&missed(*x, y, radius)),
                Verdict::Incomplete => paths[2].push_str(&circle(*x, y, radius)),
            }
        }
        for (path, stroke) in paths.into_iter().zip([as_predicted, NOT_AS_PREDICTED, INCOMPLETE]) {
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
