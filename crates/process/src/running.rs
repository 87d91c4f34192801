//! A program that runs, whoever collects its end.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tokio::sync::watch;

use crate::spec::ExitStatus;
use crate::sys;

/// A program's pidfd and, once known, its end.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub pid: u32,
    pub pidfd: Arc<OwnedFd>,
    status: watch::Receiver<Option<ExitStatus>>,
}

impl Running {
    /// A running program, and where to publish its end.
    pub(crate) fn new(pid: u32, pidfd: OwnedFd) -> (Self, watch::Sender<Option<ExitStatus>>) {
        let (publish, status) = watch::channel(None);
        (Running { pid, pidfd: Arc::new(pidfd), status }, publish)
    }

    /// The end of the program, as whoever waits for it in the kernel proves it.
    pub(crate) async fn wait(&self) -> ExitStatus {
        let mut status = self.status.clone();
        let known = match status.wait_for(Option::is_some).await {
            Ok(status) => *status,
            Err(_) => None,
        };
        match known {
            Some(status) => status,
            // The runtime shuts down: what happened is unknown, and «ended» must never be a guess.
            None => std::future::pending().await,
        }
    }

    /// The end, if it has come.
    pub(crate) fn try_wait(&self) -> Option<ExitStatus> {
        *self.status.borrow()
    }

    /// Sends a signal; a program that is gone already is not an error.
    pub(crate) fn signal(&self, signal: i32) {
        if let Err(error) = sys::send_signal(self.pidfd.as_fd(), signal)
            && error.raw_os_error() != Some(libc::ESRCH)
        {
            tracing::warn!(pid = self.pid, signal, %error, "cannot send signal");
        }
    }
}
