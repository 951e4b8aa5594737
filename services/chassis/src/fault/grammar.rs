//! The grammar of a fault: what is read, what is refused and in which words, and how it is written.

use super::{At, ClientFault, Delay, Fail, Fault, Kind, Reset, Scope, When};
use crate::code::{self, Code};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// What a scenario says of one service: a fault, and whether it sits in the service or in its caller's outbound stack.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServiceFault {
    /// The fault.
    pub fault: Fault,
    /// The caller it sits in, and whether inside its retry loop; `None` is the service itself.
    pub side: Option<(String, bool)>,
}

impl From<Fault> for ServiceFault {
    fn from(fault: Fault) -> Self {
        Self { fault, side: None }
    }
}

impl ServiceFault {
    /// The fault of the service itself.
    pub fn own(&self) -> Fault {
        if self.side.is_none() { self.fault } else { Fault::NONE }
    }
}

/// Why a text is no fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FaultError {
    /// The kind is not known.
    #[error("`{0}` is not a fault; the faults are {KINDS}")]
    UnknownKind(String),
    /// The key is not known.
    #[error("`{key}` is not a key of the fault `{kind}` (its keys: {known})")]
    UnknownKey {
        /// The fault's kind.
        kind: &'static str,
        /// The key as read.
        key: String,
        /// The keys that exist.
        known: String,
    },
    /// A key stands twice.
    #[error("the key `{0}` is given twice in one fault")]
    Twice(String),
    /// A pair without `=`.
    #[error("`{0}` in a fault is not key=value")]
    NotAPair(String),
    /// A value that the key cannot take.
    #[error("`{key}={value}` in a fault: {right}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value as read.
        value: String,
        /// What would be right.
        right: String,
    },
    /// A key that must be there.
    #[error("`{kind}` needs {key}, as in {example}")]
    Missing {
        /// The fault's kind.
        kind: &'static str,
        /// The key.
        key: &'static str,
        /// A whole fault.
        example: &'static str,
    },
    /// Parts that cannot stand together.
    #[error("`{0}`: {1}")]
    Combination(String, &'static str),
}

/// The kinds, as messages name them.
const KINDS: &str =
    "none, down, fail, delay, hang, refuse, reset, goaway, http, overload, and delay:ms=50+fail for both";

/// Longest delay, milliseconds: one hour.
const MAX_DELAY_MS: u64 = 3_600_000;

/// The keys of `When`, which every kind takes that happens to single arrivals.
const WHEN: [&str; 3] = ["first", "p", "scope"];
/// The keys that put a fault into a caller.
const SIDE: [&str; 2] = ["side", "loop"];

/// The kinds with the keys of their own, and whether they take those of [`WHEN`] and of [`SIDE`].
const TABLE: [(&str, &[&str], bool, bool); 10] = [
    ("none", &[], false, false),
    ("down", &[], false, false),
    ("fail", &["code", "at", "pushback"], true, true),
    ("delay", &["ms", "jitter"], true, true),
    ("hang", &[], true, false),
    ("refuse", &[], false, false),
    ("reset", &["of", "code"], true, false),
    ("goaway", &[], true, false),
    ("http", &["status"], true, false),
    ("overload", &["capacity", "code"], false, false),
];

impl FromStr for Fault {
    type Err = FaultError;

    /// Reads a fault of a service itself.
    fn from_str(text: &str) -> Result<Self, FaultError> {
        let placed: ServiceFault = text.parse()?;
        match placed.side {
            None => Ok(placed.fault),
            Some(_) => Err(FaultError::Combination(
                text.trim().to_owned(),
                "side= belongs to a scenario's service, which knows its caller",
            )),
        }
    }
}

impl FromStr for ServiceFault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let text = text.trim();
        let parts: Vec<_> = text.split('+').map(Part::read).collect::<Result<_, _>>()?;
        let wrong = |right| FaultError::Combination(text.to_owned(), right);
        let (delays, kinds): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.delay.is_some());
        if parts.len() > 1 && (delays.len() != 1 || kinds.len() != 1) {
            return Err(wrong("+ puts one delay and one other fault together"));
        }
        let kind = kinds.first().map_or(Kind::None, |part| part.kind);
        if parts.len() > 1 && matches!(kind, Kind::None | Kind::Refuse | Kind::Hang) {
            return Err(wrong("a delay goes with a fault that answers or resets"));
        }
        let sides: Vec<_> = parts.iter().filter_map(|part| part.side.clone()).collect();
        if sides.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(wrong("both parts sit on the same side"));
        }
        let side = sides.into_iter().next();
        if side.is_some() && !is_for_callers(kind) {
            return Err(wrong(FOR_CALLERS));
        }
        Ok(Self {
            fault: Fault {
                delay: delays.first().and_then(|part| part.delay),
                kind,
                when: kinds.first().map_or_else(When::default, |part| part.when),
            },
            side,
        })
    }
}

