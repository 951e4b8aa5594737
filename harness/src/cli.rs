//! The command line: flags as typed ([`flags`]), then flags as meant ([`Command`]). Nothing is started and nothing is printed here.

mod completions;
mod flags;
mod help;
mod live;
mod over;
mod ports;
mod refuse;
mod resolve;
mod sweep;
#[cfg(test)]
mod tests;

use crate::{
    attach::Attach,
    expect::Expectation,
    predict::Questions,
    scenario::{Change, Overrides, Scenario},
    viewer::Viewer,
};
use chassis::fault::ServiceFault;
use std::{ffi::OsString, path::PathBuf};

/// What the program is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// The headline comparison.
    Demo(Box<Demo>),
    /// One scenario, measured.
    Run(Run),
    /// One scenario, by arithmetic alone.
    Predict(Predict),
    /// Several scenarios or saved reports side by side.
    Compare(Compare),
    /// One run for each value of what is varied.
    Sweep(Sweep),
    /// A chain that stays up.
    Up(Up),
    /// One request to a chain that is up.
    Call(Call),
    /// Other settings for a chain that is up.
    Switch(Switch),
    /// What a chain that is up has counted.
    Status(Status),
    /// The list of built-in scenarios.
    Scenarios,
    /// One of the services; what the harness starts as its children.
    Service {
        /// `frontend`, `checkout`, `pricing`, `inventory` or `sidecar`.
        name: String,
        /// Whether it ends when its stdin does.
        until_stdin_closes: bool,
    },
    /// Whether a service at this address is healthy.
    Health {
        /// `host:port` of a service port or a control port.
        address: String,
    },
    /// A file with a random secret for control ports, made unless it is there.
    Token {
        /// Its path.
        file: PathBuf,
    },
    /// A script that completes commands and flags in a shell.
    Completions {
        /// The script.
        script: String,
    },
}

/// Which running services a command is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// They.
    pub attach: Attach,
    /// Whether a flag named them, and not the environment or nobody: a line that repeats the command then needs the flag.
    pub is_flagged: bool,
}

/// What is measured or predicted.
#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    /// A scenario, with services of its own.
    Own {
        /// It.
        scenario: Box<Scenario>,
        /// What the user said beforehand.
        expectations: Vec<Expectation>,
    },
    /// Services that already run, and what is to be put to them.
    Attached {
        /// Which.
        link: Link,
        /// What is to be different.
        change: Box<Change>,
        /// What the user said beforehand, not read yet: the services' names are not known here.
        expect: Vec<String>,
    },
}

/// `harness`, `harness demo`.
#[derive(Debug, Clone, PartialEq)]
pub struct Demo {
    /// Every hop retries.
    pub per_hop: Scenario,
    /// One owner retries.
    pub single_owner: Scenario,
    /// Services that already run; without them the demo starts its own.
    pub link: Option<Link>,
    /// Whether it stays until it is told to leave, for a container that others enter.
    pub stays: bool,
    /// The outside collector, `http://host:port`.
    pub otlp: Option<String>,
    /// Where traces can be looked at.
    pub viewer: Option<Viewer>,
    /// Where results go.
    pub output: Output,
}

/// `harness run`.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What to run; its chain can be run.
    pub subject: Subject,
    /// Whether each suggested change is applied and run too; never with services that already run.
    pub proves: bool,
    /// Most arrivals that may be planned.
    pub max_calls: u64,
    /// The outside collector, `http://host:port`.
    pub otlp: Option<String>,
    /// Where traces can be looked at.
    pub viewer: Option<Viewer>,
    /// Where results go.
    pub output: Output,
}

/// `harness predict`.
#[derive(Debug, Clone, PartialEq)]
pub struct Predict {
    /// What to predict. It expects nothing.
    pub subject: Subject,
    /// What is asked besides the counts.
    pub questions: Questions,
    /// Where results go.
    pub output: Output,
}

