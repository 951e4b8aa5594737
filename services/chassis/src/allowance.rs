//! What one caller may still retry: gRPC's retry tokens, and the two budgets. The arithmetic is in integer thousandths, pure,
//! with the clock handed in; [`Allowance`] shares it between the calls of a process, [`Place`] gives back what it took.

use crate::policy::{Budget, Policy, Throttle};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Thousandths of one token, and of one retry.
const ONE_MILLI: u32 = 1_000;

/// gRPC's retry tokens (gRFC A6). Starts full; there are retries only while more than half is left.
#[derive(Debug)]
pub struct Bucket {
    throttle: Throttle,
    left_milli: u32,
}

impl Bucket {
    /// A full one.
    pub fn full(throttle: Throttle) -> Self {
        Self {
            throttle,
            left_milli: throttle.max_milli,
        }
    }

    /// A failure takes one token.
    pub fn fail(&mut self) {
        self.left_milli = self.left_milli.saturating_sub(ONE_MILLI);
    }

    /// A call that ended OK gives `token_ratio`.
    pub fn succeed(&mut self) {
        let given = self.left_milli.saturating_add(self.throttle.ratio_milli);
        self.left_milli = given.min(self.throttle.max_milli);
    }

    /// Whether there are retries: strictly above half.
    pub fn is_open(&self) -> bool {
        self.left_milli * 2 > self.throttle.max_milli
    }
}

/// Envoy's budget: what is under way now.
#[derive(Debug)]
pub struct InFlight {
    percent_milli: u32,
    min_concurrency: u32,
    /// Attempts under way, those of retries included, calls in their back-off not.
    attempts: u64,
    /// Retries from their decision to the end of their attempt.
    retries: u64,
}

impl InFlight {
    /// Nothing under way.
    pub fn new(percent_milli: u32, min_concurrency: u32) -> Self {
        Self {
            percent_milli,
            min_concurrency,
            attempts: 0,
            retries: 0,
        }
    }

    /// An attempt goes out.
    pub fn send(&mut self) {
        self.attempts += 1;
    }

    /// An attempt has ended.
    pub fn end(&mut self) {
        self.attempts -= 1;
    }

    /// Whether one more retry is allowed; it is active from here on.
    pub fn retry(&mut self) -> bool {
        let share = self.attempts * u64::from(self.percent_milli) / 100_000;
        let is_allowed = self.retries < share.max(self.min_concurrency.into());
        self.retries += u64::from(is_allowed);
        is_allowed
    }

    /// A retry is no longer active.
    pub fn end_retry(&mut self) {
        self.retries -= 1;
    }
}

/// Deposits and withdrawals that are remembered one by one. Beyond, the newest share an entry: they are forgotten together, a
/// little late.
const MAX_ENTRIES: usize = 1 << 20;

/// Finagle's budget: what came in and went out within `ttl`. Each deposit and each withdrawal is forgotten at its own time,
/// where tower's and Finagle's own count in slots.
#[derive(Debug)]
pub struct Window {
    deposit_milli: i64,
    reserve_milli: i64,
    ttl: Duration,
    /// When, and how much; the oldest first.
    entries: VecDeque<(Instant, i64)>,
    sum_milli: i64,
}

impl Window {
    /// Nothing but the reserve.
    pub fn new(ratio_milli: u32, min_per_second: u32, ttl: Duration) -> Self {
        // Per second times nanoseconds is 10^-9 of a retry.
        let reserve = u128::from(min_per_second) * ttl.as_nanos() / 1_000_000;
        Self {
            deposit_milli: ratio_milli.into(),
            reserve_milli: i64::try_from(reserve).unwrap_or(i64::MAX / 2),
            ttl,
            entries: VecDeque::new(),
            sum_milli: 0,
        }
    }

    /// A call deposits before its first attempt.
    pub fn deposit(&mut self, now: Instant) {
        self.forget(now);
        self.enter(now, self.deposit_milli);
    }

    /// A retry costs exactly one; `false` where there is less.
    pub fn withdraw(&mut self, now: Instant) -> bool {
        self.forget(now);
        let is_allowed = self.reserve_milli + self.sum_milli >= ONE_MILLI.into();
        if is_allowed {
            self.enter(now, -i64::from(ONE_MILLI));
        }
        is_allowed
    }

    /// Takes back the withdrawal of a retry that was not sent after all.
    pub fn take_back(&mut self, withdrawn: Instant) {
        let entry = (withdrawn, -i64::from(ONE_MILLI));
        if let Some(place) = self.entries.iter().rposition(|other| *other == entry) {
            self.entries.remove(place);
            self.sum_milli += i64::from(ONE_MILLI);
        }
    }

