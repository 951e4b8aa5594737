//! Detached work: what lies below runs in a task of its own, so that it goes on when its caller has left or its deadline has
//! passed. Without this layer the work ends with its caller: whoever drops a future drops all that it awaits.

use super::{Around, Below, ask};
use crate::{
    Request, Response,
    body::{self, Ending},
    call::Context,
    code::Code,
    counts::Work,
    outcome::{self, CallerLeft, Head, WorkDone},
};
use bytes::Bytes;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use std::{
    pin::Pin,
    task::{self, Poll},
};
use tokio::sync::{oneshot, watch};
use tonic::{Status, body::Body};

/// Detaches arrivals whose settings say so.
#[derive(Debug, Clone, Copy)]
pub struct Detach;

impl Around for Detach {
    async fn around(&self, mut request: Request, mut below: impl Below + 'static) -> Response {
        // Taken out in any case: what is in flight must not hang on how long a handler keeps its request.
        let work = request.extensions_mut().remove::<Work>();
        let context = request.extensions().get::<Context>();
        if !context.is_some_and(|context| context.generation.config.detached) {
            return ask(&mut below, request).await;
        }
        let (_stays, left) = watch::channel(());
        request.extensions_mut().insert(CallerLeft(left));
        let (answer, answered) = oneshot::channel();
        let work = async move {
            let response = ask(&mut below, request).await;
            // An answer that finds nobody is read to its end all the same; see `Kept`.
            let _ = answer.send(keep(response, work));
        };
        tokio::spawn(work);
        match answered.await {
            Ok(response) => response,
            Err(_) => Status::internal("the work ended without an answer").into_http(),
        }
    }
}

/// Notes the work as done when its answer is an OK, whoever reads it.
fn keep(response: Response, work: Option<Work>) -> Response {
    let is_done = response.extensions().get::<WorkDone>().is_some();
    match (outcome::head(&response), work) {
        (_, None) => response,
        (Head::TrailersOnly(code), Some(work)) => {
            if is_done || code == Code::Ok {
                work.done();
            }
            response
        }
        (Head::Committed, Some(work)) => response.map(|inner| {
            let watched = body::watch(inner, None, move |ending| {
                if is_done || ending == Ending::Code(Code::Ok) {
                    work.done();
                }
            });
            Body::new(Kept(watched))
        }),
    }
}

/// An answer that is read to its end also when nobody wants it: only its trailers say whether the work was done.
struct Kept(Body);

impl http_body::Body for Kept {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let rest = std::mem::take(&mut self.0);
        // A process that is leaving has no runtime any more.
        if let (false, Ok(runtime)) = (rest.is_end_stream(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(rest.collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Config,
        counts::{Counts, Totals},
        layers::{Wrap, deadline::DeadlineIn, ledger::Ledger},
        settings::Live,
    };
    use std::{convert::Infallible, sync::Arc, time::Duration};
    use tokio::time::{advance, sleep};
    use tower::{Layer as _, ServiceExt as _, service_fn};

    /// An arrival whose work takes 100 ms and whose caller goes after `stays`, under a deadline.
    async fn totals(detached: bool, deadline: &'static str, stays: Duration, answer: fn() -> Response) -> Totals {
        let counts = Counts::new(10);
        let live = Live::new(Config {
            detached,
            ..Config::named("pricing")
        });
        let work = service_fn(move |_: Request| async move {
            sleep(Duration::from_millis(100)).await;
            Ok::<_, Infallible>(answer())
        });
        let ledger = Ledger {
            counts: Arc::clone(&counts),
            live,
        };
        let stack = Wrap(ledger).layer(Wrap(DeadlineIn).layer(Wrap(Detach).layer(work)));
        let mut request = Request::default();
        let timeout = http::HeaderValue::from_static(deadline);
        request.headers_mut().insert(crate::call::TIMEOUT, timeout);
        if let Ok(response) = tokio::time::timeout(stays, stack.oneshot(request)).await {
            let _ = response.unwrap().into_body().collect().await;
        }
        let going_on = counts.totals();
        if detached && stays < Duration::from_millis(100) {
            assert_eq!((going_on.in_flight, going_on.work_done), (1, 0));
        }
        advance(Duration::from_secs(1)).await;
        while counts.totals().in_flight > 0 {
            tokio::task::yield_now().await;
        }
        counts.totals()
    }

    fn ends_with(code: &'static str) -> Response {
        let trailers = http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.parse().unwrap())]);
        let frames = [
            Ok::<_, Status>(Frame::data(Bytes::from_static(b"x"))),
            Ok(Frame::trailers(trailers)),
        ];
        Response::new(Body::new(http_body_util::StreamBody::new(tokio_stream::iter(frames))))
    }

    fn read(totals: &Totals) -> (Vec<&'static str>, u64) {
        (
            totals.arrivals.keys().map(|key| key.outcome.name()).collect(),
            totals.work_done,
        )
    }

    const LONG: Duration = Duration::from_secs(9);
    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test(start_paused = true)]
    async fn detached_work_goes_on_when_its_caller_has_left() {
        let ok = || ends_with("0");
        assert_eq!(read(&totals(true, "5S", SHORT, ok).await), (vec!["dropped"], 1));
        assert_eq!(read(&totals(false, "5S", SHORT, ok).await), (vec!["dropped"], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn detached_work_goes_on_when_its_deadline_has_passed() {
        let ok = || ends_with("0");
        assert_eq!(read(&totals(true, "20m", LONG, ok).await), (vec!["expired"], 1));
        assert_eq!(read(&totals(false, "20m", LONG, ok).await), (vec!["expired"], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn detached_work_whose_caller_stays_counts_once() {
        let ok = || ends_with("0");
        assert_eq!(read(&totals(true, "5S", LONG, ok).await), (vec!["OK"], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn detached_work_that_fails_is_not_done() {
        for (fails, name) in [
            ((|| ends_with("14")) as fn() -> Response, "UNAVAILABLE"),
            (|| Status::not_found("").into_http(), "NOT_FOUND"),
        ] {
            assert_eq!(read(&totals(true, "5S", SHORT, fails).await), (vec!["dropped"], 0));
            assert_eq!(read(&totals(true, "5S", LONG, fails).await), (vec![name], 0));
        }
    }

    #[tokio::test]
    async fn an_answer_that_was_on_its_way_when_the_caller_left_is_work_done() {
        let counts = Counts::new(10);
        let context = Context::nobodys();
        let arrived = counts.arrive("m", &context);
        let answer = keep(ends_with("0"), Some(arrived.work()));
        drop((answer, arrived));
        while counts.totals().in_flight > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(counts.totals().work_done, 1);
    }
}
