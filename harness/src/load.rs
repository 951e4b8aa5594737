//! The load: drives the entry service with a given number of requests, so many at once, and notes how each one ended.

use crate::scenario::{Load, Role};
use chassis::{
    call::Context,
    code::Code,
    config::Config,
    counts::Counts,
    outbound::{self, Outbound, OutboundError},
};
use hdrhistogram::Histogram;
use proto::shop::v1::{
    GetOfferRequest, GetPriceRequest, GetQuoteRequest, GetStockRequest, checkout_client::CheckoutClient,
    frontend_client::FrontendClient, inventory_client::InventoryClient, pricing_client::PricingClient,
};
use std::{
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
    /// How each request that ended did, by its number.
    pub ended: std::collections::BTreeMap<u64, Code>,
    /// Time of each request that ended, microseconds.
    pub latency_us: Histogram<u64>,
    /// From the first request to the last answer.
    pub took: Duration,
}

struct Shared {
    load: Load,
    entry: Entry,
    next: AtomicU64,
    ended: Mutex<(std::collections::BTreeMap<u64, Code>, Histogram<u64>)>,
    /// Requests that ended so far, for whoever shows progress.
    done: watch::Sender<u64>,
}

/// Sends `load.requests` requests, at most `load.concurrency` at once, until `stop` says to send no more.
pub async fn drive(
    load: &Load,
    role: Role,
    client: &Config,
    counts: &Arc<Counts>,
    done: watch::Sender<u64>,
    stop: watch::Receiver<bool>,
) -> Result<Loaded, OutboundError> {
    let entry = Entry::new(role, outbound::outbound(client, counts)?);
    let latency = Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are fixed");
    let shared = Arc::new(Shared {
        load: load.clone(),
        entry,
        next: AtomicU64::new(0),
        ended: Mutex::new((std::collections::BTreeMap::new(), latency)),
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
    Ok(Loaded {
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
        let context = Context::root(request, shared.load.deadline);
        let code = entry
            .ask(&context, shared.load.item.clone())
            .await
            .map_or_else(|status| status.code(), |()| Code::Ok);
        let took = u64::try_from(began.elapsed().as_micros())
            .unwrap_or(LONGEST_US)
            .clamp(1, LONGEST_US);
        let mut ended = shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.0.insert(request, code);
        ended.1.record(took).expect("clamped into the bounds");
        drop(ended);
        shared.done.send_modify(|done| *done += 1);
    }
}
