//! One attempt: what goes out, and what its answer says.

use crate::{
    Request, Response,
    allowance::{Allowance, Place},
    body::{self, Held, Recording},
    call::{self, Context},
    code::Code,
    config::{Layer, TransportCodes},
    counts::Refusal,
    outcome::{self, Head, TransportFailure},
    policy::Policy,
};
use http::{HeaderMap, HeaderValue};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};
use tonic::Status;

/// What a failure says about the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pushback {
    /// Nothing.
    #[default]
    Silent,
    /// After exactly this wait.
    After(Duration),
    /// Never: a negative number, or something that cannot be read.
    Never,
}

impl Pushback {
    /// Reads [`call::PUSHBACK`]: a signed 32-bit number in ASCII without leading zeros. Given twice it cannot be read, as in
    /// grpc-go.
    pub fn read(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(call::PUSHBACK).iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Silent,
            (Some(value), None) => Self::of(value).unwrap_or(Self::Never),
            (Some(_), Some(_)) => Self::Never,
        }
    }

    fn of(value: &HeaderValue) -> Option<Self> {
        let text = value.to_str().ok()?;
        let ms: i32 = text.parse().ok()?;
        // Whoever writes a plus or leading zeros would not get the same text back.
        let is_plain = ms.to_string() == text;
        let ms = u64::try_from(ms).ok().filter(|_| is_plain)?;
        Some(Self::After(Duration::from_millis(ms)))
    }
}

/// What came back, as far as it was looked at.
#[derive(Debug)]
pub(super) struct Said {
    /// What the caller gets if it goes up.
    pub(super) response: Response,
    /// Its code, or that it has begun. A held answer whose trailers have come counts as one that had nothing else.
    pub(super) head: Head,
    /// What it says about the next attempt.
    pub(super) pushback: Pushback,
}

impl Said {
    /// By the head of the answer alone (gRFC A6).
    pub(super) fn at_once(response: Response) -> Self {
        Self {
            head: outcome::head(&response),
            pushback: Pushback::read(response.headers()),
            response,
        }
    }

    /// By its trailers too, if they come right behind one message or none.
    pub(super) async fn held(response: Response, request: &Recording, codes: TransportCodes) -> Self {
        if outcome::head(&response) != Head::Committed {
            return Self::at_once(response);
        }
        let (parts, inner) = response.into_parts();
        match body::hold(inner, || request.is_complete()).await {
            Held::Ended(trailers, inner) => Self {
                response: Response::from_parts(parts, inner),
                head: Head::TrailersOnly(outcome::status_in(&trailers).unwrap_or(Code::Unknown)),
                pushback: Pushback::read(&trailers),
            },
            Held::Begun(inner) => Self::at_once(Response::from_parts(parts, inner)),
            Held::Broken(error) => {
                let (status, failure) = outcome::of_transport(Box::new(error), codes);
                let mut response: Response = status.into_http();
                failure.map(|failure| response.extensions_mut().insert(failure));
                Self::at_once(response)
            }
        }
    }

    /// How the transport failed it, where it is no answer of the callee's.
    pub(super) fn failure(&self) -> Option<TransportFailure> {
        self.response.extensions().get().copied()
    }

    /// What a limit of time says that has run out.
    pub(super) fn timed_out(what: &str) -> Self {
        Self::at_once(Status::deadline_exceeded(what).into_http())
    }
}

/// An answer, and the place that its attempt takes until it has ended.
#[derive(Debug)]
pub(super) struct Answer {
    /// What came back.
    pub(super) said: Said,
    /// Given up with it.
    pub(super) place: Place,
}

/// How a call ended.
pub(super) enum End {
    /// With an answer that goes to the caller: an OK, or one that has begun.
    Delivered(Answer),
    /// With a failure, for this reason.
    Failed(Refusal, Response),
}

impl End {
    /// The call's deadline has passed, whatever came back.
    pub(super) fn deadline() -> Self {
        Self::Failed(Refusal::Deadline, Response::default())
    }
}

/// What is the same for all attempts of a call.
pub(super) struct Call {
    head: http::request::Parts,
    /// The request, as far as it was sent.
    pub(super) body: Recording,
    /// What it came with.
    pub(super) context: Context,
}

impl Call {
    /// Nothing sent yet.
    pub(super) fn new(request: Request) -> Self {
        let (mut head, body) = request.into_parts();
        let context = head.extensions.remove().unwrap_or_else(Context::nobodys);
        Self {
            head,
            body: Recording::new(body),
            context,
        }
    }

    /// What it goes by.
    pub(super) fn policy(&self) -> &Policy {
        &self.context.generation.config.retry
    }

    /// What it shares with the other calls of its process.
    pub(super) fn allowance(&self) -> &Arc<Allowance> {
        &self.context.generation.allowance
    }

    /// Waits until then, cut by the call's deadline.
    pub(super) async fn wait_until(&self, due: Instant) {
        let until = self.context.deadline.map_or(due, |deadline| deadline.min(due));
        if until > Instant::now() {
            sleep_until(until).await;
        }
    }

    /// Attempt number `made`, with metadata of its own: what a service's arrival carried is never copied, and what passes a
    /// proxy keeps all but its path. A layer that nobody declared leaves that too.
    pub(super) fn request(&self, made: u32) -> Request {
        let mut request = http::Request::new(self.body.replay());
        request.method_mut().clone_from(&self.head.method);
        request.uri_mut().clone_from(&self.head.uri);
        *request.version_mut() = self.head.version;
        request.headers_mut().clone_from(&self.head.headers);
        let layer = self.context.generation.config.layer;
        if made > 1 && layer == Layer::Service {
            request
                .headers_mut()
                .insert(call::PREVIOUS_ATTEMPTS, HeaderValue::from(made - 1));
        }
        let path = self.context.path.as_ref();
        let path = path.map(|path| path.then_of(self.context.call, made));
        if let Some(value) = path
            .as_ref()
            .and_then(|path| HeaderValue::try_from(path.to_string()).ok())
            .filter(|_| layer != Layer::Undeclared)
        {
            request.headers_mut().insert(call::ATTEMPT_PATH, value);
        }
        request.extensions_mut().insert(Context {
            path,
            attempt: made,
            call: 1,
            ..self.context.clone()
        });
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Pushback {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(call::PUSHBACK, value.parse().unwrap());
        }
        Pushback::read(&headers)
    }

    #[test]
    fn a_pushback_is_a_plain_number_of_milliseconds_given_once() {
        assert_eq!(read(&[]), Pushback::Silent);
        assert_eq!(read(&["0"]), Pushback::After(Duration::ZERO));
        assert_eq!(
            read(&["2147483647"]),
            Pushback::After(Duration::from_millis(2_147_483_647))
        );
        for never in ["-1", "-0", "+5", "007", "00", "", "5ms", "1.5", "2147483648", " 5"] {
            assert_eq!(read(&[never]), Pushback::Never, "{never:?}");
        }
        assert_eq!(read(&["5", "5"]), Pushback::Never);
    }
}
