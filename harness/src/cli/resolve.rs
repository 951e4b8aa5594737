//! Flags as meant: every value read, every scenario loaded and validated.

use super::{
    CliError, Command, Compare, Demo, Destination, Format, Link, Output, Predict, Run, Side, Subject, completions,
    flags::{
        ChainFlags, ColorFlag, CompareFlags, DemoFlags, LinkFlag, LoadFlags, MeasureFlags, OtlpFlag, OutputFlags,
        PredictFlags, QuestionFlags, RetryFlags, RunFlags, ScenarioFlags, ShownFlags, SidecarFlags, Typed,
        TypedCommand, ViewerFlag,
    },
    refuse,
};
use crate::{
    attach::Attach,
    chain_line,
    expect::Expectation,
    predict::Questions,
    sanitize::{sanitize, sanitize_message},
    scenario::{
        CANCEL_RIGHT, Change, DEADLINE_RIGHT, DEFAULT_MAX_CALLS, MAX_CONCURRENCY, MAX_DEPTH, MAX_REQUESTS, Mesh,
        Overrides, Program, RATE_RIGHT, SEED_RIGHT, SIDECAR_RIGHT, Scenario, SidecarKind, checked_item,
        parse_cancel_after, parse_deadline, parse_rate, parse_retry_on, parse_seed, suggest::did_you_mean,
    },
    viewer::Viewer,
};
use chassis::{
    fault::{Fault, ServiceFault, When},
    policy::MAX_ATTEMPTS,
};
use std::path::{Path, PathBuf};

/// Which services already run, where no flag says it.
pub(super) const ATTACH: &str = "RETRYSCOPE_ATTACH";
/// Where traces can be looked at, where no flag says it.
const TRACE_URL: &str = "RETRYSCOPE_TRACE_URL";

/// Turns what was typed into what is meant.
pub(super) struct Resolver<'a> {
    pub(super) program: String,
    pub(super) environment: &'a dyn Fn(&str) -> Option<String>,
}

/// Why a separate word is refused.
const QUOTES: &str = "your shell took > as a redirection (and may have made files); put the line in quotes: \
                      'client > web x3 > ledger down'";

