//! The throttle and the budgets of one link, counted in thousandths.

use super::{choices::Choices, time::Span};
use crate::acting::APART_US;
use crate::topology::{Budget, Policy, Throttle};
use std::collections::VecDeque;

const ONE: i64 = 1_000;

/// What one caller has left for retries.
#[derive(Debug)]
pub(super) struct Limits {
    throttle: Option<Throttle>,
    tokens: u64,
    budget: Option<Budget>,
    /// Deposits and withdrawals, with the time when each is forgotten.
    window: VecDeque<(Span, i64)>,
    /// Attempts on their way or being worked on.
    pub(super) in_flight: u64,
    /// Retries from their decision to their end.
    pub(super) retrying: u64,
}

impl Limits {
    pub(super) fn new(policy: &Policy) -> Self {
        Self {
            throttle: policy.throttle,
            tokens: policy.throttle.map_or(0, |throttle| throttle.max_milli),
            budget: policy.budget,
            window: VecDeque::new(),
            in_flight: 0,
            retrying: 0,
        }
    }

    /// A call begins.
    pub(super) fn deposit(&mut self, now: Span) {
        if let Some(Budget::Window {
            ratio_milli, ttl_us, ..
        }) = self.budget
        {
            let ratio = i64::try_from(ratio_milli).unwrap_or(i64::MAX);
            self.window.push_back((now.after(ttl_us), ratio));
        }
    }

    /// A call ended OK.
    pub(super) fn reward(&mut self) {
        if let Some(throttle) = self.throttle {
            self.tokens = (self.tokens + throttle.ratio_milli).min(throttle.max_milli);
        }
    }

    /// An attempt failed.
    pub(super) fn punish(&mut self) {
        self.tokens = self.tokens.saturating_sub(1_000);
    }

    /// Whether so many tokens are left that there may be retries.
    pub(super) fn is_open(&self) -> bool {
        self.throttle
            .is_none_or(|throttle| 2 * self.tokens > throttle.max_milli)
    }

    /// A retry that was paid for is never sent: its own price comes back.
    pub(super) fn give_back(&mut self, paid: Span) {
        if let Some(place) = self.window.iter().rposition(|entry| *entry == (paid, -ONE)) {
            self.window.remove(place);
        }
    }

    /// Takes the price of a retry, if there is enough, and answers when that will be forgotten.
    pub(super) fn withdraw(&mut self, now: Span, choices: &mut Choices) -> Option<Span> {
        match self.budget {
            None => Some(now),
            Some(Budget::InFlight {
                percent_milli,
                min_concurrency,
            }) => {
                let limit = (percent_milli * self.in_flight / 100_000).max(min_concurrency);
                (self.retrying < limit).then_some(now)
            }
            Some(Budget::Window {
                reserve_milli, ttl_us, ..
            }) => {
                while self.window.front().is_some_and(|(ends, _)| ends.hi + APART_US < now.lo) {
                    self.window.pop_front();
                }
                let reserve = i64::try_from(reserve_milli).unwrap_or(i64::MAX / 4);
                let (mut least, mut most) = (reserve, reserve);
                for (ends, amount) in &self.window {
                    let may_be_over = ends.lo <= now.hi + APART_US;
                    least += if may_be_over { (*amount).min(0) } else { *amount };
                    most += if may_be_over { (*amount).max(0) } else { *amount };
                }
                let allowed = match (least >= ONE, most >= ONE) {
                    (true, _) => true,
                    (false, false) => false,
                    (false, true) => choices.choose(2) == 0,
                };
                let ends = now.after(ttl_us);
                allowed.then(|| {
                    self.window.push_back((ends, -ONE));
                    ends
                })
            }
        }
    }
}
