//! What has arrived so far, as far as a fault may ask: how many arrivals in all, how many of a request, how often a path, and
//! how many are being worked on.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

/// Requests whose arrivals are remembered: far more than can be in flight at once.
const MAX_REQUESTS: usize = 65_536;

/// Paths of one request that are told apart; a stranger who invents more draws as if each came for the first time.
const MAX_PATHS: usize = 65_536;

/// What has arrived so far.
#[derive(Debug, Default)]
pub struct Seen {
    arrivals: u64,
    requests: HashMap<u64, SeenRequest>,
    order: VecDeque<u64>,
    /// One more than there are places taken.
    places: Arc<()>,
}

/// A place among those that are worked on, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    _taken: Arc<()>,
}

#[derive(Debug, Default)]
struct SeenRequest {
    arrivals: u64,
    /// How often each path has come, by its hash.
    paths: HashMap<u64, u32>,
}

/// What came before an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Before {
    /// Arrivals of any request.
    pub in_process: u64,
    /// Arrivals of its request.
    pub in_request: u64,
    /// How often its path had come.
    pub occurrence: u32,
}

impl Seen {
    /// How many have arrived in all.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Takes one of so many places; `None` when all are taken.
    pub fn enter(&mut self, capacity: u32) -> Option<Place> {
        let taken = Arc::strong_count(&self.places) - 1;
        (taken < usize::try_from(capacity).unwrap_or(usize::MAX)).then(|| Place {
            _taken: Arc::clone(&self.places),
        })
    }

    /// Remembers an arrival, as far as is asked for, and answers what came before it: its request, and the numbers of its path
    /// down to the place where it is looked at.
    pub fn arrive(&mut self, arrival: Option<(u64, &[u64])>, count_requests: bool, count_paths: bool) -> Before {
        let mut before = Before {
            in_process: self.arrivals,
            ..Before::default()
        };
        self.arrivals += 1;
        let Some((number, path)) = arrival.filter(|_| count_requests || count_paths) else {
            return before;
        };
        if !self.requests.contains_key(&number) {
            if self.order.len() == MAX_REQUESTS
                && let Some(oldest) = self.order.pop_front()
            {
                self.requests.remove(&oldest);
            }
            self.order.push_back(number);
        }
        let request = self.requests.entry(number).or_default();
        before.in_request = request.arrivals;
        request.arrivals += 1;
        if !count_paths {
            return before;
        }
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let path = hasher.finish();
        if request.paths.len() >= MAX_PATHS && !request.paths.contains_key(&path) {
            return before;
        }
        let times = request.paths.entry(path).or_default();
        before.occurrence = *times;
        *times += 1;
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_until_it_is_dropped() {
        let mut seen = Seen::default();
        let places = [seen.enter(2), seen.enter(2)];
        assert!(places.iter().all(Option::is_some) && seen.enter(2).is_none());
        drop(places);
        assert!(seen.enter(1).is_some());
        assert!(seen.enter(0).is_none());
    }
}
