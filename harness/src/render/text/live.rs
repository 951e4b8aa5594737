//! Screens of a chain that stays up.

use super::{Style, words::Screen};
use crate::report::{Report, Status, Switched};

/// What `up` says once all services are up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The chain line in quotes.
    pub chain: String,
    /// The services, the top one first.
    pub services: Vec<StartedService>,
    /// What `--attach` takes from another terminal, where the ports are not the usual ones.
    pub attach: Option<String>,
    /// Where the traces go.
    pub otlp: Option<String>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedService {
    /// Its name in the chain line.
    pub name: String,
    /// Where it is called.
    pub address: String,
    /// Where it is asked.
    pub control: String,
}

/// A chain is up: where, and what to type next.
pub fn up(started: &Started, _program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    screen.headline(&format!("{} services are up.", started.services.len()), style);
    screen.finish()
}

/// One request to a chain that is up. `said` is what a failure said, in its own words.
pub fn call(report: &Report, said: Option<&str>, program: &str, style: Style) -> String {
    let _ = said;
    super::run(report, program, style)
}

/// What a switch changed, and what the next request will cause.
pub fn switched(switched: &Switched, _program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    screen.headline(&format!("Settings {} are in force.", switched.generation), style);
    screen.finish()
}

/// The state of a chain that is up.
pub fn status(status: &Status, _program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    screen.headline(&format!("{} services run.", status.services.len()), style);
    screen.finish()
}
