//! A fault in the caller's own outbound stack, as the fault filter of a mesh puts it there: what it fails is never sent. Inside
//! the retry loop it meets every attempt, outside it every call.

use super::{Around, Below, ask};
use crate::{
    Request, Response,
    call::Context,
    config::Callee,
    counts::Counts,
    fault::{self, Kind},
};
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

/// Fails calls or attempts as the client-side fault in force says.
#[derive(Debug, Clone)]
pub struct ClientFaultLayer {
    /// Which side of the retry loop this one is on; a fault on the other side is none here.
    pub inside: bool,
    /// Where a call is counted that the retry layer never sees.
    pub counts: Arc<Counts>,
    /// Whom the calls go to.
    pub callee: Arc<Callee>,
}

impl Around for ClientFaultLayer {
    async fn around(self, request: Request, mut below: impl Below) -> Response {
        let context = request.extensions().get::<Context>();
        let placed = context.and_then(|context| Some((context, context.generation.config.client_fault?)));
        let Some((context, placed)) = placed.filter(|(_, placed)| placed.inside == self.inside) else {
            return ask(&mut below, request).await;
        };
        let verdict = fault::verdict(&placed.fault, context, &mut context.generation.seen_outbound());
        if !verdict.delay.is_zero() {
            let due = Instant::now() + verdict.delay;
            // The call's deadline cuts the wait; what lies around or below then answers for it.
            sleep_until(context.deadline.map_or(due, |deadline| deadline.min(due))).await;
        }
        if context.is_spent() {
            return ask(&mut below, request).await;
        }
        // No other kind is for callers; the grammar refuses them.
        let Kind::Fail(told) = verdict.then else {
            return ask(&mut below, request).await;
        };
        if !self.inside {
            self.counts.on_link(&self.callee.name, context, |link| link.calls += 1);
        }
        Status::new(told.code, "the injected fault of the caller").into_http()
    }
}
