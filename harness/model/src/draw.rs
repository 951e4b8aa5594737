//! The rule of the draws, implemented a second time.
//!
//! It is the one that stands beside the fault: start with `x = mix(seed)`; for the request's number, then for each number of
//! the attempt path from the client's down, for a fault in a caller its place, then for the occurrence, `x = mix(x XOR number)`; for the chance of a delay once
//! more with the number 1; the draw is the upper 53 bits of `x` over 2^53. `mix` is a step of `SplitMix64`.

/// The state of a draw whose path is not complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn of_request(seed: u64, request: u64) -> Self {
        Self(split_mix(seed)).then(request)
    }

    pub(crate) fn then(self, number: u64) -> Self {
        Self(split_mix(self.0 ^ number))
    }

    /// Whether the kind of a fault happens: from 0, included, to 1, excluded. No path comes twice in one request, so the
    /// occurrence is always 0.
    pub(crate) fn share(self) -> f64 {
        self.then(FIRST_OCCURRENCE).number()
    }

    /// The draws of a fault in a caller, inside or outside its loop: a number that no attempt has stands behind the path.
    pub(crate) fn in_caller(self, inside: bool) -> Self {
        self.then(u64::from(if inside { u32::MAX } else { u32::MAX - 1 }))
    }

    /// Whether its delay happens.
    pub(crate) fn share_of_delay(self) -> f64 {
        self.then(FIRST_OCCURRENCE).then(1).number()
    }

    fn number(self) -> f64 {
        const TWO_TO_THE_53: f64 = 9_007_199_254_740_992.0;
        (self.0 >> 11) as f64 / TWO_TO_THE_53
    }
}

const FIRST_OCCURRENCE: u64 = 0;

fn split_mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}
