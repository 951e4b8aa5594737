//! The run as its draws make it: every arrival is walked.

use crate::chain::{Chain, First, Trouble, What};
use crate::draw::{Draw, Occurrences};
use crate::ended::Ended;
use crate::topology::Code;

/// The most attempts one replay walks: far above the arrivals a run may have, and still seconds.
const MOST_ATTEMPTS: u64 = 50_000_000;

/// The counts of a run whose requests come one after another or do not affect each other; `None` if there are too many.
pub(crate) fn run(chain: &Chain) -> Option<Vec<u64>> {
    if chain.requests > MOST_ATTEMPTS {
        return None;
    }
    let none_before = vec![0; chain.hops.len()];
    let mut walk = Walk {
        chain,
        counts: vec![0; chain.layout.len()],
        attempts_left: MOST_ATTEMPTS,
        in_process: none_before.clone(),
        in_request: none_before,
        came: Occurrences::default(),
    };
    for request in (0..chain.requests).map(|index| chain.first_request.wrapping_add(index)) {
        walk.in_request.fill(0);
        walk.came.clear();
        let begun = Draw::of_request(chain.seed, request);
        let code = if chain.hops.is_empty() {
            Code::OK
        } else {
            walk.call(0, begun, 1)?.code
        };
        walk.counts[chain.layout.ended(code)] += 1;
    }
    Some(walk.counts)
}

struct Walk<'a> {
    chain: &'a Chain,
    counts: Vec<u64>,
    attempts_left: u64,
    /// Arrivals so far, by hop.
    in_process: Vec<u64>,
    in_request: Vec<u64>,
    /// Paths so far, where they may come again.
    came: Occurrences,
}

impl Walk<'_> {
    fn call(&mut self, hop: usize, path: Draw, number: u32) -> Option<Ended> {
        let caller = &self.chain.hops[hop].caller;
        self.counts[self.chain.layout.at(hop, What::Calls)] += 1;
        let mut attempt = 1;
        loop {
            let ended = self.attempt(hop, caller.path(path, number, attempt))?;
            if attempt == caller.attempts || !caller.tries_again(ended) {
                return Some(caller.hands_up(ended));
            }
            attempt += 1;
        }
    }

    fn attempt(&mut self, hop: usize, path: Draw) -> Option<Ended> {
        let chain = self.chain;
        let service = &chain.hops[hop];
        self.attempts_left = self.attempts_left.checked_sub(1)?;
        self.counts[chain.layout.at(hop, What::Sent)] += 1;
        if service.trouble == Trouble::Refuse {
            self.counts[chain.layout.at(hop, What::Lost)] += 1;
            return Some(Ended::REFUSED);
        }
        self.counts[chain.layout.at(hop, What::Received)] += 1;
        self.counts[chain.layout.arrivals()] += 1;
        let failure = self.failure(hop, path);
        self.in_process[hop] += 1;
        self.in_request[hop] += 1;
        if let Some((failed, false)) = failure {
            self.counts[chain.layout.at(hop, What::Cut)] += u64::from(failed.by_transport);
            return Some(failed);
        }
        let answer = if chain.is_bottom(hop) {
            chain.bottom_answer()
        } else {
            self.calls(hop, path)?.translated(service.on_failure)
        };
        if answer.code.is_failure() {
            return Some(answer);
        }
        self.counts[chain.layout.at(hop, What::WorkDone)] += 1;
        Some(failure.map_or(answer, |(failed, _)| failed))
    }

    /// All calls that an arrival makes.
    fn calls(&mut self, hop: usize, path: Draw) -> Option<Ended> {
        let service = &self.chain.hops[hop];
        let mut answer = self.call(hop + 1, path, 1)?;
        for number in 2..=service.calls {
            if answer.code.is_failure() && !service.is_parallel {
                break;
            }
            let next = self.call(hop + 1, path, number)?;
            if !answer.code.is_failure() {
                answer = next;
            }
        }
        Some(answer)
    }

    /// The failure the fault has for this arrival, and whether it comes after the work.
    fn failure(&mut self, hop: usize, path: Draw) -> Option<(Ended, bool)> {
        let service = &self.chain.hops[hop];
        let Trouble::Fail {
            ended,
            after,
            first,
            chance,
        } = service.trouble
        else {
            return None;
        };
        let in_range = match first {
            First::Every => true,
            First::OfRequest(first) => self.in_request[hop] < first,
            First::OfProcess(first) => self.in_process[hop] < first,
        };
        let drawn = chance.is_none_or(|chance| {
            let occurrence = if service.repeats_paths {
                self.came.before(hop, path)
            } else {
                0
            };
            path.share(occurrence) < chance
        });
        (in_range && drawn).then_some((ended, after))
    }
}
