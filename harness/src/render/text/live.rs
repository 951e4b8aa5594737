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

use super::{number, words};

/// How the settings of one switch are called.
fn settings(number: u64) -> String {
    format!("settings {}", number::whole(number))
}

/// Values that stand in one word for a flag, with a blank behind each comma: so they can be wrapped.
fn spaced(values: &str) -> String {
    words::message(values).replace(',', ", ")
}
