//! From a command to an exit code: each command is one function here.
//!
//! Exit codes: 0 measured and as predicted; 1 measured and not as predicted, or an expectation missed; 2 wrong usage or
//! configuration; 3 could not measure, or the evidence is incomplete; 130 left at once on the second Ctrl-C.

use crate::{
    cli::{self, Command, Compare, Demo, JsonTarget, Output, Predict, Run, Side},
    expect::Expectation,
    fleet::this_program,
    forward::Forward,
    output::{self, Target},
    plan,
    predict::predict,
    render::{
        self, json,
        progress::Progress,
        text::{self, Style},
    },
    report::{COMPARISON_SCHEMA, Comparison, Report},
    run::{self, Hooks, Options, Ran, RunError},
    sanitize::sanitize,
    scenario::{BUILT_IN, Role, Scenario},
};
use std::{
    io::{IsTerminal as _, Read as _},
    path::{Path, PathBuf},
    process::ExitCode,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

/// Wrong usage or configuration.
const USAGE: u8 = 2;
/// Nothing was measured, or not all of it.
const NOT_MEASURED: u8 = 3;
/// Left at once on a second signal: 128 + SIGINT.
const LEFT_AT_ONCE: i32 = 130;
/// Variables whose flags are refused by name; what they ask for is not ignored either.
const NOT_BUILT: [&str; 2] = ["RETRYSCOPE_ATTACH", "RETRYSCOPE_TRACE_URL"];
/// Largest report that is read back, bytes.
const MAX_REPORT: u64 = 256 * 1024 * 1024;

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
        let message = text::chain(&error);
        if matches!(error, RunError::Refused(_)) {
            Self::usage(message)
        } else {
            Self::not_measured(message)
        }
    }
}

/// What a command has to say.
struct Answer {
    exit_code: u8,
    /// The text for stdout.
    shown: String,
    /// The same as JSON, and where it goes.
    json: Option<(Target, Vec<u8>)>,
    /// Expectations that were missed, in sentences.
    missed: Vec<String>,
}

/// Obeys a command.
pub fn obey(command: Command) -> ExitCode {
    let (output, obeyed) = match command {
        Command::Service { name, .. } => return service(&name),
        Command::Health { address } => return on_runtime(health(&address)).unwrap_or_else(|_| ExitCode::from(1)),
        Command::Scenarios => {
            let output = plain();
            let answered = deliver(scenarios(&output), &output);
            (output, answered)
        }
        Command::Predict(command) => {
            let output = command.output.clone();
            let answered = predicted(&command).and_then(|answer| deliver(answer, &output));
            (output, answered)
        }
        Command::Demo(command) => (command.output.clone(), answered(&command.output.clone(), demo(command))),
        Command::Run(command) => (
            command.output.clone(),
            answered(&command.output.clone(), measured(command)),
        ),
        Command::Compare(command) => (
            command.output.clone(),
            answered(&command.output.clone(), compared(command)),
        ),
    };
    match obeyed {
        Ok(exit_code) => ExitCode::from(exit_code),
        Err(failure) => {
            complain(&failure.message, &output);
            ExitCode::from(failure.exit_code)
        }
    }
}

/// Works, then delivers on a thread of its own: a pipe that nobody reads must not make the program deaf to signals.
fn answered(output: &Output, work: impl Future<Output = Result<Answer, Failure>>) -> Result<u8, Failure> {
    let output = output.clone();
    on_runtime(async move {
        let answer = work.await?;
        let delivered = tokio::task::spawn_blocking(move || deliver(answer, &output)).await;
        delivered.unwrap_or_else(|error| Err(Failure::not_measured(error.to_string())))
    })?
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

fn service(name: &str) -> ExitCode {
    match Role::ALL.into_iter().find(|role| role.name() == name) {
        Some(Role::Frontend) => frontend::main(),
        Some(Role::Checkout) => checkout::main(),
        Some(Role::Pricing) => pricing::main(),
        Some(Role::Inventory) => inventory::main(),
        None => ExitCode::from(USAGE),
    }
}

/// How a command without flags of its own writes.
fn plain() -> Output {
    let program = cli::program_name(&std::env::args_os().next().unwrap_or_default());
    Output {
        json: None,
        color: cli::ColorChoice::Auto,
        program,
    }
}

fn scenarios(output: &Output) -> Answer {
    let known: Vec<_> = BUILT_IN
        .iter()
        .map(|built_in| (built_in.name, built_in.about()))
        .collect();
    let shown = text::scenarios(&known, &output.program, style(output));
    Answer {
        exit_code: 0,
        shown,
        json: None,
        missed: Vec::new(),
    }
}

/// 0 when the service serves, 1 when it does not: what a container's health check asks.
async fn health(address: &str) -> ExitCode {
    use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
    const ANSWER: std::time::Duration = std::time::Duration::from_secs(2);
    let asked = async {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| text::chain(&error))?;
        let mut client = HealthClient::new(endpoint.connect().await.map_err(|error| text::chain(&error))?);
        let answer = client
            .check(HealthCheckRequest::default())
            .await
            .map_err(|status| status.to_string())?;
        Ok::<_, String>(answer.into_inner().status())
    };
    let said = match tokio::time::timeout(ANSWER, asked).await {
        Ok(Ok(ServingStatus::Serving)) => return ExitCode::SUCCESS,
        Ok(Ok(status)) => status.as_str_name().to_owned(),
        Ok(Err(error)) => error,
        Err(_) => format!("no answer within {} s", ANSWER.as_secs()),
    };
    let message = format!("{} is not healthy: {}", sanitize(address), sanitize(&said));
    let _ = render::print_error(&text::error(&message, Style::Plain), anstream::ColorChoice::Auto);
    ExitCode::from(1)
}

