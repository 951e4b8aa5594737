//! The sheet that a figure stands on: its own white ground, a title, a caption, and text that is measured before it is
//! set. What is drawn between title and caption is the business of `chain` and `curves`.
//!
//! A figure is read at half its width too, so nothing is set smaller than [`SMALL`]. Fonts are those of the reader's
//! machine: widths are those of the widest usual ones (`DejaVu` Sans, Verdana), so that text in any other stays in its place.

use super::super::text::{
    command,
    words::{name, shown},
};
use std::fmt::Write as _;
use svg::{
    Document, Node,
    node::element::{Description, Element, Path, Rectangle, Text, Title},
};

/// Units across; any width when shown.
pub(super) const WIDTH: f64 = 960.0;
/// Units that stay free on each side.
pub(super) const MARGIN: f64 = 32.0;
/// Units between the margins.
pub(super) const INNER: f64 = WIDTH - 2.0 * MARGIN;

/// Ink of what matters.
pub(super) const INK: &str = "#1a1a1a";
/// Ink of what explains.
pub(super) const GREY: &str = "#595959";
/// Hairlines.
pub(super) const PALE: &str = "#c4c4c4";
/// Failures. With [`BLUE`] from the palette of Okabe and Ito, darkened: told apart by readers who see no red, and in grey.
pub(super) const RED: &str = "#c04a00";
/// Answers, and what was predicted.
pub(super) const BLUE: &str = "#0072b2";

/// The letters that a text is set in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Type {
    /// Units.
    pub(super) size: f64,
    pub(super) is_bold: bool,
    pub(super) is_code: bool,
    pub(super) ink: &'static str,
}

const fn plain(size: f64, ink: &'static str) -> Type {
    Type {
        size,
        is_bold: false,
        is_code: false,
        ink,
    }
}

const fn bold(size: f64) -> Type {
    Type {
        is_bold: true,
        ..plain(size, INK)
    }
}

/// The finding.
pub(super) const TITLE: Type = bold(24.0);
/// Over a part of the figure.
pub(super) const HEADING: Type = bold(20.0);
/// A count.
pub(super) const FIGURE: Type = bold(22.0);
/// A name.
pub(super) const LABEL: Type = plain(20.0, INK);
/// Everything else.
pub(super) const SMALL: Type = plain(18.0, GREY);
/// The same for what belongs to a blue line.
pub(super) const SMALL_BLUE: Type = plain(18.0, BLUE);
/// A command: eighty of its letters fill the page.
const CODE: Type = Type {
    is_code: true,
    ..plain(18.0, INK)
};
const _: () = assert!(80.0 * 0.61 * CODE.size <= INNER);

/// Lines of all commands, at most.
const COMMAND_LINES: usize = 40;

impl Type {
    /// Units that a text takes, at most.
    pub(super) fn width(self, text: &str) -> f64 {
        let letters: f64 = text.chars().map(|letter| self.advance(letter)).sum();
        letters * self.size * if self.is_bold { 1.12 } else { 1.0 }
    }

    fn advance(self, letter: char) -> f64 {
        if self.is_code {
            return 0.61;
        }
        match letter {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.4,
            'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '-' | '/' | '\\' => 0.43,
            'm' | 'w' | 'M' | 'W' | '@' | '%' => 1.0,
            '#' | '+' | '<' | '=' | '>' | '^' | '~' => 0.84,
            'A'..='Z' | '&' => 0.79,
            _ if letter.is_ascii() => 0.65,
            _ => 1.1,
        }
    }

    /// Lines of at most so many units; a word that is longer than a line is broken.
    pub(super) fn wrapped(self, text: &str, units: f64) -> Vec<String> {
        let mut lines = vec![String::new()];
        for word in text.split_whitespace() {
            let mut word = word;
            loop {
                let line = lines.last_mut().expect("there is a first line");
                let between = if line.is_empty() { "" } else { " " };
                if self.width(&format!("{line}{between}{word}")) <= units {
                    let _ = write!(line, "{between}{word}");
                    break;
                }
                if !line.is_empty() {
                    lines.push(String::new());
                    continue;
                }
                let fits = |at: &usize| self.width(&word[..*at]) <= units;
                let ends = word.char_indices().map(|(at, _)| at).skip(1);
                let at = ends.take_while(fits).last().unwrap_or(word.len());
                word[..at].clone_into(line);
                word = &word[at..];
                if word.is_empty() {
                    break;
                }
                lines.push(String::new());
            }
        }
        lines
    }

    /// A foreign name in at most so many units: what does not fit is cut out of its middle.
    pub(super) fn fitted(self, text: &str, units: f64) -> String {
        let mut letters = shown(text).len();
        loop {
            let cut = name(text, letters);
            if self.width(&cut) <= units || letters <= 3 {
                return cut;
            }
            letters -= 1;
        }
    }
}

/// Where a text stands to its point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    /// Behind it.
    Start,
    /// On both sides.
    Middle,
    /// Before it.
    End,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stroke {
    /// Colour of the line; none where empty.
    pub(super) ink: &'static str,
    /// Units.
    pub(super) width: f64,
    /// Colour inside; none where empty.
    pub(super) fill: &'static str,
    /// Whether the line is broken.
    pub(super) is_dashed: bool,
}

