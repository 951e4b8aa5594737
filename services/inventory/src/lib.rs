//! Inventory: the bottom of the chain. It alone decides that an item is invalid.
//!
//! Not here: failing on command (the fault layer does that), counting, tracing. Start with [`shop`].

use chassis::{
    config::Config,
    counts::Counts,
    inbound::{self, Shop},
    outbound::OutboundError,
    process,
    settings::Live,
};
use proto::shop::v1::{
    GetStockRequest, Stock,
    inventory_server::{Inventory, InventoryServer},
};
use std::{process::ExitCode, sync::Arc};
use tonic::{Request, Response, Status};

/// Longest item, bytes.
pub const MAX_ITEM: usize = 64 * 1024;

/// Runs inventory as this process.
pub fn main() -> ExitCode {
    process::main(&Config::named("inventory"), shop)
}

/// Inventory with the server stack around it.
pub fn shop(live: &Arc<Live>, counts: &Arc<Counts>) -> Result<Shop, OutboundError> {
    Ok(inbound::shop(live, counts, InventoryServer::new(Shelf)))
}

#[derive(Debug, Clone, Copy)]
struct Shelf;

#[tonic::async_trait]
impl Inventory for Shelf {
    async fn get_stock(&self, request: Request<GetStockRequest>) -> Result<Response<Stock>, Status> {
        let item = request.into_inner().item;
        match item.len() {
            0 => Err(Status::invalid_argument("the item is empty")),
            // Any stock will do; the same item always has the same.
            1..=MAX_ITEM => Ok(Response::new(Stock {
                in_stock: 1 + i64::from(item.as_bytes()[0] % 10),
                item,
            })),
            _ => Err(Status::invalid_argument(format!(
                "the item is longer than {MAX_ITEM} bytes"
            ))),
        }
    }
}
