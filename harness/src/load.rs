//! The load: drives the entry service with a given number of requests, so many at once, and notes how each one ended.

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
    ended: Mutex<(BTreeMap<u64, Ended>, Histogram<u64>)>,
    /// What the last failure said.
    last_failure: Mutex<Option<String>>,
    /// Requests that ended so far, for whoever shows progress.
    done: watch::Sender<u64>,
}

/// Sends `load.requests` requests, at most `load.concurrency` at once, until `stop` says to send no more. On the wire they are
/// numbered from `first` on.
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
        ended: Mutex::new((BTreeMap::new(), latency)),
        last_failure: Mutex::default(),
        done,
    });
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..u64::from(load.concurrency).min(load.requests) {
        workers.spawn(work(Arc::clone(&shared), stop.clone()));
    }
    let finished = async { while workers.join_next().await.is_some() {} };
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
    let sent = shared.next.load(Ordering::Relaxed).min(load.requests);
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

async fn work(shared: Arc<Shared>, stop: watch::Receiver<bool>) {
    let mut entry = shared.entry.clone();
    while !*stop.borrow() {
        let request = shared.next.fetch_add(1, Ordering::Relaxed) + 1;
        if request > shared.load.requests {
            return;
        }
        let began = Instant::now();
        let number = shared.first + (request - 1);
        let context = Context::root(number, shared.load.deadline, Arc::clone(&shared.settings));
        let answer = entry.ask(&context, shared.load.item.clone()).await;
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
}
