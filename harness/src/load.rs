//! The load: drives the entry service with a given number of requests, so many at once or so many a second, and notes how
//! each one ended.

use crate::scenario::{Load, Role};
use chassis::{
    call::Context,
    code::Code,
    config::Config,
    counts::Counts,
    outbound::{self, Outbound, OutboundError},
    settings::Generation,
};
use hdrhistogram::Histogram;
use proto::shop::v1::{
    GetOfferRequest, GetPriceRequest, GetQuoteRequest, GetStockRequest, checkout_client::CheckoutClient,
    frontend_client::FrontendClient, inventory_client::InventoryClient, pricing_client::PricingClient,
};
use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tonic::Status;

/// Longest wait for requests in flight once sending was stopped early.
const ABANDON: Duration = Duration::from_secs(2);
/// Longest request time the histogram holds, microseconds: one day.
const LONGEST_US: u64 = 24 * 3600 * 1_000_000;

/// The way in.
#[derive(Debug, Clone)]
enum Entry {
    Frontend(FrontendClient<Outbound>),
    Checkout(CheckoutClient<Outbound>),
    Pricing(PricingClient<Outbound>),
    Inventory(InventoryClient<Outbound>),
}

impl Entry {
    fn new(role: Role, outbound: Outbound) -> Self {
        match role {
            Role::Frontend => Self::Frontend(FrontendClient::new(outbound)),
            Role::Checkout => Self::Checkout(CheckoutClient::new(outbound)),
            Role::Pricing => Self::Pricing(PricingClient::new(outbound)),
            Role::Inventory => Self::Inventory(InventoryClient::new(outbound)),
        }
    }

    async fn ask(&mut self, context: &Context, item: String) -> Result<(), Status> {
        match self {
            Self::Frontend(client) => client.get_offer(context.next(GetOfferRequest { item })).await.map(drop),
            Self::Checkout(client) => client.get_quote(context.next(GetQuoteRequest { item })).await.map(drop),
            Self::Pricing(client) => client.get_price(context.next(GetPriceRequest { item })).await.map(drop),
            Self::Inventory(client) => client.get_stock(context.next(GetStockRequest { item })).await.map(drop),
        }
    }
}

/// What became of the load.
#[derive(Debug)]
pub struct Loaded {
    /// Requests started.
    pub sent: u64,
    /// How each request that ended did, by its number in this load, from 1.
    pub ended: BTreeMap<u64, Ended>,
    /// Time of each request that ended, microseconds.
    pub latency_us: Histogram<u64>,
    /// From the first request to the last answer.
    pub took: Duration,
    /// What the last failure said, in its own words.
    pub last_failure: Option<String>,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// With this code.
    pub code: Code,
    /// Its trace; 0 when none was made.
    pub trace: u128,
}

struct Shared {
    load: Load,
    entry: Entry,
    /// The client's settings: one generation, whatever happens further down.
    settings: Arc<Generation>,
    /// The number on the wire of the load's first request.
    first: u64,
    next: AtomicU64,
    /// Requests started so far.
    sent: AtomicU64,
    ended: Mutex<(BTreeMap<u64, Ended>, Histogram<u64>)>,
    /// What the last failure said.
    last_failure: Mutex<Option<String>>,
    /// Requests that ended so far, for whoever shows progress.
    done: watch::Sender<u64>,
}

/// Sends `load.requests` requests, at most `load.concurrency` at once, until `stop` says to send no more: one when another has
/// ended, or by the clock where the load has a rate. On the wire they are numbered from `first` on.
pub async fn drive(
    load: &Load,
    role: Role,
    (client, first): (&Config, u64),
    counts: &Arc<Counts>,
    done: watch::Sender<u64>,
    stop: watch::Receiver<bool>,
) -> Result<Loaded, OutboundError> {
    let entry = Entry::new(role, outbound::outbound(client, counts)?);
    let latency = Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are fixed");
    let shared = Arc::new(Shared {
        load: load.clone(),
        entry,
        settings: Generation::first(client.clone()),
        first,
        next: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        ended: Mutex::new((BTreeMap::new(), latency)),
        last_failure: Mutex::default(),
        done,
    });
    let began = Instant::now();
    let mut workers = JoinSet::new();
    let finished = async {
        if let Some(rate) = load.rate {
            let clock = Clock {
                rate,
                requests: load.requests,
                at_once: load.concurrency as usize,
            };
            clock
                .run(&mut workers, stop.clone(), |number| ask(Arc::clone(&shared), number))
                .await;
        } else {
            for _ in 0..u64::from(load.concurrency).min(load.requests) {
                workers.spawn(work(Arc::clone(&shared), stop.clone()));
            }
        }
        while workers.join_next().await.is_some() {}
    };
    let mut stopped = stop.clone();
    tokio::select! {
        () = finished => {}
        // Once told to stop, what is in flight has a moment left; a service that will never answer must not hold the run.
        () = async {
            if stopped.wait_for(|stop| *stop).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(ABANDON).await;
        } => {}
    }
    let abandoned = timeout(ABANDON, workers.shutdown()).await;
    debug_assert!(abandoned.is_ok(), "aborted tasks end at their next wait");
    let sent = shared.sent.load(Ordering::Relaxed);
    let (ended, latency_us) = {
        let mut ended = shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut ended.0), ended.1.clone())
    };
    let last_failure = shared
        .last_failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    Ok(Loaded {
        last_failure,
        sent,
        ended,
        latency_us,
        took: began.elapsed(),
    })
}

/// One worker: a request when the one before has ended.
async fn work(shared: Arc<Shared>, stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let request = shared.next.fetch_add(1, Ordering::Relaxed) + 1;
        if request > shared.load.requests {
            return;
        }
        ask(Arc::clone(&shared), request).await;
    }
}