impl FromStr for ClientFault {
    type Err = FaultError;

    /// Reads `inside:FAULT` or `outside:FAULT`.
    fn from_str(text: &str) -> Result<Self, FaultError> {
        let (place, fault) = text.trim().split_once(':').unwrap_or_default();
        let inside = match place {
            "inside" => true,
            "outside" => false,
            other => return Err(wrong("loop", other, "write inside or outside, as in inside:fail")),
        };
        let fault: Fault = fault.parse()?;
        if is_for_callers(fault.kind) {
            Ok(Self { fault, inside })
        } else {
            Err(FaultError::Combination(text.trim().to_owned(), FOR_CALLERS))
        }
    }
}

impl fmt::Display for ClientFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.inside { "inside" } else { "outside" };
        write!(f, "{place}:{}", self.fault)
    }
}

const FOR_CALLERS: &str = "in a caller there is fail (before the work, without pushback) and delay";

fn is_for_callers(kind: Kind) -> bool {
    match kind {
        Kind::None => true,
        Kind::Fail(fail) => fail.at == At::Before && fail.pushback_ms.is_none(),
        _ => false,
    }
}

/// One part of a fault: `KIND[:key=value,…]`.
struct Part {
    kind: Kind,
    when: When,
    delay: Option<Delay>,
    side: Option<(String, bool)>,
}

impl Part {
    fn read(text: &str) -> Result<Self, FaultError> {
        let (kind, keys) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        let Some((kind, own, takes_when, takes_side)) = TABLE.into_iter().find(|(known, ..)| *known == kind) else {
            return Err(FaultError::UnknownKind(kind.to_owned()));
        };
        let mut known = own.to_vec();
        known.extend(takes_when.then_some(WHEN).into_iter().flatten());
        known.extend(takes_side.then_some(SIDE).into_iter().flatten());
        let keys = Keys::read(kind, keys, &known)?;
        let mut part = Self {
            kind: Kind::None,
            when: keys.when()?,
            delay: None,
            side: keys.side()?,
        };
        match kind {
            "down" => part.kind = Kind::Fail(Fail::default()),
            "fail" => part.kind = Kind::Fail(keys.fail()?),
            "hang" => part.kind = Kind::Hang,
            "refuse" => part.kind = Kind::Refuse,
            "reset" => part.kind = Kind::Reset(keys.reset()?),
            "goaway" => part.kind = Kind::GoAway,
            "http" => {
                let status = keys.get("status").ok_or(FaultError::Missing {
                    kind,
                    key: "status",
                    example: "http:status=503",
                })?;
                let right = "write an HTTP status from 200 to 599";
                part.kind = Kind::Http {
                    status: number("status", status, 200, 599, right)?,
                };
            }
            "overload" => {
                let capacity = keys.get("capacity").ok_or(FaultError::Missing {
                    kind,
                    key: "capacity",
                    example: "overload:capacity=10",
                })?;
                let right = "write how many arrivals it works on at once, 0 to 1000000";
                part.kind = Kind::Overload {
                    capacity: number("capacity", capacity, 0, 1_000_000, right)?,
                    code: keys.code()?.unwrap_or(Code::ResourceExhausted),
                };
            }
            "delay" => {
                let ms = keys.get("ms").ok_or(FaultError::Missing {
                    kind,
                    key: "ms",
                    example: "delay:ms=50",
                })?;
                let right = "write milliseconds, 0 to 3600000";
                let jitter = keys
                    .get("jitter")
                    .map(|value| number("jitter", value, 0, MAX_DELAY_MS, right));
                part.delay = Some(Delay {
                    ms: number("ms", ms, 0, MAX_DELAY_MS, right)?,
                    jitter_ms: jitter.transpose()?.unwrap_or(0),
                    when: std::mem::take(&mut part.when),
                });
            }
            _ => {}
        }
        Ok(part)
    }
}

