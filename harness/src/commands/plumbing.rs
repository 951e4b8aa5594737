//! What containers and shells use: one service, its health, the secret of the control ports.

use super::{Failure, USAGE};
use crate::{
    render::{
        self,
        text::{self, Style},
    },
    sanitize::sanitize,
    scenario::{Program, Role},
};
use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path, process::ExitCode};

/// Serves as one of the four, or between them.
pub(super) fn service(name: &str) -> ExitCode {
    match Program::SERVED.into_iter().find(|program| program.name() == name) {
        Some(Program::Service(Role::Frontend)) => frontend::main(),
        Some(Program::Service(Role::Checkout)) => checkout::main(),
        Some(Program::Service(Role::Pricing)) => pricing::main(),
        Some(Program::Service(Role::Inventory)) => inventory::main(),
        Some(Program::Sidecar) => sidecar::main(),
        None => ExitCode::from(USAGE),
    }
}

/// 0 when the service serves, 1 when it does not: what a container's health check asks.
pub(super) async fn health(address: &str) -> ExitCode {
    use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
    const ANSWER: std::time::Duration = std::time::Duration::from_secs(2);
    let asked = async {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| text::chain(&error))?;
        let mut client = HealthClient::new(endpoint.connect().await.map_err(|error| text::chain(&error))?);
        let answer = client
            .check(HealthCheckRequest::default())
            .await
            .map_err(|status| status.to_string())?;
        Ok::<_, String>(answer.into_inner().status())
    };
    let said = match tokio::time::timeout(ANSWER, asked).await {
        Ok(Ok(ServingStatus::Serving)) => return ExitCode::SUCCESS,
        Ok(Ok(status)) => status.as_str_name().to_owned(),
        Ok(Err(error)) => error,
        Err(_) => format!("no answer within {} s", ANSWER.as_secs()),
    };
    let message = format!("{} is not healthy: {}", sanitize(address), sanitize(&said));
    let _ = render::print_error(&text::error(&message, Style::Plain), anstream::ColorChoice::Auto);
    ExitCode::from(1)
}

/// Makes a file with a random secret of 256 bits in hexadecimal digits; one that is there stays, since services may hold it already.
pub(super) fn token(file: &Path) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| {
        Failure::usage(format!(
            "{} cannot be written: {error}",
            sanitize(&file.display().to_string())
        ))
    };
    if std::fs::metadata(file).is_ok_and(|found| found.len() > 0) {
        return Ok(0);
    }
    let digits = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
    // Written beside and renamed: nobody ever reads half a secret.
    let beside = file.with_extension("part");
    let mut written = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .map_err(failed)?;
    writeln!(written, "{digits}").map_err(failed)?;
    written.sync_all().map_err(failed)?;
    std::fs::rename(&beside, file).map_err(failed)?;
    Ok(0)
}
