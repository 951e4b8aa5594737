//! Commands for a chain that stays up: keep it, call it, break and repair it, look at it.

use super::{
    Answer, Failure, NOT_MEASURED, Targets, control_token, delivered,
    measure::{Runner, changed},
    signals::interrupts,
    standing, style, warn,
};
use crate::{
    cli::{Call, Link, Ports, Status, Subject, Switch, SwitchTo, Up},
    fleet::{Fleet, Trouble, this_program},
    output::{self, Target},
    predict::predict,
    render::{json, text},
    report::{self, Changed, SWITCH_SCHEMA},
    run::RunError,
    sanitize::sanitize,
    scenario::{Change, DEFAULT_ATTEMPTS, DEFAULT_MAX_CALLS, Overrides, Start, shell_quoted, suggest::did_you_mean},
    standing::{self, Settings},
    status,
};
use chassis::{
    code,
    config::{Config, PREFIX},
    export::Export,
    fault::Fault,
};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// `call` exits with this plus the status code of a failure.
const FAILED: u8 = 64;
/// How often the processes are looked after.
const LOOK: Duration = Duration::from_millis(200);
/// Longest wait for an outside collector to take a connection before its absence is mentioned.
const KNOCK: Duration = Duration::from_millis(500);

/// Keeps a chain up until it is interrupted.
pub(super) async fn up(command: Up) -> Result<u8, Failure> {
    let mut interrupt = interrupts().map_err(|error| Failure::not_measured(format!("signals: {error}")))?;
    let names: Vec<_> = command.scenario.service_names().map(str::to_owned).collect();
    for (name, ports) in names.iter().zip(&command.ports) {
        check_free(name, *ports)?;
    }
    if let Some(file) = &command.ready_file {
        Ready::check(file)?;
    }
    if let Some(otlp) = &command.otlp
        && !is_there(otlp).await
    {
        let otlp = sanitize(otlp);
        warn(
            &format!("nothing listens at {otlp}: the traces get lost until something does"),
            &command.output,
        );
    }
    let token = control_token()?;
    let mut fleet = Fleet::spawn(&this_program(), starts(&command), token.as_deref())
        .await
        .map_err(RunError::from)?;
    let ready = command
        .ready_file
        .as_deref()
        .map(|file| Ready::write(file, &fleet))
        .transpose()?;
    let shown = text::up(
        &started(&command, &fleet),
        &command.output.program,
        style(&command.output),
    );
    delivered(Answer::text(shown), command.output.clone()).await?;

    let mut troubled = BTreeSet::new();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = interrupt.wait_for(|interrupted| *interrupted) => break,
            _ = look.tick() => {
                for (service, pid, trouble) in fleet.troubles() {
                    if troubled.insert(service.clone()) {
                        warn(&in_trouble(&service, pid, &trouble), &command.output);
                    }
                }
            }
        }
    }
    drop(ready);
    // Asked at the end, of all of them: who died stays dead, who was stopped may have gone on.
    let is_dead = |(.., trouble): &(_, _, Trouble)| matches!(trouble, Trouble::Died(_));
    let exit_code = if fleet.troubles().iter().any(is_dead) {
        NOT_MEASURED
    } else {
        0
    };
    fleet.stop().await;
    Ok(exit_code)
}

fn in_trouble(service: &str, pid: u32, trouble: &Trouble) -> String {
    let service = sanitize(service);
    match trouble {
        Trouble::Died(how) => format!("{service} is gone ({how}); the others stay until Ctrl-C"),
        Trouble::Stopped => format!("{service} (pid {pid}) is stopped; `kill -CONT {pid}` lets it go on"),
    }
}

/// Refuses a port that somebody holds, by name, before anything is started.
fn check_free(service: &str, ports: Ports) -> Result<(), Failure> {
    for (flag, port, what) in [
        ("--port", ports.service, "called"),
        ("--control-port", ports.control, "asked"),
    ] {
        // A port 0 takes a free one.
        if let Err(error) = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Err(Failure::usage(format!(
                "port {port}, where {service} is to be {what}, cannot be had ({error}): end what holds it (another `up`? \
                 `status` shows it), or give another port with {flag} {service}=PORT"
            )));
        }
    }
    Ok(())
}

