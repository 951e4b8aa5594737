//! The configuration of one Envoy: one listener, one route, one callee, and the policy of the proxy that it stands for.

use super::retry_on;
use chassis::{
    config::Callee,
    policy::{Budget, Policy},
};
use serde_json::{Value, json};
use std::time::Duration;

/// What its statistics call the listener and the callee.
pub(super) const LISTENER: &str = "link";
pub(super) const CALLEE: &str = "callee";

/// No limit: what everything is set to that could refuse an attempt and is no part of the policy.
const NONE: u32 = u32::MAX;

const MANAGER: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
const PROTOCOL: &str = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// For ports that the system chooses. The route has no timeout of its own; the caller's `grpc-timeout` is obeyed.
pub(super) fn config(policy: &Policy, callee: &Callee) -> Value {
    let any_port = json!({ "socket_address": { "address": "127.0.0.1", "port_value": 0 } });
    let route = json!({
        "match": { "prefix": "/" },
        "route": {
            "cluster": CALLEE,
            "timeout": "0s",
            // 0 puts no ceiling on the time that the caller gives.
            "max_stream_duration": { "grpc_timeout_header_max": "0s" },
            "retry_policy": retry_policy(policy),
        },
    });
    let manager = json!({
        "@type": MANAGER,
        "stat_prefix": LISTENER,
        "codec_type": "HTTP2",
        "stream_idle_timeout": "0s",
        "route_config": {
            "virtual_hosts": [{
                "name": "all",
                "domains": ["*"],
                "include_request_attempt_count": true,
                "routes": [route],
            }],
        },
        "http_filters": [{ "name": "envoy.filters.http.router", "typed_config": { "@type": ROUTER } }],
    });
    json!({
        "admin": { "address": any_port },
        // Nor is a connection ended on which many callers left early.
        "layered_runtime": { "layers": [{
            "name": "no_limits",
            "static_layer": { "overload.premature_reset_total_stream_count": NONE },
        }] },
        "static_resources": {
            "listeners": [{
                "name": LISTENER,
                "address": any_port,
                "filter_chains": [{
                    "filters": [{ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager }],
                }],
            }],
            "clusters": [{
                "name": CALLEE,
                "type": "STATIC",
                "connect_timeout": "5s",
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": PROTOCOL,
                        "explicit_http_config": { "http2_protocol_options": {} },
                    },
                },
                "circuit_breakers": { "thresholds": [thresholds(policy)] },
                "load_assignment": {
                    "cluster_name": CALLEE,
                    "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": { "socket_address": {
                        "address": callee.address.host,
                        "port_value": callee.address.port,
                    } } } }] }],
                },
            }],
        },
    })
}

fn retry_policy(policy: &Policy) -> Value {
    let (words, statuses) = retry_on(policy);
    let mut written = json!({
        "retry_on": words,
        "num_retries": policy.attempts - 1,
        "retriable_status_codes": statuses,
    });
    if let Some(limit) = policy.attempt_timeout {
        // To an Envoy an attempt that is too slow is UNAVAILABLE.
        written["per_try_timeout"] = json!(seconds(limit));
    }
    if let Some(backoff) = policy.backoff {
        written["retry_back_off"] = json!({
            "base_interval": seconds(backoff.initial),
            "max_interval": seconds(backoff.max),
        });
    }
    written
}

/// The limit of retries at once; no other one.
fn thresholds(policy: &Policy) -> Value {
    let mut thresholds = json!({
        "max_connections": NONE,
        "max_pending_requests": NONE,
        "max_requests": NONE,
        "max_retries": NONE,
    });
    match policy.budget {
        Some(Budget::InFlight {
            percent_milli: 0,
            min_concurrency,
        }) => thresholds["max_retries"] = json!(min_concurrency),
        Some(Budget::InFlight {
            percent_milli,
            min_concurrency,
        }) => {
            thresholds["retry_budget"] = json!({
                "budget_percent": { "value": f64::from(percent_milli) / 1_000.0 },
                "min_retry_concurrency": min_concurrency,
            });
        }
        Some(Budget::Window { .. }) | None => {}
    }
    thresholds
}

/// As protobuf writes a duration in JSON.
fn seconds(duration: Duration) -> String {
    format!("{}.{:09}s", duration.as_secs(), duration.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy;

    #[test]
    fn a_policy_is_written_in_its_words() {
        let callee = Callee {
            name: "inventory".to_owned(),
            address: "127.0.0.1:50054".parse().unwrap(),
        };
        let of = |budget| {
            let policy = envoy::policy(&Policy {
                attempts: 3,
                budget,
                ..Policy::default()
            });
            config(&policy, &callee)
        };
        let plain = of(None);
        let route = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/\
                     routes/0/route";
        let policy = &plain.pointer(route).unwrap()["retry_policy"];
        assert_eq!(policy["num_retries"], 2);
        assert_eq!(policy["retry_back_off"]["base_interval"], "0.001000000s");
        let thresholds = |config: &Value| {
            config
                .pointer("/static_resources/clusters/0/circuit_breakers/thresholds/0")
                .cloned()
        };
        assert_eq!(thresholds(&plain).unwrap()["max_retries"], NONE);
        let three = of(Some(Budget::InFlight {
            percent_milli: 0,
            min_concurrency: 3,
        }));
        assert_eq!(thresholds(&three).unwrap()["max_retries"], 3);
        let share = thresholds(&of(Some(Budget::IN_FLIGHT))).unwrap();
        assert_eq!(share["retry_budget"]["budget_percent"]["value"], 20.0);
        assert_eq!(share["retry_budget"]["min_retry_concurrency"], 3);
    }
}
