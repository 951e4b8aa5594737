//! The services of a run: spawned or attached. Spawned ones are started leaves first, by running this program again, watched
//! while they run, stopped roots first; attached ones are somebody else's and left running.

use crate::{
    attach::{Attach, Named},
    child::Child,
    envoy::{self, Envoy, EnvoyError},
    lab::Lab,
    scenario::Start,
    standing::Standing,
    witness::Witness,
};
use chassis::{
    address::Address,
    config::{self, Callee, Config, Layer},
    process::{Announcement, UNTIL_STDIN_CLOSES},
};
use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};
use thiserror::Error;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// Longest wait for a child to say where it listens.
const START: Duration = Duration::from_secs(10);
/// Longest wait for a child to leave after it was asked to; then it is killed.
const STOP: Duration = Duration::from_secs(2);

/// The running services, the top one first.
#[derive(Debug)]
pub struct Fleet {
    /// One per service of the chain.
    pub members: Vec<Member>,
}

/// One running service.
#[derive(Debug)]
pub struct Member {
    /// Its name in the chain line.
    pub name: String,
    /// Where it is called.
    pub address: Address,
    /// Where it is asked.
    pub control: Address,
    /// Its process number.
    pub pid: u32,
    /// What it is to the chain.
    pub layer: Layer,
    /// Set where it is an Envoy.
    pub envoy: Option<Envoy>,
    /// `None` for a process of somebody else.
    own: Option<Own>,
}

/// A process of our own.
#[derive(Debug)]
struct Own {
    child: Child,
    /// Its standard input, which it lives as long as, and its output, so that it never writes into nothing. An Envoy has none:
    /// the system ends it.
    _lifelines: Option<(ChildStdin, ChildStdout)>,
    exited: Option<ExitStatus>,
}

/// Why the services could not be started.
#[derive(Debug, Error)]
pub enum FleetError {
    /// The program could not be run.
    #[error("cannot start {service} ({program})", program = program.display())]
    Spawn {
        /// Which service.
        service: String,
        /// What was run.
        program: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An Envoy could not be started.
    #[error(transparent)]
    Envoy(#[from] EnvoyError),
    /// The child ended or said something else before it said where it listens.
    #[error("{service} did not start: {what}")]
    Silent {
        /// Which service.
        service: String,
        /// What happened instead.
        what: String,
    },
}

/// What is wrong with a running service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Its process ended.
    Died(String),
    /// Its process is stopped by a signal (SIGSTOP) or a debugger.
    Stopped,
}

/// How a service ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its name in the chain line.
    pub name: String,
    /// In words.
    pub how: String,
}

/// This program, as a path that still leads to it when the file has been replaced meanwhile.
pub fn this_program() -> PathBuf {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        running.to_owned()
    } else {
        std::env::current_exe().unwrap_or_else(|_| "harness".into())
    }
}

impl Fleet {
    /// Starts the services, given from the top to the bottom, with `program service NAME`.
    /// The control ports want `token` where there is one.
    pub async fn spawn(program: &Path, starts: Vec<Start>, token: Option<&str>) -> Result<Self, FleetError> {
        // Looked for before anything is started.
        let has_envoys = starts.iter().any(|start| start.config.layer == Layer::Envoy);
        let envoy = has_envoys.then(envoy::find).transpose()?;
        let mut members: Vec<Member> = Vec::with_capacity(starts.len());
        for mut start in starts.into_iter().rev() {
            // Who calls through a layer that nobody declared believes to call the one behind it.
            let named = members.iter().rfind(|member| member.layer != Layer::Undeclared);
            if let (Some(below), Some(named)) = (members.last(), named) {
                start.config.callee = Some(Callee {
                    name: named.name.clone(),
                    address: below.address.clone(),
                });
            }
            members.push(match &envoy {
                Some(envoy) if start.config.layer == Layer::Envoy => {
                    Member::spawn_envoy(program, envoy, &start.config).await?
                }
                _ => Member::spawn(program, &start, token).await?,
            });
        }
        members.reverse();
        Ok(Self { members })
    }

    /// Services that run already.
    pub fn attached(standing: &Standing) -> Self {
        let members = standing.services.iter().map(|service| Member {
            name: service.name.clone(),
            address: service.address.clone(),
            control: service.lab.address().clone(),
            pid: service.described.pid,
            layer: service.described.config.layer,
            envoy: None,
            own: None,
        });
        Self {
            members: members.collect(),
        }
    }

    /// How these services are attached to.
    pub fn attach(&self) -> Attach {
        let named = self.members.iter().map(|member| Named {
            service: member.name.clone(),
            control: member.control.clone(),
        });
        Attach::Named(named.collect())
    }

    /// What is wrong with which service.
    pub fn troubles(&mut self) -> Vec<(String, u32, Trouble)> {
        let found = self.members.iter_mut().filter_map(|member| {
            let trouble = member.trouble()?;
            Some((member.name.clone(), member.pid, trouble))
        });
        found.collect()
    }

