//! Frontend: the top of the chain, and the way in for users. Passes the item on unread.
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
    GetOfferRequest, GetQuoteRequest, Offer,
    checkout_client::CheckoutClient,
    frontend_server::{Frontend, FrontendServer},
};
use std::{process::ExitCode, sync::Arc};
use tonic::{Request, Response, Status};

/// Runs frontend as this process.
pub fn main() -> ExitCode {
    process::main(&Config::named("frontend"), shop)
}

/// Frontend with the server stack around it, calling its callee through the client stack.
pub fn shop(live: &Arc<Live>, counts: &Arc<Counts>) -> Result<Shop, OutboundError> {
    let checkout = CheckoutClient::new(outbound::outbound(&live.now().config, counts)?);
    let handler = Handler { checkout };
    Ok(inbound::shop(live, counts, FrontendServer::new(handler)))
}

#[derive(Debug, Clone)]
struct Handler {
    checkout: CheckoutClient<Outbound>,
}

#[tonic::async_trait]
impl Frontend for Handler {
    async fn get_offer(&self, request: Request<GetOfferRequest>) -> Result<Response<Offer>, Status> {
        let context = Context::of(&request);
        let ask = GetQuoteRequest {
            item: request.into_inner().item,
        };
        let answer = fan_out::ask(&context, |context| {
            let (mut checkout, ask) = (self.checkout.clone(), context.next(ask.clone()));
            async move { checkout.get_quote(ask).await }
        });
        match answer.await {
            Ok(response) => Ok(Response::new(offer(response.into_inner()))),
            Err(failed) => Err(outcome::answer(&context.generation.config, &failed)),
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
