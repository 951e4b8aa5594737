//! The accept loop: the only place that owns a connection. Any HTTP service over hyper's HTTP/2 connection: tonic's `Routes`, or
//! a forwarder without a router in its way.
//!
//! Not tonic's transport server: that adds a timer of its own which answers before the caller's deadline does, cannot close one
//! connection or the port, and waits for ever for silent peers when it stops.

use crate::{
    Response,
    connection::{Connection, End, Instead},
    counts::Counts,
    fault::Fault,
};
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

/// Flow-control window of a connection: small answers by the thousand must not look like an attack to the library.
pub const CONNECTION_WINDOW: u32 = 256 * 1024 * 1024;
/// Flow-control window of one stream where streams pass through: what one slow reader can make a process hold.
pub const STREAM_WINDOW: u32 = 1024 * 1024;
/// Streams that may be reset before they are accepted. The library's 20 would end the connection of a client that gives up
/// often, and none of its arrivals would be counted.
const PENDING_RESETS: usize = 1_000_000;
/// Longest header list that is read, bytes.
pub const HEADER_LIST: u32 = 1024 * 1024;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
/// Longest wait for a peer to take what is still to be written to it, when its connection or the process ends. A silent one must
/// not hold the process, and the parent that kills after two seconds leaves time for the last spans.
const DRAIN: Duration = Duration::from_secs(1);
/// Pause after the system refused to accept (out of file descriptors): the loop must not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What can be served: the HTTP requests of a connection, each answered somehow.
pub trait Serves:
    tower::Service<http::Request<Incoming>, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}
