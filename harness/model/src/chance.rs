//! Arrivals that fail with a chance: mean, deviation, and the smallest and largest count that any draws can give.
//!
//! One recursion over the hops. For every way a call can end it keeps a [`Spread`]: the chance of that end and, given
//! that end, mean, variance, smallest and largest value of each count. Attempts of a call are independent, so spreads
//! one after the other add up; alternatives mix by their chances. This is the recursion behind the textbook's closed
//! form, for any number of failing services and for any code. Means and variances are carried given the end, and never
//! as raw second moments, so that nothing is lost where a count hardly varies.
//!
//! A `first` beside the chances makes the state part of the end: the recursion then runs over the arrivals each `first`
//! has left. That is exact too and can be large; [`MOST_STEPS`] ends it, and the answer is then `None`.

use crate::chain::{Chain, First, Trouble, What};
use crate::count::Count;
use crate::ended::Ended;
use crate::topology::Code;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What is known of one count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) mean: f64,
    pub(crate) variance: f64,
    pub(crate) min: Count,
    pub(crate) max: Count,
}

impl Moment {
    const ZERO: Self = Self::certain(0.0, Count::ZERO);

    const fn certain(mean: f64, count: Count) -> Self {
        Self {
            mean,
            variance: 0.0,
            min: count,
            max: count,
        }
    }

    /// So many independent repetitions.
    pub(crate) fn times(self, times: u64) -> Self {
        Self {
            mean: self.mean * times as f64,
            variance: self.variance * times as f64,
            min: self.min * times.into(),
            max: self.max * times.into(),
        }
    }
}

/// The most single moments one prediction may compute: about a tenth of a second of an optimised build.
const MOST_STEPS: u64 = 4_000_000;
/// The most states that are tried at all: more would run into [`MOST_STEPS`] anyway.
const MOST_STATES: u64 = 4_096;

/// The moments of a run's counts and of one request's; `None` if there are too many states.
///
/// With `first` counting over the process, requests come one after another. One request's smallest and largest counts are
/// then those of any request, its mean and variance those of the first.
pub(crate) fn run(chain: &Chain) -> Option<(Vec<Moment>, Vec<Moment>)> {
    let mut recursion = Recursion::new(chain);
    let fresh = recursion.fresh.clone();
    let states = fresh
        .iter()
        .try_fold(1_u64, |states, first| states.checked_mul(first.checked_add(1)?))?;
    if states > MOST_STATES {
        return None;
    }
    let mut one = whole(recursion.request(&fresh)?);
    if chain.process_counters().is_empty() {
        let total = one.moments.iter().map(|moment| moment.times(chain.requests)).collect();
        return Some((total, one.moments));
    }
    let mut alive = BTreeMap::from([(fresh, Spread::nothing(chain, 0))]);
    let mut left = chain.requests;
    while left > 0 {
        let settled = alive.len() == 1 && alive.keys().all(|state| recursion.is_spent(state));
        let times = if settled { left } else { 1 };
        let mut next = BTreeMap::new();
        for (state, before) in alive {
            for (end, spread) in recursion.request(&state)? {
                recursion.count_step()?;
                for (one, moment) in one.moments.iter_mut().zip(&spread.moments) {
                    one.min = one.min.min(moment.min);
                    one.max = one.max.max(moment.max);
                }
                let spread = Spread {
                    moments: repeated(&spread.moments, times),
                    ..spread
                };
                mix(&mut next, end, before.then(&spread));
            }
        }
        alive = next;
        left -= times;
    }
    Some((whole(alive).moments, one.moments))
}

/// Smallest and largest counts of one request if every arrival within reach of a `first` or a chance may fail or not,
/// whatever came before. Means and variances of the answer mean nothing.
pub(crate) fn extent_of_free_choice(chain: &Chain) -> Vec<Moment> {
    const EITHER: f64 = 0.5;
    let mut free = chain.clone();
    for hop in &mut free.hops {
        if let Trouble::Fail { first, chance, .. } = &mut hop.trouble
            && *first != First::Every
        {
            *first = First::Every;
            *chance = Some(EITHER);
        }
    }
    let mut recursion = Recursion::new(&free);
    recursion.steps = None;
    let fresh = recursion.fresh.clone();
    let ends = recursion
        .request(&fresh)
        .expect("without a limit there is always an answer");
    whole(ends).moments
}

