//! Asking a running service: its configuration, its totals, its records; and telling it to export its spans.

use crate::fleet::Member;
use chassis::config::{Config, ConfigError};
use proto::lab::v1::{self as lab, control_client::ControlClient, ledger_client::LedgerClient};
use std::{net::SocketAddr, time::Duration};
use thiserror::Error;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Longest wait for spans to be exported.
const FLUSH: Duration = Duration::from_secs(15);
/// Largest message that is read, bytes.
const MESSAGE: usize = 64 * 1024 * 1024;

/// Why a service could not be asked.
#[derive(Debug, Error)]
pub enum LabError {
    /// It does not answer.
    #[error("{service} does not answer on its control port {address}: {message}", message = status.message())]
    Unreachable {
        /// Which service.
        service: String,
        /// Its control port.
        address: SocketAddr,
        /// What came instead.
        status: Box<Status>,
    },
    /// It says something that cannot be its configuration.
    #[error("{service} reports a configuration that cannot be read")]
    Config {
        /// Which service.
        service: String,
        /// Why.
        source: ConfigError,
    },
}

/// The control port of one service.
#[derive(Debug, Clone)]
pub struct Lab {
    service: String,
    address: SocketAddr,
    channel: Channel,
}

impl Lab {
    /// Connects with the first question.
    pub fn of(member: &Member) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{}", member.control)).expect("an address is a URI");
        let channel = endpoint.tcp_nodelay(true).connect_timeout(ANSWER).connect_lazy();
        Self {
            service: member.name.clone(),
            address: member.control,
            channel,
        }
    }

    /// The service's name.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The configuration in force.
    pub async fn describe(&self) -> Result<Config, LabError> {
        let mut client = ControlClient::new(self.channel.clone());
        let described = self.within(ANSWER, client.describe(lab::DescribeRequest {})).await?;
        let pairs = described.config.into_iter().collect();
        Config::read(&pairs).map_err(|source| LabError::Config {
            service: self.service.clone(),
            source,
        })
    }

    /// Exact totals.
    pub async fn totals(&self) -> Result<lab::Totals, LabError> {
        let mut client = LedgerClient::new(self.channel.clone());
        self.within(ANSWER, client.read(lab::ReadRequest {})).await
    }

    /// Exports every span that has ended; the error is the service's own words.
    pub async fn flush(&self) -> Result<Result<(), String>, LabError> {
        let mut client = ControlClient::new(self.channel.clone());
        let flushed = self.within(FLUSH, client.flush(lab::FlushRequest {})).await?;
        Ok(if flushed.error.is_empty() {
            Ok(())
        } else {
            Err(flushed.error)
        })
    }

    /// The single arrivals still kept.
    pub async fn records(&self) -> Result<Vec<lab::Record>, LabError> {
        let mut client = LedgerClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE);
        let read = async {
            let mut stream = client.read_records(lab::ReadRecordsRequest {}).await?.into_inner();
            let mut records = Vec::new();
            while let Some(batch) = stream.message().await? {
                records.extend(batch.records);
            }
            Ok(tonic::Response::new(records))
        };
        self.within(FLUSH, read).await
    }

    async fn within<T>(
        &self,
        longest: Duration,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, LabError> {
        let answered = tokio::time::timeout(longest, answer).await;
        let waited = || Status::deadline_exceeded(format!("no answer within {} s", longest.as_secs()));
        let response = answered.unwrap_or_else(|_| Err(waited()));
        response
            .map(tonic::Response::into_inner)
            .map_err(|status| LabError::Unreachable {
                service: self.service.clone(),
                address: self.address,
                status: Box::new(status),
            })
    }
}
