//! From a scenario to the configuration of each process.

use super::{Caller, MAX_RUNNABLE, Scenario};
use crate::chain_line::{CLIENT, proxy_name};
use chassis::{
    config::Config,
    fault::{ClientFault, Fault},
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

/// The service ports that `up` takes by default, from frontend's to inventory's.
pub const SERVICE_PORTS: [u16; MAX_RUNNABLE] = [50051, 50052, 50053, 50054];
/// The control ports that `up` takes by default.
pub const CONTROL_PORTS: [u16; MAX_RUNNABLE] = [50061, 50062, 50063, 50064];
/// Most services that can be attached to.
pub const MAX_SERVICES_ATTACHED: usize = MAX_RUNNABLE;

impl Role {
    /// All of them, from the top.
    pub const ALL: [Self; MAX_RUNNABLE] = [Self::Frontend, Self::Checkout, Self::Pricing, Self::Inventory];

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
            let attempts = caller.proxy_attempts.0;
            let retry = Policy {
                attempts,
                ..caller.retry.clone()
            };
            (attempts > 1).then(|| Config {
                retry,
                fault: Fault::NONE,
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

    /// Which process each service is, from the top; `None` when the chain is longer than the processes there are.
    pub fn roles(&self) -> Option<Vec<Role>> {
        let above = Role::ALL.len().checked_sub(self.chain.services.len())?;
        Some(Role::ALL[above..].to_vec())
    }
}
