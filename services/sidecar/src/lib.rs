//! The sidecar: forwards any gRPC method unread, counts what passes, and may retry. It stands on a link as a proxy, in the
//! middle of a long chain as a service, and where nobody declared it.

use chassis::{counts::Counts, inbound::Shop, outbound::OutboundError, process, settings::Live};
use std::{process::ExitCode, sync::Arc};

/// Runs a sidecar as this process.
pub fn main() -> ExitCode {
    process::main("sidecar", shop)
}

/// The forwarder between the two stacks.
pub fn shop(live: &Arc<Live>, _counts: &Arc<Counts>) -> Result<Shop, OutboundError> {
    Err(OutboundError::NoCallee(live.now().config.service.clone()))
}
