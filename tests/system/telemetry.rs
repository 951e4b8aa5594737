//! What collectors of other houses get with `--otlp`: the whole trace of a run, whose tree, names, kinds, attributes and statuses
//! are read from what they print. The harness's own collector, which the verdict is made from, has no part in it.

use crate::{
    foreign::{ByHand, Way, asked_with_stub, python_with, site_packages},
    support::{check, command, repository, run, test, test_with},
};
use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Longest wait for a collector to listen, and to leave.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest wait for the viewer, a big program, to start, and to store what it has acknowledged.
const VIEWER_PATIENCE: Duration = Duration::from_secs(120);
/// What brings the viewer: `tests/setup` leaves it out, since it takes 0.9 GB.
const BRINGS_VIEWER: &str = "python3 -m venv target/phoenix && target/phoenix/bin/pip install arize-phoenix==20.26.1";

/// A link of the chain: calls, attempts, arrivals.
type Link = [usize; 3];
/// The headline request, from the client's link down: 1, 3, 9 and 27 arrivals.
const HEADLINE: [Link; 4] = [[1, 1, 1], [1, 3, 3], [3, 9, 9], [9, 27, 27]];
/// Inventory fails twice and then works.
const TRANSIENT: [Link; 4] = [[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 3, 3]];
/// Nobody repeats what the client got wrong.
const ONCE: [Link; 4] = [[1, 1, 1]; 4];

/// Who calls whom, and by which method.
const HOPS: [(&str, &str, &str); 4] = [
    ("client", "frontend", "shop.v1.Frontend/GetOffer"),
    ("frontend", "checkout", "shop.v1.Checkout/GetQuote"),
    ("checkout", "pricing", "shop.v1.Pricing/GetPrice"),
    ("pricing", "inventory", "shop.v1.Inventory/GetStock"),
];

type Check = fn(&[Seen]) -> Result<(), Failed>;

/// A test that starts the collector in Python.
type WithPython = fn(&Path) -> Result<(), Failed>;

pub fn tests() -> Vec<Trial> {
    let claims: [(&str, &'static [&'static str], Check); 3] = [
        ("gets_the_headline_trace_whole", &["run"], headline),
        (
            "sees_no_error_in_a_call_whose_third_attempt_succeeded",
            &["run", "transient"],
            transient,
        ),
        (
            "sees_what_the_client_got_wrong_as_no_error_of_a_server",
            &["run", "--fault", "fail:code=NOT_FOUND"],
            not_found,
        ),
    ];
    let mut tests = Vec::new();
    for house in [House::Rotel, House::Python] {
        for (claim, arguments, judge) in claims {
            let name = format!("telemetry::{}_{claim}", house.name());
            let run = move |part: PathBuf| judge(&exported(house, &part, arguments)?);
            tests.push(test_with(house.part(), house.part_name(), "tests/setup", &name, run));
        }
    }
    tests.push(test_with(
        python_with(&["grpc_tools", "opentelemetry/proto"]),
        House::Python.part_name(),
        "tests/setup",
        "telemetry::a_trace_that_a_foreign_client_began_goes_on_down_to_inventory",
        |python| begun_elsewhere(&python),
    ));
    let variables: [(&str, WithPython); 2] = [
        (
            "telemetry::every_way_of_ending_delivers_the_last_spans",
            every_way_of_ending,
        ),
        (
            "telemetry::a_service_started_by_hand_obeys_the_variables_of_opentelemetry",
            variables_obeyed,
        ),
    ];
    for (name, run) in variables {
        let part = House::Python.part();
        tests.push(test_with(
            part,
            House::Python.part_name(),
            "tests/setup",
            name,
            move |python| run(&python),
        ));
    }
    tests.push(test(
        "telemetry::a_variable_that_cannot_be_obeyed_is_refused_by_name",
        variables_refused,
    ));
    let phoenix = repository().join("target/phoenix/bin/phoenix");
    tests.push(test_with(
        phoenix.exists().then_some(phoenix),
        "the trace viewer Phoenix",
        BRINGS_VIEWER,
        "telemetry::a_foreign_viewer_stores_the_94_spans_of_the_headline_trace",
        viewed,
    ));
    tests
}

/// Every span of one run, as a foreign collector saw it.
fn exported(house: House, part: &Path, arguments: &[&str]) -> Result<Vec<Seen>, Failed> {
    let collector = Collector::start(house, part)?;
    let ran = run(&[arguments, &["--otlp", &collector.endpoint]].concat());
    check(ran.exit == 0, || {
        format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
    })?;
    collector.stop()
}

