//! Ctrl-C and SIGTERM.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels `shutdown` at the first SIGINT or SIGTERM.
pub async fn cancel_on_signal(shutdown: CancellationToken) {
    next_signal().await;
    shutdown.cancel();
}

/// Resolves at the next SIGINT, SIGTERM or SIGHUP of a closed terminal; never when handlers cannot be installed.
pub async fn next_signal() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals else {
        tracing::error!("cannot install signal handlers; stop this process with SIGKILL");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}
