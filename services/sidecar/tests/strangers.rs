//! A sidecar on a socket, and what strangers may send it: each is answered or turned away, and everybody else is served on.

#![allow(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]

use chassis::{
    config::{Callee, Config, Layer},
    counts::Counts,
    listen::{Gate, Port},
    settings::Live,
};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Frame types (RFC 9113).
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// A sidecar in front of somebody who answers everything with OK.
struct Served {
    address: SocketAddr,
    counts: Arc<Counts>,
    /// It runs until this is dropped.
    _stop: watch::Sender<bool>,
}

async fn loopback() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

async fn serve(layer: Layer) -> Served {
    let callee = loopback().await;
    let mut config = Config::named("frontend-proxy");
    config.layer = layer;
    config.callee = Some(Callee {
        name: "checkout".into(),
        address: callee.local_addr().unwrap().into(),
    });
    tokio::spawn(async move {
        loop {
            let (stream, _) = callee.accept().await.unwrap();
            tokio::spawn(answers_all(stream));
        }
    });
    let port = Port::bind(config.listen, Gate::Open).unwrap();
    let (address, live, counts) = (port.address(), Live::new(config), Counts::new(0));
    let carries = sidecar::shop(&live, &counts).unwrap();
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(carries.serve(port, live.gate(), Arc::clone(&counts), stopped));
    Served {
        address,
        counts,
        _stop: stop,
    }
}

async fn answers_all(stream: TcpStream) {
    let mut builder = h2::server::Builder::new();
    builder.max_header_list_size(4 << 20);
    let mut connection = builder.handshake::<_, bytes::Bytes>(stream).await.unwrap();
    while let Some(Ok((request, mut answer))) = connection.accept().await {
        // Read to its end in a task of its own, which this connection drives.
        tokio::spawn(async move {
            let mut body = request.into_body();
            while let Some(Ok(piece)) = body.data().await {
                let _ = body.flow_control().release_capacity(piece.len());
            }
        });
        let ok = http::Response::builder().header("grpc-status", "0").body(()).unwrap();
        let _ = answer.send_response(ok, true);
    }
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags, 0, 0, 0, stream];
    [&head[..], payload].concat()
}

/// A header block without compression of any kind (RFC 7541, literals without indexing).
fn block(headers: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text);
        }
    }
    block
}

/// Sends these bytes and reads the kinds of frames that come back, up to one that answers or ends.
async fn told(address: SocketAddr, bytes: &[u8]) -> u8 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // Who is turned away early may not get rid of the rest.
    let _ = stream.write_all(bytes).await;
    loop {
        match next_frame(&mut stream).await {
            Ok(kind @ (HEADERS | RESET | GOAWAY)) => return kind,
            Ok(_) => {}
            // The connection was closed, which turns away too.
            Err(_) => return GOAWAY,
        }
    }
}

async fn next_frame(stream: &mut TcpStream) -> io::Result<u8> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await?;
    Ok(head[3])
}

/// One request with these headers and no body.
fn request(headers: &[(&[u8], &[u8])]) -> Vec<u8> {
    let (settings, headers) = (frame(SETTINGS, 0, 0, &[]), frame(HEADERS, 5, 1, &block(headers)));
    [PREFACE, &settings, &headers].concat()
}

const POST: (&[u8], &[u8]) = (b":method", b"POST");
const HTTP: (&[u8], &[u8]) = (b":scheme", b"http");
const HOST: (&[u8], &[u8]) = (b":authority", b"shop");
const PATH: (&[u8], &[u8]) = (b":path", b"/a.B/C");

