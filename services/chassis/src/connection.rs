//! What an arrival knows of the connection it came on, and the three things that its answer may ask of it instead of being
//! sent. `listen` owns the connection and obeys; no layer touches a socket.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::Notify;

/// Rides on an answer and is done in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// This stream is reset with an HTTP/2 error code; the connection lives on.
    ResetStream(h2::Reason),
    /// The connection ends, with everything on it.
    End(End),
}

/// How a connection ends without answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its TCP connection is reset.
    Reset,
    /// A GOAWAY goes out that covers every stream on it, then it is closed.
    GoAway,
}

/// A connection, as the arrivals on it know it.
#[derive(Debug, Clone, Default)]
pub struct Connection(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    end: OnceLock<End>,
    asked: Notify,
    /// Turns true when the port closes; shared by all connections that it had accepted.
    port_closed: Arc<AtomicBool>,
}

impl Connection {
    /// A connection that a port accepted, and that is cut when `port_closed` turns true.
    pub fn of_port(port_closed: &Arc<AtomicBool>) -> Self {
        Self(Arc::new(Shared {
            port_closed: Arc::clone(port_closed),
            ..Shared::default()
        }))
    }

    /// Asks for its end. Who asks first says how.
    pub fn end(&self, end: End) {
        if self.0.end.set(end).is_ok() {
            self.0.asked.notify_one();
        }
    }

    /// How it ends, if it does.
    pub fn ends(&self) -> Option<End> {
        self.0.end.get().copied()
    }

    /// Waits until somebody has asked for its end. For the one who owns it.
    pub async fn asked(&self) -> End {
        loop {
            if let Some(end) = self.ends() {
                return end;
            }
            self.0.asked.notified().await;
        }
    }

    /// Whether this side ended it: whoever is still on it did not leave, but was cut.
    pub fn is_cut(&self) -> bool {
        self.ends().is_some() || self.0.port_closed.load(Ordering::Relaxed)
    }
}
