//! The recipe: plan, start or attach, predict, drive, settle, stop, judge.

use crate::{
    attach::Attach,
    chain_line::CLIENT,
    collector::{Collected, Collector, CollectorError},
    evidence::Process,
    expect::Expectation,
    fleet::{Ended, Fleet, FleetError, Member},
    forward::{Forward, Forwarded},
    judge::{self, Measured, Phases},
    lab::{Described, Lab, LabError},
    observer::Observer,
    plan,
    report::Report,
    scenario::{self, Scenario},
    standing::{self, Settings, Standing, StandingError},
    tally,
    viewer::Viewer,
    witness::{Witness, WitnessError},
};
use chassis::{
    config::{Callee, Config, DEFAULT_SPAN_QUEUE, Layer},
    counts::Counts,
    export::Export,
    outbound::OutboundError,
    policy::Budget,
    telemetry::{Telemetry, TelemetryError},
};
use futures_util::future::{BoxFuture, join_all};
use proto::lab::v1::Following;
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};
use thiserror::Error;
use tokio::{sync::watch, time::timeout};
use tonic::Streaming;

/// Spans that may wait for export in one process, at least and at most. The queue is laid out when a process starts, so a
/// small run pays for a small one; the most rides out two seconds of a collector that looks elsewhere.
const SPAN_QUEUE: (u128, u128) = (2_048, DEFAULT_SPAN_QUEUE as u128);
/// Longest wait for spans that attached services send elsewhere.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// How far above the numbers that were seen free ones are looked for.
const FURTHEST_UP: u64 = 8 * scenario::MAX_REQUESTS;

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
    /// Services that already run; without them the run starts its own.
    pub attached: Option<Attached>,
    /// Where traces can be looked at.
    pub viewer: Option<Viewer>,
}

