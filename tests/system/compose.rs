//! The compose file for real: built, started, asked and taken down by docker-compose on this machine's engine.
//!
//! The images that its files take from a registry are replaced by stand-ins made of what is installed here
//! (`tests/compose/Dockerfile` says what each is). They get names of their own, through an override file and build arguments.
//! Under the real names they would try the files more literally, but a test that is killed would leave a false compiler
//! behind for every other build on the machine, and one that cleans up could take away an image that somebody pulled.

use crate::support::{FIXED_PORTS, check, harness, repository, test, test_with};
use libtest_mimic::{Failed, Trial};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::{fs::symlink, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub fn tests() -> Vec<Trial> {
    let name = "compose::the_stack_measures_both_policies_is_confined_obeys_its_token_and_leaves_nothing";
    match Parts::find() {
        Ok(parts) => vec![test(name, move || stack(&parts))],
        Err((part, brings)) => vec![test_with(None, part, brings, name, |_| Ok(()))],
    }
}

/// The ports that the compose file publishes.
const PUBLISHED: [u16; 2] = [50051, 16686];
/// The services from the top of the chain.
const SERVICES: [&str; 4] = ["frontend", "checkout", "pricing", "inventory"];
/// The user that our containers run as.
const USER: &str = "65532";
/// Where the harness says that a trace can be seen.
const VIEWER: &str = "http://127.0.0.1:16686/trace/";
/// How long anything that has to come may take.
const PATIENCE: Duration = Duration::from_secs(40);

/// What has to be installed here.
struct Parts {
    /// `docker-compose`, or `docker compose`.
    compose: &'static [&'static str],
    busybox: PathBuf,
    agent: PathBuf,
}

impl Parts {
    /// All of them, or the first that is missing with what brings it.
    fn find() -> Result<Self, (&'static str, &'static str)> {
        let works = |words: &[&str]| {
            let output = Command::new(words[0]).args(&words[1..]).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !works(&["docker", "version", "--format", "{{.Server.Version}}"]) {
            return Err(("a Docker engine that answers", "tests/setup, and start the engine"));
        }
        let composes: [&[&str]; 2] = [&["docker-compose"], &["docker", "compose"]];
        let compose = composes
            .into_iter()
            .find(|words| works(&[words, ["version"].as_slice()].concat()));
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
        let agent = agent().filter(|agent| works(&[&agent.to_string_lossy(), "version"]));
        let busy = PUBLISHED
            .iter()
            .any(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_err());
        if busy {
            let frees = "docker compose down (or stop what listens there), and then the test";
            return Err(("the ports 50051 and 16686, which are in use", frees));
        }
        Ok(Self {
            compose: compose.ok_or(("docker-compose", "tests/setup"))?,
            busybox: busybox
                .into_iter()
                .find(|path| path.exists())
                .ok_or(("busybox", "tests/setup"))?,
            agent: agent.ok_or(("the collector rotel", "tests/setup"))?,
        })
    }
}

/// The collector's program, where `tests/setup` puts it.
fn agent() -> Option<PathBuf> {
    let pythons = fs::read_dir(repository().join("target/foreign/lib")).ok()?;
    pythons
        .filter_map(|entry| Some(entry.ok()?.path().join("site-packages/rotel/rotel-agent")))
        .find(|path| path.exists())
}

fn stack(parts: &Parts) -> Result<(), Failed> {
    let _ports = FIXED_PORTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let stack = Stack::prepare(parts)?;
    stack.up()?;
    let log = stack.headline()?;
    let (every_hop, one_owner) = traces(&log)?;
    stack.arrivals_at_the_collector(&every_hop, [1, 3, 9, 27])?;
    stack.arrivals_at_the_collector(&one_owner, [1, 3, 3, 3])?;
    stack.confined()?;
    stack.broken_and_healed()?;
    stack.without_the_token()?;
    stack.measured()?;
    stack.taken_down()
}

/// A compose project of this process. However the test ends, nothing of it is left.
struct Stack {
    compose: &'static [&'static str],
    /// Of the project; the image has the same.
    name: String,
    override_file: PathBuf,
    _cleaner: Cleaner,
}

