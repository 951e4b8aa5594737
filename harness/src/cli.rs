//! The command line: flags as typed ([`flags`]), then flags as meant ([`Command`]). Nothing is started and nothing is printed here.

mod flags;
mod help;
mod refuse;
mod resolve;
#[cfg(test)]
mod tests;

use crate::{expect::Expectation, scenario::Scenario};
use std::{ffi::OsString, path::PathBuf};

/// What the program is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// The headline comparison.
    Demo(Demo),
    /// One scenario, measured.
    Run(Run),
    /// One scenario, by arithmetic alone.
    Predict(Predict),
    /// Several scenarios or saved reports side by side.
    Compare(Compare),
    /// The list of built-in scenarios.
    Scenarios,
    /// One of the services; what the harness starts as its children.
    Service {
        /// `frontend`, `checkout`, `pricing` or `inventory`.
        name: String,
        /// Whether it ends when its stdin does.
        until_stdin_closes: bool,
    },
    /// Whether a service at this address is healthy.
    Health {
        /// `host:port` of a service port or a control port.
        address: String,
    },
}

/// `harness`, `harness demo`.
#[derive(Debug, Clone, PartialEq)]
pub struct Demo {
    /// Every hop retries.
    pub per_hop: Scenario,
    /// One owner retries.
    pub single_owner: Scenario,
    /// The outside collector, `http://host:port`.
    pub otlp: Option<String>,
    /// Where results go.
    pub output: Output,
}

/// `harness run`.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What to run; its chain can be run.
    pub scenario: Scenario,
    /// What the user said beforehand.
    pub expectations: Vec<Expectation>,
    /// Most arrivals that may be planned.
    pub max_calls: u64,
    /// The outside collector, `http://host:port`.
    pub otlp: Option<String>,
    /// Where results go.
    pub output: Output,
}

/// `harness predict`.
#[derive(Debug, Clone, PartialEq)]
pub struct Predict {
    /// What to predict; up to 13 services and proxies.
    pub scenario: Scenario,
    /// Where results go.
    pub output: Output,
}

/// `harness compare`.
#[derive(Debug, Clone, PartialEq)]
pub struct Compare {
    /// At least two.
    pub sides: Vec<Side>,
    /// What the user said beforehand, of every scenario side.
    pub expectations: Vec<Expectation>,
    /// Most arrivals that one side may plan.
    pub max_calls: u64,
    /// The outside collector, `http://host:port`.
    pub otlp: Option<String>,
    /// Where results go.
    pub output: Output,
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Side {
    /// To be run; its chain can be run.
    Scenario(Box<Scenario>),
    /// A report that was saved with `--json`; the file exists.
    Saved(PathBuf),
}

/// Where results go, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Where the report goes as JSON.
    pub json: Option<JsonTarget>,
    /// Whether text is coloured.
    pub color: ColorChoice,
    /// The program as it was started, for commands that can be typed again.
    pub program: String,
}

/// Where the report goes as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonTarget {
    /// Alone on stdout.
    Stdout,
    /// To this file.
    File(PathBuf),
}

/// Whether text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Also into files and pipes.
    Always,
    /// Not at all.
    Never,
}

/// Why there is no command to obey: a refusal, or help that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CliError {
    /// What to show: a refusal (`error: …`) on stderr, or with exit code 0 help on stdout.
    pub text: String,
    /// 2 for a refusal, 0 for help and version.
    pub exit_code: u8,
}

impl CliError {
    /// A refusal; `message` is fit for a terminal.
    pub fn refused(message: impl std::fmt::Display) -> Self {
        Self {
            text: format!("error: {message}"),
            exit_code: 2,
        }
    }
}

/// Reads a command line, the program's own name first. Reads the environment for OpenTelemetry's settings alone.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, CliError> {
    parse_in(arguments, &|name| std::env::var(name).ok())
}

/// [`parse`] in a given environment.
fn parse_in(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Command, CliError> {
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    if arguments.is_empty() {
        arguments.push(OsString::from(NAME));
    }
    let program = program_name(&arguments[0]);
    let typed = flags::Typed::read(&arguments, &program)?;
    resolve::Resolver { program, environment }.command(typed)
}

/// The program's name where nobody said another.
const NAME: &str = "harness";

/// The program as it can be typed again: the path it was started by, or its plain name.
pub fn program_name(first_argument: &std::ffi::OsStr) -> String {
    let typed = first_argument.to_string_lossy();
    if typed.is_empty() {
        NAME.to_owned()
    } else {
        crate::scenario::shell_quoted(&typed)
    }
}
