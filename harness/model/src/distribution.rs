//! How often how many calls of one request arrive at a service, where each arrival fails with a chance of its own.
//!
//! For every way a call can end, [`Series`] holds the chance of that end together with each number of arrivals at one
//! service: coefficient n belongs to n arrivals. Calls one after another multiply, alternatives add up. The loop of a
//! caller is a geometric sum, so its cost does not grow with its attempts. Coefficients beyond [`MOST_COUNTS`] and chances
//! too small to be seen are dropped; those that stay are exact, because a coefficient depends on lower ones alone.
//!
//! Not here: mean and deviation (`chance` has them for any number of arrivals), a `first` beside the chance, and whatever
//! needs the clock.

use crate::acting::{acting, needs_clock};
use crate::chain::{Chain, First, Hop, Trouble};
use crate::chance;
use crate::ended::Ended;
use crate::topology::{Code, Topology};
use std::collections::BTreeMap;
use std::ops::{AddAssign, Mul};

/// The most different counts of one service that are told apart.
const MOST_COUNTS: usize = 1_000;
/// A chance so small that a thousand of them are still nothing.
const UNSEEN: f64 = 1e-18;

/// How often how many arrive at a service for one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// The chance of each count from 0 on.
    chances: Vec<f64>,
    /// Whether larger counts have a chance worth a word too.
    is_cut: bool,
}

impl Distribution {
    /// Each count with its chance, the smallest first, without chances below 1e-15; `None` where there are more counts than
    /// are told apart.
    pub fn counts(&self) -> Option<impl Iterator<Item = (u64, f64)>> {
        const SEEN: f64 = 1e-15;
        let counts = (0..).zip(self.chances.iter().copied());
        (!self.is_cut).then(|| counts.filter(|(_, chance)| *chance >= SEEN))
    }

    /// The smallest count that this share of the requests, from 0 to 1, does not exceed; `None` where it is not among those
    /// that are told apart.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        /// What a sum of a thousand rounded chances may be off by.
        const ROUNDING: f64 = 1e-12;
        let mut sum = 0.0;
        (0..).zip(&self.chances).find_map(|(count, chance)| {
            sum += chance;
            (sum >= share - ROUNDING).then_some(count)
        })
    }
}

/// The distribution at every service, the top one first; `None` where nothing is drawn, or where the counts depend on more
/// than the draws of one request.
pub fn distributions(topology: &Topology) -> Vec<Option<Distribution>> {
    let acts = acting(topology);
    let chain = chance::without_endless_firsts(&Chain::new(&acts));
    let is_free = chain.hops.iter().all(|hop| hop.trouble.first() == First::Every);
    if needs_clock(&acts) || !chain.draws() || !is_free {
        return vec![None; topology.services.len()];
    }
    // What happens below a service only ends there one way or another.
    let mut below: Vec<Option<Ends>> = vec![None; chain.hops.len()];
    for hop in (1..chain.hops.len()).rev() {
        let call = call(&chain, hop, below[hop].as_ref(), false);
        below[hop - 1] = Some(asked(&chain.hops[hop - 1], &call));
    }
    let at = |target: usize| {
        let mut ends = call(&chain, target, below[target].as_ref(), true);
        for hop in (0..target).rev() {
            ends = call(&chain, hop, Some(&asked(&chain.hops[hop], &ends)), false);
        }
        let whole = sum(ends.values());
        Distribution {
            chances: whole.chances,
            is_cut: whole.is_cut,
        }
    };
    (0..chain.hops.len()).map(|target| Some(at(target))).collect()
}

/// How a call or an attempt can end, and the arrivals with it.
type Ends = BTreeMap<Ended, Series>;

/// A call of this hop, whose service's own calls end like `below`; the bottom makes none. Where it is counted, each arrival
/// at that service is one.
fn call(chain: &Chain, hop: usize, below: Option<&Ends>, is_counted: bool) -> Ends {
    let caller = &chain.hops[hop].caller;
    let attempt = attempt(&chain.hops[hop], below, chain.bottom_answer(), is_counted);
    let again = attempt.iter().filter(|(ended, _)| caller.tries_again(**ended));
    let again = sum(again.map(|(_, series)| series));
    let attempts = u64::from(caller.attempts.max(1));
    let before_last = again.powers_below(attempts - 1);
    let to_last = again.power(attempts - 1);
    let mut ends = Ends::new();
    for (ended, series) in &attempt {
        let up = ends.entry(caller.hands_up(*ended)).or_default();
        if !caller.tries_again(*ended) {
            *up += &(&before_last * series);
        }
        *up += &(&to_last * series);
    }
    ends
}

