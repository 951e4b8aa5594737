//! How an attempt ended, and what its caller makes of that.
//!
//! Code hands up a code and nothing else. A proxy hands up the answer as it came, so that the same answer is weighed again
//! by everybody up to the next code, each by its own policy.

use crate::draw::Draw;
use crate::fault::{Cut, Fail};
use crate::topology::{Caller, Code, Layer, RetryOn};

/// How an attempt ended, as its caller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ended {
    pub(crate) code: Code,
    /// Whether it is no answer but a failure of the transport.
    pub(crate) by_transport: bool,
    /// Whether the answer had begun when it failed.
    pub(crate) has_begun: bool,
    /// What the answer says of the next attempt: milliseconds; negative asks for none.
    pub(crate) pushback_ms: Option<i32>,
}

impl From<Code> for Ended {
    /// An answer with a code and nothing else.
    fn from(code: Code) -> Self {
        Self {
            code,
            by_transport: false,
            has_begun: false,
            pushback_ms: None,
        }
    }
}

impl From<Fail> for Ended {
    fn from(fail: Fail) -> Self {
        Self {
            has_begun: fail.headers,
            pushback_ms: fail.pushback_ms,
            ..fail.code.into()
        }
    }
}

impl Ended {
    /// The port is closed.
    pub(crate) const REFUSED: Self = Self::by_transport(Code::UNAVAILABLE);

    /// What a service answers whose work ended so.
    pub(crate) fn translated(self, on_failure: Option<Code>) -> Self {
        match on_failure {
            Some(code) if self.code.is_failure() => code.into(),
            _ => self,
        }
    }

    const fn by_transport(code: Code) -> Self {
        Self {
            code,
            by_transport: true,
            has_begun: false,
            pushback_ms: None,
        }
    }
}

/// The statuses that an Envoy can be told to try again.
const KNOWN_TO_ENVOY: [Code; 5] = [
    Code::CANCELLED,
    Code::DEADLINE_EXCEEDED,
    Code::RESOURCE_EXHAUSTED,
    Code::INTERNAL,
    Code::UNAVAILABLE,
];

impl Caller {
    /// What it sees when its attempt is cut off.
    pub(crate) fn sees(&self, cut: Cut) -> Ended {
        Ended::by_transport(match cut {
            _ if self.layer == Layer::Envoy => Code::UNAVAILABLE,
            Cut::Stream(code) => code,
            Cut::Connection | Cut::GoAway if self.raw_codes => Code::UNKNOWN,
            Cut::Connection | Cut::GoAway => Code::UNAVAILABLE,
        })
    }

    /// What it makes of an attempt whose own limit has run out. To an Envoy that is one more reset.
    pub(crate) fn timed_out(&self) -> Ended {
        match self.layer {
            Layer::Envoy => Ended::by_transport(Code::UNAVAILABLE),
            Layer::Code | Layer::Proxy => Code::DEADLINE_EXCEEDED.into(),
        }
    }

    /// Whether an attempt that ended so is one that it tries again, as far as its list goes.
    pub(crate) fn lists(&self, ended: Ended) -> bool {
        ended.code.is_failure()
            && !(ended.by_transport && self.answers_only)
            && (self.layer != Layer::Envoy || KNOWN_TO_ENVOY.contains(&ended.code))
            && match &self.retry_on {
                RetryOn::Any => true,
                RetryOn::Codes(codes) => codes.contains(&ended.code),
            }
    }

    /// Whether the answer has gone on before anybody could know that it fails.
    pub(crate) fn has_committed(&self, ended: Ended) -> bool {
        ended.has_begun && !self.policy.commits_late
    }

    /// What the callee says of the next attempt, as far as it is listened to.
    pub(crate) fn hears_ms(&self, ended: Ended) -> Option<i32> {
        ended.pushback_ms.filter(|_| !self.policy.ignores_pushback)
    }

    /// Whether it tries a call again whose attempt ended so, attempts and limits permitting.
    pub(crate) fn tries_again(&self, ended: Ended) -> bool {
        self.lists(ended) && !self.has_committed(ended) && self.hears_ms(ended).is_none_or(|ms| ms >= 0)
    }

    /// What goes up when a call of its ends as its last attempt did.
    pub(crate) fn hands_up(&self, ended: Ended) -> Ended {
        match self.layer {
            Layer::Code => ended.code.into(),
            // Of a failure of the transport it makes an answer.
            Layer::Proxy | Layer::Envoy => Ended {
                by_transport: false,
                ..ended
            },
        }
    }

    /// Whether its attempts of one call may come under one attempt path.
    pub(crate) fn repeats_paths(&self) -> bool {
        self.layer == Layer::Envoy && self.attempts > 1
    }

    /// The path of its attempt with this number, of its call with that one, below the path of the arrival.
    pub(crate) fn path(&self, arrival: Draw, call: u32, number: u32) -> Draw {
        match self.layer {
            Layer::Envoy => arrival,
            Layer::Code | Layer::Proxy => arrival.attempt(call, number),
        }
    }
}