impl Stack {
    /// Builds the stand-ins and writes the override file.
    fn prepare(parts: &Parts) -> Result<Self, Failed> {
        let name = format!("retryscope-test-{}", std::process::id());
        let folder = tempfile::tempdir()?;
        let root = folder.path().to_owned();
        let stack = Self {
            compose: parts.compose,
            override_file: root.join("override.yml"),
            _cleaner: Cleaner::new(&name, folder)?,
            name,
        };
        stack.write_override()?;

        let build = root.join("build");
        put(&parts.busybox, &build, "bin/busybox")?;
        for program in ["sh", "sed", "cp", "mkdir"] {
            symlink("busybox", build.join("bin").join(program))?;
        }
        put(&repository().join("tests/compose/cargo"), &build, "usr/local/bin/cargo")?;
        put(&harness(), &build, "outside/harness")?;

        let last = root.join("final");
        put_libraries(&harness(), &last)?;
        fs::create_dir(last.join("etc"))?;
        fs::write(
            last.join("etc/passwd"),
            format!("root:x:0:0::/root:/none\nnonroot:x:{USER}:{USER}::/:/none\n"),
        )?;
        fs::write(last.join("etc/nsswitch.conf"), "hosts: files dns\n")?;

        let jaeger = root.join("jaeger");
        put(&parts.busybox, &jaeger, "bin/busybox")?;
        symlink("busybox", jaeger.join("bin/sh"))?;
        put(&parts.agent, &jaeger, "rotel-agent")?;
        put_libraries(&parts.agent, &jaeger)?;

        for target in ["build", "final", "jaeger"] {
            succeeded(
                Command::new("docker")
                    .args(["build", "--quiet", "--target", target])
                    .arg("--tag")
                    .arg(format!("{}-{target}", stack.name))
                    .arg("--label")
                    .arg(format!("retryscope.test={}", stack.name))
                    .arg("--file")
                    .arg(repository().join("tests/compose/Dockerfile"))
                    .arg(&root),
            )?;
        }
        Ok(stack)
    }

    /// The names of the stand-ins, and one for the image that will be built, so that a real `retryscope` stays what it is.
    fn write_override(&self) -> Result<(), Failed> {
        let name = &self.name;
        let mut lines = vec![
            "services:".to_owned(),
            format!("  jaeger: {{image: {name}-jaeger}}"),
            format!(
                "  token: {{image: {name}, build: {{args: {{BUILD_BASE: {name}-build, FINAL_BASE: {name}-final}}}}}}"
            ),
        ];
        lines.extend(
            SERVICES
                .iter()
                .chain(&["harness"])
                .map(|service| format!("  {service}: {{image: {name}}}")),
        );
        Ok(fs::write(&self.override_file, lines.join("\n"))?)
    }

