//! Watching a run: the processes while requests go, then the totals until nothing moves, then the spans until none is missing.
//! Whatever goes wrong is noted here and judged elsewhere.

use crate::{
    chain_line::CLIENT,
    collector::Collector,
    envoy::Statistics,
    evidence::{self, Evidence, Reading},
    fleet::Fleet,
    load::{self, Loaded},
    scenario::{Load, Role},
    tally::Tally,
    witness::Witness,
};
use chassis::{
    call::monotonic_us, config::Config, counts::Counts, outbound::OutboundError, stalls::Stalls, telemetry::Telemetry,
};
use futures_util::future::join_all;
use model::{
    Count, Prediction,
    verdict::{Disturbance, Late},
};
use proto::lab::v1 as lab;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};

/// How often the processes are looked after while requests run.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for arrivals in flight after the last request has ended.
const SETTLE: Duration = Duration::from_secs(10);
/// How long nothing may change before what was sent and not received counts as lost on the way: an attempt that was given up
/// before it left, for one.
const UNCHANGED: Duration = Duration::from_millis(500);
/// Shortest and longest pause between two readings while settling.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Longest wait for the last spans once every process says that it has exported them.
const SPANS: Duration = Duration::from_secs(5);

/// What was seen of the services, and what went wrong with them.
#[derive(Default)]
pub struct Observer {
    totals: Vec<Option<lab::Totals>>,
    /// What Envoys counted by their own names, by proxy.
    statistics: BTreeMap<String, Statistics>,
    disturbances: Vec<Disturbance>,
    troubled: Vec<String>,
    /// From the first request to the last answer, microseconds of the machine's monotonic clock.
    load_us: (u64, u64),
    /// How late each process was during the load, at most.
    late_us: BTreeMap<String, u64>,
}

impl Observer {
    /// Sends the requests and looks after the processes meanwhile. A process in trouble, or an interrupt, ends the sending.
    pub async fn drive(
        &mut self,
        fleet: &mut Fleet,
        (load, entry, client, counts): (&Load, Role, (&Config, u64), &Arc<Counts>),
        progress: watch::Sender<u64>,
        mut interrupt: watch::Receiver<bool>,
    ) -> Result<Loaded, OutboundError> {
        let (stop, stopped) = watch::channel(false);
        let driving = load::drive(load, entry, client, counts, progress, stopped);
        tokio::pin!(driving);
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut interrupted = false;
        let own_stalls = Stalls::watch();
        self.load_us = (monotonic_us(), u64::MAX);
        let loaded = loop {
            tokio::select! {
                biased;
                Ok(_) = interrupt.wait_for(|stop| *stop), if !interrupted => {
                    interrupted = true;
                    self.note_interrupt(true);
                    let _ = stop.send(true);
                }
                loaded = driving.as_mut() => break loaded,
                _ = look.tick() => {
                    if self.look_after(fleet) {
                        let _ = stop.send(true);
                    }
                }
            }
        };
        self.load_us.1 = monotonic_us();
        let stalls = own_stalls.read();
        self.note_stalls(CLIENT, stalls.into_iter().map(|stall| (stall.at_us, stall.late_us)));
        loaded
    }

    /// Notes how late a process was while requests were under way: what detached work did later counts too.
    fn note_stalls(&mut self, process: &str, stalls: impl Iterator<Item = (u64, u64)>) {
        let began_us = self.load_us.0;
        let late_us = stalls
            .filter(|(at_us, _)| *at_us >= began_us)
            .map(|(_, late_us)| late_us)
            .max();
        if let Some(late_us) = late_us {
            let known = self.late_us.entry(process.to_owned()).or_default();
            *known = late_us.max(*known);
        }
    }

    /// Notes that the run was interrupted, whenever that was: what was counted is then not taken for a whole run.
    pub fn note_interrupt(&mut self, interrupted: bool) {
        if interrupted && !self.disturbances.contains(&Disturbance::Interrupted) {
            self.disturbances.push(Disturbance::Interrupted);
        }
    }

    /// Notes what is newly wrong with a process; answers whether anything ever was.
    fn look_after(&mut self, fleet: &mut Fleet) -> bool {
        for (service, pid, trouble) in fleet.troubles() {
            if !self.is_troubled(&service) {
                self.troubled.push(service.clone());
                self.disturbances.push(evidence::disturbance(service, pid, trouble));
            }
        }
        !self.troubled.is_empty()
    }

