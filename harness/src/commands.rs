//! From a command to an exit code: each command is one function here.
//!
//! Exit codes: 0 measured and as predicted; 1 measured and not as predicted, or an expectation missed; 2 wrong usage or
//! configuration; 3 could not measure, or the evidence is incomplete; 130 left at once on the second Ctrl-C.

mod live;
mod measure;
mod plumbing;
mod prove;
mod signals;
mod sweep;

use crate::{
    cli::{self, Command, Destination, Link, Output},
    lab::{LabError, Token},
    output::{self, Target},
    render::{
        self,
        text::{self, Style},
    },
    report::Report,
    run::RunError,
    sanitize::sanitize,
    scenario::BUILT_IN,
    standing::{Standing, StandingError},
};
use signals::second_interrupt;
use std::{io::IsTerminal as _, process::ExitCode};
use tokio::signal::unix::{SignalKind, signal};

/// Wrong usage or configuration.
const USAGE: u8 = 2;
/// Nothing was measured, or not all of it.
const NOT_MEASURED: u8 = 3;
/// Left at once on a second signal: 128 + SIGINT.
const LEFT_AT_ONCE: i32 = 130;

/// Why a command ends early: a message for stderr and an exit code.
struct Failure {
    message: String,
    exit_code: u8,
}

impl Failure {
    fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            exit_code: USAGE,
        }
    }

    fn not_measured(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            exit_code: NOT_MEASURED,
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Refused(message) => Self::usage(message),
            RunError::Standing(error) => error.into(),
            error => Self::not_measured(text::chain(&error)),
        }
    }
}

impl From<StandingError> for Failure {
    fn from(error: StandingError) -> Self {
        let message = sanitize(&text::chain(&error));
        match error {
            StandingError::Name { .. } | StandingError::NoChain(_) | StandingError::Lab(LabError::Refused { .. }) => {
                Self::usage(message)
            }
            _ => Self::not_measured(message),
        }
    }
}

/// What a command has to say.
struct Answer {
    exit_code: u8,
    /// The text for stdout.
    shown: String,
    /// The same as JSON or as a figure, and where each goes.
    files: Vec<(Target, Vec<u8>)>,
    /// Expectations that were missed, in sentences.
    missed: Vec<String>,
}

impl Answer {
    /// Text alone, of a command that cannot fail any more.
    fn text(shown: String) -> Self {
        Self {
            exit_code: 0,
            shown,
            files: Vec::new(),
            missed: Vec::new(),
        }
    }
}

/// Obeys a command.
pub fn obey(command: Command) -> ExitCode {
    let (output, obeyed) = match command {
        Command::Service { name, .. } => return plumbing::service(&name),
        Command::Health { address } => {
            return on_runtime(plumbing::health(&address)).unwrap_or_else(|_| ExitCode::from(1));
        }
        Command::Token { file } => (plain(), plumbing::token(&file)),
        Command::Completions { script } => (plain(), deliver(Answer::text(script), &plain())),
        Command::Scenarios => (plain(), deliver(scenarios(&plain()), &plain())),
        Command::Predict(command) => answered(&command.output.clone(), measure::predicted(command)),
        Command::Demo(command) => (
            command.output.clone(),
            on_runtime(measure::demo(*command)).and_then(|code| code),
        ),
        Command::Run(command) => answered(&command.output.clone(), measure::measured(command)),
        Command::Compare(command) => answered(&command.output.clone(), measure::compared(command)),
        Command::Sweep(command) => answered(&command.output.clone(), sweep::swept(command)),
        Command::Up(command) => (
            command.output.clone(),
            on_runtime(live::up(command)).and_then(|code| code),
        ),
        Command::Call(command) => answered(&command.output.clone(), live::call(command)),
        Command::Switch(command) => answered(&command.output.clone(), live::switch(command)),
        Command::Status(command) => answered(&command.output.clone(), live::status(command)),
    };
    match obeyed {
        Ok(exit_code) => ExitCode::from(exit_code),
        Err(failure) => {
            complain(&failure.message, &output);
            ExitCode::from(failure.exit_code)
        }
    }
}

/// Works, then delivers on a thread of its own: a pipe that nobody reads must not make the program deaf to signals. Answers
/// how to write besides, for a failure.
fn answered(output: &Output, work: impl Future<Output = Result<Answer, Failure>>) -> (Output, Result<u8, Failure>) {
    for warning in &output.warnings {
        warn(warning, output);
    }
    let to = output.clone();
    let obeyed = on_runtime(async move {
        let answer = work.await?;
        delivered(answer, to).await
    });
    (output.clone(), obeyed.and_then(|obeyed| obeyed))
}

async fn delivered(answer: Answer, output: Output) -> Result<u8, Failure> {
    let delivered = tokio::task::spawn_blocking(move || deliver(answer, &output)).await;
    delivered.unwrap_or_else(|error| Err(Failure::not_measured(error.to_string())))
}

/// A runtime of one thread: the load shares two cores with the services, and every thread more is a switch more.
fn on_runtime<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::not_measured(format!("no runtime can be started: {error}")))?;
    let worked = runtime.block_on(async {
        // Handled, not obeyed: a write beyond a file size limit then fails like one on a full disk.
        let _too_large = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
        let Ok(second) = second_interrupt() else {
            return Some(work.await);
        };
        tokio::select! {
            worked = work => Some(worked),
            // What is dropped here kills the services it started, stopped ones too.
            () = second => None,
        }
    });
    Ok(worked.unwrap_or_else(|| std::process::exit(LEFT_AT_ONCE)))
}

