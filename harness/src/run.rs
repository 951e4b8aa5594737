//! The recipe: plan, start, predict, drive, settle, stop, judge.

use crate::{
    chain_line::CLIENT,
    collector::{Collected, Collector, CollectorError},
    expect::Expectation,
    fleet::{Ended, Fleet, FleetError, Start},
    forward::{Forward, Forwarded},
    judge::{self, Measured, Phases},
    lab::{Lab, LabError},
    observer::Observer,
    plan,
    report::Report,
    scenario::{self, Role, Scenario},
    tally,
};
use chassis::{
    config::{Callee, Config, DEFAULT_SPAN_QUEUE},
    counts::Counts,
    outbound::OutboundError,
    telemetry::{Telemetry, TelemetryError},
};
use futures_util::future::{BoxFuture, join_all};
use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::SystemTime};
use thiserror::Error;
use tokio::sync::watch;

/// Spans that may wait for export in one process, at least and at most. The queue is laid out when a process starts, so a
/// small run pays for a small one; the most rides out two seconds of a collector that looks elsewhere.
const SPAN_QUEUE: (u128, u128) = (2_048, DEFAULT_SPAN_QUEUE as u128);
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
pub async fn run(scenario: &Scenario, mut options: Options) -> Result<Ran, RunError> {
    let plan = Plan::new(scenario, options.max_calls)?;
    let entry = plan.roles[0];
    let interrupt = options.interrupt.clone();
    let mut phases = Phases::begin(SystemTime::now());

    let mut up = Up::start(plan, &mut options).await?;
    let _spans_go_here = up.telemetry.enter();
    let described = up.describe().await?;
    let topology = plan::topology(&up.client, &described, &scenario.load);
    let prediction = model::predict(&topology, model::Draws::Replay);
    call(options.hooks.started, &mut up.fleet).await;
    phases.started();

    let mut observer = Observer::default();
    let load = (&scenario.load, entry, &up.client, &up.counts);
    let loaded = observer
        .drive(&mut up.fleet, load, options.progress, options.interrupt)
        .await?;
    call(options.hooks.loaded, &mut up.fleet).await;
    phases.loaded(loaded.took);

    let labs = up.labs();
    observer.settle(&mut up.fleet, &labs, &up.counts, &described).await;
    observer.flush(&labs, &up.telemetry).await;
    observer.await_spans(&labs, &up.collector, &up.counts).await;
    let services = observer.readings(&labs, &described).await;
    phases.settled();

    let members = up
        .fleet
        .members
        .iter()
        .map(|member| (member.name.clone(), member.address, member.pid))
        .collect();
    let (collected, ended, counts) = up.stop().await?;
    phases.stopped();

    observer.note_interrupt(*interrupt.borrow());
    let Collected { tally, forwarded } = collected;
    let evidence = observer.into_evidence(services, counts, loaded, tally);
    let measured = Measured {
        scenario,
        prediction,
        evidence,
        members,
        ended,
        phases,
        expectations: options.expectations,
    };
    Ok(Ran {
        report: judge::report(&measured),
        forwarded,
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
    roles: Vec<Role>,
}

impl Plan {
    /// Refuses a plan that cannot be run, cannot end in time, or is bigger than was allowed.
    fn new(scenario: &Scenario, max_calls: u64) -> Result<Self, RunError> {
        scenario
            .check_runnable()
            .map_err(|error| RunError::Refused(error.to_string()))?;
        let mut services = scenario.configs();
        let mut client = services.remove(0);
        let topology = plan::topology(&client, &services, &scenario.load);
        let forecast = model::predict(&topology, model::Draws::Forecast);
        let total = forecast.total_arrivals;
        let exceeds = total > model::Count::from(max_calls);
        scenario::check_max_calls(&total.to_string(), exceeds, max_calls).map_err(RunError::Refused)?;
        let worst = at_most(forecast.per_request.arrivals_worst, u128::MAX);
        scenario::check_deadline(worst, scenario.load.deadline).map_err(RunError::Refused)?;
        plan::check_waits(&client, &services, &scenario.load, &forecast).map_err(RunError::Refused)?;
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
        let roles = scenario.roles().unwrap_or_default();
        Ok(Self {
            client,
            services,
            roles,
        })
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
    client: Config,
    telemetry: Telemetry,
    counts: Arc<Counts>,
}

impl Up {
    async fn start(plan: Plan, options: &mut Options) -> Result<Self, RunError> {
        let Plan {
            mut client,
            mut services,
            roles,
        } = plan;
        let nonce = format!("{:016x}", rand::random::<u64>());
        let collector = Collector::start(nonce.clone(), options.forward.take())?;
        let through = options.hooks.collector.take();
        let spans_to = through.map_or(collector.address(), |through| through(collector.address()));
        for config in services.iter_mut().chain([&mut client]) {
            config.run.clone_from(&nonce);
            config.otlp = Some(format!("http://{spans_to}"));
        }
        let starts = roles
            .into_iter()
            .zip(services)
            .map(|(role, config)| Start { role, config });
        let fleet = Fleet::spawn(&options.program, starts.collect()).await?;
        let top = &fleet.members[0];
        client.callee = Some(Callee {
            name: top.name.clone(),
            address: top.address,
        });
        let telemetry = Telemetry::start(&client)?;
        debug_assert_eq!(client.service, CLIENT);
        Ok(Self {
            collector,
            fleet,
            client,
            telemetry,
            counts: Counts::new(0),
        })
    }

    fn labs(&self) -> Vec<Lab> {
        self.fleet.members.iter().map(Lab::of).collect()
    }

    /// What the services say of themselves: the prediction is made from this, not from what they were told.
    async fn describe(&self) -> Result<Vec<Config>, LabError> {
        let described = join_all(self.labs().iter().map(Lab::describe)).await;
        described.into_iter().collect()
    }

    async fn stop(self) -> Result<(Collected, Vec<Ended>, Arc<Counts>), RunError> {
        let ended = self.fleet.stop().await;
        // What it could not deliver is missing at the collector, and seen there.
        let _ = self.telemetry.shutdown().await;
        Ok((self.collector.finish().await?, ended, self.counts))
    }
}