/// The chain without every `first` that cannot run out, however the draws fall.
pub(crate) fn without_endless_firsts(chain: &Chain) -> Chain {
    let mut simpler = chain.clone();
    if chain.hops.iter().all(|hop| hop.trouble.first() == First::Every) {
        return simpler;
    }
    let one = extent_of_free_choice(chain);
    for (number, hop) in simpler.hops.iter_mut().enumerate() {
        let most = one[chain.layout.at(number, What::Received)].max;
        let runs_out = match hop.trouble.first() {
            First::Every => false,
            First::OfRequest(first) => most > first.into(),
            First::OfProcess(first) => most * chain.requests.into() > first.into(),
        };
        if !runs_out {
            hop.trouble = hop.trouble.with_first(First::Every);
        }
    }
    simpler
}

/// The chance of one end and the counts given that end.
#[derive(Debug, Clone)]
struct Spread {
    chance: f64,
    /// The first slot: what happens at a hop counts at it and below, and everything before is zero.
    from: usize,
    moments: Vec<Moment>,
}

impl Spread {
    /// Nothing so far, at this hop and below.
    fn nothing(chain: &Chain, hop: usize) -> Self {
        // The first count of a hop is that of its calls.
        let from = if hop == 0 { 0 } else { chain.layout.at(hop, What::Calls) };
        Self {
            chance: 1.0,
            from,
            moments: vec![Moment::ZERO; chain.layout.len() - from],
        }
    }

    fn plus_one(mut self, slot: usize) -> Self {
        let moment = &mut self.moments[slot - self.from];
        moment.mean += 1.0;
        moment.min += Count::ONE;
        moment.max += Count::ONE;
        self
    }

    /// This, and then that, independent of each other; that happens here or further down.
    fn then(&self, next: &Self) -> Self {
        let mut moments = self.moments.clone();
        for (one, two) in moments[next.from - self.from..].iter_mut().zip(&next.moments) {
            one.mean += two.mean;
            one.variance += two.variance;
            one.min += two.min;
            one.max += two.max;
        }
        Self {
            chance: self.chance * next.chance,
            from: self.from,
            moments,
        }
    }

    /// This or that, at the same hop.
    fn or(&mut self, other: &Self) {
        debug_assert_eq!(self.from, other.from);
        let chance = self.chance + other.chance;
        // Chances that are too small for a number still leave their end possible.
        let share = if chance > 0.0 { other.chance / chance } else { 0.0 };
        for (one, two) in self.moments.iter_mut().zip(&other.moments) {
            let apart = two.mean - one.mean;
            one.variance = one.variance * (1.0 - share) + two.variance * share + apart * apart * share * (1.0 - share);
            one.mean += apart * share;
            one.min = one.min.min(two.min);
            one.max = one.max.max(two.max);
        }
        self.chance = chance;
    }
}

/// The arrivals that each counting `first` has left, by hop; 0 also where nothing counts.
type State = Rc<[u64]>;
/// How a call or an attempt can end.
type Ends = Rc<BTreeMap<(Ended, State), Spread>>;

struct Recursion<'a> {
    chain: &'a Chain,
    fresh: State,
    calls: BTreeMap<(usize, State), Ends>,
    attempts: BTreeMap<(usize, State), Ends>,
    /// All calls of one arrival, by the service that makes them.
    asked: BTreeMap<(usize, State), Ends>,
    /// The steps left; `None` without a limit.
    steps: Option<u64>,
}

