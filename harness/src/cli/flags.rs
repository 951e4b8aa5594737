//! Flags as typed. Values stay text here: `resolve` reads them, with messages of its own.

use super::{CliError, ColorChoice, Format, help, refuse, sweep};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
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
    /// One run for each value of what is varied: predicted and received
    Sweep(SweepFlags),
    /// Keep a chain running until Ctrl-C
    Up(UpFlags),
    /// Send one request to a chain that is up
    Call(CallFlags),
    /// Break services of a chain that is up
    Fail(FailFlags),
    /// Make services of a chain that is up work again
    Heal(HealFlags),
    /// Change who retries in a chain that is up
    Retry(RetryCommandFlags),
    /// What a chain that is up has counted
    Status(StatusFlags),
    /// The built-in scenarios, with a line each
    Scenarios,
    /// Serve one of the services (used by run and by containers)
    Service {
        /// frontend, checkout, pricing, inventory or sidecar
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
    /// Make a file with a secret for control ports, unless it is there
    #[command(hide = true)]
    Token {
        /// Its path
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Vec<String>,
    },
    /// Print the script that completes commands and flags in a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell
        #[arg(value_name = "SHELL")]
        shell: Vec<String>,
    },
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Debug, Args)]
pub(super) struct DemoFlags {
    /// Do not leave when the result is shown; Ctrl-C does (for containers)
    #[arg(long)]
    pub(super) stay: bool,
    #[command(flatten)]
    pub(super) link: LinkFlag,
    #[command(flatten)]
    pub(super) viewer: ViewerFlag,
    #[command(flatten)]
    pub(super) otlp: OtlpFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct RunFlags {
    /// A built-in scenario, a .toml file, or a chain line in quotes
    #[arg(value_name = "SCENARIO or 'CHAIN'", value_hint = ValueHint::AnyPath)]
    pub(super) scenario: Vec<String>,
    #[command(flatten)]
    pub(super) changes: ScenarioFlags,
    #[command(flatten)]
    pub(super) link: LinkFlag,
    #[command(flatten)]
    pub(super) measure: MeasureFlags,
    /// Apply each change that predict suggests, and run it too
    #[arg(long, help_heading = "What comes out")]
    pub(super) prove: bool,
    #[command(flatten)]
    pub(super) viewer: ViewerFlag,
    #[command(flatten)]
    pub(super) otlp: OtlpFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
    #[command(flatten)]
    pub(super) shown: ShownFlags,
}

#[derive(Debug, Args)]
pub(super) struct PredictFlags {
    /// A built-in scenario, a .toml file, or a chain line in quotes
    #[arg(value_name = "SCENARIO or 'CHAIN'", value_hint = ValueHint::AnyPath)]
    pub(super) scenario: Vec<String>,
    #[command(flatten)]
    pub(super) changes: ScenarioFlags,
    #[command(flatten)]
    pub(super) questions: QuestionFlags,
    #[command(flatten)]
    pub(super) link: LinkFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
    #[command(flatten)]
    pub(super) shown: ShownFlags,
}

/// What a prediction answers besides the counts.
#[derive(Debug, Args)]
#[command(next_help_heading = "What comes out")]
pub(super) struct QuestionFlags {
    /// The ceiling of a retry budget of so many per cent at every layer, 0 to 100
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    pub(super) budget: Option<String>,
    /// Whether the bottom service recovers by itself if it can answer so many calls a second; wants --rate
    #[arg(long, value_name = "PER_SECOND", allow_negative_numbers = true)]
    pub(super) capacity: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct CompareFlags {
    /// Two or more: built-in scenarios, .toml files, chain lines in quotes, saved .json reports
    #[arg(value_name = "SCENARIO, 'CHAIN' or REPORT", value_hint = ValueHint::AnyPath)]
    pub(super) sides: Vec<String>,
    #[command(flatten)]
    pub(super) changes: ScenarioFlags,
    #[command(flatten)]
    pub(super) link: LinkFlag,
    #[command(flatten)]
    pub(super) measure: MeasureFlags,
    #[command(flatten)]
    pub(super) viewer: ViewerFlag,
    #[command(flatten)]
    pub(super) otlp: OtlpFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
    #[command(flatten)]
    pub(super) shown: ShownFlags,
}

#[derive(Debug, Args)]
pub(super) struct SweepFlags {
    /// A built-in scenario, a .toml file, or a chain line in quotes
    #[arg(value_name = "SCENARIO or 'CHAIN'", value_hint = ValueHint::AnyPath)]
    pub(super) scenario: Vec<String>,
    /// What is varied, and its values: p=0,0.1..1 (the bottom service fails with that chance), attempts=1..4, concurrency=, rate=,
    /// requests=, deadline=, or any key of a scenario file
    #[arg(long, value_name = "KEY=VALUES", help_heading = "What is varied")]
    pub(super) over: Vec<String>,
    #[command(flatten)]
    pub(super) changes: ScenarioFlags,
    #[command(flatten)]
    pub(super) measure: MeasureFlags,
    #[command(flatten)]
    pub(super) viewer: ViewerFlag,
    #[command(flatten)]
    pub(super) otlp: OtlpFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
    #[command(flatten)]
    pub(super) shown: ShownFlags,
    /// What was typed, to be typed again.
    #[arg(skip)]
    pub(super) words: Vec<String>,
}

// Read, so that what `up` keeps off its links is refused with the way on; not shown, because all of it is.
#[derive(Debug, Args)]
#[command(
    mut_arg("sidecar", |flag| flag.hide(true)),
    mut_arg("mesh", |flag| flag.hide(true)),
    mut_arg("sidecar_attempts", |flag| flag.hide(true)),
    mut_arg("sidecar_attempts_at", |flag| flag.hide(true)),
    mut_arg("sidecar_retries", |flag| flag.hide(true)),
    mut_arg("sidecar_retries_at", |flag| flag.hide(true)),
    mut_arg("undeclared", |flag| flag.hide(true))
)]
pub(super) struct UpFlags {
    /// A built-in scenario, a .toml file, or a chain line in quotes
    #[arg(value_name = "SCENARIO or 'CHAIN'", value_hint = ValueHint::AnyPath)]
    pub(super) scenario: Vec<String>,
    #[command(flatten)]
    pub(super) chain: ChainFlags,
    #[command(flatten)]
    pub(super) set: SetFlag,
    #[command(flatten)]
    pub(super) ports: PortFlags,
    #[command(flatten)]
    pub(super) otlp: OtlpFlag,
    #[command(flatten)]
    pub(super) color: ColorFlag,
}