/// The pairs of one part.
struct Keys<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Keys<'a> {
    fn read(kind: &'static str, text: &'a str, known: &[&str]) -> Result<Self, FaultError> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| FaultError::NotAPair(pair.trim().to_owned()))?;
            let key = key.trim();
            if pairs.iter().any(|(earlier, _)| *earlier == key) {
                return Err(FaultError::Twice(key.to_owned()));
            }
            if !known.contains(&key) {
                return Err(FaultError::UnknownKey {
                    kind,
                    key: key.to_owned(),
                    known: if known.is_empty() {
                        "none".to_owned()
                    } else {
                        known.join(", ")
                    },
                });
            }
            pairs.push((key, value.trim()));
        }
        Ok(Self { pairs })
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, value)| *value)
    }

    fn code(&self) -> Result<Option<Code>, FaultError> {
        let Some(value) = self.get("code") else { return Ok(None) };
        let code = code::parse_failure(value).map_err(|error| wrong("code", value, &error.to_string()))?;
        Ok(Some(code))
    }

    fn when(&self) -> Result<When, FaultError> {
        let mut when = When::default();
        if let Some(value) = self.get("first") {
            when.first = Some(number("first", value, 0, u64::MAX, "write a whole number, 0 or more")?);
        }
        if let Some(value) = self.get("p") {
            let right = "write a chance from 0 to 1";
            let p: f64 = value.parse().map_err(|_| wrong("p", value, right))?;
            if !(0.0..=1.0).contains(&p) {
                return Err(wrong("p", value, "a chance lies from 0 to 1"));
            }
            when.p = Some(p);
        }
        if let Some(value) = self.get("scope") {
            when.scope = match value {
                "request" => Scope::Request,
                "process" => Scope::Process,
                _ => return Err(wrong("scope", value, "write request or process")),
            };
        }
        if when.scope == Scope::Process && when.first.is_none() {
            return Err(wrong(
                "scope",
                "process",
                "scope says what first counts over; give first=N too",
            ));
        }
        Ok(when)
    }

    fn side(&self) -> Result<Option<(String, bool)>, FaultError> {
        let Some(value) = self.get("side") else {
            return match self.get("loop") {
                None => Ok(None),
                Some(value) => Err(wrong("loop", value, "loop belongs to side=client@CALLER")),
            };
        };
        let right = "write client@CALLER, as in side=client@pricing";
        let caller = value.strip_prefix("client@").filter(|caller| !caller.is_empty());
        let caller = caller.ok_or_else(|| wrong("side", value, right))?;
        let inside = match self.get("loop") {
            None | Some("inside") => true,
            Some("outside") => false,
            Some(value) => return Err(wrong("loop", value, "write inside or outside")),
        };
        Ok(Some((caller.to_owned(), inside)))
    }

    fn fail(&self) -> Result<Fail, FaultError> {
        let mut fail = Fail::default();
        if let Some(code) = self.code()? {
            fail.code = code;
        }
        if let Some(value) = self.get("at") {
            fail.at = match value {
                "before" => At::Before,
                "after" => At::After,
                "headers" => At::Headers,
                _ => return Err(wrong("at", value, "write before, after or headers")),
            };
        }
        if let Some(value) = self.get("pushback") {
            let right = "write milliseconds; below 0 asks for no retry";
            fail.pushback_ms = Some(value.parse().map_err(|_| wrong("pushback", value, right))?);
        }
        Ok(fail)
    }

    fn reset(&self) -> Result<Reset, FaultError> {
        match (self.get("of"), self.get("code")) {
            (None | Some("connection"), None) => Ok(Reset::Connection),
            (None | Some("connection"), Some(value)) => Err(wrong(
                "code",
                value,
                "a code belongs to of=stream; a connection has none",
            )),
            (Some("stream"), None) => Ok(Reset::Stream(h2::Reason::REFUSED_STREAM)),
            (Some("stream"), Some(value)) => reason(value).map(Reset::Stream).ok_or_else(|| {
                wrong(
                    "code",
                    value,
                    "write an HTTP/2 error code such as REFUSED_STREAM, CANCEL, INTERNAL_ERROR",
                )
            }),
            (Some(value), _) => Err(wrong("of", value, "write connection or stream")),
        }
    }
}

