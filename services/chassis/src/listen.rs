//! The accept loop: the only place that owns a connection. tonic's `Routes` over hyper's HTTP/2 connection.
//!
//! Not tonic's transport server: that adds a timer of its own which answers before the caller's deadline does, cannot close one
//! connection or the port, and waits for ever for silent peers when it stops.

use crate::{counts::Counts, fault::Fault};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::service::Routes;

/// Flow-control window of a connection: small answers by the thousand must not look like an attack to the library.
pub const CONNECTION_WINDOW: u32 = 256 * 1024 * 1024;
/// Streams that may be reset before they are accepted. The library's 20 would end the connection of a client that gives up
/// often, and none of its arrivals would be counted.
const PENDING_RESETS: usize = 1_000_000;
/// Longest header list that is read, bytes.
const HEADER_LIST: u32 = 1024 * 1024;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
/// Longest wait for connections to finish when the process stops. A silent peer must not hold it, and the parent that kills
/// after two seconds leaves time for the last spans.
const DRAIN: Duration = Duration::from_secs(1);
/// Pause after the system refused to accept (out of file descriptors): the loop must not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A port that is this process's own, listening or not.
#[derive(Debug)]
pub struct Port {
    /// Bound and never listening: it keeps the address while the listener is closed, and the system answers a connection
    /// attempt with a refusal.
    placeholder: TcpSocket,
    address: SocketAddr,
    /// Listening since it was bound, when it is to be open: who is told the address can connect at once.
    listener: Option<TcpListener>,
}

/// Whether a port accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It does.
    Open,
    /// It refuses them; those it had accepted are cut.
    Closed,
}

impl Gate {
    /// What a fault makes of a service port.
    pub fn of(fault: &Fault) -> Self {
        if fault.refuses() { Self::Closed } else { Self::Open }
    }
}

/// A port that could not be had.
#[derive(Debug, Error)]
#[error("cannot listen on {address}")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

impl Port {
    /// Takes an address; port 0 takes a free one. It listens from here on when the gate is open.
    pub fn bind(address: SocketAddr, gate: Gate) -> Result<Self, BindError> {
        let placeholder = bound(address).map_err(|source| BindError { address, source })?;
        let address = placeholder
            .local_addr()
            .map_err(|source| BindError { address, source })?;
        let mut port = Self {
            placeholder,
            address,
            listener: None,
        };
        // Opened in any case, so that an address held by somebody else is known before it is announced.
        let listener = port.listen().map_err(|source| BindError { address, source })?;
        port.listener = Some(listener).filter(|_| gate == Gate::Open);
        Ok(port)
    }

    /// The address, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shares the address with the placeholder just long enough to listen: a stranger who asks to reuse it is refused.
    fn listen(&self) -> io::Result<TcpListener> {
        self.placeholder.set_reuseaddr(true)?;
        let listener = bound(self.address).and_then(|socket| socket.listen(BACKLOG));
        self.placeholder.set_reuseaddr(false)?;
        listener
    }

    /// Serves until `stop`, then drains. Accepts while the gate is open; when it closes, every connection is cut.
    pub async fn serve(
        mut self,
        routes: Routes,
        mut gate: watch::Receiver<Gate>,
        counts: Option<Arc<Counts>>,
        stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let routes = routes.prepare();
        let mut stopped = stop.clone();
        let mut connections = JoinSet::new();
        loop {
            let state = { *gate.borrow_and_update() };
            let listener = match state {
                Gate::Open => Some(self.listener.take().map_or_else(|| self.listen(), Ok)?),
                Gate::Closed => None,
            };
            if state == Gate::Closed {
                connections.shutdown().await;
            }
            loop {
                tokio::select! {
                    biased;
                    () = until(&mut stopped) => {
                        drop(listener);
                        drain(connections).await;
                        return Ok(());
                    }
                    Ok(()) = gate.changed() => break,
                    accepted = accept(listener.as_ref()) => match accepted {
                        Ok(stream) => {
                            connections.spawn(connection(stream, routes.clone(), counts.clone(), stop.clone()));
                        }
                        Err(_) => sleep(ACCEPT_PAUSE).await,
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        }
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // Lets the listener share the address with the placeholder, which never listens.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn connection(stream: TcpStream, routes: Routes, counts: Option<Arc<Counts>>, mut stop: watch::Receiver<bool>) {
    // Answers are written in several pieces; without this they may wait 40 ms for a delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(None)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(PENDING_RESETS)
        .max_header_list_size(HEADER_LIST)
        .auto_date_header(false);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = until(&mut stop) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let (Err(error), Some(counts)) = (ended, counts)
        && is_library_made(&error)
    {
        counts.rejected();
    }
}

/// Ends when the process is to stop, or nobody is left who could say so.
async fn until(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Whether the HTTP/2 library ended the connection by its own rules: what it then refused never reached a layer.
fn is_library_made(error: &hyper::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(h2) = error.downcast_ref::<h2::Error>() {
            return h2.is_library() && h2.is_go_away();
        }
        cause = error.source();
    }
    false
}

async fn drain(mut connections: JoinSet<()>) {
    let _ = timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
    connections.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::ErrorKind, net::Ipv4Addr};

    fn loopback() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    }

    struct Served {
        address: SocketAddr,
        gate: watch::Sender<Gate>,
        stop: watch::Sender<bool>,
        task: tokio::task::JoinHandle<io::Result<()>>,
    }

    fn serve() -> Served {
        let port = Port::bind(loopback(), Gate::Open).unwrap();
        let (gate, gated) = watch::channel(Gate::Open);
        let (stop, stopped) = watch::channel(false);
        let address = port.address();
        let task = tokio::spawn(port.serve(Routes::default(), gated, None, stopped));
        Served {
            address,
            gate,
            stop,
            task,
        }
    }

    /// Connects until the answer is the wanted one: a gate takes a moment, not a given time.
    async fn connect_until(address: SocketAddr, wanted: Result<(), ErrorKind>) -> Option<TcpStream> {
        loop {
            match TcpStream::connect(address).await {
                Ok(stream) if wanted == Ok(()) => return Some(stream),
                Err(error) if wanted == Err(error.kind()) => return None,
                _ => tokio::task::yield_now().await,
            }
        }
    }

    #[tokio::test]
    async fn a_closed_gate_refuses_cuts_what_it_had_accepted_and_keeps_the_port() {
        use tokio::io::AsyncReadExt as _;
        let served = serve();
        let mut stream = connect_until(served.address, Ok(())).await.unwrap();
        served.gate.send(Gate::Closed).unwrap();
        connect_until(served.address, Err(ErrorKind::ConnectionRefused)).await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        // Nobody else can take the address meanwhile.
        assert!(std::net::TcpListener::bind(served.address).is_err());
        served.gate.send(Gate::Open).unwrap();
        connect_until(served.address, Ok(())).await;
        served.stop.send(true).unwrap();
        served.task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let holder = std::net::TcpListener::bind(loopback()).unwrap();
        let address = holder.local_addr().unwrap();
        let error = Port::bind(address, Gate::Closed).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_does_not_hold_the_drain() {
        let served = serve();
        let _silent = connect_until(served.address, Ok(())).await;
        // Let the connection be accepted before the stop.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        served.stop.send(true).unwrap();
        served.task.await.unwrap().unwrap();
    }
}
