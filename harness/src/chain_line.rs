//! The chain line: `'client > web x3 > orders x3*3 > ledger down'`, read and written. Pure.
//!
//! A caller is a name and `xN`: at most N attempts of each call, the first included. `xN*M` puts a proxy that makes M under it. The
//! last name may carry a fault. `web:3/orders:3*3/ledger:down` says the same without blanks, for addresses.

use crate::sanitize::{sanitize, sanitize_message};
use chassis::{fault::Fault, policy::MAX_ATTEMPTS};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// The load generator's name, in front of every chain.
pub const CLIENT: &str = "client";
/// Most names besides the client.
pub const MAX_SERVICES: usize = 13;
/// Most characters of one name.
pub const MAX_NAME: usize = 40;
/// Most bytes of a chain line; thirteen long names with long faults take far less.
const MAX_LINE: usize = 4_096;

/// A chain as written in one line.
#[derive(Debug, Clone, PartialEq)]
pub struct ChainLine {
    /// The load generator.
    pub client: Hop,
    /// The services from the top to the bottom, 2 to [`MAX_SERVICES`].
    pub services: Vec<Hop>,
    /// How the last one misbehaves.
    pub fault: Fault,
}

/// A name in the line and how it calls the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The name.
    pub name: String,
    /// Attempts of each call, the first included; 1 for the last name.
    pub attempts: u32,
    /// Attempts that a proxy makes of each of them, where the line says it; 1 means there is no proxy.
    pub proxy_attempts: Option<u32>,
}

/// Why a text is no chain line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChainLineError {
    /// Longer than any chain.
    #[error("a chain line is at most {MAX_LINE} characters long")]
    TooLong,
    /// Blanks, and nothing that says who calls whom.
    #[error("`{0}` has no > between its names; write 'web x3 > orders x3 > ledger down'")]
    NoArrow(String),
    /// Nothing between two `>`.
    #[error("name {0} of the chain line is missing: there is nothing between its > and the next")]
    EmptySegment(usize),
    /// Too few or too many names.
    #[error(
        "the chain line has {0} name{s} besides the client, and takes 2 to {MAX_SERVICES}: 'web x3 > ledger down'",
        s = if *.0 == 1 { "" } else { "s" }
    )]
    Length(usize),
    /// A character that names do not have.
    #[error("`{0}` is no name: letters, digits, `-`, `_` and `.`, a letter first, at most {MAX_NAME} characters")]
    Name(String),
    /// `client` behind the first place.
    #[error("`client` stands only in front of a chain line: it is the load generator")]
    ClientNotFirst,
    /// A name that stands twice.
    #[error("`{0}` stands twice in the chain line; each name is a service of its own")]
    Repeated(String),
    /// A name that a proxy of the same chain bears.
    #[error("`{0}` is the name of the proxy under its caller; give the service another one")]
    ProxyName(String),
    /// Attempts that cannot be read.
    #[error(
        "`{written}` behind `{name}`: write x1 to x{MAX_ATTEMPTS} (attempts, the first included), with a proxy x3*3"
    )]
    Attempts {
        /// Whose attempts.
        name: String,
        /// As read.
        written: String,
    },
    /// Attempts of the last name.
    #[error(
        "`{written}` behind `{name}`: the last name calls nobody, so it makes no attempts; write '{name} down' or '{name}'"
    )]
    LastAttempts {
        /// The last name.
        name: String,
        /// As read.
        written: String,
    },
    /// A fault in the middle.
    #[error(
        "`{written}` behind `{name}`: only the last name carries a fault in the line; give --fault {name}={written}"
    )]
    MiddleFault {
        /// The name.
        name: String,
        /// As read.
        written: String,
    },
    /// A fault of the load generator.
    #[error("`{0}` behind `client`: it is the load generator and has no faults; write client x3 for its attempts")]
    ClientFault(String),
    /// A text behind a caller that is neither attempts nor a fault.
    #[error("`{written}` behind `{name}` is not understood; a caller is a name and xN: '{name} x3'")]
    Caller {
        /// The name.
        name: String,
        /// As read.
        written: String,
    },
    /// A fault that cannot be read.
    #[error("the fault of `{name}`: {message}")]
    Fault {
        /// The last name.
        name: String,
        /// What is wrong with it.
        message: String,
    },
}

impl Hop {
    /// A name that makes one attempt.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            attempts: 1,
            proxy_attempts: None,
        }
    }

    /// The name of the proxy under this caller.
    pub fn proxy_name(&self) -> String {
        proxy_name(&self.name)
    }

    /// `3` or `3*3`; nothing where one attempt and no word of a proxy need no word.
    fn tries(&self) -> Option<String> {
        match (self.attempts, self.proxy_attempts) {
            (1, None) => None,
            (attempts, None) => Some(attempts.to_string()),
            (attempts, Some(proxy)) => Some(format!("{attempts}*{proxy}")),
        }
    }
}

