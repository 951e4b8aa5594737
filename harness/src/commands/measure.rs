//! Commands that measure, and the arithmetic alone.

use super::{
    Answer, Failure, NOT_MEASURED, Targets, delivered, missed, prove, signals::interrupts, standing, style, summarise,
    warn,
};
use crate::{
    cli::{Compare, Demo, Format, Link, Output, Predict, Run, Side, Subject},
    expect::Expectation,
    fleet::this_program,
    forward::Forward,
    predict::predict_and_answer,
    render::{
        json, markdown,
        progress::Progress,
        svg,
        text::{self, Style},
    },
    report::{COMPARISON_SCHEMA, Comparison, Report},
    run::{self, Attached, Hooks, Options, Ran},
    sanitize::sanitize,
    scenario::{Change, Scenario, ScenarioError},
    standing::Standing,
    viewer::Viewer,
};
use std::{io::Read as _, path::Path};
use tokio::sync::watch;

/// Largest report that is read back, bytes.
const MAX_REPORT: u64 = 256 * 1024 * 1024;

/// The arithmetic alone.
pub(super) async fn predicted(command: Predict) -> Result<Answer, Failure> {
    let targets = Targets::of(&command.output)?;
    let mut flag = None;
    let scenario = match command.subject {
        Subject::Own { scenario, .. } => *scenario,
        Subject::Attached { link, change, .. } => {
            flag = link.is_flagged.then(|| link.attach.flag());
            changed(&standing(&link).await?, &change).map_err(|failure| by_variable(failure, &link))?
        }
    };
    let mut prediction = predict_and_answer(&scenario, &command.questions);
    if let Some(flag) = flag {
        prediction.command = format!("{} {flag}", prediction.command);
    }
    let output = &command.output;
    let shown = match output.format {
        Format::Text => text::prediction(&prediction, &output.program, style(output)),
        Format::Markdown => markdown::prediction(&prediction),
    };
    Ok(Answer {
        exit_code: 0,
        shown,
        files: targets.with(|| json::prediction(&prediction), || svg::prediction(&prediction)),
        missed: Vec::new(),
    })
}

/// One scenario, or one chain that is up.
pub(super) async fn measured(command: Run) -> Result<Answer, Failure> {
    let targets = Targets::of(&command.output)?;
    let changes = match &command.subject {
        Subject::Own { scenario, .. } if command.proves => Some(prove::plan(scenario, command.max_calls)?),
        _ => None,
    };
    let mut runner = Runner::new(
        command.max_calls,
        command.otlp.as_deref(),
        command.viewer,
        &command.output,
    )?;
    let mut report = runner.run(command.subject).await?.report;
    if let Some(changes) = changes {
        prove::prove(&mut runner, changes, &mut report).await;
    }
    let output = &command.output;
    summarise(|| markdown::run(&report), output).await;
    let shown = match output.format {
        Format::Text => text::run(&report, &output.program, style(output)),
        Format::Markdown => markdown::run(&report),
    };
    Ok(Answer {
        exit_code: report.exit_code(),
        shown,
        files: targets.with(|| json::report(&report), || svg::run(&report)),
        missed: missed(std::slice::from_ref(&report)),
    })
}

/// The headline. Stays behind it where it is asked to.
pub(super) async fn demo(command: Demo) -> Result<u8, Failure> {
    let targets = Targets::of(&command.output)?;
    let mut runner = Runner::new(
        crate::scenario::DEFAULT_MAX_CALLS,
        command.otlp.as_deref(),
        command.viewer,
        &command.output,
    )?;
    let subject = |scenario: &Scenario| match &command.link {
        None => Subject::Own {
            scenario: Box::new(scenario.clone()),
            expectations: Vec::new(),
        },
        Some(link) => Subject::Attached {
            link: link.clone(),
            change: Box::new(Change {
                source: Some(scenario.name.clone()),
                ..Change::default()
            }),
            expect: Vec::new(),
        },
    };
    let mut runs = Vec::new();
    for scenario in [&command.per_hop, &command.single_owner] {
        runs.push(runner.run(subject(scenario)).await?.report);
        if runner.is_interrupted() {
            break;
        }
    }
    let is_whole = runs.len() == 2;
    let answer = side_by_side(runs, is_whole.then_some(text::demo as Screen), targets, &runner).await;
    let exit_code = delivered(answer, command.output.clone()).await?;
    if command.stays {
        runner.interrupted().await;
    }
    Ok(exit_code)
}

/// Several, side by side.
pub(super) async fn compared(command: Compare) -> Result<Answer, Failure> {
    let targets = Targets::of(&command.output)?;
    // Files first: a report that cannot be read is known before anything runs.
    let mut saved = Vec::new();
    for side in &command.sides {
        saved.push(match side {
            Side::Saved(path) => Some(read_report(path)?),
            Side::Subject(_) => None,
        });
    }
    let mut runner = Runner::new(
        command.max_calls,
        command.otlp.as_deref(),
        command.viewer,
        &command.output,
    )?;
    let mut runs = Vec::new();
    for (side, saved) in command.sides.into_iter().zip(saved) {
        match (side, saved) {
            (_, Some(report)) => runs.push(report),
            (Side::Subject(subject), None) if !runner.is_interrupted() => {
                runs.push(runner.run(subject).await?.report);
            }
            _ => {}
        }
    }
    let is_comparison = runs.len() > 1;
    Ok(side_by_side(
        runs,
        is_comparison.then_some(text::comparison as Screen),
        targets,
        &runner,
    )
    .await)
}

