//! Any result to a status code: what an answer says, what a transport failure means, what a service answers when its callee
//! has failed. Pure.

use crate::{
    Response,
    code::Code,
    config::{Config, OnFailure, TransportCodes},
};
use http::{HeaderMap, StatusCode};
use std::{error::Error, sync::Arc};
use tonic::Status;

/// Marks an answer whose work was done although the answer is a failure.
#[derive(Debug, Clone, Copy)]
pub struct WorkDone;

/// Marks an answer that this process gave because the arrival's deadline passed.
#[derive(Debug, Clone, Copy)]
pub struct Expired;

/// Rides on a request whose work goes on without its caller; ends when the caller has left.
#[derive(Debug, Clone)]
pub struct CallerLeft(pub tokio::sync::watch::Receiver<()>);

/// What became of an attempt below the layers: no answer of the callee, but of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportFailure {
    /// The connection was refused: the attempt was sent and cannot have been received.
    Refused,
    /// The connection was lost, closed or reset, or could not be made for another reason.
    Lost,
    /// The stream was reset; the connection lives.
    StreamReset,
}

/// What the head of an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// A failure (or, trailers-only, an OK) before any message: nothing is committed.
    TrailersOnly(Code),
    /// HTTP 200 without `grpc-status`: the answer has begun and the call is committed (gRFC A6).
    Committed,
}

/// Reads the head of an answer.
pub fn head(response: &Response) -> Head {
    match status_in(response.headers()) {
        Some(code) => Head::TrailersOnly(code),
        None if response.status() == StatusCode::OK => Head::Committed,
        None => Head::TrailersOnly(of_http_status(response.status())),
    }
}

/// The code in a header block or in trailers; `None` without `grpc-status`.
pub fn status_in(headers: &HeaderMap) -> Option<Code> {
    headers
        .get("grpc-status")
        .map(|value| Code::from_bytes(value.as_bytes()))
}