impl Resolver<'_> {
    pub(super) fn command(&self, typed: Typed) -> Result<Command, CliError> {
        match typed.command {
            None => self.demo(&typed.demo),
            Some(TypedCommand::Demo(flags)) => self.demo(&flags),
            Some(TypedCommand::Run(flags)) => self.run(&flags),
            Some(TypedCommand::Predict(flags)) => self.predict(&flags),
            Some(TypedCommand::Compare(flags)) => self.compare(&flags),
            Some(TypedCommand::Sweep(flags)) => self.sweep(&flags),
            Some(TypedCommand::Up(flags)) => self.up(&flags),
            Some(TypedCommand::Call(flags)) => self.call(&flags),
            Some(TypedCommand::Fail(flags)) => self.fail(&flags),
            Some(TypedCommand::Heal(flags)) => self.heal(flags),
            Some(TypedCommand::Retry(flags)) => self.retry(&flags),
            Some(TypedCommand::Status(flags)) => self.status(&flags),
            Some(TypedCommand::Scenarios) => Ok(Command::Scenarios),
            Some(TypedCommand::Service {
                name,
                until_stdin_closes,
            }) => service(name, until_stdin_closes),
            Some(TypedCommand::Health { address }) if address.trim().is_empty() => {
                Err(CliError::refused("health wants an address: host:port"))
            }
            Some(TypedCommand::Health { address }) => Ok(Command::Health { address }),
            Some(TypedCommand::Token { file }) => token(&file),
            Some(TypedCommand::Completions { shell }) => {
                completions::script(&shell).map(|script| Command::Completions { script })
            }
            Some(TypedCommand::Other(words)) => Err(refuse::unknown_command(&words, &self.program)),
        }
    }

    fn demo(&self, flags: &DemoFlags) -> Result<Command, CliError> {
        let built_in = |name| Scenario::load(Some(name), &Overrides::default()).map_err(CliError::refused);
        Ok(Command::Demo(Box::new(Demo {
            per_hop: built_in("per-hop")?,
            single_owner: built_in("single-owner")?,
            link: self.attached(&flags.link)?,
            stays: flags.stay,
            viewer: self.viewer(&flags.viewer)?,
            otlp: self.otlp(&flags.otlp)?,
            output: self.output(&flags.output)?,
        })))
    }

    fn run(&self, flags: &RunFlags) -> Result<Command, CliError> {
        let source = one_source(&flags.scenario, "run")?;
        let overrides = overrides(&flags.changes)?;
        let max_calls = max_calls(&flags.measure)?;
        let mut output = self.output_shown(&flags.output, &flags.shown)?;
        let subject = if let Some(link) = self.attached(&flags.link)? {
            if flags.prove {
                let way_on = if link.is_flagged {
                    "leave --attach out"
                } else {
                    "unset RETRYSCOPE_ATTACH"
                };
                return Err(CliError::refused(format_args!(
                    "--prove: a change may take a proxy away, which a chain that already runs cannot do; {way_on}"
                )));
            }
            attached(link, source, overrides, &flags.measure.expect)?
        } else {
            let mut scenario = runnable(source, &overrides)?;
            output
                .warnings
                .extend(idle_mesh(&overrides, [&scenario]).map(str::to_owned));
            if flags.prove
                && let Some(many) = enough(source, &overrides, &scenario, max_calls)
            {
                output.warnings.push(format!(
                    "--prove: one draw proves little, so there are {ENOUGH_DRAWS} requests; -n says how many"
                ));
                scenario = many;
            }
            Subject::Own {
                expectations: expectations(&flags.measure, [&scenario])?,
                scenario: Box::new(scenario),
            }
        };
        Ok(Command::Run(Run {
            proves: flags.prove,
            max_calls,
            otlp: self.otlp(&flags.otlp)?,
            viewer: self.viewer(&flags.viewer)?,
            output,
            subject,
        }))
    }

    fn predict(&self, flags: &PredictFlags) -> Result<Command, CliError> {
        let source = one_source(&flags.scenario, "predict")?;
        let overrides = overrides(&flags.changes)?;
        // A chain of its own needs no services for its arithmetic: what the environment says is then about nothing.
        let is_own = source.is_some() || overrides.depth.is_some();
        let link = self.attached(&flags.link)?.filter(|link| link.is_flagged || !is_own);
        let mut output = self.output_shown(&flags.output, &flags.shown)?;
        let subject = if let Some(link) = link {
            attached(link, source, overrides, &[])?
        } else {
            let scenario = predictable(source, &overrides)?;
            output
                .warnings
                .extend(idle_mesh(&overrides, [&scenario]).map(str::to_owned));
            Subject::Own {
                scenario: Box::new(scenario),
                expectations: Vec::new(),
            }
        };
        Ok(Command::Predict(Predict {
            questions: questions(&flags.questions, &subject)?,
            subject,
            output,
        }))
    }

    fn compare(&self, flags: &CompareFlags) -> Result<Command, CliError> {
        if flags.sides.iter().any(|word| is_stray(word)) {
            return Err(CliError::refused(QUOTES));
        }
        if flags.sides.len() < 2 {
            return Err(CliError::refused(format_args!(
                "compare takes two or more scenarios, chain lines or saved reports: {} compare per-hop single-owner",
                self.program
            )));
        }
        let link = self.attached(&flags.link)?;
        // Once for all sides, so that a random seed is the same for each.
        let overrides = overrides(&flags.changes)?;
        let expect = &flags.measure.expect;
        let sides = flags
            .sides
            .iter()
            .map(|word| match (saved(word)?, &link) {
                (Some(path), _) => Ok(Side::Saved(path)),
                (None, Some(link)) => attached(link.clone(), Some(word), overrides.clone(), expect).map(Side::Subject),
                (None, None) => runnable(Some(word), &overrides).map(|scenario| {
                    Side::Subject(Subject::Own {
                        scenario: Box::new(scenario),
                        expectations: Vec::new(),
                    })
                }),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let is_saved = sides.iter().all(|side| matches!(side, Side::Saved(_)));
        if is_saved && !(flags.changes.is_empty() && expect.is_empty()) {
            return Err(CliError::refused(
                "every side is a saved report, which no flag can change; leave the flags out",
            ));
        }
        if is_saved && flags.link.attach.is_some() {
            return Err(CliError::refused(
                "every side is a saved report, for which no services are needed; leave --attach out",
            ));
        }
        let mut output = self.output_shown(&flags.output, &flags.shown)?;
        let own = sides.iter().filter_map(|side| match side {
            Side::Subject(Subject::Own { scenario, .. }) => Some(scenario.as_ref()),
            _ => None,
        });
        output.warnings.extend(idle_mesh(&overrides, own).map(str::to_owned));
        Ok(Command::Compare(Compare {
            sides: with_expectations(sides, &flags.measure)?,
            viewer: self.viewer(&flags.viewer)?,
            max_calls: max_calls(&flags.measure)?,
            otlp: self.otlp(&flags.otlp)?,
            output,
        }))
    }

    /// The running services that a flag or the environment names.
    pub(super) fn attached(&self, flag: &LinkFlag) -> Result<Option<Link>, CliError> {
        let (said_by, text) = match (&flag.attach, self.variable(ATTACH)) {
            (Some(text), _) if text.trim().is_empty() => {
                return Err(CliError::refused(
                    "--attach wants SERVICE=CONTROL_ADDR,... or a file that up --ready-file wrote",
                ));
            }
            (Some(text), _) => ("--attach", text.clone()),
            (None, Some(text)) => (ATTACH, text),
            (None, None) => return Ok(None),
        };
        let attach = Attach::read(&text).map_err(|error| CliError::refused(format_args!("{said_by}: {error}")))?;
        Ok(Some(Link {
            attach,
            is_flagged: flag.attach.is_some(),
        }))
    }

    pub(super) fn viewer(&self, flag: &ViewerFlag) -> Result<Option<Viewer>, CliError> {
        let (said_by, template) = match (&flag.trace_url, self.variable(TRACE_URL)) {
            (Some(template), _) => ("--trace-url", template.clone()),
            (None, Some(template)) => (TRACE_URL, template),
            (None, None) => return Ok(None),
        };
        let viewer = Viewer::read(&template);
        viewer
            .map(Some)
            .map_err(|error| CliError::refused(format_args!("{said_by}: {error}")))
    }

    /// A variable of the environment; an empty one counts as unset.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).filter(|value| !value.trim().is_empty())
    }

    pub(super) fn output(&self, flags: &OutputFlags) -> Result<Output, CliError> {
        Ok(Output {
            json: destination("--json", flags.json.as_deref())?,
            ..self.output_of_text(&flags.color)
        })
    }

    /// Of a command whose result is a page or a picture too.
    pub(super) fn output_shown(&self, flags: &OutputFlags, shown: &ShownFlags) -> Result<Output, CliError> {
        let output = Output {
            svg: destination("--svg", shown.svg.as_deref())?,
            format: shown.format,
            ..self.output(flags)?
        };
        match (&output.json, &output.svg) {
            (Some(Destination::Stdout), Some(Destination::Stdout)) => Err(CliError::refused(
                "--json - and --svg -: only one of them can have stdout",
            )),
            (Some(Destination::File(json)), Some(Destination::File(svg))) if is_same(json, svg) => {
                let shown = sanitize(&svg.display().to_string());
                Err(CliError::refused(format_args!(
                    "--json and --svg {shown}: one file cannot be both; name another for one of them"
                )))
            }
            _ => Ok(output),
        }
    }

    /// Text alone.
    pub(super) fn output_of_text(&self, flag: &ColorFlag) -> Output {
        Output {
            json: None,
            svg: None,
            format: Format::default(),
            color: flag.color,
            program: self.program.clone(),
            warnings: Vec::new(),
        }
    }

    /// The outside collector: the flag, or what OpenTelemetry's own variables say.
    pub(super) fn otlp(&self, flag: &OtlpFlag) -> Result<Option<String>, CliError> {
        const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        if let Some(url) = &flag.otlp {
            return collector(url)
                .map(Some)
                .map_err(|right| CliError::refused(format_args!("--otlp {}: {right}", sanitize(url))));
        }
        let is =
            |name, word: &str| (self.environment)(name).is_some_and(|value| value.trim().eq_ignore_ascii_case(word));
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let Some(url) = self.variable(ENDPOINT) else {
            return Ok(None);
        };
        collector(&url).map(Some).map_err(|right| {
            let way_on = "or set OTEL_TRACES_EXPORTER=none to do without it";
            CliError::refused(format_args!("{ENDPOINT}={}: {right}, {way_on}", sanitize(&url)))
        })
    }
}

