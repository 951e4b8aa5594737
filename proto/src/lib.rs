//! The wire, and nothing else: the shop's four services (`shop.v1`) and the lab's ledger and control (`lab.v1`).
//!
//! Not here: transport (clients are generated without it, so that every call goes through `chassis::outbound`), handlers,
//! and any type that is not a message. Start with `shop/v1/frontend.proto`.

/// The shop: what users call. One unary, read-only method per service.
pub mod shop {
    /// Version 1.
    #[allow(missing_docs, unreachable_pub, clippy::pedantic)]
    pub mod v1 {
        tonic::include_proto!("shop.v1");
    }
}

/// The lab: what the harness asks on the control port.
pub mod lab {
    /// Version 1.
    #[allow(missing_docs, unreachable_pub, clippy::pedantic)]
    pub mod v1 {
        tonic::include_proto!("lab.v1");
    }
}

/// The encoded `FileDescriptorSet` of every .proto file here, as server reflection wants it.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
