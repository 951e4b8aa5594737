//! Round numbers along an axis.

use crate::render::text::number;

/// An axis from 0 or the smallest value up, with its round numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    /// Where it begins.
    pub(super) least: f64,
    /// Where it ends.
    pub(super) most: f64,
    /// Values and how they are written.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis from 0 to a round number not below `most`.
    pub(super) fn up_to(most: f64) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let step = step(most / 4.0);
        let end = (most / step - 1e-9).ceil() * step;
        Self {
            least: 0.0,
            most: end,
            ticks: multiples(0.0, end, step),
        }
    }

    /// An axis from one value to another, which need not be round.
    pub(super) fn between(least: f64, most: f64) -> Self {
        if most <= least {
            // One value alone stands in the middle.
            let around = if least == 0.0 { 1.0 } else { least.abs() };
            return Self {
                least: least - around,
                most: least + around,
                ticks: Vec::new(),
            };
        }
        Self {
            least,
            most,
            ticks: multiples(least, most, step((most - least) / 5.0)),
        }
    }

    /// The place of a value on the axis, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        ((value - self.least) / (self.most - self.least)).clamp(0.0, 1.0)
    }
}

/// The next of 1, 2 and 5 times a power of ten.
fn step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|times| times * power >= rough * (1.0 - 1e-9));
    times.unwrap_or(10.0) * power
}

fn multiples(least: f64, most: f64, step: f64) -> Vec<(f64, String)> {
    /// Ticks of one axis, at most.
    const MOST: u32 = 12;
    let first = (least / step - 1e-9).ceil();
    let values = (0..MOST).map(|number| (first + f64::from(number)) * step);
    values
        .take_while(|value| *value <= most + step * 1e-9)
        .map(|value| (value, written(value, step)))
        .collect()
}

/// A multiple of a step, with as many decimals as the step has.
fn written(value: f64, step: f64) -> String {
    if value == 0.0 && step < 1e-6 {
        return "0".to_owned();
    }
    if value.abs() >= 1e7 || (value != 0.0 && step < 1e-6) {
        let text = format!("{value:.2e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", mantissa.trim_end_matches('0').trim_end_matches('.'));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 6")]
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    if decimals == 0 && value >= 0.0 {
        number::factor(value.round())
    } else {
        format!("{value:.decimals$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn an_axis_ends_at_a_round_number_not_below_the_largest() {
        assert_eq!(texts(&Axis::up_to(27.0)), ["0", "10", "20", "30"]);
        assert_eq!(texts(&Axis::up_to(100.0)), ["0", "50", "100"]);
        assert_eq!(texts(&Axis::up_to(12_345.0)), ["0", "5,000", "10,000", "15,000"]);
        assert_eq!(texts(&Axis::up_to(0.0)), ["0.0", "0.5", "1.0"]);
        assert_eq!(texts(&Axis::up_to(3e-10)), ["0", "1e-10", "2e-10", "3e-10"]);
        assert_eq!(texts(&Axis::up_to(1e26)), ["0", "5e25", "1e26"]);
        assert_eq!(Axis::up_to(f64::NAN), Axis::up_to(0.0));
    }

    #[test]
    fn values_between_have_round_numbers_too() {
        assert_eq!(
            texts(&Axis::between(0.0, 1.0)),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
        assert_eq!(texts(&Axis::between(-1.0, 1.0)), ["-1.0", "-0.5", "0.0", "0.5", "1.0"]);
        assert_eq!(texts(&Axis::between(1.0, 5.0)), ["1", "2", "3", "4", "5"]);
        let alone = Axis::between(3.0, 3.0);
        assert!((alone.place(3.0) - 0.5).abs() < 1e-9, "{alone:?}");
    }
}
