//! Flags as meant: every value read, every scenario loaded and validated.

use super::{
    CliError, Command, Compare, Demo, JsonTarget, Output, Predict, Run, Side, Subject,
    flags::{
        CompareFlags, DemoFlags, MeasureFlags, OutputFlags, PredictFlags, RunFlags, ScenarioFlags, Typed, TypedCommand,
    },
    refuse,
};
use crate::{
    chain_line,
    expect::Expectation,
    sanitize::{sanitize, sanitize_message},
    scenario::{
        DEADLINE_RIGHT, DEFAULT_MAX_CALLS, MAX_CONCURRENCY, MAX_DEPTH, MAX_REQUESTS, MAX_RUNNABLE, Overrides, Role,
        SEED_RIGHT, Scenario, checked_item, parse_deadline, parse_retry_on, parse_seed, suggest::did_you_mean,
    },
};
use chassis::{fault::Fault, policy::MAX_ATTEMPTS};
use std::path::{Path, PathBuf};

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
            None => self.demo(typed.demo),
            Some(TypedCommand::Demo(flags)) => self.demo(flags),
            Some(TypedCommand::Run(flags)) => self.run(flags),
            Some(TypedCommand::Predict(flags)) => self.predict(&flags),
            Some(TypedCommand::Compare(flags)) => self.compare(flags),
            Some(TypedCommand::Scenarios) => Ok(Command::Scenarios),
            Some(TypedCommand::Service {
                name,
                until_stdin_closes,
            }) => service(name, until_stdin_closes),
            Some(TypedCommand::Health { address }) if address.trim().is_empty() => {
                Err(CliError::refused("health wants an address: host:port"))
            }
            Some(TypedCommand::Health { address }) => Ok(Command::Health { address }),
            Some(TypedCommand::Other(words)) => Err(refuse::unknown_command(&words, &self.program)),
        }
    }

    fn demo(&self, flags: DemoFlags) -> Result<Command, CliError> {
        let built_in = |name| Scenario::load(Some(name), &Overrides::default()).map_err(CliError::refused);
        Ok(Command::Demo(Box::new(Demo {
            per_hop: built_in("per-hop")?,
            single_owner: built_in("single-owner")?,
            link: None,
            stays: false,
            viewer: None,
            otlp: self.otlp(flags.otlp.otlp)?,
            output: self.output(&flags.output)?,
        })))
    }

    fn run(&self, flags: RunFlags) -> Result<Command, CliError> {
        let scenario = runnable(one_source(&flags.scenario, "run")?, &overrides(&flags.changes)?)?;
        Ok(Command::Run(Run {
            max_calls: max_calls(&flags.measure)?,
            otlp: self.otlp(flags.otlp.otlp)?,
            viewer: None,
            output: self.output(&flags.output)?,
            subject: Subject::Own {
                expectations: expectations(&flags.measure, [&scenario])?,
                scenario: Box::new(scenario),
            },
        }))
    }

    fn predict(&self, flags: &PredictFlags) -> Result<Command, CliError> {
        let source = one_source(&flags.scenario, "predict")?;
        let scenario = Scenario::load(source, &overrides(&flags.changes)?).map_err(CliError::refused)?;
        Ok(Command::Predict(Predict {
            subject: Subject::Own {
                scenario: Box::new(scenario),
                expectations: Vec::new(),
            },
            output: self.output(&flags.output)?,
        }))
    }

    fn compare(&self, flags: CompareFlags) -> Result<Command, CliError> {
        if flags.sides.iter().any(|side| is_stray(side)) {
            return Err(CliError::refused(QUOTES));
        }
        if flags.sides.len() < 2 {
            return Err(CliError::refused(format_args!(
                "compare takes two or more scenarios, chain lines or saved reports: {} compare per-hop single-owner",
                self.program
            )));
        }
        // Once for all sides, so that a random seed is the same for each.
        let overrides = overrides(&flags.changes)?;
        let sides = flags
            .sides
            .iter()
            .map(|side| self::side(side, &overrides))
            .collect::<Result<Vec<_>, _>>()?;
        let scenarios: Vec<_> = sides
            .iter()
            .filter_map(|side| {
                if let Side::Subject(Subject::Own { scenario, .. }) = side {
                    Some(scenario.as_ref())
                } else {
                    None
                }
            })
            .collect();
        if scenarios.is_empty() && !(flags.changes.is_empty() && flags.measure.expect.is_empty()) {
            return Err(CliError::refused(
                "every side is a saved report, which no flag can change; leave the flags out",
            ));
        }
        let expectations = expectations(&flags.measure, scenarios)?;
        let sides = sides
            .into_iter()
            .map(|side| match side {
                Side::Subject(Subject::Own { scenario, .. }) => Side::Subject(Subject::Own {
                    scenario,
                    expectations: expectations.clone(),
                }),
                other => other,
            })
            .collect();
        Ok(Command::Compare(Compare {
            viewer: None,
            max_calls: max_calls(&flags.measure)?,
            otlp: self.otlp(flags.otlp.otlp)?,
            output: self.output(&flags.output)?,
            sides,
        }))
    }

    fn output(&self, flags: &OutputFlags) -> Result<Output, CliError> {
        let json = match flags.json.as_deref() {
            None => None,
            Some("-") => Some(JsonTarget::Stdout),
            Some("") => return Err(CliError::refused("--json wants a file, or - for stdout")),
            Some(path) if Path::new(path).is_dir() => {
                return Err(CliError::refused(format_args!(
                    "--json {}: this is a folder; name a file in it",
                    sanitize(path)
                )));
            }
            Some(path) => Some(JsonTarget::File(PathBuf::from(path))),
        };
        Ok(Output {
            json,
            color: flags.color,
            program: self.program.clone(),
        })
    }

    /// The outside collector: the flag, or what OpenTelemetry's own variables say.
    fn otlp(&self, flag: Option<String>) -> Result<Option<String>, CliError> {
        const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        if let Some(url) = flag {
            return collector(&url)
                .map(Some)
                .map_err(|right| CliError::refused(format_args!("--otlp {}: {right}", sanitize(&url))));
        }
        let is =
            |name, word: &str| (self.environment)(name).is_some_and(|value| value.trim().eq_ignore_ascii_case(word));
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let Some(url) = (self.environment)(ENDPOINT).filter(|url| !url.trim().is_empty()) else {
            return Ok(None);
        };
        collector(&url).map(Some).map_err(|right| {
            let way_on = "or set OTEL_TRACES_EXPORTER=none to do without it";
            CliError::refused(format_args!("{ENDPOINT}={}: {right}, {way_on}", sanitize(&url)))
        })
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
    let names = Role::ALL.map(Role::name);
    if name == "sidecar" {
        return Err(refuse::not_built("service sidecar"));
    }
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

/// The one scenario of a command; words of a chain line without its `>` are told about quotes.
fn one_source<'a>(words: &'a [String], command: &str) -> Result<Option<&'a str>, CliError> {
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

