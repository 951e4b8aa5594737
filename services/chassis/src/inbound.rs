//! The server stack: one chain around the shop service; health and reflection stand beside it, unlayered: they are never
//! counted, traced or failed.

use crate::{
    Request, Response,
    counts::Counts,
    layers::{Wrap, deadline::DeadlineIn, detach::Detach, fault::FaultLayer, ledger::Ledger, trace::TraceArrival},
    settings::Live,
};
use std::{convert::Infallible, sync::Arc};
use tonic::{
    server::NamedService,
    service::{LayerExt as _, Routes},
};
use tower::ServiceBuilder;

/// What a service port carries.
#[derive(Debug)]
pub struct Shop {
    pub(crate) routes: Routes,
    pub(crate) name: &'static str,
}

/// Puts the server stack around a service.
pub fn shop<S>(live: &Arc<Live>, counts: &Arc<Counts>, service: S) -> Shop
where
    S: NamedService + Clone + Send + Sync + 'static,
    S: tower::Service<Request, Response = Response, Error = Infallible, Future: Send>,
{
    let counts = Arc::clone(counts);
    let stack = ServiceBuilder::new()
        // The ground truth, before anything that could fail, drop or answer early.
        .layer(Wrap(Ledger {
            counts: Arc::clone(&counts),
            live: Arc::clone(live),
        }))
        // The second witness of the same event, right behind the first.
        .layer(Wrap(TraceArrival { counts }))
        // A duration becomes a point in time as early as possible; the ledger has read it, here it is enforced.
        .layer(Wrap(DeadlineIn))
        // What lies below goes on without its caller, where the settings say so; the deadline has ended the arrival by then.
        .layer(Wrap(Detach))
        // Behaves as the broken service itself.
        .layer(Wrap(FaultLayer));
    Shop {
        routes: Routes::new(stack.named_layer(service)),
        name: S::NAME,
    }
}

#[cfg(test)]
mod tests {
    use crate::testbed;

    #[tokio::test]
    async fn the_work_of_a_caller_that_left_ends_with_it_or_goes_on() {
        for (fault, detached, work_done) in [
            ("delay:ms=30", true, 1),
            ("delay:ms=30", false, 0),
            // What never ends must not be in flight for ever.
            ("hang", true, 0),
        ] {
            let served = testbed::serve_with(fault, |config| config.detached = detached);
            let caller = testbed::caller(served.address, |_| ());
            let call = tokio::spawn(async move { caller.call(1).await });
            while served.counts.totals().received == 0 {
                tokio::task::yield_now().await;
            }
            call.abort();
            assert!(call.await.is_err());
            assert_eq!(served.outcomes().await, [("dropped", 1)].into());
            let done = served.counts.totals().work_done;
            assert_eq!(done, work_done, "{fault} detached={detached}");
        }
    }
}