/// Services that already run.
pub struct Attached {
    /// They.
    pub standing: Standing,
    /// What a flag said to find them; `None` where no flag did.
    pub flag: Option<Attach>,
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
    /// A service does not say what it is, or does not do what it is told.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Nor does what stands between.
    #[error(transparent)]
    Witness(#[from] WitnessError),
    /// Somebody ended the run before it began.
    #[error("interrupted before the first request; nothing was measured")]
    Interrupted,
    /// The services that run already cannot be switched.
    #[error(transparent)]
    Standing(#[from] StandingError),
    /// Nothing was measured, and what was put in force is still there.
    #[error("{0}; and the settings that were put to the services are still in force: {1}")]
    NotUndone(#[source] Box<RunError>, StandingError),
    /// Nothing on this machine can be reached from where the services run.
    #[error("the services cannot send their spans here")]
    NoWayBack(#[source] std::io::Error),
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
    /// Why the settings that were put to attached services are still in force, if they are.
    pub not_undone: Option<StandingError>,
    /// What the last failed request was told.
    pub last_failure: Option<String>,
    /// The settings that were in force at attached services when the prediction was made.
    pub generation: Option<u64>,
}

/// Runs a scenario. Every process it starts is gone when it returns, and every switch is undone, whatever it returns.
pub async fn run(scenario: &Scenario, mut options: Options) -> Result<Ran, RunError> {
    let plan = Plan::new(scenario, options.max_calls)?;
    let Some(Attached { mut standing, flag }) = options.attached.take() else {
        return measure(scenario, plan, options, None).await;
    };
    let put = Put::plan(&standing, &plan.services);
    let generation = match put.there(&mut standing).await {
        Ok(generation) => generation,
        Err(error) => {
            // Half of the services may have got it.
            let _ = put.back(&mut standing).await;
            return Err(error.into());
        }
    };
    let is_looked_at = options.viewer.is_some();
    let ran = measure(scenario, plan, options, Some((&standing, generation, flag))).await;
    if is_looked_at {
        // What they export by themselves may wait for seconds, and the address of the trace is shown now.
        let labs = standing.labs();
        let _ = timeout(LAST_SPANS, join_all(labs.iter().map(Lab::flush))).await;
    }
    let undone = put.back(&mut standing).await;
    match (ran, undone) {
        (Ok(ran), undone) => Ok(Ran {
            not_undone: undone.err(),
            ..ran
        }),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(undone)) => Err(RunError::NotUndone(Box::new(error), undone)),
    }
}

/// Refuses a scenario that [`run`] would refuse, before anything starts.
///
/// # Errors
/// As [`run`].
pub fn check(scenario: &Scenario, max_calls: u64) -> Result<(), RunError> {
    Plan::new(scenario, max_calls).map(drop)
}

/// What a run puts in force at running services, and takes back.
struct Put {
    there: Vec<Settings>,
    back: Vec<Settings>,
}

impl Put {
    fn plan(standing: &Standing, planned: &[Config]) -> Self {
        let now = standing.configs();
        let back = now
            .iter()
            .zip(planned)
            .map(|(now, then)| standing::difference(then, now));
        Self {
            there: standing::whole(&standing.differences(planned), planned, true),
            back: back.collect(),
        }
    }

    fn changes_nothing(&self) -> bool {
        self.there.iter().all(Settings::is_empty)
    }

    /// One switch, where one is needed; answers the number of the settings that the run is about.
    async fn there(&self, standing: &mut Standing) -> Result<u64, StandingError> {
        let is_used = standing.configs().iter().any(remembers);
        if self.changes_nothing() && standing.is_level() && !is_used {
            Ok(standing.generation())
        } else {
            standing.switch(&self.there).await
        }
    }

    /// Takes back what is still as it was put: what somebody else has changed meanwhile stays.
    async fn back(&self, standing: &mut Standing) -> Result<(), StandingError> {
        if self.changes_nothing() {
            return Ok(());
        }
        standing.describe().await?;
        let services = standing.configs().into_iter().zip(&self.there).zip(&self.back);
        let back: Vec<_> = services
            .map(|((config, there), back)| {
                let now = config.write();
                let is_ours = |name: &String| there.get(name) == Some(&now.get(name).cloned().unwrap_or_default());
                let ours = back.iter().filter(|(name, _)| is_ours(name));
                ours.map(|(name, value)| (name.clone(), value.clone())).collect()
            })
            .collect();
        if back.iter().any(|settings: &Settings| !settings.is_empty()) {
            standing.switch(&back).await?;
        }
        Ok(())
    }
}

/// Whether earlier requests may have used up something that the prediction takes to be whole: tokens, a budget, the first
/// arrivals that a fault in a caller counts over the process. The same settings in force anew begin with all of it.
fn remembers(config: &Config) -> bool {
    let policy = &config.retry;
    let is_limited = policy.throttle.is_some() || matches!(policy.budget, Some(Budget::Window { .. }));
    (policy.attempts > 1 && is_limited) || config.client_fault.is_some_and(|client| client.fault.is_shared())
}

/// Measures what stands, or what it starts.
async fn measure(
    scenario: &Scenario,
    plan: Plan,
    mut options: Options,
    attached: Option<(&Standing, u64, Option<Attach>)>,
) -> Result<Ran, RunError> {
    let entry = scenario.entry();
    let interrupt = options.interrupt.clone();
    let mut phases = Phases::begin(SystemTime::now());

    let mut up = match &attached {
        None => {
            let mut interrupted = options.interrupt.clone();
            tokio::select! {
                biased;
                // What has been started ends with the future that holds it.
                Ok(_) = interrupted.wait_for(|interrupted| *interrupted) => return Err(RunError::Interrupted),
                up = Up::start(scenario, plan, &mut options) => up?,
            }
        }
        Some((standing, generation, _)) => {
            let requests = scenario.load.requests;
            Up::attach(plan, &mut options, (standing, *generation), requests).await?
        }
    };
    let _spans_go_here = up.telemetry.enter();
    let described = up.describe().await?;
    let topology = plan::topology_from(&up.client, &described, &scenario.load, up.first);
    let prediction = model::predict(&topology, model::Draws::Replay);
    call(options.hooks.started, &mut up.fleet).await;
    phases.started();

    let mut observer = Observer::default();
    let load = (&scenario.load, entry, (&up.client, up.first), &up.counts);
    let loaded = observer
        .drive(&mut up.fleet, load, options.progress, options.interrupt)
        .await?;
    call(options.hooks.loaded, &mut up.fleet).await;
    phases.loaded(loaded.took);

    let witnesses = up.witnesses();
    observer
        .settle(&mut up.fleet, &witnesses, &up.counts, &prediction)
        .await;
    observer.flush(&witnesses, &up.telemetry).await;
    observer.await_spans(&witnesses, &up.collector, &up.counts).await;
    let services = observer.readings(&witnesses, &described).await;
    observer.note_shared_faults(&witnesses, &services, &up.seen).await;
    phases.settled();

    let (members, generation) = (up.processes(), up.generation);
    let (collected, ended, counts) = up.stop().await?;
    phases.stopped();

    observer.note_interrupt(*interrupt.borrow());
    let Collected { tally, forwarded } = collected;
    let last_failure = loaded.last_failure.clone();
    let evidence = observer.into_evidence(services, generation, (counts, loaded), tally);
    let measured = Measured {
        scenario,
        prediction,
        evidence,
        members,
        ended,
        phases,
        expectations: options.expectations,
        viewer: options.viewer,
        attach: attached.and_then(|(.., flag)| flag),
    };
    Ok(Ran {
        report: judge::report(&measured),
        forwarded,
        not_undone: None,
        last_failure,
        generation,
    })
}

async fn call(hook: Option<Hook>, fleet: &mut Fleet) {
    if let Some(hook) = hook {
        hook(fleet).await;
    }
}

/// What is to be run, known to fit before anything starts.
struct Plan {
    client: Config,
    services: Vec<Config>,
}

impl Plan {
    /// Refuses a plan that cannot be run, cannot end in time, or is bigger than was allowed.
    fn new(scenario: &Scenario, max_calls: u64) -> Result<Self, RunError> {
        scenario
            .check_runnable()
            .map_err(|error| RunError::Refused(error.to_string()))?;
        let mut services = scenario.configs();
        let mut client = services.remove(0);
        // What nobody declared is in no prediction, and costs as much as if it were.
        let whole: Vec<_> = scenario
            .starts(services.clone())
            .into_iter()
            .map(|start| start.config)
            .collect();
        let topology = plan::topology(&client, &whole, &scenario.load);
        let forecast = model::predict(&topology, model::Draws::Forecast);
        let total = forecast.total_arrivals;
        let exceeds = total > model::Count::from(max_calls);
        scenario::check_max_calls(&total.to_string(), exceeds, max_calls).map_err(RunError::Refused)?;
        let worst = at_most(forecast.per_request.arrivals_worst, u128::MAX);
        scenario::check_deadline(worst, scenario.load.deadline).map_err(RunError::Refused)?;
        let spans = spans(&forecast);
        if spans > model::Count::from(tally::MAX_SPANS as u64) {
            return Err(RunError::Refused(format!(
                "this plan makes {spans} spans, and the collector holds {}: send fewer requests (-n)",
                tally::MAX_SPANS
            )));
        }
        let queue = at_most(spans, SPAN_QUEUE.1).max(SPAN_QUEUE.0);
        let queue = usize::try_from(queue).unwrap_or(DEFAULT_SPAN_QUEUE);
        for config in services.iter_mut().chain([&mut client]) {
            config.span_queue = queue;
        }
        Ok(Self { client, services })
    }
}

/// Spans of the whole run: one for each call, each attempt and each arrival. On average where they are drawn.
fn spans(forecast: &model::Prediction) -> model::Count {
    let of = |predicted: &model::Predicted| predicted.mean.map_or(predicted.max, model::Count::rounded_up);
    let links = forecast.links.iter().map(|link| of(&link.calls) + of(&link.sent));
    links.fold(forecast.total_arrivals, |sum, link| sum + link)
}

fn at_most(count: model::Count, most: u128) -> u128 {
    match count {
        model::Count::Of(count) => count.min(most),
        model::Count::Beyond => most,
    }
}

/// Everything that is up while a run goes on.
struct Up {
    collector: Collector,
    fleet: Fleet,
    /// Attached services as they count our requests apart.
    followed: Vec<Lab>,
    client: Config,
    telemetry: Telemetry,
    counts: Arc<Counts>,
    /// The number of the first request.
    first: u64,
    /// The settings in force at services that others may switch.
    generation: Option<u64>,
    /// Arrivals that their faults had counted before, from the top.
    seen: Vec<u64>,
    /// Attached services count our requests apart as long as these are kept.
    follows: Vec<Streaming<Following>>,
}

impl Up {
    /// Starts services of its own.
    async fn start(scenario: &Scenario, plan: Plan, options: &mut Options) -> Result<Self, RunError> {
        let nonce = nonce();
        let collector = Collector::start(nonce.clone(), options.forward.take())?;
        let through = options.hooks.collector.take();
        let spans_to = through.map_or(collector.address(), |through| through(collector.address()));
        let mut services = plan.services;
        for config in &mut services {
            config.run.clone_from(&nonce);
            config.otlp = Export::To(format!("http://{spans_to}"));
        }
        let fleet = Fleet::spawn(&options.program, scenario.starts(services), None).await?;
        let (client, telemetry) = client(plan.client, &fleet, &nonce, spans_to)?;
        Ok(Self {
            collector,
            fleet,
            followed: Vec::new(),
            client,
            telemetry,
            counts: Counts::new(0),
            first: 1,
            generation: None,
            seen: Vec::new(),
            follows: Vec::new(),
        })
    }

    /// Goes along with services that already run: they count our requests apart, and copy our spans.
    async fn attach(
        plan: Plan,
        options: &mut Options,
        (standing, generation): (&Standing, u64),
        requests: u64,
    ) -> Result<Self, RunError> {
        let nonce = nonce();
        let own = standing.own_address().await.map_err(RunError::NoWayBack)?;
        let forward = options.forward.take().map(|forward| {
            // Who exports to the same place has already sent there what we would forward. Where OTEL_* variables say the
            // place it is not known, and taken for the same: twice the same span is worse in a viewer than none.
            let goes_there = |place: &str| !place.is_empty() && (place == forward.url() || !place.starts_with("http"));
            let services = standing.services.iter();
            let exporting = services.filter(|service| goes_there(&service.described.exports_to));
            let names = exporting.map(|service| service.name.clone()).collect();
            forward.without(names)
        });
        let collector = Collector::start_on(own, nonce.clone(), forward)?;
        let spans_to = collector.address();
        let otlp = format!("http://{spans_to}");
        let queue = plan.client.span_queue;
        let mut further_up = 0;
        let (first, followed, follows) = loop {
            let first = standing.reserve(requests, further_up).await?;
            match standing.follow((first, requests), (&otlp, &nonce), queue).await {
                Ok((followed, follows)) => break (first, followed, follows),
                // The top service was started anew, and begins with numbers that another run still holds further down.
                Err(error) if error.is_stale() && further_up < FURTHEST_UP => further_up += scenario::MAX_REQUESTS,
                Err(error) => return Err(error.into()),
            }
        };
        let fleet = Fleet::attached(standing);
        let (client, telemetry) = client(plan.client, &fleet, &nonce, spans_to)?;
        Ok(Self {
            collector,
            fleet,
            followed,
            client,
            telemetry,
            counts: Counts::new(0),
            first,
            generation: Some(generation),
            seen: Vec::new(),
            follows,
        })
    }

    fn witnesses(&self) -> Vec<Witness> {
        if self.followed.is_empty() {
            self.fleet.members.iter().filter_map(Member::witness).collect()
        } else {
            self.followed.iter().cloned().map(Witness::from).collect()
        }
    }

    /// What the services say of themselves: the prediction is made from this, not from what they were told.
    async fn describe(&mut self) -> Result<Vec<Config>, RunError> {
        let described = described(&self.witnesses()).await?;
        if let Some(planned) = self.generation {
            // Somebody has switched since the plan was made: these are no longer the settings it is about.
            if described.iter().any(|described| described.generation != planned) {
                return Err(StandingError::Contended.into());
            }
            self.seen = described.iter().map(|described| described.seen).collect();
        }
        let configs = described
            .into_iter()
            .map(|described| plan::as_it_stands(described.config, described.seen));
        Ok(configs.collect())
    }

    fn processes(&self) -> Vec<Process> {
        let processes = self.fleet.members.iter().map(|member| Process {
            name: member.name.clone(),
            address: member.address.clone(),
            pid: member.pid,
            is_own: member.is_own(),
        });
        processes.collect()
    }

    async fn stop(self) -> Result<(Collected, Vec<Ended>, Arc<Counts>), RunError> {
        drop(self.follows);
        let ended = self.fleet.stop().await;
        // What it could not deliver is missing at the collector, and seen there.
        let _ = self.telemetry.shutdown().await;
        Ok((self.collector.finish().await?, ended, self.counts))
    }
}

async fn described(witnesses: &[Witness]) -> Result<Vec<Described>, WitnessError> {
    join_all(witnesses.iter().map(Witness::describe))
        .await
        .into_iter()
        .collect()
}

/// Marks the spans of one run.
fn nonce() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// The client, told whom to call and where its spans go.
fn client(
    mut client: Config,
    fleet: &Fleet,
    nonce: &str,
    spans_to: SocketAddr,
) -> Result<(Config, Telemetry), TelemetryError> {
    debug_assert_eq!(client.service, CLIENT);
    let top = &fleet.members[0];
    // Through a layer that nobody declared it believes to call the one behind it.
    let named = fleet.members.iter().find(|member| member.layer != Layer::Undeclared);
    nonce.clone_into(&mut client.run);
    client.otlp = Export::To(format!("http://{spans_to}"));
    client.callee = Some(Callee {
        name: named.unwrap_or(top).name.clone(),
        address: top.address.clone(),
    });
    let telemetry = Telemetry::start(&client)?;
    Ok((client, telemetry))
}
