//! What a file's keys mean together, and flags on top: the way from a source to a validated [`Scenario`].

use super::{
    Caller, Chain, Load, Overrides, Place, Scenario, ScenarioError, Service, SidecarKind, builtin,
    read::{Draft, RetryKeys, ServiceKeys},
    repeat::key,
    suggest::did_you_mean,
    tree::Node,
    values::{MAX_SCENARIO_NAME, OrNone, default_concurrency},
};
use crate::{
    chain_line::{self, CLIENT, ChainLine, Hop},
    sanitize::sanitize,
};
use chassis::{
    config::{OnFailure, TransportCodes},
    fault::{Fault, ServiceFault},
    policy::Policy,
};
use std::{fs::File, io::Read, path::Path, time::Duration};

/// What a command starts from when it is given nothing.
pub const DEFAULT_SCENARIO: &str = "per-hop";
/// Attempts of a caller of the chain unless something says otherwise.
pub const DEFAULT_ATTEMPTS: u32 = 3;
/// What is asked for unless something says otherwise.
pub const DEFAULT_ITEM: &str = "teapot";
/// Time a request has unless something says otherwise.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);
/// The seed unless something says otherwise.
pub(super) const DEFAULT_SEED: u64 = 27;
/// The depth unless something says otherwise.
const DEFAULT_DEPTH: usize = 3;
/// What a chain line's scenario is called.
const CUSTOM: &str = "custom";
/// Most bytes of a scenario file.
const MAX_FILE: u64 = 1 << 20;

impl Default for Load {
    /// One request of the default kind.
    fn default() -> Self {
        Self {
            requests: 1,
            concurrency: 1,
            item: DEFAULT_ITEM.to_owned(),
            deadline: Some(DEFAULT_DEADLINE),
            rate: None,
            cancel_after: None,
            seed: DEFAULT_SEED,
        }
    }
}

impl Scenario {
    /// Reads a built-in scenario, a file or a chain line, puts flags on top and validates the whole. Without a source it is
    /// [`DEFAULT_SCENARIO`].
    pub fn load(source: Option<&str>, overrides: &Overrides) -> Result<Self, ScenarioError> {
        let (mut tree, fallback_name) = tree(source.unwrap_or(DEFAULT_SCENARIO))?;
        for assignment in &overrides.set {
            tree.set(assignment)?;
        }
        let draft = Draft::read(&tree)?;
        Builder { draft, overrides }.scenario(&fallback_name)
    }

    /// Reads the text of a scenario file; `file` is its name in messages.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let draft = Draft::read(&Node::parse(file, text)?)?;
        Builder {
            draft,
            overrides: &Overrides::default(),
        }
        .scenario(CUSTOM)
    }

    /// This scenario with flags on top.
    pub(super) fn with(&self, overrides: &Overrides) -> Result<Self, ScenarioError> {
        let mut keys = self.effective();
        if self.load.concurrency == default_concurrency(self.load.rate)
            && let Some(load) = keys["load"].as_object_mut()
        {
            // It follows the rate, which a flag may set.
            load.remove("concurrency");
        }
        let text = toml::to_string(&keys).expect("the keys of a scenario file are TOML");
        let mut tree = Node::parse("the running services", &text)?;
        for assignment in &overrides.set {
            for assignment in self.of_every_caller(assignment) {
                tree.set(&assignment)?;
            }
        }
        let draft = Draft::read(&tree)?;
        Builder { draft, overrides }.scenario(&self.name)
    }

    /// A key of `[retry]` as each caller has it: here every caller has keys of its own already, which would beat the shared one.
    fn of_every_caller(&self, assignment: &str) -> Vec<String> {
        let Some(rest) = assignment.trim_start().strip_prefix("retry.") else {
            return vec![assignment.to_owned()];
        };
        let services = self
            .chain
            .callers()
            .skip(1)
            .map(|(name, _)| format!("services.{}.retry.{rest}", key(name)));
        // The client makes as many attempts as it is told itself.
        let client = (!rest.trim_start().starts_with("attempts")).then(|| format!("{CLIENT}.retry.{rest}"));
        services.chain(client).collect()
    }

    /// The services' names, top first.
    pub fn service_names(&self) -> impl Iterator<Item = &str> {
        self.chain.services.iter().map(|service| service.name.as_str())
    }
}