fn predicted(command: &Predict) -> Result<Answer, Failure> {
    let target = target(&command.output)?;
    plan::check(&command.scenario).map_err(Failure::usage)?;
    let prediction = predict(&command.scenario);
    let shown = text::prediction(&prediction, &command.output.program, style(&command.output));
    Ok(Answer {
        exit_code: 0,
        shown,
        json: target.map(|target| (target, json::prediction(&prediction))),
        missed: Vec::new(),
    })
}

async fn measured(command: Run) -> Result<Answer, Failure> {
    let target = target(&command.output)?;
    let mut runner = Runner::new(command.max_calls, command.otlp.as_deref(), &command.output)?;
    let report = runner.run(&command.scenario, command.expectations).await?;
    let shown = text::run(&report, &command.output.program, style(&command.output));
    Ok(Answer {
        exit_code: report.exit_code(),
        shown,
        json: target.map(|target| (target, json::report(&report))),
        missed: missed(std::slice::from_ref(&report)),
    })
}

async fn demo(command: Demo) -> Result<Answer, Failure> {
    let target = target(&command.output)?;
    let mut runner = Runner::new(
        crate::scenario::DEFAULT_MAX_CALLS,
        command.otlp.as_deref(),
        &command.output,
    )?;
    let mut runs = Vec::new();
    for scenario in [&command.per_hop, &command.single_owner] {
        runs.push(runner.run(scenario, Vec::new()).await?);
        if runner.is_interrupted() {
            break;
        }
    }
    let is_whole = runs.len() == 2;
    Ok(side_by_side(
        runs,
        is_whole.then_some(text::demo as Screen),
        target,
        &runner,
    ))
}

async fn compared(command: Compare) -> Result<Answer, Failure> {
    let target = target(&command.output)?;
    // Files first: a report that cannot be read is known before anything runs.
    let mut saved = Vec::new();
    for side in &command.sides {
        saved.push(match side {
            Side::Saved(path) => Some(read_report(path)?),
            Side::Scenario(_) => None,
        });
    }
    let mut runner = Runner::new(command.max_calls, command.otlp.as_deref(), &command.output)?;
    let mut runs = Vec::new();
    for (side, saved) in command.sides.iter().zip(saved) {
        match (side, saved) {
            (_, Some(report)) => runs.push(report),
            (Side::Scenario(scenario), None) if !runner.is_interrupted() => {
                runs.push(runner.run(scenario, command.expectations.clone()).await?);
            }
            _ => {}
        }
    }
    let is_comparison = runs.len() > 1;
    Ok(side_by_side(
        runs,
        is_comparison.then_some(text::comparison as Screen),
        target,
        &runner,
    ))
}

/// A screen of several runs.
type Screen = fn(&Comparison, &str, Style) -> String;

/// Several runs on one screen; one after another where a comparison was cut short and none fits.
fn side_by_side(runs: Vec<Report>, screen: Option<Screen>, target: Option<Target>, runner: &Runner<'_>) -> Answer {
    let output = runner.output;
    let schema = COMPARISON_SCHEMA.to_owned();
    let comparison = Comparison { schema, runs };
    let shown = match screen {
        Some(screen) => screen(&comparison, &output.program, style(output)),
        None => each(&comparison.runs, output),
    };
    Answer {
        exit_code: runner.exit_code(comparison.exit_code()),
        shown,
        json: target.map(|target| (target, json::comparison(&comparison))),
        missed: missed(&comparison.runs),
    }
}

/// The runs one after another, for a comparison that was cut short.
fn each(runs: &[Report], output: &Output) -> String {
    let shown: Vec<_> = runs
        .iter()
        .map(|report| text::run(report, &output.program, style(output)))
        .collect();
    shown.join("\n")
}

