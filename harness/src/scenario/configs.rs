//! From a scenario to the configuration of each process.

use super::{Caller, MAX_STANDING, Scenario, SidecarKind};
use crate::{
    chain_line::{CLIENT, proxy_name},
    envoy,
};
use chassis::{
    config::{Config, Layer},
    fault::ClientFault,
    policy::Policy,
};

/// Which of the four processes a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Calls checkout.
    Frontend,
    /// Calls pricing.
    Checkout,
    /// Calls inventory.
    Pricing,
    /// Calls nobody.
    Inventory,
}

/// What runs as a process of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// One of the four services.
    Service(Role),
    /// Our own forwarder: a proxy, a service in the middle of a long chain, or a layer that nobody declared. A real Envoy may
    /// stand in its place.
    Sidecar,
}

impl Program {
    /// Those that `harness service` serves.
    pub const SERVED: [Self; 5] = [
        Self::Service(Role::Frontend),
        Self::Service(Role::Checkout),
        Self::Service(Role::Pricing),
        Self::Service(Role::Inventory),
        Self::Sidecar,
    ];

    /// What `harness service` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service(role) => role.name(),
            Self::Sidecar => "sidecar",
        }
    }
}

/// What is to be started.
#[derive(Debug, Clone)]
pub struct Start {
    /// What runs; where its configuration is an Envoy's, one in its place.
    pub program: Program,
    /// Its configuration, without addresses.
    pub config: Config,
}

/// The service ports that `up` takes by default, from frontend's to inventory's.
pub const SERVICE_PORTS: [u16; MAX_STANDING] = [50051, 50052, 50053, 50054];
/// The control ports that `up` takes by default.
pub const CONTROL_PORTS: [u16; MAX_STANDING] = [50061, 50062, 50063, 50064];
/// Most services that can be attached to.
pub const MAX_SERVICES_ATTACHED: usize = MAX_STANDING;

impl Role {
    /// All of them, from the top.
    pub const ALL: [Self; MAX_STANDING] = [Self::Frontend, Self::Checkout, Self::Pricing, Self::Inventory];

    /// The name of its crate, its binary and its container.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::Checkout => "checkout",
            Self::Pricing => "pricing",
            Self::Inventory => "inventory",
        }
    }
}

/// A layer that nobody declared, behind a caller: it tries again what the caller does, leaves no spans, and no configuration
/// names it.
fn undeclared(behind: &str, caller: &Caller) -> Config {
    Config {
        layer: Layer::Undeclared,
        retry: Policy {
            attempts: caller.undeclared,
            retry_on: caller.undeclared_retry_on().clone(),
            ..Policy::default()
        },
        ..Config::named(&format!("behind-{behind}"))
    }
}

impl Scenario {
    /// The configuration of every layer: the client first, then the services from the top, a proxy (`CALLER-proxy`) right behind its
    /// caller. Addresses, callees, run and collector are left for whoever starts the processes.
    pub fn configs(&self) -> Vec<Config> {
        let mut configs = Vec::new();
        let layer = |name: &str, caller: &Caller| Config {
            retry: caller.retry.clone(),
            transport_codes: caller.transport_codes,
            seed: self.load.seed,
            ..Config::named(name)
        };
        let proxy = |name: &str, caller: &Caller| {
            caller.has_proxy().then(|| Config {
                retry: match self.chain.sidecar {
                    SidecarKind::Builtin => caller.proxy.clone(),
                    SidecarKind::Envoy => envoy::policy(&caller.proxy),
                },
                layer: match self.chain.sidecar {
                    SidecarKind::Builtin => Layer::Proxy,
                    SidecarKind::Envoy => Layer::Envoy,
                },
                ..layer(&proxy_name(name), caller)
            })
        };
        configs.push(layer(CLIENT, &self.chain.client));
        configs.extend(proxy(CLIENT, &self.chain.client));
        for service in &self.chain.services {
            let own = layer(&service.name, &service.caller);
            configs.push(Config {
                on_failure: service.on_failure,
                deadline: service.deadline,
                detached: service.detached,
                calls: service.calls,
                fan_out: service.fan_out,
                fault: service.fault.own(),
                ..own
            });
            configs.extend(proxy(&service.name, &service.caller));
        }
        self.place_client_faults(&mut configs);
        configs
    }

    /// Puts the faults that sit in a caller into that caller.
    fn place_client_faults(&self, configs: &mut [Config]) {
        for service in &self.chain.services {
            let Some((caller, inside)) = &service.fault.side else {
                continue;
            };
            if let Some(caller) = configs.iter_mut().find(|config| config.service == *caller) {
                caller.client_fault = Some(ClientFault {
                    fault: service.fault.fault,
                    inside: *inside,
                });
            }
        }
    }

    /// The program that each service is, from the top: the bottom one is inventory, those from the top are frontend, checkout
    /// and pricing as far as they go, and what lies between is a sidecar. A short chain enters lower.
    pub fn programs(&self) -> Vec<Program> {
        let services = self.chain.services.len();
        let above = Role::ALL.len().saturating_sub(services);
        let (bottom, callers) = Role::ALL.split_last().expect("there are four");
        let callers = callers[above..].iter().copied().map(Program::Service);
        let between = std::iter::repeat_n(Program::Sidecar, services.saturating_sub(Role::ALL.len()));
        callers.chain(between).chain([Program::Service(*bottom)]).collect()
    }

    /// The service that the client calls.
    pub fn entry(&self) -> Role {
        Role::ALL[Role::ALL.len().saturating_sub(self.chain.services.len())]
    }

    /// Every process below the client, from the top: the services, a proxy right behind its caller, and what nobody declared
    /// behind both. `configs` is what [`Scenario::configs`] gave, without the client, with whatever else was put into it.
    pub fn starts(&self, configs: Vec<Config>) -> Vec<Start> {
        let mut configs = configs.into_iter().peekable();
        let mut programs = self.programs().into_iter();
        let mut starts = Vec::new();
        for (name, caller) in self.chain.callers() {
            if caller.has_proxy()
                && let Some(config) = configs.next()
            {
                starts.push(Start {
                    program: Program::Sidecar,
                    config,
                });
            }
            if caller.undeclared > 1 {
                starts.push(Start {
                    program: Program::Sidecar,
                    config: undeclared(name, caller),
                });
            }
            if let (Some(program), Some(config)) = (programs.next(), configs.next()) {
                starts.push(Start { program, config });
            }
        }
        starts
    }
}
