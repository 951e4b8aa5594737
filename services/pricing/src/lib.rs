//! Pricing: what an item costs, which depends on how much of it there is. Passes the item on unread.
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
    GetPriceRequest, GetStockRequest, Price,
    inventory_client::InventoryClient,
    pricing_server::{Pricing, PricingServer},
};
use std::{process::ExitCode, sync::Arc};
use tonic::{Request, Response, Status};

/// Runs pricing as this process.
pub fn main() -> ExitCode {
    process::main(&Config::named("pricing"), shop)
}

/// Pricing with the server stack around it, calling its callee through the client stack.
pub fn shop(live: &Arc<Live>, counts: &Arc<Counts>) -> Result<Shop, OutboundError> {
    let inventory = InventoryClient::new(outbound::outbound(&live.now().config, counts)?);
    let handler = Handler { inventory };
    Ok(inbound::shop(live, counts, PricingServer::new(handler)))
}

#[derive(Debug, Clone)]
struct Handler {
    inventory: InventoryClient<Outbound>,
}

#[tonic::async_trait]
impl Pricing for Handler {
    async fn get_price(&self, request: Request<GetPriceRequest>) -> Result<Response<Price>, Status> {
        let context = Context::of(&request);
        let ask = GetStockRequest {
            item: request.into_inner().item,
        };
        let answer = fan_out::ask(&context, |context| {
            let (mut inventory, ask) = (self.inventory.clone(), context.next(ask.clone()));
            async move { inventory.get_stock(ask).await }
        });
        match answer.await {
            Ok(response) => Ok(Response::new(price(response.into_inner()))),
            Err(failed) => Err(outcome::answer(&context.generation.config, &failed)),
        }
    }
}

/// Scarce items cost more. Cents.
fn price(stock: proto::shop::v1::Stock) -> Price {
    Price {
        price: 1_000 / stock.in_stock.max(1),
        item: stock.item,
        in_stock: stock.in_stock,
    }
}
