//! Spans out: the provider, the exporter, the carrier on the wire. The only file that names OpenTelemetry.
//!
//! Nothing here is global: a process has one subscriber for its one thread, set with [`Telemetry::enter`], so that several
//! services could stand in one process without sharing a name.

use crate::config::Config;
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    KeyValue,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::TracerProvider as _,
};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanLimits},
};
use std::{sync::LazyLock, time::Duration};
use thiserror::Error;
use tracing::{Span, Subscriber, subscriber::DefaultGuard};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer as _, Registry, filter::Targets, layer::SubscriberExt as _};

/// The target of every span of ours. Anything else that libraries say stays out of the trace.
pub const TARGET: &str = "retryscope";
/// The resource attribute that marks the spans of one run.
pub const RUN_ATTRIBUTE: &str = "retryscope.run";

/// Longest wait of a span that no flush asks for.
const EXPORT_DELAY: Duration = Duration::from_millis(200);
/// Longest time one export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Spans in one export.
const BATCH: usize = 512;

static PROPAGATOR: LazyLock<TraceContextPropagator> = LazyLock::new(TraceContextPropagator::new);

/// Where the spans of this process go. Without an address in the configuration, nowhere: no span is made.
#[derive(Debug, Default)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// Why spans cannot be exported.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The exporter could not be built.
    #[error("cannot export spans to {endpoint}")]
    Exporter {
        /// The address.
        endpoint: String,
        /// Why.
        source: opentelemetry_otlp::ExporterBuildError,
    },
}

impl Telemetry {
    /// Builds the provider. Must run inside the tokio runtime that will carry the exporter's connection.
    pub fn start(config: &Config) -> Result<Self, TelemetryError> {
        let Some(endpoint) = &config.otlp else {
            return Ok(Self::default());
        };
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint.clone())
            .with_timeout(EXPORT_TIMEOUT)
            // The exporter would be one more retry layer, and its copies would look like damage. A loss is seen: made is
            // compared with collected.
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .map_err(|source| TelemetryError::Exporter {
                endpoint: endpoint.clone(),
                source,
            })?;
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(config.span_queue)
            .with_max_export_batch_size(BATCH.min(config.span_queue))
            .with_scheduled_delay(EXPORT_DELAY)
            .build();
        // Every name is set here, whatever OTEL_* variables say: they could silently rename or drop evidence.
        let resource = Resource::builder_empty()
            .with_service_name(config.service.clone())
            .with_attribute(KeyValue::new("service.namespace", "retryscope"))
            .with_attribute(KeyValue::new("service.instance.id", std::process::id().to_string()))
            .with_attribute(KeyValue::new(RUN_ATTRIBUTE, config.run.clone()))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batch).build())
            .with_sampler(Sampler::AlwaysOn)
            .with_span_limits(SpanLimits::default())
            .with_resource(resource)
            .build();
        // One handle is never dropped: with the last one the SDK shuts down inline, and on a runtime of one thread that waits
        // five seconds for a connection that waits for it. Who wants the spans calls `shutdown`.
        std::mem::forget(provider.clone());
        Ok(Self {
            provider: Some(provider),
        })
    }

    /// Makes the spans of this thread go here until the guard is dropped.
    pub fn enter(&self) -> DefaultGuard {
        tracing::subscriber::set_default(self.subscriber())
    }

    fn subscriber(&self) -> Box<dyn Subscriber + Send + Sync> {
        let Some(provider) = &self.provider else {
            return Box::new(tracing::subscriber::NoSubscriber::new());
        };
        // Lean: no location, thread or activity attributes; they cost as much as the span itself.
        let bridge = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer(TARGET))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
            .with_filter(Targets::new().with_target(TARGET, tracing::Level::INFO));
        Box::new(Registry::default().with(bridge))
    }

    /// Exports every span that has ended. Blocking calls of the SDK run on a thread of their own: inline on a
    /// `current_thread` runtime they would wait for a connection that waits for them.
    ///
    /// # Errors
    /// What the exporter said, as text.
    pub async fn flush(&self) -> Result<(), String> {
        self.blocking(|provider| provider.force_flush()).await
    }

    /// Exports what is left and stops.
    ///
    /// # Errors
    /// What the exporter said, as text.
    pub async fn shutdown(&self) -> Result<(), String> {
        self.blocking(|provider| provider.shutdown()).await
    }

    async fn blocking(
        &self,
        work: impl FnOnce(SdkTracerProvider) -> opentelemetry_sdk::error::OTelSdkResult + Send + 'static,
    ) -> Result<(), String> {
        let Some(provider) = self.provider.clone() else {
            return Ok(());
        };
        match tokio::task::spawn_blocking(move || work(provider)).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Makes the span a child of what the metadata names.
pub fn set_parent(span: &Span, headers: &HeaderMap) {
    // It fails only for a span that has begun, which none of ours has, and then the span starts a trace of its own: the
    // tally names it as an orphan.
    let _ = span.set_parent(PROPAGATOR.extract_with_context(&opentelemetry::Context::new(), &Carrier(headers)));
}

/// Writes the span's context into the metadata.
pub fn inject(span: &Span, headers: &mut HeaderMap) {
    PROPAGATOR.inject_context(&span.context(), &mut CarrierMut(headers));
}

struct Carrier<'a>(&'a HeaderMap);

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct CarrierMut<'a>(&'a mut HeaderMap);

impl Injector for CarrierMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        // The propagator always writes `tracestate`, often empty; an empty one says nothing.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value))
            && !value.is_empty()
        {
            self.0.insert(name, value);
        }
    }
}
