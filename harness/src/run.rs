//! The recipe: predict, start, drive, settle, read, stop, judge.

use crate::{
    collector::{Collector, CollectorError},
    evidence::{self, Evidence, Reading},
    expect::{Counts as Expectable, Expectation},
    fleet::{Fleet, FleetError, Start, Trouble},
    forward::{Forward, Forwarded},
    lab::{Lab, LabError},
    load::{self, Loaded},
    plan,
    report::{self, Latency, Report, Timing},
    scenario::{self, Scenario},
};
use chassis::{
    config::{Callee, Config, DEFAULT_SPAN_QUEUE},
    counts::{Counts, SpanKind},
    outbound::OutboundError,
    telemetry::{Telemetry, TelemetryError},
};
use futures_util::future::{BoxFuture, join_all};
use model::verdict::Disturbance;
use proto::lab::v1 as lab;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use thiserror::Error;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};

/// How often the processes are looked after while requests run.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for arrivals in flight after the last request has ended.
const SETTLE: Duration = Duration::from_secs(10);
/// Shortest and longest pause between two readings while settling.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Longest wait for the last spans once every process says that it has exported them.
const SPANS: Duration = Duration::from_secs(5);
/// Most spans that may wait for export in one process.
const MAX_SPAN_QUEUE: u64 = 1 << 20;

/// What a run needs besides its scenario.
pub struct Options {
    /// The program that serves (`PROGRAM service NAME`).
    pub program: PathBuf,
    /// Most arrivals at all services together that the plan may have.
    pub max_calls: u64,
    /// An outside collector.
    pub forward: Option<Forward>,
    /// What the user said beforehand.
    pub expectations: Vec<Expectation>,
    /// Turns true when no more requests are to be sent.
    pub interrupt: watch::Receiver<bool>,
    /// Told how many requests have ended.
    pub progress: watch::Sender<u64>,
    /// For tests that damage the evidence.
    pub hooks: Hooks,
}

/// Where a test may reach into a run.
#[derive(Default)]
pub struct Hooks {
    /// Puts something between the services and the collector.
    pub collector: Option<Box<dyn FnOnce(SocketAddr) -> SocketAddr>>,
    /// Called when every service is up and nothing was sent.
    pub started: Option<Hook>,
    /// Called when the last request has ended.
    pub loaded: Option<Hook>,
}

