//! `host:port`, where the host is a name or an IP address: what can be called, and what a span says was called.

use std::{fmt, net::SocketAddr, str::FromStr};
use thiserror::Error;

/// A host and a port. An IPv6 host stands in brackets when written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// 1 to 65535.
    pub port: u16,
}

/// A text that is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("write host:port, as in 127.0.0.1:50051 or inventory:50054")]
pub struct AddressError;

/// Longest name in the domain name system (RFC 1035).
const MAX_HOST: usize = 253;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) = text.trim().rsplit_once(':').ok_or(AddressError)?;
        let plain = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port
            .parse()
            .ok()
            .filter(|port| plain && *port > 0)
            .ok_or(AddressError)?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
            Some(_) => return Err(AddressError),
            None => host,
        };
        let is_name = |host: &str| {
            !host.is_empty()
                && host.len() <= MAX_HOST
                && host
                    .chars()
                    .all(|each| each.is_ascii_alphanumeric() || matches!(each, '.' | '-' | '_'))
        };
        if is_name(host) || host.parse::<std::net::Ipv6Addr>().is_ok() {
            let host = host.to_owned();
            Ok(Self { host, port })
        } else {
            Err(AddressError)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl Address {
    /// Whether it surely leads nowhere but to this machine.
    pub fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_written() {
        for text in ["127.0.0.1:1", "inventory:50054", "[::1]:65535", "a.b-c_d:80"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert!("[::1]:1".parse::<Address>().unwrap().is_loopback());
        assert!(!"inventory:1".parse::<Address>().unwrap().is_loopback());
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "x",
            "x:",
            ":1",
            "x:0",
            "x:65536",
            "x:+1",
            "a b:1",
            "[x]:1",
            "http://x:1",
            "x:1/",
        ] {
            assert_eq!(text.parse::<Address>(), Err(AddressError), "{text}");
        }
    }
}