fn read_report(path: &Path) -> Result<Report, Failure> {
    let named = |what: String| Failure::usage(format!("{}: {what}", sanitize(&path.display().to_string())));
    let file = std::fs::File::open(path).map_err(|error| named(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(MAX_REPORT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| named(error.to_string()))?;
    if bytes.len() as u64 > MAX_REPORT {
        return Err(named(format!(
            "larger than {MAX_REPORT} bytes: no report of this program"
        )));
    }
    let report: Report = serde_json::from_slice(&bytes).map_err(|error| {
        named(format!(
            "no report that `run --json` wrote ({})",
            sanitize(&error.to_string())
        ))
    })?;
    if report.schema == crate::report::SCHEMA {
        Ok(report)
    } else {
        Err(named(format!(
            "its schema is `{}`, `{}` is read here",
            sanitize(&report.schema),
            crate::report::SCHEMA
        )))
    }
}

/// Runs scenarios one after another, under the same signals.
struct Runner<'a> {
    max_calls: u64,
    forward: Option<Forward>,
    interrupt: watch::Receiver<bool>,
    output: &'a Output,
}

impl<'a> Runner<'a> {
    fn new(max_calls: u64, otlp: Option<&str>, output: &'a Output) -> Result<Self, Failure> {
        for name in NOT_BUILT {
            if std::env::var_os(name).is_some() {
                return Err(Failure::usage(format!(
                    "{name} is set, and what it asks for is not built yet: unset it"
                )));
            }
        }
        let forward = otlp
            .map(Forward::to)
            .transpose()
            .map_err(|error| Failure::usage(text::chain(&error)))?;
        if let Some(forward) = &forward
            && !std::env::args_os().any(|argument| argument.to_string_lossy().starts_with("--otlp"))
        {
            let to = sanitize(forward.url());
            warn(
                &format!("the traces also go to {to}, as OTEL_EXPORTER_OTLP_ENDPOINT says"),
                output,
            );
        }
        let interrupt = interrupts().map_err(|error| Failure::not_measured(format!("signals: {error}")))?;
        Ok(Self {
            max_calls,
            forward,
            interrupt,
            output,
        })
    }

    /// What several runs end with: a comparison that was cut short is not a whole one.
    fn exit_code(&self, of_runs: u8) -> u8 {
        if self.is_interrupted() { NOT_MEASURED } else { of_runs }
    }

    fn is_interrupted(&self) -> bool {
        *self.interrupt.borrow()
    }

    async fn run(&mut self, scenario: &Scenario, expectations: Vec<Expectation>) -> Result<Report, Failure> {
        let (ended, progress) = watch::channel(0);
        let bar = tokio::spawn(Progress::new(scenario.load.requests).follow(progress));
        let options = Options {
            program: this_program(),
            max_calls: self.max_calls,
            forward: self.forward.clone(),
            expectations,
            interrupt: self.interrupt.clone(),
            progress: ended,
            hooks: Hooks::default(),
        };
        let ran = run::run(scenario, options).await;
        let _ = bar.await;
        let Ran { report, forwarded } = ran?;
        if let Some(forwarded) = forwarded
            && let Some(error) = &forwarded.first_error
        {
            let lost = forwarded.dropped + forwarded.failed;
            warn(
                &format!(
                    "{lost} spans did not reach {}: {}",
                    sanitize(&forwarded.url),
                    sanitize(error.rsplit(": ").next().unwrap_or(error))
                ),
                self.output,
            );
        }
        Ok(report)
    }
}

/// Turns true with the first SIGINT, SIGTERM or SIGHUP.
fn interrupts() -> std::io::Result<watch::Receiver<bool>> {
    let (tell, told) = watch::channel(false);
    let mut signals = Signals::new()?;
    tokio::spawn(async move {
        signals.next().await;
        let _ = tell.send(true);
    });
    Ok(told)
}

/// Ends with the second of them.
fn second_interrupt() -> std::io::Result<impl Future<Output = ()>> {
    let mut signals = Signals::new()?;
    Ok(async move {
        signals.next().await;
        signals.next().await;
    })
}

/// SIGINT, SIGTERM and SIGHUP.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> std::io::Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Where the JSON goes, known to be writable before anything starts.
fn target(output: &Output) -> Result<Option<Target>, Failure> {
    let target = match &output.json {
        None => return Ok(None),
        Some(JsonTarget::Stdout) => Target::Stdout,
        Some(JsonTarget::File(path)) => Target::File(PathBuf::from(path)),
    };
    output::check_writable(&target).map_err(|error| Failure::usage(text::chain(&error)))?;
    Ok(Some(target))
}

/// Shows the result, then writes the JSON: a full disk must not swallow what was measured.
fn deliver(answer: Answer, output: &Output) -> Result<u8, Failure> {
    let json_alone = matches!(answer.json, Some((Target::Stdout, _)));
    if json_alone {
        // With the JSON alone on stdout, an exit code of 1 still needs a reason.
        for missed in &answer.missed {
            warn(missed, output);
        }
    } else {
        let unwritten = |error| Failure::not_measured(format!("the result cannot be written to stdout: {error}"));
        render::print(&answer.shown, color(output)).map_err(unwritten)?;
    }
    if let Some((target, bytes)) = answer.json {
        output::write(&target, &bytes).map_err(|error| Failure::not_measured(text::chain(&error)))?;
    }
    Ok(answer.exit_code)
}

fn missed(runs: &[Report]) -> Vec<String> {
    let expected = runs.iter().flat_map(|report| &report.expected);
    expected
        .filter(|expected| !expected.met)
        .map(|expected| expected.text.clone())
        .collect()
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