    fn enter(&mut self, now: Instant, milli: i64) {
        if milli == 0 {
            return;
        }
        self.sum_milli += milli;
        if self.entries.len() >= MAX_ENTRIES
            && let Some(newest) = self.entries.back_mut()
        {
            *newest = (now, newest.1 + milli);
        } else {
            self.entries.push_back((now, milli));
        }
    }

    fn forget(&mut self, now: Instant) {
        while let Some((at, milli)) = self.entries.front().copied()
            && now.saturating_duration_since(at) >= self.ttl
        {
            self.entries.pop_front();
            self.sum_milli -= milli;
        }
    }
}

/// What all calls of a process to its callee share, under one generation of settings.
#[derive(Debug, Default)]
pub struct Allowance {
    throttle: Option<Mutex<Bucket>>,
    budget: Option<Mutex<Spending>>,
}

#[derive(Debug)]
enum Spending {
    InFlight(InFlight),
    Window(Window),
}

impl Allowance {
    /// Nothing spent yet.
    pub fn of(policy: &Policy) -> Arc<Self> {
        let budget = policy.budget.map(|budget| match budget {
            Budget::InFlight {
                percent_milli,
                min_concurrency,
            } => Spending::InFlight(InFlight::new(percent_milli, min_concurrency)),
            Budget::Window {
                ratio_milli,
                min_per_second,
                ttl,
            } => Spending::Window(Window::new(ratio_milli, min_per_second, ttl)),
        });
        Arc::new(Self {
            throttle: policy.throttle.map(|throttle| Mutex::new(Bucket::full(throttle))),
            budget: budget.map(Mutex::new),
        })
    }

    /// A failure takes one token; answers whether there are retries with what is left.
    pub fn fail(&self) -> bool {
        let Some(bucket) = &self.throttle else { return true };
        let mut bucket = lock(bucket);
        bucket.fail();
        bucket.is_open()
    }

    /// Whether the tokens allow retries.
    pub fn is_open(&self) -> bool {
        self.throttle.as_ref().is_none_or(|bucket| lock(bucket).is_open())
    }

    /// A call ended OK.
    pub fn succeed(&self) {
        if let Some(bucket) = &self.throttle {
            lock(bucket).succeed();
        }
    }

    /// The place of a call's first attempt, which no budget limits.
    pub fn first(self: &Arc<Self>) -> Place {
        Place {
            allowance: Arc::clone(self),
            retry: None,
            is_sent: false,
        }
    }

    /// A place for one more retry, unless the budget is spent. It is paid for at once and given back when it is not used.
    pub fn retry(self: &Arc<Self>, now: Instant) -> Option<Place> {
        let is_allowed = self.budget.as_ref().is_none_or(|budget| match &mut *lock(budget) {
            Spending::InFlight(in_flight) => in_flight.retry(),
            Spending::Window(window) => window.withdraw(now),
        });
        is_allowed.then(|| Place {
            allowance: Arc::clone(self),
            retry: Some(now),
            is_sent: false,
        })
    }

    fn spend(&self, change: impl FnOnce(&mut Spending)) {
        if let Some(budget) = &self.budget {
            change(&mut lock(budget));
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every update above leaves the figures whole, so a panic elsewhere spoils nothing.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place that one attempt takes, from its decision to its end, however it ends.
#[derive(Debug)]
pub struct Place {
    allowance: Arc<Allowance>,
    /// When it was decided; `None` for the first attempt of a call.
    retry: Option<Instant>,
    is_sent: bool,
}

impl Place {
    /// The attempt goes out: from here on it counts, and what was paid for it is gone.
    pub fn send(&mut self, now: Instant) {
        self.is_sent = true;
        let is_first = self.retry.is_none();
        self.allowance.spend(|spending| match spending {
            Spending::InFlight(in_flight) => in_flight.send(),
            Spending::Window(window) if is_first => window.deposit(now),
            Spending::Window(_) => {}
        });
    }

    /// The place of the retry that follows this attempt, unless the budget is spent. As in Envoy 1.40 (measured: of 5 attempts
    /// that fail together a fifth allows none), this attempt has left those in flight when that is decided.
    pub fn again(mut self, now: Instant) -> Option<Self> {
        self.end();
        self.allowance.retry(now)
    }

    fn end(&mut self) {
        self.end_retry();
        if std::mem::take(&mut self.is_sent) {
            self.allowance.spend(|spending| {
                if let Spending::InFlight(in_flight) = spending {
                    in_flight.end();
                }
            });
        }
    }

    fn end_retry(&mut self) {
        let Some(decided) = self.retry.take() else { return };
        let is_sent = self.is_sent;
        self.allowance.spend(|spending| match spending {
            Spending::InFlight(in_flight) => in_flight.end_retry(),
            Spending::Window(window) if !is_sent => window.take_back(decided),
            Spending::Window(_) => {}
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
