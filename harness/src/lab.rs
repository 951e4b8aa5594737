//! Asking a running service: its configuration, its totals, its records; and telling it what to do.

use crate::fleet::Member;
use chassis::{
    address::Address,
    config::{Config, ConfigError},
    control::AUTHORIZATION,
};
use proto::lab::v1::{self as lab, control_client::ControlClient, ledger_client::LedgerClient};
use std::{collections::BTreeMap, time::Duration};
use thiserror::Error;
use tonic::{
    Code, Request, Status, Streaming,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
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
        address: Address,
        /// What came instead.
        status: Box<Status>,
    },
    /// It answers that it does not do what was asked.
    #[error("{service} refuses: {message}", message = status.message())]
    Refused {
        /// Which service.
        service: String,
        /// What it says.
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

impl LabError {
    /// Whether somebody else has put a newer generation in force.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.code() == Code::FailedPrecondition)
    }
}

impl LabError {
    /// Whether nobody listens there.
    pub fn is_refused(&self) -> bool {
        let Self::Unreachable { status, .. } = self else {
            return false;
        };
        let mut cause = std::error::Error::source(status.as_ref());
        while let Some(error) = cause {
            if let Some(io) = error.downcast_ref::<std::io::Error>() {
                return io.kind() == std::io::ErrorKind::ConnectionRefused;
            }
            cause = error.source();
        }
        false
    }

    /// Whether the service answers and does not know what was asked for: it was started anew.
    pub fn is_forgotten(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.code() == Code::NotFound)
    }
}

/// The secret of control ports, as it is sent.
#[derive(Debug, Clone, Default)]
pub struct Token(Option<MetadataValue<Ascii>>);

impl Token {
    /// `None` sends nothing. The text is printable ASCII, as `chassis::config::control_token` gives it.
    pub fn new(token: Option<&str>) -> Self {
        let value = token.and_then(|token| format!("Bearer {token}").parse().ok());
        // Marked, so that no debug output of a lab shows it and no header table of a connection keeps it.
        Self(value.map(|mut value: MetadataValue<Ascii>| {
            value.set_sensitive(true);
            value
        }))
    }
}

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert(AUTHORIZATION, token.clone());
        }
        Ok(request)
    }
}

/// The control port of one service.
#[derive(Debug, Clone)]
pub struct Lab {
    service: String,
    address: Address,
    channel: InterceptedService<Channel, Token>,
    /// The requests whose counts are asked for; all when nobody is followed.
    followed: Option<Followed>,
}

/// Requests that are counted apart.
#[derive(Debug, Clone)]
pub struct Followed {
    /// The number of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The nonce of their spans' copies.
    pub run: String,
    /// Connections the service's HTTP/2 library had ended before.
    rejected_before: u64,
}

/// What a service says of itself.
#[derive(Debug, Clone)]
pub struct Described {
    /// The configuration in force.
    pub config: Config,
    /// The number of these settings.
    pub generation: u64,
    /// Its process number, in its own namespace.
    pub pid: u32,
    /// Where it sends its spans by itself; empty for nowhere, and in words where its OTEL_* variables say it.
    pub exports_to: String,
    /// The highest request number it has seen.
    pub highest_request: u64,
    /// Arrivals under these settings, as far as its fault counts them.
    pub seen: u64,
}

impl Lab {
    /// Connects with the first question.
    pub fn of(member: &Member) -> Self {
        Self::at(&member.name, &member.control, &Token::default())
    }

