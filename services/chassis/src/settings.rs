//! What is in force in a process. A live switch is a new numbered generation, never a mutation that old counts can leak into:
//! an arrival keeps the generation it came under to its end, and everything it causes in this process goes by that one.

use crate::{
    allowance::Allowance,
    config::{Config, ConfigError, SWITCHABLE},
    listen::Gate,
    seen::Seen,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thiserror::Error;
use tokio::sync::watch;

/// One generation of settings.
#[derive(Debug)]
pub struct Generation {
    /// Its number; the first is 1.
    pub number: u64,
    /// The configuration in force.
    pub config: Config,
    /// What has arrived under it, as far as a fault may ask: `first=N` begins anew with each generation.
    seen: Mutex<Seen>,
    /// What has passed the fault in its outbound stack, likewise.
    seen_outbound: Mutex<Seen>,
    /// What its calls may still retry: full again with each generation.
    pub allowance: Arc<Allowance>,
}

impl Generation {
    /// The settings a process starts with.
    pub fn first(config: Config) -> Arc<Self> {
        Self::numbered(1, config)
    }

    fn numbered(number: u64, config: Config) -> Arc<Self> {
        Arc::new(Self {
            number,
            allowance: Allowance::of(&config.retry),
            config,
            seen: Mutex::default(),
            seen_outbound: Mutex::default(),
        })
    }

    /// What has arrived under these settings.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has passed the fault in the outbound stack under these settings.
    pub fn seen_outbound(&self) -> MutexGuard<'_, Seen> {
        self.seen_outbound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The settings in force, and the way to change them.
#[derive(Debug)]
pub struct Live {
    now: watch::Sender<Arc<Generation>>,
    gate: watch::Sender<Gate>,
}

/// Why settings cannot be put in force.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SwitchError {
    /// Somebody else was quicker.
    #[error("generation {in_force} is in force; a new one has a higher number than {asked}")]
    Stale {
        /// The number in force.
        in_force: u64,
        /// The number that was asked for.
        asked: u64,
    },
    /// A setting that is fixed while the process lives.
    #[error("{0} cannot be switched while the service runs (can be: {can})", can = SWITCHABLE.join(", "))]
    Fixed(String),
    /// A value that cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Live {
    /// Starts with generation 1.
    pub fn new(config: Config) -> Arc<Self> {
        let first = Generation::first(config);
        let gate = watch::Sender::new(Gate::of(&first.config.fault));
        Arc::new(Self {
            now: watch::Sender::new(first),
            gate,
        })
    }

    /// The generation in force.
    pub fn now(&self) -> Arc<Generation> {
        Arc::clone(&self.now.borrow())
    }

    /// Whether the service port is open, for the accept loop.
    pub fn gate(&self) -> watch::Receiver<Gate> {
        self.gate.subscribe()
    }

    /// Puts settings in force. Names left out keep their value, an empty value is the default.
    pub fn switch(&self, number: u64, settings: &BTreeMap<String, String>) -> Result<(), SwitchError> {
        if let Some(fixed) = settings.keys().find(|name| !SWITCHABLE.contains(&name.as_str())) {
            return Err(SwitchError::Fixed(fixed.clone()));
        }
        let mut switched = Ok(());
        self.now.send_if_modified(|now| {
            switched = next(now, number, settings).map(|next| *now = next);
            switched.is_ok()
        });
        switched?;
        let gate = Gate::of(&self.now().config.fault);
        self.gate.send_if_modified(|now| std::mem::replace(now, gate) != gate);
        Ok(())
    }
}

fn next(now: &Generation, number: u64, settings: &BTreeMap<String, String>) -> Result<Arc<Generation>, SwitchError> {
    if number <= now.number {
        return Err(SwitchError::Stale {
            in_force: now.number,
            asked: number,
        });
    }
    let mut pairs = now.config.write();
    pairs.extend(settings.clone());
    Ok(Generation::numbered(number, Config::read(&pairs)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn an_arrival_keeps_the_settings_it_came_under() {
        let live = Live::new(Config::named("inventory"));
        let before = live.now();
        live.switch(
            2,
            &settings(&[("RETRYSCOPE_FAULT", "fail"), ("RETRYSCOPE_ATTEMPTS", "5")]),
        )
        .unwrap();
        assert_eq!((before.number, before.config.fault), (1, Fault::NONE));
        let now = live.now();
        assert_eq!((now.number, now.config.retry.attempts), (2, 5));
        assert_ne!(now.config.fault, Fault::NONE);
        live.switch(7, &settings(&[("RETRYSCOPE_ATTEMPTS", "")])).unwrap();
        assert_eq!(live.now().config.retry.attempts, 1);
    }

    #[test]
    fn the_gate_follows_the_fault() {
        let live = Live::new(Config::named("inventory"));
        let gate = live.gate();
        live.switch(2, &settings(&[("RETRYSCOPE_FAULT", "refuse")])).unwrap();
        assert_eq!(*gate.borrow(), Gate::Closed);
        live.switch(3, &settings(&[("RETRYSCOPE_FAULT", "none")])).unwrap();
        assert_eq!(*gate.borrow(), Gate::Open);
    }

    #[test]
    fn a_refused_switch_changes_nothing() {
        let live = Live::new(Config::named("inventory"));
        live.switch(3, &settings(&[])).unwrap();
        let refused = [
            (3, settings(&[("RETRYSCOPE_FAULT", "fail")])),
            (4, settings(&[("RETRYSCOPE_LISTEN", "127.0.0.1:1")])),
            (4, settings(&[("RETRYSCOPE_FAULT", "explode")])),
            (4, settings(&[("RETRYSCOPE_ATTEMPTS", "0")])),
            (4, settings(&[("PATH", "/")])),
        ];
        for (number, settings) in refused {
            assert!(live.switch(number, &settings).is_err(), "{settings:?}");
        }
        assert_eq!((live.now().number, live.now().config.fault), (3, Fault::NONE));
    }
}
