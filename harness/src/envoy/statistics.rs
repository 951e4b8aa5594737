//! What an Envoy counted, in its words and in ours.

use super::config::{CALLEE, LISTENER};
use chassis::counts::Refusal;
use proto::lab::v1 as lab;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Its own counts, by the names of its statistics without their prefix.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics(BTreeMap<String, u64>);

/// Those that a report shows.
const SHOWN: [&str; 8] = [
    "downstream_rq_total",
    "upstream_rq_total",
    "upstream_rq_retry",
    "upstream_rq_retry_success",
    "upstream_rq_retry_overflow",
    "upstream_rq_retry_limit_exceeded",
    "upstream_cx_connect_fail",
    "upstream_rq_rx_reset",
];

/// As the admin port writes them.
#[derive(Deserialize)]
struct Written {
    stats: Vec<Statistic>,
}

#[derive(Deserialize)]
struct Statistic {
    /// Absent where the entry holds histograms.
    name: Option<String>,
    value: Option<serde_json::Value>,
}

/// What to ask the admin port for.
pub(super) fn question() -> String {
    format!("/stats?format=json&filter=%5E(http%5C.{LISTENER}%7Ccluster%5C.{CALLEE})%5C.(downstream%7Cupstream)_")
}

impl Statistics {
    /// Reads what the admin port says.
    pub(super) fn read(text: &str) -> Result<Self, serde_json::Error> {
        let written: Written = serde_json::from_str(text)?;
        let counts = written.stats.into_iter().filter_map(|statistic| {
            let name = statistic.name?;
            let name = name.rsplit('.').next()?.to_owned();
            Some((name, statistic.value?.as_u64()?))
        });
        Ok(Self(counts.collect()))
    }

    fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Those that a report shows, zeros included.
    pub fn shown(&self) -> BTreeMap<String, u64> {
        SHOWN.iter().map(|name| ((*name).to_owned(), self.get(name))).collect()
    }

    /// The same counts as a ledger would have them. Sent is `downstream_rq_total` and `upstream_rq_retry` together: Envoy's own
    /// `upstream_rq_total` leaves out attempts that got no connection. Lost connections are in
    /// `upstream_rq_pending_failure_eject`, reset streams in `upstream_rq_rx_reset`; one that is reset with `REFUSED_STREAM`
    /// shows in neither (measured with 1.40).
    pub fn totals(&self, service: &str, callee: &str) -> lab::Totals {
        let received = self.get("downstream_rq_total");
        let refused = [
            (Refusal::Limit, self.get("upstream_rq_retry_limit_exceeded")),
            (Refusal::Budget, self.get("upstream_rq_retry_overflow")),
        ];
        let not_retried = refused.into_iter().filter(|(_, calls)| *calls > 0);
        lab::Totals {
            service: service.to_owned(),
            received,
            in_flight: self.get("downstream_rq_active") + self.get("upstream_rq_active"),
            links: vec![lab::Link {
                to: callee.to_owned(),
                calls: received,
                sent: received + self.get("upstream_rq_retry"),
                not_retried: not_retried
                    .map(|(reason, calls)| (reason.name().to_owned(), calls))
                    .collect(),
                connect_refused: 0,
                transport_errors: self.get("upstream_rq_pending_failure_eject") + self.get("upstream_rq_rx_reset"),
            }],
            ..lab::Totals::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_counts_are_read_without_their_prefixes_and_told_in_ours() {
        let text = r#"{"stats":[
            {"name":"http.link.downstream_rq_total","value":9},
            {"name":"http.link.downstream_rq_active","value":0},
            {"name":"cluster.callee.upstream_rq_retry","value":16},
            {"name":"cluster.callee.upstream_rq_total","value":25},
            {"name":"cluster.callee.upstream_rq_retry_overflow","value":2},
            {"name":"cluster.callee.upstream_rq_retry_limit_exceeded","value":7},
            {"histograms":{"supported_quantiles":[0.0]}}]}"#;
        let statistics = Statistics::read(text).unwrap();
        assert_eq!(statistics.shown()["upstream_rq_total"], 25);
        let totals = statistics.totals("pricing-proxy", "inventory");
        assert_eq!((totals.received, totals.in_flight), (9, 0));
        let [link] = totals.links.as_slice() else {
            panic!("{totals:?}")
        };
        assert_eq!((link.calls, link.sent), (9, 25));
        assert_eq!((link.not_retried["limit"], link.not_retried["budget"]), (7, 2));
        assert!(Statistics::read("not found").is_err());
    }
}