    /// Connects with the first question.
    pub fn at(service: &str, control: &Address, token: &Token) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{control}")).expect("an address is a URI");
        let channel = endpoint.tcp_nodelay(true).connect_timeout(ANSWER).connect_lazy();
        Self {
            service: service.to_owned(),
            address: control.clone(),
            channel: InterceptedService::new(channel, token.clone()),
            followed: None,
        }
    }

    /// The service's name.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Its control port.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The same under the name it gives itself.
    #[must_use]
    pub fn named(self, service: &str) -> Self {
        Self {
            service: service.to_owned(),
            ..self
        }
    }

    /// What it says of itself.
    pub async fn describe(&self) -> Result<Described, LabError> {
        let mut client = ControlClient::new(self.channel.clone());
        let said = self.within(ANSWER, client.describe(lab::DescribeRequest {})).await?;
        let pairs = said.config.into_iter().collect();
        let config = Config::read(&pairs).map_err(|source| LabError::Config {
            service: self.service.clone(),
            source,
        })?;
        Ok(Described {
            config,
            generation: said.generation,
            pid: said.pid,
            exports_to: said.exports_to,
            highest_request: said.highest_request,
            seen: said.seen,
        })
    }

    /// Puts settings in force, as a generation of this number.
    pub async fn switch(&self, generation: u64, settings: BTreeMap<String, String>) -> Result<(), LabError> {
        let mut client = ControlClient::new(self.channel.clone());
        let settings = settings.into_iter().collect();
        let request = lab::SwitchRequest { generation, settings };
        self.within(ANSWER, client.switch(request)).await.map(drop)
    }

    /// Request numbers for nobody else, from the returned one on.
    pub async fn reserve(&self, count: u64, at_least: u64) -> Result<u64, LabError> {
        let mut client = ControlClient::new(self.channel.clone());
        let reserved = client.reserve(lab::ReserveRequest { count, at_least });
        self.within(ANSWER, reserved).await.map(|reserved| reserved.first)
    }

    /// Has requests counted apart and their spans copied to `otlp`, as long as the returned stream is kept; answers a lab whose
    /// counts are theirs.
    pub async fn follow(
        &self,
        (first, count): (u64, u64),
        (otlp, run): (&str, &str),
        span_queue: usize,
    ) -> Result<(Self, Streaming<lab::Following>), LabError> {
        let mut client = ControlClient::new(self.channel.clone());
        let request = lab::FollowRequest {
            first,
            count,
            otlp: otlp.to_owned(),
            run: run.to_owned(),
            span_queue: span_queue as u64,
        };
        let begun = async {
            let mut stream = client.follow(request).await?.into_inner();
            // The first message says that the counting has begun.
            match stream.message().await? {
                Some(_) => Ok(tonic::Response::new(stream)),
                None => Err(Status::unavailable("it ended at once")),
            }
        };
        let stream = self.within(ANSWER, begun).await?;
        let mut lab = self.clone();
        lab.followed = Some(Followed {
            first,
            count,
            run: run.to_owned(),
            rejected_before: 0,
        });
        let rejected_before = lab.totals().await?.rejected_by_transport;
        if let Some(followed) = &mut lab.followed {
            followed.rejected_before = rejected_before;
        }
        Ok((lab, stream))
    }

    /// Exact totals. Of followed requests, whose numbers then begin at 1, where some are.
    pub async fn totals(&self) -> Result<lab::Totals, LabError> {
        let mut client = LedgerClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE);
        let first = self.followed.as_ref().map_or(0, |followed| followed.first);
        let mut totals = self.within(ANSWER, client.read(lab::ReadRequest { first })).await?;
        if let Some(followed) = &self.followed {
            totals.rejected_by_transport -= followed.rejected_before.min(totals.rejected_by_transport);
            totals.given_up_through = totals.given_up_through.saturating_sub(followed.first - 1);
        }
        Ok(totals)
    }

    /// Exports every span that has ended; the error is the service's own words.
    pub async fn flush(&self) -> Result<Result<(), String>, LabError> {
        let mut client = ControlClient::new(self.channel.clone());
        let run = self
            .followed
            .as_ref()
            .map_or(String::new(), |followed| followed.run.clone());
        let flushed = self.within(FLUSH, client.flush(lab::FlushRequest { run })).await?;
        Ok(if flushed.error.is_empty() {
            Ok(())
        } else {
            Err(flushed.error)
        })
    }

    /// The single arrivals still kept; of followed requests, whose numbers then begin at 1, where some are.
    pub async fn records(&self) -> Result<Vec<lab::Record>, LabError> {
        let mut client = LedgerClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE);
        let (first, count) = self
            .followed
            .as_ref()
            .map_or((0, 0), |followed| (followed.first, followed.count));
        let read = async {
            let request = lab::ReadRecordsRequest { first, count };
            let mut stream = client.read_records(request).await?.into_inner();
            let mut records = Vec::new();
            while let Some(batch) = stream.message().await? {
                records.extend(batch.records);
            }
            Ok(tonic::Response::new(records))
        };
        let mut records = self.within(FLUSH, read).await?;
        if first > 0 {
            for record in &mut records {
                record.request -= first - 1;
            }
        }
        Ok(records)
    }

    async fn within<T>(
        &self,
        longest: Duration,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, LabError> {
        let answered = tokio::time::timeout(longest, answer).await;
        let waited = || Status::deadline_exceeded(format!("no answer within {} s", longest.as_secs()));
        let response = answered.unwrap_or_else(|_| Err(waited()));
        response.map(tonic::Response::into_inner).map_err(|status| {
            let status = if status.code() == Code::Unimplemented {
                let text = format!(
                    "{} is no control port; is it where the service is called?",
                    self.address
                );
                Status::unimplemented(text)
            } else {
                status
            };
            let (service, status) = (self.service.clone(), Box::new(status));
            match status.code() {
                Code::FailedPrecondition
                | Code::InvalidArgument
                | Code::NotFound
                | Code::ResourceExhausted
                | Code::Unauthenticated
                | Code::Unimplemented => LabError::Refused { service, status },
                _ => LabError::Unreachable {
                    service,
                    address: self.address.clone(),
                    status,
                },
            }
        })
    }
}