fn headline(spans: &[Seen]) -> Result<(), Failed> {
    whole(spans, HEADLINE)?;
    check(spans.iter().all(Seen::failed), || "a span is no error".to_owned())?;
    let arrivals = || spans.iter().filter(|span| span.is("SERVER", "inventory"));
    let parents: BTreeSet<_> = arrivals().map(|span| &span.parent).collect();
    check((arrivals().count(), parents.len()) == (27, 27), || {
        format!(
            "{} arrivals at inventory, {} parents",
            arrivals().count(),
            parents.len()
        )
    })
}

fn transient(spans: &[Seen]) -> Result<(), Failed> {
    whole(spans, TRANSIENT)?;
    let failed: Vec<_> = spans.iter().filter(|span| span.failed()).collect();
    let of = |kind, service| failed.iter().filter(|span| span.is(kind, service)).count();
    check(
        failed.len() == 4 && of("CLIENT", "pricing") == 2 && of("SERVER", "inventory") == 2,
        || format!("failed: {failed:#?}"),
    )
}

fn not_found(spans: &[Seen]) -> Result<(), Failed> {
    whole(spans, ONCE)?;
    let wrong = spans.iter().find(|span| span.failed() == (span.kind == "SERVER"));
    check(wrong.is_none(), || format!("{wrong:#?}"))
}

/// The right spans on each link, in one tree, each as the conventions want it.
fn whole(spans: &[Seen], links: [Link; 4]) -> Result<(), Failed> {
    counted(spans, links)?;
    let root = one_tree(spans)?;
    check(root.is("INTERNAL", "client"), || {
        format!("the root is not the client's call: {root:#?}")
    })?;
    for span in spans {
        conventional(span).map_err(|wrong| format!("{}: {span:#?}", wrong.message().unwrap_or("wrong")))?;
    }
    resources(spans)?;
    related(spans)
}

/// Per link so many INTERNAL, CLIENT and SERVER spans, of the right services, under the right names, and no other span.
fn counted(spans: &[Seen], links: [Link; 4]) -> Result<(), Failed> {
    let mut wanted = BTreeMap::new();
    for ((caller, callee, method), [calls, attempts, arrivals]) in HOPS.into_iter().zip(links) {
        wanted.insert((caller, "INTERNAL", method.to_owned()), calls);
        wanted.insert((caller, "CLIENT", attempt_name(method)), attempts);
        wanted.insert((callee, "SERVER", method.to_owned()), arrivals);
    }
    let mut seen = BTreeMap::new();
    for span in spans {
        *seen
            .entry((span.service(), span.kind.as_str(), span.name.clone()))
            .or_insert(0) += 1;
    }
    check(seen == wanted, || format!("wanted {wanted:#?}, got {seen:#?}"))
}

/// One trace id, every span id once, every parent among the spans but for one root's, which is given.
fn one_tree(spans: &[Seen]) -> Result<&Seen, Failed> {
    let traces: BTreeSet<_> = spans.iter().map(|span| &span.trace).collect();
    check(traces.len() == 1, || format!("several traces: {traces:?}"))?;
    let ids: BTreeSet<_> = spans.iter().map(|span| &span.id).collect();
    check(ids.len() == spans.len(), || "a span id stands twice".to_owned())?;
    let orphans: Vec<_> = spans.iter().filter(|span| !ids.contains(&span.parent)).collect();
    match orphans[..] {
        [root] if root.parent.is_empty() => Ok(root),
        _ => Err(format!("not one root: {orphans:#?}").into()),
    }
}

