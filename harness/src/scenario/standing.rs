//! A running chain as a scenario, and what a command makes different about it.

use super::{Caller, Chain, Load, Overrides, Scenario, ScenarioError, Service, SidecarKind, build};
use crate::sanitize::sanitize;
use chassis::{
    config::{Config, FanOut, Layer, PassedOn},
    fault::{Fault, ServiceFault},
    policy::Policy,
};

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
    /// Services that draw from different seeds, of which no run could be predicted; one that misbehaves itself and in its
    /// caller too, which no scenario says; what is no service.
    pub fn standing(configs: &[Config]) -> Result<Self, ScenarioError> {
        if let Some(other) = configs.iter().find(|config| config.layer != Layer::Service) {
            return Err(ScenarioError::NotRunnable(format!(
                "`{}` is no service ({}), and a chain that already runs is known by its services: leave it out",
                sanitize(&other.service),
                other.layer
            )));
        }
        let faults: Vec<_> = (0..configs.len())
            .map(|place| fault(configs, place))
            .collect::<Result<_, _>>()?;
        let services = configs.iter().zip(faults).map(|(config, fault)| Service {
            name: config.service.clone(),
            caller: Caller {
                retry: config.retry.clone(),
                transport_codes: config.transport_codes,
                ..Caller::default()
            },
            on_failure: config.on_failure,
            fault,
            deadline: config.deadline,
            detached: config.detached,
            calls: config.calls,
            fan_out: config.fan_out,
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
            bottom.deadline = PassedOn::Pass;
            (bottom.calls, bottom.fan_out) = (1, FanOut::default());
        }
        Ok(Self {
            name: STANDING.to_owned(),
            about: String::new(),
            chain: Chain {
                sidecar: SidecarKind::default(),
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

/// How the service at this place misbehaves, or its caller in its place.
fn fault(configs: &[Config], place: usize) -> Result<ServiceFault, ScenarioError> {
    let own = configs[place].fault;
    let above = place.checked_sub(1).map(|above| &configs[above]);
    let Some((caller, client)) = above.and_then(|above| Some((&above.service, above.client_fault?))) else {
        return Ok(own.into());
    };
    if own != Fault::NONE {
        let (service, caller) = (sanitize(&configs[place].service), sanitize(caller));
        return Err(ScenarioError::NotRunnable(format!(
            "{service} misbehaves ({own}), and {caller} too on its way to it ({client}): a run knows one of the two; heal {service}"
        )));
    }
    Ok(ServiceFault {
        fault: client.fault,
        side: Some((caller.clone(), client.inside)),
    })
}

fn seed(configs: &[Config]) -> Result<u64, ScenarioError> {
    let is_drawn =
        |config: &&Config| config.fault.is_drawn() || config.client_fault.is_some_and(|client| client.fault.is_drawn());
    let drawing = configs.iter().filter(is_drawn);
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
            return standing.with(&self.overrides).and_then(of_what_runs);
        };
        let scenario = of_what_runs(Scenario::load(Some(source), &self.overrides)?)?;
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

/// No process is started or stopped in a chain that runs: what was given is refused where it has more of them.
fn of_what_runs(scenario: Scenario) -> Result<Scenario, ScenarioError> {
    scenario.check_stays_up()?;
    Ok(scenario)
}