impl<S> Serves for S where
    S: tower::Service<http::Request<Incoming>, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

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

    /// Serves until `stop`, then drains. Accepts while the gate is open; when it closes, every connection is cut. A caller may
    /// send `stream_window` bytes of one request ahead of whoever reads them.
    pub async fn serve(
        mut self,
        service: impl Serves,
        stream_window: u32,
        mut gate: watch::Receiver<Gate>,
        counts: Option<Arc<Counts>>,
        stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let mut stopped = stop.clone();
        let mut connections = JoinSet::new();
        let mut closed = Arc::new(AtomicBool::new(false));
        loop {
            let state = { *gate.borrow_and_update() };
            let listener = match state {
                Gate::Open => Some(self.listener.take().map_or_else(|| self.listen(), Ok)?),
                Gate::Closed => None,
            };
            if state == Gate::Closed {
                // Told before they are cut, so that what is on them counts as cut and not as given up by its caller.
                std::mem::take(&mut closed).store(true, Ordering::Relaxed);
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
                            let streams = Streams {
                                service: service.clone(),
                                on: Connection::of_port(&closed),
                            };
                            connections.spawn(connection(stream, streams, stream_window, counts.clone(), stop.clone()));
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

async fn connection(
    stream: TcpStream,
    streams: Streams<impl Serves>,
    stream_window: u32,
    counts: Option<Arc<Counts>>,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are written in several pieces; without this they may wait 40 ms for a delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let blocked = Arc::new(AtomicBool::new(false));
    let on = streams.on.clone();
    let socket = Socket {
        stream,
        on: on.clone(),
        blocked: Arc::clone(&blocked),
    };
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(stream_window)
        .max_concurrent_streams(None)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(PENDING_RESETS)
        .max_header_list_size(HEADER_LIST)
        .auto_date_header(false);
    let serving = builder.serve_connection(TokioIo::new(socket), streams);
    tokio::pin!(serving);
    let mut is_leaving = false;
    let ended = loop {
        tokio::select! {
            biased;
            end = on.asked() => {
                if end == End::GoAway {
                    // The first GOAWAY of a graceful shutdown covers every stream there can be. One turn of the library puts
                    // it into its buffer and writes that; it is out when the socket took all of it.
                    serving.as_mut().graceful_shutdown();
                    let written = std::future::poll_fn(|context| match serving.as_mut().poll(context) {
                        Poll::Pending if blocked.load(Ordering::Relaxed) => Poll::Pending,
                        _ => Poll::Ready(()),
                    });
                    let _ = timeout(DRAIN, written).await;
                }
                return;
            }
            ended = serving.as_mut() => break ended,
            () = until(&mut stop), if !is_leaving => {
                is_leaving = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    };
    if let (Err(error), Some(counts)) = (ended, counts)
        && is_library_made(&error)
    {
        counts.rejected();
    }
}

/// What answers the streams of one connection: the service, and what an answer may ask for instead of being sent.
struct Streams<S> {
    service: S,
    on: Connection,
}

impl<S: Serves> hyper::service::Service<http::Request<Incoming>> for Streams<S> {
    type Response = Response;
    /// The library resets a stream with the reason that its service fails with.
    type Error = h2::Error;
    type Future = BoxFuture<'static, Result<Response, h2::Error>>;

    fn call(&self, mut request: http::Request<Incoming>) -> Self::Future {
        use tower::ServiceExt as _;
        let (service, on) = (self.service.clone(), self.on.clone());
        request.extensions_mut().insert(on.clone());
        Box::pin(async move {
            let response = match service.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            match response.extensions().get::<Instead>() {
                None => Ok(response),
                Some(Instead::ResetStream(reason)) => Err((*reason).into()),
                Some(Instead::End(end)) => {
                    on.end(*end);
                    // Until the connection has ended, and this with it.
                    std::future::pending().await
                }
            }
        })
    }
}

/// The socket of a connection.
struct Socket {
    stream: TcpStream,
    on: Connection,
    /// Whether the system would take no more when it was last written to.
    blocked: Arc<AtomicBool>,
}

impl Socket {
    fn wrote<T>(&self, poll: Poll<T>) -> Poll<T> {
        self.blocked.store(poll.is_pending(), Ordering::Relaxed);
        poll
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.on.ends() == Some(End::Reset) {
            // Closed without lingering: the peer gets a reset and whatever was still to be sent is thrown away.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.wrote(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
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
    use crate::testbed;
    use std::{io::ErrorKind, net::Ipv4Addr};
    use tokio::task::JoinHandle;

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
        let task = tokio::spawn(port.serve(
            tonic::service::Routes::default(),
            CONNECTION_WINDOW,
            gated,
            None,
            stopped,
        ));
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

    /// A client of the bare protocol, and the task that drives its connection.
    type Raw = (h2::client::SendRequest<bytes::Bytes>, JoinHandle<Result<(), h2::Error>>);

    async fn raw(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        (client, tokio::spawn(connection))
    }

    async fn ask(client: &mut h2::client::SendRequest<bytes::Bytes>) -> h2::client::ResponseFuture {
        let request = http::Request::post(format!("http://service{}", testbed::METHOD));
        let mut ready = client.clone().ready().await.unwrap();
        let (answer, mut body) = ready.send_request(request.body(()).unwrap(), false).unwrap();
        body.send_data(vec![0; 5].into(), true).unwrap();
        answer
    }

    /// Waits until so many have arrived.
    async fn received(served: &testbed::Served, wanted: u64) {
        while served.counts.totals().received < wanted {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_goaway_that_covers_the_request_goes_out_and_no_answer_does() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let served = testbed::serve("goaway");
        // Between the client and the service sits a reader of frames.
        let between = TcpListener::bind(loopback()).await.unwrap();
        let address = between.local_addr().unwrap();
        let service = served.address;
        let reading = tokio::spawn(async move {
            let (client, _) = between.accept().await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_service, mut to_service) = TcpStream::connect(service).await.unwrap().into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_service).await });
            let mut frames = Vec::new();
            loop {
                let mut head = [0; 9];
                if from_service.read_exact(&mut head).await.is_err() {
                    return frames;
                }
                let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
                let mut payload = vec![0; length];
                from_service.read_exact(&mut payload).await.unwrap();
                let _ = to_client.write_all(&head).await;
                let _ = to_client.write_all(&payload).await;
                frames.push((head[3], u32::from_be_bytes(head[5..].try_into().unwrap()), payload));
            }
        });
        let (mut client, connection) = raw(address).await;
        let answer = ask(&mut client).await;
        let stream = answer.stream_id().as_u32();
        assert!(answer.await.is_err());
        let _ = connection.await.unwrap();
        let frames = reading.await.unwrap();
        let goaways: Vec<_> = frames.iter().filter(|(kind, ..)| *kind == 7).collect();
        let [(_, 0, payload)] = goaways[..] else {
            panic!("{frames:?}")
        };
        let last = u32::from_be_bytes(payload[..4].try_into().unwrap());
        assert!(last >= stream && payload[4..8] == [0; 4], "{last} {payload:?}");
        // Neither a head (1) nor data (0) nor a reset (3) on the stream.
        assert!(frames.iter().all(|(_, on, _)| *on != stream), "{frames:?}");
        assert_eq!(served.outcomes().await, [("cut", 1)].into());
    }

    #[tokio::test]
    async fn a_reset_connection_is_reset_and_cuts_what_else_is_on_it() {
        // The first arrivals wait; the last comes under another fault.
        let served = testbed::serve("hang");
        let (mut client, connection) = raw(served.address).await;
        let waiting = [ask(&mut client).await, ask(&mut client).await];
        received(&served, 2).await;
        served.switch(2, "reset");
        let last = ask(&mut client).await;
        for answer in waiting.into_iter().chain([last]) {
            assert!(answer.await.is_err());
        }
        let error = connection.await.unwrap().unwrap_err();
        assert_eq!(error.get_io().map(io::Error::kind), Some(ErrorKind::ConnectionReset));
        assert_eq!(served.outcomes().await, [("cut", 3)].into());
    }

    #[tokio::test]
    async fn a_reset_stream_has_its_code_and_leaves_the_others_alone() {
        let served = testbed::serve("reset:of=stream,code=ENHANCE_YOUR_CALM,first=1,scope=process");
        let (mut client, _connection) = raw(served.address).await;
        let error = ask(&mut client).await.await.unwrap_err();
        assert!(error.is_reset() && error.is_remote(), "{error:?}");
        assert_eq!(error.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM));
        let answer = ask(&mut client).await.await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        while body.data().await.is_some() {}
        body.trailers().await.unwrap();
        assert_eq!(served.outcomes().await, [("OK", 1), ("cut", 1)].into());
    }

    #[tokio::test]
    async fn a_port_that_closes_cuts_what_is_on_it_and_a_caller_that_leaves_is_dropped() {
        let served = testbed::serve("hang");
        let (mut client, _connection) = raw(served.address).await;
        let leaves = ask(&mut client).await;
        let stays = ask(&mut client).await;
        received(&served, 2).await;
        drop(leaves);
        while served.counts.totals().in_flight > 1 {
            tokio::task::yield_now().await;
        }
        served.switch(2, "refuse");
        assert!(stays.await.is_err());
        connect_until(served.address, Err(ErrorKind::ConnectionRefused)).await;
        assert_eq!(served.outcomes().await, [("cut", 1), ("dropped", 1)].into());
        served.switch(3, "none");
        connect_until(served.address, Ok(())).await;
        let (mut client, _connection) = raw(served.address).await;
        assert!(ask(&mut client).await.await.is_ok());
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