/// Whether two paths name one file, which need not exist.
fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        let file = folder.join(path.file_name()?);
        Some(file.canonicalize().unwrap_or(file))
    };
    place(one).is_some_and(|one| place(other) == Some(one))
}

/// Where a flag says that something goes.
fn destination(flag: &str, typed: Option<&str>) -> Result<Option<Destination>, CliError> {
    match typed {
        None => Ok(None),
        Some("-") => Ok(Some(Destination::Stdout)),
        Some("") => Err(CliError::refused(format_args!("{flag} wants a file, or - for stdout"))),
        Some(path) if Path::new(path).is_dir() => Err(CliError::refused(format_args!(
            "{flag} {}: this is a folder; name a file in it",
            sanitize(path)
        ))),
        Some(path) => Ok(Some(Destination::File(PathBuf::from(path)))),
    }
}

/// `http://host:port` of a collector, or what would be right.
fn collector(url: &str) -> Result<String, String> {
    let right = "write http://host:port, as in http://127.0.0.1:4317";
    let trimmed = url.trim();
    let lower = trimmed.to_ascii_lowercase();
    if lower.starts_with("https://") {
        return Err("https is not built yet; write the http://host:port of a collector".to_owned());
    }
    let (authority, bare) = match lower.strip_prefix("http://") {
        Some(rest) => (rest.strip_suffix('/').unwrap_or(rest), false),
        None => (lower.as_str(), true),
    };
    let (host, port) = authority.rsplit_once(':').ok_or(right)?;
    let host_is_plain = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host
                    .chars()
                    .all(|each| each.is_ascii_alphanumeric() || matches!(each, '.' | '-' | '_'))
        }
    };
    let port_is_plain =
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    if !host_is_plain || !port_is_plain {
        return Err(right.to_owned());
    }
    let loopback = host == "localhost"
        || host == "[::1]"
        || host
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback());
    if bare && !loopback {
        Err(right.to_owned())
    } else {
        Ok(format!("http://{authority}"))
    }
}