/// `harness compare`.
#[derive(Debug, Clone, PartialEq)]
pub struct Compare {
    /// At least two.
    pub sides: Vec<Side>,
    /// Most arrivals that one side may plan.
    pub max_calls: u64,
    /// The outside collector, `http://host:port`.
    pub otlp: Option<String>,
    /// Where traces can be looked at.
    pub viewer: Option<Viewer>,
    /// Where results go.
    pub output: Output,
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Side {
    /// To be run; its chain can be run.
    Subject(Subject),
    /// A report that was saved with `--json`; the file exists.
    Saved(PathBuf),
}

/// `harness sweep`.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// What is varied, as typed: `p`, `attempts`, `retry.budget.ratio`.
    pub over: String,
    /// At least one, in the order of the values.
    pub steps: Vec<Step>,
    /// What was typed, to be typed again: without the program's name and without where results go.
    pub command: String,
    /// Most arrivals that one step may plan.
    pub max_calls: u64,
    /// The outside collector, `http://host:port`.
    pub otlp: Option<String>,
    /// Where traces can be looked at.
    pub viewer: Option<Viewer>,
    /// Where results go.
    pub output: Output,
    /// A variable that names running services, which a sweep leaves alone: it starts its own.
    pub passed_over: Option<&'static str>,
}

/// One value of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The value as it is set.
    pub value: String,
    /// The same as a number; `None` where it is none.
    pub number: Option<f64>,
    /// What is run for it; it can be run.
    pub scenario: Scenario,
    /// What the user said beforehand.
    pub expectations: Vec<Expectation>,
}

/// `harness up`.
#[derive(Debug, Clone, PartialEq)]
pub struct Up {
    /// What it starts as; its chain can be run, and stays up.
    pub scenario: Scenario,
    /// The ports of each service, the top one first; port 0 takes a free one.
    pub ports: Vec<Ports>,
    /// A file that says, once all services are up, how to attach to them. Gone when they are.
    pub ready_file: Option<PathBuf>,
    /// The outside collector, `http://host:port`.
    pub otlp: Option<String>,
    /// Where results go.
    pub output: Output,
}

/// The two ports of one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// Where it is called.
    pub service: u16,
    /// Where it is asked.
    pub control: u16,
}

/// `harness call`.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Which chain.
    pub link: Link,
    /// What the request asks for, its deadline, the client's attempts: nothing that a service is told.
    pub change: Change,
    /// The outside collector, `http://host:port`.
    pub otlp: Option<String>,
    /// Where traces can be looked at.
    pub viewer: Option<Viewer>,
    /// Where results go.
    pub output: Output,
}

/// `harness fail`, `heal`, `retry`.
#[derive(Debug, Clone, PartialEq)]
pub struct Switch {
    /// Which chain.
    pub link: Link,
    /// What is to be different.
    pub to: SwitchTo,
    /// Where results go.
    pub output: Output,
}

/// What a switch makes different.
#[derive(Debug, Clone, PartialEq)]
pub enum SwitchTo {
    /// Faults, each of a service or of the bottom one. Never empty.
    Fail(Vec<(Option<String>, ServiceFault)>),
    /// These services work again; all of them when none is named.
    Heal(Vec<String>),
    /// Who retries, and how. Never empty.
    Retry(Box<Overrides>),
}

/// `harness status`.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// Which chain.
    pub link: Link,
    /// Where results go.
    pub output: Output,
}

/// Where results go, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Where the result goes as JSON.
    pub json: Option<Destination>,
    /// Where a figure of it goes.
    pub svg: Option<Destination>,
    /// What is shown.
    pub format: Format,
    /// Whether text is coloured.
    pub color: ColorChoice,
    /// The program as it was started, for commands that can be typed again.
    pub program: String,
    /// What is meant otherwise than it may seem, in sentences, told before anything starts.
    pub warnings: Vec<String>,
}

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// A screen of 80 columns.
    #[default]
    Text,
    /// Markdown, for a page that others read.
    Markdown,
}

/// Where something goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
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

/// Reads a command line, the program's own name first. Reads the environment for OpenTelemetry's settings, the services to attach
/// to (`RETRYSCOPE_ATTACH`) and the viewer of traces (`RETRYSCOPE_TRACE_URL`).
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