/// What OpenTelemetry's conventions for RPC (1.39 to 1.44) say of one span, and gRPC's proposal A72 of an attempt.
fn conventional(span: &Seen) -> Result<(), Failed> {
    let text = |key: &str| span.attributes.get(key).and_then(Value::as_str);
    let number = |key: &str| span.attributes.get(key).and_then(Value::as_u64);
    check(text("rpc.system.name") == Some("grpc"), || "no gRPC system".to_owned())?;
    let is_attempt = span.kind == "CLIENT";
    let name = text("rpc.method").map(|method| {
        if is_attempt {
            attempt_name(method)
        } else {
            method.to_owned()
        }
    });
    check(name.as_ref() == Some(&span.name), || {
        "the name is not the method's".to_owned()
    })?;
    let code = text("rpc.response.status_code").ok_or("the status code is no text")?;
    let own_fault = [
        "UNKNOWN",
        "DEADLINE_EXCEEDED",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
    ];
    let is_error = if span.kind == "SERVER" {
        own_fault.contains(&code)
    } else {
        code != "OK"
    };
    // On success the status is unset, not OK, and there is no type of an error at all.
    let (status, error_type) = if is_error {
        ("ERROR", Some(code))
    } else {
        ("UNSET", None)
    };
    check(span.status == status, || format!("status {}", span.status))?;
    check(text("error.type") == error_type, || {
        format!("error.type {:?}", text("error.type"))
    })?;
    check(is_error || !span.attributes.contains_key("error.type"), || {
        "a type of no error".to_owned()
    })?;
    if is_attempt {
        check(text("server.address") == Some("127.0.0.1"), || "no address".to_owned())?;
        // Numbers that a collector reads as numbers: an unsigned one would have become a text on the way.
        check(number("server.port").is_some_and(|port| port > 0), || {
            "no port".to_owned()
        })?;
        check(number("previous-rpc-attempts").is_some(), || {
            "no number of attempts before".to_owned()
        })?;
    }
    check(0 < span.start_ns && span.start_ns <= span.end_ns, || {
        "it ends before it starts".to_owned()
    })
}

/// One resource per service, each process with an instance id of its own.
fn resources(spans: &[Seen]) -> Result<(), Failed> {
    let mut of_service = BTreeMap::new();
    for span in spans {
        let first = of_service.entry(span.service()).or_insert(&span.resource);
        check(*first == &span.resource, || {
            format!("two resources of one service: {first:?}, {:?}", span.resource)
        })?;
    }
    let values = |key: &str| -> BTreeSet<_> {
        let values = of_service.values().filter_map(|resource| resource.get(key));
        values.map(Value::to_string).collect()
    };
    let (instances, namespaces) = (values("service.instance.id"), values("service.namespace"));
    check(instances.len() == of_service.len() && namespaces.len() == 1, || {
        format!("instances {instances:?}, namespaces {namespaces:?}")
    })
}

/// Arrivals under attempts, attempts under calls, calls under arrivals; and what the attempts of one call say of each other.
fn related(spans: &[Seen]) -> Result<(), Failed> {
    let by_id: BTreeMap<_, _> = spans.iter().map(|span| (&span.id, span)).collect();
    let mut below: BTreeMap<&String, Vec<&Seen>> = BTreeMap::new();
    for span in spans {
        below.entry(&span.parent).or_default().push(span);
        let Some(parent) = by_id.get(&span.parent) else {
            continue;
        };
        let same_service = parent.service() == span.service();
        let same_method = parent.attributes.get("rpc.method") == span.attributes.get("rpc.method");
        let fits = match span.kind.as_str() {
            "SERVER" => parent.kind == "CLIENT" && same_method && !same_service,
            "CLIENT" => parent.kind == "INTERNAL" && same_method && same_service,
            _ => parent.kind == "SERVER" && !same_method && same_service,
        };
        check(fits, || format!("{span:#?} is under {parent:#?}"))?;
    }
    let mut ports = BTreeSet::new();
    for span in spans {
        let mut children = below.remove(&span.id).unwrap_or_default();
        children.sort_by_key(|child| child.start_ns);
        if span.kind == "CLIENT" {
            check(children.len() == 1, || format!("not one arrival of {span:#?}"))?;
        }
        if span.kind == "INTERNAL" {
            let all = |key: &str| -> Vec<_> { children.iter().map(|child| &child.attributes[key]).collect() };
            let before: Vec<_> = (0..children.len()).map(Value::from).collect();
            check(
                all("previous-rpc-attempts") == before.iter().collect::<Vec<_>>(),
                || format!("attempts out of order: {children:#?}"),
            )?;
            let last = children.last().ok_or("a call without an attempt")?;
            let codes = [*last, span].map(|span| &span.attributes["rpc.response.status_code"]);
            check(codes[0] == codes[1], || {
                format!("a call ended otherwise than its last attempt: {codes:?}")
            })?;
            ports.extend(all("server.port").iter().map(|port| (span.service(), port.to_string())));
        }
    }
    // Each caller calls one address, whatever it repeats.
    check(ports.len() == HOPS.len(), || format!("{ports:?}"))
}