/// A screen of several runs.
type Screen = fn(&Comparison, &str, Style) -> String;

/// Several runs on one screen; one after another where a comparison was cut short and none fits.
async fn side_by_side(runs: Vec<Report>, screen: Option<Screen>, targets: Targets, runner: &Runner<'_>) -> Answer {
    let output = runner.output;
    let schema = COMPARISON_SCHEMA.to_owned();
    let trace_difference_url = difference(runner.viewer.as_ref(), &runs);
    let comparison = Comparison {
        schema,
        runs,
        trace_difference_url,
    };
    summarise(|| markdown::comparison(&comparison), output).await;
    let shown = match (output.format, screen) {
        (Format::Markdown, _) => markdown::comparison(&comparison),
        (Format::Text, Some(screen)) => screen(&comparison, &output.program, style(output)),
        (Format::Text, None) => each(&comparison.runs, output),
    };
    Answer {
        exit_code: runner.exit_code(comparison.exit_code()),
        shown,
        files: targets.with(|| json::comparison(&comparison), || svg::comparison(&comparison)),
        missed: missed(&comparison.runs),
    }
}

/// Where the first traces of the first two runs are compared.
fn difference(viewer: Option<&Viewer>, runs: &[Report]) -> Option<String> {
    let first = |report: &Report| report.receipts.first().and_then(|receipt| receipt.trace_id.clone());
    let [one, other, ..] = runs else { return None };
    viewer?.difference(&first(one)?, &first(other)?)
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
pub(super) struct Runner<'a> {
    max_calls: u64,
    forward: Option<Forward>,
    viewer: Option<Viewer>,
    interrupt: watch::Receiver<bool>,
    output: &'a Output,
    is_quiet: bool,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        max_calls: u64,
        otlp: Option<&str>,
        viewer: Option<Viewer>,
        output: &'a Output,
    ) -> Result<Self, Failure> {
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
            viewer,
            interrupt,
            output,
            is_quiet: false,
        })
    }

    /// Without a bar for each run: whoever asks shows how far all of them have come.
    pub(super) fn quiet(mut self) -> Self {
        self.is_quiet = true;
        self
    }

    /// What several runs end with: a comparison that was cut short is not a whole one.
    pub(super) fn exit_code(&self, of_runs: u8) -> u8 {
        if self.is_interrupted() { NOT_MEASURED } else { of_runs }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        *self.interrupt.borrow()
    }

    /// Ends when an interrupt has come.
    async fn interrupted(&mut self) {
        let _ = self.interrupt.wait_for(|interrupted| *interrupted).await;
    }

    pub(super) async fn run(&mut self, subject: Subject) -> Result<Ran, Failure> {
        let (scenario, expectations, attached) = match subject {
            Subject::Own { scenario, expectations } => (*scenario, expectations, None),
            Subject::Attached { link, change, expect } => {
                let standing = standing(&link).await?;
                let scenario = changed(&standing, &change).map_err(|failure| by_variable(failure, &link))?;
                let expectations = expectations(&expect, &scenario)?;
                let flag = link.is_flagged.then_some(link.attach);
                (scenario, expectations, Some(Attached { standing, flag }))
            }
        };
        let (ended, progress) = watch::channel(0);
        let bar = (!self.is_quiet).then(|| Progress::new(scenario.load.requests, "requests"));
        let bar = bar.map(|bar| tokio::spawn(bar.follow(progress)));
        let options = Options {
            program: this_program(),
            max_calls: self.max_calls,
            forward: self.forward.clone(),
            expectations,
            interrupt: self.interrupt.clone(),
            progress: ended,
            hooks: Hooks::default(),
            attached,
            viewer: self.viewer.clone(),
        };
        let ran = run::run(&scenario, options).await;
        if let Some(bar) = bar {
            let _ = bar.await;
        }
        let ran = ran?;
        self.warn_of(&ran);
        Ok(ran)
    }

    /// Tells something besides the result.
    pub(super) fn warn(&self, message: &str) {
        warn(message, self.output);
    }

    /// What went wrong besides the measurement.
    fn warn_of(&self, ran: &Ran) {
        if let Some(error) = &ran.not_undone {
            let error = sanitize(&text::chain(error));
            let text = format!("the settings that were put to the services are still in force: {error}");
            warn(&text, self.output);
        }
        let Some(forwarded) = &ran.forwarded else { return };
        if let Some(error) = &forwarded.first_error {
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
    }
}

/// A running chain with what a command makes different about it.
pub(super) fn changed(standing: &Standing, change: &Change) -> Result<Scenario, Failure> {
    let usage = |error: ScenarioError| Failure::usage(error.to_string());
    let now = Scenario::standing(&standing.configs()).map_err(usage)?;
    let scenario = change.of(&now).map_err(usage)?;
    scenario.check_runnable().map_err(usage)?;
    Ok(scenario)
}

/// Who did not type `--attach` may not know why a running chain is in the way.
fn by_variable(mut failure: Failure, link: &Link) -> Failure {
    if !link.is_flagged {
        failure
            .message
            .push_str("; RETRYSCOPE_ATTACH names the running chain, unset it to start services of your own");
    }
    failure
}

fn expectations(texts: &[String], scenario: &Scenario) -> Result<Vec<Expectation>, Failure> {
    let names: Vec<_> = scenario.service_names().collect();
    let read = texts.iter().map(|text| Expectation::parse(text, &names));
    read.collect::<Result<_, _>>()
        .map_err(|error| Failure::usage(error.to_string()))
}
