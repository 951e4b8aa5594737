//! The life of a service process: config → telemetry → bind → announce → serve → drain → flush → exit code.

use crate::{
    config::{self, CONTROL_TOKEN, CONTROL_TOKEN_FILE, Config, ConfigError, Layer},
    control::Control,
    counts::Counts,
    inbound::Shop,
    listen::{BindError, CONNECTION_WINDOW, Gate, Port},
    outbound::OutboundError,
    settings::Live,
    stalls::Stalls,
    telemetry::{Telemetry, TelemetryError},
};
use std::{
    fmt,
    io::{Read as _, Write as _},
    net::SocketAddr,
    process::ExitCode,
    str::FromStr,
    sync::Arc,
    time::Duration,
};
use thiserror::Error;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// The flag that ties a child's life to its standard input. A flag, not the default: a container's input is closed from the
/// start.
pub const UNTIL_STDIN_CLOSES: &str = "--until-stdin-closes";

/// Why a service cannot serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Its configuration.
    #[error("the configuration is wrong")]
    Config(#[from] ConfigError),
    /// Its spans.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// It is no forwarder.
    #[error("{0} is a service and cannot be RETRYSCOPE_LAYER = {1}: a `sidecar` can")]
    Layer(String, Layer),
    /// Its ports.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Its control port would be open to others.
    #[error(
        "the control port {0} is not on the loopback, where anybody could put faults in: set {CONTROL_TOKEN} or \
         {CONTROL_TOKEN_FILE}"
    )]
    NoToken(SocketAddr),
    /// Its callee.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// Its description of itself.
    #[error("the compiled descriptors cannot be served")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The collector did not take the last spans.
    #[error("spans were left behind: {0}")]
    SpansLost(String),
    /// Something of the system.
    #[error("{0}")]
    System(&'static str, #[source] std::io::Error),
}

/// The addresses a process announces, as one line on standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The service's name.
    pub service: String,
    /// Its service port.
    pub address: SocketAddr,
    /// Its control port.
    pub control: SocketAddr,
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "serving {} service={} control={}",
            self.service, self.address, self.control
        )
    }
}

impl FromStr for Announcement {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.strip_prefix("serving ").ok_or(())?.trim_end().split(' ');
        let mut value = |key: &str| words.next().and_then(|word| word.strip_prefix(key)).ok_or(());
        Ok(Self {
            service: value("")?.to_owned(),
            address: value("service=")?.parse().map_err(|_| ())?,
            control: value("control=")?.parse().map_err(|_| ())?,
        })
    }
}

/// What a service is built from.
pub type Build = fn(&Arc<Live>, &Arc<Counts>) -> Result<Shop, OutboundError>;

/// Runs a service as this process: reads the environment, which says what is not as in `usual`, and serves until it is told to
/// stop.
pub fn main(usual: &Config, build: Build) -> ExitCode {
    let ends_with_stdin = std::env::args_os().any(|argument| argument == UNTIL_STDIN_CLOSES);
    let stdin_closed = ends_with_stdin.then(leave_when_stdin_closes);
    match run(usual, build, stdin_closed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            // Wrong usage or configuration, but for spans that nobody took: then something is not measured.
            ExitCode::from(if matches!(error, ServeError::SpansLost(_)) {
                3
            } else {
                2
            })
        }
    }
}

fn run(usual: &Config, build: Build, stdin_closed: Option<watch::Receiver<bool>>) -> Result<(), ServeError> {
    let config = Config::from_env(usual)?;
    let token = config::control_token()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ServeError::System("cannot start a runtime", error))?;
    runtime.block_on(async {
        let signal = stop_signal().map_err(|error| ServeError::System("cannot listen for signals", error))?;
        let until = async {
            tokio::select! {
                () = signal => {}
                () = closed(stdin_closed) => {}
            }
        };
        serve(config, token, build, announce, until).await
    })
}