/// The name of the proxy under a caller.
pub fn proxy_name(caller: &str) -> String {
    format!("{caller}-proxy")
}

/// Whether a text may name a service.
pub fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .chars()
            .all(|each| each.is_ascii_alphanumeric() || matches!(each, '-' | '_' | '.'))
}

/// Whether a word from the command line is surely a piece of a chain line whose `>` the shell took.
pub fn is_piece(word: &str) -> bool {
    let counted = word
        .strip_prefix('x')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    counted || word == CLIENT || word == "-" || word.parse::<Fault>().is_ok()
}

/// Whether a text without blanks and `>` has the form used in addresses.
pub fn is_address(text: &str) -> bool {
    let is_segment = |segment: &str| is_name(segment.split_once(':').map_or(segment, |(name, _)| name));
    text.contains('/') && text.contains(':') && !text.contains(char::is_whitespace) && text.split('/').all(is_segment)
}

impl ChainLine {
    /// The line in quotes without a client that makes one attempt: without one, such a client stands in front anyway.
    pub fn shortest(&self) -> String {
        let whole = self.quoted();
        let plain_client = format!("'{CLIENT} > ");
        match whole.strip_prefix(&plain_client) {
            Some(services) => format!("'{services}"),
            None => whole,
        }
    }

    /// The line as text shows it: in single quotes, so that no shell takes its `>`.
    pub fn quoted(&self) -> String {
        format!("'{self}'")
    }

    /// The form used in addresses: `client/web:3/ledger:down`.
    pub fn address(&self) -> String {
        let caller = |hop: &Hop| match hop.tries() {
            Some(tries) => format!("{}:{tries}", hop.name),
            None => hop.name.clone(),
        };
        let mut segments = vec![format!(
            "{CLIENT}:{}",
            self.client.tries().unwrap_or_else(|| "1".to_owned())
        )];
        segments.extend(self.services.iter().map(caller));
        let mut address = segments.join("/");
        if !self.fault.is_none() {
            address = format!("{address}:{}", fault_word(&self.fault));
        }
        address
    }

    /// The services' own names, the names their proxies bear, no name twice.
    fn checked(self) -> Result<Self, ChainLineError> {
        if !(2..=MAX_SERVICES).contains(&self.services.len()) {
            return Err(ChainLineError::Length(self.services.len()));
        }
        let mut names: Vec<&str> = Vec::new();
        for hop in &self.services {
            if hop.name == CLIENT {
                return Err(ChainLineError::ClientNotFirst);
            }
            if names.contains(&hop.name.as_str()) {
                return Err(ChainLineError::Repeated(hop.name.clone()));
            }
            names.push(&hop.name);
        }
        let callers = std::iter::once(&self.client).chain(&self.services);
        let proxies: Vec<_> = callers
            .filter(|hop| hop.proxy_attempts > Some(1))
            .map(Hop::proxy_name)
            .collect();
        match proxies.into_iter().find(|proxy| names.contains(&proxy.as_str())) {
            Some(proxy) => Err(ChainLineError::ProxyName(proxy)),
            None => Ok(self),
        }
    }
}

impl FromStr for ChainLine {
    type Err = ChainLineError;

    fn from_str(text: &str) -> Result<Self, ChainLineError> {
        if text.len() > MAX_LINE {
            return Err(ChainLineError::TooLong);
        }
        let mut segments = Segment::all(text)?;
        let client = if segments.first().is_some_and(|first| first.name == CLIENT) {
            segments.remove(0).client()?
        } else {
            Hop::new(CLIENT)
        };
        let Some(last) = segments.pop() else {
            return Err(ChainLineError::Length(0));
        };
        let mut services = segments
            .into_iter()
            .map(Segment::caller)
            .collect::<Result<Vec<_>, _>>()?;
        let (bottom, fault) = last.bottom()?;
        services.push(bottom);
        Self {
            client,
            services,
            fault,
        }
        .checked()
    }
}

/// One name of the line with what stands behind it.
struct Segment {
    name: String,
    /// Attempts as written, `x` included.
    tries: Option<String>,
    /// Whatever else stands there.
    fault: Option<String>,
    /// Whether it was written with `:`, where attempts have no `x`.
    address: bool,
}