/// A trace of a foreign client, exported by the services themselves, without a harness.
fn begun_elsewhere(python: &Path) -> Result<(), Failed> {
    let collector = Collector::start(House::Python, python)?;
    let chain = ByHand::start("fail", &[("RETRYSCOPE_OTLP", &collector.endpoint)])?;
    let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    asked_with_stub(python, chain.entry(), &["traced", &format!("00-{trace}-{span}-01")])?;
    chain.stop()?;
    let spans = collector.stop()?;
    // The client's own call and attempt are nobody's spans here.
    check(
        spans.len() == 92 && spans.iter().all(|span| span.trace == trace),
        || format!("{} spans: {spans:#?}", spans.len()),
    )?;
    let ids: BTreeSet<_> = spans.iter().map(|span| &span.id).collect();
    let tops: Vec<_> = spans.iter().filter(|span| !ids.contains(&span.parent)).collect();
    check(
        matches!(tops[..], [top] if top.parent == span && top.is("SERVER", "frontend")),
        || format!("{tops:#?}"),
    )
}

/// What four services export by themselves for one request, under these variables, ended in this way.
fn by_themselves(python: &Path, settings: &[(&str, &str)], way: Way) -> Result<Vec<Seen>, Failed> {
    let collector = Collector::start(House::Python, python)?;
    // Nothing goes out by itself while the test runs: what comes was flushed at the end.
    let own = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "600000"),
    ];
    let chain = ByHand::start("fail", &[&own, settings].concat())?;
    chain.ask()?;
    chain.end(way)?;
    collector.stop()
}

fn every_way_of_ending(python: &Path) -> Result<(), Failed> {
    let signals = [Signal::TERM, Signal::INT, Signal::HUP].map(Way::Signal);
    for way in signals.into_iter().chain([Way::StdinCloses]) {
        let spans = by_themselves(python, &[], way)?;
        check(spans.len() == 92, || format!("{way:?}: {} of 92 spans", spans.len()))?;
    }
    Ok(())
}

fn variables_obeyed(python: &Path) -> Result<(), Failed> {
    let way = Way::Signal(Signal::TERM);
    let named = [
        ("OTEL_SERVICE_NAME", "shelf"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=demo"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
    ];
    let spans = by_themselves(python, &named, way)?;
    check(spans.len() == 92, || format!("{} of 92 spans", spans.len()))?;
    for span in &spans {
        let is_named = span.service() == "shelf" && span.resource["deployment.environment.name"] == "demo";
        check(is_named, || format!("{:?}", span.resource))?;
    }
    let spans = by_themselves(python, &[("OTEL_TRACES_SAMPLER", "always_off")], way)?;
    check(spans.is_empty(), || format!("{} spans of an off sampler", spans.len()))?;
    let spans = by_themselves(python, &[("OTEL_SDK_DISABLED", "true")], way)?;
    check(spans.is_empty(), || format!("{} spans of a disabled SDK", spans.len()))
}

fn variables_refused() -> Result<(), Failed> {
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:4317"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "127.0.0.1:4317"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
    ] {
        let output = command(&["service", "inventory"]).env(name, value).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        check(output.status.code() == Some(2) && said.contains(name), || {
            said.to_string()
        })?;
    }
    Ok(())
}

/// The viewer, and what it answers over its own interface.
fn viewed(phoenix: PathBuf) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let [pages, spans] = [quiet_port()?, quiet_port()?];
    let mut viewer = Command::new(phoenix);
    viewer
        .arg("serve")
        .env("PHOENIX_WORKING_DIR", folder.path())
        .env("PHOENIX_HOST", "127.0.0.1")
        .env("PHOENIX_PORT", pages.to_string())
        .env("PHOENIX_GRPC_PORT", spans.to_string())
        .env("PHOENIX_ALLOW_EXTERNAL_RESOURCES", "false")
        .env("PHOENIX_TELEMETRY_ENABLED", "false");
    let mut viewer = Running::start(viewer, folder.path())?;
    let pages = SocketAddr::from((Ipv4Addr::LOCALHOST, pages));
    viewer.until(VIEWER_PATIENCE, "the viewer answers", || {
        get(pages, "/v1/projects").is_ok_and(|answer| answer["data"].is_array())
    })?;
    let ran = run(&["run", "--otlp", &format!("http://127.0.0.1:{spans}")]);
    check(ran.exit == 0, || format!("exit {}: {}", ran.exit, ran.stderr))?;
    let stored = || -> Result<BTreeMap<String, usize>, Failed> {
        let answer = get(pages, "/v1/projects/default/spans?limit=1000")?;
        let mut traces = BTreeMap::new();
        for span in answer["data"].as_array().into_iter().flatten() {
            *traces.entry(span["context"]["trace_id"].to_string()).or_default() += 1;
        }
        Ok(traces)
    };
    viewer.until(VIEWER_PATIENCE, "94 spans of one trace are stored", || {
        stored().is_ok_and(|traces| traces.values().eq(&[94]))
    })
}

