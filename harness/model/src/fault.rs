//! What a fault is, and how its text reads. The text is the one that a service reports; it is read here by rules of the
//! model's own, so that a mistake of the services' grammar cannot make prediction and measurement agree.

use crate::topology::Code;
use std::str::FromStr;

/// How a service misbehaves: how late, and then how.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Fault {
    /// The wait before everything else.
    pub delay: Option<Delay>,
    /// What happens then.
    pub kind: Kind,
    /// Which arrivals `kind` happens to.
    pub when: When,
}

/// What happens to an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// The service works.
    #[default]
    None,
    /// It answers with a failure.
    Fail(Fail),
    /// It never answers.
    Hang,
    /// Its port is closed: attempts are sent, nothing is received, and the caller sees UNAVAILABLE.
    Refuse,
    /// It reads the request and cuts it off without an answer.
    Cut(Cut),
    /// It works on so many arrivals at once, and the rest get a code.
    Overload {
        /// Most at once.
        capacity: u32,
        /// What the rest get.
        code: Code,
    },
}

impl Kind {
    /// Whether the connection of an arrival ends, with all that is on it.
    pub(crate) fn cuts_connections(self) -> bool {
        matches!(self, Self::Cut(Cut::Connection | Cut::GoAway))
    }
}

/// A failing answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fail {
    /// What a caller makes of it.
    pub code: Code,
    /// Whether the work is done first. Work that fails by itself keeps its own status.
    pub after: bool,
    /// Whether the headers come first, so that the answer has begun when it fails.
    pub headers: bool,
    /// What it says of the next attempt: milliseconds; negative asks for none.
    pub pushback_ms: Option<i32>,
}

/// How an arrival is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Its connection is reset.
    Connection,
    /// Its connection ends with a GOAWAY.
    GoAway,
    /// Its stream alone, with what a caller makes of the error code.
    Stream(Code),
}

/// A wait before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Delay {
    /// Milliseconds.
    pub ms: u64,
    /// Up to so many milliseconds more, drawn.
    pub jitter_ms: u64,
    /// Which arrivals wait.
    pub when: When,
}

/// Which arrivals something happens to: those within `first` whose draw is below `p`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct When {
    /// Only the first so many arrivals; `None` means every one.
    pub first: Option<u64>,
    /// Chance of each arrival, 0 to 1; `None` means certain.
    pub p: Option<f64>,
    /// Whether `first` counts the arrivals of the process; otherwise those of each request.
    pub per_process: bool,
}

/// A fault in a caller's own way out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClientFault {
    /// A failure before the work, a delay, or both.
    pub fault: Fault,
    /// Inside the retry loop it meets every attempt, outside it every call.
    pub inside: bool,
}

impl Fault {
    /// No fault.
    pub const NONE: Self = Self {
        delay: None,
        kind: Kind::None,
        when: When::ALWAYS,
    };

    /// A fault of this kind on every arrival.
    pub const fn of(kind: Kind) -> Self {
        Self { kind, ..Self::NONE }
    }

    /// The plain `fail`.
    pub const DOWN: Self = Self::of(Kind::Fail(Fail::DOWN));
}

impl Fail {
    /// UNAVAILABLE before the work.
    pub const DOWN: Self = Self {
        code: Code::UNAVAILABLE,
        after: false,
        headers: false,
        pushback_ms: None,
    };
}

impl When {
    /// Whether no arrival is meant.
    pub(crate) fn is_never(&self) -> bool {
        self.first == Some(0) || self.p.is_some_and(|p| p.is_nan() || p <= 0.0)
    }

    /// Whether it is drawn which arrivals are meant.
    pub(crate) fn is_drawn(&self) -> bool {
        self.p.is_some_and(|p| p > 0.0 && p < 1.0)
    }

    /// Every arrival.
    pub const ALWAYS: Self = Self {
        first: None,
        p: None,
        per_process: false,
    };
}

impl FromStr for Fault {
    type Err = String;