fn service(name: String, until_stdin_closes: bool) -> Result<Command, CliError> {
    let names = Program::SERVED.map(Program::name);
    if names.contains(&name.as_str()) {
        return Ok(Command::Service {
            name,
            until_stdin_closes,
        });
    }
    let hint = did_you_mean(&name, names);
    Err(CliError::refused(format_args!(
        "`{}` is no service{hint} (services: {})",
        sanitize(&name),
        names.join(", ")
    )))
}

fn token(words: &[String]) -> Result<Command, CliError> {
    match words {
        [file] if !file.is_empty() => Ok(Command::Token {
            file: PathBuf::from(file),
        }),
        _ => Err(CliError::refused("token takes one file: token FILE")),
    }
}

/// The one scenario of a command; words of a chain line without its `>` are told about quotes.
pub(super) fn one_source<'a>(words: &'a [String], command: &str) -> Result<Option<&'a str>, CliError> {
    match words {
        [] => Ok(None),
        [one] if is_stray(one) => Err(CliError::refused(QUOTES)),
        [one] if one.to_ascii_lowercase().ends_with(".json") => {
            let shown = sanitize(one);
            Err(CliError::refused(format_args!(
                "{shown} is a saved report, which {command} does not read; compare does: compare {shown} per-hop"
            )))
        }
        [one] => Ok(Some(one)),
        many if many.iter().any(|word| chain_line::is_piece(word)) => Err(CliError::refused(QUOTES)),
        many => {
            if let Some(half) = many.iter().find(|word| is_half_a_fault(word)) {
                return Err(CliError::refused(format_args!(
                    "`{0}` is no fault by itself, fail:{0} is; and {QUOTES}",
                    sanitize(half)
                )));
            }
            let shown: Vec<_> = many.iter().map(|word| format!("`{}`", sanitize(word))).collect();
            Err(CliError::refused(format_args!(
                "{command} takes one scenario, and got {}; several go side by side with compare",
                shown.join(", ")
            )))
        }
    }
}

/// `p=0.1`: the keys of a `fail` that has lost its name.
fn is_half_a_fault(word: &str) -> bool {
    word.contains('=') && format!("fail:{word}").parse::<Fault>().is_ok()
}

/// A single word that only a chain line has, and that no scenario could have been meant by.
fn is_stray(word: &str) -> bool {
    // A whole line whose first name is `x6` begins like a piece.
    !word.contains(['>', '\u{2192}', '/'])
        && chain_line::is_piece(word)
        && did_you_mean(word, crate::scenario::BUILT_IN.iter().map(|each| each.name)).is_empty()
}

/// The saved report that a side of a comparison names, if it names one.
fn saved(word: &str) -> Result<Option<PathBuf>, CliError> {
    if !word.to_ascii_lowercase().ends_with(".json") {
        return Ok(None);
    }
    let path = PathBuf::from(word);
    if path.is_file() {
        Ok(Some(path))
    } else {
        Err(CliError::refused(format_args!(
            "there is no report {}; run ... --json FILE saves one",
            sanitize(word)
        )))
    }
}

