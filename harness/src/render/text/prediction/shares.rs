//! What a policy costs and what it buys, when the bottom service fails only a part of its calls.

use super::super::{
    number,
    words::{self, Screen, shown},
};
use crate::report::{Prediction, Share};

/// Columns of the names.
const NAME: usize = 40;
/// Columns of a figure.
const CELL: usize = 10;

/// The calls at the bottom and the requests that still fail, for each policy a row; nothing where no figure is known.
pub(super) fn table(screen: &mut Screen, prediction: &Prediction) {
    let shares = known(prediction);
    if shares.is_empty() {
        return;
    }
    let mut policies: Vec<&str> = shares.iter().map(|share| share.policy.as_str()).collect();
    policies.dedup();
    let of = |policy: &str, figure: Figure| {
        let shares = shares.iter().filter(|share| share.policy == policy);
        shares.map(figure).collect::<Vec<_>>()
    };
    let bottom = words::name(&prediction.bottom.service, NAME - 27);
    let failing = of(policies[0], |share| number::share(share.failing));
    screen.line(row(&format!("If {bottom} fails part of its calls"), &failing));
    for (title, figure) in [
        (
            format!("calls at {}", shown(&prediction.bottom.service)),
            calls as Figure,
        ),
        ("requests that still fail".to_owned(), failed),
    ] {
        screen.line(title);
        for policy in &policies {
            let name = format!("  {}", words::name(policy, NAME - 4));
            screen.line(row(&name, &of(policy, figure)));
        }
    }
}

type Figure = fn(&Share) -> String;

/// The shares; none where no figure is known of any.
pub(in crate::render) fn known(prediction: &Prediction) -> &[Share] {
    // Where all calls fail, the headline and the changes have said it.
    let is_known = |share: &Share| share.failing < 1.0 && share.mean.is_some();
    if prediction.shares.iter().any(is_known) {
        &prediction.shares
    } else {
        &[]
    }
}

/// Calls at the bottom for one request: an average, or a sure count.
pub(in crate::render) fn calls(share: &Share) -> String {
    let is_sure = share.sd == Some(0.0);
    let written = if is_sure { number::factor } else { number::mean };
    share.mean.map_or_else(|| "-".to_owned(), written)
}

/// How many requests still fail.
pub(in crate::render) fn failed(share: &Share) -> String {
    match share.still_fails {
        Some(chance) if share.mean > Some(0.0) => number::some_share(chance),
        Some(chance) => number::share(chance),
        None => "-".to_owned(),
    }
}

fn row(name: &str, cells: &[String]) -> String {
    // In a column `over 99.9 %` would touch its neighbour.
    let cells = cells.iter().map(|cell| cell.replace("over ", "> "));
    let cells: Vec<String> = cells.map(|cell| format!("{cell:>CELL$}")).collect();
    format!("{name:<NAME$}{}", cells.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_never_touch() {
        let cells = [0.5, 0.9999, 1.0, 1.0].map(number::share);
        let row = row("as it is", &cells);
        assert!(row.len() <= words::WIDTH && row.contains(" > 99.9 %  "), "{row}");
    }
}
