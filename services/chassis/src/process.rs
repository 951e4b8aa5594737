//! The life of a service process: config → telemetry → bind → announce → serve → drain → flush → exit code.

use crate::{
    config::{Config, ConfigError},
    control::Control,
    counts::Counts,
    fault::Fault,
    inbound::Shop,
    listen::{BindError, Gate, Port},
    outbound::OutboundError,
    telemetry::{Telemetry, TelemetryError},
};
use std::{
    fmt,
    io::{Read as _, Write as _},
    net::SocketAddr,
    process::ExitCode,
    str::FromStr,
    sync::Arc,
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
    /// Its ports.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Its callee.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// Its description of itself.
    #[error("the compiled descriptors cannot be served")]
    Reflection(#[from] tonic_reflection::server::Error),
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
pub type Build = fn(&Config, &Arc<Counts>) -> Result<Shop, OutboundError>;

/// Runs a service as this process: reads the environment, serves until it is told to stop.
pub fn main(default_name: &str, build: Build) -> ExitCode {
    if std::env::args_os().any(|argument| argument == UNTIL_STDIN_CLOSES) {
        exit_when_stdin_closes();
    }
    match run(default_name, build) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

fn run(default_name: &str, build: Build) -> Result<(), ServeError> {
    let config = Config::from_env(default_name)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ServeError::System("cannot start a runtime", error))?;
    runtime.block_on(async {
        let until = stop_signal().map_err(|error| ServeError::System("cannot listen for signals", error))?;
        serve(config, build, announce, until).await
    })
}

/// Serves until `until` ends: binds both ports, tells `announce`, drains, flushes.
pub async fn serve(
    mut config: Config,
    build: Build,
    announce: impl FnOnce(&Announcement),
    until: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let telemetry = Arc::new(Telemetry::start(&config)?);
    let counts = Counts::new(config.records);
    let shop = build(&config, &counts)?;
    let gate = if config.fault == Fault::Refuse {
        Gate::Closed
    } else {
        Gate::Open
    };
    let service_port = Port::bind(config.listen, gate)?;
    let control_port = Port::bind(config.control_listen, Gate::Open)?;
    (config.listen, config.control_listen) = (service_port.address(), control_port.address());
    let announcement = Announcement {
        service: config.service.clone(),
        address: config.listen,
        control: config.control_listen,
    };

    let (health, health_service) = tonic_health::server::health_reporter();
    health
        .set_service_status(shop.name, tonic_health::ServingStatus::Serving)
        .await;
    let service_routes = shop
        .routes
        .add_service(health_service.clone())
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    let control = Control {
        config: Arc::new(config),
        counts: Arc::clone(&counts),
        telemetry: Arc::clone(&telemetry),
    };
    let control_routes = control.routes().add_service(health_service);

    let _spans_go_here = telemetry.enter();
    let (leave, left) = watch::channel(false);
    let (_gate, gated) = watch::channel(gate);
    let (_control_gate, control_gated) = watch::channel(Gate::Open);
    let serving = async {
        tokio::try_join!(
            service_port.serve(service_routes, gated, Some(counts), left.clone()),
            control_port.serve(control_routes, control_gated, None, left),
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
    flushed.map_err(|error| ServeError::System("spans were left behind", std::io::Error::other(error)))
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Ends with SIGTERM or SIGINT.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Ends the process when standard input ends, whatever else it is doing: a thread of its own, so that nothing is left running
/// when the parent is killed.
fn exit_when_stdin_closes() {
    std::thread::spawn(|| {
        let mut ignored = [0; 64];
        let mut input = std::io::stdin();
        loop {
            match input.read(&mut ignored) {
                Ok(1..) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => std::process::exit(0),
            }
        }
    });
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