/// One such place.
pub type Hook = Box<dyn for<'a> FnOnce(&'a mut Fleet) -> BoxFuture<'a, ()>>;

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum RunError {
    /// The plan itself is refused; nothing was started.
    #[error("{0}")]
    Refused(String),
    /// A service did not start.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The collector did not start, or ended.
    #[error(transparent)]
    Collector(#[from] CollectorError),
    /// A service does not say what it is.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The client cannot call.
    #[error(transparent)]
    Client(#[from] OutboundError),
    /// The client cannot export its spans.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
}

/// What a run left.
pub struct Ran {
    /// The report.
    pub report: Report,
    /// What became of the spans for the outside collector.
    pub forwarded: Option<Forwarded>,
}

/// Runs a scenario. Every process it starts is gone when it returns, whatever it returns.
pub async fn run(scenario: &Scenario, options: Options) -> Result<Ran, RunError> {
    let Options {
        program,
        max_calls,
        forward,
        expectations,
        interrupt,
        progress,
        mut hooks,
    } = options;
    let started = SystemTime::now();
    let roles = scenario.check_runnable().and_then(|()| Ok(scenario.roles()));
    let roles = roles
        .map_err(|error| RunError::Refused(error.to_string()))?
        .unwrap_or_default();
    let mut configs = scenario.configs();
    let forecast = model::predict(
        &plan::topology(&configs[0], &configs[1..], &scenario.load),
        model::Draws::Forecast,
    );
    check_plan(&forecast, scenario, max_calls)?;

    // Up.
    let clock = Instant::now();
    let nonce = format!("{:016x}", rand::random::<u64>());
    let collector = Collector::start(nonce.clone(), forward)?;
    let spans_to = hooks
        .collector
        .take()
        .map_or(collector.address(), |through| through(collector.address()));
    for config in &mut configs {
        config.run.clone_from(&nonce);
        config.otlp = Some(format!("http://{spans_to}"));
        config.span_queue = span_queue(&forecast);
    }
    let mut configs = configs.into_iter();
    let mut client = configs
        .next()
        .unwrap_or_else(|| Config::named(crate::chain_line::CLIENT));
    let starts = roles
        .iter()
        .zip(configs)
        .map(|(role, config)| Start { role: *role, config })
        .collect();
    let mut fleet = Fleet::spawn(&program, starts).await?;
    let top = &fleet.members[0];
    client.callee = Some(Callee {
        name: top.name.clone(),
        address: top.address,
    });
    let telemetry = Telemetry::start(&client)?;
    let _spans_go_here = telemetry.enter();
    let client_counts = Counts::new(0);

    // Predict, from what the services say of themselves.
    let described = join_all(
        fleet
            .members
            .iter()
            .map(|member| Lab::of(member))
            .map(async |lab| lab.describe().await),
    )
    .await;
    let described = described.into_iter().collect::<Result<Vec<_>, _>>()?;
    let prediction = model::predict(
        &plan::topology(&client, &described, &scenario.load),
        model::Draws::Replay,
    );
    let start_ms = millis(clock.elapsed());
    if let Some(hook) = hooks.started.take() {
        hook(&mut fleet).await;
    }

    // Drive, settle, read.
    let mut watched = Watched::new(&fleet);
    let loaded = watched
        .drive(
            &mut fleet,
            scenario,
            roles[0],
            &client,
            &client_counts,
            progress,
            interrupt,
        )
        .await?;
    if let Some(hook) = hooks.loaded.take() {
        hook(&mut fleet).await;
    }
    watched.labs = fleet.members.iter().map(Lab::of).collect();
    let clock = Instant::now();
    watched.settle(&mut fleet, &client_counts, &described).await;
    watched.flush(&telemetry).await;
    watched.await_spans(&collector, &client, &client_counts).await;
    let records = watched.records().await;
    let settle_ms = millis(clock.elapsed());

    // Stop.
    let clock = Instant::now();
    let members: Vec<_> = fleet
        .members
        .iter()
        .map(|member| (member.name.clone(), member.address, member.pid))
        .collect();
    let ended = fleet.stop().await;
    let _ = telemetry.shutdown().await;
    let collected = collector.finish().await?;
    let stop_ms = millis(clock.elapsed());

    // Judge.
    let evidence = watched.evidence(client_counts, loaded, collected.tally, records, &described);
    let observation = evidence.observation(scenario.load.requests);
    let judgement = model::judge(&prediction, &observation);
    let operations = evidence.operations(scenario.load.requests);
    let services = evidence.services(&prediction);
    let (receipts, receipts_sample) = evidence.receipts(scenario);
    let report = Report {
        schema: report::SCHEMA.to_owned(),
        command: command(scenario, &expectations),
        chain: scenario.chain_line(),
        scenario: scenario.effective(),
        expected: expected(&expectations, &services, &operations),
        verdict: match judgement.verdict {
            model::Verdict::AsPredicted => report::Verdict::AsPredicted,
            model::Verdict::NotAsPredicted => report::Verdict::NotAsPredicted,
            model::Verdict::Incomplete => report::Verdict::Incomplete,
        },
        reasons: judgement.reasons.iter().map(reason).collect(),
        operations,
        services,
        links: evidence.links(),
        receipts,
        receipts_sample,
        advice: Vec::new(),
        processes: evidence::processes(&members, &ended),
        timing: Timing {
            started: humantime::format_rfc3339_seconds(started).to_string(),
            start_ms,
            load_ms: millis(evidence.loaded.took),
            settle_ms,
            stop_ms,
            request_ms: latency(&evidence.loaded),
        },
        versions: BTreeMap::from([("retryscope".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        seed: scenario.load.seed,
    };
    Ok(Ran {
        report,
        forwarded: collected.forwarded,
    })
}

/// Refuses a plan that cannot end in time, or is bigger than was allowed.
fn check_plan(forecast: &model::Prediction, scenario: &Scenario, max_calls: u64) -> Result<(), RunError> {
    let total = forecast.total_arrivals;
    let exceeds = total > model::Count::from(max_calls);
    scenario::check_max_calls(&total.to_string(), exceeds, max_calls).map_err(RunError::Refused)?;
    let worst = match forecast.per_request.arrivals_worst {
        model::Count::Of(worst) => worst,
        model::Count::Beyond => u128::MAX,
    };
    scenario::check_deadline(worst, scenario.load.deadline).map_err(RunError::Refused)
}

/// Room for every span a process may make while the collector looks elsewhere.
fn span_queue(forecast: &model::Prediction) -> usize {
    let most = match forecast.total_arrivals {
        model::Count::Of(arrivals) => arrivals.min(MAX_SPAN_QUEUE.into()),
        model::Count::Beyond => MAX_SPAN_QUEUE.into(),
    };
    usize::try_from(most)
        .unwrap_or(DEFAULT_SPAN_QUEUE)
        .max(DEFAULT_SPAN_QUEUE)
}

/// The services under observation, and what went wrong with them.
struct Watched {
    labs: Vec<Lab>,
    totals: Vec<Option<lab::Totals>>,
    disturbances: Vec<Disturbance>,
    troubled: Vec<String>,
}

impl Watched {
    fn new(fleet: &Fleet) -> Self {
        let labs: Vec<_> = fleet.members.iter().map(Lab::of).collect();
        let totals = labs.iter().map(|_| None).collect();
        Self {
            labs,
            totals,
            disturbances: Vec::new(),
            troubled: Vec::new(),
        }
    }

    /// Notes what is newly wrong with a process; answers whether anything ever was.
    fn look_after(&mut self, fleet: &mut Fleet) -> bool {
        for (service, pid, trouble) in fleet.troubles() {
            if !self.troubled.contains(&service) {
                self.troubled.push(service.clone());
                self.disturbances.push(evidence::disturbance(service, pid, trouble));
            }
        }
        !self.troubled.is_empty()
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one call from one place: the parts of a run meet here"
    )]
    async fn drive(
        &mut self,
        fleet: &mut Fleet,
        scenario: &Scenario,
        entry: scenario::Role,
        client: &Config,
        counts: &Arc<Counts>,
        progress: watch::Sender<u64>,
        mut interrupt: watch::Receiver<bool>,
    ) -> Result<Loaded, RunError> {
        let (stop, stopped) = watch::channel(false);
        let driving = load::drive(&scenario.load, entry, client, counts, progress, stopped);
        tokio::pin!(driving);
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut interrupted = false;
        loop {
            tokio::select! {
                loaded = driving.as_mut() => return Ok(loaded?),
                _ = look.tick() => {
                    if self.look_after(fleet) {
                        let _ = stop.send(true);
                    }
                }
                Ok(_) = interrupt.wait_for(|stop| *stop), if !interrupted => {
                    interrupted = true;
                    self.disturbances.push(Disturbance::Interrupted);
                    let _ = stop.send(true);
                }
            }
        }
    }

    /// Reads until nothing is in flight, everything sent was received and nothing changes any more.
    async fn settle(&mut self, fleet: &mut Fleet, client: &Counts, described: &[Config]) {
        let began = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            self.look_after(fleet);
            let changed = self.read().await;
            let quiet = !changed && self.is_quiet(client, described);
            if quiet || began.elapsed() > SETTLE || (!changed && !self.troubled.is_empty()) {
                return;
            }
            sleep(pause).await;
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// Reads every total once; answers whether one changed. A total that goes back is noted.
    async fn read(&mut self) -> bool {
        let readings = self.labs.iter().map(async |lab| {
            if self.troubled.iter().any(|troubled| troubled == lab.service()) {
                None
            } else {
                Some(lab.totals().await)
            }
        });
        let readings = join_all(readings).await;
        let mut changed = false;
        for ((lab, before), reading) in self.labs.iter().zip(&mut self.totals).zip(readings) {
            match reading {
                None => {}
                Some(Err(error)) => {
                    self.troubled.push(lab.service().to_owned());
                    let (service, what) = (lab.service().to_owned(), error.to_string());
                    self.disturbances.push(Disturbance::Unreachable { service, what });
                }
                Some(Ok(now)) => {
                    if let Some(before) = before
                        && let Some((from, to)) = went_back(before, &now)
                    {
                        let service = lab.service().to_owned();
                        self.disturbances
                            .push(Disturbance::TotalsWentBack { service, from, to });
                    }
                    changed |= before.as_ref() != Some(&now);
                    *before = Some(now);
                }
            }
        }
        changed
    }

    /// Whether nothing is in flight, neither in a service nor on a link.
    fn is_quiet(&self, client: &Counts, described: &[Config]) -> bool {
        let nobody = Config::named("");
        let sent = |index: usize, to: &str| match index.checked_sub(1) {
            None => client.totals().links.get(to).map_or(0, |link| link.sent),
            Some(above) => {
                let totals = self.totals[above].as_ref();
                let link = totals.and_then(|totals| totals.links.iter().find(|link| link.to == to));
                link.map_or(0, |link| link.sent)
            }
        };
        self.labs
            .iter()
            .zip(&self.totals)
            .enumerate()
            .all(|(index, (lab, totals))| {
                let Some(totals) = totals else { return true };
                let refuses = described.get(index).unwrap_or(&nobody).fault == chassis::fault::Fault::Refuse;
                totals.in_flight == 0 && (refuses || totals.received >= sent(index, lab.service()))
            })
    }

    /// Makes every process export its spans.
    async fn flush(&mut self, client: &Telemetry) {
        let flushing = self.labs.iter().map(async |lab| {
            if self.troubled.iter().any(|troubled| troubled == lab.service()) {
                return None;
            }
            let error = match lab.flush().await {
                Ok(Ok(())) => return None,
                Ok(Err(error)) => error,
                Err(error) => error.to_string(),
            };
            Some(Disturbance::FlushFailed {
                service: lab.service().to_owned(),
                error,
            })
        });
        let (services, own) = tokio::join!(join_all(flushing), client.flush());
        self.disturbances.extend(services.into_iter().flatten());
        if let Err(error) = own {
            let service = crate::chain_line::CLIENT.to_owned();
            self.disturbances.push(Disturbance::FlushFailed { service, error });
        }
    }

    /// Waits until the collector has what every process says it made.
    async fn await_spans(&self, collector: &Collector, client: &Config, counts: &Counts) {
        let made = |totals: &lab::Totals| {
            totals
                .spans_made
                .map_or(0, |spans| spans.server + spans.client + spans.internal)
        };
        let services = self.labs.iter().zip(&self.totals);
        let mut wanted: Vec<_> = services
            .filter_map(|(lab, totals)| Some((lab.service().to_owned(), made(totals.as_ref()?))))
            .collect();
        let kinds = [SpanKind::Server, SpanKind::Client, SpanKind::Internal];
        wanted.push((
            client.service.clone(),
            kinds.iter().map(|kind| counts.spans_made(*kind)).sum(),
        ));
        // Whether they came or not is seen in the tally.
        collector.wait_for(&wanted, SPANS).await;
    }

    async fn records(&self) -> Vec<Option<Vec<lab::Record>>> {
        let reading = self.labs.iter().map(async |lab| {
            if self.troubled.iter().any(|troubled| troubled == lab.service()) {
                None
            } else {
                lab.records().await.ok()
            }
        });
        join_all(reading).await
    }

    fn evidence(
        self,
        client: Arc<Counts>,
        loaded: Loaded,
        tally: crate::tally::Tally,
        records: Vec<Option<Vec<lab::Record>>>,
        described: &[Config],
    ) -> Evidence {
        let readings = self.labs.iter().zip(self.totals).zip(records).zip(described);
        let services = readings.map(|(((lab, totals), records), config)| Reading {
            name: lab.service().to_owned(),
            fault: config.fault,
            totals,
            records,
        });
        Evidence {
            services: services.collect(),
            client,
            loaded,
            tally,
            disturbances: self.disturbances,
        }
    }
}

/// The first total that is lower than before, as (before, now).
fn went_back(before: &lab::Totals, now: &lab::Totals) -> Option<(u64, u64)> {
    let sent = |totals: &lab::Totals| totals.links.iter().map(|link| link.sent).sum::<u64>();
    let pairs = [
        (before.received, now.received),
        (before.work_done, now.work_done),
        (before.late, now.late),
        (sent(before), sent(now)),
    ];
    pairs.into_iter().find(|(before, now)| now < before)
}

fn command(scenario: &Scenario, expectations: &[Expectation]) -> String {
    let mut command = scenario.repeat("run");
    for expectation in expectations {
        command.push_str(" --expect ");
        command.push_str(&scenario::shell_quoted(&expectation.to_string()));
    }
    command
}

fn expected(
    expectations: &[Expectation],
    services: &[report::Service],
    operations: &report::Operations,
) -> Vec<report::Expected> {
    let counts = Expectable {
        services: services.iter().map(|row| (row.service.clone(), row.received)).collect(),
        predicted: services
            .iter()
            .map(|row| (row.service.clone(), in_words(&row.predicted)))
            .collect(),
        requests: operations.sent,
        failed: operations.failed,
    };
    let judged = expectations.iter().map(|expectation| {
        let judged = expectation.judge(&counts);
        report::Expected {
            expression: expectation.to_string(),
            met: judged.met,
            text: judged.text,
        }
    });
    judged.collect()
}

fn in_words(predicted: &report::Predicted) -> String {
    let count = |count| match count {
        report::Count::Of(count) => count.to_string(),
        report::Count::Beyond => report::BEYOND.to_owned(),
    };
    if predicted.min == predicted.max {
        count(predicted.min)
    } else {
        format!("{} to {}", count(predicted.min), count(predicted.max))
    }
}

fn reason(reason: &model::verdict::Reason) -> report::Reason {
    report::Reason {
        kind: reason.kind().to_owned(),
        text: reason.to_string(),
    }
}

fn latency(loaded: &Loaded) -> Option<Latency> {
    let (times, ms) = (&loaded.latency_us, |us: u64| us as f64 / 1_000.0);
    (!times.is_empty()).then(|| Latency {
        min: ms(times.min()),
        p50: ms(times.value_at_quantile(0.5)),
        p99: ms(times.value_at_quantile(0.99)),
        max: ms(times.max()),
    })
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}
