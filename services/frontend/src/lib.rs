//! Frontend: the top of the chain, and the way in for users. Passes the item on unread.
//!
//! Not here: trying again (the retry layer does that), counting, tracing, failing on command. Start with [`shop`].

use chassis::{
    call::Context,
    config::{Config, OnFailure},
    counts::Counts,
    inbound::{self, Shop},
    outbound::{self, Outbound, OutboundError},
    outcome, process,
};
use proto::shop::v1::{
    GetOfferRequest, GetQuoteRequest, Offer,
    checkout_client::CheckoutClient,
    frontend_server::{Frontend, FrontendServer},
};
use std::{process::ExitCode, sync::Arc};
use tonic::{Request, Response, Status};

/// Runs frontend as this process.
pub fn main() -> ExitCode {
    process::main("frontend", shop)
}

/// Frontend with the server stack around it, calling its callee through the client stack.
pub fn shop(config: &Config, counts: &Arc<Counts>) -> Result<Shop, OutboundError> {
    let checkout = CheckoutClient::new(outbound::outbound(config, counts)?);
    let callee = config
        .callee
        .as_ref()
        .map(|callee| callee.name.clone())
        .unwrap_or_default();
    let handler = Handler {
        checkout,
        callee,
        on_failure: config.on_failure,
    };
    Ok(inbound::shop(config, counts, FrontendServer::new(handler)))
}

#[derive(Debug, Clone)]
struct Handler {
    checkout: CheckoutClient<Outbound>,
    callee: String,
    on_failure: OnFailure,
}

#[tonic::async_trait]
impl Frontend for Handler {
    async fn get_offer(&self, request: Request<GetOfferRequest>) -> Result<Response<Offer>, Status> {
        let context = Context::of(&request);
        let ask = GetQuoteRequest {
            item: request.into_inner().item,
        };
        match self.checkout.clone().get_quote(context.next(ask)).await {
            Ok(response) => Ok(Response::new(offer(response.into_inner()))),
            Err(failed) => Err(outcome::answer(&self.callee, &failed, self.on_failure)),
        }
    }
}

fn offer(quote: proto::shop::v1::Quote) -> Offer {
    Offer {
        price: quote.price,
        item: quote.item,
        in_stock: quote.in_stock,
    }
}