/// Services that already run, and what is put to them. What can be known without asking them is refused at once.
fn attached(link: Link, source: Option<&str>, overrides: Overrides, expect: &[String]) -> Result<Subject, CliError> {
    let way_on = if link.is_flagged {
        "leave it or --attach out"
    } else {
        "leave it out, or unset RETRYSCOPE_ATTACH for services of its own"
    };
    if let Some(depth) = overrides.depth {
        return Err(CliError::refused(format_args!(
            "--depth {depth}: a chain that already runs has the length it has; {way_on}"
        )));
    }
    if let Some(flag) = flag_of_a_link(&overrides) {
        return Err(CliError::refused(format_args!(
            "{flag}: a chain that already runs has what stands on its links; {way_on}"
        )));
    }
    if source.is_some() {
        // The names that are given are the running ones, or will be refused.
        let scenario = runnable(source, &overrides)?;
        scenario.check_stays_up().map_err(CliError::refused)?;
        let names: Vec<_> = scenario.service_names().collect();
        for text in expect {
            Expectation::parse(text, &names).map_err(CliError::refused)?;
        }
    } else {
        refuse_keys(
            &overrides.set,
            &["chain"],
            "a chain that already runs has the services it has",
        )?;
        refuse_keys(
            &overrides.set,
            &OF_THE_LINKS,
            "a chain that already runs has what stands on its links",
        )?;
        for text in expect {
            // Which names there are is not known here; everything else can be wrong already.
            let name = text.split(['=', '<', '>']).next().unwrap_or_default().trim();
            let names = [name];
            let is_service = chain_line::is_name(name) && !["total", "fails"].contains(&name);
            let names = if is_service { &names[..] } else { &[] };
            Expectation::parse(text, names).map_err(CliError::refused)?;
        }
    }
    Ok(Subject::Attached {
        link,
        change: Box::new(Change {
            source: source.map(str::to_owned),
            overrides,
        }),
        expect: expect.to_vec(),
    })
}

/// Sections of a scenario that say what stands on the links.
pub(super) const OF_THE_LINKS: [&str; 2] = ["sidecars", "undeclared"];

/// A flag that says what stands on the links, if one was given.
fn flag_of_a_link(overrides: &Overrides) -> Option<&'static str> {
    let Overrides {
        sidecar,
        sidecar_attempts,
        sidecar_attempts_at,
        mesh,
        undeclared,
        ..
    } = overrides;
    [
        ("--mesh", mesh.is_some()),
        ("--sidecar", sidecar.is_some()),
        ("--sidecar-attempts", sidecar_attempts.is_some()),
        ("--sidecar-attempts-at", !sidecar_attempts_at.is_empty()),
        ("--undeclared", !undeclared.is_empty()),
    ]
    .into_iter()
    .find_map(|(flag, is_given)| is_given.then_some(flag))
}

/// Refuses `--set` of a section that has no meaning here; `why` says so.
pub(super) fn refuse_keys(set: &[String], sections: &[&str], why: &str) -> Result<(), CliError> {
    for assignment in set {
        let path = assignment.split('=').next().unwrap_or_default();
        let section = path.split('.').next().unwrap_or_default();
        if sections.contains(&section.trim().trim_matches(['"', '\''])) {
            return Err(CliError::refused(format_args!("--set {}: {why}", sanitize(assignment))));
        }
    }
    Ok(())
}

/// Each side that has a scenario of its own with what is expected of all of them.
fn with_expectations(mut sides: Vec<Side>, flags: &MeasureFlags) -> Result<Vec<Side>, CliError> {
    let scenarios = sides.iter().filter_map(|side| match side {
        Side::Subject(Subject::Own { scenario, .. }) => Some(scenario.as_ref()),
        _ => None,
    });
    let read = expectations(flags, scenarios)?;
    for side in &mut sides {
        if let Side::Subject(Subject::Own { expectations, .. }) = side {
            expectations.clone_from(&read);
        }
    }
    Ok(sides)
}

/// A scenario that a prediction is about.
fn predictable(source: Option<&str>, overrides: &Overrides) -> Result<Scenario, CliError> {
    let scenario = Scenario::load(source, overrides).map_err(CliError::refused)?;
    scenario.check_envoys().map_err(CliError::refused)?;
    Ok(scenario)
}

/// A scenario that can be run.
pub(super) fn runnable(source: Option<&str>, overrides: &Overrides) -> Result<Scenario, CliError> {
    let scenario = Scenario::load(source, overrides).map_err(CliError::refused)?;
    scenario.check_runnable().map_err(CliError::refused)?;
    Ok(scenario)
}

/// Requests where an answer is drawn and nothing says how many there are: one draw is no share.
pub(super) const ENOUGH_DRAWS: u64 = 200;