/// The code of an HTTP status that came without `grpc-status` (gRPC's table, client side only).
pub fn of_http_status(status: StatusCode) -> Code {
    match status.as_u16() {
        400 | 431 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// The code of an attempt that the transport failed, and in which way it failed; `None` where it did not and the time ran out.
/// `raw` gives what tonic would say: lost connections are UNKNOWN or CANCELLED there, own timeouts CANCELLED, where other gRPC
/// libraries say UNAVAILABLE and `DEADLINE_EXCEEDED`.
pub fn of_transport(error: Box<dyn Error + Send + Sync>, codes: TransportCodes) -> (Status, Option<TransportFailure>) {
    let mut timed_out = false;
    let mut refused = false;
    let mut stream_code = None;
    let mut cause: Option<&(dyn Error + 'static)> = Some(error.as_ref());
    while let Some(error) = cause {
        timed_out |= error.is::<tonic::TimeoutExpired>();
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            refused |= io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        if let Some(h2) = error.downcast_ref::<h2::Error>() {
            // A GOAWAY is about the connection, not about this stream.
            stream_code = h2.reason().filter(|_| !h2.is_go_away());
        }
        cause = error.source();
    }
    let failure = match (timed_out, refused) {
        (true, _) => None,
        (false, true) => Some(TransportFailure::Refused),
        (false, false) if stream_code.is_some() => Some(TransportFailure::StreamReset),
        (false, false) => Some(TransportFailure::Lost),
    };
    let text = chain(error.as_ref());
    let given = Status::from_error(error);
    let code = match (codes, stream_code) {
        // As tonic says of connections that it could not make itself.
        (TransportCodes::Raw, _) if refused => Code::Unavailable,
        (TransportCodes::Raw, _) => given.code(),
        _ if timed_out => Code::DeadlineExceeded,
        // A stream reset says something of its own (gRPC over HTTP/2); tonic's table for it is the standard one, and what
        // stands in none is UNKNOWN.
        (_, Some(_)) => given.code(),
        _ => Code::Unavailable,
    };
    let mut status = Status::new(code, text);
    if let Some(reason) = stream_code {
        // Whoever passes a broken answer on resets its stream for the same reason.
        status.set_source(Arc::new(h2::Error::from(reason)));
    }
    (status, failure)
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// What a service answers when the call it made has failed: a fresh status, so that no metadata of the lower hop (a pushback,
/// a trailer) travels up by accident.
pub fn answer(config: &Config, failed: &Status) -> Status {
    let code = match config.on_failure {
        OnFailure::Pass => failed.code(),
        OnFailure::Answer(code) => code,
    };
    let callee = config.callee.as_ref().map_or("", |callee| callee.name.as_str());
    Status::new(code, format!("{callee}: {}", failed.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, grpc: Option<&str>) -> Response {
        let mut response = http::Response::builder().status(status);
        if let Some(code) = grpc {
            response = response.header("grpc-status", code);
        }
        response.body(tonic::body::Body::empty()).unwrap()
    }

    #[test]
    fn headers_without_a_status_commit_and_every_other_head_does_not() {
        assert_eq!(head(&response(200, None)), Head::Committed);
        assert_eq!(head(&response(200, Some("14"))), Head::TrailersOnly(Code::Unavailable));
        assert_eq!(head(&response(503, None)), Head::TrailersOnly(Code::Unavailable));
        // A grpc-status wins over the HTTP status.
        assert_eq!(head(&response(503, Some("5"))), Head::TrailersOnly(Code::NotFound));
        assert_eq!(head(&response(404, None)), Head::TrailersOnly(Code::Unimplemented));
    }

    fn refused() -> Box<dyn Error + Send + Sync> {
        Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
    }

    fn lost() -> Box<dyn Error + Send + Sync> {
        Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
    }

    #[test]
    fn a_lost_connection_is_unavailable_unless_raw_codes_are_asked_for() {
        let (status, failure) = of_transport(refused(), TransportCodes::Normalized);
        assert_eq!(
            (status.code(), failure),
            (Code::Unavailable, Some(TransportFailure::Refused))
        );
        let (status, failure) = of_transport(lost(), TransportCodes::Normalized);
        assert_eq!(
            (status.code(), failure),
            (Code::Unavailable, Some(TransportFailure::Lost))
        );
        assert_eq!(of_transport(lost(), TransportCodes::Raw).0.code(), Code::Unknown);
    }

    #[test]
    fn a_stream_reset_keeps_the_code_that_the_standard_gives_it() {
        let reset = |reason: h2::Reason| -> Box<dyn Error + Send + Sync> { Box::new(h2::Error::from(reason)) };
        for (reason, code) in [
            (h2::Reason::REFUSED_STREAM, Code::Unavailable),
            (h2::Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
            (h2::Reason::CANCEL, Code::Cancelled),
            (h2::Reason::INTERNAL_ERROR, Code::Internal),
            (h2::Reason::HTTP_1_1_REQUIRED, Code::Unknown),
        ] {
            let (status, failure) = of_transport(reset(reason), TransportCodes::Normalized);
            assert_eq!((status.code(), failure), (code, Some(TransportFailure::StreamReset)));
        }
    }

    #[test]
    fn an_answer_carries_no_metadata_from_below() {
        let mut below = Status::unavailable("no stock");
        below
            .metadata_mut()
            .insert("grpc-retry-pushback-ms", "77".parse().unwrap());
        let config = |on_failure| Config {
            on_failure,
            ..Config::named("pricing")
        };
        let passed = answer(&config(OnFailure::Pass), &below);
        assert_eq!((passed.code(), passed.metadata().len()), (Code::Unavailable, 0));
        let translated = answer(&config(OnFailure::Answer(Code::FailedPrecondition)), &below);
        assert_eq!(translated.code(), Code::FailedPrecondition);
    }
}