impl Segment {
    /// Splits either form of the line.
    fn all(text: &str) -> Result<Vec<Self>, ChainLineError> {
        let arrows = text.replace("->", ">").replace('→', ">");
        let (separator, address) = match (arrows.contains('>'), arrows.trim().contains(char::is_whitespace)) {
            (true, _) => ('>', false),
            (false, true) => return Err(ChainLineError::NoArrow(sanitize(text.trim()))),
            (false, false) => ('/', true),
        };
        let read = |(position, segment): (usize, &str)| {
            if segment.trim().is_empty() {
                return Err(ChainLineError::EmptySegment(position + 1));
            }
            Self::one(segment.trim(), address)
        };
        arrows.split(separator).enumerate().map(read).collect()
    }

    fn one(segment: &str, address: bool) -> Result<Self, ChainLineError> {
        let (name, rest) = if address {
            segment.split_once(':').unwrap_or((segment, ""))
        } else {
            segment.split_once(char::is_whitespace).unwrap_or((segment, ""))
        };
        if !is_name(name) {
            return Err(ChainLineError::Name(sanitize(name)));
        }
        let words: Vec<_> = rest.split_whitespace().collect();
        let split = words
            .iter()
            .position(|word| !looks_like_tries(word))
            .unwrap_or(words.len());
        let join = |words: &[&str]| (!words.is_empty()).then(|| words.join(" "));
        Ok(Self {
            name: name.to_owned(),
            tries: join(&words[..split]),
            fault: join(&words[split..]),
            address,
        })
    }

    fn client(self) -> Result<Hop, ChainLineError> {
        match &self.fault {
            Some(fault) => Err(ChainLineError::ClientFault(sanitize(fault))),
            None => self.caller(),
        }
    }

    fn caller(self) -> Result<Hop, ChainLineError> {
        let (name, tries) = (self.name.clone(), self.tries.clone());
        if let Some(written) = self.fault {
            // A first word that is no fault by far is a slip in the caller, not a fault in the wrong place.
            let known = !matches!(
                written.parse::<Fault>(),
                Err(chassis::fault::FaultError::UnknownKind(_))
            );
            let written = sanitize(&written);
            return Err(if known {
                ChainLineError::MiddleFault { name, written }
            } else {
                ChainLineError::Caller { name, written }
            });
        }
        let Some(written) = tries else {
            return Ok(Hop::new(&name));
        };
        let digits = if self.address {
            Some(written.as_str())
        } else {
            written.strip_prefix('x')
        };
        match digits.and_then(read_tries) {
            Some((attempts, proxy_attempts)) => Ok(Hop {
                name,
                attempts,
                proxy_attempts,
            }),
            None => Err(ChainLineError::Attempts {
                name,
                written: sanitize(&written),
            }),
        }
    }

    fn bottom(self) -> Result<(Hop, Fault), ChainLineError> {
        if let Some(written) = self.tries {
            return Err(ChainLineError::LastAttempts {
                name: self.name,
                written: sanitize(&written),
            });
        }
        let fault = match self.fault {
            None => Fault::NONE,
            Some(fault) => fault.parse().map_err(|error: chassis::fault::FaultError| {
                // `p=0.1` is half of a fault.
                let message = if format!("fail:{fault}").parse::<Fault>().is_ok() {
                    sanitize_message(&format!(
                        "`{fault}` is no fault by itself; did you mean `{} fail:{fault}`?",
                        self.name
                    ))
                } else {
                    sanitize_message(&error.to_string())
                };
                ChainLineError::Fault {
                    name: self.name.clone(),
                    message,
                }
            })?,
        };
        Ok((Hop::new(&self.name), fault))
    }
}

/// Whether a word is meant as attempts: `x…` with something countable behind it, or something countable alone.
fn looks_like_tries(word: &str) -> bool {
    let rest = word.strip_prefix(['x', 'X']).unwrap_or(word);
    rest.is_empty() || rest.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '*' | '+' | '-' | '.'))
}

/// `3` or `3*2`: attempts and the proxy's.
fn read_tries(text: &str) -> Option<(u32, Option<u32>)> {
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits
            .parse()
            .ok()
            .filter(|number| plain && (1..=MAX_ATTEMPTS).contains(number))
    };
    match text.split_once('*') {
        None => Some((number(text)?, None)),
        Some((attempts, proxy)) => Some((number(attempts)?, Some(number(proxy)?))),
    }
}

/// The fault as the line says it: `down` for the plain failure.
fn fault_word(fault: &Fault) -> String {
    if *fault == Fault::down() {
        "down".to_owned()
    } else {
        fault.to_string()
    }
}

