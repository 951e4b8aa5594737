//! Foreign text made fit to be shown: what a file, a flag or a peer wrote must not move a terminal's cursor, start a line of its
//! own or fill the screen. Pure.

use std::fmt::Write as _;

/// Most characters of one foreign text that are shown.
pub const MAX_SHOWN: usize = 200;
/// Most characters of a whole message that quotes foreign text.
const MAX_MESSAGE: usize = 2_000;

/// One foreign text, on one line, at most [`MAX_SHOWN`] characters of it: control characters, bidirectional controls and line
/// separators are written as `\u{1b}`.
pub fn sanitize(text: &str) -> String {
    escaped(text, MAX_SHOWN)
}

/// A whole message with foreign text somewhere in it; the same rule with room for the sentence around it.
pub fn sanitize_message(text: &str) -> String {
    escaped(text, MAX_MESSAGE)
}

/// Whether a character could do more than be read.
pub fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

fn escaped(text: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(limit));
    for (position, character) in text.chars().enumerate() {
        if position == limit {
            shown.push_str("...");
            break;
        }
        if is_control(character) {
            write!(shown, "\\u{{{:x}}}", u32::from(character)).expect("a String takes every text");
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_or_turns_a_line_gets_through() {
        let shown = sanitize("a\u{1b}[2J\r\n\u{7f}\u{9b}\u{202e}\u{2066}\u{2028}\u{2029}z");
        assert_eq!(
            shown,
            r"a\u{1b}[2J\u{d}\u{a}\u{7f}\u{9b}\u{202e}\u{2066}\u{2028}\u{2029}z"
        );
    }

    #[test]
    fn ordinary_text_stays_and_long_text_is_cut() {
        assert_eq!(sanitize("Grüße, 日本"), "Grüße, 日本");
        let shown = sanitize(&"é".repeat(10_000));
        assert_eq!(shown.chars().count(), MAX_SHOWN + 3);
    }
}
