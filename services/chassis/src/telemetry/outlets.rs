//! Where ended spans go: one outlet of the process's own, and one for each who follows requests. The SDK knows a single
//! processor, so that a span is copied only for those who want it.

use crate::{conventions::REQUEST, counts::Range};
use opentelemetry::{Context, Value};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{BatchSpanProcessor, Span, SpanData, SpanProcessor},
};
use std::{
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

/// All outlets of a process.
#[derive(Debug, Clone, Default)]
pub(super) struct Outlets(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    own: Option<BatchSpanProcessor>,
    followers: RwLock<Vec<Follower>>,
}

/// One who follows requests.
#[derive(Debug, Clone)]
struct Follower {
    range: Range,
    run: String,
    processor: Arc<BatchSpanProcessor>,
}

/// Spans of the followed requests are copied until this is dropped.
#[derive(Debug)]
pub struct Copies {
    outlets: Outlets,
    range: Range,
    run: String,
}

impl Outlets {
    pub(super) fn new(own: Option<BatchSpanProcessor>) -> Self {
        Self(Arc::new(Shared {
            own,
            ..Shared::default()
        }))
    }

    /// Copies the spans of these requests to `processor`.
    pub(super) fn follow(&self, range: Range, run: &str, processor: BatchSpanProcessor) -> Copies {
        let follower = Follower {
            range,
            run: run.to_owned(),
            processor: Arc::new(processor),
        };
        self.write(|followers| followers.push(follower));
        Copies {
            outlets: self.clone(),
            range,
            run: run.to_owned(),
        }
    }

    fn write<T>(&self, change: impl FnOnce(&mut Vec<Follower>) -> T) -> T {
        change(&mut self.0.followers.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn followers(&self) -> Vec<Follower> {
        self.0.followers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Exports what one follower has not got yet; of all outlets without a nonce. Blocks.
    pub(super) fn flush(&self, run: &str) -> OTelSdkResult {
        if run.is_empty() {
            return self.force_flush();
        }
        let followers = self.followers();
        let mut of_run = followers.iter().filter(|follower| follower.run == run);
        of_run.try_for_each(|follower| follower.processor.force_flush())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let gone = self.outlets.write(|followers| {
            let (gone, stay) = followers
                .drain(..)
                .partition(|follower| follower.run == self.run && follower.range == self.range);
            *followers = stay;
            gone
        });
        // Its end waits for a last export, and the thread of the service must not.
        std::thread::spawn(move || {
            let gone: Vec<Follower> = gone;
            for follower in gone {
                let _ = follower.processor.shutdown();
            }
        });
    }
}

/// The request that a span was made for; 0 for none.
fn request_of(span: &SpanData) -> u64 {
    let attribute = span
        .attributes
        .iter()
        .find(|attribute| attribute.key.as_str() == REQUEST);
    match attribute.map(|attribute| &attribute.value) {
        Some(Value::I64(request)) => u64::try_from(*request).unwrap_or(0),
        _ => 0,
    }
}

impl SpanProcessor for Outlets {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        {
            let followers = self.0.followers.read().unwrap_or_else(PoisonError::into_inner);
            if !followers.is_empty() {
                let request = request_of(&span);
                for follower in followers.iter().filter(|follower| follower.range.contains(request)) {
                    follower.processor.on_end(span.clone());
                }
            }
        }
        if let Some(own) = &self.0.own {
            own.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        let followed: Vec<_> = self
            .followers()
            .iter()
            .map(|follower| follower.processor.force_flush())
            .collect();
        let own = self.0.own.as_ref().map_or(Ok(()), SpanProcessor::force_flush);
        followed.into_iter().fold(own, Result::and)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let until = Instant::now() + timeout;
        let left = || until.saturating_duration_since(Instant::now());
        for follower in self.followers() {
            let _ = follower.processor.shutdown_with_timeout(left());
        }
        self.0
            .own
            .as_ref()
            .map_or(Ok(()), |own| own.shutdown_with_timeout(left()))
    }
}