#[derive(Debug, Args)]
pub(super) struct CallFlags {
    /// What is asked for; '' is an invalid request
    #[arg(long, value_name = "TEXT", help_heading = "What is sent")]
    pub(super) item: Option<String>,
    /// Time the request has, or none [default: 10s]
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = "What is sent")]
    pub(super) deadline: Option<String>,
    /// Attempts of the client, the first included [default: client=1]
    #[arg(long, value_name = "client=N", help_heading = "What is sent")]
    pub(super) attempts_at: Vec<String>,
    /// The same counted as retries
    #[arg(long, value_name = "client=N", help_heading = "What is sent")]
    pub(super) retries_at: Vec<String>,
    #[command(flatten)]
    pub(super) link: LinkFlag,
    #[command(flatten)]
    pub(super) viewer: ViewerFlag,
    #[command(flatten)]
    pub(super) otlp: OtlpFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct FailFlags {
    /// fail, fail:first=2, delay:ms=50, hang, refuse, ...: a fault of the bottom service; SERVICE=FAULT: of another; SERVICE alone:
    /// it answers UNAVAILABLE. Without any, the bottom service does
    #[arg(value_name = "[SERVICE=]FAULT or SERVICE")]
    pub(super) faults: Vec<String>,
    #[command(flatten)]
    pub(super) link: LinkFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct HealFlags {
    /// The services that are to work again; without any, all of them
    #[arg(value_name = "SERVICE")]
    pub(super) services: Vec<String>,
    #[command(flatten)]
    pub(super) link: LinkFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct RetryCommandFlags {
    /// Attempts of every caller, or of one, the first included (1 to 100)
    #[arg(value_name = "N or CALLER=N", allow_negative_numbers = true)]
    pub(super) attempts_of: Vec<String>,
    #[command(flatten)]
    pub(super) retry: RetryFlags,
    #[command(flatten)]
    pub(super) set: SetFlag,
    #[command(flatten)]
    pub(super) link: LinkFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct StatusFlags {
    #[command(flatten)]
    pub(super) link: LinkFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

/// What changes a scenario.
#[derive(Debug, Default, Args)]
pub(super) struct ScenarioFlags {
    #[command(flatten)]
    pub(super) chain: ChainFlags,
    #[command(flatten)]
    pub(super) load: LoadFlags,
    #[command(flatten)]
    pub(super) set: SetFlag,
}

/// What changes the services of a scenario.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Who retries")]
pub(super) struct ChainFlags {
    #[command(flatten)]
    pub(super) retry: RetryFlags,
    #[command(flatten)]
    pub(super) sidecar: SidecarFlags,
    /// Links between services, 1 to 12: 3 enters at frontend, 2 at checkout, 1 at pricing; above 3 relays stand in the middle
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = "Who retries")]
    pub(super) depth: Option<String>,
    /// How a service misbehaves (fail, fail:first=2, fail:p=0.5, delay:ms=50, hang, refuse, reset, ...); repeatable
    #[arg(long, value_name = "[SERVICE=]FAULT", help_heading = "What fails")]
    pub(super) fault: Vec<String>,
    /// For drawn faults, or random [default: 27]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "What fails")]
    pub(super) seed: Option<String>,
}

/// Who retries, and how.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Who retries")]
pub(super) struct RetryFlags {
    /// Attempts of every caller in the chain, the first included (1 to 100)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) attempts: Option<String>,
    /// Attempts of one caller; repeatable
    #[arg(long, value_name = "CALLER=N")]
    pub(super) attempts_at: Vec<String>,
    /// The same counted as retries: N retries are N+1 attempts
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) retries: Option<String>,
    /// Retries of one caller; repeatable
    #[arg(long, value_name = "CALLER=N")]
    pub(super) retries_at: Vec<String>,
    /// Only this caller retries; everybody else, proxies too, makes one attempt
    #[arg(long, value_name = "CALLER")]
    pub(super) owner: Option<String>,
    /// Which failures are retried: status codes with commas, or any
    #[arg(long, value_name = "CODE,...")]
    pub(super) retry_on: Option<String>,
}

/// What stands on the links.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "What stands on the links")]
pub(super) struct SidecarFlags {
    /// Attempts of a proxy on every link between two services, for each one of the caller (1 is no proxy)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) sidecar_attempts: Option<String>,
    /// Attempts of the proxy under one caller, the client included; repeatable
    #[arg(long, value_name = "CALLER=N")]
    pub(super) sidecar_attempts_at: Vec<String>,
    /// The same counted as retries: N retries are N+1 attempts
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) sidecar_retries: Option<String>,
    /// Retries of the proxy under one caller; repeatable
    #[arg(long, value_name = "CALLER=N")]
    pub(super) sidecar_retries_at: Vec<String>,
    /// Fill the retries of the proxies between two services as a mesh does, where nothing else says them: istio (1.22 on, gRPC: 3
    /// attempts on UNAVAILABLE and CANCELLED), istio-http (1.24 on: 3 at a closed port, 1 where an answer arrives), linkerd (2.16
    /// on, opt-in: 2, what an annotated route gets, limit 1) or none
    #[arg(long, value_name = "MESH")]
    pub(super) mesh: Option<String>,
    /// What the proxies are: builtin, our own, or envoy, real ones [default: builtin]
    #[arg(long, value_name = "KIND")]
    pub(super) sidecar: Option<String>,
    /// A layer of N attempts behind a caller that no configuration and no prediction knows; repeatable
    #[arg(long, value_name = "CALLER=N")]
    pub(super) undeclared: Vec<String>,
}

