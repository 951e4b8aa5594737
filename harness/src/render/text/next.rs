//! What to type next: commands under each other, each with a caption.

use super::{
    command,
    words::{Screen, WIDTH},
};

/// Commands behind the label `next`, with captions that stand under each other. `captions` has a caption for every command
/// in each of its lines, the longest line first: the first that fits is taken, and none where none does.
pub(super) fn offers(screen: &mut Screen, program: &str, commands: &[&str], captions: &[&[&str]]) {
    put(screen, "next    ", program, commands, captions);
}

/// The same without a label.
pub(super) fn listed(screen: &mut Screen, program: &str, commands: &[&str], captions: &[&[&str]]) {
    put(screen, "  ", program, commands, captions);
}

fn put(screen: &mut Screen, label: &str, program: &str, commands: &[&str], captions: &[&[&str]]) {
    let blank = " ".repeat(label.len());
    let offers: Vec<Vec<String>> = (0..)
        .zip(commands)
        .map(|(place, command)| command::wrapped(if place == 0 { label } else { &blank }, program, command))
        .collect();
    // A command of several lines has no place for a caption.
    let one_line = |lines: &&Vec<String>| lines.len() == 1;
    let column = offers
        .iter()
        .filter(one_line)
        .map(|lines| lines[0].len() + 3)
        .max()
        .unwrap_or(0);
    let captions = captions.iter().find(|captions| {
        let shown = offers.iter().zip(**captions).filter(|(lines, _)| lines.len() == 1);
        shown.map(|(_, caption)| column + caption.len()).all(|end| end <= WIDTH)
    });
    for (place, mut lines) in offers.into_iter().enumerate() {
        if let ([line], Some(captions)) = (lines.as_mut_slice(), captions) {
            *line = format!("{line:<column$}{}", captions.get(place).unwrap_or(&""));
        }
        screen.lines(lines);
    }
}