/// The names of a chain of so many links, top first.
pub fn default_names(depth: usize) -> Vec<String> {
    let entered = ["frontend", "checkout", "pricing"];
    let mut names: Vec<_> = entered
        .iter()
        .skip(entered.len().saturating_sub(depth))
        .map(|&name| name.to_owned())
        .collect();
    names.extend((1..=depth.saturating_sub(entered.len())).map(|number| format!("relay-{number}")));
    names.push("inventory".to_owned());
    names
}

/// The tree of a source, and the name of a scenario that gives itself none.
fn tree(source: &str) -> Result<(Node, String), ScenarioError> {
    let chain_line = |line: &str| {
        line.parse::<ChainLine>()?;
        Ok((Node::chain_line(line), CUSTOM.to_owned()))
    };
    if let Some(built_in) = builtin::find(source) {
        return Ok((
            Node::parse(&format!("built-in {}", built_in.name), built_in.text)?,
            built_in.name.to_owned(),
        ));
    }
    if source.contains(['>', '→']) {
        return chain_line(source);
    }
    let path = Path::new(source);
    let is_file = source.to_ascii_lowercase().ends_with(".toml") || path.is_file();
    if !is_file && chain_line::is_address(source) {
        return chain_line(source);
    }
    if is_file || source.contains(std::path::is_separator) {
        let text = file_text(path)?;
        let stem: String = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .chars()
            .take(MAX_SCENARIO_NAME)
            .collect();
        let name = if stem.trim().is_empty() {
            CUSTOM.to_owned()
        } else {
            stem
        };
        return Ok((Node::parse(source, &text)?, name));
    }
    if source.trim().contains(char::is_whitespace) {
        return chain_line(source);
    }
    let names: Vec<_> = builtin::BUILT_IN.iter().map(|built_in| built_in.name).collect();
    let hint = did_you_mean(source, names.iter().copied());
    Err(ScenarioError::Unknown {
        name: sanitize(source),
        hint,
        known: names.join(", "),
    })
}

/// A file's text; one that is too large is not read at all.
fn file_text(path: &Path) -> Result<String, ScenarioError> {
    let file_name = sanitize(&path.to_string_lossy());
    let unreadable = |reason: &dyn std::fmt::Display| {
        let reason = sanitize(&reason.to_string());
        ScenarioError::Unreadable {
            file: file_name.clone(),
            reason,
        }
    };
    let size = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            unreadable(&"there is no such file; give its path from here, or a name that `scenarios` lists")
        }
        _ => unreadable(&error),
    })?;
    if size.is_dir() {
        return Err(unreadable(&"it is a folder"));
    }
    if size.len() > MAX_FILE {
        return Err(ScenarioError::TooLarge(file_name));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    // A pipe says nothing of its length beforehand.
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(ScenarioError::TooLarge(file_name));
    }
    String::from_utf8(bytes).map_err(|error| {
        let read = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
        unreadable(&format!("line {} is not UTF-8 text", read.matches('\n').count() + 1))
    })
}

/// Puts a draft and the flags together.
struct Builder<'a> {
    draft: Draft,
    overrides: &'a Overrides,
}

