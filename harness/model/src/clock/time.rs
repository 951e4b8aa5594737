//! When something happens, as far as that is known.

use crate::acting::LATE_US;

/// The earliest and the latest microsecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub(super) lo: u64,
    pub(super) hi: u64,
}

impl Span {
    /// So many microseconds later, exactly.
    pub(super) fn after(self, us: u64) -> Self {
        Self {
            lo: self.lo.saturating_add(us),
            hi: self.hi.saturating_add(us),
        }
    }

    /// When a timer fires that is set now for something between `least` and `most` microseconds.
    pub(super) fn timer(self, least: u64, most: u64) -> Self {
        Self {
            lo: self.lo.saturating_add(least),
            hi: self.hi.saturating_add(most).saturating_add(LATE_US),
        }
    }

    /// After something that takes up to `us` microseconds.
    pub(super) fn within(self, us: u64) -> Self {
        Self {
            lo: self.lo,
            hi: self.hi.saturating_add(us),
        }
    }

    /// As late as this and not before `other`.
    pub(super) fn not_before(self, other: Self) -> Self {
        Self {
            lo: self.lo.max(other.lo),
            hi: self.hi.max(other.lo),
        }
    }
}
