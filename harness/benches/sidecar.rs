//! What a request costs on its way through our sidecar, beside a real Envoy: CPU time of the proxy for one hop to inventory,
//! 64 requests in flight, no retries. Ours counts every request and makes its three spans, which go to a collector; the Envoy
//! does neither. Windows of both take turns, so that whatever else the machine does meets both.
//!
//! `cargo bench -p harness --bench sidecar`. The Envoy is found on the PATH, by `RETRYSCOPE_ENVOY`, or in `target/envoy`.

// A benchmark prints what it found, and ends where something is not as it must be.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

use chassis::process::{Announcement, UNTIL_STDIN_CLOSES};
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
    path::{Path, PathBuf},
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
    // Cargo runs benchmarks as tests too; those ask for a list, or for nothing that takes a minute.
    if std::env::args().any(|argument| argument == "--list" || argument == "--test") {
        return;
    }
    let Some(program) = envoy() else {
        eprintln!("SKIPPED for want of Envoy: run tests/setup");
        return;
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
    let (sidecar, announced) = ours(
        "sidecar",
        &[
            ("RETRYSCOPE_LAYER", "proxy"),
            ("RETRYSCOPE_CALLEE", "inventory"),
            ("RETRYSCOPE_CALLEE_ADDRESS", &inventory.address.to_string()),
            ("RETRYSCOPE_OTLP", &format!("http://{}", collected.address)),
        ],
    );
    let (other, address, _folder) = started(envoy, inventory.address);
    let proxies = [
        ("sidecar", sidecar.0.id(), connect(announced.address).await),
        ("Envoy", other.0.id(), connect(address).await),
    ];
    let mut windows = [Vec::new(), Vec::new()];
    for (name, process, channel) in &proxies {
        eprintln!("{name}");
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
    let [ours, theirs] = &windows;
    let pairs = ours.iter().zip(theirs);
    let ratio = median(pairs.map(|(ours, theirs)| ours.per_core_second() / theirs.per_core_second()));
    println!("requests per core second, sidecar / Envoy: {ratio:.2} (median of {ROUNDS} rounds)");
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

fn envoy() -> Option<PathBuf> {
    if let Some(told) = std::env::var_os("RETRYSCOPE_ENVOY") {
        return Some(told.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/envoy/lib");
    let installed = std::fs::read_dir(packages).into_iter().flatten().flatten();
    let installed = installed.map(|python| python.path().join("site-packages/envoy/_bin/envoy"));
    let mut candidates = std::env::split_paths(&path)
        .map(|folder| folder.join("envoy"))
        .chain(installed);
    candidates.find(|candidate| candidate.is_file())
}

/// The leanest proxy that an Envoy can be: HTTP/2 on both sides, one worker, no access log, no timeout, no tracing.
fn started(program: &Path, inventory: SocketAddr) -> (Running, SocketAddr, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    // Free until the Envoy takes it.
    let address = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let config = folder.path().join("envoy.yaml");
    let http2 = r#""@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"#;
    let manager = r#""@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"#;
    let router = r#""@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"#;
    let text = format!(
        r#"
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {listen} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          {manager}
          stat_prefix: hop
          codec_type: HTTP2
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{ match: {{ prefix: "/" }}, route: {{ cluster: inventory, timeout: 0s }} }}]
          http_filters: [{{ name: envoy.filters.http.router, typed_config: {{ {router} }} }}]
  clusters:
  - name: inventory
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        {http2}
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: inventory
      endpoints:
      - lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {callee} }} }} }} }}]
"#,
        listen = address.port(),
        callee = inventory.port(),
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    command.args([
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "--log-level",
        "error",
        "-c",
    ]);
    let running = Running(command.arg(&config).stderr(Stdio::inherit()).spawn().unwrap());
    while std::net::TcpStream::connect(address).is_err() {
        std::thread::yield_now();
    }
    (running, address, folder)
}
