//! Screens of a chain that stays up: what is up, what a call caused, what a switch changed, what has arrived so far.

mod call;
#[cfg(test)]
mod screens;
mod status;
mod switched;
mod up;

pub use call::call;
pub use status::status;
pub use switched::switched;
pub use up::{Started, StartedService, up};

use super::{
    command, next, number,
    words::{self, Screen, WIDTH},
};

/// How the settings of one switch are called.
fn settings(number: u64) -> String {
    format!("settings {}", number::whole(number))
}

/// Values that stand in one word for a flag, with a blank behind each comma: so they can be wrapped.
fn spaced(values: &str) -> String {
    words::message(values).replace(',', ", ")
}

/// What to type next, for the same chain: with the flag that found it where that leaves each command on one line,
/// otherwise below a line that sets the variable which says the same. Returns whether there is that line.
fn offers(screen: &mut Screen, program: &str, asked: &str, commands: &[&str], captions: &[&[&str]]) -> bool {
    const LABEL: usize = 8;
    let Some(attach) = command::value(asked, "--attach") else {
        next::offers(screen, program, commands, captions);
        return false;
    };
    let flag = format!(" --attach {}", command::word(&attach));
    let longest = commands.iter().map(|command| command.len()).max().unwrap_or(0);
    if LABEL + program.len() + 1 + longest + flag.len() <= WIDTH {
        let commands: Vec<String> = commands.iter().map(|command| format!("{command}{flag}")).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        next::offers(screen, program, &commands, captions);
        return false;
    }
    screen.lines(command::export("RETRYSCOPE_ATTACH", &attach));
    next::offers(screen, program, commands, captions);
    true
}
