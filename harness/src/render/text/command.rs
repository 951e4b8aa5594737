//! Commands as they can be typed: wrapped at 80 columns, and still the same words for a POSIX shell.

use super::words::WIDTH;
use std::fmt::Write as _;

/// How the program is called on a page or in a figure, which others read elsewhere.
pub(in crate::render) const PROGRAM: &str = "harness";
/// Where the second and further lines of a command begin: far left, so that a chain line stays in one piece.
const INDENT: usize = 4;

/// A command line behind `prefix`: the shell reads the lines together as the same words. Words with anything but
/// printable ASCII are written `$'\u00e9'`, as bash, zsh and ksh read it.
pub(in crate::render) fn wrapped(prefix: &str, program: &str, command: &str) -> Vec<String> {
    let program = Word {
        typed: plain_or_quoted(program),
        value: program.to_owned(),
    };
    laid_out(prefix, std::iter::once(program).chain(words(command)))
}

/// [`wrapped`] without a program: what stands behind it.
pub(super) fn bare(prefix: &str, command: &str) -> Vec<String> {
    laid_out(prefix, words(command).into_iter())
}

/// A line that sets a variable of the environment for what is typed after it. A list that is too long for it is parted
/// behind its commas.
pub(super) fn export(name: &str, value: &str) -> Vec<String> {
    let whole = format!("export {name}={}", quoted(value));
    if whole.len() <= WIDTH {
        return vec![whole];
    }
    let mut lines = vec![format!("export {name}=\\")];
    let mut parts: Vec<String> = Vec::new();
    for part in value.split_inclusive(',') {
        match parts.last_mut() {
            Some(last) if quoted(&format!("{last}{part}")).len() <= WIDTH - 2 => last.push_str(part),
            _ => parts.push(part.to_owned()),
        }
    }
    // A blank in front of a piece would end the word.
    lines.extend(
        parts
            .iter()
            .flat_map(|part| pieces(part, WIDTH - 2))
            .map(|piece| piece + "\\"),
    );
    if let Some(last) = lines.last_mut() {
        last.pop();
    }
    lines
}

/// The value of a flag in a command line.
pub(super) fn value(command: &str, flag: &str) -> Option<String> {
    let mut words = words(command).into_iter().skip_while(|word| word.value != flag).skip(1);
    words.next().map(|word| word.value)
}

/// A command line without those of the flags whose value begins with `start`.
pub(super) fn without(command: &str, flags: &[&str], start: &str) -> String {
    let mut kept: Vec<String> = Vec::new();
    let mut words = words(command).into_iter().peekable();
    while let Some(word) = words.next() {
        let value = words.next_if(|next| flags.contains(&word.value.as_str()) && next.value.starts_with(start));
        kept.extend(value.is_none().then_some(word.typed));
    }
    kept.join(" ")
}

/// How many words a shell reads.
pub(super) fn count(command: &str) -> usize {
    words(command).len()
}

fn laid_out(prefix: &str, words: impl Iterator<Item = Word>) -> Vec<String> {
    let indent = " ".repeat(INDENT);
    let mut lines = Vec::new();
    let mut line = prefix.to_owned();
    let mut empty = true;
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        // A flag and its value stay together; two columns stay free for the backslash.
        let value = words
            .peek()
            .filter(|next| word.typed.starts_with('-') && !next.typed.starts_with('-'));
        let both = word.typed.len() + value.map_or(0, |value| 1 + value.typed.len());
        let needed = if both + indent.len() <= WIDTH - 2 {
            both
        } else {
            word.typed.len()
        };
        if !empty && line.len() + 1 + needed > WIDTH - 2 {
            lines.push(format!("{line} \\"));
            line.clone_from(&indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        empty = false;
        if line.len() + word.typed.len() <= WIDTH - 2 {
            line.push_str(&word.typed);
            continue;
        }
        for (place, piece) in pieces(&word.value, WIDTH - 2 - line.len()).into_iter().enumerate() {
            if place > 0 {
                // A blank here would end the word: the next piece starts in the first column.
                line.push('\\');
                lines.push(std::mem::take(&mut line));
            }
            line.push_str(&piece);
        }
    }
    lines.push(line);
    lines
}

struct Word {
    typed: String,
    value: String,
}

/// The words of a command line, each as it stands and as the shell reads it.
fn words(command: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut letters = command.chars().peekable();
    loop {
        while letters.next_if(char::is_ascii_whitespace).is_some() {}
        if letters.peek().is_none() {
            return words;
        }
        let (mut typed, mut value, mut quote) = (String::new(), Vec::new(), None);
        let mut put = [0; 4];
        while let Some(letter) = letters.next_if(|letter| quote.is_some() || !letter.is_ascii_whitespace()) {
            typed.push(letter);
            match (quote, letter) {
                (None, '\'') if typed.ends_with("$'") => {
                    // The dollar belongs to the quotes.
                    value.pop();
                    quote = Some('$');
                }
                (None, '\'' | '"') => quote = Some(letter),
                (Some('$'), '\'') => quote = None,
                (Some(open @ ('\'' | '"')), _) if open == letter => quote = None,
                (None | Some('"' | '$'), '\\') => {
                    let octal: String =
                        std::iter::from_fn(|| letters.next_if(|next| quote == Some('$') && next.is_digit(8)))
                            .take(3)
                            .collect();
                    typed.push_str(&octal);
                    if let Ok(byte) = u8::from_str_radix(&octal, 8) {
                        value.push(byte);
                    } else if let Some(next) = letters.next() {
                        typed.push(next);
                        value.extend_from_slice(next.encode_utf8(&mut put).as_bytes());
                    }
                }
                _ => value.extend_from_slice(letter.encode_utf8(&mut put).as_bytes()),
            }
        }
        let value = String::from_utf8_lossy(&value).into_owned();
        let harmless = typed.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ')
            && !typed.starts_with(':')
            && !typed.contains("##");
        words.push(Word {
            typed: if harmless { typed } else { quoted(&value) },
            value,
        });
    }
}

/// Foreign text as one word of a command line.
pub(super) fn word(text: &str) -> String {
    let plain = text
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter));
    if plain && !text.is_empty() && !text.starts_with(':') {
        text.to_owned()
    } else {
        quoted(text)
    }
}