#[tokio::test]
async fn requests_of_all_kinds_are_passed_on_and_counted() {
    let served = serve(Layer::Proxy).await;
    let odd: [&[(&[u8], &[u8])]; 8] = [
        // Without a type of content, without an authority, with the host that once was one.
        &[POST, HTTP, HOST, PATH],
        &[POST, HTTP, PATH],
        &[POST, HTTP, PATH, (b"host", b"shop")],
        // Methods and paths that no gRPC client has.
        &[(b":method", b"BREW"), HTTP, HOST, PATH],
        &[(b":method", b"CONNECT"), HOST],
        &[POST, HTTP, HOST, (b":path", b"/%00%ff/'~@!$&()*+,;=:")],
        &[POST, HTTP, HOST, (b":path", b"/?a=b")],
        &[
            POST,
            HTTP,
            HOST,
            PATH,
            (b"grpc-timeout", b"soon"),
            (b"retryscope-attempt-path", b"\xff\xfe"),
        ],
    ];
    for headers in odd {
        assert_eq!(told(served.address, &request(headers)).await, HEADERS, "{headers:?}");
    }
    let totals = served.counts.totals();
    assert_eq!((totals.received, totals.in_flight), (8, 0));
    assert_eq!(
        (totals.links["checkout"].sent, totals.links["checkout"].transport_errors),
        (8, 0)
    );
}

#[tokio::test]
async fn what_is_no_request_is_turned_away_and_others_are_served_on() {
    for layer in [Layer::Proxy, Layer::Service, Layer::Undeclared] {
        let served = serve(layer).await;
        let settings = frame(SETTINGS, 0, 0, &[]);
        let mut garbage: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
        let no_requests: [&[u8]; 10] = [
            b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n",
            b"\r\n\r\n",
            &garbage.clone(),
            &[PREFACE, &settings, &garbage.split_off(50_000)].concat(),
            // A path of bytes that are no text, no path, a name in capitals, a header of another protocol.
            &request(&[POST, HTTP, HOST, (b":path", b"/\xff\xfe \x00")]),
            &request(&[POST, HTTP, HOST, (b":path", b"/\"<script>")]),
            &request(&[POST, HTTP, HOST]),
            &request(&[POST, HTTP, HOST, PATH, (b"Own", b"x")]),
            &request(&[POST, HTTP, HOST, PATH, (b"connection", b"close")]),
            // Headers that go on for ever.
            &[
                &request(&[POST, HTTP, HOST, PATH])[..PREFACE.len() + 9],
                &frame(HEADERS, 0, 1, &block(&[POST])),
                &vec![0; 2 << 20],
            ]
            .concat(),
        ];
        for bytes in no_requests {
            let said = told(served.address, bytes).await;
            assert!(
                [RESET, GOAWAY].contains(&said),
                "{layer} {said} {:?}",
                &bytes[..bytes.len().min(99)]
            );
        }
        assert_eq!(told(served.address, &request(&[POST, HTTP, HOST, PATH])).await, HEADERS);
        assert_eq!(served.counts.totals().in_flight, 0);
    }
}

/// One request of the library's own client, with a header of so many bytes.
async fn long(address: SocketAddr, bytes: usize) -> Result<http::StatusCode, h2::Error> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post("http://shop/a.B/C").header("long", "x".repeat(bytes));
    let mut client = client.ready().await?;
    let (answer, _) = client.send_request(request.body(()).unwrap(), true)?;
    Ok(answer.await?.status())
}

#[tokio::test]
async fn long_headers_pass_up_to_a_limit_and_beyond_it_end_nothing_else() {
    let served = serve(Layer::Proxy).await;
    assert_eq!(long(served.address, 200_000).await.unwrap(), 200);
    let too_long = long(served.address, 1 << 20).await;
    assert!(too_long.as_ref().map_or(true, |status| *status == 431), "{too_long:?}");
    assert_eq!(long(served.address, 10).await.unwrap(), 200);
    assert_eq!(served.counts.totals().received, 2);
}

#[tokio::test]
async fn a_thousand_requests_that_end_with_an_empty_piece_leave_their_connections_alone() {
    let served = serve(Layer::Proxy).await;
    let stream = TcpStream::connect(served.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..1_000 {
        client = client.ready().await.unwrap();
        let request = http::Request::post("http://shop/a.B/C").body(()).unwrap();
        let (answer, mut body) = client.send_request(request, false).unwrap();
        body.send_data(bytes::Bytes::from_static(&[0; 5]), false).unwrap();
        body.send_data(bytes::Bytes::new(), true).unwrap();
        assert_eq!(answer.await.unwrap().headers()["grpc-status"], "0");
    }
    assert_eq!(served.counts.totals().links["checkout"].transport_errors, 0);
}
