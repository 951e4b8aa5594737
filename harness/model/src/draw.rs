//! The rule of the draws, implemented a second time.
//!
//! It is the one that stands beside the fault: start with `x = mix(seed)`; for the request's number, then for each attempt of
//! the path from the client's down, for a fault in a caller its place, then for the occurrence, `x = mix(x XOR number)`, where
//! an attempt of call c adds (c - 1) * 2^32 to its number, and so does the place of a fault that meets the whole call; for the
//! chance of a delay once more with the number 1; the draw is the upper 53 bits of `x` over 2^53. `mix` is a step of
//! `SplitMix64`.

use std::collections::HashMap;

/// The state of a draw whose path is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn of_request(seed: u64, request: u64) -> Self {
        Self(split_mix(seed)).then(request)
    }

    pub(crate) fn then(self, number: u64) -> Self {
        Self(split_mix(self.0 ^ number))
    }

    /// Whether the kind of a fault happens: from 0, included, to 1, excluded.
    pub(crate) fn share(self, occurrence: u64) -> f64 {
        self.then(occurrence).number()
    }

    /// What an attempt draws, or its callees do: below the path of the arrival that made the call.
    pub(crate) fn attempt(self, call: u32, number: u32) -> Self {
        const CALLS: u64 = 1 << 32;
        self.then(u64::from(call - 1) * CALLS + u64::from(number))
    }

    /// The draws of a fault in a caller that meets one attempt: a number that no attempt has stands behind the path.
    pub(crate) fn inside_loop(self) -> Self {
        self.attempt(1, u32::MAX)
    }

    /// Those of one that meets a whole call, whose path is still that of the arrival.
    pub(crate) fn outside_loop(self, call: u32) -> Self {
        self.attempt(call, u32::MAX - 1)
    }

    /// Whether its delay happens.
    pub(crate) fn share_of_delay(self, occurrence: u64) -> f64 {
        self.then(occurrence).then(1).number()
    }

    fn number(self) -> f64 {
        const TWO_TO_THE_53: f64 = 9_007_199_254_740_992.0;
        (self.0 >> 11) as f64 / TWO_TO_THE_53
    }
}

/// Paths of one request that a service tells apart; every other one is as if it came for the first time.
const MOST_PATHS: usize = 65_536;

/// How often each path of one request has come, at each place that draws.
#[derive(Debug, Clone, Default)]
pub(crate) struct Occurrences(Vec<HashMap<Draw, u64>>);

impl Occurrences {
    /// How often this path came here before.
    pub(crate) fn before(&mut self, place: usize, path: Draw) -> u64 {
        if self.0.len() <= place {
            self.0.resize_with(place + 1, HashMap::new);
        }
        let known = &mut self.0[place];
        if known.len() >= MOST_PATHS && !known.contains_key(&path) {
            return 0;
        }
        let times = known.entry(path).or_default();
        *times += 1;
        *times - 1
    }

    /// Another request begins.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

fn split_mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}
