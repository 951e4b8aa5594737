//! What a file's keys mean together, and flags on top: the way from a source to a validated [`Scenario`].

use super::{
    Caller, Chain, Load, Mesh, Overrides, Place, Scenario, ScenarioError, Service, SidecarKind, builtin,
    read::{Draft, RetryKeys, ServiceKeys},
    repeat::key,
    sidecars::{OWN_KEYS, ProxyKeys, UndeclaredKey},
    suggest::did_you_mean,
    tree::Node,
    values::{MAX_SCENARIO_NAME, default_concurrency},
};
use crate::{
    chain_line::{self, CLIENT, ChainLine, ChainLineError, Hop, proxy_name},
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
pub(crate) const CUSTOM: &str = "custom";
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
        // First: how often a mesh tries may depend on whether anybody is there.
        self.override_faults(&mut chain)?;
        self.fill_mesh(&mut chain, &line);
        self.override_attempts(&mut chain)?;
        self.settle_proxies(&mut chain)?;
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
        let proxy_attempts = self.draft.sidecars.attempts;
        let mut services: Vec<_> = callers
            .iter()
            .map(|name| Hop {
                name: name.clone(),
                attempts,
                proxy_attempts,
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
        let proxies = self.draft.sidecars.of.iter();
        let proxies = proxies.map(|ProxyKeys { caller, place, .. }| (caller, place));
        let layers = self.draft.undeclared.iter();
        let layers = layers.map(|UndeclaredKey { caller, place, .. }| (caller, place));
        for (caller, place) in proxies.chain(layers) {
            check_caller(caller, &names).map_err(|message| ScenarioError::Wrong {
                place: place.clone(),
                message,
            })?;
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
                calls: keys.and_then(|keys| keys.calls).unwrap_or(1),
                fan_out: keys.and_then(|keys| keys.fan_out).unwrap_or_default(),
            })
        };
        Ok(Chain {
            sidecar: self.overrides.sidecar.or(self.draft.sidecars.kind).unwrap_or_default(),
            client,
            services: line
                .services
                .iter()
                .enumerate()
                .map(service)
                .collect::<Result<_, _>>()?,
        })
    }

    /// A caller's own keys over those of the chain; attempts come from the line, which has the chain's already. Its proxy gets
    /// its policy when all is known of its attempts.
    fn caller(&self, hop: &Hop, own: &RetryKeys, transport_codes: TransportCodes) -> Result<Caller, ScenarioError> {
        let own_name = if hop.name == CLIENT {
            "[client.retry]".to_owned()
        } else {
            format!("[services.{}.retry]", key(&hop.name))
        };
        let tables = [Table(own_name, own), Table("[retry]".to_owned(), &self.draft.retry)];
        let proxy = self.draft.sidecars.of(&hop.name).and_then(|keys| keys.attempts);
        let undeclared = self.draft.undeclared.iter().find(|layer| layer.caller == hop.name);
        Ok(Caller {
            retry: self.policy(&hop.name, own.attempts.unwrap_or(hop.attempts), &tables)?,
            proxy: Policy {
                attempts: proxy.or(hop.proxy_attempts).unwrap_or(1),
                ..Policy::default()
            },
            undeclared: undeclared.map_or(1, |layer| layer.attempts),
            transport_codes,
        })
    }

    /// A policy of what tables say, the first of them first.
    fn policy(&self, whose: &str, attempts: u32, tables: &[Table<'_>]) -> Result<Policy, ScenarioError> {
        fn first<T>(tables: &[Table<'_>], of: impl Fn(&RetryKeys) -> Option<T>) -> Option<T> {
            tables.iter().find_map(|Table(_, keys)| of(keys))
        }
        let retry_on = self.overrides.retry_on.clone();
        let retry_on = retry_on.or_else(|| first(tables, |keys| keys.retry_on.clone()));
        let policy = Policy {
            attempts,
            retry_on: retry_on.unwrap_or_default(),
            connect_failure: first(tables, |keys| keys.connect_failure).unwrap_or(true),
            backoff: first(tables, |keys| keys.backoff).and_then(Option::from),
            attempt_timeout: first(tables, |keys| keys.attempt_timeout).and_then(Option::from),
            commit: first(tables, |keys| keys.commit).unwrap_or_default(),
            pushback: first(tables, |keys| keys.pushback).unwrap_or(true),
            throttle: first(tables, |keys| keys.throttle).and_then(Option::from),
            budget: first(tables, |keys| keys.budget).and_then(Option::from),
            hedge: first(tables, |keys| keys.hedge).and_then(Option::from),
            only_first_tries: first(tables, |keys| keys.only_first_tries).unwrap_or_default(),
        };
        policy.checked().map_err(|_| hedge_with_backoff(whose, tables))
    }

    /// `--mesh`: the attempts of the proxies between two services of which nobody has said how many they make.
    fn fill_mesh(&self, chain: &mut Chain, line: &ChainLine) {
        let Some(mesh) = self.overrides.mesh else { return };
        let sidecars = &self.draft.sidecars;
        for place in 1..chain.services.len() {
            let is_closed = chain.services[place].fault.own().refuses();
            let above = &mut chain.services[place - 1];
            let told = sidecars.of(&above.name).and_then(|keys| keys.attempts);
            let told = told.or(line.services[place - 1].proxy_attempts).or(sidecars.attempts);
            if told.is_none() {
                above.caller.proxy.attempts = mesh.attempts(is_closed);
            }
        }
    }

    /// `--attempts` and `--sidecar-attempts`, then `--owner`, then those at one caller: the later ones win.
    fn override_attempts(&self, chain: &mut Chain) -> Result<(), ScenarioError> {
        let flags = self.overrides;
        for (_, caller) in chain.callers_mut().skip(1) {
            caller.retry.attempts = flags.attempts.unwrap_or(caller.retry.attempts);
            caller.proxy.attempts = flags.sidecar_attempts.unwrap_or(caller.proxy.attempts);
        }
        if let Some(owner) = &flags.owner {
            let kept = caller_mut(chain, owner, &format!("--owner {owner}"))?.retry.attempts;
            let promoted = owner == CLIENT && kept == 1;
            let kept = if promoted {
                flags.attempts.unwrap_or(DEFAULT_ATTEMPTS)
            } else {
                kept
            };
            for (_, caller) in chain.callers_mut() {
                caller.retry.attempts = 1;
                caller.proxy.attempts = 1;
            }
            caller_mut(chain, owner, "--owner")?.retry.attempts = kept;
        }
        at_callers(chain, "--attempts-at", &flags.attempts_at, |caller| {
            &mut caller.retry.attempts
        })?;
        at_callers(chain, "--sidecar-attempts-at", &flags.sidecar_attempts_at, |caller| {
            &mut caller.proxy.attempts
        })?;
        at_callers(chain, "--undeclared", &flags.undeclared, |caller| {
            &mut caller.undeclared
        })
    }

    /// Gives the proxies that there are in the end their policies: a proxy inherits `[retry]`, and nothing of its caller's own.
    fn settle_proxies(&self, chain: &mut Chain) -> Result<(), ScenarioError> {
        let keys = &self.draft.sidecars;
        let of_mesh = RetryKeys {
            retry_on: self.overrides.mesh.and_then(Mesh::retry_on),
            ..RetryKeys::default()
        };
        let services: Vec<_> = chain.services.iter().map(|service| service.name.clone()).collect();
        for (name, caller) in chain.callers_mut() {
            if !caller.has_proxy() {
                self.refuse_keys_of_no_proxy(name)?;
                continue;
            }
            let proxy = proxy_name(name);
            if services.contains(&proxy) {
                return Err(ChainLineError::ProxyName(proxy).into());
            }
            if OWN_KEYS.contains(&name) {
                let message = format!(
                    "the proxy under `{name}` could not be told from [sidecars] {name}, a key of its own; give the service \
                     another name"
                );
                return Err(flag("the chain line", message));
            }
            let none = RetryKeys::default();
            let tables = [
                Table(
                    format!("[sidecars.{}.retry]", key(name)),
                    keys.of(name).unwrap_or(&none),
                ),
                Table("[sidecars.retry]".to_owned(), &keys.retry),
                Table("--mesh".to_owned(), &of_mesh),
                Table("[retry]".to_owned(), &self.draft.retry),
            ];
            caller.proxy = self.policy(&proxy, caller.proxy.attempts, &tables)?;
        }
        if !chain.has_proxies() {
            if let (Some(kind), None) = (self.overrides.sidecar, &self.overrides.owner) {
                let message = "no link of this chain has a proxy; give them one: --sidecar-attempts 3".to_owned();
                return Err(flag(&format!("--sidecar {}", kind.name()), message));
            }
            chain.sidecar = SidecarKind::default();
        }
        Ok(())
    }

    /// Refuses a proxy's table where there is no proxy, unless a flag took it away.
    fn refuse_keys_of_no_proxy(&self, name: &str) -> Result<(), ScenarioError> {
        let flags = self.overrides;
        let is_flagged = flags.owner.is_some()
            || flags.mesh.is_some()
            || flags.sidecar_attempts.is_some()
            || !flags.sidecar_attempts_at.is_empty();
        let tables = &self.draft.sidecars.of;
        match tables.iter().find(|keys| keys.caller == name) {
            Some(ProxyKeys { retry, place, .. }) if retry.attempts.is_none() && !is_flagged => {
                Err(ScenarioError::Wrong {
                    place: place.clone(),
                    message: format!(
                        "{name} has no proxy that these keys could be of; give it attempts, as in --sidecar-attempts-at \
                         {name}=3"
                    ),
                })
            }
            _ => Ok(()),
        }
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
            requests: flags
                .requests
                .or(file.requests)
                .or(flags.requests_unless_said)
                .unwrap_or(1),
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

/// A retry table under its name.
struct Table<'a>(String, &'a RetryKeys);

/// Both waits at one caller, at the place of its own one, or else of the one that it shares.
fn hedge_with_backoff(whose: &str, tables: &[Table<'_>]) -> ScenarioError {
    let from = |has: fn(&RetryKeys) -> bool| {
        let table = tables.iter().find(|Table(_, keys)| has(keys));
        table.map_or("", |Table(name, _)| name.as_str())
    };
    let own = from(|_| true);
    let message = format!(
        "{whose} would have a hedge, from {}, and a backoff, from {}, and they exclude each other: a hedge does not wait \
         for a failure; take one out, or set it to \"none\" in {own}",
        from(|keys| keys.hedge.is_some()),
        from(|keys| keys.backoff.is_some()),
    );
    let place = tables.iter().find_map(|Table(_, keys)| keys.waits_place.clone());
    ScenarioError::Wrong {
        place: place.unwrap_or_else(|| Place::flag(own)),
        message,
    }
}

/// What a repeatable flag says of single callers.
fn at_callers(
    chain: &mut Chain,
    name: &str,
    pairs: &[(String, u32)],
    attempts: fn(&mut Caller) -> &mut u32,
) -> Result<(), ScenarioError> {
    for (position, (caller, number)) in pairs.iter().enumerate() {
        let typed = format!("{name} {caller}={number}");
        if pairs[..position].iter().any(|(earlier, _)| earlier == caller) {
            let message = format!("`{}` has its attempts from another flag already", sanitize(caller));
            return Err(flag(&typed, message));
        }
        *attempts(caller_mut(chain, caller, &typed)?) = *number;
    }
    Ok(())
}

/// The caller of this name, or why there is none.
fn caller_mut<'a>(chain: &'a mut Chain, name: &str, typed: &str) -> Result<&'a mut Caller, ScenarioError> {
    let names: Vec<_> = chain.services.iter().map(|service| service.name.as_str()).collect();
    check_caller(name, &names).map_err(|message| flag(typed, message))?;
    let mut callers = chain.callers_mut();
    let found = callers.find(|(known, _)| *known == name).map(|(_, caller)| caller);
    Ok(found.expect("a caller that was found"))
}

/// Refuses a name that is no caller's in a chain of these services.
fn check_caller(name: &str, services: &[&str]) -> Result<(), String> {
    let (bottom, callers) = services.split_last().expect("a chain has at least two services");
    if name == *bottom {
        return Err(format!("{name} is the bottom service and calls nobody"));
    }
    let callers: Vec<_> = std::iter::once(CLIENT).chain(callers.iter().copied()).collect();
    if callers.contains(&name) {
        Ok(())
    } else {
        Err(unknown("caller", name, &callers))
    }
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