    fn is_troubled(&self, service: &str) -> bool {
        self.troubled.iter().any(|troubled| troubled == service)
    }

    /// Asks every service that is not in trouble; `None` for the others.
    async fn ask<T>(&self, witnesses: &[Witness], question: impl AsyncFn(&Witness) -> T) -> Vec<Option<T>> {
        let question = &question;
        let asked = witnesses.iter().map(async |witness| {
            if self.is_troubled(witness.name()) {
                None
            } else {
                Some(question(witness).await)
            }
        });
        join_all(asked).await
    }

    /// Reads until nothing is in flight, everything sent was received and nothing changes any more.
    pub async fn settle(&mut self, fleet: &mut Fleet, witnesses: &[Witness], client: &Counts, prediction: &Prediction) {
        self.totals = witnesses.iter().map(|_| None).collect();
        let began = Instant::now();
        let mut last_change = began;
        let mut pause = PAUSE.0;
        loop {
            self.look_after(fleet);
            let (changed, silent) = self.read(witnesses).await;
            let is_late = began.elapsed() > SETTLE;
            if self.are_silent(fleet, &silent).await && !is_late {
                // A busy machine may take longer than one answer may; it is asked again.
                continue;
            }
            self.note_silent(silent);
            if changed {
                last_change = Instant::now();
            }
            let is_idle = self.totals.iter().flatten().all(|totals| totals.in_flight == 0);
            let is_still = is_idle && last_change.elapsed() > UNCHANGED;
            let is_quiet = !changed && self.is_quiet(witnesses, client, prediction);
            if is_quiet || is_still || began.elapsed() > SETTLE || (!changed && !self.troubled.is_empty()) {
                return;
            }
            sleep(pause).await;
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// Whether somebody does not answer whose process is not known to be the reason.
    async fn are_silent(&mut self, fleet: &mut Fleet, silent: &[String]) -> bool {
        if silent.is_empty() {
            return false;
        }
        // A killed process is gone a moment before the system says so.
        sleep(PAUSE.1).await;
        self.look_after(fleet);
        silent.iter().any(|service| !self.is_troubled(service))
    }

    /// Notes who never answered.
    fn note_silent(&mut self, silent: Vec<String>) {
        for service in silent {
            if !self.is_troubled(&service) {
                self.troubled.push(service.clone());
                self.disturbances.push(Disturbance::Unreachable {
                    service,
                    what: "its counts".to_owned(),
                });
            }
        }
    }

    /// Reads every total once; answers whether one changed, and who did not answer. A total that goes back is noted.
    async fn read(&mut self, witnesses: &[Witness]) -> (bool, Vec<String>) {
        let readings = self.ask(witnesses, Witness::totals).await;
        let (mut changed, mut silent, mut stalls) = (false, Vec::new(), Vec::new());
        for ((witness, before), reading) in witnesses.iter().zip(&mut self.totals).zip(readings) {
            let service = || witness.name().to_owned();
            match reading {
                None => {}
                Some(Err(error)) if error.is_forgotten() => {
                    self.troubled.push(service());
                    self.disturbances.push(Disturbance::ProcessDied {
                        service: service(),
                        how: "it was started anew and knows nothing of this run".to_owned(),
                    });
                }
                Some(Err(_)) => silent.push(service()),
                Some(Ok((mut now, statistics))) => {
                    self.statistics
                        .extend(statistics.map(|statistics| (service(), statistics)));
                    // A busy machine is nothing that is counted.
                    stalls.push((witness.name(), std::mem::take(&mut now.stalls)));
                    if let Some((from, to)) = before.as_ref().and_then(|before| went_back(before, &now)) {
                        self.disturbances.push(Disturbance::TotalsWentBack {
                            service: service(),
                            from,
                            to,
                        });
                    }
                    changed |= before.as_ref() != Some(&now);
                    *before = Some(now);
                }
            }
        }
        for (service, stalls) in stalls {
            self.note_stalls(service, stalls.iter().map(|stall| (stall.at_us, stall.late_us)));
        }
        (changed, silent)
    }

    /// Whether nothing is in flight, neither in a service nor on a link.
    fn is_quiet(&self, witnesses: &[Witness], client: &Counts, prediction: &Prediction) -> bool {
        let sent = |index: usize, to: &str| match index.checked_sub(1) {
            None => client.totals().links.get(to).map_or(0, |link| link.sent),
            Some(above) => {
                let totals = self.totals[above].as_ref();
                let link = totals.and_then(|totals| totals.links.iter().find(|link| link.to == to));
                link.map_or(0, |link| link.sent)
            }
        };
        let services = witnesses.iter().zip(&self.totals).zip(&prediction.links).enumerate();
        services.into_iter().all(|(index, ((witness, totals), link))| {
            let Some(totals) = totals else { return true };
            // What is known to get lost is not waited for.
            let lost = if link.lost.min == link.lost.max {
                link.lost.max
            } else {
                Count::ZERO
            };
            let accounted = Count::from(totals.received) + lost;
            totals.in_flight == 0 && accounted >= sent(index, witness.name()).into()
        })
    }

    /// Makes every process export its spans.
    pub async fn flush(&mut self, witnesses: &[Witness], client: &Telemetry) {
        let (services, own) = tokio::join!(self.ask(witnesses, Witness::flush), client.flush(""));
        for (witness, flushed) in witnesses.iter().zip(services) {
            let error = match flushed {
                None | Some(Ok(Ok(()))) => continue,
                Some(Ok(Err(error))) => error,
                Some(Err(error)) => error.to_string(),
            };
            self.disturbances.push(Disturbance::FlushFailed {
                service: witness.name().to_owned(),
                error,
            });
        }
        if let Err(error) = own {
            self.disturbances.push(Disturbance::FlushFailed {
                service: CLIENT.to_owned(),
                error,
            });
        }
    }

    /// Waits until the collector has what every process says it made. Whether they came or not is seen in the tally.
    pub async fn await_spans(&self, witnesses: &[Witness], collector: &Collector, client: &Counts) {
        let services = witnesses.iter().zip(&self.totals);
        let mut wanted: Vec<_> = services
            .filter_map(|(witness, totals)| Some((witness.name().to_owned(), evidence::spans_made(totals.as_ref()?))))
            .collect();
        wanted.push((CLIENT.to_owned(), client.totals().spans.all()));
        collector.wait_for(&wanted, SPANS).await;
    }

    /// Everything read of the services, the single arrivals included.
    pub async fn readings(&mut self, witnesses: &[Witness], described: &[Config]) -> Vec<Reading> {
        let records = self.ask(witnesses, Witness::records).await;
        let totals = std::mem::take(&mut self.totals);
        let mut statistics = std::mem::take(&mut self.statistics);
        let services = witnesses.iter().zip(totals).zip(records).zip(described);
        let readings = services.map(|(((witness, totals), records), config)| Reading {
            name: witness.name().to_owned(),
            fault: config.fault,
            layer: config.layer,
            envoy: statistics.remove(witness.name()).map(|statistics| statistics.shown()),
            totals,
            records: records.and_then(Result::ok),
        });
        readings.collect()
    }

    /// Notes arrivals of others that a fault counted together with ours: what `scope=process` does then depends on who came first.
    pub async fn note_shared_faults(&mut self, witnesses: &[Witness], readings: &[Reading], before: &[u64]) {
        if before.is_empty() {
            return;
        }
        let described = self.ask(witnesses, Witness::describe).await;
        for ((reading, before), described) in readings.iter().zip(before).zip(described) {
            let counts_all = reading.fault.is_shared();
            let (Some(totals), Some(Ok(now))) = (&reading.totals, described) else {
                continue;
            };
            let others = now.seen.saturating_sub(*before).saturating_sub(totals.received);
            if counts_all && others > 0 {
                self.disturbances.push(Disturbance::SharedFault {
                    service: reading.name.clone(),
                    count: others,
                });
            }
        }
    }

    /// Puts everything together.
    pub fn into_evidence(
        self,
        services: Vec<Reading>,
        generation: Option<u64>,
        (client, loaded): (Arc<Counts>, Loaded),
        tally: Tally,
    ) -> Evidence {
        Evidence {
            latest: self.latest(),
            generation,
            services,
            client,
            loaded,
            tally,
            disturbances: self.disturbances,
        }
    }

    /// How late the processes were together, each at its worst: a request passes through all of them.
    fn latest(&self) -> Option<Late> {
        let (process, _) = self.late_us.iter().max_by_key(|(_, late_us)| **late_us)?;
        Some(Late {
            process: process.clone(),
            us: self.late_us.values().sum(),
        })
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
