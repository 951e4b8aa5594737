//! What a request costs on its way through our sidecar, beside a real Envoy: CPU time of the proxy for one hop to inventory,
//! 64 requests in flight, no retries. Ours counts every request and makes its two spans, which go to a collector; the Envoy,
//! as `--sidecar envoy` starts it, does neither. A third one is ours without spans. Their windows take turns, so that whatever
//! else the machine does meets all of them.
//!
//! `cargo bench -p harness --bench sidecar`, with an `envoy` on the PATH or `RETRYSCOPE_ENVOY`.

// A benchmark prints what it found, and ends where something is not as it must be.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

use chassis::{
    config::{Callee, Config},
    process::{Announcement, UNTIL_STDIN_CLOSES},
};
use harness::envoy::{self, Envoy};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use proto::{
    lab::v1::{FlushRequest, ReadRequest, control_client::ControlClient, ledger_client::LedgerClient},
    shop::v1::{GetStockRequest, inventory_client::InventoryClient},
};
use std::{
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};

/// Requests at once.
const IN_FLIGHT: usize = 64;
/// Windows of each proxy.
const ROUNDS: usize = 7;
/// Length of one.
const WINDOW: Duration = Duration::from_secs(3);
/// Not measured: connections are made, caches fill.
const WARM_UP: Duration = Duration::from_secs(1);
/// Clock ticks of `/proc/PID/stat` in a second, on every Linux there is.
const TICKS: f64 = 100.0;

/// A child that ends with this process.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    // `cargo test --benches` runs it too, and wants nothing that takes long; `cargo bench` says so.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let program = match envoy::find() {
        Ok(program) => program,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            return;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(&program));
}

/// One window of one proxy.
#[derive(Clone, Copy)]
struct Measured {
    requests: f64,
    seconds: f64,
    cpu_seconds: f64,
}

impl Measured {
    fn per_second(self) -> f64 {
        self.requests / self.seconds
    }

    fn per_core_second(self) -> f64 {
        self.requests / self.cpu_seconds
    }
}

async fn measure(envoy: &Path) {
    let collected = Collected::start();
    let (_inventory, inventory) = ours("inventory", &[]);
    let callee = inventory.address.to_string();
    let spans_to = format!("http://{}", collected.address);
    let proxy = |otlp: &str| {
        let settings = [
            ("RETRYSCOPE_LAYER", "proxy"),
            ("RETRYSCOPE_CALLEE", "inventory"),
            ("RETRYSCOPE_CALLEE_ADDRESS", &callee),
            ("RETRYSCOPE_OTLP", otlp),
        ];
        ours("sidecar", &settings)
    };
    let (sidecar, announced) = proxy(&spans_to);
    let (spanless, bare) = proxy("");
    let config = Config {
        callee: Some(Callee {
            name: "inventory".to_owned(),
            address: inventory.address.into(),
        }),
        ..Config::named("inventory-proxy")
    };
    let (other, child) = Envoy::spawn(env!("CARGO_BIN_EXE_harness").as_ref(), envoy, &config)
        .await
        .unwrap();
    let there = format!("{}:{}", other.address.host, other.address.port)
        .parse()
        .unwrap();
    let proxies = [
        ("sidecar", sidecar.0.id(), connect(announced.address).await),
        ("no spans", spanless.0.id(), connect(bare.address).await),
        ("Envoy", child.id().unwrap(), connect(there).await),
    ];
    let mut windows = [Vec::new(), Vec::new(), Vec::new()];
    for (_, process, channel) in &proxies {
        window(*process, channel, WARM_UP).await;
    }
    for _ in 0..ROUNDS {
        for ((_, process, channel), windows) in proxies.iter().zip(&mut windows) {
            windows.push(window(*process, channel, WINDOW).await);
        }
    }
    for ((name, ..), windows) in proxies.iter().zip(&windows) {
        let rate = median(windows.iter().map(|window| window.per_second()));
        let cpu = median(windows.iter().map(|window| 1e6 / window.per_core_second()));
        println!("{name:8} {rate:8.0} requests/s   {cpu:6.2} us CPU per request");
    }
    let [ours, spanless, theirs] = &windows;
    for (name, ours) in [("sidecar", ours), ("without spans", spanless)] {
        let pairs = ours.iter().zip(theirs);
        let ratio = median(pairs.map(|(ours, theirs)| ours.per_core_second() / theirs.per_core_second()));
        println!("requests per core second, {name} / Envoy: {ratio:.2} (median of {ROUNDS} rounds)");
    }
    told(announced.control, &collected).await;
}

/// What the ledger and the collector have of it: nothing may have been saved on.
async fn told(control: SocketAddr, collected: &Collected) {
    let channel = connect(control).await;
    let flushed = ControlClient::new(channel.clone())
        .flush(FlushRequest::default())
        .await
        .unwrap();
    let totals = LedgerClient::new(channel)
        .read(ReadRequest::default())
        .await
        .unwrap()
        .into_inner();
    let made = totals.spans_made.unwrap();
    let spans = made.server + made.client + made.internal;
    println!(
        "ledger: {} requests; spans: {spans} made, {} collected {}",
        totals.received,
        collected.spans.load(Ordering::Relaxed),
        flushed.into_inner().error
    );
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Keeps so many requests in flight for so long.
async fn window(process: u32, channel: &Channel, length: Duration) -> Measured {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (began, cpu) = (Instant::now(), cpu_seconds(process));
    let workers: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            let mut client = InventoryClient::new(channel.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let item = "teapot".to_owned();
                    client.get_stock(GetStockRequest { item }).await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(length).await;
    let measured = Measured {
        requests: done.load(Ordering::Relaxed) as f64,
        seconds: began.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds(process) - cpu,
    };
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    measured
}

/// CPU time of all threads of a process so far, its own and the system's for it.
fn cpu_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name, in parentheses, may hold anything; user and system time are the 14th and the 15th field.
    let behind = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<f64> = behind
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse().unwrap())
        .collect();
    (fields[0] + fields[1]) / TICKS
}

async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .tcp_nodelay(true);
    endpoint.connect().await.unwrap()
}

fn ours(name: &str, settings: &[(&str, &str)]) -> (Running, Announcement) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_harness"))
        .args(["service", name, UNTIL_STDIN_CLOSES])
        .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
        .envs(settings.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    (Running(child), line.parse().unwrap())
}

/// A collector that counts and forgets, on a thread of its own.
struct Collected {
    address: SocketAddr,
    spans: Arc<AtomicU64>,
}

struct Sink(Arc<AtomicU64>);

#[tonic::async_trait]
impl TraceService for Sink {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let scopes = request
            .get_ref()
            .resource_spans
            .iter()
            .flat_map(|resource| &resource.scope_spans);
        let spans: usize = scopes.map(|scope| scope.spans.len()).sum();
        self.0.fetch_add(spans as u64, Ordering::Relaxed);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collected {
    fn start() -> Self {
        let spans = Arc::new(AtomicU64::new(0));
        let sink = Sink(Arc::clone(&spans));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let service = TraceServiceServer::new(sink).max_decoding_message_size(usize::MAX);
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                Server::builder()
                    .add_service(service)
                    .serve_with_incoming(incoming)
                    .await
                    .unwrap();
            });
        });
        Self { address, spans }
    }
}