    /// docker-compose on the repository's file, without what the user's environment may add to it.
    fn compose(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.compose[0]);
        command.args(&self.compose[1..]).current_dir(repository());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["COMPOSE_", "OTEL_", "RETRYSCOPE_"]
                .iter()
                .any(|ours| text.starts_with(ours))
            {
                command.env_remove(&name);
            }
        }
        command.args(["--file", "docker-compose.yml", "--file"]);
        command.arg(&self.override_file);
        command.args(["--project-name", &self.name]).args(words);
        command
    }

    fn up(&self) -> Result<(), Failed> {
        let output = self.compose(&["up", "--detach"]).output()?;
        check(output.status.success(), || {
            // Why a container did not stay is in its own log.
            let logs = self.compose(&["logs", "--no-color"]).output();
            let logs = logs.map(|logs| said(&logs)).unwrap_or_default();
            format!("docker-compose up: {}: {}\n{logs}", output.status, said(&output))
        })
    }

    /// The program inside the harness's container, as the README has it.
    fn harness(&self, words: &[&str]) -> Result<Output, Failed> {
        let exec = ["exec", "-T", "harness", "harness"];
        Ok(self.compose(&[&exec, words].concat()).output()?)
    }

    /// The same without a token.
    fn harness_without_token(&self, words: &[&str]) -> Result<Output, Failed> {
        let exec = [
            "exec",
            "-T",
            "-e",
            "RETRYSCOPE_CONTROL_TOKEN=",
            "-e",
            "RETRYSCOPE_CONTROL_TOKEN_FILE=",
            "harness",
            "harness",
        ];
        Ok(self.compose(&[&exec, words].concat()).output()?)
    }

    /// The container of a service, running or not.
    fn container(&self, service: &str) -> Result<String, Failed> {
        let project = format!("label=com.docker.compose.project={}", self.name);
        let service = format!("label=com.docker.compose.service={service}");
        docker(&["ps", "--all", "--quiet", "--filter", &project, "--filter", &service])
    }

    fn log(&self, service: &str) -> Result<String, Failed> {
        let output = Command::new("docker")
            .args(["logs", &self.container(service)?])
            .output()?;
        Ok(said(&output))
    }

    /// The harness's log once it has said its last line: both measurements, and both as predicted.
    fn headline(&self) -> Result<String, Failed> {
        let log = until(|| {
            let log = self.log("harness")?;
            check(traces(&log).is_ok(), || {
                format!("the harness has not said where its traces are:\n{log}")
            })?;
            Ok(log)
        })?;
        for counts in [["1", "3", "9", "27"], ["1", "3", "3", "3"]] {
            let stands = log.lines().any(|line| {
                let words: Vec<&str> = line.split([' ', '/', ',']).filter(|word| !word.is_empty()).collect();
                words.windows(counts.len()).any(|window| window == counts)
            });
            check(stands, || format!("{counts:?} is not in:\n{log}"))?;
        }
        let (right, wrong) = (
            log.matches("AS PREDICTED").count(),
            log.matches("NOT AS PREDICTED").count(),
        );
        check(right == 2 && wrong == 0, || {
            format!("two verdicts should be AS PREDICTED:\n{log}")
        })?;
        Ok(log)
    }

    /// The second witness outside the harness: SERVER spans of one trace at the collector, counted per service.
    fn arrivals_at_the_collector(&self, trace: &str, counts: [u64; 4]) -> Result<(), Failed> {
        let expected: BTreeMap<String, u64> = SERVICES.map(str::to_owned).into_iter().zip(counts).collect();
        until(|| {
            let counted = arrivals(&self.log("jaeger")?, trace);
            check(counted == expected, || {
                format!("the collector has SERVER spans {counted:?} of trace {trace}, not {expected:?}")
            })
        })
    }

    /// Every container has given up what it does not need, and ours run as nobody in particular.
    fn confined(&self) -> Result<(), Failed> {
        for service in SERVICES.iter().chain(&["token", "harness", "jaeger"]) {
            let container = self.container(service)?;
            let format = "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}} \
                          {{gt .HostConfig.Memory 0}} {{.State.OOMKilled}}";
            let confined = docker(&["inspect", "--format", format, &container])?;
            check(confined == "true [ALL] [no-new-privileges:true] true false", || {
                format!("{service}: {confined}")
            })?;
        }
        for service in SERVICES.iter().chain(&["harness"]) {
            let processes = docker(&["top", &self.container(service)?, "-o", "uid,pid"])?;
            let mut users = processes
                .lines()
                .skip(1)
                .filter_map(|row| row.split_whitespace().next());
            check(users.all(|user| user == USER), || format!("{service}: {processes}"))?;
        }
        // Only where a token may be written can it be: not in the image, and not through a volume that is there to be read.
        for place in ["/token", "/run/retryscope/other"] {
            let written = self.harness(&["token", place])?;
            check(!written.status.success(), || format!("{place} could be written"))?;
        }
        // On loopback and nowhere else.
        let mut published = BTreeSet::new();
        for service in SERVICES.iter().chain(&["token", "harness", "jaeger"]) {
            let ports = docker(&["port", &self.container(service)?])?;
            published.extend(
                ports
                    .lines()
                    .filter_map(|line| Some(line.split_once(" -> ")?.1.to_owned())),
            );
        }
        let expected = PUBLISHED.map(|port| format!("127.0.0.1:{port}")).into();
        check(published == expected, || format!("published: {published:?}"))
    }

    /// A fault put by hand changes what a caller gets, and taking it away changes it back.
    fn broken_and_healed(&self) -> Result<(), Failed> {
        // 64 + UNAVAILABLE.
        for (words, exit) in [("call", 0), ("fail", 0), ("call", 64 + 14), ("heal", 0), ("call", 0)] {
            let output = self.harness(&[words])?;
            check(output.status.code() == Some(exit), || {
                format!("harness {words}: {}, not {exit}: {}", output.status, said(&output))
            })?;
        }
        Ok(())
    }

    /// Without the token nothing can be switched, and nothing has been.
    fn without_the_token(&self) -> Result<(), Failed> {
        let refused = self.harness_without_token(&["fail"])?;
        let text = said(&refused);
        check(!refused.status.success() && text.contains("token"), || {
            format!("without a token: {}: {text}", refused.status)
        })?;
        let called = self.harness(&["call"])?;
        check(called.status.success(), || {
            format!("a refused switch was obeyed: {}", said(&called))
        })
    }

    /// Says how big it all is. The binary in this image is the test's, with its line tables.
    fn measured(&self) -> Result<(), Failed> {
        let size = docker(&["image", "inspect", "--format", "{{.Size}}", &self.name])?;
        let binary = fs::metadata(harness())?.len();
        println!("compose: image {size} bytes, of which the test's binary is {binary}");
        let mut words = vec!["stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}"];
        let containers: Vec<String> = SERVICES
            .iter()
            .chain(&["harness", "jaeger"])
            .map(|service| self.container(service))
            .collect::<Result<_, _>>()?;
        words.extend(containers.iter().map(String::as_str));
        println!("{}", docker(&words)?);
        Ok(())
    }

    /// Each of ours ends by itself when it is told to, and `down` leaves nothing.
    fn taken_down(&self) -> Result<(), Failed> {
        succeeded(&mut self.compose(&["stop"]))?;
        for service in SERVICES.iter().chain(&["harness"]) {
            let code = docker(&["inspect", "--format", "{{.State.ExitCode}}", &self.container(service)?])?;
            check(code == "0", || {
                format!("{service} ended with {code}: {}", self.log(service).unwrap_or_default())
            })?;
        }
        succeeded(&mut self.compose(&["down", "--volumes", "--remove-orphans"]))?;
        let project = format!("label=com.docker.compose.project={}", self.name);
        for words in [["ps", "--all"], ["network", "ls"], ["volume", "ls"]] {
            let left = docker(&[&words, ["--quiet", "--filter", &project].as_slice()].concat())?;
            check(left.is_empty(), || {
                format!("docker {} still has {left}", words.join(" "))
            })?;
        }
        Ok(())
    }
}

