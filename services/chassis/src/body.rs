//! The bodies: one that can be sent again, one of which a first message is held back, one that notes that it was read, one that
//! says how it ended.

use crate::code::Code;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use std::{
    collections::VecDeque,
    future::Future as _,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker, ready},
};
use tokio::sync::Notify;
use tonic::{Status, body::Body};

/// Bytes of a request body that may be sent again; beyond that the call is committed.
pub const REPLAY_LIMIT: usize = 64 * 1024;

/// A request body that is sent while it is recorded.
#[derive(Debug, Clone)]
pub struct Recording(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    recorded: Mutex<Recorded>,
    /// Told when the source has ended.
    complete: Notify,
}

#[derive(Debug)]
struct Recorded {
    source: Body,
    chunks: Vec<Bytes>,
    first: FirstMessage,
    ended: bool,
    /// More came than is kept: it is too long, or a stream. It flows through in constant memory.
    flows: bool,
    /// Whoever waits for the rest of the source.
    reader: Option<Waker>,
}

impl Recorded {
    /// Reads on. A frame that was kept stands in `chunks`.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(frame) = ready!(poll_filled(&mut self.source, context)?) else {
            self.ended = true;
            return Poll::Ready(None);
        };
        self.ended = self.source.is_end_stream();
        match frame.data_ref() {
            Some(chunk) => {
                self.first.read(chunk);
                self.flows |= self.first.bytes > REPLAY_LIMIT || self.first.is_passed();
                if self.flows {
                    self.chunks = Vec::new();
                } else {
                    self.chunks.push(chunk.clone());
                }
            }
            // Trailers are not kept.
            None => self.flows = true,
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

/// The next frame that says anything. Many end a message with an empty piece, and the library ends a connection on which a
/// hundred of those were passed on.
pub fn poll_filled<B>(body: &mut B, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    loop {
        let frame = ready!(Pin::new(&mut *body).poll_frame(context)?);
        let is_empty = frame.as_ref().and_then(Frame::data_ref).is_some_and(Bytes::is_empty);
        if !is_empty {
            return Poll::Ready(frame.map(Ok));
        }
    }
}

impl Recording {
    /// Starts with nothing sent.
    pub fn new(source: Body) -> Self {
        let ended = source.is_end_stream();
        let recorded = Recorded {
            source,
            chunks: Vec::new(),
            first: FirstMessage::default(),
            ended,
            flows: false,
            reader: None,
        };
        Self(Arc::new(Shared {
            recorded: Mutex::new(recorded),
            complete: Notify::new(),
        }))
    }

    /// The whole body for one attempt: what was recorded, then what the source still gives.
    pub fn replay(&self) -> Body {
        Body::new(Replay {
            recording: self.clone(),
            next: 0,
        })
    }

    /// Whether another attempt could send the whole body, asked when no attempt reads it any more. A stream is never sent
    /// again: a body of two messages, or one of which something was sent while its end is not there yet.
    pub fn is_replayable(&self) -> bool {
        let mut recorded = self.lock();
        let mut is_open = false;
        while recorded.first.bytes > 0 && !recorded.ended && !recorded.flows && !is_open {
            let polled = recorded.poll(&mut Context::from_waker(Waker::noop()));
            is_open = matches!(polled, Poll::Ready(Some(Err(_))) | Poll::Pending);
        }
        // The source wakes whoever asked last, and this was no reader.
        if let Some(reader) = recorded.reader.take() {
            reader.wake();
        }
        if is_open {
            return false;
        }
        if recorded.ended {
            self.0.complete.notify_waiters();
        }
        !recorded.flows
    }

    /// Whether an attempt has read the whole body.
    pub fn is_complete(&self) -> bool {
        self.lock().ended
    }

    /// Waits until an attempt has read the whole body. Two attempts must not wait for the rest of one source: only the last to
    /// ask would be woken.
    pub async fn completed(&self) {
        loop {
            // Made before the question, so that an end in between is heard.
            let told = self.0.complete.notified();
            if self.is_complete() {
                return;
            }
            told.await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Recorded> {
        self.0.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a body has come, and where its first message ends.
#[derive(Debug, Default)]
struct FirstMessage {
    bytes: usize,
    prefix: [u8; PREFIX],
}

impl FirstMessage {
    fn read(&mut self, chunk: &[u8]) {
        let missing = self.prefix.iter_mut().skip(self.bytes);
        missing.zip(chunk).for_each(|(byte, read)| *byte = *read);
        self.bytes += chunk.len();
    }

    /// Where it ends; `None` while its prefix is not whole.
    fn end(&self) -> Option<usize> {
        let [_flag, length @ ..] = self.prefix;
        let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
        length.checked_add(PREFIX).filter(|_| self.bytes >= PREFIX)
    }

    /// Whether more has come than it.
    fn is_passed(&self) -> bool {
        self.end().is_some_and(|end| self.bytes > end)
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
        let Poll::Ready(frame) = recorded.poll(context)? else {
            recorded.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        // Nothing stays once it flows.
        self.next = recorded.chunks.len();
        if recorded.ended {
            recording.0.complete.notify_waiters();
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        let recorded = self.recording.lock();
        recorded.ended && self.next >= recorded.chunks.len()
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

/// Holds back one message of an answer, up to [`REPLAY_LIMIT`] bytes, to see what comes behind it. A message that comes before
/// the whole request was sent is part of a conversation and is not held: the other side may wait for an answer to it.
pub async fn hold(mut body: Body, is_request_sent: impl Fn() -> bool) -> Held {
    let mut frames = VecDeque::new();
    let mut first = FirstMessage::default();
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
        first.read(chunk);
        frames.push_back(frame);
        let end = first.end();
        let is_more = first.is_passed() || end.is_some_and(|end| end > PREFIX + REPLAY_LIMIT);
        let is_conversation = end == Some(first.bytes) && !is_request_sent();
        if is_more || is_conversation {
            return Held::Begun(released(frames, body));
        }
    }
}

/// A body, and whether it has been read to its end.
pub fn noticed(inner: Body) -> (Body, impl Fn() -> bool + Send + Sync) {
    let ended = Arc::new(AtomicBool::new(inner.is_end_stream()));
    let noticed = Noticed {
        inner,
        ended: Arc::clone(&ended),
    };
    (Body::new(noticed), move || ended.load(Ordering::Relaxed))
}

/// A body that notes its end.
struct Noticed {
    inner: Body,
    ended: Arc<AtomicBool>,
}

impl http_body::Body for Noticed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if frame.is_none() || self.inner.is_end_stream() {
            self.ended.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
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
        match hold(body(frames), || true).await {
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
        let never = tokio_stream::pending::<Result<Frame<Bytes>, Status>>();
        let begins = tokio_stream::iter([Ok(Frame::data(long.slice(..PREFIX)))]);
        let endless = Body::new(StreamBody::new(tokio_stream::StreamExt::chain(begins, never)));
        assert!(matches!(hold(endless, || true).await, Held::Begun(_)));
        let (_, flowed) = held(vec![Frame::data(long.clone()), trailers("14")]).await;
        assert_eq!(flowed, long);
    }

    #[tokio::test]
    async fn an_answer_that_breaks_while_it_is_held_says_so() {
        let frames = [Ok(Frame::data(message(3))), Err(Status::unknown("lost"))];
        let broken = Body::new(StreamBody::new(tokio_stream::iter(frames)));
        assert!(matches!(hold(broken, || true).await, Held::Broken(_)));
    }

    #[tokio::test]
    async fn a_message_within_a_conversation_is_not_held() {
        let first = tokio_stream::iter([Ok::<_, Status>(Frame::data(message(3)))]);
        let waits = tokio_stream::StreamExt::chain(first, tokio_stream::pending());
        let answer = Body::new(StreamBody::new(waits));
        assert!(matches!(hold(answer, || false).await, Held::Begun(_)));
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

    /// One message in two pieces.
    fn pieces() -> [Bytes; 2] {
        let whole = message(6);
        [whole.slice(..8), whole.slice(8..)]
    }

    #[tokio::test]
    async fn a_recorded_body_is_sent_again_and_again() {
        let recording = Recording::new(body(pieces().map(Frame::data).into()));
        for _ in 0..3 {
            assert_eq!(recording.replay().collect().await.unwrap().to_bytes(), message(6));
            assert!(recording.is_replayable());
        }
    }

    #[tokio::test]
    async fn an_attempt_that_was_cut_short_leaves_the_rest_for_the_next() {
        let recording = Recording::new(body(pieces().map(Frame::data).into()));
        let mut first = recording.replay();
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), pieces()[0]);
        drop(first);
        // The rest is there already: it is looked at before the next attempt is made.
        assert!(recording.is_replayable() && recording.is_complete());
        assert_eq!(recording.replay().collect().await.unwrap().to_bytes(), message(6));
    }

    #[tokio::test]
    async fn an_empty_piece_is_not_passed_on_and_the_last_one_is_known_as_such() {
        let frames = [message(6), Bytes::new()].map(Frame::data);
        let recording = Recording::new(body(frames.into()));
        for _ in 0..2 {
            let mut attempt = recording.replay();
            assert_eq!(attempt.frame().await.unwrap().unwrap().into_data().unwrap(), message(6));
            assert!(attempt.frame().await.is_none() && attempt.is_end_stream());
        }
        // Whose end came with its last piece needs no other.
        let whole = Body::new(http_body_util::Full::from(message(6)));
        let mut attempt = Recording::new(whole).replay();
        attempt.frame().await.unwrap().unwrap();
        assert!(attempt.is_end_stream());
    }

    /// A body that stays open behind these pieces.
    fn open(pieces: Vec<Bytes>) -> Body {
        let pieces = tokio_stream::iter(pieces.into_iter().map(|piece| Ok::<_, Status>(Frame::data(piece))));
        let open = tokio_stream::StreamExt::chain(pieces, tokio_stream::pending());
        Body::new(StreamBody::new(open))
    }

    #[tokio::test]
    async fn a_body_whose_end_is_not_there_is_sent_once_unless_nothing_of_it_was_sent() {
        let recording = Recording::new(open(vec![message(6)]));
        assert!(recording.is_replayable());
        let mut first = recording.replay();
        first.frame().await.unwrap().unwrap();
        assert!(!recording.is_replayable());
    }

    #[tokio::test]
    async fn whoever_reads_on_is_woken_by_the_rest_also_after_it_was_asked_whether_it_is_there() {
        let (pieces, come) = tokio::sync::mpsc::channel(1);
        let come = tokio_stream::wrappers::ReceiverStream::new(come);
        let source = tokio_stream::StreamExt::map(come, |piece: Bytes| Ok::<_, Status>(Frame::data(piece)));
        let recording = Recording::new(Body::new(StreamBody::new(source)));
        let mut first = recording.replay();
        pieces.send(message(6)).await.unwrap();
        first.frame().await.unwrap().unwrap();
        let reading = tokio::spawn(async move { first.frame().await.unwrap().unwrap().into_data().unwrap() });
        tokio::task::yield_now().await;
        assert!(!recording.is_replayable());
        pieces.send("rest".into()).await.unwrap();
        assert_eq!(reading.await.unwrap(), "rest");
    }

    #[tokio::test]
    async fn a_second_message_makes_a_stream_which_is_sent_once_and_kept_nowhere() {
        let two = joined(&[message(3), message(4)]);
        // In frames of their own, in one frame, and split where no message ends.
        for at in [message(3).len(), two.len(), 4, message(3).len() + 1] {
            let pieces = [two.slice(..at), two.slice(at..)];
            let recording = Recording::new(body(pieces.map(Frame::data).into()));
            assert_eq!(recording.replay().collect().await.unwrap().to_bytes(), two);
            assert!(!recording.is_replayable());
            assert_eq!(recording.lock().chunks.len(), 0);
        }
        // Also where an answer came before the second was sent.
        let recording = Recording::new(open(vec![message(3), message(4)]));
        recording.replay().frame().await.unwrap().unwrap();
        assert!(!recording.is_replayable());
    }

    #[tokio::test]
    async fn a_body_says_when_it_was_read_to_its_end() {
        assert!(noticed(Body::empty()).1());
        let (mut noticed, is_read) = noticed(body(pieces().map(Frame::data).into()));
        noticed.frame().await.unwrap().unwrap();
        assert!(!is_read());
        noticed.collect().await.unwrap();
        assert!(is_read());
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