/// The same with [`ENOUGH_DRAWS`] requests, where a fault is drawn, nothing says how many there are, and so many may be run.
fn enough(source: Option<&str>, overrides: &Overrides, one: &Scenario, max_calls: u64) -> Option<Scenario> {
    let is_drawn = |when: &When| when.p.is_some_and(|p| p > 0.0 && p < 1.0);
    let mut faults = one.chain.services.iter().map(|service| &service.fault.fault);
    if !faults.any(|fault| is_drawn(&fault.when) || fault.delay.is_some_and(|delay| is_drawn(&delay.when))) {
        return None;
    }
    let many = Overrides {
        requests_unless_said: Some(ENOUGH_DRAWS),
        ..overrides.clone()
    };
    let many = runnable(source, &many).ok()?;
    let is_more = many.load.requests > one.load.requests;
    (is_more && crate::run::check(&many, max_calls).is_ok()).then_some(many)
}

/// That the preset of a mesh gives no proxy a retry in any of these.
pub(super) fn idle_mesh<'a>(
    overrides: &Overrides,
    scenarios: impl IntoIterator<Item = &'a Scenario>,
) -> Option<&'static str> {
    let mut closed = scenarios.into_iter().flat_map(|scenario| &scenario.chain.services[1..]);
    let is_idle = overrides.mesh == Some(Mesh::IstioHttp) && !closed.any(|service| service.fault.own().refuses());
    is_idle.then_some(
        "--mesh istio-http fills nothing here: it tries a closed port again (--fault refuse), and no answer that arrived",
    )
}

fn questions(flags: &QuestionFlags, subject: &Subject) -> Result<Questions, CliError> {
    let read = |flag: &str, text: &Option<String>, is_right: fn(f64) -> bool, right: &str| {
        let Some(text) = text else { return Ok(None) };
        let number = decimal(text).filter(|number| is_right(*number));
        let shown = if text.is_empty() {
            "''".to_owned()
        } else {
            sanitize(text)
        };
        let wrong = || CliError::refused(format_args!("{flag} {shown}: {right}"));
        number.map(Some).ok_or_else(wrong)
    };
    let right = "write 0 to 100, the retries that each layer may make for a hundred calls";
    let budget = read("--budget", &flags.budget, |percent| percent <= 100.0, right)?;
    let right = "write a number above 0, at most 1000000000, the calls a second that the bottom service can answer";
    let capacity = read(
        "--capacity",
        &flags.capacity,
        |calls| calls > 0.0 && calls <= 1e9,
        right,
    )?;
    let rate = match subject {
        Subject::Own { scenario, .. } => scenario.load.rate,
        Subject::Attached { change, .. } => change.overrides.rate,
    };
    if capacity.is_some() && rate.is_none() {
        return Err(CliError::refused(
            "--capacity: how many requests a second come is not said; give it with --rate, as in --rate 40",
        ));
    }
    Ok(Questions { budget, capacity })
}

/// A number in plain digits, with decimals or without.
fn decimal(text: &str) -> Option<f64> {
    let is_plain = |each: char| each.is_ascii_digit() || each == '.';
    let text = text.trim();
    text.parse().ok().filter(|_| text.chars().all(is_plain))
}

pub(super) fn max_calls(flags: &MeasureFlags) -> Result<u64, CliError> {
    let Some(typed) = &flags.max_calls else {
        return Ok(DEFAULT_MAX_CALLS);
    };
    number("--max-calls ", typed, 1, u64::MAX, "write a whole number, 1 or more")
}

/// Every expression, read against every scenario it will be held against.
pub(super) fn expectations<'a>(
    flags: &MeasureFlags,
    scenarios: impl IntoIterator<Item = &'a Scenario>,
) -> Result<Vec<Expectation>, CliError> {
    let mut expectations = Vec::new();
    for scenario in scenarios {
        let names: Vec<_> = scenario.service_names().collect();
        let read = flags.expect.iter().map(|text| Expectation::parse(text, &names));
        expectations = read.collect::<Result<_, _>>().map_err(CliError::refused)?;
    }
    Ok(expectations)
}

pub(super) fn overrides(flags: &ScenarioFlags) -> Result<Overrides, CliError> {
    let mut overrides = chain_overrides(&flags.chain)?;
    overrides.set.clone_from(&flags.set.set);
    load_overrides(&flags.load, &mut overrides)?;
    Ok(overrides)
}