/// What is sent.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "What is sent")]
pub(super) struct LoadFlags {
    /// What is asked for; '' is an invalid request
    #[arg(long, value_name = "TEXT")]
    pub(super) item: Option<String>,
    /// How many requests [default: 1]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    pub(super) requests: Option<String>,
    /// How many of them at once, at most [default: 1, with --rate 1000]
    #[arg(short = 'c', long, value_name = "N", allow_negative_numbers = true)]
    pub(super) concurrency: Option<String>,
    /// Start so many a second, whatever became of those before; what the limit of -c keeps back is never sent
    #[arg(long, value_name = "PER_SECOND", allow_negative_numbers = true)]
    pub(super) rate: Option<String>,
    /// Time each request has, or none [default: 10s]
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    pub(super) deadline: Option<String>,
    /// The client drops each request after this time
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    pub(super) cancel_after: Option<String>,
}

/// Whatever has no flag of its own.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Anything else")]
pub(super) struct SetFlag {
    /// Any key of a scenario file, as in retry.backoff.initial='10ms'; repeatable
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
}

/// Which running services are meant.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which services")]
pub(super) struct LinkFlag {
    #[arg(
        long,
        value_name = "FILE or PAIRS",
        value_hint = ValueHint::FilePath,
        help = "Services that already run: SERVICE=CONTROL_ADDR,... or a file that `up --ready-file` wrote [env: RETRYSCOPE_ATTACH]"
    )]
    pub(super) attach: Option<String>,
}

