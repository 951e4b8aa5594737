//! The server stack: one chain around whatever the service port serves. Health and reflection stand beside a shop service,
//! unlayered: they are never counted, traced or failed. A forwarder has the port for itself.

use crate::{
    Request, Response,
    counts::Counts,
    layers::{
        Below, Wrap, deadline::DeadlineIn, detach::Detach, fault::FaultLayer, ledger::Ledger, trace::TraceArrival,
    },
    listen::{CONNECTION_WINDOW, Gate, Port, STREAM_WINDOW},
    settings::Live,
};
use hyper::body::Incoming;
use std::{convert::Infallible, io, sync::Arc};
use tokio::sync::watch;
use tonic::{
    body::Body,
    server::NamedService,
    service::{LayerExt as _, Routes},
};
use tower::{Layer, ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};

/// What a service port carries.
#[derive(Debug)]
pub enum Shop {
    /// A service under its name, beside which others may stand.
    Named {
        /// The service with the server stack around it.
        routes: Routes,
        /// What it is called.
        name: &'static str,
    },
    /// Every request there is, whatever it asks for.
    Everything(Everything),
}

/// What takes every request.
type Everything = BoxCloneSyncService<http::Request<Incoming>, Response, Infallible>;

/// Puts the server stack around a service.
pub fn shop<S>(live: &Arc<Live>, counts: &Arc<Counts>, service: S) -> Shop
where
    S: NamedService + Clone + Send + Sync + 'static,
    S: tower::Service<Request, Response = Response, Error = Infallible, Future: Send>,
{
    Shop::Named {
        routes: Routes::new(stack(live, counts).named_layer(service)),
        name: S::NAME,
    }
}

/// Puts the server stack around what takes every request.
pub fn everything(live: &Arc<Live>, counts: &Arc<Counts>, service: impl Below + Sync + 'static) -> Shop {
    unnoticed(stack(live, counts).service(service))
}

/// Serves what takes every request without a stack of any kind: nothing that arrives is counted, traced or changed.
pub fn unnoticed(service: impl Below + Sync + 'static) -> Shop {
    let service = service.map_request(|request: http::Request<Incoming>| request.map(Body::new));
    Shop::Everything(BoxCloneSyncService::new(service))
}

fn stack<S: Below + Sync + 'static>(
    live: &Arc<Live>,
    counts: &Arc<Counts>,
) -> ServiceBuilder<impl Layer<S, Service = impl Below + Sync + 'static>> {
    let counts = Arc::clone(counts);
    ServiceBuilder::new()
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
        .layer(Wrap(FaultLayer))
}

impl Shop {
    /// Serves it on this port. What passes through is held in small windows; a message that is read here comes as fast as it can.
    pub async fn serve(
        self,
        port: Port,
        gate: watch::Receiver<Gate>,
        counts: Arc<Counts>,
        stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        match self {
            Self::Named { routes, .. } => {
                port.serve(routes.prepare(), CONNECTION_WINDOW, gate, Some(counts), stop)
                    .await
            }
            Self::Everything(service) => port.serve(service, STREAM_WINDOW, gate, Some(counts), stop).await,
        }
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
