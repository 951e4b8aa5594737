//! The proxies on the links: what arrived at them, and what real Envoys say of themselves.

use super::{
    number,
    words::{self, shown},
};
use crate::report::{Report, Service, ServiceKind};

/// Proxies that are named one by one, at most.
const NAMED: usize = 6;
/// Proxies that differ from their prediction and are named, at most.
const DIFFERENT: usize = 4;

/// The proxies of a run in a block of its own; nothing where there are none.
pub(super) fn block(report: &Report) -> Vec<String> {
    let proxies: Vec<&Service> = report
        .services
        .iter()
        .filter(|row| row.kind == ServiceKind::Sidecar)
        .collect();
    let label = if proxies.len() == 1 { "proxy" } else { "proxies" };
    let mut lines: Vec<String> = counts(&proxies)
        .map(|text| words::labelled(label, &text))
        .unwrap_or_default();
    let mut label = "Envoy";
    for text in [refused(&proxies), unconnected(&proxies)].into_iter().flatten() {
        lines.extend(words::labelled(label, &text));
        label = "";
    }
    lines
}

/// Whether the witnesses of a proxy say what was predicted. An Envoy makes no spans: there is one witness less.
fn agrees(row: &Service) -> bool {
    row.received.is_some_and(|received| row.predicted.agrees(received))
        && row.traced.is_none_or(|traced| Some(traced) == row.received)
}

/// What arrived at each proxy: `frontend-proxy 3, checkout-proxy 27, as predicted`.
fn counts(proxies: &[&Service]) -> Option<String> {
    let (as_predicted, others): (Vec<&Service>, Vec<&Service>) = proxies.iter().partition(|row| agrees(row));
    let count = |row: &Service| format!("{} {}", shown(&row.service), number::cell_or_dash(row.received));
    let mut parts = Vec::new();
    match as_predicted.as_slice() {
        [] => {}
        [first, .., last] if as_predicted.len() > NAMED => {
            let of = if others.is_empty() {
                String::new()
            } else {
                format!(" of {}", proxies.len())
            };
            parts.push(format!(
                "{}{of}, from {} down to {}, as predicted",
                as_predicted.len(),
                count(first),
                count(last)
            ));
        }
        rows => {
            let rows: Vec<String> = rows.iter().map(|row| count(row)).collect();
            parts.push(format!("{}, as predicted", rows.join(", ")));
        }
    }
    let different = others.iter().take(DIFFERENT).map(|row| {
        let traced = match row.traced {
            Some(traced) if row.received != Some(traced) => format!(", traced {}", number::whole(traced)),
            _ => String::new(),
        };
        format!(
            "{} (predicted {}{traced})",
            count(row),
            number::expected(&row.predicted)
        )
    });
    parts.extend(different);
    if others.len() > DIFFERENT {
        parts.push(format!("{} more that differ", others.len() - DIFFERENT));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn statistic(row: &Service, name: &str) -> u64 {
    let counted = row.envoy.as_ref().and_then(|envoy| envoy.get(name));
    counted.copied().unwrap_or(0)
}

/// Retries that Envoys' own limits refused, of those they wanted.
fn refused(proxies: &[&Service]) -> Option<String> {
    let retries = |row: &Service| {
        let refused = statistic(row, "upstream_rq_retry_overflow");
        (refused, refused + statistic(row, "upstream_rq_retry"))
    };
    let of = |(refused, wanted): (u64, u64)| format!("{} of {}", number::whole(refused), number::whole(wanted));
    let rows: Vec<(&Service, (u64, u64))> = proxies.iter().map(|row| (*row, retries(row))).collect();
    let all = rows.iter().fold((0, 0), |(refused, wanted), (_, (more, most))| {
        (refused + more, wanted + most)
    });
    let limited: Vec<_> = rows.iter().filter(|(_, (refused, _))| *refused > 0).collect();
    match (all.1, limited.len()) {
        (0, _) => None,
        (wanted, 0) => Some(format!("refused none of {}", number::retries(wanted))),
        (_, 1..=NAMED) => {
            let each: Vec<String> = limited
                .iter()
                .map(|(row, retries)| format!("{} {}", shown(&row.service), of(*retries)))
                .collect();
            Some(format!(
                "refused retries over its limit (upstream_rq_retry_overflow): {}",
                each.join(", ")
            ))
        }
        (_, many) => Some(format!(
            "{many} of {} refused retries over their limit (upstream_rq_retry_overflow): {} together",
            proxies.len(),
            of(all)
        )),
    }
}

/// Connections that Envoys could not make.
fn unconnected(proxies: &[&Service]) -> Option<String> {
    const FAILED: &str = "upstream_cx_connect_fail";
    let failed = proxies.iter().filter(|row| statistic(row, FAILED) > 0);
    let each: Vec<String> = failed
        .map(|row| format!("{} {}", shown(&row.service), number::whole(statistic(row, FAILED))))
        .collect();
    (!each.is_empty()).then(|| format!("connections that failed ({FAILED}): {}", each.join(", ")))
}
