//! Chains drawn row by row: the name, how often its caller tries, a mark for each call or a bar, the count. Several chains
//! have one scale.

use super::{
    page::{
        Anchor, BLUE, FIGURE, GREY, HEADING, INK, LABEL, MARGIN, PALE, Page, RED, SMALL, Stroke, Type, WIDTH, at,
        circle, cross,
    },
    tree::{Fate, Mark, Row as Laid, Tree},
};
use crate::render::text::words::shown;
use std::{collections::BTreeMap, fmt::Write as _};

/// Units of a name, at most.
const NAMES: f64 = 220.0;
/// Units of what stands under a count, at most.
const BESIDE: f64 = 215.0;
/// Units of the line that a name and a count stand on.
const LINE: f64 = 28.0;
/// Units of a further line under a count.
const FURTHER: f64 = 22.0;
/// Units from the top of a bar to its bottom.
const BAR: f64 = 20.0;
/// Marks of a whole figure, at most: beyond that the file would be large.
const MARKS: usize = 5_000;

/// A chain as it is drawn.
#[derive(Debug)]
pub(super) struct Chain {
    /// Over it; nothing for a chain alone.
    pub(super) heading: String,
    /// Its chain line, under the heading.
    pub(super) line: String,
    /// What the counts are.
    pub(super) unit: &'static str,
    /// The services and proxies, the top one first.
    pub(super) rows: Vec<Row>,
    /// Whether its counts are a prediction alone.
    pub(super) is_predicted: bool,
}

/// One service or proxy.
#[derive(Debug)]
pub(super) struct Row {
    /// Its name, in full.
    pub(super) name: String,
    /// Whether it is a proxy.
    pub(super) is_proxy: bool,
    /// How often its caller tries: `x3`.
    pub(super) tries: String,
    /// Its count.
    pub(super) count: String,
    /// What stands under the count.
    pub(super) beside: Vec<String>,
    /// One for each call; `None` where they are not known one by one.
    pub(super) marks: Option<Vec<Mark>>,
    /// Calls for one request, as a full bar and as an outline; 0 for none.
    pub(super) bar: [f64; 2],
}

impl Chain {
    /// A client that tries a request several times stands on top, with that request.
    pub(super) fn under_its_client(mut self, client: &str) -> Self {
        if self.rows.first().is_none_or(|row| row.tries.is_empty()) {
            return self;
        }
        for (number, row) in self.rows.iter_mut().enumerate() {
            for mark in row.marks.iter_mut().flatten() {
                mark.parent = match mark.parent {
                    Some((row, place)) => Some((row + 1, place)),
                    None => (number == 0).then_some((0, 0)),
                };
            }
        }
        self.rows.insert(
            0,
            Row {
                name: client.to_owned(),
                is_proxy: false,
                tries: String::new(),
                count: String::new(),
                beside: Vec::new(),
                marks: Some(vec![Mark {
                    parent: None,
                    fate: Fate::Request,
                }]),
                bar: [0.0; 2],
            },
        );
        self
    }

    /// The chain in words.
    pub(super) fn description(&self) -> String {
        let counted = self.rows.iter().filter(|row| !row.count.is_empty());
        let rows = counted.map(|row| {
            let counts: Vec<&str> = std::iter::once(&row.count)
                .chain(&row.beside)
                .map(String::as_str)
                .collect();
            format!("{}: {}", shown(&row.name), counts.join(", "))
        });
        let rows: Vec<String> = rows.collect();
        let mut words = format!("{}. {}.", self.unit, rows.join("; "));
        if !self.heading.is_empty() {
            words.insert_str(0, &format!("{}: ", self.heading));
        }
        words
    }
}

/// Where the columns of all chains are, units from the left.
struct Columns {
    names: f64,
    /// The end of what is said of tries.
    tries: f64,
    /// Where marks and bars begin.
    left: f64,
    /// Units that they take.
    units: f64,
}

