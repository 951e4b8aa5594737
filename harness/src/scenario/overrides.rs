//! What flags say on top of a scenario: typed, each value already sound by itself.

use super::{OrNone, SidecarKind};
use chassis::{code::Code, fault::ServiceFault, policy::RetryOn};
use std::time::Duration;

/// A service mesh whose defaults fill the retries of the proxies. A preset fills a number and, for Istio, codes; it does not
/// make our proxy that mesh's in anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mesh {
    /// Istio in front of gRPC services, since 1.22 at least: 2 retries on `connect-failure`, `refused-stream`, `unavailable` and
    /// `cancelled` (`pilot/pkg/networking/core/route/retry/retry.go`).
    Istio,
    /// Istio since 1.24 in front of HTTP services: a dead service is tried three times, an HTTP 503 that arrived is not tried
    /// again (up to 1.23 it was; release note 50506).
    IstioHttp,
    /// Linkerd since 2.16, where `retry.linkerd.io/grpc` or `retry.linkerd.io/http` asks for retries: at most 1
    /// (`retry.linkerd.io/limit`).
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
