//! A witness of lateness. Counts that hang on timers are only as good as the clock of the process that set them: a task that
//! wants to run every few milliseconds remembers when it came late, because the machine or the process was busy elsewhere.

use crate::call::{micros, monotonic_us};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Time between two looks at the clock.
const TICK: Duration = Duration::from_millis(5);
/// Lateness that is nothing: the timer itself counts in whole milliseconds.
const TOLERATED: Duration = Duration::from_millis(2);
/// Stalls that are remembered; older ones are forgotten first.
const REMEMBERED: usize = 1_024;

/// A tick that came late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// When it came, in microseconds of the machine's monotonic clock.
    pub at_us: u64,
    /// How late it was: nothing ran in this process for so long before.
    pub late_us: u64,
}

/// What one process remembers of its stalls.
#[derive(Debug, Default)]
pub struct Stalls(Mutex<VecDeque<Stall>>);

impl Stalls {
    /// Watches the clock from here on, on the runtime of whoever calls, until what is returned is dropped.
    pub fn watch() -> Arc<Self> {
        let stalls = Arc::new(Self::default());
        let witness = Arc::downgrade(&stalls);
        tokio::spawn(async move {
            loop {
                let due_us = monotonic_us() + micros(TICK);
                tokio::time::sleep(TICK).await;
                let Some(stalls) = witness.upgrade() else { return };
                stalls.tick(due_us, monotonic_us());
            }
        });
        stalls
    }

    fn tick(&self, due_us: u64, at_us: u64) {
        let late_us = at_us.saturating_sub(due_us);
        if late_us <= micros(TOLERATED) {
            return;
        }
        let mut stalls = self.stalls();
        if stalls.len() == REMEMBERED {
            stalls.pop_front();
        }
        stalls.push_back(Stall { at_us, late_us });
    }

    fn stalls(&self) -> MutexGuard<'_, VecDeque<Stall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stalls that are remembered, oldest first.
    pub fn read(&self) -> Vec<Stall> {
        self.stalls().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_late_by_more_than_two_milliseconds_or_not_at_all() {
        let stalls = Stalls::default();
        stalls.tick(10_000, 9_000);
        stalls.tick(10_000, 12_000);
        stalls.tick(20_000, 22_001);
        let late = Stall {
            at_us: 22_001,
            late_us: 2_001,
        };
        assert_eq!(stalls.read(), [late]);
    }

    #[test]
    fn the_newest_thousand_are_remembered() {
        let stalls = Stalls::default();
        for at in 1..=REMEMBERED as u64 + 10 {
            stalls.tick(0, at * 1_000_000);
        }
        let read = stalls.read();
        assert_eq!((read.len(), read[0].at_us), (REMEMBERED, 11_000_000));
    }

    #[tokio::test]
    async fn a_process_that_was_held_up_says_so() {
        let stalls = Stalls::watch();
        // The witness waits for its tick when the thread is taken away.
        tokio::task::yield_now().await;
        let before_us = monotonic_us();
        std::thread::sleep(Duration::from_millis(40));
        while !stalls.read().iter().any(|stall| stall.at_us > before_us) {
            tokio::task::yield_now().await;
        }
        let longest = stalls.read().iter().map(|stall| stall.late_us).max();
        assert!(longest >= Some(30_000), "{longest:?}");
    }
}