/// How a command without flags of its own writes.
fn plain() -> Output {
    let program = cli::program_name(&std::env::args_os().next().unwrap_or_default());
    Output {
        json: None,
        svg: None,
        format: cli::Format::default(),
        color: cli::ColorChoice::Auto,
        program,
        warnings: Vec::new(),
    }
}

fn scenarios(output: &Output) -> Answer {
    let known: Vec<_> = BUILT_IN
        .iter()
        .map(|built_in| (built_in.name, built_in.about()))
        .collect();
    let shown = text::scenarios(&known, &output.program, style(output));
    Answer::text(shown)
}

fn control_token() -> Result<Option<String>, Failure> {
    chassis::config::control_token().map_err(|error| Failure::usage(sanitize(&error.to_string())))
}

/// The chain that a command is about.
async fn standing(link: &Link) -> Result<Standing, Failure> {
    let token = control_token()?;
    Ok(Standing::find(&link.attach, &Token::new(token.as_deref())).await?)
}

/// Where files go, known to be writable before anything starts.
struct Targets {
    json: Option<Target>,
    svg: Option<Target>,
}

impl Targets {
    fn of(output: &Output) -> Result<Self, Failure> {
        Ok(Self {
            json: target(output.json.as_ref())?,
            svg: target(output.svg.as_ref())?,
        })
    }

    /// What goes there.
    fn with(mut self, json: impl FnOnce() -> Vec<u8>, svg: impl FnOnce() -> String) -> Vec<(Target, Vec<u8>)> {
        let svg = self.svg.take().map(|target| (target, svg().into_bytes()));
        self.with_json(json).into_iter().chain(svg).collect()
    }

    /// What goes there, of a command that draws nothing.
    fn with_json(self, json: impl FnOnce() -> Vec<u8>) -> Vec<(Target, Vec<u8>)> {
        self.json.map(|target| (target, json())).into_iter().collect()
    }
}

fn target(destination: Option<&Destination>) -> Result<Option<Target>, Failure> {
    let target = match destination {
        None => return Ok(None),
        Some(Destination::Stdout) => Target::Stdout,
        Some(Destination::File(path)) => Target::File(path.clone()),
    };
    output::check_writable(&target).map_err(|error| Failure::usage(text::chain(&error)))?;
    Ok(Some(target))
}

/// Shows the result, then writes the files: a full disk must not swallow what was measured.
fn deliver(answer: Answer, output: &Output) -> Result<u8, Failure> {
    let is_taken = answer.files.iter().any(|(target, _)| *target == Target::Stdout);
    if is_taken {
        // With a file alone on stdout, an exit code of 1 still needs a reason.
        for missed in &answer.missed {
            warn(missed, output);
        }
    } else {
        let unwritten = |error| Failure::not_measured(format!("the result cannot be written to stdout: {error}"));
        render::print(&answer.shown, color(output)).map_err(unwritten)?;
    }
    for (target, bytes) in answer.files {
        output::write(&target, &bytes).map_err(|error| Failure::not_measured(text::chain(&error)))?;
    }
    Ok(answer.exit_code)
}

fn missed<'a>(runs: impl IntoIterator<Item = &'a Report>) -> Vec<String> {
    let expected = runs.into_iter().flat_map(|report| &report.expected);
    expected
        .filter(|expected| !expected.met)
        .map(|expected| expected.text.clone())
        .collect()
}

/// Appends a page to the summary of a step of GitHub's Actions, where this is one. On a thread of its own, as [`delivered`]. A
/// page less is no other result.
async fn summarise(page: impl FnOnce() -> String, output: &Output) {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(file) = variable("GITHUB_ACTIONS").and_then(|_| variable("GITHUB_STEP_SUMMARY")) else {
        return;
    };
    let page = page();
    let appended =
        tokio::task::spawn_blocking(move || output::append(std::path::Path::new(&file), page.as_bytes())).await;
    let appended = appended.map_err(|error| error.to_string());
    if let Err(error) = appended.and_then(|appended| appended.map_err(|error| text::chain(&error))) {
        warn(
            &format!("the step's summary, GITHUB_STEP_SUMMARY, has no page of this: {error}"),
            output,
        );
    }
}

fn warn(message: &str, output: &Output) {
    let _ = render::print_error(&text::warning(message, error_style(output)), color(output));
}

fn complain(message: &str, output: &Output) {
    let _ = render::print_error(&text::error(message, error_style(output)), color(output));
}

fn color(output: &Output) -> anstream::ColorChoice {
    match output.color {
        cli::ColorChoice::Auto => anstream::ColorChoice::Auto,
        cli::ColorChoice::Always => anstream::ColorChoice::Always,
        cli::ColorChoice::Never => anstream::ColorChoice::Never,
    }
}

/// The writer strips what the terminal cannot show; only a pipe that asks for it gets colour.
fn style(output: &Output) -> Style {
    styled(output, std::io::stdout().is_terminal())
}

fn error_style(output: &Output) -> Style {
    styled(output, std::io::stderr().is_terminal())
}

fn styled(output: &Output, is_terminal: bool) -> Style {
    match output.color {
        cli::ColorChoice::Always => Style::Coloured,
        cli::ColorChoice::Auto if is_terminal => Style::Coloured,
        _ => Style::Plain,
    }
}
