//! Commands for a chain that stays up, as meant.

use super::{
    Call, CliError, Command, Link, Status, Switch, SwitchTo, Up,
    flags::{CallFlags, FailFlags, HealFlags, LinkFlag, RetryCommandFlags, StatusFlags, UpFlags},
    ports,
    resolve::{
        OF_THE_LINKS, Resolver, attempts, attempts_at, chain_overrides, fault, one_source, refuse_keys,
        request_overrides, retry_overrides, runnable,
    },
};
use crate::{
    attach::Attach,
    chain_line::{CLIENT, is_name},
    sanitize::sanitize,
    scenario::{Change, Overrides, SidecarKind},
};
use chassis::fault::{Fault, FaultError, ServiceFault};
use std::path::{Path, PathBuf};

/// Sections of a scenario that say what is sent and by whom: no service is told them.
const OF_THE_CLIENT: [&str; 2] = ["client", "load"];
/// What makes the default scenario's services all work.
const WORKING: &str = "services.inventory.fault=none";

impl Resolver<'_> {
    pub(super) fn up(&self, flags: &UpFlags) -> Result<Command, CliError> {
        let source = one_source(&flags.scenario, "up")?;
        let mut overrides = chain_overrides(&flags.chain)?;
        self.refuse_client("up", &overrides)?;
        // The seed is the one key of the load that services are told.
        let is_seed = |assignment: &&String| {
            assignment
                .split('=')
                .next()
                .is_some_and(|path| path.trim() == "load.seed")
        };
        let others: Vec<_> = flags.set.set.iter().filter(|each| !is_seed(each)).cloned().collect();
        let why = "up sends nothing; what is sent belongs to run and call";
        refuse_keys(&others, &OF_THE_CLIENT, why)?;
        if source.is_none() {
            // So that the first thing done to it can be to break it.
            overrides.set.push(WORKING.to_owned());
        }
        overrides.set.extend(flags.set.set.iter().cloned());
        if overrides.sidecar == Some(SidecarKind::Envoy) {
            return Err(CliError::refused(
                "a chain that stays up has no Envoys: run starts them for itself",
            ));
        }
        let scenario = runnable(source, &overrides)?;
        scenario.check_stays_up().map_err(CliError::refused)?;
        let client = scenario.chain.client.retry.attempts;
        if client > 1 {
            return Err(CliError::refused(format_args!(
                "up starts services, and the client that makes {client} attempts here is none of them: leave it out, and let \
                 the calls say it: {} call --attempts-at client={client}",
                self.program
            )));
        }
        Ok(Command::Up(Up {
            ports: ports::read(&flags.ports, &scenario)?,
            ready_file: flags.ports.ready_file.as_deref().map(ready_file).transpose()?,
            otlp: self.otlp(&flags.otlp)?,
            output: self.output_of_text(&flags.color),
            scenario,
        }))
    }

    pub(super) fn call(&self, flags: &CallFlags) -> Result<Command, CliError> {
        let mut overrides = Overrides {
            attempts_at: attempts_at("", &flags.attempts_at, &flags.retries_at)?,
            ..Overrides::default()
        };
        match overrides.attempts_at.as_slice() {
            [(caller, attempts)] if caller != CLIENT => {
                return Err(CliError::refused(format_args!(
                    "a call says how often the client tries, not {0}; for that: {1} retry {0}={attempts}",
                    sanitize(caller),
                    self.program
                )));
            }
            [] | [_] => {}
            _ => {
                return Err(CliError::refused(
                    "--attempts-at and --retries-at: a call takes one of them, once, for the client",
                ));
            }
        }
        request_overrides(flags.item.as_deref(), flags.deadline.as_deref(), &mut overrides)?;
        Ok(Command::Call(Call {
            link: self.link(&flags.link)?,
            change: Change {
                source: None,
                overrides,
            },
            otlp: self.otlp(&flags.otlp)?,
            viewer: self.viewer(&flags.viewer)?,
            output: self.output(&flags.output)?,
        }))
    }

    pub(super) fn fail(&self, flags: &FailFlags) -> Result<Command, CliError> {
        let mut faults: Vec<(Option<String>, ServiceFault)> = Vec::new();
        for pair in flags.faults.windows(2) {
            let (first, second) = (self.broken(&pair[0])?, self.broken(&pair[1])?);
            if let ((Some(service), plain), (None, _)) = (first, second)
                && plain == Fault::down().into()
                && pair[0] == service
            {
                return Err(CliError::refused(format_args!(
                    "fail {0} {1}: to give {0} this fault write {0}={1}; for two services name both, as in fail {0} \
                     inventory={1}",
                    sanitize(&pair[0]),
                    sanitize(&pair[1])
                )));
            }
        }
        for word in &flags.faults {
            let (service, fault) = self.broken(word)?;
            if faults.iter().any(|(earlier, _)| *earlier == service) {
                let whose = service.as_deref().unwrap_or("the bottom service");
                return Err(CliError::refused(format_args!(
                    "fail {}: {} has a fault from another word already, and a service has one",
                    sanitize(word),
                    sanitize(whose)
                )));
            }
            faults.push((service, fault));
        }
        if faults.is_empty() {
            faults.push((None, Fault::down().into()));
        }
        Ok(Command::Switch(Switch {
            link: self.link(&flags.link)?,
            to: SwitchTo::Fail(faults),
            output: self.output(&flags.output)?,
        }))
    }

    /// One word of `fail`: `[SERVICE=]FAULT`, or a service that plainly fails.
    fn broken(&self, word: &str) -> Result<(Option<String>, ServiceFault), CliError> {
        let program = &self.program;
        if let Err(FaultError::UnknownKind(_)) = word.parse::<Fault>()
            && is_name(word)
        {
            self.refuse_client_service("fail", word)?;
            return Ok((Some(word.to_owned()), Fault::down().into()));
        }
        let (service, fault) = fault("fail", word)?;
        if let Some(service) = &service {
            self.refuse_client_service("fail", service)?;
            if !is_name(service) {
                return Err(CliError::refused(format_args!(
                    "fail {}: what stands before = is no service's name",
                    sanitize(word)
                )));
            }
        }
        if fault.fault.is_none() {
            let healed = service.map_or_else(String::new, |service| format!(" {}", sanitize(&service)));
            return Err(CliError::refused(format_args!(
                "fail {}: none is no failure; to make it work again: {program} heal{healed}",
                sanitize(word)
            )));
        }
        Ok((service, fault))
    }

    pub(super) fn heal(&self, flags: HealFlags) -> Result<Command, CliError> {
        for word in &flags.services {
            self.refuse_client_service("heal", word)?;
            if !is_name(word) {
                return Err(CliError::refused(format_args!(
                    "heal {}: this is no service's name; write heal SERVICE, or heal alone for all of them",
                    sanitize(word)
                )));
            }
        }
        Ok(Command::Switch(Switch {
            link: self.link(&flags.link)?,
            to: SwitchTo::Heal(flags.services),
            output: self.output(&flags.output)?,
        }))
    }

    pub(super) fn retry(&self, flags: &RetryCommandFlags) -> Result<Command, CliError> {
        let program = &self.program;
        if flags.attempts_of.is_empty() && flags.retry.is_empty() && flags.set.set.is_empty() {
            return Err(CliError::refused(format_args!(
                "retry wants to know who makes how many attempts: {program} retry 1 (nobody retries), {program} retry \
                 frontend=3, {program} retry --owner frontend"
            )));
        }
        let mut overrides = retry_overrides(&flags.retry)?;
        overrides.set.clone_from(&flags.set.set);
        for word in &flags.attempts_of {
            if let Some((caller, number)) = word.split_once('=') {
                let caller = caller.trim();
                if !is_name(caller) {
                    return Err(wrong_attempts(word));
                }
                let number = attempts(&format!("retry {caller}="), number)?;
                overrides.attempts_at.push((caller.to_owned(), number));
            } else if word.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '+')) {
                let number = attempts("retry ", word)?;
                if overrides.attempts.replace(number).is_some() {
                    return Err(CliError::refused(format_args!(
                        "retry {number}: how often every caller tries is said twice; say it once, and CALLER=N for one of them"
                    )));
                }
            } else {
                return Err(wrong_attempts(word));
            }
        }
        self.refuse_client("retry", &overrides)?;
        for (place, (caller, number)) in overrides.attempts_at.iter().enumerate() {
            if overrides.attempts_at[..place]
                .iter()
                .any(|(earlier, _)| earlier == caller)
            {
                let caller = sanitize(caller);
                return Err(CliError::refused(format_args!(
                    "retry {caller}={number}: how often {caller} tries is said twice"
                )));
            }
        }
        let why = "the services are not told what is sent; it belongs to run and call";
        refuse_keys(&overrides.set, &OF_THE_CLIENT, why)?;
        let why = "a chain that already runs has the services it has";
        refuse_keys(&overrides.set, &["chain"], why)?;
        let why = "a chain that already runs has what stands on its links";
        refuse_keys(&overrides.set, &OF_THE_LINKS, why)?;
        Ok(Command::Switch(Switch {
            link: self.link(&flags.link)?,
            to: SwitchTo::Retry(Box::new(overrides)),
            output: self.output(&flags.output)?,
        }))
    }

    pub(super) fn status(&self, flags: &StatusFlags) -> Result<Command, CliError> {
        Ok(Command::Status(Status {
            link: self.link(&flags.link)?,
            output: self.output(&flags.output)?,
        }))
    }

    /// The chain that is meant: where nobody names one, the one that `up` keeps running by default.
    fn link(&self, flag: &LinkFlag) -> Result<Link, CliError> {
        let link = self.attached(flag)?;
        Ok(link.unwrap_or(Link {
            attach: Attach::Default,
            is_flagged: false,
        }))
    }

    /// The client stands outside of a running chain: nothing can be switched there.
    fn refuse_client(&self, command: &str, overrides: &Overrides) -> Result<(), CliError> {
        let program = &self.program;
        if let Some((_, attempts)) = overrides.attempts_at.iter().find(|(caller, _)| caller == CLIENT) {
            return Err(CliError::refused(format_args!(
                "{command} says nothing to the client, whose attempts belong to a call: {program} call --attempts-at \
                 client={attempts}"
            )));
        }
        if overrides.owner.as_deref() == Some(CLIENT) {
            let attempts = overrides.attempts.unwrap_or(crate::scenario::DEFAULT_ATTEMPTS);
            let alone = if command == "up" { "up --attempts 1" } else { "retry 1" };
            return Err(CliError::refused(format_args!(
                "{command} --owner client: the client's attempts belong to a call: {program} {alone}, then {program} call \
                 --attempts-at client={attempts}"
            )));
        }
        Ok(())
    }

    fn refuse_client_service(&self, command: &str, service: &str) -> Result<(), CliError> {
        if service == CLIENT {
            return Err(CliError::refused(format_args!(
                "{command} client: the client is no service; {} status shows those there are",
                self.program
            )));
        }
        Ok(())
    }
}

fn wrong_attempts(word: &str) -> CliError {
    CliError::refused(format_args!(
        "retry {}: write N for the attempts of every caller, or CALLER=N, as in retry checkout=3",
        sanitize(word)
    ))
}

fn ready_file(path: &str) -> Result<PathBuf, CliError> {
    if path.is_empty() {
        return Err(CliError::refused("--ready-file wants a file"));
    }
    if Path::new(path).is_dir() {
        return Err(CliError::refused(format_args!(
            "--ready-file {}: this is a folder; name a file in it",
            sanitize(path)
        )));
    }
    Ok(PathBuf::from(path))
}
