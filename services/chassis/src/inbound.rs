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