fn side(word: &str, overrides: &Overrides) -> Result<Side, CliError> {
    if !word.to_ascii_lowercase().ends_with(".json") {
        return runnable(Some(word), overrides).map(|scenario| {
            Side::Subject(Subject::Own {
                scenario: Box::new(scenario),
                expectations: Vec::new(),
            })
        });
    }
    let path = PathBuf::from(word);
    if path.is_file() {
        Ok(Side::Saved(path))
    } else {
        Err(CliError::refused(format_args!(
            "there is no report {}; run ... --json FILE saves one",
            sanitize(word)
        )))
    }
}

/// A scenario that can be run.
fn runnable(source: Option<&str>, overrides: &Overrides) -> Result<Scenario, CliError> {
    if let Some(depth) = overrides.depth.filter(|depth| *depth >= MAX_RUNNABLE) {
        return Err(CliError::refused(format_args!(
            "--depth {depth}: a run of more than {} links is not built yet; predict takes 1 to {MAX_DEPTH}",
            MAX_RUNNABLE - 1
        )));
    }
    let scenario = Scenario::load(source, overrides).map_err(CliError::refused)?;
    scenario.check_runnable().map_err(CliError::refused)?;
    Ok(scenario)
}

fn max_calls(flags: &MeasureFlags) -> Result<u64, CliError> {
    let Some(typed) = &flags.max_calls else {
        return Ok(DEFAULT_MAX_CALLS);
    };
    number("--max-calls ", typed, 1, u64::MAX, "write a whole number, 1 or more")
}

/// Every expression, read against every scenario it will be held against.
fn expectations<'a>(
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

