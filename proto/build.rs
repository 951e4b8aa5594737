//! Compiles the .proto files without protoc, and keeps their descriptors for server reflection.
use prost::Message as _;
use std::{env, error::Error, fs, path::PathBuf};

const FILES: [&str; 6] = [
    "shop/v1/frontend.proto",
    "shop/v1/checkout.proto",
    "shop/v1/pricing.proto",
    "shop/v1/inventory.proto",
    "lab/v1/ledger.proto",
    "lab/v1/control.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // No transport in generated code: nobody can dial around the outbound stack.
    tonic_prost_build::configure()
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}
