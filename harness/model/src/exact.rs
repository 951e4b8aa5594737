//! Exact counts where nothing is drawn, without walking the tree.
//!
//! As long as no `first` runs out, every call on one link sends the same and ends the same: its *profile*. The retry loop
//! applies the profile of an attempt as often as it can at once, and goes one level down only for the one attempt in
//! which some `first` runs out. That happens once per `first`, so the cost is a few passes over the hops, whatever the
//! counts are. Requests are handled in the same way, one level further up.

use crate::chain::{Chain, First, Hop, Trouble, What};
use crate::count::Count;
use crate::ended::Ended;
use crate::topology::Code;

/// The counts of a run, and what single requests of it look like.
pub(crate) struct Exact {
    /// Totals over the run.
    pub(crate) totals: Vec<Count>,
    /// The largest value of each count in one request.
    pub(crate) most: Vec<Count>,
    /// Whether all requests are alike.
    pub(crate) uniform: bool,
}

/// Counts a whole run, its requests one after another.
pub(crate) fn run(chain: &Chain) -> Exact {
    let mut walk = Walk::new(chain);
    let mut exact = Exact {
        totals: chain.layout.zeros(),
        most: chain.layout.zeros(),
        uniform: true,
    };
    let mut left = chain.requests;
    while left > 0 {
        walk.begin_request();
        let mut frozen = walk.with_process_counters_frozen();
        let mut request = frozen.request();
        let mut times = walk.process_repeats(&request).min(left);
        if times == 0 {
            request = walk.request();
            times = 1;
        } else {
            walk.spend_process(&request, times);
        }
        exact.uniform &= times == chain.requests;
        left -= times;
        add(&mut exact.totals, &request, times);
        for (most, count) in exact.most.iter_mut().zip(&request) {
            *most = (*most).max(*count);
        }
    }
    exact
}

/// Counts one request that finds every `first` unspent.
pub(crate) fn one_request(chain: &Chain) -> Vec<Count> {
    Walk::new(chain).request()
}

/// For each caller, whether one request has a call of which more than one attempt led to the last link; and for each service,
/// whether one has an arrival of which more than one call did.
pub(crate) fn multiplying(chain: &Chain) -> Vec<(bool, bool)> {
    let counts = one_request(chain);
    let is_some = |slot: usize| counts[slot] > Count::ZERO;
    (0..chain.hops.len())
        .map(|hop| (is_some(multiplied(chain, hop)), is_some(fanned(chain, hop))))
        .collect()
}

/// Where a row of this file counts, behind the layout's own places, the calls of which several attempts led to the last link.
fn multiplied(chain: &Chain, hop: usize) -> usize {
    chain.layout.len() + hop
}

/// Where it counts, behind those, the arrivals of which several calls led there.
fn fanned(chain: &Chain, hop: usize) -> usize {
    multiplied(chain, chain.hops.len()) + hop
}

/// A row of this file.
fn zeros(chain: &Chain) -> Vec<Count> {
    vec![Count::ZERO; fanned(chain, chain.hops.len())]
}

/// How long a certain fault goes on.
#[derive(Debug, Clone, Copy)]
enum Remaining {
    /// For good, or not at all.
    Always(bool),
    /// For so many arrivals more.
    Arrivals(u64),
}

impl Remaining {
    fn acts(self) -> bool {
        match self {
            Self::Always(acts) => acts,
            Self::Arrivals(left) => left > 0,
        }
    }

    /// How many attempts of `arrivals` each fit before the fault ends; as good as endless where it does not end.
    fn repeats(self, arrivals: Count) -> u64 {
        match (self, arrivals) {
            (Self::Always(_) | Self::Arrivals(0), _) | (_, Count::ZERO) => u64::MAX,
            (Self::Arrivals(_), Count::Beyond) => 0,
            (Self::Arrivals(left), Count::Of(arrivals)) => {
                u64::try_from(arrivals).map_or(0, |arrivals| left / arrivals)
            }
        }
    }

    fn spend(&mut self, arrivals: Count) {
        if let (Self::Arrivals(left), Count::Of(arrivals)) = (self, arrivals) {
            *left = left.saturating_sub(u64::try_from(arrivals).unwrap_or(u64::MAX));
        }
    }
}

/// Whether an arrival changes the state.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Moves,
    StandsStill,
}

/// What happens several times for one arrival or call.
struct Repeated {
    /// How often, at most.
    most: u32,
    /// Where it is counted that more than one of them led to the last link.
    leading_down: usize,
}

/// The state between arrivals.
#[derive(Clone)]
struct Walk<'a> {
    chain: &'a Chain,
    remaining: Vec<Remaining>,
}

impl<'a> Walk<'a> {
    fn new(chain: &'a Chain) -> Self {
        let remaining = |hop: &Hop| match hop.trouble.first() {
            First::Every => Remaining::Always(true),
            First::OfRequest(first) | First::OfProcess(first) => Remaining::Arrivals(first),
        };
        Self {
            chain,
            remaining: chain.hops.iter().map(remaining).collect(),
        }
    }

    fn begin_request(&mut self) {
        for (hop, remaining) in self.chain.hops.iter().zip(&mut self.remaining) {
            if let First::OfRequest(first) = hop.trouble.first() {
                *remaining = Remaining::Arrivals(first);
            }
        }
    }

    fn with_process_counters_frozen(&self) -> Self {
        let mut frozen = self.clone();
        for hop in self.chain.process_counters() {
            frozen.remaining[hop] = Remaining::Always(self.remaining[hop].acts());
        }
        frozen
    }