/// All calls that an arrival makes: OK when all of them are, otherwise the failure of the first that failed. Behind it nothing
/// more is called in sequence, and everything in parallel.
fn asked(service: &Hop, call: &Ends) -> Ends {
    if service.calls <= 1 {
        return call.clone();
    }
    let is_ok = |ended: &Ended| !ended.code.is_failure();
    let behind = if service.is_parallel {
        sum(call.values())
    } else {
        Series::always()
    };
    let ok = sum(call.iter().filter(|(ended, _)| is_ok(ended)).map(|(_, series)| series));
    // Nothing has failed among so many calls; and something has, with the factor of how it failed left out.
    let (mut all_ok, mut failed) = (Series::always(), Series::default());
    for _ in 0..service.calls {
        failed = &failed * &behind;
        failed += &all_ok;
        all_ok = &all_ok * &ok;
    }
    let mut ends: Ends = call
        .iter()
        .filter(|(ended, _)| !is_ok(ended))
        .map(|(ended, series)| (*ended, &failed * series))
        .collect();
    ends.insert(Code::OK.into(), all_ok);
    ends
}

/// One attempt: its arrival fails, or its service works.
fn attempt(hop: &Hop, below: Option<&Ends>, bottom: Ended, is_counted: bool) -> Ends {
    let arrives = if is_counted {
        Series::one_more()
    } else {
        Series::always()
    };
    let mut ends = Ends::new();
    let mut add = |ended: Ended, series: &Series| *ends.entry(ended).or_default() += series;
    let (fails, after, failed) = match hop.trouble {
        Trouble::Refuse => {
            add(Ended::REFUSED, &Series::always());
            return ends;
        }
        Trouble::None => (0.0, false, Ended::REFUSED),
        Trouble::Fail {
            ended, after, chance, ..
        } => (chance.unwrap_or(1.0), after, ended),
    };
    if !after {
        add(failed, &arrives.times(fails));
    }
    let works = arrives.times(if after { 1.0 } else { 1.0 - fails });
    let own = below
        .cloned()
        .unwrap_or_else(|| Ends::from([(bottom, Series::always())]));
    for (ended, series) in own {
        let series = &works * &series;
        let answer = ended.translated(hop.on_failure.filter(|_| below.is_some()));
        if after && !answer.code.is_failure() {
            add(failed, &series.times(fails));
            add(answer, &series.times(1.0 - fails));
        } else {
            add(answer, &series);
        }
    }
    ends
}

/// Alternatives.
fn sum<'a>(alternatives: impl Iterator<Item = &'a Series>) -> Series {
    let mut sum = Series::default();
    alternatives.for_each(|series| sum += series);
    sum
}

/// Chances by a count, from 0 on. None is negative, and they add up to 1 at most.
#[derive(Debug, Clone, Default, PartialEq)]
struct Series {
    chances: Vec<f64>,
    /// Whether something beyond [`MOST_COUNTS`] was dropped.
    is_cut: bool,
}

impl Series {
    /// Certain, and nothing counts.
    fn always() -> Self {
        Self::of(vec![1.0], false)
    }

    /// Certain, and one counts.
    fn one_more() -> Self {
        Self::of(vec![0.0, 1.0], false)
    }

    fn of(mut chances: Vec<f64>, is_cut: bool) -> Self {
        let is_cut = is_cut || chances.len() > MOST_COUNTS + 1;
        chances.truncate(MOST_COUNTS + 1);
        while chances.last().is_some_and(|chance| *chance < UNSEEN) {
            chances.pop();
        }
        Self { chances, is_cut }
    }

    fn times(&self, chance: f64) -> Self {
        Self::of(self.chances.iter().map(|known| known * chance).collect(), self.is_cut)
    }

    /// So many times one after another.
    fn power(&self, mut times: u64) -> Self {
        let (mut product, mut square) = (Self::always(), self.clone());
        while times > 0 {
            if times % 2 == 1 {
                product = &product * &square;
            }
            times /= 2;
            if times > 0 {
                square = &square * &square;
            }
        }
        product
    }

    /// Never, once, twice, and so on, below so many times: by doubling, since the first `2n` powers are the first `n` and the
    /// `n`th times these.
    fn powers_below(&self, times: u64) -> Self {
        let mut sum = Self::default();
        for bit in (0..u64::BITS - times.leading_zeros()).rev() {
            let half = times >> bit >> 1;
            let upper = &self.power(half) * &sum;
            sum += &upper;
            if times >> bit & 1 == 1 {
                sum += &self.power(2 * half);
            }
        }
        sum
    }
}

impl AddAssign<&Self> for Series {
    fn add_assign(&mut self, other: &Self) {
        if self.chances.len() < other.chances.len() {
            self.chances.resize(other.chances.len(), 0.0);
        }
        for (chance, more) in self.chances.iter_mut().zip(&other.chances) {
            *chance += more;
        }
        self.is_cut |= other.is_cut;
    }
}

impl Mul for &Series {
    type Output = Series;

    fn mul(self, other: Self) -> Series {
        let length = (self.chances.len() + other.chances.len()).saturating_sub(1);
        let kept = length.min(MOST_COUNTS + 1);
        let mut chances = vec![0.0; kept];
        for (place, chance) in self.chances.iter().enumerate().filter(|(_, chance)| **chance > 0.0) {
            for (product, other) in chances[place.min(kept)..].iter_mut().zip(&other.chances) {
                *product += chance * other;
            }
        }
        let is_empty = self.chances.is_empty() || other.chances.is_empty();
        let is_cut = !is_empty && (self.is_cut || other.is_cut || length > kept);
        Series::of(chances, is_cut)
    }
}