    /// Reads `KIND[:key=value,…]`, and two of them with a `+` between for one that comes late.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut fault = Self::NONE;
        for part in text.split('+') {
            let (kind, keys) = part.split_once(':').unwrap_or((part, ""));
            let pairs = keys.split(',').filter(|pair| !pair.is_empty());
            let keys = Keys(pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect());
            if kind == "delay" {
                fault.delay = Some(Delay {
                    ms: keys.number("ms")?.unwrap_or(0),
                    jitter_ms: keys.number("jitter")?.unwrap_or(0),
                    when: keys.when()?,
                });
            } else {
                fault.kind = keys.kind(kind)?;
                fault.when = keys.when()?;
            }
        }
        Ok(fault)
    }
}

/// The keys of one part.
struct Keys<'a>(Vec<(&'a str, &'a str)>);

impl Keys<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, String> {
        let read = |value: &str| value.parse().map_err(|_| format!("{key}={value} is no number"));
        self.text(key).map(read).transpose()
    }

    fn code(&self, otherwise: Code) -> Result<Code, String> {
        match self.text("code") {
            None => Ok(otherwise),
            Some(name) => Code::named(name).ok_or_else(|| format!("{name} is no code")),
        }
    }

    fn when(&self) -> Result<When, String> {
        Ok(When {
            first: self.number("first")?,
            p: self.number("p")?,
            per_process: self.text("scope") == Some("process"),
        })
    }

    fn kind(&self, kind: &str) -> Result<Kind, String> {
        Ok(match kind {
            "none" => Kind::None,
            "hang" => Kind::Hang,
            "refuse" => Kind::Refuse,
            "goaway" => Kind::Cut(Cut::GoAway),
            "reset" if self.text("of") == Some("stream") => {
                Kind::Cut(Cut::Stream(of_reset(self.text("code").unwrap_or("REFUSED_STREAM"))))
            }
            "reset" => Kind::Cut(Cut::Connection),
            "http" => {
                let status = self.number("status")?.unwrap_or(0);
                Kind::Fail(Fail {
                    code: of_http(status),
                    // Headers of HTTP 200 without a status begin an answer.
                    headers: status == 200,
                    ..Fail::DOWN
                })
            }
            "overload" => Kind::Overload {
                capacity: self.number("capacity")?.unwrap_or(0),
                code: self.code(Code::RESOURCE_EXHAUSTED)?,
            },
            "fail" | "down" => Kind::Fail(Fail {
                code: self.code(Code::UNAVAILABLE)?,
                after: self.text("at") == Some("after"),
                headers: self.text("at") == Some("headers"),
                pushback_ms: self.number("pushback")?,
            }),
            other => return Err(format!("{other} is no fault")),
        })
    }
}

/// What a gRPC client makes of a bare HTTP status (gRPC's table).
fn of_http(status: u16) -> Code {
    match status {
        400 | 431 => Code::INTERNAL,
        401 => Code::UNAUTHENTICATED,
        403 => Code::PERMISSION_DENIED,
        404 => Code::UNIMPLEMENTED,
        429 | 502..=504 => Code::UNAVAILABLE,
        _ => Code::UNKNOWN,
    }
}

/// What a gRPC client makes of a reset stream (gRPC over HTTP/2); codes that are not in its table are UNKNOWN.
fn of_reset(reason: &str) -> Code {
    match reason {
        "REFUSED_STREAM" => Code::UNAVAILABLE,
        "CANCEL" => Code::CANCELLED,
        "ENHANCE_YOUR_CALM" => Code::RESOURCE_EXHAUSTED,
        "INADEQUATE_SECURITY" => Code::PERMISSION_DENIED,
        "NO_ERROR" | "PROTOCOL_ERROR" | "INTERNAL_ERROR" | "FLOW_CONTROL_ERROR" | "SETTINGS_TIMEOUT"
        | "FRAME_SIZE_ERROR" | "COMPRESSION_ERROR" | "CONNECT_ERROR" => Code::INTERNAL,
        _ => Code::UNKNOWN,
    }
}