/// A process of its own that takes everything away when this one lets go of it, by dropping it or by being killed.
struct Cleaner {
    process: Child,
    // It lives as long as the cleaner, which removes it too where this process cannot.
    _folder: TempDir,
}

impl Cleaner {
    fn new(name: &str, folder: TempDir) -> Result<Self, Failed> {
        let process = Command::new(repository().join("tests/compose/clean"))
            .arg(name)
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // In a group of its own: the Ctrl-C that ends the test is not meant for it.
            .process_group(0)
            .spawn()?;
        Ok(Self {
            process,
            _folder: folder,
        })
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The traces of the two measurements, in their order, where the log names both and their comparison.
fn traces(log: &str) -> Result<(String, String), Failed> {
    let addresses = log.split(VIEWER).skip(1).map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_hexdigit() && letter != '.');
        rest[..end.unwrap_or(rest.len())].trim_end_matches('.')
    });
    let (compared, single): (Vec<&str>, Vec<&str>) = addresses.partition(|address| address.contains("..."));
    match (single.as_slice(), compared.as_slice()) {
        ([first, second], [both]) if *both == format!("{first}...{second}") && first.len() == 32 => {
            Ok(((*first).to_owned(), (*second).to_owned()))
        }
        _ => Err(format!("traces {single:?}, comparison {compared:?}").into()),
    }
}

/// SERVER spans of one trace per service, in the text that the collector writes.
fn arrivals(log: &str, wanted: &str) -> BTreeMap<String, u64> {
    let (mut service, mut trace) = ("", "");
    let mut counts = BTreeMap::new();
    for line in log.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("-> service.name: Str(") {
            service = name.trim_end_matches(')');
        } else if let Some((key, value)) = line.split_once(':') {
            match (key.trim_end(), value.trim()) {
                ("Trace ID", value) => trace = value,
                ("Kind", "SPAN_KIND_SERVER") if trace == wanted => {
                    *counts.entry(service.to_owned()).or_default() += 1;
                }
                _ => {}
            }
        }
    }
    counts
}

/// Copies a file into a tree, with its mode.
fn put(source: &Path, root: &Path, place: &str) -> Result<(), Failed> {
    let target = root.join(place);
    fs::create_dir_all(target.parent().ok_or("a place in a tree")?)?;
    fs::copy(source, &target).map_err(|error| format!("{}: {error}", source.display()))?;
    Ok(())
}

/// Copies the shared libraries that a program wants into a tree, to the places where it looks for them.
fn put_libraries(program: &Path, root: &Path) -> Result<(), Failed> {
    let output = Command::new("ldd").arg(program).output()?;
    for library in said(&output).split_whitespace().filter(|word| word.starts_with('/')) {
        put(Path::new(library), root, library.trim_start_matches('/'))?;
    }
    Ok(())
}

/// What docker answers, without the line's end.
fn docker(words: &[&str]) -> Result<String, Failed> {
    let output = succeeded(Command::new("docker").args(words))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn succeeded(command: &mut Command) -> Result<Output, Failed> {
    let output = command.output()?;
    check(output.status.success(), || {
        format!("{command:?}: {}: {}", output.status, said(&output))
    })?;
    Ok(output)
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Asks until the answer is right; then, or when patience ends, gives the last one.
fn until<T>(mut ask: impl FnMut() -> Result<T, Failed>) -> Result<T, Failed> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if answer.is_ok() || Instant::now() > give_up {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