fn overrides(flags: &ScenarioFlags) -> Result<Overrides, CliError> {
    let attempts_right = format!("write 1 to {MAX_ATTEMPTS}, the first attempt included");
    let retries_right = format!("write 0 to {}; 2 retries are 3 attempts", MAX_ATTEMPTS - 1);
    let read_attempts = |flag: &str, number: &str| small(flag, number, 1, MAX_ATTEMPTS, &attempts_right);
    let read_retries =
        |flag: &str, number: &str| small(flag, number, 0, MAX_ATTEMPTS - 1, &retries_right).map(|retries| retries + 1);
    if flags.attempts.is_some() && flags.retries.is_some() {
        return Err(CliError::refused(
            "--attempts and --retries say the same thing; give one (N retries are N+1 attempts)",
        ));
    }
    let mut overrides = Overrides {
        set: flags.set.clone(),
        owner: flags.owner.clone(),
        ..Overrides::default()
    };
    if let Some(text) = &flags.attempts {
        overrides.attempts = Some(read_attempts("--attempts ", text)?);
    }
    if let Some(text) = &flags.retries {
        overrides.attempts = Some(read_retries("--retries ", text)?);
    }
    for text in &flags.attempts_at {
        let (caller, attempts) = pair("--attempts-at", text)?;
        overrides.attempts_at.push((
            caller.to_owned(),
            read_attempts(&format!("--attempts-at {caller}="), attempts)?,
        ));
    }
    for text in &flags.retries_at {
        let (caller, retries) = pair("--retries-at", text)?;
        overrides.attempts_at.push((
            caller.to_owned(),
            read_retries(&format!("--retries-at {caller}="), retries)?,
        ));
    }
    if let Some(text) = &flags.retry_on {
        let read = parse_retry_on(text);
        overrides.retry_on =
            Some(read.map_err(|right| CliError::refused(format_args!("--retry-on {}: {right}", sanitize(text))))?);
    }
    overrides.faults = flags.fault.iter().map(|text| fault(text)).collect::<Result<_, _>>()?;
    if let Some(text) = &flags.depth {
        let right = format!("write 1 to {MAX_DEPTH}, the links between services");
        overrides.depth = usize::try_from(number("--depth ", text, 1, MAX_DEPTH as u64, &right)?).ok();
    }
    load(flags, &mut overrides)?;
    Ok(overrides)
}

fn load(flags: &ScenarioFlags, overrides: &mut Overrides) -> Result<(), CliError> {
    if let Some(text) = &flags.requests {
        overrides.requests = Some(number(
            "--requests ",
            text,
            1,
            MAX_REQUESTS,
            "write a whole number from 1 to 10000000",
        )?);
    }
    if let Some(text) = &flags.concurrency {
        let right = "write a whole number from 1 to 5000, the requests at once";
        overrides.concurrency = Some(small("--concurrency ", text, 1, MAX_CONCURRENCY, right)?);
    }
    if let Some(text) = &flags.item {
        let item = checked_item(text).map_err(|right| CliError::refused(format_args!("--item: {right}")))?;
        overrides.item = Some(item.to_owned());
    }
    if let Some(text) = &flags.deadline {
        let wrong = || CliError::refused(format_args!("--deadline {}: {DEADLINE_RIGHT}", sanitize(text)));
        overrides.deadline = Some(parse_deadline(text).ok_or_else(wrong)?);
    }
    if let Some(text) = &flags.seed {
        let wrong = || CliError::refused(format_args!("--seed {}: {SEED_RIGHT}", sanitize(text)));
        overrides.seed = Some(parse_seed(text).ok_or_else(wrong)?);
    }
    Ok(())
}

/// `[SERVICE=]FAULT`; a fault's own `=` stand behind its `:`.
fn fault(text: &str) -> Result<(Option<String>, Fault), CliError> {
    let before_keys = text.split(':').next().unwrap_or_default();
    let (service, fault) = match before_keys.split_once('=') {
        Some((service, _)) => (Some(service.trim().to_owned()), &text[service.len() + 1..]),
        None => (None, text),
    };
    let read = fault.parse().map_err(|error: chassis::fault::FaultError| {
        CliError::refused(format_args!(
            "--fault {}: {}",
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
fn number(flag: &str, text: &str, least: u64, most: u64, right: &str) -> Result<u64, CliError> {
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