/// What `http://address/path` answers, as JSON. HTTP/1.0, so that the answer ends with the connection and comes in one piece.
fn get(address: SocketAddr, path: &str) -> Result<Value, Failed> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("half an answer")?;
    Ok(serde_json::from_str(body)?)
}

/// A span as a collector saw it.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Seen {
    /// What is said of the process that made it.
    pub resource: Map<String, Value>,
    /// Trace id, in hex, as are the next two.
    pub trace: String,
    /// Its own id.
    pub id: String,
    /// Its parent's id; empty at the root.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// `SERVER`, `CLIENT`, `INTERNAL`.
    pub kind: String,
    /// `UNSET`, `OK`, `ERROR`.
    pub status: String,
    /// When it started, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Texts stay texts and numbers numbers.
    pub attributes: Map<String, Value>,
}

impl Seen {
    fn service(&self) -> &str {
        self.resource["service.name"].as_str().unwrap_or_default()
    }

    fn is(&self, kind: &str, service: &str) -> bool {
        self.kind == kind && self.service() == service
    }

    fn failed(&self) -> bool {
        self.status == "ERROR"
    }
}

fn attempt_name(method: &str) -> String {
    format!("Attempt.{}", method.replace('/', "."))
}

/// Whose collector.
#[derive(Debug, Clone, Copy)]
pub enum House {
    /// rotel, a collector in Rust that shares nothing with this house but the protocol. It prints what it gets.
    Rotel,
    /// `tests/foreign/sink.py`, on grpcio and OpenTelemetry's own message classes.
    Python,
}

impl House {
    fn name(self) -> &'static str {
        match self {
            Self::Rotel => "rotel",
            Self::Python => "a_collector_in_python",
        }
    }

    fn part_name(self) -> &'static str {
        match self {
            Self::Rotel => "the collector rotel",
            Self::Python => "Python's grpcio with grpcio-tools and opentelemetry-proto",
        }
    }

    fn part(self) -> Option<PathBuf> {
        match self {
            Self::Rotel => site_packages()
                .map(|packages| packages.join("rotel/rotel-agent"))
                .filter(|agent| agent.exists()),
            Self::Python => python_with(&["grpc", "opentelemetry/proto"]),
        }
    }
}

/// A running collector.
pub struct Collector {
    house: House,
    /// Where it takes spans: `http://host:port`.
    pub endpoint: String,
    running: Running,
    _folder: TempDir,
}

impl Collector {
    /// Starts one and waits until it listens.
    pub fn start(house: House, part: &Path) -> Result<Self, Failed> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(part);
        let (running, endpoint) = match house {
            House::Rotel => {
                let [spans, http] = [quiet_port()?, quiet_port()?].map(|port| format!("127.0.0.1:{port}"));
                command
                    .args(["start", "--exporter", "blackhole", "--debug-log", "traces"])
                    .args(["--debug-log-verbosity", "detailed"])
                    // Split batches would lose the resource of what is split off: rotel's own fault, not what is tested here.
                    .args(["--batch-max-size", "1000000"])
                    .args(["--otlp-grpc-endpoint", &spans, "--otlp-http-endpoint", &http]);
                let mut running = Running::start(command, folder.path())?;
                running.until(PATIENCE, "rotel listens", || TcpStream::connect(&spans).is_ok())?;
                (running, format!("http://{spans}"))
            }
            House::Python => {
                command.arg(repository().join("tests/foreign/sink.py"));
                let mut running = Running::start(command, folder.path())?;
                let said = running.said.clone();
                let first_line = || Some(std::fs::read_to_string(&said).ok()?.split_once('\n')?.0.to_owned());
                running.until(PATIENCE, "the collector in Python says where it listens", || {
                    first_line().is_some()
                })?;
                (running, first_line().ok_or("its first line is gone")?)
            }
        };
        Ok(Self {
            house,
            endpoint,
            running,
            _folder: folder,
        })
    }

    /// Lets it finish, and reads what it got.
    pub fn stop(mut self) -> Result<Vec<Seen>, Failed> {
        let child = &mut self.running.child;
        match self.house {
            House::Rotel => interrupt(child, Signal::INT),
            House::Python => drop(child.stdin.take()),
        }
        until(PATIENCE, "the collector leaves", || {
            matches!(child.try_wait(), Ok(Some(_)))
        })?;
        let said = self.running.said()?;
        match self.house {
            House::Rotel => from_rotel(&said),
            // After the line that says where it listens.
            House::Python => said
                .lines()
                .skip(1)
                .map(|line| Ok(serde_json::from_str(line)?))
                .collect(),
        }
    }
}

