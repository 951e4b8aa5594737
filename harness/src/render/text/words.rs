//! Words: foreign text made harmless, sentences wrapped, labels in their column.

use super::Style;
use crate::{
    report::Scope,
    sanitize::{sanitize, sanitize_message},
};
use std::fmt::Write as _;

/// Columns of a screen.
pub(super) const WIDTH: usize = 80;
/// Where the text beside a label starts.
pub(super) const LABEL: usize = 14;
/// The blocks of what to change, each with its title.
pub(in crate::render) const SCOPES: [(&str, Scope); 2] =
    [("One edit", Scope::OneEdit), ("Several edits", Scope::SeveralEdits)];
/// Longest address of a trace: that of a template with an id in it, with room to spare.
const MAX_ADDRESS: usize = 4_096;

/// Foreign text, fit for any line of a screen: printable ASCII, and nothing a CI runner takes for a command, wherever a
/// line may break.
pub(in crate::render) fn shown(text: &str) -> String {
    harmless(&sanitize(text))
}

/// A whole message with foreign text in it, by the same rules, and with room for it.
pub(in crate::render) fn message(text: &str) -> String {
    harmless(&sanitize_message(text))
}

fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        let command = match letter {
            // `::set-env` counts at the start of a line, blanks before it or not; `##[group]` anywhere.
            ':' => matches!(before, ' ' | ':') && rest.peek() == Some(&':'),
            '#' => before == '#',
            _ => false,
        };
        if command || !(letter.is_ascii_graphic() || letter == ' ') {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(letter));
        } else {
            out.push(letter);
        }
        before = letter;
    }
    out
}

/// An address to be followed, whole however long it is: a part of one leads nowhere. `None` for what is no address.
pub(super) fn address(text: &str) -> Option<&str> {
    let is_one =
        text.starts_with("http") && text.len() <= MAX_ADDRESS && text.bytes().all(|byte| byte.is_ascii_graphic());
    (is_one && harmless(text) == text).then_some(text)
}

/// A foreign name in at most `width` columns: what does not fit is cut out of its middle.
pub(in crate::render) fn name(text: &str, width: usize) -> String {
    let text = shown(text);
    if text.len() <= width {
        return text;
    }
    let kept = width.saturating_sub(3);
    let tail = kept / 2;
    format!("{}...{}", &text[..kept - tail], &text[text.len() - tail..])
}

/// Lines of at most [`WIDTH`] columns: the first begins with `first`, the others with as many blanks as `indent`. A
/// word longer than a line is broken.
pub(super) fn wrapped(first: &str, indent: usize, text: &str) -> Vec<String> {
    wrapped_at(WIDTH, first, indent, text)
}

/// [`wrapped`] for a column of `width`.
pub(super) fn wrapped_at(width: usize, first: &str, indent: usize, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        let mut word = word;
        if !empty && line.len() + 1 + word.len() > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            empty = true;
        }
        while line.len() + usize::from(!empty) + word.len() > width {
            let (head, tail) = word.split_at(breakable(word, width - line.len()));
            line.push_str(head);
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            word = tail;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    if !empty || lines.is_empty() {
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// Where a word too long for its line may be broken: not where the rest would begin like a runner's command.
fn breakable(word: &str, at_most: usize) -> usize {
    let mut at = at_most.min(word.len());
    while at > 1 && (!word.is_char_boundary(at) || word[at..].starts_with([':', '#'])) {
        at -= 1;
    }
    at
}

/// A label in its column, and its sentence beside it. Labels of figures and commands are in lower case (`requests`,
/// `repeat it`), those of what we say about them begin with a capital (`Why`, `Look for`).
pub(super) fn labelled(label: &str, text: &str) -> Vec<String> {
    wrapped(&format!("{label:<LABEL$}"), LABEL, text)
}

/// Where a fault in a caller's own way out sits: `in pricing, inside its retry loop: fail`. `fault` is `inside:fail`.
pub(super) fn client_fault(caller: &str, fault: &str) -> String {
    let (place, fault) = fault.split_once(':').unwrap_or(("inside", fault));
    let place = if place == "outside" { "outside" } else { "inside" };
    format!("in {}, {place} its retry loop: {}", shown(caller), shown(fault))
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn listed(words: &[String]) -> String {
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => words.concat(),
    }
}

/// Lines of a screen, collected.
#[derive(Debug, Default)]
pub(super) struct Screen(Vec<String>);

impl Screen {
    /// One line; blanks at its end are dropped.
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        self.0.push(line.as_ref().trim_end().to_owned());
    }

    /// Several lines.
    pub(super) fn lines(&mut self, lines: impl IntoIterator<Item = impl AsRef<str>>) {
        for line in lines {
            self.line(line);
        }
    }

    /// A blank line, unless there is one or nothing is above.
    pub(super) fn gap(&mut self) {
        if self.0.last().is_some_and(|line| !line.is_empty()) {
            self.0.push(String::new());
        }
    }

    /// The headline: wrapped, bold where colours are on.
    pub(super) fn headline(&mut self, text: &str, style: Style) {
        self.lines(wrapped("", 0, text).into_iter().map(|line| style.bold(&line)));
    }

    /// Everything, each line ended.
    pub(super) fn finish(mut self) -> String {
        while self.0.last().is_some_and(String::is_empty) {
            self.0.pop();
        }
        self.0.push(String::new());
        self.0.join("\n")
    }
}

/// A sentence from foreign words, with a full stop at its end. Its first letter stays: it may be that of a name.
pub(in crate::render) fn sentence(text: &str) -> String {
    let text = message(text.trim());
    if text.is_empty() || text.ends_with(['.', '!', '?']) {
        text
    } else {
        text + "."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_ascii_and_no_command() {
        assert_eq!(shown("inventory"), "inventory");
        assert_eq!(shown("[::1]:50051"), "[::1]:50051");
        assert_eq!(shown("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(shown("::set-env x"), "\\u{3a}:set-env x");
        assert_eq!(shown("a ::set-env"), "a \\u{3a}:set-env");
        assert_eq!(shown("##[group]"), "#\\u{23}[group]");
        assert_eq!(shown("caf\u{e9}"), "caf\\u{e9}");
    }

    #[test]
    fn an_address_is_whole_or_none() {
        let long = format!("http://viewer/{}", "x".repeat(300));
        assert_eq!(address(&long), Some(long.as_str()));
        for text in [
            "::set-env",
            "http://a b",
            "http://##[group]",
            "http://\u{1b}",
            &"http:".repeat(1000),
        ] {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(name("inventory", 9), "inventory");
        assert_eq!(name("inventory", 8), "inv...ry");
    }

    #[test]
    fn lines_wrap_at_eighty_columns_and_long_words_break() {
        let lines = wrapped("Why           ", LABEL, &format!("one {} two", "x".repeat(150)));
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{lines:#?}");
        assert_eq!(lines.concat().replace(' ', ""), format!("Whyone{}two", "x".repeat(150)));
        assert!(lines[1..].iter().all(|line| line.starts_with("              ")));
    }

    #[test]
    fn a_broken_word_never_continues_as_a_command() {
        let lines = wrapped("", 0, &format!("{}::set-env", "x".repeat(80)));
        assert!(
            lines.iter().all(|line| !line.trim_start().starts_with("::")),
            "{lines:#?}"
        );
    }

    #[test]
    fn sentences_end() {
        assert_eq!(sentence("pricing sent 27"), "pricing sent 27.");
        assert_eq!(sentence("Three came."), "Three came.");
    }
}
