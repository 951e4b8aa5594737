//! A count of any size that saturates instead of wrapping.

use std::fmt;
use std::ops::{Add, AddAssign, Mul};

/// How many. What does not fit in a `u128` is [`Count::Beyond`], which is larger than every other count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Count {
    /// This many.
    Of(u128),
    /// More than a `u128` holds.
    Beyond,
}

impl Count {
    /// None.
    pub const ZERO: Self = Self::Of(0);
    /// One.
    pub const ONE: Self = Self::Of(1);

    /// The nearest floating-point number; `None` for [`Count::Beyond`].
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::Of(count) => Some(count as f64),
            Self::Beyond => None,
        }
    }

    /// The count as a machine word, where it fits.
    pub(crate) fn small(self) -> Option<u64> {
        match self {
            Self::Of(count) => u64::try_from(count).ok(),
            Self::Beyond => None,
        }
    }

    /// A number that is not negative, rounded up. Anything too large, and what is no number, is [`Count::Beyond`].
    pub fn rounded_up(number: f64) -> Self {
        // The cast would saturate silently; 2^128 is the first number that does not fit.
        const TOO_LARGE: f64 = 340_282_366_920_938_463_463_374_607_431_768_211_456.0;
        let number = number.ceil();
        if number.is_nan() || number >= TOO_LARGE {
            return Self::Beyond;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked against 2^128; below 0 is 0"
        )]
        Self::Of(number.max(0.0) as u128)
    }
}

impl Default for Count {
    fn default() -> Self {
        Self::ZERO
    }
}

impl From<u64> for Count {
    fn from(count: u64) -> Self {
        Self::Of(count.into())
    }
}

impl Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Of(one), Self::Of(two)) => one.checked_add(two).map_or(Self::Beyond, Self::Of),
            _ => Self::Beyond,
        }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul for Count {
    type Output = Self;

    /// Nothing, however often, stays nothing.
    fn mul(self, other: Self) -> Self {
        match (self, other) {
            (Self::ZERO, _) | (_, Self::ZERO) => Self::ZERO,
            (Self::Of(one), Self::Of(two)) => one.checked_mul(two).map_or(Self::Beyond, Self::Of),
            _ => Self::Beyond,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(count) => count.fmt(f),
            Self::Beyond => f.pad("more than 3.4e38"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_beyond_and_never_wrapped() {
        let most = Count::Of(u128::MAX);
        assert_eq!(most + Count::ZERO, most);
        assert_eq!(most + Count::ONE, Count::Beyond);
        assert_eq!(most * Count::Of(2), Count::Beyond);
        assert_eq!(Count::Beyond * Count::ZERO, Count::ZERO);
        assert!(most < Count::Beyond);
        assert_eq!(Count::Beyond.to_string(), "more than 3.4e38");
    }

    #[test]
    fn rounding_up_knows_its_limits() {
        assert_eq!(Count::rounded_up(7999.99), Count::Of(8000));
        assert_eq!(Count::rounded_up(-0.5), Count::ZERO);
        assert_eq!(Count::rounded_up(3.5e38), Count::Beyond);
        assert_eq!(Count::rounded_up(f64::NAN), Count::Beyond);
    }
}