impl Builder<'_> {
    fn scenario(self, fallback_name: &str) -> Result<Scenario, ScenarioError> {
        let line = self.line()?;
        self.check_sections(&line)?;
        let mut chain = self.chain(&line)?;
        self.override_attempts(&mut chain)?;
        self.override_faults(&mut chain)?;
        Ok(Scenario {
            name: self.draft.name.clone().unwrap_or_else(|| fallback_name.to_owned()),
            about: self.draft.about.clone().unwrap_or_default(),
            chain,
            load: self.load(),
        })
    }

    /// The chain as a line: the one that was given, or the usual names by depth.
    fn line(&self) -> Result<ChainLine, ScenarioError> {
        if let Some(line) = &self.draft.line {
            return match self.overrides.depth {
                None => Ok(line.clone()),
                Some(depth) => Err(flag(
                    &format!("--depth {depth}"),
                    format!(
                        "the chain line {} says itself how long the chain is; leave one of the two out",
                        line.quoted()
                    ),
                )),
            };
        }
        let names = default_names(self.overrides.depth.or(self.draft.depth).unwrap_or(DEFAULT_DEPTH));
        let (bottom, callers) = names
            .split_last()
            .map_or(("", &[][..]), |(bottom, callers)| (bottom.as_str(), callers));
        let attempts = self.draft.retry.attempts.unwrap_or(DEFAULT_ATTEMPTS);
        let mut services: Vec<_> = callers
            .iter()
            .map(|name| Hop {
                attempts,
                ..Hop::new(name)
            })
            .collect();
        services.push(Hop::new(bottom));
        Ok(ChainLine {
            client: Hop::new(CLIENT),
            services,
            fault: Fault::NONE,
        })
    }

    /// Refuses sections of services that are not in the chain, and callers' keys of the one that calls nobody.
    fn check_sections(&self, line: &ChainLine) -> Result<(), ScenarioError> {
        let names: Vec<_> = line.services.iter().map(|hop| hop.name.as_str()).collect();
        for ServiceKeys {
            name,
            place,
            caller_key,
            ..
        } in &self.draft.services
        {
            if name == CLIENT {
                let message = "the client is no service; its retries stand in [client.retry]".to_owned();
                return Err(ScenarioError::Wrong {
                    place: place.clone(),
                    message,
                });
            }
            if !names.contains(&name.as_str()) {
                return Err(ScenarioError::Wrong {
                    place: place.clone(),
                    message: unknown("service", name, &names),
                });
            }
            if let (true, Some((key, place))) = (names.last() == Some(&name.as_str()), caller_key) {
                let message = format!("{name} is the bottom service and calls nobody, so it has no {key}");
                return Err(ScenarioError::Wrong {
                    place: place.clone(),
                    message,
                });
            }
        }
        Ok(())
    }

    fn chain(&self, line: &ChainLine) -> Result<Chain, ScenarioError> {
        let codes = self.draft.transport_codes.unwrap_or_default();
        let client = self.caller(&line.client, &self.draft.client, codes)?;
        let last = line.services.len() - 1;
        let service = |(position, hop): (usize, &Hop)| -> Result<Service, ScenarioError> {
            let keys = self.draft.services.iter().find(|keys| keys.name == hop.name);
            let own_codes = keys.and_then(|keys| keys.transport_codes).unwrap_or(codes);
            let fault = keys.and_then(|keys| keys.fault.as_ref());
            if let Some((fault, place)) = fault {
                check_side(fault, &hop.name, caller_above(line, position), place)?;
            }
            let of_line = || ServiceFault::from(if position == last { line.fault } else { Fault::NONE });
            let none = RetryKeys::default();
            Ok(Service {
                name: hop.name.clone(),
                caller: if position == last {
                    Caller::default()
                } else {
                    self.caller(hop, keys.map_or(&none, |keys| &keys.retry), own_codes)?
                },
                on_failure: keys.and_then(|keys| keys.on_failure).unwrap_or(OnFailure::Pass),
                fault: fault.map_or_else(of_line, |(fault, _)| fault.clone()),
                deadline: keys.and_then(|keys| keys.deadline).unwrap_or_default(),
                detached: keys.and_then(|keys| keys.detached).unwrap_or_default(),
            })
        };
        Ok(Chain {
            sidecar: SidecarKind::default(),
            client,
            services: line
                .services
                .iter()
                .enumerate()
                .map(service)
                .collect::<Result<_, _>>()?,
        })
    }

    /// A caller's own keys over those of the chain; attempts come from the line, which has the chain's already.
    fn caller(&self, hop: &Hop, own: &RetryKeys, transport_codes: TransportCodes) -> Result<Caller, ScenarioError> {
        fn set<T>(own: Option<OrNone<T>>, shared: Option<OrNone<T>>) -> Option<T> {
            own.or(shared).and_then(Option::from)
        }
        let shared = &self.draft.retry;
        let retry_on = self
            .overrides
            .retry_on
            .as_ref()
            .or(own.retry_on.as_ref())
            .or(shared.retry_on.as_ref());
        let retry = Policy {
            attempts: own.attempts.unwrap_or(hop.attempts),
            retry_on: retry_on.cloned().unwrap_or_default(),
            connect_failure: true,
            backoff: set(own.backoff, shared.backoff),
            attempt_timeout: set(own.attempt_timeout, shared.attempt_timeout),
            commit: own.commit.or(shared.commit).unwrap_or_default(),
            pushback: own.pushback.or(shared.pushback).unwrap_or(true),
            throttle: set(own.throttle, shared.throttle),
            budget: set(own.budget, shared.budget),
            hedge: set(own.hedge, shared.hedge),
            only_first_tries: own.only_first_tries.or(shared.only_first_tries).unwrap_or_default(),
        };
        let Ok(retry) = retry.checked() else {
            return Err(hedge_with_backoff(&hop.name, own, shared));
        };
        let proxy = Policy {
            attempts: hop.proxy_attempts,
            ..retry.clone()
        };
        Ok(Caller {
            retry,
            proxy,
            undeclared: 1,
            transport_codes,
        })
    }

    /// `--attempts`, then `--owner`, then `--attempts-at`: the later ones win.
    fn override_attempts(&self, chain: &mut Chain) -> Result<(), ScenarioError> {
        if let Some(attempts) = self.overrides.attempts {
            let callers = chain.services.len() - 1;
            for service in &mut chain.services[..callers] {
                service.caller.retry.attempts = attempts;
            }
        }
        if let Some(owner) = &self.overrides.owner {
            let kept = caller_mut(chain, owner, &format!("--owner {owner}"))?.retry.attempts;
            let promoted = owner == CLIENT && kept == 1;
            let kept = if promoted {
                self.overrides.attempts.unwrap_or(DEFAULT_ATTEMPTS)
            } else {
                kept
            };
            let services = chain.services.iter_mut().map(|service| &mut service.caller);
            for caller in std::iter::once(&mut chain.client).chain(services) {
                caller.retry.attempts = 1;
                caller.proxy.attempts = 1;
            }
            caller_mut(chain, owner, "--owner")?.retry.attempts = kept;
        }
        for (position, (name, attempts)) in self.overrides.attempts_at.iter().enumerate() {
            let typed = format!("--attempts-at {name}={attempts}");
            if self.overrides.attempts_at[..position]
                .iter()
                .any(|(earlier, _)| earlier == name)
            {
                return Err(flag(
                    &typed,
                    format!("`{}` has its attempts from another flag already", sanitize(name)),
                ));
            }
            caller_mut(chain, name, &typed)?.retry.attempts = *attempts;
        }
        Ok(())
    }

    fn override_faults(&self, chain: &mut Chain) -> Result<(), ScenarioError> {
        let names: Vec<_> = chain.services.iter().map(|service| service.name.clone()).collect();
        let mut set: Vec<usize> = Vec::new();
        for (name, fault) in &self.overrides.faults {
            let position = match name {
                None => names.len() - 1,
                Some(name) => names.iter().position(|known| known == name).ok_or_else(|| {
                    let names: Vec<_> = names.iter().map(String::as_str).collect();
                    flag(&format!("--fault {name}={fault}"), unknown("service", name, &names))
                })?,
            };
            if set.contains(&position) {
                let message = format!("{} has two --fault flags; a service has one fault", names[position]);
                return Err(flag(&format!("--fault {fault}"), message));
            }
            set.push(position);
            let above = position.checked_sub(1).map_or(CLIENT, |above| names[above].as_str());
            let whose = name.as_ref().map_or_else(String::new, |name| format!("{name}="));
            let place = Place::flag(&format!("--fault {whose}{fault}"));
            check_side(fault, &names[position], above, &place)?;
            chain.services[position].fault = fault.clone();
        }
        Ok(())
    }

    fn load(&self) -> Load {
        let (file, flags) = (&self.draft.load, self.overrides);
        let rate = flags.rate.or(file.rate);
        Load {
            requests: flags.requests.or(file.requests).unwrap_or(1),
            concurrency: flags
                .concurrency
                .or(file.concurrency)
                .unwrap_or_else(|| default_concurrency(rate)),
            item: flags
                .item
                .clone()
                .or_else(|| file.item.clone())
                .unwrap_or_else(|| DEFAULT_ITEM.to_owned()),
            deadline: flags
                .deadline
                .or(file.deadline)
                .map_or(Some(DEFAULT_DEADLINE), Option::from),
            rate,
            cancel_after: flags.cancel_after.or(file.cancel_after),
            seed: flags.seed.or(file.seed).unwrap_or(DEFAULT_SEED),
        }
    }
}