    /// Asks every service to leave, the top one first, and waits until they are gone.
    pub async fn stop(mut self) -> Vec<Ended> {
        for member in &self.members {
            member.signal(rustix::process::Signal::TERM);
        }
        let mut ended = Vec::new();
        for member in &mut self.members {
            let how = member.leave().await;
            ended.push(Ended {
                name: member.name.clone(),
                how,
            });
        }
        ended
    }
}

impl Member {
    async fn spawn(program: &Path, start: &Start, token: Option<&str>) -> Result<Self, FleetError> {
        let service = start.config.service.clone();
        let mut command = Command::new(program);
        command.args(["service", start.program.name(), UNTIL_STDIN_CLOSES]);
        // The user's variables must not reach a child raw: they could drop or rename evidence.
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("OTEL_") || name_text.starts_with(config::PREFIX) {
                command.env_remove(&name);
            }
        }
        command.envs(start.config.write());
        command.envs(token.map(|token| (config::CONTROL_TOKEN, token)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // A process group of its own: Ctrl-C at the terminal is for the harness, which settles before it stops the services.
        command.process_group(0);
        let failed = |source| FleetError::Spawn {
            service: service.clone(),
            program: program.to_owned(),
            source,
        };
        let mut child = Child(command.spawn().map_err(failed)?);
        let silent = |what: &str| FleetError::Silent {
            service: service.clone(),
            what: what.to_owned(),
        };
        let lifeline = child.stdin.take().ok_or_else(|| silent("it has no input"))?;
        let output = child.stdout.take().ok_or_else(|| silent("it has no output"))?;
        let mut lines = BufReader::new(output);
        let mut line = String::new();
        let read = timeout(START, lines.read_line(&mut line)).await;
        let announced = match read {
            Err(_) => return Err(silent(&format!("it said nothing for {} s", START.as_secs()))),
            Ok(Err(error)) => return Err(silent(&format!("its output cannot be read ({error})"))),
            Ok(Ok(_)) => line.parse::<Announcement>().ok(),
        };
        let Some(announced) = announced else {
            let status = timeout(STOP, child.wait()).await;
            let how = status
                .ok()
                .and_then(Result::ok)
                .map_or("it said something else".to_owned(), in_words);
            return Err(silent(&how));
        };
        let pid = child.id().ok_or_else(|| silent("it ended at once"))?;
        let lifelines = (lifeline, lines.into_inner());
        Ok(Self {
            name: announced.service,
            address: announced.address.into(),
            control: announced.control.into(),
            pid,
            layer: start.config.layer,
            envoy: None,
            own: Some(Own {
                child,
                _lifelines: Some(lifelines),
                exited: None,
            }),
        })
    }

    async fn spawn_envoy(this: &Path, program: &Path, config: &Config) -> Result<Self, FleetError> {
        let (envoy, child) = Envoy::spawn(this, program, config).await?;
        let pid = child.id().unwrap_or_default();
        Ok(Self {
            name: config.service.clone(),
            address: envoy.address.clone(),
            control: envoy.admin.into(),
            pid,
            layer: config.layer,
            envoy: Some(envoy),
            own: Some(Own {
                child,
                _lifelines: None,
                exited: None,
            }),
        })
    }

    /// Who is asked what passed; `None` for a layer that nobody declared.
    pub fn witness(&self) -> Option<Witness> {
        match (&self.envoy, self.layer) {
            (_, Layer::Undeclared) => None,
            (Some(envoy), _) => Some(Witness::Envoy(Box::new(envoy.clone()))),
            (None, _) => Some(Lab::of(self).into()),
        }
    }

    /// Whether its process is ours.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    fn trouble(&mut self) -> Option<Trouble> {
        // What is wrong with somebody else's process shows on its control port.
        let pid = self.pid;
        self.own.as_mut().and_then(|own| own.trouble(pid))
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(own) = &self.own {
            own.signal(signal);
        }
    }

    async fn leave(&mut self) -> String {
        match &mut self.own {
            Some(own) => own.leave().await,
            None => "left running".to_owned(),
        }
    }
}

impl Own {
    fn trouble(&mut self, pid: u32) -> Option<Trouble> {
        if self.exited.is_none() {
            self.exited = self.child.try_wait().ok().flatten();
        }
        match self.exited {
            Some(status) => Some(Trouble::Died(in_words(status))),
            None => is_stopped(pid).then_some(Trouble::Stopped),
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if self.exited.is_none() {
            self.child.signal(signal);
        }
    }

    async fn leave(&mut self) -> String {
        if let Some(status) = self.exited {
            return format!("had ended before: {}", in_words(status));
        }
        match timeout(STOP, self.child.wait()).await {
            Ok(Ok(status)) => in_words(status),
            Ok(Err(error)) => format!("cannot be waited for ({error})"),
            Err(_) => {
                // SIGKILL ends a stopped process too.
                self.child.signal(rustix::process::Signal::KILL);
                let _ = self.child.wait().await;
                format!("killed: it did not leave within {} s", STOP.as_secs())
            }
        }
    }
}

/// Whether the process is stopped, by what the system says (Linux); elsewhere unknown.
fn is_stopped(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name stands in parentheses and may hold anything; the state is the word behind the last one.
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("T" | "t"))
}

fn in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
