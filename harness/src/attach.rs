//! Which services already run: `SERVICE=CONTROL_ADDR,…`, a file that holds the same, or the ports that `up` takes by default.

use crate::{
    sanitize::sanitize,
    scenario::{CONTROL_PORTS, MAX_SERVICES_ATTACHED, shell_quoted},
};
use chassis::address::Address;
use std::{fmt, io::Read as _, net::Ipv4Addr, path::Path};
use thiserror::Error;

/// The services to attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attach {
    /// Named with their control ports, in any order.
    Named(Vec<Named>),
    /// Whatever answers on the control ports that `up` takes by default.
    Default,
}

/// One service and its control port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name in the chain line.
    pub service: String,
    /// Where it is asked.
    pub control: Address,
}

/// Why a text names no services to attach to. Every message is fit for a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AttachError {
    /// Neither pairs nor a file.
    #[error(
        "`{0}` is neither SERVICE=CONTROL_ADDR,... (as in pricing=127.0.0.1:50063) nor a file that holds such pairs"
    )]
    Neither(String),
    /// A file that is not there.
    #[error("there is no file `{0}` (`up --ready-file` writes one, and takes it away when it ends)")]
    NoFile(String),
    /// A pair that cannot be read.
    #[error("`{pair}`: {right}")]
    Pair {
        /// The pair as read.
        pair: String,
        /// What would be right.
        right: String,
    },
    /// A service that is named twice.
    #[error("`{0}` is named twice")]
    Twice(String),
    /// A number of services that makes no chain.
    #[error("services named: {0}; a chain has 2 to {MAX_SERVICES_ATTACHED}")]
    Count(usize),
    /// A file that cannot be read.
    #[error("{file} cannot be read: {reason}")]
    File {
        /// Its path.
        file: String,
        /// Why.
        reason: String,
    },
}

/// Most bytes of an attach file.
const MAX_FILE: u64 = 64 * 1024;

impl Attach {
    /// Reads what `--attach` or `RETRYSCOPE_ATTACH` says.
    pub fn read(text: &str) -> Result<Self, AttachError> {
        let text = text.trim();
        if Path::new(text).is_file() {
            return Self::pairs(&file_pairs(text)?);
        }
        if !text.contains('=') {
            let is_path = text.contains(['/', '.']);
            return Err(if is_path {
                AttachError::NoFile(sanitize(text))
            } else {
                AttachError::Neither(sanitize(text))
            });
        }
        let pairs: Vec<_> = text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).collect();
        Self::pairs(&pairs)
    }

    /// The flag that names these services, quoted for a shell.
    pub fn flag(&self) -> String {
        format!("--attach {}", shell_quoted(&self.to_string()))
    }

    fn pairs(pairs: &[impl AsRef<str>]) -> Result<Self, AttachError> {
        let mut named: Vec<Named> = Vec::new();
        for pair in pairs {
            let pair = pair.as_ref();
            let wrong = |right: &str| AttachError::Pair {
                pair: sanitize(pair),
                right: right.to_owned(),
            };
            let (service, control) = pair
                .split_once('=')
                .ok_or_else(|| wrong("write SERVICE=CONTROL_ADDR"))?;
            let service = service.trim().to_owned();
            if !crate::chain_line::is_name(&service) {
                return Err(wrong("what stands before = is no service's name"));
            }
            let control: Address = control
                .parse()
                .map_err(|error: chassis::address::AddressError| wrong(&error.to_string()))?;
            if named.iter().any(|other| other.service == service) {
                return Err(AttachError::Twice(service));
            }
            named.push(Named { service, control });
        }
        if (2..=MAX_SERVICES_ATTACHED).contains(&named.len()) {
            Ok(Self::Named(named))
        } else {
            Err(AttachError::Count(named.len()))
        }
    }

    /// The control ports to ask, each with the name it is expected to have.
    pub fn ports(&self) -> Vec<(Option<&str>, Address)> {
        match self {
            Self::Named(named) => named
                .iter()
                .map(|named| (Some(named.service.as_str()), named.control.clone()))
                .collect(),
            Self::Default => CONTROL_PORTS
                .map(|port| {
                    (
                        None,
                        Address::from(std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
                    )
                })
                .to_vec(),
        }
    }
}

/// A file's pairs: `SERVICE = "CONTROL_ADDR"` as TOML, what `up --ready-file` writes.
fn file_pairs(path: &str) -> Result<Vec<String>, AttachError> {
    let failed = |reason: &dyn fmt::Display| AttachError::File {
        file: sanitize(path),
        reason: sanitize(&reason.to_string()),
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    file.take(MAX_FILE)
        .read_to_string(&mut text)
        .map_err(|error| failed(&error))?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| failed(&error.message()))?;
    let pairs = table.iter().map(|(service, control)| match control.as_str() {
        Some(control) => Ok(format!("{service}={control}")),
        None => Err(failed(&format!("{service} is no \"host:port\""))),
    });
    pairs.collect()
}

impl fmt::Display for Attach {
    /// Writes what [`Attach::read`] reads; nothing for the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Named(named) = self else { return Ok(()) };
        let pairs: Vec<_> = named
            .iter()
            .map(|named| format!("{}={}", named.service, named.control))
            .collect();
        f.write_str(&pairs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_as_written() {
        let text = "web=127.0.0.1:50061,db=inventory:50064";
        let attach = Attach::read(text).unwrap();
        assert_eq!(attach.to_string(), text);
        assert_eq!(Attach::read(" web = 127.0.0.1:50061 , db=inventory:50064,"), Ok(attach));
    }

    #[test]
    fn a_file_holds_the_same() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# up\nweb = \"127.0.0.1:50061\"\ndb = \"[::1]:50064\"\n").unwrap();
        let attach = Attach::read(file.path().to_str().unwrap()).unwrap();
        assert_eq!(attach.ports().len(), 2);
        std::fs::write(file.path(), "web = 3").unwrap();
        let error = Attach::read(file.path().to_str().unwrap()).unwrap_err();
        assert!(error.to_string().contains("web"), "{error}");
    }

    #[test]
    fn each_mistake_is_named() {
        for (text, named) in [
            ("web", "neither"),
            ("/nowhere/at/all", "no file"),
            ("web=127.0.0.1", "host:port"),
            ("web=1:1,web=1:2", "twice"),
            ("web=127.0.0.1:1", "named: 1"),
            ("=1:1,b=1:2", "name"),
            ("we\u{1b}b=1:1,b=1:2", "name"),
        ] {
            let error = Attach::read(text).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains('\u{1b}'), "{text}: {error}");
        }
    }
}
