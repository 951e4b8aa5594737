//! Flags as typed. Values stay text here: `resolve` reads them, with messages of its own.

use super::{CliError, ColorChoice, help, refuse};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;

#[derive(Debug, Parser)]
#[command(
    name = "harness",
    version,
    about = "Counts the gRPC calls that really arrive when every layer retries, and holds the count against a prediction.",
    args_conflicts_with_subcommands = true,
    term_width = 80
)]
pub(super) struct Typed {
    #[command(flatten)]
    pub(super) demo: DemoFlags,
    #[command(subcommand)]
    pub(super) command: Option<TypedCommand>,
}

#[derive(Debug, Subcommand)]
pub(super) enum TypedCommand {
    /// Per hop against single owner, inventory down: the headline
    Demo(DemoFlags),
    /// Start the services, send requests, count, judge
    Run(RunFlags),
    /// The arithmetic alone; nothing is started
    Predict(PredictFlags),
    /// Scenarios, chain lines or saved reports side by side
    Compare(CompareFlags),
    /// The built-in scenarios, with a line each
    Scenarios,
    /// Serve one of the four services (used by run and by containers)
    Service {
        /// frontend, checkout, pricing or inventory
        name: String,
        /// End when stdin does
        #[arg(long)]
        until_stdin_closes: bool,
    },
    /// Ask a service whether it is healthy
    Health {
        /// host:port
        address: String,
    },
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Debug, Args)]
pub(super) struct DemoFlags {
    #[command(flatten)]
    pub(super) otlp: OtlpFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct RunFlags {
    /// A built-in scenario, a .toml file, or a chain line in quotes
    #[arg(value_name = "SCENARIO or 'CHAIN'")]
    pub(super) scenario: Vec<String>,
    #[command(flatten)]
    pub(super) changes: ScenarioFlags,
    #[command(flatten)]
    pub(super) measure: MeasureFlags,
    #[command(flatten)]
    pub(super) otlp: OtlpFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct PredictFlags {
    /// A built-in scenario, a .toml file, or a chain line in quotes
    #[arg(value_name = "SCENARIO or 'CHAIN'")]
    pub(super) scenario: Vec<String>,
    #[command(flatten)]
    pub(super) changes: ScenarioFlags,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct CompareFlags {
    /// Two or more: built-in scenarios, .toml files, chain lines in quotes, saved .json reports
    #[arg(value_name = "SCENARIO, 'CHAIN' or REPORT")]
    pub(super) sides: Vec<String>,
    #[command(flatten)]
    pub(super) changes: ScenarioFlags,
    #[command(flatten)]
    pub(super) measure: MeasureFlags,
    #[command(flatten)]
    pub(super) otlp: OtlpFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

/// What changes a scenario.
#[derive(Debug, Args)]
#[command(next_help_heading = "Who retries")]
pub(super) struct ScenarioFlags {
    /// Attempts of every caller in the chain, the first included (1 to 100)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) attempts: Option<String>,
    /// Attempts of one caller, the client included; repeatable
    #[arg(long, value_name = "CALLER=N")]
    pub(super) attempts_at: Vec<String>,
    /// The same counted as retries: N retries are N+1 attempts
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) retries: Option<String>,
    /// Retries of one caller; repeatable
    #[arg(long, value_name = "CALLER=N")]
    pub(super) retries_at: Vec<String>,
    /// Only this caller retries; everybody else makes one attempt
    #[arg(long, value_name = "CALLER")]
    pub(super) owner: Option<String>,
    /// Which failures are retried: status codes with commas, or any
    #[arg(long, value_name = "CODE,...")]
    pub(super) retry_on: Option<String>,
    /// Links between services: 3 enters at frontend, 2 at checkout, 1 at pricing
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    pub(super) depth: Option<String>,
    /// How a service misbehaves (fail, fail:first=2, fail:p=0.5, refuse, none); repeatable
    #[arg(long, value_name = "[SERVICE=]FAULT", help_heading = "What fails")]
    pub(super) fault: Vec<String>,
    /// What is asked for; '' is an invalid request
    #[arg(long, value_name = "TEXT", help_heading = "What is sent")]
    pub(super) item: Option<String>,
    /// How many requests [default: 1]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "What is sent"
    )]
    pub(super) requests: Option<String>,
    /// How many of them at once [default: 1]
    #[arg(
        short = 'c',
        long,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "What is sent"
    )]
    pub(super) concurrency: Option<String>,
    /// Time each request has, or none [default: 10s]
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = "What is sent")]
    pub(super) deadline: Option<String>,
    /// For drawn faults, or random [default: 27]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "What is sent")]
    pub(super) seed: Option<String>,
    /// Any key of a scenario file, as in load.requests=5; repeatable
    #[arg(long, value_name = "PATH=VALUE", help_heading = "Anything else")]
    pub(super) set: Vec<String>,
}

/// What belongs to measuring.
#[derive(Debug, Args)]
#[command(next_help_heading = "What comes out")]
pub(super) struct MeasureFlags {
    /// What you expect: inventory=27, total<=40, fails<=0.1%; repeatable
    #[arg(long, value_name = "EXPR", allow_negative_numbers = true)]
    pub(super) expect: Vec<String>,
    /// Refuse a plan of more arrivals than this [default: 2000000]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) max_calls: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What comes out")]
pub(super) struct OtlpFlag {
    /// An OpenTelemetry collector that gets the traces too (http://host:port)
    #[arg(long, value_name = "URL")]
    pub(super) otlp: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What comes out")]
pub(super) struct OutputFlags {
    /// The report as JSON, into a file or - for stdout
    #[arg(long, value_name = "FILE or -")]
    pub(super) json: Option<String>,
    /// Coloured text
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, ignore_case = true)]
    pub(super) color: ColorChoice,
}

impl Typed {
    /// Reads the words; help and refusals come back in the house's own words.
    pub(super) fn read(arguments: &[OsString], program: &str) -> Result<Self, CliError> {
        let command = help::with_examples(Self::command(), program);
        let read = command
            .try_get_matches_from(arguments)
            .and_then(|matches| Self::from_arg_matches(&matches));
        read.map_err(|error| refuse::from_clap(&error, arguments, program))
    }
}

impl ScenarioFlags {
    /// Whether no flag was given.
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            attempts,
            attempts_at,
            retries,
            retries_at,
            owner,
            retry_on,
            depth,
            ..
        } = self;
        let Self {
            fault,
            item,
            requests,
            concurrency,
            deadline,
            seed,
            set,
            ..
        } = self;
        [
            attempts,
            retries,
            owner,
            retry_on,
            depth,
            item,
            requests,
            concurrency,
            deadline,
            seed,
        ]
        .iter()
        .all(|flag| flag.is_none())
            && [attempts_at, retries_at, fault, set]
                .iter()
                .all(|flags| flags.is_empty())
    }
}