async fn is_there(otlp: &str) -> bool {
    let address = otlp.trim_start_matches("http://");
    let connected = timeout(KNOCK, tokio::net::TcpStream::connect(address)).await;
    matches!(connected, Ok(Ok(_)))
}

fn starts(command: &Up) -> Vec<Start> {
    let configs = command.scenario.configs().split_off(1);
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let configs = configs.into_iter().zip(&command.ports).map(|(config, ports)| Config {
        listen: at(ports.service),
        control_listen: at(ports.control),
        otlp: command.otlp.clone().map_or(Export::None, Export::To),
        ..config
    });
    command.scenario.starts(configs.collect())
}

fn started(command: &Up, fleet: &Fleet) -> text::Started {
    let services = fleet.members.iter().map(|member| text::StartedService {
        name: member.name.clone(),
        address: member.address.to_string(),
        control: member.control.to_string(),
    });
    let is_usual = fleet
        .members
        .iter()
        .all(|member| crate::scenario::CONTROL_PORTS.contains(&member.control.port));
    text::Started {
        chain: command.scenario.line().quoted(),
        services: services.collect(),
        attach: (!is_usual).then(|| fleet.attach().to_string()),
        otlp: command.otlp.clone(),
    }
}

/// The file that says how to attach; gone when this is.
struct Ready<'a> {
    file: &'a Path,
    text: String,
}

/// What the file begins with: one that does not is somebody's own.
const READY: &str = "# Written by `up`, and gone when it ends.\n";

impl<'a> Ready<'a> {
    /// Refuses a file that is somebody else's, or that of a chain which is still up.
    fn check(file: &Path) -> Result<(), Failure> {
        output::check_writable(&Target::File(file.to_owned())).map_err(|error| Failure::usage(text::chain(&error)))?;
        let shown = sanitize(&file.display().to_string());
        match std::fs::symlink_metadata(file) {
            Err(_) => return Ok(()),
            Ok(found) if found.is_file() => {}
            Ok(_) => {
                return Err(Failure::usage(format!(
                    "{shown} is no plain file, and `up` takes its file away at its end: name another one"
                )));
            }
        }
        let found = std::fs::read_to_string(file).unwrap_or_default();
        if !found.starts_with(READY) && !found.is_empty() {
            return Err(Failure::usage(format!(
                "{shown} is there and was not written by `up`, which would take it away at its end: name another file"
            )));
        }
        let controls: toml::Table = found.parse().unwrap_or_default();
        let answers = |control: &toml::Value| {
            let address = control.as_str().and_then(|address| address.parse::<SocketAddr>().ok());
            address.is_some_and(|address| std::net::TcpStream::connect_timeout(&address, KNOCK).is_ok())
        };
        if controls.values().any(answers) {
            return Err(Failure::usage(format!(
                "{shown} belongs to a chain that is still up: name another file"
            )));
        }
        Ok(())
    }

    fn write(file: &'a Path, fleet: &Fleet) -> Result<Self, Failure> {
        let pairs: toml::Table = fleet
            .members
            .iter()
            .map(|member| (member.name.clone(), member.control.to_string().into()))
            .collect();
        let text = format!("{READY}{pairs}");
        output::write(&Target::File(file.to_owned()), text.as_bytes())
            .map_err(|error| Failure::not_measured(text::chain(&error)))?;
        Ok(Self { file, text })
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        if std::fs::read_to_string(self.file).is_ok_and(|found| found == self.text) {
            let _ = std::fs::remove_file(self.file);
        }
    }
}