/// What is said about the services.
pub(super) fn chain_overrides(flags: &ChainFlags) -> Result<Overrides, CliError> {
    let mut overrides = retry_overrides(&flags.retry)?;
    sidecar_overrides(&flags.sidecar, &mut overrides)?;
    let faults = flags.fault.iter().map(|text| fault("--fault", text));
    overrides.faults = faults.collect::<Result<_, _>>()?;
    if let Some(text) = &flags.depth {
        let right = format!("write 1 to {MAX_DEPTH}, the links between services");
        overrides.depth = usize::try_from(number("--depth ", text, 1, MAX_DEPTH as u64, &right)?).ok();
    }
    if let Some(text) = &flags.seed {
        let wrong = || CliError::refused(format_args!("--seed {}: {SEED_RIGHT}", sanitize(text)));
        overrides.seed = Some(parse_seed(text).ok_or_else(wrong)?);
    }
    Ok(overrides)
}

/// What is said about who retries.
pub(super) fn retry_overrides(flags: &RetryFlags) -> Result<Overrides, CliError> {
    let mut overrides = Overrides {
        attempts: all_attempts("", flags.attempts.as_deref(), flags.retries.as_deref())?,
        attempts_at: attempts_at("", &flags.attempts_at, &flags.retries_at)?,
        owner: flags.owner.clone(),
        ..Overrides::default()
    };
    if let Some(text) = &flags.retry_on {
        let read = parse_retry_on(text);
        overrides.retry_on =
            Some(read.map_err(|right| CliError::refused(format_args!("--retry-on {}: {right}", sanitize(text))))?);
    }
    Ok(overrides)
}

/// What is said about the links.
fn sidecar_overrides(flags: &SidecarFlags, overrides: &mut Overrides) -> Result<(), CliError> {
    let (attempts, retries) = (flags.sidecar_attempts.as_deref(), flags.sidecar_retries.as_deref());
    overrides.sidecar_attempts = all_attempts("sidecar-", attempts, retries)?;
    overrides.sidecar_attempts_at = attempts_at("sidecar-", &flags.sidecar_attempts_at, &flags.sidecar_retries_at)?;
    if let Some(text) = &flags.mesh {
        let mesh = Mesh::ALL.into_iter().find(|mesh| mesh.name() == text.trim());
        let known = Mesh::ALL.map(Mesh::name);
        let hint = did_you_mean(text, known);
        let wrong = || {
            let shown = if text.is_empty() {
                "''".to_owned()
            } else {
                sanitize(text)
            };
            CliError::refused(format_args!("--mesh {shown}: write one of {}{hint}", known.join(", ")))
        };
        overrides.mesh = Some(mesh.ok_or_else(wrong)?);
    }
    if let Some(text) = &flags.sidecar {
        let kind = SidecarKind::ALL.into_iter().find(|kind| kind.name() == text.trim());
        let shown = if text.is_empty() {
            "''".to_owned()
        } else {
            sanitize(text)
        };
        let wrong = || CliError::refused(format_args!("--sidecar {shown}: {SIDECAR_RIGHT}"));
        overrides.sidecar = Some(kind.ok_or_else(wrong)?);
    }
    let right = format!("write 2 to {MAX_ATTEMPTS}, what the layer makes of each attempt");
    for text in &flags.undeclared {
        let (caller, number) = pair("--undeclared", text)?;
        let number = small(&format!("--undeclared {caller}="), number, 2, MAX_ATTEMPTS, &right)?;
        overrides.undeclared.push((caller.to_owned(), number));
    }
    Ok(())
}

/// `--attempts` or `--retries`; `prefix` is what their names begin with.
fn all_attempts(prefix: &str, tries: Option<&str>, again: Option<&str>) -> Result<Option<u32>, CliError> {
    match (tries, again) {
        (Some(_), Some(_)) => Err(CliError::refused(format_args!(
            "--{prefix}attempts and --{prefix}retries say the same thing; give one (N retries are N+1 attempts)"
        ))),
        (Some(text), None) => attempts(&format!("--{prefix}attempts "), text).map(Some),
        (None, Some(text)) => retries(&format!("--{prefix}retries "), text).map(Some),
        (None, None) => Ok(None),
    }
}

/// `--attempts-at` and `--retries-at`; `prefix` is what their names begin with.
pub(super) fn attempts_at(
    prefix: &str,
    attempts_at: &[String],
    retries_at: &[String],
) -> Result<Vec<(String, u32)>, CliError> {
    type Read = fn(&str, &str) -> Result<u32, CliError>;
    let mut all = Vec::new();
    let flags: [(&str, &[String], Read); 2] = [("attempts", attempts_at, attempts), ("retries", retries_at, retries)];
    for (name, texts, read) in flags {
        let flag = format!("--{prefix}{name}-at");
        for text in texts {
            let (caller, number) = pair(&flag, text)?;
            all.push((caller.to_owned(), read(&format!("{flag} {caller}="), number)?));
        }
    }
    Ok(all)
}