/// Reads rotel's text: a span is a block of `Key : value` lines, and the attributes are arrows of the block or of the resource.
fn from_rotel(text: &str) -> Result<Vec<Seen>, Failed> {
    let mut spans: Vec<Seen> = Vec::new();
    let mut resource = Map::new();
    let mut in_resource = false;
    for line in text.lines() {
        if line.starts_with("ResourceSpans #") {
            (resource, in_resource) = (Map::new(), true);
        } else if line.starts_with("Span #") {
            in_resource = false;
            spans.push(Seen {
                resource: resource.clone(),
                ..Seen::default()
            });
        } else if let Some(attribute) = line.trim_start().strip_prefix("-> ") {
            let (key, value) = attribute.split_once(": ").ok_or(line)?;
            let place = match spans.last_mut() {
                Some(span) if !in_resource => &mut span.attributes,
                _ => &mut resource,
            };
            place.insert(key.to_owned(), typed(value)?);
        } else if let (Some(span), Some((key, value))) = (spans.last_mut(), line.split_once(':')) {
            let value = value.trim();
            match key.trim() {
                "Trace ID" => value.clone_into(&mut span.trace),
                "Parent ID" => value.clone_into(&mut span.parent),
                "ID" => value.clone_into(&mut span.id),
                "Name" => value.clone_into(&mut span.name),
                "Kind" => value.trim_start_matches("SPAN_KIND_").clone_into(&mut span.kind),
                "Status code" => value.trim_start_matches("STATUS_CODE_").clone_into(&mut span.status),
                "Start time" => span.start_ns = value.parse()?,
                "End time" => span.end_ns = value.parse()?,
                _ => {}
            }
        }
    }
    Ok(spans)
}

/// `Str(grpc)`, `Int(3)`.
fn typed(value: &str) -> Result<Value, Failed> {
    let inner = |kind: &str| value.strip_prefix(kind)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(text) = inner("Str") {
        return Ok(text.into());
    }
    let number = inner("Int").ok_or_else(|| format!("a type of attribute that no span of ours has: {value}"))?;
    Ok(number.parse::<i64>()?.into())
}

/// A foreign program whose output goes into files. It is killed with this handle.
struct Running {
    child: Child,
    said: PathBuf,
    complained: PathBuf,
}

impl Running {
    fn start(mut command: Command, folder: &Path) -> Result<Self, Failed> {
        let [said, complained] = ["said", "complained"].map(|name| folder.join(name));
        command
            .stdin(Stdio::piped())
            .stdout(File::create(&said)?)
            .stderr(File::create(&complained)?);
        Ok(Self {
            child: command.spawn()?,
            said,
            complained,
        })
    }

    fn said(&self) -> Result<String, Failed> {
        Ok(std::fs::read_to_string(&self.said)?)
    }

    /// Waits until it is up, and no longer than it lives.
    fn until(&mut self, longest: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Result<(), Failed> {
        let child = &mut self.child;
        let mut ended = None;
        until(longest, what, || {
            ended = child.try_wait().ok().flatten();
            ended.is_some() || holds()
        })?;
        check(ended.is_none(), || {
            let complaint = std::fs::read_to_string(&self.complained).unwrap_or_default();
            format!("{what}: it ended instead, {ended:?}: {complaint}")
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have left already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a child that is still ours.
pub fn interrupt(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have left already.
        let _ = kill_process(pid, signal);
    }
}

/// A free port below those that the system gives out by itself, so that no other test takes it meanwhile.
fn quiet_port() -> Result<u16, Failed> {
    (0..100)
        .map(|_| rand::random_range(20_000..32_000))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| "no free port between 20000 and 32000".into())
}

/// Waits for a condition, for so long at most.
pub fn until(longest: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Result<(), Failed> {
    let began = Instant::now();
    while !holds() {
        check(began.elapsed() < longest, || format!("not within {longest:?}: {what}"))?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
