//! The second witness: a SERVER span per arrival, right behind the ledger; an INTERNAL span per call, outside the retry loop,
//! which holds the back-offs; a CLIENT span per attempt, inside it, whose context goes on the wire.
//!
//! gRPC's own proposal (A72) gives kind CLIENT to the call. Here CLIENT sits on the attempt, so that a service graph pairs one
//! CLIENT with one SERVER; one span for all attempts would hide the multiplication.

use super::{Around, Below, ask};
use crate::{
    Request, Response,
    body::{self, Ending},
    call::Context,
    code::{self, Code},
    config::Callee,
    conventions::{
        self, ATTEMPT_PATH, ERROR_TYPE, GENERATION, PREVIOUS_ATTEMPTS, REQUEST, RPC_METHOD, RPC_STATUS, RPC_SYSTEM,
        SERVER_ADDRESS, SERVER_PORT, is_client_error, is_server_error,
    },
    counts::{Counts, SpanKind},
    outcome::{self, Head},
    telemetry,
};
use std::{borrow::Cow, sync::Arc};
use tonic::Status;
use tracing::{Span, field::Empty, info_span};

/// A SERVER span per arrival.
#[derive(Debug, Clone)]
pub struct TraceArrival {
    /// Where the spans are counted.
    pub counts: Arc<Counts>,
}

impl Around for TraceArrival {
    async fn around(&self, mut request: Request, mut below: impl Below) -> Response {
        let (method, context) = (method(&request), context(&request));
        let span = info_span!(
            target: telemetry::TARGET,
            parent: None,
            "arrival",
            otel.name = method,
            otel.kind = "server",
            otel.status_code = Empty,
            otel.status_description = Empty,
            { RPC_SYSTEM } = "grpc",
            { RPC_METHOD } = method,
            { RPC_STATUS } = Empty,
            { ERROR_TYPE } = Empty,
            { REQUEST } = signed(context.request()),
            { GENERATION } = signed(context.generation.number),
            { ATTEMPT_PATH } = context.path.as_ref().map(tracing::field::display),
        );
        if span.is_disabled() {
            return ask(&mut below, request).await;
        }
        self.counts.span_made(SpanKind::Server, &context);
        telemetry::set_parent(&span, request.headers());
        hand_on(&span, &mut request);
        observe(span, is_server_error, ask(&mut below, request)).await
    }
}

/// An INTERNAL span per call.
#[derive(Debug, Clone)]
pub struct TraceCall {
    /// Where the spans are counted.
    pub counts: Arc<Counts>,
}

impl Around for TraceCall {
    async fn around(&self, mut request: Request, mut below: impl Below) -> Response {
        let (method, context) = (method(&request), context(&request));
        let span = info_span!(
            target: telemetry::TARGET,
            parent: &context.span,
            "call",
            otel.name = method,
            otel.kind = "internal",
            otel.status_code = Empty,
            otel.status_description = Empty,
            { RPC_SYSTEM } = "grpc",
            { RPC_METHOD } = method,
            { RPC_STATUS } = Empty,
            { ERROR_TYPE } = Empty,
            { REQUEST } = signed(context.request()),
        );
        if span.is_disabled() {
            return ask(&mut below, request).await;
        }
        self.counts.span_made(SpanKind::Internal, &context);
        context.trace.note(&span);
        hand_on(&span, &mut request);
        observe(span, is_client_error, ask(&mut below, request)).await
    }
}

/// A CLIENT span per attempt.
#[derive(Debug, Clone)]
pub struct TraceAttempt {
    /// Where the spans are counted.
    pub counts: Arc<Counts>,
    /// Whom the attempts go to.
    pub callee: Arc<Callee>,
}

impl Around for TraceAttempt {
    async fn around(&self, mut request: Request, mut below: impl Below) -> Response {
        let (method, context) = (method(&request), context(&request));
        let span = info_span!(
            target: telemetry::TARGET,
            parent: &context.span,
            "attempt",
            otel.name = conventions::attempt_name(method),
            otel.kind = "client",
            otel.status_code = Empty,
            otel.status_description = Empty,
            { RPC_SYSTEM } = "grpc",
            { RPC_METHOD } = method,
            { RPC_STATUS } = Empty,
            { ERROR_TYPE } = Empty,
            { REQUEST } = signed(context.request()),
            { SERVER_ADDRESS } = self.callee.address.host,
            { SERVER_PORT } = i64::from(self.callee.address.port),
            { PREVIOUS_ATTEMPTS } = i64::from(context.attempt) - 1,
        );
        if span.is_disabled() {
            return ask(&mut below, request).await;
        }
        self.counts.span_made(SpanKind::Client, &context);
        telemetry::inject(&span, request.headers_mut());
        observe(span, is_client_error, ask(&mut below, request)).await
    }
}

/// What the request came with. Looked at, not copied: this runs once a span.
fn context(request: &Request) -> Cow<'_, Context> {
    let context = request.extensions().get();
    context.map_or_else(|| Cow::Owned(Context::nobodys()), Cow::Borrowed)
}

/// Makes the next span a part of this one.
fn hand_on(span: &Span, request: &mut Request) {
    if let Some(context) = request.extensions_mut().get_mut::<Context>() {
        context.span = span.clone();
    }
}

/// As an attribute: the bridge turns an unsigned number into a string.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Package, service and method, without the leading slash: `shop.v1.Inventory/GetStock`.
fn method(request: &Request) -> &str {
    request.uri().path().trim_start_matches('/')
}

/// Runs what lies below, and ends the span when the answer has ended.
async fn observe(span: Span, is_error: fn(Code) -> bool, below: impl Future<Output = Response>) -> Response {
    let mut unfinished = Observed {
        span: span.clone(),
        is_error,
        code: Some(Code::Cancelled),
        message: String::new(),
    };
    let response = below.await;
    match outcome::head(&response) {
        Head::TrailersOnly(code) => {
            if let Some(status) = Status::from_header_map(response.headers()) {
                status.message().clone_into(&mut unfinished.message);
            }
            unfinished.end(code);
            response
        }
        Head::Committed => response.map(|inner| {
            body::watch(inner, None, move |ending| match ending {
                Ending::Code(code) => unfinished.end(code),
                Ending::Broken => unfinished.end(Code::Unknown),
                Ending::Dropped => unfinished.end(Code::Cancelled),
            })
        }),
    }
}

/// A span whose end is not yet known. Dropped with the work it stands for, it says CANCELLED: a dropped arrival still exports
/// its span.
struct Observed {
    span: Span,
    is_error: fn(Code) -> bool,
    code: Option<Code>,
    /// What a failure says besides its code.
    message: String,
}

impl Observed {
    fn end(mut self, code: Code) {
        self.code = Some(code);
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        let code = self.code.unwrap_or(Code::Cancelled);
        self.span.record(RPC_STATUS, code::name(code));
        // On success the status stays unset and `error.type` absent (OpenTelemetry's RPC conventions).
        if (self.is_error)(code) {
            self.span.record("otel.status_code", "ERROR");
            // The code stands in attributes; here it would only be said again.
            if !self.message.is_empty() {
                self.span.record("otel.status_description", self.message.as_str());
            }
            self.span.record(ERROR_TYPE, code::name(code));
        }
    }
}