/// Who calls the service at this place of the line.
fn caller_above(line: &ChainLine, position: usize) -> &str {
    position
        .checked_sub(1)
        .map_or(CLIENT, |above| &line.services[above].name)
}

/// Refuses a fault in a caller that does not call this service.
fn check_side(fault: &ServiceFault, service: &str, above: &str, place: &Place) -> Result<(), ScenarioError> {
    match &fault.side {
        Some((caller, _)) if caller != above => Err(ScenarioError::Wrong {
            place: place.clone(),
            message: format!(
                "`{}` does not call {service}, {above} does: write side=client@{above}",
                sanitize(caller)
            ),
        }),
        _ => Ok(()),
    }
}

/// Both waits at one caller, at the place of its own one, or else of the one that all share.
fn hedge_with_backoff(caller: &str, own: &RetryKeys, shared: &RetryKeys) -> ScenarioError {
    let table = if caller == CLIENT {
        "[client.retry]".to_owned()
    } else {
        format!("[services.{}.retry]", key(caller))
    };
    let from = |is_own: bool| if is_own { table.as_str() } else { "[retry]" };
    let message = format!(
        "{caller} would have a hedge, from {}, and a backoff, from {}, and they exclude each other: a hedge does not wait \
         for a failure; take one out, or set it to \"none\" in {table}",
        from(own.hedge.is_some()),
        from(own.backoff.is_some()),
    );
    let place = own.waits_place.as_ref().or(shared.waits_place.as_ref());
    ScenarioError::Wrong {
        place: place.cloned().unwrap_or_else(|| Place::flag(&table)),
        message,
    }
}

