//! Spans out: the provider, the exporter, the carrier on the wire. The only file that names OpenTelemetry.
//!
//! Nothing here is global: a process has one subscriber for its one thread, set with [`Telemetry::enter`], so that several
//! services could stand in one process without sharing a name.

mod outlets;

pub use outlets::Copies;

use crate::{
    config::Config,
    conventions::{RUN, SCHEMA_URL, SERVICE_INSTANCE, SERVICE_NAMESPACE, SERVICE_VERSION},
    counts::Range,
    export::Export,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    InstrumentationScope, Key, KeyValue,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    resource::TelemetryResourceDetector,
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanLimits, SpanProcessor as _,
        TracerProviderBuilder,
    },
};
use outlets::Outlets;
use std::{sync::LazyLock, time::Duration};
use thiserror::Error;
use tracing::{Span, Subscriber, subscriber::DefaultGuard};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer as _, Registry, filter::Targets, layer::SubscriberExt as _};

/// The target of every span of ours. Anything else that libraries say stays out of the trace.
pub const TARGET: &str = "retryscope";

/// Longest wait of a span that no flush asks for.
const EXPORT_DELAY: Duration = Duration::from_millis(200);
/// Longest time one export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the last export when the process leaves: a dead collector must not hold it.
const LAST_EXPORT: Duration = Duration::from_secs(3);
/// Spans in one export.
const BATCH: usize = 512;
/// What the services are together.
const NAMESPACE: &str = "retryscope";

/// This process among all there ever were: a process number is the same in every container.
static INSTANCE: LazyLock<String> = LazyLock::new(|| format!("{:032x}", rand::random::<u128>()));

static PROPAGATOR: LazyLock<TraceContextPropagator> = LazyLock::new(TraceContextPropagator::new);

/// Where the spans of this process go.
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
    outlets: Outlets,
    service: String,
}

/// Why spans cannot be exported.
#[derive(Debug, Error)]
#[error("cannot export spans to {endpoint}")]
pub struct TelemetryError {
    endpoint: String,
    source: opentelemetry_otlp::ExporterBuildError,
}

impl Telemetry {
    /// Builds the provider. Must run inside the tokio runtime that will carry the exporter's connection.
    pub fn start(config: &Config) -> Result<Self, TelemetryError> {
        let provider = SdkTracerProvider::builder();
        let (provider, own) = match &config.otlp {
            Export::None => (strict(provider), None),
            Export::To(endpoint) => {
                let own = processor(endpoint, config.span_queue, &ours(&config.service, &config.run))?;
                (strict(provider), Some(own))
            }
            // Sampler and limits are the user's too, here and only here.
            Export::Environment => (provider, Some(as_the_user_says(&config.service)?)),
        };
        let outlets = Outlets::new(own);
        let provider = provider.with_span_processor(outlets.clone()).build();
        // One handle is never dropped: with the last one the SDK shuts down inline, and on a runtime of one thread that waits
        // five seconds for a connection that waits for it. Who wants the spans calls `shutdown`.
        std::mem::forget(provider.clone());
        Ok(Self {
            provider,
            outlets,
            service: config.service.clone(),
        })
    }

    /// Makes the spans of this thread go here until the guard is dropped.
    pub fn enter(&self) -> DefaultGuard {
        tracing::subscriber::set_default(self.subscriber())
    }

    fn subscriber(&self) -> impl Subscriber + Send + Sync + 'static {
        let scope = InstrumentationScope::builder(TARGET)
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(SCHEMA_URL)
            .build();
        // Lean: no location, thread or activity attributes; they cost as much as the span itself.
        let bridge = tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer_with_scope(scope))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
            .with_filter(Targets::new().with_target(TARGET, tracing::Level::INFO));
        Registry::default().with(bridge)
    }

    /// Sends copies of the spans of these requests to `endpoint`, marked with `run`, until what is returned is dropped.
    pub fn follow(&self, range: Range, endpoint: &str, run: &str, queue: usize) -> Result<Copies, TelemetryError> {
        let processor = processor(endpoint, queue, &ours(&self.service, run))?;
        Ok(self.outlets.follow(range, run, processor))
    }

    /// Exports every span that has ended: the copies that carry this nonce, or everything when it is empty. Blocking calls of
    /// the SDK run on a thread of their own: inline on a `current_thread` runtime they would wait for a connection that waits
    /// for them.
    ///
    /// # Errors
    /// What the exporter said, as text.
    pub async fn flush(&self, run: &str) -> Result<(), String> {
        let (outlets, run) = (self.outlets.clone(), run.to_owned());
        blocking(move || outlets.flush(&run)).await
    }

    /// Exports what is left and stops.
    ///
    /// # Errors
    /// What the exporter said, as text.
    pub async fn shutdown(&self) -> Result<(), String> {
        let provider = self.provider.clone();
        blocking(move || provider.shutdown_with_timeout(LAST_EXPORT)).await
    }
}

