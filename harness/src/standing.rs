//! A chain that already runs, whoever started it: found by its control ports, put in order by what the services say whom they
//! call, switched as a whole.

use crate::{
    attach::Attach,
    lab::{Described, Lab, LabError, Token},
    sanitize::sanitize,
};
use chassis::{
    address::Address,
    config::{CLIENT_FAULT, Config, DETACHED, FAULT, SEED, SWITCHABLE},
};
use futures_util::future::join_all;
use proto::lab::v1 as lab;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};
use thiserror::Error;
use tonic::Streaming;

/// A running chain, the top service first.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Its services.
    pub services: Vec<Service>,
}

/// One running service.
#[derive(Debug, Clone)]
pub struct Service {
    /// Its name in the chain line, as it says.
    pub name: String,
    /// Its service port, as it is reached from here.
    pub address: Address,
    /// Its control port.
    pub lab: Lab,
    /// What it says of itself.
    pub described: Described,
}

/// What changes at one service, in the names that the environment uses.
pub type Settings = BTreeMap<String, String>;

/// Why there is no chain to attach to.
#[derive(Debug, Error)]
pub enum StandingError {
    /// Nothing answers where `up` would.
    #[error("no chain is running on the usual ports: start one with `up`, or name one with --attach")]
    Nobody,
    /// A service cannot be asked, or refuses.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A service of the chain that `up` keeps does not answer.
    #[error("{caller} calls {missing}, which answers on none of the usual control ports: it has ended or is stopped")]
    Gone {
        /// Who calls it.
        caller: String,
        /// Its name.
        missing: String,
    },
    /// A service has another name than was said.
    #[error("the service at {control} says that it is {is}, not {expected}")]
    Name {
        /// Its control port.
        control: Address,
        /// The name that was given.
        expected: String,
        /// The name it gives.
        is: String,
    },
    /// The services do not make one chain.
    #[error("{0}")]
    NoChain(String),
    /// Others keep switching.
    #[error(
        "somebody else is switching this chain: the settings that this was about are no longer in force; try again"
    )]
    Contended,
}

/// How often a switch is tried again when somebody else was quicker.
const SWITCHES: u32 = 40;
/// Longest pause before the next try, drawn anew each time, so that two do not keep in step.
const PAUSE_MS: u64 = 25;

impl Standing {
    /// Finds the chain.
    pub async fn find(attach: &Attach, token: &Token) -> Result<Self, StandingError> {
        let ports = attach.ports();
        let asked = ports.iter().map(async |(expected, control)| {
            let lab = Lab::at(expected.unwrap_or("a service"), control, token);
            let described = lab.describe().await?;
            Ok::<_, LabError>((expected, control, lab, described))
        });
        let mut services = Vec::new();
        for answer in join_all(asked).await {
            match answer {
                Ok((expected, control, lab, described)) => {
                    let name = described.config.service.clone();
                    if let Some(expected) = expected
                        && *expected != name
                    {
                        return Err(StandingError::Name {
                            control: control.clone(),
                            expected: (*expected).to_owned(),
                            is: sanitize(&name),
                        });
                    }
                    let address = Address {
                        host: control.host.clone(),
                        port: described.config.listen.port(),
                    };
                    services.push(Service {
                        lab: lab.named(&name),
                        name,
                        address,
                        described,
                    });
                }
                // Nobody named these ports: a closed one belongs to a shorter chain.
                Err(error) if *attach == Attach::Default && error.is_refused() => {}
                Err(error) => return Err(error.into()),
            }
        }
        if services.is_empty() {
            return Err(StandingError::Nobody);
        }
        if *attach == Attach::Default
            && let Some((caller, missing)) = missing(&services)
        {
            let (caller, missing) = (sanitize(caller), sanitize(missing));
            return Err(StandingError::Gone { caller, missing });
        }
        Ok(Self {
            services: in_order(services)?,
        })
    }

    /// The configurations, the top service first.
    pub fn configs(&self) -> Vec<Config> {
        let configs = self.services.iter().map(|service| service.described.config.clone());
        configs.collect()
    }

    /// What has to be switched at each service to get to these configurations.
    pub fn differences(&self, to: &[Config]) -> Vec<Settings> {
        let services = self.services.iter().zip(to);
        services
            .map(|(service, to)| difference(&service.described.config, to))
            .collect()
    }

    /// The labs, the top service first.
    pub fn labs(&self) -> Vec<Lab> {
        self.services.iter().map(|service| service.lab.clone()).collect()
    }

    /// The newest generation anywhere.
    pub fn generation(&self) -> u64 {
        let numbers = self.services.iter().map(|service| service.described.generation);
        numbers.max().unwrap_or(0)
    }

    /// Whether every service has the same generation in force: otherwise each request would meet several.
    pub fn is_level(&self) -> bool {
        let newest = self.generation();
        self.services
            .iter()
            .all(|service| service.described.generation == newest)
    }

