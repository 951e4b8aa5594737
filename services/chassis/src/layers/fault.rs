//! The fault layer: behaves as the broken service itself, right around the handler. What an arrival gets is decided by
//! `crate::fault::decide`; here it is obeyed.

use super::{Around, Below, ask};
use crate::{
    Request, Response, body,
    call::{AttemptPath, Context},
    code::Code,
    fault::{self, Draw, Fault, Scope, Verdict},
    outcome::{self, Head, WorkDone},
};
use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
};
use tonic::Status;

/// Fails arrivals as the fault says.
#[derive(Debug, Clone)]
pub struct FaultLayer {
    fault: Fault,
    seed: u64,
    seen: Arc<Mutex<Seen>>,
}

impl FaultLayer {
    /// A layer that has seen nothing.
    pub fn new(fault: Fault, seed: u64) -> Self {
        Self {
            fault,
            seed,
            seen: Arc::default(),
        }
    }

    fn verdict(&self, path: Option<&AttemptPath>) -> Verdict {
        let Fault::Fail(fail) = &self.fault else {
            return Verdict::Work;
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (in_process, in_request, occurrence) = seen.arrive(path, fail.first.is_some(), fail.p.is_some());
        let before = if fail.scope == Scope::Process {
            in_process
        } else {
            in_request
        };
        let (request, path) = path.map_or((in_process, &[][..]), |path| (path.request, &path.attempts[..]));
        fault::decide(
            &self.fault,
            before,
            Draw {
                seed: self.seed,
                request,
                path,
                occurrence,
            },
        )
    }
}

impl Around for FaultLayer {
    async fn around(self, request: Request, mut below: impl Below) -> Response {
        let path = request
            .extensions()
            .get::<Context>()
            .and_then(|context| context.path.as_ref());
        let fail = |code| Status::new(code, "the injected fault");
        match self.verdict(path) {
            Verdict::Work => ask(&mut below, request).await,
            Verdict::FailBefore(code) => {
                body::drain(request.into_body()).await;
                fail(code).into_http()
            }
            Verdict::FailAfter(code) => {
                let response = ask(&mut below, request).await;
                match outcome::head(&response) {
                    // Work that failed by itself keeps its own status.
                    Head::TrailersOnly(own) if own != Code::Ok => response,
                    _ => {
                        let mut failed: Response = fail(code).into_http();
                        failed.extensions_mut().insert(WorkDone);
                        failed
                    }
                }
            }
        }
    }
}

/// Requests whose arrivals are remembered: far more than can be in flight at once.
const MAX_REQUESTS: usize = 65_536;

/// Paths of one request that are told apart; a stranger who invents more draws as if each came for the first time.
const MAX_PATHS: usize = 65_536;

/// What has arrived so far, as far as a fault may ask.
#[derive(Debug, Default)]
struct Seen {
    arrivals: u64,
    requests: HashMap<u64, SeenRequest>,
    order: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct SeenRequest {
    arrivals: u64,
    /// How often each path has come, by its hash.
    paths: HashMap<u64, u32>,
}

impl Seen {
    /// Remembers an arrival; answers how many came before it in the process and in its request, and how often its path did.
    fn arrive(&mut self, path: Option<&AttemptPath>, count_requests: bool, count_paths: bool) -> (u64, u64, u32) {
        let in_process = self.arrivals;
        self.arrivals += 1;
        let Some(path) = path.filter(|_| count_requests || count_paths) else {
            return (in_process, 0, 0);
        };
        if !self.requests.contains_key(&path.request) {
            if self.order.len() == MAX_REQUESTS
                && let Some(oldest) = self.order.pop_front()
            {
                self.requests.remove(&oldest);
            }
            self.order.push_back(path.request);
        }
        let request = self.requests.entry(path.request).or_default();
        let in_request = request.arrivals;
        request.arrivals += 1;
        if !count_paths {
            return (in_process, in_request, 0);
        }
        let mut hasher = DefaultHasher::new();
        path.attempts.hash(&mut hasher);
        let path = hasher.finish();
        if request.paths.len() >= MAX_PATHS && !request.paths.contains_key(&path) {
            return (in_process, in_request, 0);
        }
        let times = request.paths.entry(path).or_default();
        let occurrence = *times;
        *times += 1;
        (in_process, in_request, occurrence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Wrap;
    use std::convert::Infallible;
    use tower::{Layer as _, ServiceExt as _, service_fn};

    async fn code_of(layer: &FaultLayer, work: Code, request_number: u64, attempt: u32) -> (Code, bool) {
        let handler = service_fn(move |_: Request| async move {
            Ok::<Response, Infallible>(match work {
                Code::Ok => Response::default(),
                code => Status::new(code, "own").into_http(),
            })
        });
        let mut request = Request::default();
        let path = Some(AttemptPath::root(request_number).then(attempt));
        request.extensions_mut().insert(Context {
            path,
            attempt,
            deadline: None,
            request_deadline_us: None,
        });
        let response = Wrap(layer.clone()).layer(handler).oneshot(request).await.unwrap();
        let code = match outcome::head(&response) {
            Head::TrailersOnly(code) => code,
            Head::Committed => Code::Ok,
        };
        (code, response.extensions().get::<WorkDone>().is_some())
    }

    fn layer(fault: &str) -> FaultLayer {
        FaultLayer::new(fault.parse().unwrap(), 27)
    }

    #[tokio::test]
    async fn the_first_two_arrivals_of_each_request_fail() {
        let layer = layer("fail:first=2");
        for request in 1..=2 {
            let mut codes = Vec::new();
            for attempt in 1..=3 {
                codes.push(code_of(&layer, Code::Ok, request, attempt).await.0);
            }
            assert_eq!(codes, [Code::Unavailable, Code::Unavailable, Code::Ok]);
        }
    }

    #[tokio::test]
    async fn in_the_scope_of_the_process_the_requests_share_the_count() {
        let layer = layer("fail:first=2,scope=process");
        let mut codes = Vec::new();
        for request in 1..=3 {
            codes.push(code_of(&layer, Code::Ok, request, 1).await.0);
        }
        assert_eq!(codes, [Code::Unavailable, Code::Unavailable, Code::Ok]);
    }

    #[tokio::test]
    async fn after_the_work_it_fails_and_the_work_counts() {
        assert_eq!(
            code_of(&layer("fail:at=after"), Code::Ok, 1, 1).await,
            (Code::Unavailable, true)
        );
        assert_eq!(
            code_of(&layer("fail"), Code::Ok, 1, 1).await,
            (Code::Unavailable, false)
        );
    }

    #[tokio::test]
    async fn an_invalid_request_keeps_its_status_only_after_the_work() {
        assert_eq!(
            code_of(&layer("fail:at=after"), Code::InvalidArgument, 1, 1).await,
            (Code::InvalidArgument, false)
        );
        assert_eq!(
            code_of(&layer("fail"), Code::InvalidArgument, 1, 1).await,
            (Code::Unavailable, false)
        );
    }

    #[tokio::test]
    async fn the_same_path_again_is_another_draw_and_a_rerun_repeats_them() {
        let run = async || {
            let layer = layer("fail:p=0.5");
            let mut codes = Vec::new();
            for _ in 0..64 {
                codes.push(code_of(&layer, Code::Ok, 1, 1).await.0);
            }
            codes
        };
        let first = run().await;
        assert!(first.contains(&Code::Ok) && first.contains(&Code::Unavailable));
        assert_eq!(first, run().await);
    }
}