impl Columns {
    fn of(chains: &[Chain]) -> Self {
        let rows = || chains.iter().flat_map(|chain| &chain.rows);
        let widest = |of: &dyn Fn(&Row) -> f64| rows().map(of).fold(0.0, f64::max);
        let names = widest(&|row| name_type(row).width(&shown(&row.name))).min(NAMES);
        let tries = widest(&|row| SMALL.width(&row.tries));
        let counts = widest(&|row| {
            let beside = beside(row).iter().map(|line| SMALL.width(line)).fold(0.0, f64::max);
            beside.max(FIGURE.width(&row.count))
        });
        let end = MARGIN + names + 12.0 + tries;
        let left = end + 12.0;
        Self {
            names,
            tries: end,
            left,
            units: WIDTH - MARGIN - counts - 20.0 - left,
        }
    }
}

fn name_type(row: &Row) -> Type {
    if row.is_proxy { SMALL } else { LABEL }
}

fn beside(row: &Row) -> Vec<String> {
    row.beside.iter().flat_map(|text| SMALL.wrapped(text, BESIDE)).collect()
}

/// How all chains of a figure are drawn.
enum Scale {
    /// Each call a mark, so many units from the next.
    Marks(Vec<Tree>, f64),
    /// Calls of the longest bar.
    Bars(f64),
}

impl Scale {
    fn of(chains: &[Chain], units: f64) -> Self {
        Self::marks(chains, units).unwrap_or_else(|| {
            let bars = chains.iter().flat_map(|chain| &chain.rows).flat_map(|row| row.bar);
            Self::Bars(bars.filter(|bar| bar.is_finite()).fold(0.0, f64::max))
        })
    }

    fn marks(chains: &[Chain], units: f64) -> Option<Self> {
        let mut trees = Vec::new();
        let mut all = 0;
        for chain in chains {
            // An Envoy counts its calls and does not tell them apart: that is no reason to draw bars.
            let rows = chain.rows.iter().map(|row| match &row.marks {
                None if row.is_proxy => Some(Vec::new()),
                marks => marks.clone(),
            });
            let rows: Vec<Vec<Mark>> = rows.collect::<Option<_>>()?;
            all += rows.iter().map(Vec::len).sum::<usize>();
            trees.push(Tree::of(&rows)?);
        }
        let pitch = trees.iter().map(|tree| tree.pitch(units)).fold(f64::INFINITY, f64::min);
        let fits =
            |(chain, tree): (&Chain, &Tree)| (0..chain.rows.len()).all(|row| tree.row(row, pitch, units).is_some());
        let is_fit = all <= MARKS && all > 0 && chains.iter().zip(&trees).all(fits);
        is_fit.then_some(Self::Marks(trees, pitch))
    }
}

/// Draws chains under each other, and what their marks mean.
pub(super) fn draw(page: &mut Page, chains: &[Chain]) {
    let columns = Columns::of(chains);
    let scale = Scale::of(chains, columns.units);
    for (number, chain) in chains.iter().enumerate() {
        page.paragraph(HEADING, &chain.heading);
        page.paragraph(SMALL, &chain.line);
        page.text(WIDTH - MARGIN, page.y + SMALL.size, Anchor::End, SMALL, chain.unit);
        page.y += 32.0;
        match &scale {
            Scale::Marks(trees, pitch) => with_marks(page, chain, &columns, &trees[number], *pitch),
            Scale::Bars(most) => with_bars(page, chain, &columns, *most),
        }
        page.y += 8.0;
    }
    let key = match &scale {
        Scale::Marks(..) => fates(chains),
        Scale::Bars(_) => bars(chains),
    };
    draw_key(page, &columns, &key);
}

/// Units from one row to the next where nothing needs more.
fn base(chain: &Chain) -> f64 {
    match chain.rows.len() {
        0..=7 => 64.0,
        8..=14 => 52.0,
        _ => 46.0,
    }
}

/// The name, the tries above it, the count; answers how many units the row needs.
fn words(page: &mut Page, row: &Row, columns: &Columns, base: f64) -> f64 {
    let line = page.y + LINE / 2.0 + 7.0;
    let kind = name_type(row);
    page.text(
        MARGIN,
        line,
        Anchor::Start,
        kind,
        &kind.fitted(&row.name, columns.names),
    );
    if !row.tries.is_empty() {
        page.text(columns.tries, line - base / 2.0, Anchor::End, SMALL, &row.tries);
    }
    page.text(WIDTH - MARGIN, line, Anchor::End, FIGURE, &row.count);
    let mut below = line;
    for text in beside(row) {
        below += FURTHER;
        page.text(WIDTH - MARGIN, below, Anchor::End, SMALL, &text);
    }
    below + 8.0 - page.y
}