/// Serves until `until` ends: binds both ports, tells `announce`, drains, flushes. The control port asks for the token when
/// there is one, and must have one to leave the loopback.
pub async fn serve(
    mut config: Config,
    token: Option<String>,
    build: Build,
    announce: impl FnOnce(&Announcement),
    until: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    if token.is_none() && !config.control_listen.ip().is_loopback() {
        return Err(ServeError::NoToken(config.control_listen));
    }
    let telemetry = Arc::new(Telemetry::start(&config)?);
    let counts = Counts::new(config.records);
    let service_port = Port::bind(config.listen, Gate::of(&config.fault))?;
    let control_port = Port::bind(config.control_listen, Gate::Open)?;
    (config.listen, config.control_listen) = (service_port.address(), control_port.address());
    let announcement = Announcement {
        service: config.service.clone(),
        address: config.listen,
        control: config.control_listen,
    };
    let layer = config.layer;
    let live = Live::new(config);
    let shop = build(&live, &counts)?;
    if layer != Layer::Service && matches!(shop, Shop::Named { .. }) {
        return Err(ServeError::Layer(announcement.service, layer));
    }

    let (health, health_service) = tonic_health::server::health_reporter();
    let shop = match shop {
        Shop::Named { routes, name } => {
            health
                .set_service_status(name, tonic_health::ServingStatus::Serving)
                .await;
            let routes = routes
                .add_service(health_service.clone())
                .add_service(reflection().build_v1()?)
                .add_service(reflection().build_v1alpha()?);
            Shop::Named { routes, name }
        }
        // Who asks a forwarder for health asks whoever is behind it.
        everything @ Shop::Everything(_) => everything,
    };
    let (leave, left) = watch::channel(false);
    let control = Control::new(
        Arc::clone(&live),
        Arc::clone(&counts),
        Arc::clone(&telemetry),
        Stalls::watch(),
        left.clone(),
    );
    let control_routes = control.routes(token).add_service(health_service);

    let _spans_go_here = telemetry.enter();
    let (_control_gate, control_gated) = watch::channel(Gate::Open);
    let serving = async {
        tokio::try_join!(
            shop.serve(service_port, live.gate(), counts, left.clone()),
            control_port.serve(control_routes.prepare(), CONNECTION_WINDOW, control_gated, None, left),
        )
    };
    announce(&announcement);
    tokio::pin!(serving);
    let served = tokio::select! {
        served = serving.as_mut() => served,
        () = until => {
            let _ = leave.send(true);
            serving.await
        }
    };
    let flushed = telemetry.shutdown().await;
    served.map_err(|error| ServeError::System("the accept loop ended", error))?;
    flushed.map_err(ServeError::SpansLost)
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Ends with SIGTERM, SIGINT or SIGHUP.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let [terminate, interrupt, hangup] = kinds.map(signal);
    let (mut terminate, mut interrupt, mut hangup) = (terminate?, interrupt?, hangup?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// Ends when standard input has; never where nobody looks at it.
async fn closed(stdin: Option<watch::Receiver<bool>>) {
    match stdin {
        Some(mut stdin) => drop(stdin.wait_for(|closed| *closed).await),
        None => std::future::pending().await,
    }
}

/// Longest time left for the last spans once standard input has ended: the parent is gone, and nothing of it may stay.
const LEAVE: Duration = Duration::from_millis(700);

/// Tells when standard input has ended, then ends the process whatever else it is doing: a thread of its own, so that nothing
/// is left running when the parent is killed.
fn leave_when_stdin_closes() -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    std::thread::spawn(move || {
        let mut ignored = [0; 64];
        let mut input = std::io::stdin();
        loop {
            match input.read(&mut ignored) {
                Ok(1..) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        let _ = tell.send(true);
        std::thread::sleep(LEAVE);
        std::process::exit(0);
    });
    told
}

/// The one line that a parent reads. Written at once and whole; a parent that is gone needs none.
fn announce(announcement: &Announcement) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{announcement}").and_then(|()| output.flush());
}

/// The error and its causes, on one line.
fn complain(error: &dyn std::error::Error) {
    let mut text = format!("error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_read_as_written() {
        let (address, control) = ("127.0.0.1:50054".parse().unwrap(), "[::1]:50064".parse().unwrap());
        let announcement = Announcement {
            service: "inventory".into(),
            address,
            control,
        };
        assert_eq!(announcement.to_string().parse(), Ok(announcement));
        for wrong in ["", "serving x", "serving x service=1 control=2", "panicked at"] {
            assert_eq!(wrong.parse::<Announcement>(), Err(()), "{wrong}");
        }
    }
}