/// The HTTP/2 error codes by name (RFC 9113, section 7).
const REASONS: [(&str, h2::Reason); 14] = [
    ("NO_ERROR", h2::Reason::NO_ERROR),
    ("PROTOCOL_ERROR", h2::Reason::PROTOCOL_ERROR),
    ("INTERNAL_ERROR", h2::Reason::INTERNAL_ERROR),
    ("FLOW_CONTROL_ERROR", h2::Reason::FLOW_CONTROL_ERROR),
    ("SETTINGS_TIMEOUT", h2::Reason::SETTINGS_TIMEOUT),
    ("STREAM_CLOSED", h2::Reason::STREAM_CLOSED),
    ("FRAME_SIZE_ERROR", h2::Reason::FRAME_SIZE_ERROR),
    ("REFUSED_STREAM", h2::Reason::REFUSED_STREAM),
    ("CANCEL", h2::Reason::CANCEL),
    ("COMPRESSION_ERROR", h2::Reason::COMPRESSION_ERROR),
    ("CONNECT_ERROR", h2::Reason::CONNECT_ERROR),
    ("ENHANCE_YOUR_CALM", h2::Reason::ENHANCE_YOUR_CALM),
    ("INADEQUATE_SECURITY", h2::Reason::INADEQUATE_SECURITY),
    ("HTTP_1_1_REQUIRED", h2::Reason::HTTP_1_1_REQUIRED),
];

fn reason(name: &str) -> Option<h2::Reason> {
    let found = REASONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, reason)| *reason)
}

fn reason_name(reason: h2::Reason) -> &'static str {
    let found = REASONS.iter().find(|(_, known)| *known == reason);
    found.map_or("INTERNAL_ERROR", |(name, _)| name)
}

fn number<T: TryFrom<u64>>(
    key: &'static str,
    value: &str,
    least: u64,
    most: u64,
    right: &str,
) -> Result<T, FaultError> {
    let read = value
        .parse::<u64>()
        .ok()
        .filter(|number| (least..=most).contains(number));
    read.and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| wrong(key, value, right))
}

fn wrong(key: &'static str, value: &str, right: &str) -> FaultError {
    FaultError::Value {
        key,
        value: value.to_owned(),
        right: right.to_owned(),
    }
}

impl fmt::Display for Fault {
    /// Writes what `FromStr` reads, defaults left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_parts(self, &[], f)
    }
}

impl fmt::Display for ServiceFault {
    /// Writes what `FromStr` reads, defaults left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = self.side.iter().flat_map(|(caller, inside)| {
            let outside = (!inside).then(|| "loop=outside".to_owned());
            std::iter::once(format!("side=client@{caller}")).chain(outside)
        });
        write_parts(&self.fault, &side.collect::<Vec<_>>(), f)
    }
}

fn write_parts(fault: &Fault, side: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut parts = Vec::new();
    if let Some(delay) = fault.delay {
        let mut keys = vec![format!("ms={}", delay.ms)];
        if delay.jitter_ms > 0 {
            keys.push(format!("jitter={}", delay.jitter_ms));
        }
        keys.extend(when_keys(delay.when));
        parts.push(("delay", keys));
    }
    let (kind, mut keys) = kind_keys(fault.kind);
    keys.extend(when_keys(fault.when));
    if fault.kind != Kind::None || fault.delay.is_none() {
        parts.push((kind, keys));
    }
    if let Some((_, keys)) = parts.last_mut() {
        keys.extend(side.iter().cloned());
    }
    let written = parts.iter().map(|(kind, keys)| match keys.as_slice() {
        [] => (*kind).to_owned(),
        keys => format!("{kind}:{}", keys.join(",")),
    });
    f.write_str(&written.collect::<Vec<_>>().join("+"))
}

