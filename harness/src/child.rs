//! Processes that this one started. Each has a process group of its own: Ctrl-C at the terminal is for the harness, and a script
//! that starts the program it stands for is signalled together with it.

use rustix::process::{Pid, Signal, kill_process_group};
use std::ops::{Deref, DerefMut};

/// A child. Dropped, it is killed, with whatever it has started.
#[derive(Debug)]
pub struct Child(pub tokio::process::Child);

impl Child {
    /// Signals it and whatever it has started; nobody where it has ended and was waited for.
    pub fn signal(&self, signal: Signal) {
        // Only a child that was not waited for still owns its number.
        let group = self
            .0
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Deref for Child {
    type Target = tokio::process::Child;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Child {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