/// A figure as it grows, from the top.
pub(super) struct Page {
    /// Where the next thing begins, units from the top.
    pub(super) y: f64,
    content: Vec<Element>,
    title: String,
    description: String,
}

impl Page {
    /// A page with its title, the lines below it, and what a screen reader says of the figure.
    pub(super) fn new(title: &str, below: &str, description: String) -> Self {
        let mut page = Self {
            y: MARGIN,
            content: Vec::new(),
            title: title.to_owned(),
            description,
        };
        page.paragraph(TITLE, title);
        page.y += 4.0;
        page.paragraph(SMALL, below);
        page.y += 20.0;
        page
    }

    /// Lines over the whole width.
    pub(super) fn paragraph(&mut self, kind: Type, text: &str) {
        if text.is_empty() {
            return;
        }
        for line in kind.wrapped(text, INNER) {
            self.line(kind, &line);
        }
    }

    fn line(&mut self, kind: Type, text: &str) {
        self.text(MARGIN, self.y + kind.size, Anchor::Start, kind, text);
        self.y += kind.size * 1.3;
    }

    /// What the figure rests on, and the command that repeats it.
    pub(super) fn caption(&mut self, sentences: &str, repeats: &[&str]) {
        self.y += 16.0;
        let rule = format!("M{} {}h{}", at(MARGIN), at(self.y), at(INNER));
        self.path(
            rule,
            Stroke {
                ink: PALE,
                width: 1.0,
                ..Stroke::default()
            },
        );
        self.y += 10.0;
        self.paragraph(SMALL, sentences);
        self.y += 4.0;
        let lines = repeats
            .iter()
            .flat_map(|command| command::wrapped("", command::PROGRAM, command));
        let lines: Vec<String> = lines.collect();
        for line in lines.iter().take(COMMAND_LINES) {
            self.line(CODE, line);
        }
        if lines.len() > COMMAND_LINES {
            self.line(SMALL, "(the command goes on; --json has all of it)");
        }
    }

    /// One text; `y` is that of the line that letters stand on.
    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, kind: Type, text: &str) {
        let mut element = Text::new(text)
            .set("x", at(x))
            .set("y", at(y))
            .set("font-size", at(kind.size))
            .set("fill", kind.ink);
        match anchor {
            Anchor::Start => {}
            Anchor::Middle => element.assign("text-anchor", "middle"),
            Anchor::End => element.assign("text-anchor", "end"),
        }
        if kind.is_bold {
            element.assign("font-weight", "bold");
        }
        if kind.is_code {
            element.assign("font-family", MONOSPACE);
            element.assign("xml:space", "preserve");
        }
        self.content.push(element.into());
    }

    /// One path of many pieces.
    pub(super) fn path(&mut self, data: String, stroke: Stroke) {
        if data.is_empty() {
            return;
        }
        let or_none = |ink: &'static str| if ink.is_empty() { "none" } else { ink };
        let mut path = Path::new().set("d", data).set("fill", or_none(stroke.fill));
        if !stroke.ink.is_empty() {
            path.assign("stroke", stroke.ink);
            path.assign("stroke-width", at(stroke.width));
        }
        if stroke.is_dashed {
            path.assign("stroke-dasharray", "4 3");
        }
        self.content.push(path.into());
    }

    /// The figure as a file.
    pub(super) fn finish(self) -> String {
        let height = at(self.y + MARGIN / 2.0);
        let mut document = Document::new()
            .set("viewBox", format!("0 0 {WIDTH} {height}"))
            .set("width", WIDTH)
            .set("height", height)
            .set("role", "img")
            .set("font-family", SANS)
            .add(Title::new(self.title))
            .add(Description::new().add(svg::node::Text::new(self.description)))
            .add(
                Rectangle::new()
                    .set("width", WIDTH)
                    .set("height", height)
                    .set("fill", "#ffffff"),
            );
        for element in self.content {
            document.append(element);
        }
        format!("{document}\n")
    }
}

const SANS: &str = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, Liberation Sans, sans-serif";
const MONOSPACE: &str = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, Liberation Mono, monospace";

/// A coordinate as it is written: tenths of a unit.
pub(super) fn at(units: f64) -> f64 {
    (units * 10.0).round() / 10.0
}

/// A circle as a piece of a path.
pub(super) fn circle(x: f64, y: f64, radius: f64) -> String {
    let (left, radius) = (at(x - radius), at(radius));
    let across = at(2.0 * radius);
    format!(
        "M{left} {}a{radius} {radius} 0 1 0 {across} 0a{radius} {radius} 0 1 0 -{across} 0",
        at(y)
    )
}

/// A cross as a piece of a path.
pub(super) fn cross(x: f64, y: f64, radius: f64) -> String {
    let (left, top, across) = (at(x - radius), at(y - radius), at(2.0 * radius));
    format!("M{left} {top}l{across} {across}m0 -{across}l-{across} {across}")
}
