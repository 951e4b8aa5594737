//! What flags say on top of a scenario: typed, each value already sound by itself.

use super::{OrNone, SidecarKind};
use chassis::{code::Code, fault::ServiceFault, policy::RetryOn};
use std::time::Duration;

/// A service mesh whose defaults fill the retries of the proxies. A preset fills a number and, for Istio, codes; it does not
/// make our proxy that mesh's in anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mesh {
    /// Istio in front of gRPC services, since 1.22 at least, by default: 2 retries on `connect-failure`, `refused-stream`, `unavailable` and
    /// `cancelled` (`pilot/pkg/networking/core/route/retry/retry.go`).
    Istio,
    /// Istio since 1.24 in front of HTTP services: a dead service is tried three times, an HTTP 503 that arrived is not tried
    /// again (up to 1.23 it was; release note 50506).
    IstioHttp,
    /// Linkerd since 2.16, opt-in: what a route gets whose annotation `retry.linkerd.io/grpc` or `retry.linkerd.io/http` asks for
    /// retries, at most 1 (`retry.linkerd.io/limit`).
    Linkerd,
    /// No retries by proxies.
    None,
}

impl Mesh {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Istio, Self::IstioHttp, Self::Linkerd, Self::None];

    /// As flags write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Istio => "istio",
            Self::IstioHttp => "istio-http",
            Self::Linkerd => "linkerd",
            Self::None => "none",
        }
    }

    /// Attempts of a proxy in front of a service whose port is closed or not.
    pub(super) fn attempts(self, is_closed: bool) -> u32 {
        match self {
            Self::Istio => 3,
            Self::IstioHttp if is_closed => 3,
            Self::Linkerd => 2,
            Self::IstioHttp | Self::None => 1,
        }
    }

    /// The codes that its proxies try again; `None` where it has no choice of its own.
    pub(super) fn retry_on(self) -> Option<RetryOn> {
        (self == Self::Istio).then(|| RetryOn::Codes(vec![Code::Cancelled, Code::Unavailable]))
    }
}