impl<'a> Recursion<'a> {
    fn new(chain: &'a Chain) -> Self {
        let left = |hop: &crate::chain::Hop| match hop.trouble.first() {
            First::Every => 0,
            First::OfRequest(first) | First::OfProcess(first) => first,
        };
        Self {
            chain,
            fresh: chain.hops.iter().map(left).collect(),
            calls: BTreeMap::new(),
            attempts: BTreeMap::new(),
            asked: BTreeMap::new(),
            steps: Some(MOST_STEPS),
        }
    }

    /// Counts the combination of two spreads.
    fn count_step(&mut self) -> Option<()> {
        if let Some(steps) = &mut self.steps {
            *steps = steps.checked_sub(self.chain.layout.len() as u64)?;
        }
        Some(())
    }

    fn is_spent(&self, state: &State) -> bool {
        self.chain.process_counters().into_iter().all(|hop| state[hop] == 0)
    }

    /// One request: by the state it leaves behind, what it counts and how it ends.
    fn request(&mut self, state: &State) -> Option<BTreeMap<State, Spread>> {
        let layout = &self.chain.layout;
        let mut requests = BTreeMap::new();
        if self.chain.hops.is_empty() {
            let nothing = Spread::nothing(self.chain, 0);
            requests.insert(state.clone(), nothing.plus_one(layout.ended(Code::OK)));
            return Some(requests);
        }
        for ((ended, left), spread) in self.call(0, state)?.iter() {
            let renewed = |(hop, left): (usize, &u64)| match self.chain.hops[hop].trouble.first() {
                First::OfRequest(_) => self.fresh[hop],
                First::Every | First::OfProcess(_) => *left,
            };
            let left: State = left.iter().enumerate().map(renewed).collect();
            mix(&mut requests, left, spread.clone().plus_one(layout.ended(ended.code)));
        }
        Some(requests)
    }

    fn call(&mut self, hop: usize, state: &State) -> Option<Ends> {
        let key = (hop, state.clone());
        if let Some(known) = self.calls.get(&key) {
            return Some(known.clone());
        }
        let chain = self.chain;
        let caller = &chain.hops[hop].caller;
        let begun = Spread::nothing(chain, hop).plus_one(chain.layout.at(hop, What::Calls));
        let mut alive = BTreeMap::from([(state.clone(), begun)]);
        let mut ends = BTreeMap::new();
        for attempt in 1..=caller.attempts {
            let mut next = BTreeMap::new();
            for (state, before) in alive {
                for ((ended, left), spread) in self.attempt(hop, &state)?.iter() {
                    self.count_step()?;
                    let spread = before.then(spread);
                    if attempt < caller.attempts && caller.tries_again(*ended) {
                        mix(&mut next, left.clone(), spread);
                    } else {
                        mix(&mut ends, (caller.hands_up(*ended), left.clone()), spread);
                    }
                }
            }
            alive = next;
        }
        let ends = Rc::new(ends);
        self.calls.insert(key, ends.clone());
        Some(ends)
    }

    fn attempt(&mut self, hop: usize, state: &State) -> Option<Ends> {
        let key = (hop, state.clone());
        if let Some(known) = self.attempts.get(&key) {
            return Some(known.clone());
        }
        let layout = &self.chain.layout;
        let sent = Spread::nothing(self.chain, hop).plus_one(layout.at(hop, What::Sent));
        let received = sent
            .clone()
            .plus_one(layout.at(hop, What::Received))
            .plus_one(layout.arrivals());
        let mut ends = BTreeMap::new();
        match self.chain.hops[hop].trouble {
            Trouble::Refuse => {
                let lost = sent.plus_one(layout.at(hop, What::Lost));
                mix(&mut ends, (Ended::REFUSED, state.clone()), lost);
            }
            Trouble::None => self.work(hop, state, &received, None, &mut ends)?,
            Trouble::Fail {
                ended: failed,
                after,
                first,
                chance,
            } => {
                let in_range = first == First::Every || state[hop] > 0;
                let mut left = state.to_vec();
                left[hop] = left[hop].saturating_sub(1);
                let left: State = left.into();
                let fails = if in_range { chance.unwrap_or(1.0) } else { 0.0 };
                if in_range {
                    let failing = Spread {
                        chance: fails,
                        ..received.clone()
                    };
                    if after {
                        self.work(hop, &left, &failing, Some(failed), &mut ends)?;
                    } else {
                        let failing = if failed.by_transport {
                            failing.plus_one(layout.at(hop, What::Cut))
                        } else {
                            failing
                        };
                        mix(&mut ends, (failed, left.clone()), failing);
                    }
                }
                if !in_range || chance.is_some() {
                    let working = Spread {
                        chance: 1.0 - fails,
                        ..received
                    };
                    self.work(hop, &left, &working, None, &mut ends)?;
                }
            }
        }
        let ends = Rc::new(ends);
        self.attempts.insert(key, ends.clone());
        Some(ends)
    }