    /// One request from the present state, its end included.
    fn request(&mut self) -> Vec<Count> {
        let mut counts = zeros(self.chain);
        let code = if self.chain.hops.is_empty() {
            Code::OK
        } else {
            self.call(0, &mut counts, State::Moves).code
        };
        counts[self.chain.layout.ended(code)] += Count::ONE;
        counts
    }

    fn call(&mut self, hop: usize, counts: &mut [Count], state: State) -> Ended {
        let chain = self.chain;
        let caller = &chain.hops[hop].caller;
        counts[chain.layout.at(hop, What::Calls)] += Count::ONE;
        let attempts = Repeated {
            most: caller.attempts,
            leading_down: multiplied(chain, hop),
        };
        let attempt = |walk: &mut Self, counts: &mut [Count], state| walk.attempt(hop, counts, state);
        let ended = self.repeat(attempts, attempt, |ended| caller.tries_again(ended), counts, state);
        caller.hands_up(ended)
    }

    /// All calls that an arrival makes. No `first` counts below parallel ones, so that these are all alike.
    fn calls(&mut self, hop: usize, counts: &mut [Count], state: State) -> Ended {
        let chain = self.chain;
        let service = &chain.hops[hop];
        let calls = Repeated {
            most: service.calls,
            leading_down: fanned(chain, hop),
        };
        let call = |walk: &mut Self, counts: &mut [Count], state| walk.call(hop + 1, counts, state);
        let goes_on = |ended: Ended| service.is_parallel || !ended.code.is_failure();
        self.repeat(calls, call, goes_on, counts, state)
    }

    /// One after another while it `goes_on`, as many of them at once as are alike; the end of the last.
    fn repeat(
        &mut self,
        Repeated { most, leading_down }: Repeated,
        one: impl Fn(&mut Self, &mut [Count], State) -> Ended,
        goes_on: impl Fn(Ended) -> bool,
        counts: &mut [Count],
        state: State,
    ) -> Ended {
        let chain = self.chain;
        let last_link = chain.layout.at(chain.hops.len() - 1, What::Sent);
        let (mut left, mut led) = (u64::from(most), 0);
        loop {
            let mut profile = zeros(chain);
            let mut ended = one(self, &mut profile, State::StandsStill);
            let fits = if state == State::StandsStill {
                left
            } else {
                self.repeats(&profile)
            };
            let mut times = fits.min(if goes_on(ended) { left } else { 1 });
            if times == 0 {
                profile = zeros(chain);
                ended = one(self, &mut profile, State::Moves);
                times = 1;
            } else if state == State::Moves {
                self.spend(&profile, times);
            }
            add(counts, &profile, times);
            led += if profile[last_link] > Count::ZERO { times } else { 0 };
            left -= times;
            if left == 0 || !goes_on(ended) {
                counts[leading_down] += if led > 1 { Count::ONE } else { Count::ZERO };
                return ended;
            }
        }
    }

    fn attempt(&mut self, hop: usize, counts: &mut [Count], state: State) -> Ended {
        let chain = self.chain;
        let layout = &chain.layout;
        let service = &chain.hops[hop];
        counts[layout.at(hop, What::Sent)] += Count::ONE;
        let failure = match service.trouble {
            Trouble::Refuse => {
                counts[layout.at(hop, What::Lost)] += Count::ONE;
                return Ended::REFUSED;
            }
            Trouble::Fail { ended, after, .. } if self.remaining[hop].acts() => Some((ended, after)),
            Trouble::Fail { .. } | Trouble::None => None,
        };
        counts[layout.at(hop, What::Received)] += Count::ONE;
        counts[layout.arrivals()] += Count::ONE;
        if state == State::Moves {
            self.remaining[hop].spend(Count::ONE);
        }
        if let Some((failed, false)) = failure {
            if failed.by_transport {
                counts[layout.at(hop, What::Cut)] += Count::ONE;
            }
            return failed;
        }
        let answer = if chain.is_bottom(hop) {
            chain.bottom_answer()
        } else {
            self.calls(hop, counts, state).translated(service.on_failure)
        };
        if answer.code.is_failure() {
            return answer;
        }
        counts[layout.at(hop, What::WorkDone)] += Count::ONE;
        failure.map_or(answer, |(failed, _)| failed)
    }

    /// How many attempts with this profile fit before some `first` runs out.
    fn repeats(&self, profile: &[Count]) -> u64 {
        let repeats = |hop: usize| self.remaining[hop].repeats(profile[self.chain.layout.at(hop, What::Received)]);
        (0..self.remaining.len()).map(repeats).min().unwrap_or(u64::MAX)
    }

    fn spend(&mut self, profile: &[Count], times: u64) {
        for hop in 0..self.remaining.len() {
            self.remaining[hop].spend(profile[self.chain.layout.at(hop, What::Received)] * times.into());
        }
    }

    /// As `repeats`, of requests and the `first` that outlive them.
    fn process_repeats(&self, request: &[Count]) -> u64 {
        let repeats = |hop: usize| self.remaining[hop].repeats(request[self.chain.layout.at(hop, What::Received)]);
        self.chain
            .process_counters()
            .into_iter()
            .map(repeats)
            .min()
            .unwrap_or(u64::MAX)
    }

    fn spend_process(&mut self, request: &[Count], times: u64) {
        for hop in self.chain.process_counters() {
            self.remaining[hop].spend(request[self.chain.layout.at(hop, What::Received)] * times.into());
        }
    }
}

/// Adds a profile so many times.
fn add(counts: &mut [Count], profile: &[Count], times: u64) {
    for (count, more) in counts.iter_mut().zip(profile) {
        *count += *more * times.into();
    }
}
