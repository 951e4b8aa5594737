//! Checkout: the price of an item as a customer pays it. Passes the item on unread.
//!
//! Not here: trying again (the retry layer does that), counting, tracing, failing on command. Start with [`shop`].

use chassis::{
    call::Context,
    config::Config,
    counts::Counts,
    fan_out,
    inbound::{self, Shop},
    outbound::{self, Outbound, OutboundError},
    outcome, process,
    settings::Live,
};
use proto::shop::v1::{
    GetPriceRequest, GetQuoteRequest, Quote,
    checkout_server::{Checkout, CheckoutServer},
    pricing_client::PricingClient,
};
use std::{process::ExitCode, sync::Arc};
use tonic::{Request, Response, Status};

/// Runs checkout as this process.
pub fn main() -> ExitCode {
    process::main(&Config::named("checkout"), shop)
}

/// Checkout with the server stack around it, calling its callee through the client stack.
pub fn shop(live: &Arc<Live>, counts: &Arc<Counts>) -> Result<Shop, OutboundError> {
    let pricing = PricingClient::new(outbound::outbound(&live.now().config, counts)?);
    let handler = Handler { pricing };
    Ok(inbound::shop(live, counts, CheckoutServer::new(handler)))
}

#[derive(Debug, Clone)]
struct Handler {
    pricing: PricingClient<Outbound>,
}

#[tonic::async_trait]
impl Checkout for Handler {
    async fn get_quote(&self, request: Request<GetQuoteRequest>) -> Result<Response<Quote>, Status> {
        let context = Context::of(&request);
        let ask = GetPriceRequest {
            item: request.into_inner().item,
        };
        let answer = fan_out::ask(&context, |context| {
            let (mut pricing, ask) = (self.pricing.clone(), context.next(ask.clone()));
            async move { pricing.get_price(ask).await }
        });
        match answer.await {
            Ok(response) => Ok(Response::new(quote(response.into_inner()))),
            Err(failed) => Err(outcome::answer(&context.generation.config, &failed)),
        }
    }
}

/// The customer pays a fifth in taxes on top. Cents.
fn quote(price: proto::shop::v1::Price) -> Quote {
    Quote {
        price: price.price * 6 / 5,
        item: price.item,
        in_stock: price.in_stock,
    }
}
