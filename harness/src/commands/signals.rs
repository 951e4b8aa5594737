//! SIGINT, SIGTERM and SIGHUP: the first asks for an end, the second is obeyed at once.

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

/// Turns true with the first SIGINT, SIGTERM or SIGHUP.
pub(super) fn interrupts() -> std::io::Result<watch::Receiver<bool>> {
    let (tell, told) = watch::channel(false);
    let mut signals = Signals::new()?;
    tokio::spawn(async move {
        signals.next().await;
        let _ = tell.send(true);
    });
    Ok(told)
}

/// Ends with the second of them.
pub(super) fn second_interrupt() -> std::io::Result<impl Future<Output = ()>> {
    let mut signals = Signals::new()?;
    Ok(async move {
        signals.next().await;
        signals.next().await;
    })
}

/// SIGINT, SIGTERM and SIGHUP.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> std::io::Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
