//! What stands on the links, as a file writes it: `[sidecars]` and `undeclared`. What it means together with flags and the chain
//! line, `build` says.

use super::{
    ScenarioError, SidecarKind,
    read::{BELOW_RETRY, Keys, RetryKeys, Section, integer, text, wrong},
    suggest::did_you_mean,
    tree::{Entry, Place, Value},
};
use crate::sanitize::sanitize;
use chassis::policy::{Budget, MAX_ATTEMPTS};

/// What the kind of the proxies may be.
pub(crate) const SIDECAR_RIGHT: &str = "write builtin (our own) or envoy";
/// Keys of `[sidecars]` besides the callers' names. No caller of such a name has a proxy: its table could not be told apart.
pub(super) const OWN_KEYS: [&str; 4] = ["kind", "attempts", "max_retries", "retry"];

const PROXY: Keys = Keys {
    known: &["retry"],
    below: &BELOW_RETRY,
};

/// `[sidecars]`.
#[derive(Debug, Default)]
pub(super) struct SidecarKeys {
    pub(super) kind: Option<SidecarKind>,
    /// Attempts of every proxy on a link between two services.
    pub(super) attempts: Option<u32>,
    /// Where they stand.
    pub(super) attempts_place: Option<Place>,
    /// What all proxies have; `max_retries` is its budget, and it has no attempts of its own.
    pub(super) retry: RetryKeys,
    /// `[sidecars.CALLER]`.
    pub(super) of: Vec<ProxyKeys>,
}

/// `[sidecars.CALLER]`.
#[derive(Debug)]
pub(super) struct ProxyKeys {
    pub(super) caller: String,
    pub(super) place: Place,
    pub(super) retry: RetryKeys,
}

/// One of `undeclared`.
#[derive(Debug)]
pub(super) struct UndeclaredKey {
    pub(super) caller: String,
    pub(super) place: Place,
    pub(super) attempts: u32,
}

impl SidecarKeys {
    pub(super) fn read(entry: &Entry) -> Result<Self, ScenarioError> {
        let Value::Table(entries) = &entry.node.value else {
            return Err(wrong(entry, "write a table: [sidecars]"));
        };
        let mut keys = Self::default();
        for entry in entries {
            match entry.key.as_str() {
                "kind" => keys.kind = Some(kind(entry)?),
                "attempts" => {
                    let right = format!("write 1 to {MAX_ATTEMPTS}, the first attempt included");
                    keys.attempts = u32::try_from(integer(entry, 1, MAX_ATTEMPTS.into(), &right)?).ok();
                    keys.attempts_place = Some(entry.place.clone());
                }
                // Read behind this loop: they go into one table, whichever stands first.
                "retry" | "max_retries" => {}
                _ => keys.of.push(proxy(entry)?),
            }
        }
        let find = |key: &str| entries.iter().find(|entry| entry.key == key);
        keys.retry = RetryKeys::read(find("retry"), "sidecars.retry")?;
        if let Some(attempts) = keys.retry.attempts.take() {
            let place = find("retry").map(|entry| entry.inside("attempts").place.clone());
            if keys.attempts.replace(attempts).is_some() {
                return Err(ScenarioError::Wrong {
                    place: place.unwrap_or_else(|| entry.place.clone()),
                    message: "[sidecars.retry] attempts and [sidecars] attempts say the same; leave one of the two out"
                        .to_owned(),
                });
            }
            keys.attempts_place = place;
        }
        if let Some(entry) = find("max_retries") {
            keys.max_retries(entry)?;
        }
        Ok(keys)
    }

    /// Envoy's limit of the retries at once: a budget that no share of the traffic adds to.
    fn max_retries(&mut self, entry: &Entry) -> Result<(), ScenarioError> {
        let right = format!("write 0 to {}, the retries at once of each proxy", u32::MAX);
        let most = integer(entry, 0, u32::MAX.into(), &right)?;
        let budget = Budget::InFlight {
            percent_milli: 0,
            min_concurrency: u32::try_from(most).unwrap_or(u32::MAX),
        };
        if self.retry.budget.replace(super::OrNone::Is(budget)).is_some() {
            return Err(ScenarioError::Wrong {
                place: entry.place.clone(),
                message: "[sidecars] max_retries and the budget of [sidecars.retry] limit the same retries; leave one of the \
                          two out"
                    .to_owned(),
            });
        }
        Ok(())
    }

    /// What the table of one proxy says.
    pub(super) fn of(&self, caller: &str) -> Option<&RetryKeys> {
        let keys = self.of.iter().find(|keys| keys.caller == caller);
        keys.map(|keys| &keys.retry)
    }
}

fn kind(entry: &Entry) -> Result<SidecarKind, ScenarioError> {
    let read = text(entry, SIDECAR_RIGHT)?;
    let kind = SidecarKind::ALL.into_iter().find(|kind| kind.name() == read.trim());
    kind.ok_or_else(|| wrong(entry, SIDECAR_RIGHT))
}

fn proxy(entry: &Entry) -> Result<ProxyKeys, ScenarioError> {
    let shown = sanitize(&entry.key);
    if !matches!(entry.node.value, Value::Table(_)) {
        let hint = did_you_mean(&entry.key, OWN_KEYS);
        return Err(ScenarioError::UnknownKey {
            place: entry.place.clone(),
            key: shown,
            section: "[sidecars]".to_owned(),
            advice: format!("{hint} (keys: {}; and [sidecars.CALLER.retry])", OWN_KEYS.join(", ")),
        });
    }
    let path = format!("sidecars.{shown}");
    let table = Section::table(entry, &path, &PROXY)?;
    Ok(ProxyKeys {
        caller: entry.key.clone(),
        place: entry.place.clone(),
        retry: RetryKeys::read(table.get("retry"), &format!("{path}.retry"))?,
    })
}

/// `undeclared = { CALLER = N }`.
pub(super) fn undeclared(entry: &Entry) -> Result<Vec<UndeclaredKey>, ScenarioError> {
    let Value::Table(entries) = &entry.node.value else {
        return Err(wrong(entry, "write { CALLER = N }, as in { pricing = 4 }"));
    };
    let right = format!("write 2 to {MAX_ATTEMPTS}, what the layer behind this caller makes of each attempt");
    let one = |entry: &Entry| {
        Ok(UndeclaredKey {
            caller: entry.key.clone(),
            place: entry.place.clone(),
            attempts: u32::try_from(integer(entry, 2, MAX_ATTEMPTS.into(), &right)?).unwrap_or(MAX_ATTEMPTS),
        })
    };
    entries.iter().map(one).collect()
}