    /// Asks every service anew what it says of itself.
    pub async fn describe(&mut self) -> Result<(), LabError> {
        let labs = self.labs();
        let described = join_all(labs.iter().map(Lab::describe)).await;
        for (service, described) in self.services.iter_mut().zip(described) {
            service.described = described?;
        }
        Ok(())
    }

    /// Puts settings in force at every service, one map each from the top, as one new generation. Services whose map is empty
    /// get the number too. Whoever else switches meanwhile is told to try again, or tells us: the last one wins, whole.
    pub async fn switch(&mut self, settings: &[Settings]) -> Result<u64, StandingError> {
        for _ in 0..SWITCHES {
            let generation = self.generation() + 1;
            let labs = self.labs();
            // The bottom first: a request that gets through meanwhile meets two generations and is seen to.
            let mut stale = false;
            for (lab, settings) in labs.iter().zip(settings).rev() {
                match lab.switch(generation, settings.clone()).await {
                    Ok(()) => {}
                    // Whoever got the bottom goes on; the other begins again, one number higher. Both going on would mix them.
                    Err(error) if error.is_stale() => {
                        stale = true;
                        break;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            if stale {
                tokio::time::sleep(Duration::from_millis(rand::random_range(1..=PAUSE_MS))).await;
            }
            self.describe().await?;
            // Somebody else may have put a newer one in force by now: ours was, and its number is what we know it by.
            if !stale {
                return Ok(generation);
            }
        }
        Err(StandingError::Contended)
    }

    /// Request numbers for nobody else: the first of `count`, so far up from those that have been seen.
    pub async fn reserve(&self, count: u64, further_up: u64) -> Result<u64, LabError> {
        let seen = self.services.iter().map(|service| service.described.highest_request);
        let at_least = seen.max().unwrap_or(0) + 1 + further_up;
        self.services[0].lab.reserve(count, at_least).await
    }

    /// Has requests counted apart at every service, as long as the streams are kept.
    pub async fn follow(
        &self,
        range: (u64, u64),
        (otlp, run): (&str, &str),
        span_queue: usize,
    ) -> Result<(Vec<Lab>, Vec<Streaming<lab::Following>>), LabError> {
        let asked = self
            .services
            .iter()
            .map(|service| service.lab.follow(range, (otlp, run), span_queue));
        let answers: Result<Vec<_>, _> = join_all(asked).await.into_iter().collect();
        Ok(answers?.into_iter().unzip())
    }

    /// This machine's address as the services reach it, for what they are to send here.
    ///
    /// # Errors
    /// No route leads to the top service.
    pub async fn own_address(&self) -> std::io::Result<std::net::IpAddr> {
        let control = self.services[0].lab.address();
        let mut addresses = tokio::net::lookup_host((control.host.as_str(), control.port)).await?;
        let peer = addresses
            .next()
            .ok_or_else(|| std::io::Error::other(format!("{control} has no address")))?;
        let any: SocketAddr = if peer.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            ([0_u16; 8], 0).into()
        };
        // Nothing is sent: connecting a datagram socket only chooses the way.
        let socket = tokio::net::UdpSocket::bind(any).await?;
        socket.connect(peer).await?;
        Ok(socket.local_addr()?.ip())
    }
}

/// The services from the one that nobody calls down to the one that calls nobody.
fn in_order(mut services: Vec<Service>) -> Result<Vec<Service>, StandingError> {
    let no_chain = |text: String| Err(StandingError::NoChain(sanitize(&text)));
    if let Some((caller, missing)) = missing(&services) {
        return no_chain(format!(
            "{caller} calls {missing}, which is not among the attached services: add {missing}=CONTROL_ADDR"
        ));
    }
    let is_called = |name: &str| services.iter().any(|other| callee(other) == Some(name));
    let tops: Vec<_> = (0..services.len())
        .filter(|place| !is_called(&services[*place].name))
        .collect();
    let [top] = tops.as_slice() else {
        let names: Vec<_> = services.iter().map(|service| service.name.as_str()).collect();
        return no_chain(format!(
            "{} do not make one chain: {} of them are called by none of the others",
            names.join(", "),
            tops.len()
        ));
    };
    let mut ordered = vec![services.swap_remove(*top)];
    while let Some(next) = ordered.last().and_then(callee).map(str::to_owned)
        && let Some(place) = services.iter().position(|service| service.name == next)
    {
        ordered.push(services.swap_remove(place));
    }
    if let Some(left) = services.first() {
        return no_chain(format!("{} is not called by the others", left.name));
    }
    if ordered.len() < 2 {
        return no_chain(format!("{} alone is no chain: it calls nobody", ordered[0].name));
    }
    Ok(ordered)
}

/// A service, and whom it calls, where that one is not among the others.
fn missing(services: &[Service]) -> Option<(&str, &str)> {
    let is_among = |name: &str| services.iter().any(|service| service.name == name);
    let gap = |service: &Service| callee(service).is_some_and(|callee| !is_among(callee));
    let caller = services.iter().find(|service| gap(service))?;
    Some((&caller.name, callee(caller)?))
}

fn callee(service: &Service) -> Option<&str> {
    let callee = service.described.config.callee.as_ref();
    callee.map(|callee| callee.name.as_str())
}

/// What has to be switched to get from one configuration to another; what is left out of the second is its default.
pub fn difference(from: &Config, to: &Config) -> Settings {
    // Who calls nobody may say what it likes of its calls.
    let calls = from.callee.is_some() || to.callee.is_some();
    let (from, to) = (from.write(), to.write());
    let changed = SWITCHABLE
        .into_iter()
        .filter(|name| calls || [FAULT, SEED, DETACHED].contains(name))
        .filter(|name| from.get(*name) != to.get(*name));
    changed
        .map(|name| (name.to_owned(), to.get(name).cloned().unwrap_or_default()))
        .collect()
}

/// What a switch has to say so that the last one wins whole: a setting that differs anywhere is said to everybody, since
/// somebody else may be half through with another value of it. Faults are each service's own, unless all are healed.
pub fn whole(different: &[Settings], to: &[Config], faults_too: bool) -> Vec<Settings> {
    let names: BTreeSet<&String> = different.iter().flat_map(Settings::keys).collect();
    let said = different.iter().zip(to).map(|(different, to)| {
        let pairs = to.write();
        let is_own = |name: &str| [FAULT, CLIENT_FAULT].contains(&name);
        let shared = names.iter().filter(|name| faults_too || !is_own(name));
        let mut settings = different.clone();
        for name in shared {
            settings.insert((*name).clone(), pairs.get(*name).cloned().unwrap_or_default());
        }
        settings
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chassis::config::Callee;

    fn service(name: &str, callee: Option<&str>) -> Service {
        let address: Address = "127.0.0.1:1".parse().unwrap();
        let callee = callee.map(|name| Callee {
            name: name.to_owned(),
            address: address.clone(),
        });
        Service {
            name: name.to_owned(),
            lab: Lab::at(name, &address, &Token::default()),
            address,
            described: Described {
                config: Config {
                    callee,
                    ..Config::named(name)
                },
                generation: 1,
                pid: 1,
                exports_to: String::new(),
                highest_request: 0,
                seen: 0,
            },
        }
    }

    #[tokio::test]
    async fn the_order_is_what_the_services_say() {
        let ordered = in_order(vec![
            service("db", None),
            service("web", Some("api")),
            service("api", Some("db")),
        ]);
        let names: Vec<_> = ordered.unwrap().into_iter().map(|service| service.name).collect();
        assert_eq!(names, ["web", "api", "db"]);
    }

    #[tokio::test]
    async fn what_is_no_chain_is_named() {
        for (services, named) in [
            (
                vec![
                    service("web", Some("db")),
                    service("app", Some("db")),
                    service("db", None),
                ],
                "not make one chain",
            ),
            (vec![service("web", Some("api")), service("api", Some("db"))], "add db="),
            (vec![service("db", None)], "no chain"),
            (
                vec![service("a", Some("b")), service("b", Some("a"))],
                "not make one chain",
            ),
            (
                vec![service("web", Some("db")), service("a", Some("a")), service("db", None)],
                "not called",
            ),
        ] {
            let error = in_order(services).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[tokio::test]
    async fn the_bottom_is_told_that_it_is_detached_and_callers_keep_their_own_faults() {
        let bottom = Config::named("db");
        let detached = Config {
            detached: true,
            ..bottom.clone()
        };
        let settings = difference(&bottom, &detached);
        assert_eq!(settings, Settings::from([(DETACHED.to_owned(), "true".to_owned())]));
        let web = service("web", Some("db")).described.config;
        let broken = Config {
            client_fault: Some("inside:fail".parse().unwrap()),
            ..web.clone()
        };
        let different = [difference(&web, &broken), Settings::new()];
        let said = whole(&different, &[broken.clone(), bottom.clone()], false);
        assert_eq!(said[0][CLIENT_FAULT], "inside:fail");
        assert!(said[1].is_empty());
        let healed = [difference(&broken, &web), Settings::new()];
        assert_eq!(whole(&healed, &[web, bottom], true)[0][CLIENT_FAULT], "");
    }

    #[tokio::test]
    async fn a_difference_names_what_goes_back_to_its_default() {
        let from = Config {
            callee: service("web", Some("db")).described.config.callee,
            retry: chassis::policy::Policy {
                attempts: 3,
                backoff: Some(chassis::policy::Backoff::default()),
                ..chassis::policy::Policy::default()
            },
            ..Config::named("web")
        };
        let to = Config::named("web");
        let difference = difference(&from, &to);
        assert_eq!(difference["RETRYSCOPE_ATTEMPTS"], "1");
        assert_eq!(difference["RETRYSCOPE_BACKOFF"], "");
        assert_eq!(difference.len(), 2);
    }
}