/// One request to a chain that is up, and all that it caused.
pub(super) async fn call(command: Call) -> Result<Answer, Failure> {
    let targets = Targets::of(&command.output)?;
    let mut runner = Runner::new(
        DEFAULT_MAX_CALLS,
        command.otlp.as_deref(),
        command.viewer,
        &command.output,
    )?;
    let subject = Subject::Attached {
        link: command.link,
        change: Box::new(command.change),
        expect: Vec::new(),
    };
    let ran = runner.run(subject).await?;
    let report = &ran.report;
    if report.services.iter().all(|service| service.received.is_none()) {
        return Err(Failure::not_measured(
            "the chain has ended while the request was under way: nothing can be said of it",
        ));
    }
    let failed = report.operations.by_code.keys().next();
    let exit_code = match failed.and_then(|name| code::parse_failure(name).ok()) {
        Some(code) => FAILED + u8::try_from(code as i32).unwrap_or(0),
        None if report.operations.ok == 1 => 0,
        None => NOT_MEASURED,
    };
    let said = ran.last_failure.as_deref();
    Ok(Answer {
        exit_code,
        shown: text::call(report, said, &command.output.program, style(&command.output)),
        files: targets.with_json(|| json::report(report)),
        missed: Vec::new(),
    })
}

/// Other settings for a chain that is up.
pub(super) async fn switch(command: Switch) -> Result<Answer, Failure> {
    let targets = Targets::of(&command.output)?;
    let mut standing = standing(&command.link).await?;
    let before = standing.configs();
    let said = said(&command.to, &command.link);
    let heals_all = matches!(&command.to, SwitchTo::Heal(services) if services.is_empty());
    let overrides = overrides(command.to, &before)?;
    let change = Change {
        source: None,
        overrides,
    };
    let scenario = changed(&standing, &change)?;
    let after = scenario.configs().split_off(1);
    let different = standing.differences(&after);
    let settings = standing::whole(&different, &after, heals_all);
    let is_different = different.iter().any(|settings| !settings.is_empty());
    let generation = if is_different {
        standing.switch(&settings).await?
    } else {
        standing.generation()
    };
    let switched = report::Switched {
        schema: SWITCH_SCHEMA.to_owned(),
        command: said,
        generation,
        changes: changes(&before, &different),
        prediction: predict(&scenario),
    };
    Ok(Answer {
        exit_code: 0,
        shown: text::switched(&switched, &command.output.program, style(&command.output)),
        files: targets.with_json(|| json::switched(&switched)),
        missed: Vec::new(),
    })
}

/// The command line of a switch, without the program's name.
fn said(to: &SwitchTo, link: &Link) -> String {
    let words: Vec<String> = match to {
        SwitchTo::Fail(faults) => {
            let faults = faults.iter().map(|(service, fault)| match service {
                Some(service) => format!("{service}={fault}"),
                None => fault.to_string(),
            });
            std::iter::once("fail".to_owned()).chain(faults).collect()
        }
        SwitchTo::Heal(services) => [&["heal".to_owned()][..], services].concat(),
        SwitchTo::Retry(overrides) => retry_words(overrides),
    };
    let mut words: Vec<_> = words.iter().map(|word| shell_quoted(word)).collect();
    words.extend(link.is_flagged.then(|| link.attach.flag()));
    words.join(" ")
}

fn retry_words(overrides: &Overrides) -> Vec<String> {
    let mut words = vec!["retry".to_owned()];
    words.extend(overrides.attempts.map(|attempts| attempts.to_string()));
    let at = overrides.attempts_at.iter();
    words.extend(at.map(|(caller, attempts)| format!("{caller}={attempts}")));
    let mut flag = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
    if let Some(owner) = &overrides.owner {
        flag("--owner", owner);
    }
    if let Some(retry_on) = &overrides.retry_on {
        flag("--retry-on", &retry_on.to_string());
    }
    for set in &overrides.set {
        flag("--set", set);
    }
    words
}

/// What a switch says, in flags; names are checked against the running chain.
fn overrides(to: SwitchTo, configs: &[Config]) -> Result<Overrides, Failure> {
    let services: Vec<_> = configs.iter().map(|config| config.service.as_str()).collect();
    let (bottom, above) = services.split_last().ok_or_else(|| Failure::usage("no service runs"))?;
    let faults = match to {
        SwitchTo::Retry(overrides) => {
            let named = overrides
                .attempts_at
                .iter()
                .map(|(caller, _)| caller)
                .chain(&overrides.owner);
            for caller in named {
                known("caller", caller, above)?;
            }
            return Ok(with_an_owner_that_retries(*overrides, configs));
        }
        SwitchTo::Fail(faults) => {
            let mut met = BTreeSet::new();
            for (service, _) in &faults {
                let service = service.as_deref().unwrap_or(bottom);
                known("service", service, &services)?;
                if !met.insert(service.to_owned()) {
                    return Err(Failure::usage(format!(
                        "{service} is given two faults; a service has one"
                    )));
                }
            }
            faults
        }
        SwitchTo::Heal(healed) => {
            for service in &healed {
                known("service", service, &services)?;
            }
            let is_meant = |name: &&&str| healed.is_empty() || healed.iter().any(|healed| healed == **name);
            let meant = services.iter().filter(is_meant);
            meant
                .map(|name| (Some((*name).to_owned()), Fault::NONE.into()))
                .collect()
        }
    };
    Ok(Overrides {
        faults,
        ..Overrides::default()
    })
}

