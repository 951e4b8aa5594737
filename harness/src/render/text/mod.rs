//! Screens: 80 columns of plain ASCII.
//!
//! Every screen has the same order: the answer as a sentence with its number in front, the picture, the evidence, what
//! to type next. Colour repeats what the letters say and nothing else. Foreign text passes [`words::shown`] or
//! [`command::wrapped`].

#[cfg(test)]
mod arithmetic;
pub(super) mod command;
pub(super) mod comparison;
mod demo;
mod evidence;
pub(super) mod fan_out;
pub(super) mod hidden;
mod live;
mod next;
pub(super) mod number;
pub(super) mod picture;
pub(super) mod prediction;
mod proven;
mod proxies;
pub(super) mod run;
#[cfg(test)]
mod screens;
pub(super) mod sweep;
mod traces;
pub(super) mod words;

pub use comparison::comparison;
pub use demo::demo;
pub use live::{Started, StartedService, call, status, switched, up};
pub use prediction::prediction;
pub use run::run;
pub use sweep::sweep;

use crate::report::Verdict;
use anstyle::AnsiColor;
use words::{Screen, shown};

/// Whether a screen carries colours. The printer may still strip them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// The bare bytes.
    #[default]
    Plain,
    /// With ANSI colours around words that say the same.
    Coloured,
}

impl Style {
    fn paint(self, style: anstyle::Style, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("{style}{text}{style:#}"),
        }
    }

    fn bold(self, text: &str) -> String {
        self.paint(anstyle::Style::new().bold(), text)
    }

    fn warning(self, text: &str) -> String {
        self.paint(AnsiColor::Red.on_default().bold(), text)
    }

    pub(super) fn verdict(self, verdict: Verdict) -> String {
        let (color, words) = match verdict {
            Verdict::AsPredicted => (AnsiColor::Green, "AS PREDICTED"),
            Verdict::NotAsPredicted => (AnsiColor::Red, "NOT AS PREDICTED"),
            Verdict::Incomplete => (AnsiColor::Yellow, "INCOMPLETE"),
        };
        self.paint(color.on_default().bold(), words)
    }
}

/// The scenarios that can be named, each with the line that says what it teaches.
pub fn scenarios<N: AsRef<str>, A: AsRef<str>>(known: &[(N, A)], program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    screen.headline(
        &format!("{} can be run by name.", number::of(known.len() as u64, "scenario")),
        style,
    );
    screen.gap();
    let widest = known
        .iter()
        .map(|(name, _)| shown(name.as_ref()).len())
        .max()
        .unwrap_or(0)
        .clamp(9, 40);
    for (name, about) in known {
        let name = words::name(name.as_ref(), widest);
        screen.lines(words::wrapped(
            &format!("{name:<widest$}   "),
            widest + 3,
            &shown(about.as_ref()),
        ));
    }
    screen.gap();
    let example = known
        .first()
        .map_or_else(|| "run".to_owned(), |(name, _)| format!("run {}", name.as_ref()));
    screen.lines(command::wrapped(
        &format!("{:<width$}", "run it", width = words::LABEL),
        program,
        &example,
    ));
    screen.finish()
}

/// A failure for stderr: `error: ` and what the message says, each of its lines in its own.
pub fn error(message: &str, style: Style) -> String {
    stated("error: ", message, style)
}

/// A warning for stderr, laid out as [`error`].
pub fn warning(message: &str, style: Style) -> String {
    stated("warning: ", message, style)
}

/// The message of an error and of every cause below it, for [`error`].
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        let words = cause.to_string();
        // An error that already says its cause is not said twice.
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        below = cause.source();
    }
    text
}

fn stated(word: &str, message: &str, style: Style) -> String {
    let mut screen = Screen::default();
    let indent = word.len();
    for (place, line) in message.trim_end().lines().enumerate() {
        let first = if place == 0 {
            word.to_owned()
        } else {
            " ".repeat(indent)
        };
        let line = words::message(line);
        // A line that fits keeps its blanks: a caret below a line of TOML points at something.
        let lines = if indent + line.len() <= words::WIDTH {
            vec![format!("{first}{line}")]
        } else {
            words::wrapped(&first, indent, &line)
        };
        for (row, line) in lines.into_iter().enumerate() {
            match line.strip_prefix(word) {
                Some(rest) if place == 0 && row == 0 => screen.line(format!("{}{rest}", style.warning(word))),
                _ => screen.line(line),
            }
        }
    }
    screen.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_listed_with_what_they_teach() {
        let known = [
            ("per-hop", "every hop retries"),
            ("single-owner", "frontend alone retries"),
        ];
        assert_eq!(
            scenarios(&known, "harness", Style::Plain),
            "\
2 scenarios can be run by name.

per-hop        every hop retries
single-owner   frontend alone retries

run it        harness run per-hop
"
        );
    }

    #[test]
    fn errors_keep_their_lines_and_hide_nothing_hostile() {
        assert_eq!(
            error(
                "scenario.toml:3: attempts is 0\n  attempts = 0\n             ^\nit must be 1 to 100",
                Style::Plain
            ),
            "\
error: scenario.toml:3: attempts is 0
         attempts = 0
                    ^
       it must be 1 to 100
"
        );
        let text = error(
            &format!("no item '\u{1b}[31m\n::set-env name=x::{}'", "y".repeat(100)),
            Style::Plain,
        );
        for line in text.lines() {
            assert!(
                line.len() <= 80 && line.chars().all(|c| c == ' ' || c.is_ascii_graphic()),
                "{line}"
            );
            assert!(!line.trim_start().starts_with("::"), "{line}");
        }
    }

    #[test]
    fn a_long_refusal_is_wrapped_and_not_cut() {
        let list = "single-owner-checkout, ".repeat(20);
        let text = error(
            &format!("there is no scenario `p` (built in: {list}the last)"),
            Style::Plain,
        );
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.ends_with("the last)\n"), "{text}");
    }

    #[test]
    fn a_cause_is_named_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("the chain did not start")]
        struct Outer(#[source] std::io::Error);
        let outer = Outer(std::io::Error::other("port in use"));
        assert_eq!(chain(&outer), "the chain did not start: port in use");
    }

    #[test]
    fn colour_only_repeats() {
        let coloured = error("no", Style::Coloured);
        assert!(coloured.contains('\u{1b}'));
        assert_eq!(
            anstream::adapter::strip_str(&coloured).to_string(),
            error("no", Style::Plain)
        );
    }
}