/// Where a chain that stays up is reached.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where it is reached")]
pub(super) struct PortFlags {
    /// Where a service is called; 0 takes a free port [default: 50051 to 50054]; repeatable
    #[arg(long, value_name = "SERVICE=PORT")]
    pub(super) port: Vec<String>,
    /// Where a service is asked [default: 50061 to 50064]; repeatable
    #[arg(long, value_name = "SERVICE=PORT")]
    pub(super) control_port: Vec<String>,
    /// A file that says, once all services are up, how to attach to them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) ready_file: Option<String>,
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
pub(super) struct ViewerFlag {
    #[arg(
        long,
        value_name = "TEMPLATE",
        help = "Address of a trace in its viewer, with {trace_id} in it [env: RETRYSCOPE_TRACE_URL]"
    )]
    pub(super) trace_url: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What comes out")]
pub(super) struct OutputFlags {
    /// The result as JSON, into a file or - for stdout
    #[arg(long, value_name = "FILE or -", value_hint = ValueHint::FilePath)]
    pub(super) json: Option<String>,
    #[command(flatten)]
    pub(super) color: ColorFlag,
}

/// Of commands whose result is a page or a picture too.
#[derive(Debug, Args)]
#[command(next_help_heading = "What comes out")]
pub(super) struct ShownFlags {
    /// text, or markdown for a page that others read
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, ignore_case = true)]
    pub(super) format: Format,
    /// A figure of the result, into a file or - for stdout
    #[arg(long, value_name = "FILE or -", value_hint = ValueHint::FilePath)]
    pub(super) svg: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What comes out")]
pub(super) struct ColorFlag {
    /// Coloured text
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, ignore_case = true)]
    pub(super) color: ColorChoice,
}

impl Typed {
    /// Reads the words; help and refusals come back in the house's own words.
    pub(super) fn read(arguments: &[OsString], program: &str) -> Result<Self, CliError> {
        let command = help::with_examples(Self::command(), program);
        let read = command.try_get_matches_from(arguments).and_then(|matches| {
            let mut typed = Self::from_arg_matches(&matches)?;
            if let (Some(TypedCommand::Sweep(flags)), Some((_, matches))) = (&mut typed.command, matches.subcommand()) {
                flags.words = sweep::words(matches);
            }
            Ok(typed)
        });
        read.map_err(|error| refuse::from_clap(&error, arguments, program))
    }
}

/// What is known of a command's flags.
pub(super) fn command_of(name: &str) -> clap::Command {
    let found = Typed::command().find_subcommand(name).cloned();
    found.expect("the command is one of ours")
}

impl ScenarioFlags {
    /// Whether no flag was given.
    pub(super) fn is_empty(&self) -> bool {
        let ChainFlags {
            retry,
            sidecar,
            depth,
            fault,
            seed,
        } = &self.chain;
        let LoadFlags {
            item,
            requests,
            concurrency,
            rate,
            deadline,
            cancel_after,
        } = &self.load;
        let once = [depth, seed, item, requests, concurrency, rate, deadline, cancel_after];
        let is_other = !once.iter().all(|flag| flag.is_none()) || !fault.is_empty() || !self.set.set.is_empty();
        retry.is_empty() && sidecar.is_empty() && !is_other
    }
}

impl RetryFlags {
    /// Whether no flag was given.
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            attempts,
            attempts_at,
            retries,
            retries_at,
            owner,
            retry_on,
        } = self;
        let once = [attempts, retries, owner, retry_on];
        once.iter().all(|flag| flag.is_none()) && attempts_at.is_empty() && retries_at.is_empty()
    }
}

impl SidecarFlags {
    /// Whether no flag was given.
    fn is_empty(&self) -> bool {
        let Self {
            sidecar_attempts,
            sidecar_attempts_at,
            sidecar_retries,
            sidecar_retries_at,
            mesh,
            sidecar,
            undeclared,
        } = self;
        let once = [sidecar_attempts, sidecar_retries, mesh, sidecar];
        let repeated = [sidecar_attempts_at, sidecar_retries_at, undeclared];
        once.iter().all(|flag| flag.is_none()) && repeated.iter().all(|flags| flags.is_empty())
    }
}