fn kind_keys(kind: Kind) -> (&'static str, Vec<String>) {
    match kind {
        Kind::None => ("none", Vec::new()),
        Kind::Hang => ("hang", Vec::new()),
        Kind::Refuse => ("refuse", Vec::new()),
        Kind::GoAway => ("goaway", Vec::new()),
        Kind::Http { status } => ("http", vec![format!("status={status}")]),
        Kind::Reset(Reset::Connection) => ("reset", Vec::new()),
        Kind::Reset(Reset::Stream(reason)) => (
            "reset",
            vec!["of=stream".to_owned(), format!("code={}", reason_name(reason))],
        ),
        Kind::Overload { capacity, code } => {
            let mut keys = vec![format!("capacity={capacity}")];
            if code != Code::ResourceExhausted {
                keys.push(format!("code={}", code::name(code)));
            }
            ("overload", keys)
        }
        Kind::Fail(fail) => {
            let default = Fail::default();
            let mut keys = Vec::new();
            if fail.code != default.code {
                keys.push(format!("code={}", code::name(fail.code)));
            }
            match fail.at {
                At::Before => {}
                At::After => keys.push("at=after".to_owned()),
                At::Headers => keys.push("at=headers".to_owned()),
            }
            keys.extend(fail.pushback_ms.map(|ms| format!("pushback={ms}")));
            ("fail", keys)
        }
    }
}

fn when_keys(when: When) -> Vec<String> {
    let mut keys = Vec::new();
    keys.extend(when.first.map(|first| format!("first={first}")));
    keys.extend(when.p.map(|p| format!("p={p}")));
    if when.scope == Scope::Process {
        keys.push("scope=process".to_owned());
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "none",
            "refuse",
            "hang",
            "hang:first=1",
            "goaway",
            "fail",
            "fail:first=2",
            "fail:p=0.5",
            "fail:pushback=-1",
            "fail:code=NOT_FOUND,at=after,first=1,p=0.25,scope=process",
            "fail:at=headers",
            "delay:ms=50",
            "delay:ms=50,jitter=20,p=0.05",
            "delay:ms=20+fail:first=2",
            "delay:ms=20,first=1+http:status=503",
            "reset",
            "reset:of=stream,code=REFUSED_STREAM,first=1",
            "http:status=503",
            "overload:capacity=10",
            "delay:ms=20+overload:capacity=10,code=UNAVAILABLE",
        ] {
            let fault: Fault = text.parse().unwrap();
            assert_eq!(fault.to_string(), text);
        }
        for text in [
            "fail:p=0.5,side=client@pricing",
            "delay:ms=20,side=client@web,loop=outside",
            "delay:ms=20+fail:side=client@web",
        ] {
            let fault: ServiceFault = text.parse().unwrap();
            assert_eq!(fault.to_string(), text);
        }
        assert_eq!("down".parse(), Ok(Fault::down()));
        assert_eq!("fail+delay:ms=20".parse(), "delay:ms=20+fail".parse::<Fault>());
    }

    #[test]
    fn each_wrong_text_is_named() {
        for (text, named) in [
            ("explode", "explode"),
            ("fail:p=1.5", "1.5"),
            ("fail:p=NaN", "NaN"),
            ("fail:first=-1", "-1"),
            ("fail:code=UNAVAILBLE", "UNAVAILBLE"),
            ("fail:code=OK", "OK"),
            ("fail:frist=2", "frist"),
            ("fail:first=1,first=2", "first"),
            ("fail:first", "first"),
            ("fail:scope=process", "first=N"),
            ("fail:at=during", "headers"),
            ("fail:pushback=soon", "soon"),
            ("refuse:code=OK", "code"),
            ("delay", "delay:ms=50"),
            ("delay:ms=fast", "fast"),
            ("delay:ms=3600001", "3600000"),
            ("http", "http:status=503"),
            ("http:status=700", "700"),
            ("overload", "overload:capacity=10"),
            ("reset:of=socket", "socket"),
            ("reset:code=CANCEL", "of=stream"),
            ("reset:of=stream,code=NOPE", "NOPE"),
            ("fail+refuse", "one delay"),
            ("delay:ms=1+refuse", "answers or resets"),
            ("delay:ms=1+delay:ms=2", "one delay"),
            ("fail:side=client@web", "scenario"),
        ] {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
        for (text, named) in [
            ("fail:side=web", "client@CALLER"),
            ("fail:loop=inside", "side=client@CALLER"),
            ("fail:side=client@web,loop=round", "inside or outside"),
            ("fail:side=client@web,at=headers", "before the work"),
            ("hang:side=client@web", "side"),
        ] {
            let error = text.parse::<ServiceFault>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
