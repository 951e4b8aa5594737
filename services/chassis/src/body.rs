//! Two bodies: one that can be sent again, one that says how it ended.

use crate::code::Code;
use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use std::{
    future::Future as _,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};
use tonic::{Status, body::Body};

/// Bytes of a request body that may be sent again; beyond that the call is committed.
pub const REPLAY_LIMIT: usize = 64 * 1024;

/// A request body that is sent while it is recorded.
#[derive(Debug, Clone)]
pub struct Recording {
    shared: Arc<Mutex<Recorded>>,
}

#[derive(Debug)]
struct Recorded {
    source: Body,
    chunks: Vec<Bytes>,
    bytes: usize,
    ended: bool,
    overflowed: bool,
}

impl Recording {
    /// Starts with nothing sent.
    pub fn new(source: Body) -> Self {
        let recorded = Recorded {
            source,
            chunks: Vec::new(),
            bytes: 0,
            ended: false,
            overflowed: false,
        };
        Self {
            shared: Arc::new(Mutex::new(recorded)),
        }
    }

    /// The whole body for one attempt: what was recorded, then what the source still gives.
    pub fn replay(&self) -> Body {
        Body::new(Replay {
            recording: self.clone(),
            next: 0,
        })
    }

    /// Whether another attempt could send the whole body.
    pub fn is_replayable(&self) -> bool {
        !self.lock().overflowed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Recorded> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a request to its end, up to [`REPLAY_LIMIT`] bytes. An answer that overtakes the request makes the library reset the
/// stream for every piece that still comes, and a connection with many such resets is ended by it.
pub async fn drain(mut body: Body) {
    let mut left = REPLAY_LIMIT;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length) {
            Some(less) => left = less,
            None => return,
        }
    }
}

struct Replay {
    recording: Recording,
    next: usize,
}

impl http_body::Body for Replay {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let recording = self.recording.clone();
        let mut recorded = recording.lock();
        if let Some(chunk) = recorded.chunks.get(self.next) {
            self.next += 1;
            return Poll::Ready(Some(Ok(Frame::data(chunk.clone()))));
        }
        if recorded.ended {
            return Poll::Ready(None);
        }
        let Some(frame) = ready!(Pin::new(&mut recorded.source).poll_frame(context)?) else {
            recorded.ended = true;
            return Poll::Ready(None);
        };
        if let Some(chunk) = frame.data_ref() {
            recorded.bytes += chunk.len();
            if recorded.bytes > REPLAY_LIMIT {
                recorded.overflowed = true;
                recorded.chunks.clear();
                self.next = 0;
            } else {
                let chunk = chunk.clone();
                recorded.chunks.push(chunk);
                self.next += 1;
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With this code in its trailers (UNKNOWN where the trailers name none, as gRPC says).
    Code(Code),
    /// The stream broke before its trailers.
    Broken,
    /// Whoever read it left.
    Dropped,
}

/// An answer's body that calls back exactly once when it has ended.
struct Watched<F: FnOnce(Ending)> {
    inner: Body,
    until: Option<Pin<Box<tokio::time::Sleep>>>,
    on_end: Option<F>,
}

// The callback is never pinned: it is taken out by value.
impl<F: FnOnce(Ending)> Unpin for Watched<F> {}

impl<F: FnOnce(Ending)> Watched<F> {
    fn end(&mut self, ending: Ending) {
        if let Some(on_end) = self.on_end.take() {
            on_end(ending);
        }
    }
}

impl<F: FnOnce(Ending)> Drop for Watched<F> {
    fn drop(&mut self) {
        self.end(Ending::Dropped);
    }
}

/// Watches the body of a committed answer. After `until` it breaks off with `DEADLINE_EXCEEDED`.
pub fn watch(inner: Body, until: Option<tokio::time::Instant>, on_end: impl FnOnce(Ending) + Send + 'static) -> Body {
    let until = until.map(|until| Box::pin(tokio::time::sleep_until(until)));
    Body::new(Watched {
        inner,
        until,
        on_end: Some(on_end),
    })
}

impl<F: FnOnce(Ending)> http_body::Body for Watched<F> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(until) = &mut self.until
            && until.as_mut().poll(context).is_ready()
        {
            self.end(Ending::Code(Code::DeadlineExceeded));
            return Poll::Ready(Some(Err(Status::deadline_exceeded(
                "the deadline passed while the answer came",
            ))));
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        match &frame {
            None => self.end(Ending::Code(Code::Unknown)),
            Some(Err(_)) => self.end(Ending::Broken),
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.end(Ending::Code(
                        crate::outcome::status_in(trailers).unwrap_or(Code::Unknown),
                    ));
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // Never true before the callback has run, or the library would skip the rest and the callback would see a drop.
        self.on_end.is_none() && self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;
    use std::sync::mpsc;

    fn body(frames: Vec<Frame<Bytes>>) -> Body {
        let frames = frames.into_iter().map(Ok::<_, Status>);
        Body::new(StreamBody::new(tokio_stream::iter(frames)))
    }

    fn trailers(code: &str) -> Frame<Bytes> {
        Frame::trailers(http::HeaderMap::from_iter([(
            "grpc-status".parse().unwrap(),
            code.parse().unwrap(),
        )]))
    }

    async fn ending(body: Body, read: bool) -> Ending {
        let (tell, told) = mpsc::channel();
        let watched = watch(body, None, move |ending| tell.send(ending).unwrap());
        if read {
            watched.collect().await.unwrap();
        } else {
            drop(watched);
        }
        told.recv().unwrap()
    }

    #[tokio::test]
    async fn a_recorded_body_is_sent_again_and_again() {
        let recording = Recording::new(body(vec![Frame::data("one".into()), Frame::data("two".into())]));
        for _ in 0..3 {
            assert_eq!(recording.replay().collect().await.unwrap().to_bytes(), "onetwo");
            assert!(recording.is_replayable());
        }
    }

    #[tokio::test]
    async fn an_attempt_that_was_cut_short_leaves_the_rest_for_the_next() {
        let recording = Recording::new(body(vec![Frame::data("one".into()), Frame::data("two".into())]));
        let mut first = recording.replay();
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        drop(first);
        assert_eq!(recording.replay().collect().await.unwrap().to_bytes(), "onetwo");
    }

    #[tokio::test]
    async fn beyond_64_kib_nothing_is_sent_again_and_nothing_is_lost() {
        let half = Bytes::from(vec![7; REPLAY_LIMIT / 2 + 1]);
        let recording = Recording::new(body(vec![Frame::data(half.clone()), Frame::data(half)]));
        assert_eq!(
            recording.replay().collect().await.unwrap().to_bytes().len(),
            REPLAY_LIMIT + 2
        );
        assert!(!recording.is_replayable());
    }

    #[tokio::test]
    async fn an_answer_says_once_how_it_ended() {
        let answer = || body(vec![Frame::data("x".into()), trailers("14")]);
        assert_eq!(ending(answer(), true).await, Ending::Code(Code::Unavailable));
        assert_eq!(ending(answer(), false).await, Ending::Dropped);
        assert_eq!(
            ending(body(vec![Frame::data("x".into())]), true).await,
            Ending::Code(Code::Unknown)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_breaks_off_at_the_deadline() {
        let never = Body::new(StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Status>>()));
        let until = tokio::time::Instant::now() + std::time::Duration::from_millis(20);
        let error = watch(never, Some(until), |_| ()).collect().await.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
    }
}