    /// All calls that an arrival makes. Parallel ones are independent of each other: no `first` counts below them.
    fn asked(&mut self, hop: usize, state: &State) -> Option<Ends> {
        let service = &self.chain.hops[hop];
        if service.calls == 1 {
            return self.call(hop + 1, state);
        }
        let key = (hop, state.clone());
        if let Some(known) = self.asked.get(&key) {
            return Some(known.clone());
        }
        let mut ends = BTreeMap::new();
        // Those that have not failed so far, and in parallel those that have.
        let mut alive = BTreeMap::from([(
            (Ended::from(Code::OK), state.clone()),
            Spread::nothing(self.chain, hop + 1),
        )]);
        for _ in 0..service.calls {
            let mut next = BTreeMap::new();
            for ((so_far, state), before) in alive {
                for ((ended, left), spread) in self.call(hop + 1, &state)?.iter() {
                    self.count_step()?;
                    let ended = if so_far.code.is_failure() { so_far } else { *ended };
                    let end = (ended, left.clone());
                    let goes_on = service.is_parallel || !ended.code.is_failure();
                    mix(if goes_on { &mut next } else { &mut ends }, end, before.then(spread));
                }
            }
            alive = next;
        }
        for (end, spread) in alive {
            mix(&mut ends, end, spread);
        }
        let ends = Rc::new(ends);
        self.asked.insert(key, ends.clone());
        Some(ends)
    }

    /// The service's own work, and a failure in place of its success if one is given.
    fn work(
        &mut self,
        hop: usize,
        state: &State,
        before: &Spread,
        failure: Option<Ended>,
        ends: &mut BTreeMap<(Ended, State), Spread>,
    ) -> Option<()> {
        let chain = self.chain;
        let mut end = |answer: Ended, state: State, spread: Spread| {
            if answer.code.is_failure() {
                mix(ends, (answer, state), spread);
            } else {
                let spread = spread.plus_one(chain.layout.at(hop, What::WorkDone));
                mix(ends, (failure.unwrap_or(answer), state), spread);
            }
        };
        if chain.is_bottom(hop) {
            end(chain.bottom_answer(), state.clone(), before.clone());
        } else {
            for ((ended, left), spread) in self.asked(hop, state)?.iter() {
                self.count_step()?;
                end(
                    ended.translated(chain.hops[hop].on_failure),
                    left.clone(),
                    before.then(spread),
                );
            }
        }
        Some(())
    }
}

fn mix<Key: Ord>(ends: &mut BTreeMap<Key, Spread>, key: Key, spread: Spread) {
    match ends.entry(key) {
        std::collections::btree_map::Entry::Occupied(mut known) => known.get_mut().or(&spread),
        std::collections::btree_map::Entry::Vacant(place) => {
            place.insert(spread);
        }
    }
}

/// All alternatives in one.
fn whole<Key: Ord>(ends: BTreeMap<Key, Spread>) -> Spread {
    let mut ends = ends.into_values();
    let mut whole = ends.next().expect("every request ends somehow");
    for end in ends {
        whole.or(&end);
    }
    whole
}

fn repeated(moments: &[Moment], times: u64) -> Vec<Moment> {
    moments.iter().map(|moment| moment.times(times)).collect()
}