/// What flags say on top of a scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overrides {
    /// `--set PATH=VALUE`, in order.
    pub set: Vec<String>,
    /// `--depth`: links between services.
    pub depth: Option<usize>,
    /// `--attempts`, or `--retries` plus one: of every caller of the chain.
    pub attempts: Option<u32>,
    /// `--attempts-at` and `--retries-at`: of one caller.
    pub attempts_at: Vec<(String, u32)>,
    /// `--owner`: the only caller that repeats.
    pub owner: Option<String>,
    /// `--mesh`: whose defaults the proxies between two services have, where nothing else says how often they try.
    pub mesh: Option<Mesh>,
    /// `--sidecar`: what the proxies are.
    pub sidecar: Option<SidecarKind>,
    /// `--sidecar-attempts`, or `--sidecar-retries` plus one: of the proxy on every link between two services.
    pub sidecar_attempts: Option<u32>,
    /// `--sidecar-attempts-at` and `--sidecar-retries-at`: of the proxy under one caller.
    pub sidecar_attempts_at: Vec<(String, u32)>,
    /// `--undeclared`: of a layer behind one caller that no configuration names.
    pub undeclared: Vec<(String, u32)>,
    /// `--retry-on`: of every caller, proxy and the client.
    pub retry_on: Option<RetryOn>,
    /// `--fault`; without a service it is the bottom one's.
    pub faults: Vec<(Option<String>, ServiceFault)>,
    /// `--requests`.
    pub requests: Option<u64>,
    /// Requests where neither a flag nor the scenario says how many; one, where this does not either.
    pub requests_unless_said: Option<u64>,
    /// `--concurrency`.
    pub concurrency: Option<u32>,
    /// `--rate`.
    pub rate: Option<f64>,
    /// `--cancel-after`.
    pub cancel_after: Option<Duration>,
    /// `--item`.
    pub item: Option<String>,
    /// `--deadline`.
    pub deadline: Option<OrNone<Duration>>,
    /// `--seed`.
    pub seed: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn load(source: &str, mesh: Mesh, change: impl FnOnce(&mut Overrides)) -> Scenario {
        let mut overrides = Overrides {
            mesh: Some(mesh),
            ..Overrides::default()
        };
        change(&mut overrides);
        Scenario::load(Some(source), &overrides).unwrap()
    }

    #[test]
    fn a_mesh_fills_the_proxies_between_two_services() {
        let line = |source: &str, mesh| load(source, mesh, |_| ()).chain_line();
        let chain = "client x2 > web x3 > api > db";
        assert_eq!(line(chain, Mesh::Istio), "client x2 > web x3*3 > api x1*3 > db");
        assert_eq!(line(chain, Mesh::Linkerd), "client x2 > web x3*2 > api x1*2 > db");
        assert_eq!(line(chain, Mesh::None), "client x2 > web x3 > api > db");
        // HTTP: a dead service is tried again, an answer that arrived is not.
        assert_eq!(line(chain, Mesh::IstioHttp), "client x2 > web x3 > api > db");
        assert_eq!(
            line("web x3 > api > db refuse", Mesh::IstioHttp),
            "client > web x3 > api x1*3 > db refuse"
        );
        let dead = load("web x3 > api > db", Mesh::IstioHttp, |flags| {
            flags.faults = vec![(Some("api".to_owned()), "refuse".parse().unwrap())];
        });
        assert_eq!(dead.chain_line(), "client > web x3*3 > api > db");
    }

    #[test]
    fn istio_tries_two_codes_again_and_the_others_what_their_callers_do() {
        let codes = |mesh, change: fn(&mut Overrides)| {
            let scenario = load("web x3 > db down", mesh, change);
            let web = &scenario.chain.services[0].caller;
            assert_eq!(
                web.retry.retry_on.to_string(),
                scenario.chain.client.retry.retry_on.to_string()
            );
            web.proxy.retry_on.to_string()
        };
        assert_eq!(codes(Mesh::Istio, |_| ()), "CANCELLED,UNAVAILABLE");
        assert_eq!(codes(Mesh::Linkerd, |_| ()), "UNAVAILABLE");
        let of_callers = |flags: &mut Overrides| flags.set = vec!["retry.retry_on=[\"ABORTED\"]".to_owned()];
        assert_eq!(codes(Mesh::Istio, of_callers), "CANCELLED,UNAVAILABLE");
        assert_eq!(codes(Mesh::Linkerd, of_callers), "ABORTED");
        let by_hand = |flags: &mut Overrides| flags.set = vec!["sidecars.retry.retry_on=[\"ABORTED\"]".to_owned()];
        assert_eq!(codes(Mesh::Istio, by_hand), "ABORTED");
        let by_flag = |flags: &mut Overrides| flags.retry_on = Some(RetryOn::Any);
        assert_eq!(codes(Mesh::Istio, by_flag), "any");
    }

    #[test]
    fn a_number_given_by_hand_wins_over_a_mesh() {
        let line = |source: &str, change: fn(&mut Overrides)| load(source, Mesh::Istio, change).chain_line();
        let chain = "web x3*2 > api x3 > db";
        assert_eq!(line(chain, |_| ()), "client > web x3*2 > api x3*3 > db");
        assert_eq!(
            line("web x3*1 > api x3 > db", |_| ()),
            "client > web x3 > api x3*3 > db"
        );
        let of_all = |flags: &mut Overrides| flags.sidecar_attempts = Some(1);
        assert_eq!(line(chain, of_all), "client > web x3 > api x3 > db");
        let of_one = |flags: &mut Overrides| flags.sidecar_attempts_at = vec![("api".to_owned(), 5)];
        assert_eq!(line(chain, of_one), "client > web x3*2 > api x3*5 > db");
        let of_file = |flags: &mut Overrides| flags.set = vec!["sidecars.attempts=4".to_owned()];
        assert_eq!(
            line("per-hop", of_file),
            "client > frontend x3*4 > checkout x3*4 > pricing x3*4 > inventory down"
        );
        let one_off = |flags: &mut Overrides| flags.set = vec!["sidecars.api.retry.attempts=1".to_owned()];
        assert_eq!(line("web x3 > api x3 > db", one_off), "client > web x3*3 > api x3 > db");
        let owner = |flags: &mut Overrides| flags.owner = Some("api".to_owned());
        assert_eq!(line("web x3 > api x3 > db", owner), "client > web > api x3 > db");
    }

    #[test]
    fn what_a_mesh_filled_is_repeated_without_it() {
        let scenario = load("web x3 > db down", Mesh::Istio, |_| ());
        assert_eq!(
            scenario.repeat("run"),
            "run 'web x3*3 > db down' --set 'sidecars.retry.retry_on=[\"CANCELLED\", \"UNAVAILABLE\"]'"
        );
    }
}
