//! One span, read: its ids or why it has none, what is kept of it, and the hash that tells copies from conflicts.

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind},
};
use std::hash::{DefaultHasher, Hash, Hasher};

/// One distinct span.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) span: u64,
    /// 0 when it has none.
    pub(super) parent: u64,
    pub(super) content: u64,
    pub(super) trace: u32,
    pub(super) service: u16,
    pub(super) kind: Kind,
    /// It ends before it starts.
    pub(super) clock_went_back: bool,
    /// Its parent id has a length that no span id has.
    pub(super) parent_malformed: bool,
}

const _: () = assert!(size_of::<Record>() <= 40, "a run holds millions of these");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Server,
    Client,
    Internal,
    Other,
}

/// Why a span is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum Refusal {
    #[error("trace id is not 16 bytes long")]
    TraceIdLength,
    #[error("trace id is all zero")]
    TraceIdZero,
    #[error("span id is not 8 bytes long")]
    SpanIdLength,
    #[error("span id is all zero")]
    SpanIdZero,
}

/// Whether a span has ids that can be told from others.
pub fn has_valid_ids(span: &Span) -> bool {
    ids_of(span).is_ok()
}

/// Trace id and span id. Refusing them is the rule of the OTLP data model: all zero is invalid, and so is another
/// length.
pub(super) fn ids_of(span: &Span) -> Result<(u128, u64), Refusal> {
    let trace = u128::from_be_bytes(
        span.trace_id
            .as_slice()
            .try_into()
            .map_err(|_| Refusal::TraceIdLength)?,
    );
    if trace == 0 {
        return Err(Refusal::TraceIdZero);
    }
    let id = u64::from_be_bytes(span.span_id.as_slice().try_into().map_err(|_| Refusal::SpanIdLength)?);
    if id == 0 {
        return Err(Refusal::SpanIdZero);
    }
    Ok((trace, id))
}

/// The span without its trace, which the intake fills in.
pub(super) fn record_of(span: &Span, id: u64, service: u16) -> Record {
    let parent: Option<[u8; 8]> = span.parent_span_id.as_slice().try_into().ok();
    Record {
        span: id,
        parent: parent.map_or(0, u64::from_be_bytes),
        content: content_of(span),
        trace: 0,
        service,
        kind: match span.kind() {
            SpanKind::Server => Kind::Server,
            SpanKind::Client => Kind::Client,
            SpanKind::Internal => Kind::Internal,
            SpanKind::Unspecified | SpanKind::Producer | SpanKind::Consumer => Kind::Other,
        },
        clock_went_back: span.end_time_unix_nano < span.start_time_unix_nano,
        parent_malformed: parent.is_none() && !span.parent_span_id.is_empty(),
    }
}

/// A hash over what makes two copies of a span the same. Attributes are a map by OTLP's rules, so their order is left
/// out.
fn content_of(span: &Span) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&span.name, span.kind, &span.parent_span_id).hash(&mut hasher);
    (span.start_time_unix_nano, span.end_time_unix_nano).hash(&mut hasher);
    span.status
        .as_ref()
        .map(|status| (status.code, &status.message))
        .hash(&mut hasher);
    let attributes = span.attributes.iter().map(|attribute| {
        let mut hasher = DefaultHasher::new();
        hash_attribute(attribute, &mut hasher);
        hasher.finish()
    });
    attributes.fold(0, u64::wrapping_add).hash(&mut hasher);
    hasher.finish()
}

fn hash_attribute(attribute: &KeyValue, hasher: &mut impl Hasher) {
    attribute.key.hash(hasher);
    hash_value(attribute.value.as_ref(), hasher);
}

/// Recursion is bounded by the decoder, which refuses values nested deeper than 100.
fn hash_value(value: Option<&AnyValue>, hasher: &mut impl Hasher) {
    let value = value.and_then(|value| value.value.as_ref());
    value.map(std::mem::discriminant).hash(hasher);
    match value {
        None => {}
        Some(Value::StringValue(text)) => text.hash(hasher),
        Some(Value::BoolValue(flag)) => flag.hash(hasher),
        Some(Value::IntValue(number)) => number.hash(hasher),
        Some(Value::DoubleValue(number)) => number.to_bits().hash(hasher),
        Some(Value::BytesValue(bytes)) => bytes.hash(hasher),
        Some(Value::StringValueStrindex(place)) => place.hash(hasher),
        Some(Value::ArrayValue(array)) => {
            array.values.len().hash(hasher);
            array.values.iter().for_each(|value| hash_value(Some(value), hasher));
        }
        Some(Value::KvlistValue(list)) => {
            list.values.len().hash(hasher);
            list.values
                .iter()
                .for_each(|attribute| hash_attribute(attribute, hasher));
        }
    }
}

pub(crate) fn text_of<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let value = attributes
        .iter()
        .find(|attribute| attribute.key == key)?
        .value
        .as_ref()?;
    match value.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}
