//! A running chain as a scenario, and what a command makes different about it.

use super::{Caller, Chain, Load, Overrides, ProxyAttempts, Scenario, ScenarioError, Service, build};
use crate::sanitize::sanitize;
use chassis::{config::Config, policy::Policy};

/// What a command makes different about a running chain.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// A scenario, file or chain line to put in its place; `None` leaves what stands.
    pub source: Option<String>,
    /// What flags say on top.
    pub overrides: Overrides,
}

/// What the scenario of a chain as it stands is called.
const STANDING: &str = "as-it-stands";

impl Scenario {
    /// The scenario that services which say this of themselves run: the top one first. The load is one request of the default
    /// kind, the seed is that of the services whose arrivals are drawn.
    ///
    /// # Errors
    /// Services that draw from different seeds, of which no run could be predicted.
    pub fn standing(configs: &[Config]) -> Result<Self, ScenarioError> {
        let services = configs.iter().map(|config| Service {
            name: config.service.clone(),
            caller: Caller {
                retry: config.retry.clone(),
                proxy_attempts: ProxyAttempts::default(),
                transport_codes: config.transport_codes,
            },
            on_failure: config.on_failure,
            fault: config.fault.into(),
            deadline: config.deadline,
            detached: config.detached,
        });
        let mut services: Vec<_> = services.collect();
        if let Some(bottom) = services.last_mut() {
            // It calls nobody: what it says of its calls is nothing that a scenario knows.
            let transport_codes = bottom.caller.transport_codes;
            bottom.caller = Caller {
                transport_codes,
                ..Caller::default()
            };
            bottom.on_failure = chassis::config::OnFailure::Pass;
        }
        Ok(Self {
            name: STANDING.to_owned(),
            about: String::new(),
            chain: Chain {
                client: Caller {
                    retry: Policy::default(),
                    ..Caller::default()
                },
                services,
            },
            load: Load {
                seed: seed(configs)?,
                ..Load::default()
            },
        })
    }
}

fn seed(configs: &[Config]) -> Result<u64, ScenarioError> {
    let drawing = configs.iter().filter(|config| config.fault.is_drawn());
    let mut seeds: Vec<_> = drawing.map(|config| config.seed).collect();
    seeds.dedup();
    match seeds.as_slice() {
        [] => Ok(configs.first().map_or(build::DEFAULT_SEED, |config| config.seed)),
        [seed] => Ok(*seed),
        _ => Err(ScenarioError::NotRunnable(
            "the running services draw from different seeds: give them one with --seed".to_owned(),
        )),
    }
}

impl Change {
    /// What a chain that stands like this is to be.
    ///
    /// # Errors
    /// A scenario of other services, and everything that flags can get wrong.
    pub fn of(&self, standing: &Scenario) -> Result<Scenario, ScenarioError> {
        let Some(source) = &self.source else {
            return standing.with(&self.overrides);
        };
        let scenario = Scenario::load(Some(source), &self.overrides)?;
        let names = |scenario: &Scenario| scenario.service_names().map(sanitize).collect::<Vec<_>>();
        let (here, there) = (names(standing), names(&scenario));
        if here == there {
            return Ok(scenario);
        }
        Err(ScenarioError::NotRunnable(format!(
            "the running chain is {}, and what was given is about {}: name the running ones in a chain line",
            here.join(" > "),
            there.join(" > ")
        )))
    }
}