fn with_marks(page: &mut Page, chain: &Chain, columns: &Columns, tree: &Tree, pitch: f64) {
    let base = base(chain);
    let mut drawn: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut above: f64 = 0.0;
    let mut edges = String::new();
    let mut marks = Vec::new();
    for (number, row) in chain.rows.iter().enumerate() {
        let laid = tree
            .row(number, pitch, columns.units)
            .expect("the scale was chosen so that each row fits");
        let needed = words(page, row, columns, base);
        // The middle of a single line of marks is that of the name beside it.
        let top = page.y + if laid.has_edges { LINE / 2.0 - laid.radius } else { 4.0 };
        let places: Vec<(f64, f64)> = laid.marks.iter().map(|(x, y)| (columns.left + x, top + y)).collect();
        let kinds = row.marks.as_deref().unwrap_or_default();
        if laid.has_edges {
            for ((x, y), mark) in places.iter().zip(kinds) {
                if let Some((row, place)) = mark.parent {
                    let (from_x, from_y) = drawn[row][place];
                    let _ = write!(
                        edges,
                        "M{} {}L{} {}",
                        at(from_x),
                        at(from_y + above + 2.0),
                        at(*x),
                        at(y - laid.radius - 2.0)
                    );
                }
            }
        }
        above = laid.radius;
        let depth = top + laid.depth - page.y;
        marks.push((places.clone(), laid, kinds));
        drawn.push(places);
        page.y += base.max(needed).max(depth + base - LINE);
    }
    page.path(
        edges,
        Stroke {
            ink: PALE,
            width: 1.2,
            ..Stroke::default()
        },
    );
    for (places, laid, kinds) in marks {
        draw_marks(page, &places, &laid, kinds);
    }
    page.y -= base - LINE - 16.0;
}

fn draw_marks(page: &mut Page, places: &[(f64, f64)], laid: &Laid, marks: &[Mark]) {
    let mut paths: BTreeMap<Fate, String> = BTreeMap::new();
    for ((x, y), mark) in places.iter().zip(marks) {
        paths
            .entry(mark.fate)
            .or_default()
            .push_str(&shape(mark.fate, *x, *y, laid.radius));
    }
    for (fate, path) in paths {
        page.path(path, stroke(fate, laid.radius));
    }
}

/// Calls differ by their shape first: a failure is a cross, an answer a full disc, what only should be an empty ring.
fn shape(fate: Fate, x: f64, y: f64, radius: f64) -> String {
    match fate {
        Fate::Failed => cross(x, y, 0.8 * radius),
        Fate::Request => format!(
            "M{} {}h{d}v{d}h-{d}z",
            at(x - 0.8 * radius),
            at(y - 0.8 * radius),
            d = at(1.6 * radius)
        ),
        Fate::Open => format!(
            "M{} {}l{r} {r}l-{r} {r}l-{r} -{r}z",
            at(x),
            at(y - radius),
            r = at(radius)
        ),
        Fate::Answered | Fate::Lost | Fate::Predicted => circle(x, y, 0.9 * radius),
    }
}

fn stroke(fate: Fate, radius: f64) -> Stroke {
    let thin = (0.25 * radius).clamp(0.8, 1.8);
    match fate {
        Fate::Failed => Stroke {
            ink: RED,
            width: (0.4 * radius).clamp(1.2, 3.2),
            ..Stroke::default()
        },
        Fate::Request => Stroke {
            fill: INK,
            ..Stroke::default()
        },
        Fate::Answered => Stroke {
            fill: BLUE,
            ..Stroke::default()
        },
        Fate::Open => Stroke {
            ink: INK,
            width: thin,
            ..Stroke::default()
        },
        Fate::Lost => Stroke {
            ink: GREY,
            width: thin,
            is_dashed: radius > 4.0,
            ..Stroke::default()
        },
        Fate::Predicted => Stroke {
            ink: BLUE,
            width: thin,
            ..Stroke::default()
        },
    }
}

/// A full bar.
fn full(chain: &Chain) -> Stroke {
    Stroke {
        fill: if chain.is_predicted { BLUE } else { GREY },
        ..Stroke::default()
    }
}

