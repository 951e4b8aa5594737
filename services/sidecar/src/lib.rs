//! The sidecar: forwards any gRPC method unread, counts what passes, and may retry. It stands on a link as a proxy, in the
//! middle of a long chain as a service, and where nobody declared it.
//!
//! Not here: trying again, counting, tracing, failing on command; the stacks in front and behind do that, as around every
//! service. Start with [`shop`].

use chassis::{
    Request, Response,
    body::{self, Held},
    call::Context,
    code::Code,
    config::{Config, Layer},
    counts::Counts,
    inbound::{self, Shop},
    layers::{Around, Below, Wrap, ask},
    outbound::{self, OutboundError},
    outcome::{self, Head},
    process,
    settings::Live,
};
use std::{process::ExitCode, sync::Arc};
use tonic::Status;
use tower::Layer as _;

/// Runs a sidecar as this process.
pub fn main() -> ExitCode {
    let usual = Config {
        layer: Layer::Proxy,
        ..Config::named("sidecar")
    };
    process::main(&usual, shop)
}

/// The forwarder between the two stacks.
pub fn shop(live: &Arc<Live>, counts: &Arc<Counts>) -> Result<Shop, OutboundError> {
    let config = &live.now().config;
    if config.calls > 1 {
        return Err(OutboundError::OneCall(config.service.clone()));
    }
    let behind = outbound::forwarding(config, counts)?;
    match config.layer {
        Layer::Proxy => Ok(inbound::everything(live, counts, Wrap(Proxy).layer(behind))),
        Layer::Service => Ok(inbound::everything(live, counts, Wrap(Relay).layer(behind))),
        Layer::Undeclared => {
            let hidden = Hidden { live: Arc::clone(live) };
            Ok(inbound::unnoticed(Wrap(hidden).layer(behind)))
        }
        Layer::Envoy => Err(OutboundError::Envoy(config.service.clone())),
    }
}

/// A proxy: answers go up as they came.
#[derive(Debug, Clone, Copy)]
struct Proxy;

impl Around for Proxy {
    async fn around(&self, mut request: Request, mut below: impl Below + 'static) -> Response {
        Context::pass_on(&mut request);
        ask(&mut below, request).await
    }
}

/// A layer that nobody declared: nothing of its own is in what passes.
#[derive(Debug, Clone)]
struct Hidden {
    live: Arc<Live>,
}

impl Around for Hidden {
    async fn around(&self, mut request: Request, mut below: impl Below + 'static) -> Response {
        request.extensions_mut().insert(Context::unread(self.live.now()));
        ask(&mut below, request).await
    }
}

/// A service that asks the next what it was asked: it answers failures for itself.
#[derive(Debug, Clone, Copy)]
struct Relay;

impl Around for Relay {
    async fn around(&self, mut request: Request, mut below: impl Below + 'static) -> Response {
        Context::pass_on(&mut request);
        let context = request.extensions().get().cloned().unwrap_or_else(Context::nobodys);
        let config = &context.generation.config;
        let (head, inner) = request.into_parts();
        let (inner, is_sent) = body::noticed(inner);
        let response = ask(&mut below, Request::from_parts(head, inner)).await;
        match outcome::head(&response) {
            Head::TrailersOnly(Code::Ok) => response,
            Head::TrailersOnly(code) => afresh(config, &said(code, response.headers())),
            Head::Committed => {
                let (head, inner) = response.into_parts();
                // As a handler does that reads one message to its end before it answers. Streams pass.
                match body::hold(inner, is_sent).await {
                    Held::Ended(trailers, inner) => match outcome::status_in(&trailers).unwrap_or(Code::Unknown) {
                        Code::Ok => Response::from_parts(head, inner),
                        code => afresh(config, &said(code, &trailers)),
                    },
                    Held::Begun(inner) => Response::from_parts(head, inner),
                    Held::Broken(status) => afresh(config, &status),
                }
            }
        }
    }
}

/// A failure with the words that came with it.
fn said(code: Code, headers: &http::HeaderMap) -> Status {
    let status = Status::from_header_map(headers);
    status.unwrap_or_else(|| Status::new(code, "no grpc-status came"))
}

/// What a service answers when its callee failed.
fn afresh(config: &Config, failed: &Status) -> Response {
    outcome::answer(config, failed).into_http()
}

#[cfg(test)]
mod tests;