/// One request, from 1, and how it ended.
async fn ask(shared: Arc<Shared>, request: u64) {
    shared.sent.fetch_add(1, Ordering::Relaxed);
    let began = Instant::now();
    let number = shared.first + (request - 1);
    let context = Context::root(number, shared.load.deadline, Arc::clone(&shared.settings));
    let mut entry = shared.entry.clone();
    let answer = until_left(shared.load.cancel_after, entry.ask(&context, shared.load.item.clone()));
    let answer = answer.await;
    let code = answer.as_ref().map_or_else(Status::code, |()| Code::Ok);
    if let Err(status) = answer {
        let mut last = shared.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(status.message().to_owned());
    }
    let took = u64::try_from(began.elapsed().as_micros())
        .unwrap_or(LONGEST_US)
        .clamp(1, LONGEST_US);
    let mut ended = shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
    let trace = context.trace.id().unwrap_or(0);
    ended.0.insert(request, Ended { code, trace });
    ended.1.record(took).expect("clamped into the bounds");
    drop(ended);
    shared.done.send_modify(|done| *done += 1);
}

/// The answer, or CANCELLED when the client has left before it: the call is dropped, so that everybody below learns of it.
async fn until_left(
    leaves_after: Option<Duration>,
    answer: impl Future<Output = Result<(), Status>>,
) -> Result<(), Status> {
    match leaves_after {
        None => answer.await,
        Some(after) => timeout(after, answer).await.unwrap_or_else(|_| {
            let after = humantime::format_duration(after);
            Err(Status::cancelled(format!("the client left after {after}")))
        }),
    }
}

/// Requests that start by the clock, whatever became of those before.
struct Clock {
    /// Per second.
    rate: f64,
    requests: u64,
    /// So many at once, at most: what comes on top is never sent.
    at_once: usize,
}

impl Clock {
    /// Starts request `i`, from 0, at `i / rate` after the first. One that meets a full house is left out and keeps its number:
    /// what is drawn for the others is what was planned for them.
    async fn run<F>(self, running: &mut JoinSet<()>, mut stop: watch::Receiver<bool>, start: impl Fn(u64) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let began = tokio::time::Instant::now();
        for request in 0..self.requests {
            let due = Duration::try_from_secs_f64(request as f64 / self.rate).unwrap_or(Duration::MAX);
            let Some(due) = began.checked_add(due) else { return };
            tokio::select! {
                biased;
                Ok(_) = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep_until(due) => {}
            }
            while running.try_join_next().is_some() {}
            if running.len() < self.at_once {
                running.spawn(start(request + 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    /// When which request started, in milliseconds, where each takes so long.
    async fn started(clock: Clock, takes_ms: u64, stop_ms: Option<u64>) -> Vec<(u64, u128)> {
        let (stop, told) = watch::channel(false);
        let began = Instant::now();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut running = JoinSet::new();
        let after_a_while = async {
            match stop_ms {
                Some(after) => sleep(Duration::from_millis(after)).await,
                None => std::future::pending().await,
            }
            stop.send_replace(true);
            std::future::pending::<()>().await;
        };
        let run = clock.run(&mut running, told, |number| {
            let seen = Arc::clone(&seen);
            async move {
                seen.lock().unwrap().push((number, began.elapsed().as_millis()));
                sleep(Duration::from_millis(takes_ms)).await;
            }
        });
        tokio::select! {
            () = run => {}
            () = after_a_while => {}
        }
        while running.join_next().await.is_some() {}
        Arc::try_unwrap(seen).unwrap().into_inner().unwrap()
    }

    fn clock(rate: f64, requests: u64, at_once: usize) -> Clock {
        Clock {
            rate,
            requests,
            at_once,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_start_by_the_clock_whatever_became_of_those_before() {
        let slow = started(clock(20.0, 4, 1_000), 60_000, None).await;
        assert_eq!(slow, [(1, 0), (2, 50), (3, 100), (4, 150)]);
        let slower = started(clock(0.5, 3, 1_000), 1, None).await;
        assert_eq!(slower, [(1, 0), (2, 2_000), (3, 4_000)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_meets_a_full_house_is_left_out_and_the_others_keep_their_numbers() {
        // Each stays for two and a half starts: of six, the third and the sixth find two at once.
        let seen = started(clock(10.0, 6, 2), 250, None).await;
        assert_eq!(seen, [(1, 0), (2, 100), (4, 300), (5, 400)]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_starts_once_it_is_told_to_stop() {
        let seen = started(clock(10.0, 1_000_000, 2), 1, Some(250)).await;
        assert_eq!(seen, [(1, 0), (2, 100), (3, 200)]);
        let huge = started(clock(0.0001, 10_000_000, 2), 1, Some(5)).await;
        assert_eq!(huge, [(1, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_drops_its_call() {
        let began = Instant::now();
        let dropped = Arc::new(());
        let held = Arc::clone(&dropped);
        let slow = async move {
            sleep(Duration::from_secs(60)).await;
            drop(held);
            Ok(())
        };
        let left = until_left(Some(Duration::from_millis(50)), slow).await.unwrap_err();
        assert_eq!((left.code(), began.elapsed().as_millis()), (Code::Cancelled, 50));
        assert_eq!(left.message(), "the client left after 50ms");
        assert_eq!(Arc::strong_count(&dropped), 1, "the call is gone");
        let quick = async { Ok(()) };
        assert!(until_left(Some(Duration::from_millis(50)), quick).await.is_ok());
        assert!(until_left(None, async { Ok(()) }).await.is_ok());
    }
}