/// Who is to own the retries and makes one attempt gets as many as anybody makes: otherwise nobody would retry.
fn with_an_owner_that_retries(mut overrides: Overrides, configs: &[Config]) -> Overrides {
    let attempts = |config: &Config| config.retry.attempts;
    let Some(owner) = overrides.owner.clone() else {
        return overrides;
    };
    let has_one = configs
        .iter()
        .any(|config| config.service == owner && attempts(config) == 1);
    let is_said = overrides.attempts.is_some() || overrides.attempts_at.iter().any(|(caller, _)| *caller == owner);
    if has_one && !is_said {
        let callers = configs.iter().filter(|config| config.callee.is_some());
        let most = callers.map(attempts).max().filter(|most| *most > 1);
        overrides.attempts_at.push((owner, most.unwrap_or(DEFAULT_ATTEMPTS)));
    }
    overrides
}

/// Refuses a name that is not in the running chain; what looks like a fault is told apart from a service.
fn known(what: &str, name: &str, names: &[&str]) -> Result<(), Failure> {
    if names.contains(&name) {
        return Ok(());
    }
    let hint = did_you_mean(name, names.iter().copied().chain(["refuse", "fail", "down"]));
    let list: Vec<_> = names.iter().map(|name| sanitize(name)).collect();
    Err(Failure::usage(format!(
        "`{}` is no {what} of the running chain{hint} ({what}s: {})",
        sanitize(name),
        list.join(", ")
    )))
}

/// What is different, service by service from the top.
fn changes(before: &[Config], settings: &[Settings]) -> Vec<Changed> {
    let rows = before.iter().zip(settings).flat_map(|(config, settings)| {
        let pairs = config.write();
        settings.iter().map(move |(name, to)| {
            let value = |text: &str| {
                if text.is_empty() {
                    "none".to_owned()
                } else {
                    text.to_owned()
                }
            };
            Changed {
                service: config.service.clone(),
                setting: name.trim_start_matches(PREFIX).to_ascii_lowercase(),
                from: value(pairs.get(name).map_or("", String::as_str)),
                to: value(to),
            }
        })
    });
    rows.collect()
}

/// What a chain that is up has counted.
pub(super) async fn status(command: Status) -> Result<Answer, Failure> {
    let targets = Targets::of(&command.output)?;
    let standing = standing(&command.link).await?;
    let flag = command.link.is_flagged.then_some(&command.link.attach);
    let status = status::read(&standing, flag).await.map_err(RunError::from)?;
    Ok(Answer {
        exit_code: 0,
        shown: text::status(&status, &command.output.program, style(&command.output)),
        files: targets.with_json(|| json::status(&status)),
        missed: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healed(services: &[&str]) -> Vec<String> {
        let configs = ["frontend", "pricing", "inventory"].map(Config::named);
        let to = SwitchTo::Heal(services.iter().map(|name| (*name).to_owned()).collect());
        let overrides = overrides(to, &configs).map_err(|failure| failure.message);
        let faults = overrides.expect("services of the chain").faults;
        faults
            .into_iter()
            .map(|(service, fault)| {
                assert_eq!(fault, Fault::NONE.into());
                service.expect("a service by its name")
            })
            .collect()
    }

    #[test]
    fn only_the_named_services_are_healed_and_all_where_none_is_named() {
        assert_eq!(healed(&["pricing"]), ["pricing"]);
        assert_eq!(healed(&[]), ["frontend", "pricing", "inventory"]);
    }
}