impl fmt::Display for ChainLine {
    /// Writes what `FromStr` reads, the client in front, without quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CLIENT)?;
        for (position, hop) in std::iter::once(&self.client).chain(&self.services).enumerate() {
            if position > 0 {
                write!(f, " > {}", hop.name)?;
            }
            if let Some(tries) = hop.tries() {
                write!(f, " x{tries}")?;
            }
        }
        if self.fault.is_none() {
            Ok(())
        } else {
            write!(f, " {}", fault_word(&self.fault))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::strategies::chain_line;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back_in_both_forms(line in chain_line(MAX_SERVICES)) {
            prop_assert_eq!(line.to_string().parse(), Ok(line.clone()));
            prop_assert!(is_address(&line.address()), "{}", line.address());
            prop_assert_eq!(line.address().parse(), Ok(line));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,60}|[a-z0-9x*>:/ -]{0,40}") {
            if let Ok(line) = text.parse::<ChainLine>() {
                prop_assert_eq!(line.to_string().parse(), Ok(line));
            }
        }
    }

    #[test]
    fn every_spelling_of_one_chain_is_the_same() {
        let line: ChainLine = "client > web x3 > orders x3*3 > ledger down".parse().unwrap();
        for text in [
            "web x3 > orders x3*3 > ledger down",
            "web x3->orders x3*3->ledger fail",
            "web x3 → orders x3*3 → ledger  down ",
            "web:3/orders:3*3/ledger:down",
            "client:1/web:3/orders:3*3/ledger:fail",
            "client x1 > web x3 > orders x3*3 > ledger fail:code=UNAVAILABLE",
        ] {
            assert_eq!(text.parse(), Ok(line.clone()), "{text}");
        }
        // That there is no proxy is another thing to say than nothing.
        let by_hand: ChainLine = "web x3*1 > orders x3*3 > ledger down".parse().unwrap();
        assert_eq!(
            (by_hand.services[0].proxy_attempts, line.services[0].proxy_attempts),
            (Some(1), None)
        );
        assert_eq!(line.quoted(), "'client > web x3 > orders x3*3 > ledger down'");
        assert_eq!(line.address(), "client:1/web:3/orders:3*3/ledger:down");
    }

    #[test]
    fn each_mistake_is_named_with_what_would_be_right() {
        for (text, named) in [
            ("web x0 > db", "`x0` behind `web`: write x1 to x100"),
            ("web x101 > db", "x101"),
            ("web x3*0 > db", "x3*0"),
            ("web x > db", "`x` behind `web`"),
            ("web X3 > db", "`X3`"),
            ("web 3 > db", "`3` behind `web`"),
            ("web x3 x4 > db", "x3 x4"),
            ("web x+3 > db", "x+3"),
            ("web x99999999999 > db", "x99999999999"),
            ("web down > db", "--fault web=down"),
            ("web x3 fail:first=2 > db", "--fault web=fail:first=2"),
            ("web delay:ms=5 > db", "--fault web=delay:ms=5"),
            ("web three > db", "a caller is a name and xN"),
            ("client down > web > db", "has no faults"),
            ("web > db x3", "calls nobody"),
            ("web > db x3 down", "calls nobody"),
            ("web:3/db:2", "calls nobody"),
            ("web > > db", "name 2"),
            ("> web > db", "name 1"),
            ("web > db >", "name 3"),
            ("web x3 > db explode", "explode"),
            ("client x3 x3 down", "has no >"),
            ("client > db", "1 name besides"),
            ("client >", "name 2"),
            ("web", "1 name besides"),
            ("a>b>c>d>e>f>g>h>i>j>k>l>m>n", "14 names"),
            ("web > web", "twice"),
            ("web > client > db", "only in front"),
            ("web x3*3 > web-proxy > db", "web-proxy"),
            ("3web > db", "`3web` is no name"),
            ("wéb > db", "is no name"),
            ("web/x > db", "is no name"),
        ] {
            let error = text.parse::<ChainLine>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
        let long = format!("{} > db", "a".repeat(41));
        assert!(
            long.parse::<ChainLine>()
                .unwrap_err()
                .to_string()
                .contains("at most 40")
        );
        assert_eq!("x".repeat(5_000).parse::<ChainLine>(), Err(ChainLineError::TooLong));
    }

    #[test]
    fn a_foreign_word_in_a_message_cannot_move_the_cursor() {
        let error = "we\u{1b}[2Jb > db".parse::<ChainLine>().unwrap_err().to_string();
        assert!(!error.contains('\u{1b}') && error.contains(r"\u{1b}"), "{error}");
    }

    #[test]
    fn pieces_of_a_line_are_told_from_scenarios() {
        for piece in ["client", "x3", "x3*3", "down", "fail:first=2", "-"] {
            assert!(is_piece(piece), "{piece}");
        }
        for other in ["per-hop", "refused", "xylophone", "case.toml"] {
            assert!(!is_piece(other), "{other}");
        }
        assert!(is_address("web:3/db:down") && !is_address("dir/case") && !is_address("./a:b/c"));
    }
}