/// A number of attempts. `flag` is what stands before it.
pub(super) fn attempts(flag: &str, text: &str) -> Result<u32, CliError> {
    let right = format!("write 1 to {MAX_ATTEMPTS}, the first attempt included");
    small(flag, text, 1, MAX_ATTEMPTS, &right)
}

/// The attempts behind a number of retries.
fn retries(flag: &str, text: &str) -> Result<u32, CliError> {
    let right = format!("write 0 to {}; 2 retries are 3 attempts", MAX_ATTEMPTS - 1);
    small(flag, text, 0, MAX_ATTEMPTS - 1, &right).map(|retries| retries + 1)
}

pub(super) fn load_overrides(flags: &LoadFlags, overrides: &mut Overrides) -> Result<(), CliError> {
    if let Some(text) = &flags.requests {
        let right = "write a whole number from 1 to 10000000";
        overrides.requests = Some(number("--requests ", text, 1, MAX_REQUESTS, right)?);
    }
    if let Some(text) = &flags.concurrency {
        let right = "write a whole number from 1 to 5000, the requests at once";
        overrides.concurrency = Some(small("--concurrency ", text, 1, MAX_CONCURRENCY, right)?);
    }
    let wrong = |flag: &str, text: &str, right: &str| {
        let shown = if text.is_empty() {
            "''".to_owned()
        } else {
            sanitize(text)
        };
        CliError::refused(format_args!("{flag} {shown}: {right}"))
    };
    if let Some(text) = &flags.rate {
        overrides.rate = Some(parse_rate(text).ok_or_else(|| wrong("--rate", text, RATE_RIGHT))?);
    }
    if let Some(text) = &flags.cancel_after {
        overrides.cancel_after =
            Some(parse_cancel_after(text).ok_or_else(|| wrong("--cancel-after", text, CANCEL_RIGHT))?);
    }
    request_overrides(flags.item.as_deref(), flags.deadline.as_deref(), overrides)
}

/// What one request asks for, and how long it has.
pub(super) fn request_overrides(
    item: Option<&str>,
    deadline: Option<&str>,
    overrides: &mut Overrides,
) -> Result<(), CliError> {
    if let Some(text) = item {
        let item = checked_item(text).map_err(|right| CliError::refused(format_args!("--item: {right}")))?;
        overrides.item = Some(item.to_owned());
    }
    if let Some(text) = deadline {
        let wrong = || CliError::refused(format_args!("--deadline {}: {DEADLINE_RIGHT}", sanitize(text)));
        overrides.deadline = Some(parse_deadline(text).ok_or_else(wrong)?);
    }
    Ok(())
}

/// `[SERVICE=]FAULT`; a fault's own `=` stand behind its `:`.
pub(super) fn fault(flag: &str, text: &str) -> Result<(Option<String>, ServiceFault), CliError> {
    let before_keys = text.split(':').next().unwrap_or_default();
    let (service, fault) = match before_keys.split_once('=') {
        Some((service, _)) => (Some(service.trim().to_owned()), &text[service.len() + 1..]),
        None => (None, text),
    };
    let read = fault.parse().map_err(|error: chassis::fault::FaultError| {
        CliError::refused(format_args!(
            "{flag} {}: {}",
            sanitize(text),
            sanitize_message(&error.to_string())
        ))
    });
    read.map(|fault| (service, fault))
}

fn pair<'a>(flag: &str, text: &'a str) -> Result<(&'a str, &'a str), CliError> {
    let wrong = || {
        CliError::refused(format_args!(
            "{flag} {}: write CALLER=N, as in {flag} checkout=3",
            sanitize(text)
        ))
    };
    text.split_once('=')
        .map(|(caller, number)| (caller.trim(), number.trim()))
        .ok_or_else(wrong)
}

fn small(flag: &str, text: &str, least: u32, most: u32, right: &str) -> Result<u32, CliError> {
    number(flag, text, least.into(), most.into(), right).map(|number| u32::try_from(number).unwrap_or(most))
}

/// A whole number in plain digits. `flag` is what stands before it, blank or `=` included.
pub(super) fn number(flag: &str, text: &str, least: u64, most: u64, right: &str) -> Result<u64, CliError> {
    let digits = text.trim();
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(number) if plain && (least..=most).contains(&number) => Ok(number),
        _ => {
            let shown = if text.is_empty() {
                "''".to_owned()
            } else {
                sanitize(text)
            };
            Err(CliError::refused(format_args!("{}{shown}: {right}", sanitize(flag))))
        }
    }
}
