//! The fault layer: behaves as the broken service itself, right around the handler. What an arrival gets is decided by
//! `crate::fault::decide`; here it is obeyed.

use super::{Around, Below, ask};
use crate::{
    Request, Response, body,
    call::Context,
    code::Code,
    fault::{self, At, Draw, Earlier, Kind, Verdict},
    outcome::{self, Head, WorkDone},
};
use tonic::Status;

/// Fails arrivals as the fault in force when they came says.
#[derive(Debug, Clone, Copy)]
pub struct FaultLayer;

/// What an arrival gets.
fn verdict(context: &Context) -> Verdict {
    let config = &context.generation.config;
    let path = context.path.as_ref();
    let (count_requests, count_paths) = config.fault.remembers();
    let before = context.generation.seen().arrive(path, count_requests, count_paths);
    let (request, path) = path.map_or((before.in_process, &[][..]), |path| (path.request, &path.attempts[..]));
    let draw = Draw {
        seed: config.seed,
        request,
        path,
        occurrence: before.occurrence,
    };
    let earlier = Earlier {
        in_request: before.in_request,
        in_process: before.in_process,
    };
    fault::decide(&config.fault, earlier, draw)
}

impl Around for FaultLayer {
    async fn around(self, request: Request, mut below: impl Below) -> Response {
        let verdict = request.extensions().get::<Context>().map(verdict);
        let fail = |code| Status::new(code, "the injected fault");
        match verdict.map_or(Kind::None, |verdict| verdict.then) {
            Kind::Fail(told) if told.at == At::After => {
                let response = ask(&mut below, request).await;
                match outcome::head(&response) {
                    // Work that failed by itself keeps its own status.
                    Head::TrailersOnly(own) if own != Code::Ok => response,
                    _ => {
                        let mut failed: Response = fail(told.code).into_http();
                        failed.extensions_mut().insert(WorkDone);
                        failed
                    }
                }
            }
            Kind::Fail(told) => {
                body::drain(request.into_body()).await;
                fail(told.code).into_http()
            }
            _ => ask(&mut below, request).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{call::AttemptPath, config::Config, layers::Wrap, settings::Generation};
    use std::{convert::Infallible, sync::Arc};
    use tower::{Layer as _, ServiceExt as _, service_fn};

    async fn code_of(generation: &Arc<Generation>, work: Code, request_number: u64, attempt: u32) -> (Code, bool) {
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
            generation: Arc::clone(generation),
            trace: crate::call::TraceSlot::default(),
        });
        let response = Wrap(FaultLayer).layer(handler).oneshot(request).await.unwrap();
        let code = match outcome::head(&response) {
            Head::TrailersOnly(code) => code,
            Head::Committed => Code::Ok,
        };
        (code, response.extensions().get::<WorkDone>().is_some())
    }

    fn under(fault: &str) -> Arc<Generation> {
        Generation::first(Config {
            fault: fault.parse().unwrap(),
            ..Config::named("inventory")
        })
    }

    #[tokio::test]
    async fn the_first_two_arrivals_of_each_request_fail() {
        let generation = under("fail:first=2");
        for request in 1..=2 {
            let mut codes = Vec::new();
            for attempt in 1..=3 {
                codes.push(code_of(&generation, Code::Ok, request, attempt).await.0);
            }
            assert_eq!(codes, [Code::Unavailable, Code::Unavailable, Code::Ok]);
        }
    }

    #[tokio::test]
    async fn in_the_scope_of_the_process_the_requests_share_the_count() {
        let generation = under("fail:first=2,scope=process");
        let mut codes = Vec::new();
        for request in 1..=3 {
            codes.push(code_of(&generation, Code::Ok, request, 1).await.0);
        }
        assert_eq!(codes, [Code::Unavailable, Code::Unavailable, Code::Ok]);
    }

    #[tokio::test]
    async fn after_the_work_it_fails_and_the_work_counts() {
        assert_eq!(
            code_of(&under("fail:at=after"), Code::Ok, 1, 1).await,
            (Code::Unavailable, true)
        );
        assert_eq!(
            code_of(&under("fail"), Code::Ok, 1, 1).await,
            (Code::Unavailable, false)
        );
    }

    #[tokio::test]
    async fn an_invalid_request_keeps_its_status_only_after_the_work() {
        assert_eq!(
            code_of(&under("fail:at=after"), Code::InvalidArgument, 1, 1).await,
            (Code::InvalidArgument, false)
        );
        assert_eq!(
            code_of(&under("fail"), Code::InvalidArgument, 1, 1).await,
            (Code::Unavailable, false)
        );
    }

    #[tokio::test]
    async fn the_same_path_again_is_another_draw_and_a_rerun_repeats_them() {
        let run = async || {
            let generation = under("fail:p=0.5");
            let mut codes = Vec::new();
            for _ in 0..64 {
                codes.push(code_of(&generation, Code::Ok, 1, 1).await.0);
            }
            codes
        };
        let first = run().await;
        assert!(first.contains(&Code::Ok) && first.contains(&Code::Unavailable));
        assert_eq!(first, run().await);
    }
}