fn plain_or_quoted(text: &str) -> String {
    let plain = !text.is_empty()
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "/._-+=@%,".contains(letter))
        && !text.contains("##");
    if plain { text.to_owned() } else { quoted(text) }
}

/// One word in quotes.
fn quoted(value: &str) -> String {
    let mut out = String::new();
    if value.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ') {
        // `##[` is a runner's command anywhere in a line; `#''#[` is the same word to a shell.
        return format!("'{}'", value.replace('\'', "'\\''").replace("##", "#''#"));
    }
    out.push_str("$'");
    let mut before = ' ';
    for letter in value.chars() {
        let _ = match letter {
            '\\' | '\'' => write!(out, "\\{letter}"),
            '#' if before == '#' => write!(out, "\\x23"),
            ' '..='~' => write!(out, "{letter}"),
            '\0'..='\x7f' => write!(out, "\\x{:02x}", u32::from(letter)),
            '\u{80}'..='\u{ffff}' => write!(out, "\\u{:04x}", u32::from(letter)),
            _ => write!(out, "\\U{:08x}", u32::from(letter)),
        };
        before = letter;
    }
    out.push('\'');
    out
}

/// A word too long for a line, as quoted pieces that a shell joins when nothing stands between them: the first of at
/// most `room` columns, the others of a whole line.
fn pieces(value: &str, room: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let mut room = room;
    for letter in value.chars() {
        let longer = format!("{piece}{letter}");
        if !piece.is_empty() && quoted(&longer).len() > room {
            // A chain line is parted between its words, where one of them ends in the second half of the line.
            let at = piece.rfind(' ').map_or(0, |blank| blank + 1);
            let rest = if at > piece.len() / 2 {
                piece.split_off(at)
            } else {
                String::new()
            };
            pieces.push(quoted(&piece));
            piece = rest;
            piece.push(letter);
            room = WIDTH - 2;
        } else {
            piece = longer;
        }
    }
    pieces.push(quoted(&piece));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_command_stands_as_it_is() {
        assert_eq!(
            wrapped("repeat it     ", "harness", "run 'web x3 > db down' --seed 27"),
            ["repeat it     harness run 'web x3 > db down' --seed 27"]
        );
    }

    #[test]
    fn a_long_command_wraps_between_words() {
        let command = "run per-hop --fault inventory=fail:first=2 --requests 1000 --concurrency 50 --seed 27";
        assert_eq!(
            wrapped("repeat it     ", "harness", command),
            [
                "repeat it     harness run per-hop --fault inventory=fail:first=2 \\",
                "    --requests 1000 --concurrency 50 --seed 27"
            ]
        );
    }

    #[test]
    fn a_flag_and_its_value_share_a_line() {
        // `-n` alone would fit the first line.
        let command = format!("run --item {} -n 1000", "y".repeat(42));
        assert_eq!(
            wrapped("repeat it     ", "harness", &command),
            [
                format!("repeat it     harness run --item {} \\", "y".repeat(42)),
                "    -n 1000".to_owned()
            ]
        );
    }

    #[test]
    fn a_chain_line_that_fits_a_line_is_never_cut() {
        let line = format!("'{} > {} > db down'", "a".repeat(30), "b".repeat(20));
        assert_eq!(
            wrapped("repeat it     ", "/opt/harness", &format!("run {line} -n 1000")),
            [
                "repeat it     /opt/harness run \\".to_owned(),
                format!("    {line} -n 1000")
            ]
        );
    }

    #[test]
    fn a_word_longer_than_a_line_stays_one_word() {
        let long = format!("{} > {} > {}", "a".repeat(40), "b".repeat(40), "c".repeat(40));
        let lines = wrapped("repeat it     ", "harness", &format!("run '{long}' --seed 27"));
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{lines:#?}");
        assert_eq!(read_by_a_shell(&lines), vec!["harness", "run", &long, "--seed", "27"]);
    }

    #[test]
    fn hostile_words_are_harmless_and_the_same() {
        let item = "\u{1b}[2J ::set-env ##[x] it's\n::set-env \u{202e} \u{1f600} \\ \"";
        let mut command = String::from("run --item '");
        command.push_str(&item.replace('\'', "'\\''"));
        command.push_str("' ::stop-commands::x");
        let lines = wrapped("repeat it     ", "/opt/my tools/harness", &command);
        for line in &lines {
            assert!(
                line.len() <= WIDTH && line.chars().all(|c| c == ' ' || c.is_ascii_graphic()),
                "{line}"
            );
            assert!(!line.trim_start().starts_with("::") && !line.contains("##["), "{line}");
        }
        assert_eq!(
            read_by_a_shell(&lines),
            vec!["/opt/my tools/harness", "run", "--item", item, "::stop-commands::x"]
        );
    }

    #[test]
    fn what_stands_in_dollar_quotes_is_read_as_a_shell_reads_it() {
        for item in ["Gr\u{fc}\u{df}e\tdu", "tab\there it's \\ $'x'", "\u{202e}\u{7}1"] {
            let command = format!("run --item {}", crate::scenario::shell_quoted(item));
            assert!(command.contains("$'"), "{command}");
            let long = format!("{command} --item {}", crate::scenario::shell_quoted(&item.repeat(20)));
            assert_eq!(
                read_by_a_shell(&wrapped("repeat it     ", "harness", &long)),
                ["harness", "run", "--item", item, "--item", &item.repeat(20)]
            );
            assert_eq!(value(&command, "--item").as_deref(), Some(item));
        }
    }

    #[test]
    fn an_export_is_parted_behind_commas_and_the_same_word() {
        assert_eq!(export("A", "db=127.0.0.1:1"), ["export A='db=127.0.0.1:1'"]);
        let value =
            "frontend=127.0.0.1:41235,checkout=127.0.0.1:41237,pricing=127.0.0.1:41239,inventory=127.0.0.1:41241";
        let lines = export("RETRYSCOPE_ATTACH", value);
        assert_eq!(
            lines,
            [
                "export RETRYSCOPE_ATTACH=\\",
                "'frontend=127.0.0.1:41235,checkout=127.0.0.1:41237,pricing=127.0.0.1:41239,'\\",
                "'inventory=127.0.0.1:41241'"
            ]
        );
        let evil = format!("{},it's\u{1b}=::x,{}", "y".repeat(200), "##[z]".repeat(40));
        for value in [value, &evil] {
            let lines = export("RETRYSCOPE_ATTACH", value);
            for line in &lines {
                assert!(
                    line.len() <= WIDTH && !line.starts_with(':') && !line.contains("##["),
                    "{line}"
                );
            }
            let text = format!("{}\nprintf '%s' \"$RETRYSCOPE_ATTACH\"", lines.join("\n"));
            let out = std::process::Command::new("bash").args(["-c", &text]).output().unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), value);
        }
    }

    #[test]
    fn a_long_chain_line_is_parted_between_its_words() {
        let line = "frontend x2 > checkout x2 > ".repeat(5) + "inventory down";
        let lines = wrapped("repeat it     ", "harness", &format!("run '{line}'"));
        assert_eq!(
            lines[1],
            "    'frontend x2 > checkout x2 > frontend x2 > checkout x2 > frontend x2 > '\\"
        );
        assert_eq!(read_by_a_shell(&lines), vec!["harness", "run", &line]);
    }

    #[test]
    fn a_flag_is_taken_away_with_its_value_and_others_stay() {
        let command = "run 'a x3 > b down' --undeclared a=4 --undeclared ab=2 --item '--undeclared a=1'";
        assert_eq!(
            without(command, &["--undeclared"], "a="),
            "run 'a x3 > b down' --undeclared ab=2 --item '--undeclared a=1'"
        );
    }

    #[test]
    fn a_flag_is_found_with_its_value() {
        let found = |command: &str| value(command, "--attach");
        assert_eq!(found("status --attach 'a=1:1,b=1:2'").as_deref(), Some("a=1:1,b=1:2"));
        assert_eq!(found("run 'a > --attach x'"), None);
    }

    /// What bash makes of the lines, without their label.
    fn read_by_a_shell(lines: &[String]) -> Vec<String> {
        let text = lines.join("\n");
        let text = text.strip_prefix("repeat it     ").unwrap();
        let out = std::process::Command::new("bash")
            .env("LC_ALL", "C.UTF-8")
            .args(["-c", &format!("printf '%s\\0' {text}")])
            .output()
            .unwrap();
        assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }
}
