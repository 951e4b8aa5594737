//! The ledger: the outermost inbound layer, before anything that could fail, drop or answer early. It counts an arrival when
//! it starts; counting in a handler would miss what never reaches one.

use super::{Around, Below, ask};
use crate::{
    Request, Response,
    body::{self, Ending},
    call::Context,
    code::Code,
    connection::{Connection, Instead},
    counts::{Counts, Outcome},
    outcome::{self, Expired, Head, WorkDone},
    settings::Live,
};
use std::sync::Arc;

/// Counts every arrival.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// Where.
    pub counts: Arc<Counts>,
    /// The settings, of which those in force are stamped on each arrival.
    pub live: Arc<Live>,
}

impl Around for Ledger {
    async fn around(&self, mut request: Request, mut below: impl Below) -> Response {
        let mut context = Context::read(request.headers(), self.live.now());
        if context.path.is_none() {
            context.path = Some(self.counts.foreign_path(context.attempt));
        }
        let method = request.uri().path().trim_start_matches('/');
        let connection = request.extensions().get::<Connection>().cloned();
        let arrived = self.counts.arrive(method, &context).on(connection);
        request.extensions_mut().insert(context);
        request.extensions_mut().insert(arrived.work());
        let response = ask(&mut below, request).await;
        let work_done = response.extensions().get::<WorkDone>().is_some();
        match outcome::head(&response) {
            // What stands in the answer is never sent.
            _ if response.extensions().get::<Instead>().is_some() => {
                arrived.end(Outcome::Cut, work_done);
                response
            }
            Head::TrailersOnly(_) if response.extensions().get::<Expired>().is_some() => {
                arrived.end(Outcome::Expired, work_done);
                response
            }
            Head::TrailersOnly(code) => {
                arrived.end(Outcome::Answered(code.into()), work_done || code == Code::Ok);
                response
            }
            Head::Committed => response.map(|inner| {
                body::watch(inner, None, move |ending| match ending {
                    Ending::Code(code) => arrived.end(Outcome::Answered(code.into()), work_done || code == Code::Ok),
                    Ending::Broken => arrived.end(Outcome::Answered(Code::Unknown.into()), work_done),
                    Ending::Dropped => arrived.left(work_done),
                })
            }),
        }
    }
}