/// The caller of this name, or why there is none.
fn caller_mut<'a>(chain: &'a mut Chain, name: &str, typed: &str) -> Result<&'a mut Caller, ScenarioError> {
    if name == CLIENT {
        return Ok(&mut chain.client);
    }
    let callers = chain.services.len() - 1;
    if chain.services[callers].name == name {
        return Err(flag(typed, format!("{name} is the bottom service and calls nobody")));
    }
    let names: Vec<_> = chain.services[..callers]
        .iter()
        .map(|service| service.name.clone())
        .collect();
    if let Some(position) = names.iter().position(|known| known == name) {
        return Ok(&mut chain.services[position].caller);
    }
    let names: Vec<_> = std::iter::once(CLIENT)
        .chain(names.iter().map(String::as_str))
        .collect();
    Err(flag(typed, unknown("caller", name, &names)))
}

/// ``no caller `checkuot` is in this chain; did you mean `checkout`? (client, frontend, checkout, pricing)``.
fn unknown(kind: &str, name: &str, known: &[&str]) -> String {
    let hint = did_you_mean(name, known.iter().copied());
    format!(
        "no {kind} `{}` is in this chain{hint} (its {kind}s: {})",
        sanitize(name),
        known.join(", ")
    )
}

fn flag(typed: &str, message: String) -> ScenarioError {
    ScenarioError::Wrong {
        place: Place::flag(typed),
        message,
    }
}
