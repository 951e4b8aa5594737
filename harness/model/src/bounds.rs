//! `first` that counts over the process while requests overlap, or over calls of one request that do: intervals that any order
//! of arrivals stays within.
//!
//! With one such `first=N` and nothing drawn, each request behaves as if `first=f` counted over it alone, where f is the
//! number of its own arrivals that came in time; and the f of all requests add up to N, unless even all arrivals of a
//! failing run are fewer than N. So a total is at most R times the upper hull of "count by f" at N/R, and at least R
//! times its lower hull. Otherwise every arrival is given the free choice to fail or not, which is wider and still holds.

use crate::assemble::Answer;
use crate::chain::{Chain, First, What};
use crate::count::Count;
use crate::prediction::{Kind, PerRequest, Predicted};
use crate::{chance, exact};

/// The most values of f looked at; beyond that the free choice answers.
const MOST_POINTS: u64 = 4_096;

pub(crate) fn run(chain: &Chain) -> Answer {
    let mut answer = match chain.process_counters()[..] {
        [hop] if !chain.draws() && chain.orders_calls() => one_counter(chain, hop),
        _ => None,
    }
    .unwrap_or_else(|| Answer::from_extent(chain, &chance::extent_of_free_choice(chain), Kind::Bounds));
    for predicted in &mut answer.totals {
        if predicted.min == predicted.max {
            predicted.kind = Kind::Exact;
        }
    }
    answer
}

fn one_counter(chain: &Chain, hop: usize) -> Option<Answer> {
    let First::OfProcess(first) = chain.hops[hop].trouble.first() else {
        return None;
    };
    let with_first = |first| {
        let mut alone = chain.clone();
        alone.hops[hop].trouble = alone.hops[hop].trouble.with_first(first);
        alone
    };
    let received = chain.layout.at(hop, What::Received);
    let endless = with_first(First::Every);
    let in_time_at_most = exact::one_request(&endless)[received];
    if in_time_at_most * chain.requests.into() <= first.into() {
        return Some(Answer::from_exact(chain, &exact::run(&endless)));
    }
    let last = if Count::from(first) < in_time_at_most {
        first
    } else {
        in_time_at_most.small()?
    };
    if last > MOST_POINTS {
        return None;
    }
    let point = |in_time| match in_time {
        0 => exact::one_request(&without_fault(chain, hop)),
        in_time => exact::one_request(&with_first(First::OfRequest(in_time))),
    };
    let points: Vec<Vec<Count>> = (0..=last).map(point).collect();
    let of_slot = |slot: usize| points.iter().map(move |counts| counts[slot]);
    let total = |slot: usize| {
        let (min, max) = hull::totals(of_slot(slot), first, chain.requests).unwrap_or_else(|| {
            let requests = chain.requests.into();
            let min = of_slot(slot).min().unwrap_or_default();
            (min * requests, of_slot(slot).max().unwrap_or(Count::Beyond) * requests)
        });
        Predicted {
            kind: Kind::Bounds,
            mean: None,
            sd: None,
            min,
            max,
        }
    };
    let most = |slot: usize| of_slot(slot).max().unwrap_or_default();
    let per_request = PerRequest {
        worst: chain.layout.bottom().map_or(Count::ZERO, most),
        mean: None,
        sd: None,
        still_fails: None,
        arrivals_worst: most(chain.layout.arrivals()),
    };
    Some(Answer {
        layout: chain.layout.clone(),
        totals: (0..chain.layout.len()).map(total).collect(),
        per_request,
    })
}

fn without_fault(chain: &Chain, hop: usize) -> Chain {
    let mut healthy = chain.clone();
    healthy.hops[hop].trouble = crate::chain::Trouble::None;
    healthy
}

/// Upper and lower hull of points at 0, 1, 2, …
mod hull {
    use crate::count::Count;

    /// Smallest and largest sum of `requests` points whose places add up to `places`; `None` where numbers get too large.
    pub(super) fn totals(points: impl Iterator<Item = Count>, places: u64, requests: u64) -> Option<(Count, Count)> {
        let points: Vec<i128> = points
            .map(|count| count.small().map(i128::from))
            .collect::<Option<_>>()?;
        let mirrored: Vec<i128> = points.iter().map(|point| -point).collect();
        let (places, requests) = (places.into(), requests.into());
        let largest = largest(&points, places, requests)?;
        let smallest = -self::largest(&mirrored, places, requests)?;
        Some((
            Count::Of(smallest.try_into().ok()?),
            Count::Of(largest.try_into().ok()?),
        ))
    }

    /// The upper hull at `places / requests`, times `requests`, rounded down.
    fn largest(points: &[i128], places: i128, requests: i128) -> Option<i128> {
        let mut hull: Vec<(i128, i128)> = Vec::new();
        for (x, y) in (0..).zip(points.iter().copied()) {
            while let [.., (x1, y1), (x2, y2)] = hull[..] {
                // The middle point goes if it does not lie above the line from the one before it to the new one.
                if (y2 - y1).checked_mul(x - x1)? > (y - y1).checked_mul(x2 - x1)? {
                    break;
                }
                hull.pop();
            }
            hull.push((x, y));
        }
        let beyond = hull
            .iter()
            .position(|(x, _)| x.checked_mul(requests).is_some_and(|x| x >= places))?;
        let (x2, y2) = hull[beyond];
        let Some((x1, y1)) = beyond.checked_sub(1).map(|before| hull[before]) else {
            return y2.checked_mul(requests);
        };
        let rise = (y2 - y1).checked_mul(places.checked_sub(x1.checked_mul(requests)?)?)?;
        let at_start = requests.checked_mul(y1)?.checked_mul(x2 - x1)?;
        Some(at_start.checked_add(rise)?.div_euclid(x2 - x1))
    }
}