/// The outline of a bar.
const OUTLINE: Stroke = Stroke {
    ink: BLUE,
    width: 1.5,
    fill: "",
    is_dashed: true,
};

fn with_bars(page: &mut Page, chain: &Chain, columns: &Columns, most: f64) {
    let base = base(chain).min(52.0);
    let start = page.y;
    for row in &chain.rows {
        let needed = words(page, row, columns, base);
        let y = page.y + (LINE - BAR) / 2.0;
        let length = |calls: f64| (columns.units * (calls / most).min(1.0)).max(1.5);
        let [solid, outline] = row.bar;
        if solid > 0.0 {
            page.path(bar(columns.left, y, length(solid), BAR), full(chain));
        }
        if outline > 0.0 {
            // Taller: it can be seen where it ends inside the bar.
            page.path(bar(columns.left, y - 3.0, length(outline), BAR + 6.0), OUTLINE);
        }
        page.y += base.max(needed);
    }
    page.y -= base - LINE - 8.0;
    let axis = format!("M{} {}V{}", at(columns.left - 1.0), at(start), at(page.y));
    page.path(
        axis,
        Stroke {
            ink: PALE,
            width: 1.5,
            ..Stroke::default()
        },
    );
    page.y += 8.0;
}

fn bar(x: f64, y: f64, length: f64, height: f64) -> String {
    format!("M{} {}h{}v{}h-{}z", at(x), at(y), at(length), at(height), at(length))
}

/// What stands before a word of the key.
enum Sample {
    Mark(Fate),
    Bar(Stroke),
}

/// What the marks mean, of those that are there.
fn fates(chains: &[Chain]) -> Vec<(Sample, &'static str)> {
    let rows = chains.iter().flat_map(|chain| &chain.rows);
    let marks = rows.filter_map(|row| row.marks.as_ref()).flatten();
    let fates: std::collections::BTreeSet<Fate> = marks.map(|mark| mark.fate).collect();
    let word = |fate| match fate {
        Fate::Request => "the request",
        Fate::Failed => "a call that arrived and failed",
        Fate::Answered => "arrived and answered",
        Fate::Open => "arrived, no end yet",
        Fate::Lost => "sent, does not arrive",
        Fate::Predicted => "a call that is predicted",
    };
    fates.into_iter().map(|fate| (Sample::Mark(fate), word(fate))).collect()
}

fn bars(chains: &[Chain]) -> Vec<(Sample, &'static str)> {
    let Some(first) = chains.first() else { return Vec::new() };
    let bars = || chains.iter().flat_map(|chain| &chain.rows).map(|row| row.bar);
    let (has_solid, has_outline) = (bars().any(|bar| bar[0] > 0.0), bars().any(|bar| bar[1] > 0.0));
    let words = match (first.is_predicted, has_outline) {
        (true, true) => ["predicted, on average", "predicted, at most"],
        (true, false) => ["predicted", ""],
        (false, _) => ["received", "predicted"],
    };
    let mut key = Vec::new();
    if has_solid {
        key.push((Sample::Bar(full(first)), words[0]));
    }
    if has_outline {
        key.push((Sample::Bar(OUTLINE), words[1]));
    }
    key
}

fn draw_key(page: &mut Page, columns: &Columns, key: &[(Sample, &'static str)]) {
    let right = WIDTH - MARGIN;
    let mut x = columns.left;
    let mut line = page.y + 18.0;
    for (sample, word) in key {
        let width = 30.0 + SMALL.width(word);
        if x > columns.left && x + width > right {
            x = columns.left;
            line += 26.0;
        }
        // A word too long for what is beside the names stands under them.
        let start = x.min(right - width);
        let middle = line - 6.0;
        match sample {
            Sample::Mark(fate) => page.path(shape(*fate, start + 10.0, middle, 7.0), stroke(*fate, 7.0)),
            Sample::Bar(stroke) => page.path(bar(start, middle - 6.0, 20.0, 12.0), *stroke),
        }
        page.text(start + 28.0, line, Anchor::Start, SMALL, word);
        x = start + width + 24.0;
    }
    page.y = line + if key.is_empty() { 0.0 } else { 8.0 };
}
