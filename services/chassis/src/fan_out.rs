//! A handler's calls: one arrival may cause several of its callee, one after another or all at once.
//!
//! Not here: trying again. Each of the calls goes through the client stack by itself, with attempts and a span of its own.

use crate::{call::Context, config::FanOut};
use futures_util::future::join_all;
use tonic::Status;

/// Makes as many calls as the settings of this arrival say. `ask` makes one of them, with the context that it is given.
///
/// In sequence the next call starts when the last was answered OK, and the first failure ends them. In parallel all start at
/// once and all run to their end; whoever drops the future drops all of them. The callee answers the same to each, so that the
/// first answer stands for all.
///
/// # Errors
/// The failure of the first call, by its number, that failed.
pub async fn ask<Answer, Asking>(context: &Context, ask: impl Fn(Context) -> Asking) -> Result<Answer, Status>
where
    Asking: Future<Output = Result<Answer, Status>>,
{
    let config = &context.generation.config;
    let call = |call| {
        ask(Context {
            call,
            ..context.clone()
        })
    };
    match config.fan_out {
        FanOut::Sequence => {
            let first = call(1).await?;
            for number in 2..=config.calls {
                call(number).await?;
            }
            Ok(first)
        }
        FanOut::Parallel => {
            let answers = join_all((1..=config.calls.max(1)).map(call)).await;
            let all: Vec<Answer> = answers.into_iter().collect::<Result<_, _>>()?;
            all.into_iter()
                .next()
                .ok_or_else(|| Status::internal("no call was made"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{code::Code, config::Config, settings::Generation};
    use std::sync::Mutex;

    /// The calls that were made, and what came of them, where the ones named here fail.
    async fn made(calls: u32, fan_out: FanOut, failing: &[u32]) -> (Vec<u32>, Result<u32, Code>) {
        let config = Config {
            calls,
            fan_out,
            ..Config::named("checkout")
        };
        let context = Context::root(1, None, Generation::first(config));
        let made = Mutex::new(Vec::new());
        let answer = ask(&context, |context| {
            made.lock().unwrap().push(context.call);
            async move {
                if failing.contains(&context.call) {
                    let code = if context.call == 2 {
                        Code::Internal
                    } else {
                        Code::Unavailable
                    };
                    return Err(Status::new(code, "down"));
                }
                Ok(context.call)
            }
        });
        let answer = answer.await.map_err(|status| status.code());
        (made.into_inner().unwrap(), answer)
    }

    #[tokio::test]
    async fn a_sequence_ends_with_its_first_failure_and_parallel_calls_all_run() {
        use FanOut::{Parallel, Sequence};
        assert_eq!(made(1, Sequence, &[]).await, (vec![1], Ok(1)));
        assert_eq!(made(3, Sequence, &[]).await, (vec![1, 2, 3], Ok(1)));
        assert_eq!(made(3, Sequence, &[2, 3]).await, (vec![1, 2], Err(Code::Internal)));
        assert_eq!(made(3, Parallel, &[]).await, (vec![1, 2, 3], Ok(1)));
        assert_eq!(made(3, Parallel, &[2, 3]).await, (vec![1, 2, 3], Err(Code::Internal)));
        assert_eq!(made(3, Parallel, &[3]).await, (vec![1, 2, 3], Err(Code::Unavailable)));
    }
}