async fn blocking(work: impl FnOnce() -> OTelSdkResult + Send + 'static) -> Result<(), String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Every span, whatever OTEL_* variables say: they could silently drop evidence.
fn strict(provider: TracerProviderBuilder) -> TracerProviderBuilder {
    provider
        .with_sampler(Sampler::AlwaysOn)
        .with_span_limits(SpanLimits::default())
}

/// A processor to a collector of ours.
fn processor(endpoint: &str, queue: usize, resource: &Resource) -> Result<BatchSpanProcessor, TelemetryError> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(EXPORT_TIMEOUT)
        // The exporter would be one more retry layer, and its copies would look like damage. A loss is seen: made is
        // compared with collected.
        .with_retry_policy(RetryPolicy::disabled())
        // The library adds what OTEL_EXPORTER_OTLP_HEADERS says to every exporter: a user's secret is not for this collector.
        .with_interceptor(|mut request: tonic::Request<()>| {
            request.metadata_mut().clear();
            Ok(request)
        })
        .build()
        .map_err(|source| TelemetryError {
            endpoint: endpoint.to_owned(),
            source,
        })?;
    let batch = BatchConfigBuilder::default()
        .with_max_queue_size(queue)
        .with_max_export_batch_size(BATCH.min(queue))
        .with_scheduled_delay(EXPORT_DELAY)
        .build();
    let mut processor = BatchSpanProcessor::builder(exporter).with_batch_config(batch).build();
    processor.set_resource(resource);
    Ok(processor)
}

/// A processor as the OTEL_* variables say: endpoint, headers, compression, batches, names.
fn as_the_user_says(service: &str) -> Result<BatchSpanProcessor, TelemetryError> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .build()
        .map_err(|source| TelemetryError {
            endpoint: "the collector that the OTEL_* variables name".to_owned(),
            source,
        })?;
    let mut processor = BatchSpanProcessor::builder(exporter).build();
    let said = Resource::builder().build();
    let is_said = |key: &Key| key.as_str() != "service.name" || !names_nobody(&said);
    let said = said
        .iter()
        .filter(|(key, _)| is_said(key))
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let resource = named(service).with_attributes(said.collect::<Vec<_>>()).build();
    processor.set_resource(&resource);
    Ok(processor)
}

/// Whether the SDK made the service's name up.
fn names_nobody(resource: &Resource) -> bool {
    resource
        .get(&Key::from_static_str("service.name"))
        .is_none_or(|name| name.as_str().starts_with("unknown_service"))
}

/// The resource of spans that we count ourselves: every name is set here, whatever OTEL_* variables say.
fn ours(service: &str, run: &str) -> Resource {
    named(service)
        .with_attribute(KeyValue::new(RUN, run.to_owned()))
        .build()
}

fn named(service: &str) -> opentelemetry_sdk::resource::ResourceBuilder {
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_service_name(service.to_owned())
        .with_attributes([
            KeyValue::new(SERVICE_NAMESPACE, NAMESPACE),
            KeyValue::new(SERVICE_INSTANCE, INSTANCE.clone()),
            KeyValue::new(SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
        ])
}

/// The id of the trace that a span belongs to; 0 for none.
pub fn trace_id(span: &Span) -> u128 {
    let id = span.context().span().span_context().trace_id();
    u128::from_be_bytes(id.to_bytes())
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
