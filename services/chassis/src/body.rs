//! Three bodies: one that can be sent again, one of which a first message is held back, one that says how it ended.

use crate::code::Code;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use std::{
    collections::VecDeque,
    future::Future as _,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};
use tokio::sync::watch;
use tonic::{Status, body::Body};

/// Bytes of a request body that may be sent again; beyond that the call is committed.
pub const REPLAY_LIMIT: usize = 64 * 1024;

/// A request body that is sent while it is recorded.
#[derive(Debug, Clone)]
pub struct Recording {
    shared: Arc<Mutex<Recorded>>,
    /// Told when the source has ended.
    complete: watch::Sender<bool>,
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
        let ended = source.is_end_stream();
        let recorded = Recorded {
            source,
            chunks: Vec::new(),
            bytes: 0,
            ended,
            overflowed: false,
        };
        Self {
            shared: Arc::new(Mutex::new(recorded)),
            complete: watch::Sender::new(ended),
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

    /// Whether an attempt has read the whole body.
    pub fn is_complete(&self) -> bool {
        *self.complete.borrow()
    }

    /// Waits until an attempt has read the whole body. Two attempts must not wait for the rest of one source: only the last to
    /// ask would be woken.
    pub async fn completed(&self) {
        // An error would mean that the sender is gone, and this recording owns it.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
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
            recording.complete.send_replace(true);
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
        if recorded.source.is_end_stream() {
            recorded.ended = true;
            recording.complete.send_replace(true);
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

/// What the beginning of an answer's body says.
#[derive(Debug)]
pub enum Held {
    /// It ended behind one message or none, with these trailers (empty where there were none). The body is whole.
    Ended(HeaderMap, Body),
    /// More came than is held back: from here on it flows.
    Begun(Body),
    /// It broke off before its trailers.
    Broken(Status),
}

/// Bytes before each message: one flag, four of its length (gRPC over HTTP/2).
const PREFIX: usize = 5;

/// Holds back one message of an answer, up to [`REPLAY_LIMIT`] bytes, to see what comes behind it. A message that comes while
/// `request` is still being sent is part of a conversation and is not held: the other side may wait for an answer to it.
pub async fn hold(mut body: Body, request: &Recording) -> Held {
    let mut frames = VecDeque::new();
    let mut prefix = Vec::with_capacity(PREFIX);
    let mut bytes = 0;
    loop {
        let frame = match body.frame().await {
            Some(Ok(frame)) => frame,
            Some(Err(broken)) => return Held::Broken(broken),
            None => return Held::Ended(HeaderMap::new(), released(frames, Body::empty())),
        };
        if let Some(trailers) = frame.trailers_ref() {
            let trailers = trailers.clone();
            frames.push_back(frame);
            return Held::Ended(trailers, released(frames, Body::empty()));
        }
        let chunk = frame.data_ref().map_or(&[][..], Bytes::as_ref);
        if chunk.is_empty() {
            continue;
        }
        let missing = PREFIX - prefix.len();
        prefix.extend(chunk.iter().take(missing));
        bytes += chunk.len();
        frames.push_back(frame);
        let end = message_end(&prefix);
        let is_more = end.is_some_and(|end| bytes > end || end > PREFIX + REPLAY_LIMIT);
        let is_conversation = end == Some(bytes) && !request.is_complete();
        if is_more || is_conversation {
            return Held::Begun(released(frames, body));
        }
    }
}

/// Where the first message ends; `None` while its prefix is not whole.
fn message_end(prefix: &[u8]) -> Option<usize> {
    let [_flag, length @ ..] = prefix else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    usize::try_from(length).ok()?.checked_add(PREFIX)
}

fn released(frames: VecDeque<Frame<Bytes>>, rest: Body) -> Body {
    Body::new(Released { frames, rest })
}

/// What was held back, then the rest.
struct Released {
    frames: VecDeque<Frame<Bytes>>,
    rest: Body,
}

impl http_body::Body for Released {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.is_end_stream()
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

    /// A message as gRPC frames it.
    fn message(length: usize) -> Bytes {
        let mut message = vec![0];
        message.extend(u32::try_from(length).unwrap().to_be_bytes());
        message.resize(PREFIX + length, 7);
        message.into()
    }

    /// Holds an answer of these pieces back; what came of it, and the bytes that flow on.
    async fn held(frames: Vec<Frame<Bytes>>) -> (Held, Bytes) {
        let request = Recording::new(Body::empty());
        match hold(body(frames), &request).await {
            Held::Ended(trailers, body) => {
                let bytes = body.collect().await.unwrap();
                assert_eq!(bytes.trailers().cloned().unwrap_or_default(), trailers);
                (Held::Ended(trailers, Body::empty()), bytes.to_bytes())
            }
            Held::Begun(body) => (Held::Begun(Body::empty()), body.collect().await.unwrap().to_bytes()),
            broken @ Held::Broken(_) => (broken, Bytes::new()),
        }
    }

    fn joined(pieces: &[Bytes]) -> Bytes {
        pieces.concat().into()
    }

    #[tokio::test]
    async fn failing_trailers_behind_one_message_or_none_are_seen_before_anything_flows() {
        for pieces in [vec![], vec![message(3)], vec![message(0)], vec![message(REPLAY_LIMIT)]] {
            let frames = pieces.iter().cloned().map(Frame::data).chain([trailers("14")]);
            let (held, flowed) = held(frames.collect()).await;
            assert!(
                matches!(&held, Held::Ended(trailers, _) if trailers["grpc-status"] == "14"),
                "{held:?}"
            );
            assert_eq!(flowed, joined(&pieces));
        }
    }

    #[tokio::test]
    async fn a_message_in_many_pieces_is_one_message() {
        let whole = message(9);
        let pieces = (0..whole.len()).map(|at| Frame::data(whole.slice(at..=at)));
        let (held, flowed) = held(pieces.chain([trailers("14")]).collect()).await;
        assert!(matches!(held, Held::Ended(..)), "{held:?}");
        assert_eq!(flowed, whole);
    }

    #[tokio::test]
    async fn a_second_message_commits_and_every_byte_flows_on() {
        let two = joined(&[message(3), message(4)]);
        // In frames of their own, in one frame, and split where no message ends.
        for at in [message(3).len(), two.len(), 4, message(3).len() + 1] {
            let pieces = [two.slice(..at), two.slice(at..)];
            let frames = pieces.into_iter().map(Frame::data).chain([trailers("14")]);
            let (held, flowed) = held(frames.collect()).await;
            assert!(matches!(held, Held::Begun(_)), "{at}: {held:?}");
            assert_eq!(flowed, two);
        }
    }

    #[tokio::test]
    async fn a_message_of_more_than_64_kib_commits_at_its_prefix() {
        let long = message(REPLAY_LIMIT + 1);
        let request = Recording::new(Body::empty());
        let never = tokio_stream::pending::<Result<Frame<Bytes>, Status>>();
        let begins = tokio_stream::iter([Ok(Frame::data(long.slice(..PREFIX)))]);
        let endless = Body::new(StreamBody::new(tokio_stream::StreamExt::chain(begins, never)));
        assert!(matches!(hold(endless, &request).await, Held::Begun(_)));
        let (_, flowed) = held(vec![Frame::data(long.clone()), trailers("14")]).await;
        assert_eq!(flowed, long);
    }

    #[tokio::test]
    async fn an_answer_that_breaks_while_it_is_held_says_so() {
        let frames = [Ok(Frame::data(message(3))), Err(Status::unknown("lost"))];
        let broken = Body::new(StreamBody::new(tokio_stream::iter(frames)));
        let request = Recording::new(Body::empty());
        assert!(matches!(hold(broken, &request).await, Held::Broken(_)));
    }

    #[tokio::test]
    async fn a_message_within_a_conversation_is_not_held() {
        let never = || Body::new(StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Status>>()));
        let first = tokio_stream::iter([Ok::<_, Status>(Frame::data(message(3)))]);
        let waits = tokio_stream::StreamExt::chain(first, tokio_stream::pending());
        let answer = Body::new(StreamBody::new(waits));
        assert!(matches!(hold(answer, &Recording::new(never())).await, Held::Begun(_)));
    }

    #[tokio::test]
    async fn a_recording_says_when_it_is_complete() {
        assert!(Recording::new(Body::empty()).is_complete());
        let recording = Recording::new(body(vec![Frame::data("one".into())]));
        let mut attempt = recording.replay();
        attempt.frame().await.unwrap().unwrap();
        assert!(!recording.is_complete());
        let ((), end) = tokio::join!(recording.completed(), attempt.frame());
        assert!(end.is_none() && recording.is_complete());
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
