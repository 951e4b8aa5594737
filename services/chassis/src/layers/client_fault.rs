//! A fault in the caller's own outbound stack, as the fault filter of a mesh puts it there: what it fails is never sent. Inside
//! the retry loop it meets every attempt, outside it every call.

use super::{Around, Below, ask};
use crate::{
    Request, Response,
    call::Context,
    config::Callee,
    counts::Counts,
    fault::{self, Kind},
};
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

/// Fails calls or attempts as the client-side fault in force says.
#[derive(Debug, Clone)]
pub struct ClientFaultLayer {
    /// Which side of the retry loop this one is on; a fault on the other side is none here.
    pub inside: bool,
    /// Where a call is counted that the retry layer never sees.
    pub counts: Arc<Counts>,
    /// Whom the calls go to.
    pub callee: Arc<Callee>,
}

impl Around for ClientFaultLayer {
    async fn around(&self, request: Request, mut below: impl Below) -> Response {
        let context = request.extensions().get::<Context>();
        let placed = context.and_then(|context| Some((context, context.generation.config.client_fault?)));
        let Some((context, placed)) = placed.filter(|(_, placed)| placed.inside == self.inside) else {
            return ask(&mut below, request).await;
        };
        let verdict = fault::verdict_in_caller(&placed, context, &mut context.generation.seen_outbound());
        if !verdict.delay.is_zero() {
            let due = Instant::now() + verdict.delay;
            // The call's deadline cuts the wait.
            sleep_until(context.deadline.map_or(due, |deadline| deadline.min(due))).await;
        }
        if context.is_spent() {
            // Inside the loop nothing may go out any more; outside it the retry layer says the same, and counts it.
            return if self.inside {
                Status::deadline_exceeded("the call's deadline passed").into_http()
            } else {
                ask(&mut below, request).await
            };
        }
        // No other kind is for callers; the grammar refuses them.
        let Kind::Fail(told) = verdict.then else {
            return ask(&mut below, request).await;
        };
        if !self.inside {
            self.counts.on_link(&self.callee.name, context, |link| link.calls += 1);
        }
        Status::new(told.code, "the injected fault of the caller").into_http()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        code::Code,
        config::Config,
        layers::{Wrap, deadline::DeadlineOut, retry::Retry},
        outcome,
        settings::Generation,
    };
    use std::{
        convert::Infallible,
        sync::{
            Mutex,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };
    use tower::{Layer as _, ServiceExt as _, service_fn};

    /// A caller with three attempts of each call, and a callee that counts what reaches it.
    struct Caller {
        generation: Arc<Generation>,
        counts: Arc<Counts>,
        reached: Arc<AtomicU64>,
    }

    fn caller(client_fault: &str, change: impl FnOnce(&mut Config)) -> Caller {
        let mut config = Config::named("pricing");
        config.retry.attempts = 3;
        config.client_fault = Some(client_fault.parse().unwrap());
        change(&mut config);
        Caller {
            generation: Generation::first(config),
            counts: Counts::new(0),
            reached: Arc::default(),
        }
    }

    impl Caller {
        async fn call(&self, number: u64, deadline: Option<Duration>) -> Code {
            let callee = crate::config::Callee {
                name: "inventory".into(),
                address: "127.0.0.1:1".parse().unwrap(),
            };
            let fault = |inside| {
                Wrap(ClientFaultLayer {
                    inside,
                    counts: Arc::clone(&self.counts),
                    callee: Arc::new(callee.clone()),
                })
            };
            let reached = Arc::clone(&self.reached);
            let answers = service_fn(move |_: Request| {
                reached.fetch_add(1, Ordering::Relaxed);
                std::future::ready(Ok::<Response, Infallible>(Status::ok("").into_http()))
            });
            let retry = Wrap(Retry::new(
                callee.clone(),
                Arc::clone(&self.counts),
                Arc::new(Mutex::new(|| 0.5)),
            ));
            let stack = fault(false).layer(retry.layer(fault(true).layer(Wrap(DeadlineOut).layer(answers))));
            let mut request = Request::default();
            let context = Context::root(number, deadline, Arc::clone(&self.generation));
            request.extensions_mut().insert(context);
            let answer = stack.oneshot(request).await.unwrap();
            outcome::status_in(answer.headers()).unwrap()
        }

        /// Calls and attempts on the link, and what reached the callee.
        fn counted(&self) -> (u64, u64, u64) {
            let link = self.counts.totals().links["inventory"].clone();
            (link.calls, link.sent, self.reached.load(Ordering::Relaxed))
        }
    }

    #[tokio::test]
    async fn inside_the_loop_it_meets_every_attempt_and_none_is_received() {
        let caller = caller("inside:fail", |_| ());
        assert_eq!(caller.call(1, None).await, Code::Unavailable);
        assert_eq!(caller.counted(), (1, 3, 0));
    }

    #[tokio::test]
    async fn outside_the_loop_it_meets_the_call_and_nothing_is_sent() {
        let caller = caller("outside:fail:code=ABORTED", |_| ());
        assert_eq!(caller.call(1, None).await, Code::Aborted);
        assert_eq!(caller.counted(), (1, 0, 0));
    }

    #[tokio::test]
    async fn the_first_of_each_request_are_those_that_pass_this_layer() {
        let inside = caller("inside:fail:first=2", |_| ());
        let outside = caller("outside:fail:first=2", |_| ());
        for number in 1..=2 {
            assert_eq!(inside.call(number, None).await, Code::Ok);
            let mut codes = Vec::new();
            for _ in 0..3 {
                codes.push(outside.call(number, None).await);
            }
            assert_eq!(codes, [Code::Unavailable, Code::Unavailable, Code::Ok]);
        }
        assert_eq!(inside.counted(), (2, 6, 2));
        assert_eq!(outside.counted(), (6, 2, 2));
    }

    #[tokio::test]
    async fn its_count_and_that_of_the_services_own_fault_know_nothing_of_each_other() {
        let caller = caller("inside:fail:first=1,scope=process", |_| ());
        caller.generation.seen().arrive(None, true, true);
        assert_eq!(caller.call(1, None).await, Code::Ok);
        assert_eq!(caller.counted(), (1, 2, 1));
        assert_eq!(caller.generation.seen().arrivals(), 1);
    }

    #[test]
    fn its_draws_and_those_of_the_services_own_faults_know_nothing_of_each_other() {
        let generation = Generation::first(Config::named("pricing"));
        let fault = "fail:p=0.5".parse().unwrap();
        let fails = |number, place: Option<bool>| {
            let context = Context::root(number, None, Arc::clone(&generation));
            let seen = &mut crate::seen::Seen::default();
            let verdict = match place {
                None => fault::verdict(&fault, &context, seen),
                Some(inside) => fault::verdict_in_caller(&fault::ClientFault { fault, inside }, &context, seen),
            };
            verdict.then != Kind::None
        };
        // Of draws that are independent, two agree half of the time; the band is 1e-9 of the exact binomial on both sides.
        for (one, two) in [(None, Some(true)), (None, Some(false)), (Some(true), Some(false))] {
            let agree = (1..=10_000)
                .filter(|number| fails(*number, one) == fails(*number, two))
                .count();
            assert!(
                (4_695..=5_305).contains(&agree),
                "{agree} of 10,000 at {one:?} and {two:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_of_a_call_is_cut_by_its_deadline() {
        for (fault, sent) in [
            ("outside:delay:ms=500", 0),
            ("outside:delay:ms=500+fail", 0),
            ("inside:delay:ms=500", 1),
            ("inside:delay:ms=500+fail", 1),
        ] {
            let caller = caller(fault, |_| ());
            let started = Instant::now();
            let code = caller.call(1, Some(Duration::from_millis(200))).await;
            let waited = started.elapsed().as_millis();
            assert_eq!((code, waited), (Code::DeadlineExceeded, 200), "{fault}");
            let (calls, attempts, reached) = caller.counted();
            assert_eq!((calls, attempts), (1, sent), "{fault}");
            assert_eq!(reached, 0, "{fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_is_waited_for_before_each_attempt_or_once() {
        let fails = |config: &mut Config| config.retry.attempts = 2;
        for (fault, ms) in [("inside:delay:ms=30+fail", 60), ("outside:delay:ms=30+fail", 30)] {
            let caller = caller(fault, fails);
            let started = Instant::now();
            caller.call(1, None).await;
            assert_eq!(started.elapsed().as_millis(), ms, "{fault}");
        }
    }
}
