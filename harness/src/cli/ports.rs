//! Where each service of a chain that stays up is reached.

use super::{CliError, Ports, flags::PortFlags, resolve::number};
use crate::{
    sanitize::sanitize,
    scenario::{CONTROL_PORTS, SERVICE_PORTS, Scenario, suggest::did_you_mean},
};

/// One of the two kinds of ports.
struct Kind {
    flag: &'static str,
    /// What the port is for.
    purpose: &'static str,
}

const SERVICE: Kind = Kind {
    flag: "--port",
    purpose: "calls",
};
const CONTROL: Kind = Kind {
    flag: "--control-port",
    purpose: "control",
};

/// The ports of a chain that can be run, the top service first: those of the process that each service is, unless a flag gives it
/// another.
pub(super) fn read(flags: &PortFlags, scenario: &Scenario) -> Result<Vec<Ports>, CliError> {
    let names: Vec<_> = scenario.service_names().collect();
    let called = with_defaults(&SERVICE, &flags.port, &names, &SERVICE_PORTS)?;
    let asked = with_defaults(&CONTROL, &flags.control_port, &names, &CONTROL_PORTS)?;
    refuse_twice(&names, &called, &asked)?;
    let ports = called.into_iter().zip(asked);
    Ok(ports.map(|(service, control)| Ports { service, control }).collect())
}

fn with_defaults(kind: &Kind, pairs: &[String], names: &[&str], defaults: &[u16]) -> Result<Vec<u16>, CliError> {
    let flag = kind.flag;
    // A short chain enters lower, so its bottom is still inventory's process.
    let mut ports = defaults[defaults.len().saturating_sub(names.len())..].to_vec();
    let mut given: Vec<&str> = Vec::new();
    for pair in pairs {
        let (service, port) = pair.split_once('=').ok_or_else(|| {
            CliError::refused(format_args!(
                "{flag} {}: write SERVICE=PORT, as in {flag} {}={}",
                sanitize(pair),
                names[0],
                ports[0]
            ))
        })?;
        let service = service.trim();
        let Some(position) = names.iter().position(|name| *name == service) else {
            let hint = did_you_mean(service, names.iter().copied());
            return Err(CliError::refused(format_args!(
                "{flag} {}: no service `{}` is in this chain{hint} (its services: {})",
                sanitize(pair),
                sanitize(service),
                names.join(", ")
            )));
        };
        if given.contains(&service) {
            return Err(CliError::refused(format_args!(
                "{flag} {}: {service} has its port from another {flag} already",
                sanitize(pair)
            )));
        }
        given.push(service);
        let right = "write a port from 1 to 65535, or 0 for a free one";
        let port = number(&format!("{flag} {service}="), port, 0, u16::MAX.into(), right)?;
        ports[position] = u16::try_from(port).unwrap_or(u16::MAX);
    }
    Ok(ports)
}

/// Refuses one port for two purposes; any number of them may be free ones.
fn refuse_twice(names: &[&str], called: &[u16], asked: &[u16]) -> Result<(), CliError> {
    let taken = |kind: &'static Kind, ports: &[u16]| {
        let pairs = names.iter().zip(ports);
        pairs
            .map(|(name, port)| (*port, *name, kind))
            .filter(|(port, ..)| *port != 0)
            .collect::<Vec<_>>()
    };
    let all = [taken(&SERVICE, called), taken(&CONTROL, asked)].concat();
    for (place, (port, name, kind)) in all.iter().enumerate() {
        if let Some((_, other, before)) = all[..place].iter().find(|(earlier, ..)| earlier == port) {
            return Err(CliError::refused(format_args!(
                "port {port} would be {other}'s for {} and {name}'s for {}; give one of them another with {} {other}=PORT or \
                 {} {name}=PORT",
                before.purpose, kind.purpose, before.flag, kind.flag
            )));
        }
    }
    Ok(())
}
