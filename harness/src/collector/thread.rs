//! A thread with a tokio runtime of its own: load in the harness's main runtime never starves what runs here, and no
//! tracing subscriber sees it, so the collector's traffic can never turn into spans that are exported to the
//! collector.

use std::{future::Future, io, thread::JoinHandle};
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
};
use tracing::dispatcher::{self, Dispatch};

/// A runtime for [`spawn`].
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs the future that `make` makes to its end. The receiver gets the outcome when the future has ended, every task
/// it left behind is gone and its sockets are closed; it gets an error when the thread panicked.
pub(crate) fn spawn<Made, Outcome>(
    name: &str,
    runtime: Runtime,
    make: impl FnOnce() -> Made + Send + 'static,
) -> io::Result<(JoinHandle<()>, oneshot::Receiver<Outcome>)>
where
    Made: Future<Output = Outcome>,
    Outcome: Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        dispatcher::with_default(&Dispatch::none(), || {
            let outcome = runtime.block_on(async { make().await });
            // Never waits: a name look-up that hangs in the background must not hold the harness.
            runtime.shutdown_background();
            // Nobody waits any more when the owner was dropped.
            let _ = sender.send(outcome);
        });
    })?;
    Ok((thread, receiver))
}
