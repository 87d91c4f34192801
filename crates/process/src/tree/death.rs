//! The end of one process that is nobody's child here.

use crate::sys;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process whose end can be awaited. It costs nothing while that process lives.
#[derive(Debug)]
pub struct Death {
    process: AsyncFd<OwnedFd>,
}

impl Death {
    /// Of the process that has this number now.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(pid: i32) -> io::Result<Death> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Death { process: sys::register(pidfd, Interest::READABLE)? })
    }

    /// Resolves when it runs no more and has closed its files.
    pub async fn ended(&self) {
        // Only a runtime that ends says anything else; whoever waited goes with it.
        let _ = self.process.readable().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn the_end_of_a_process_is_told_when_it_has_come_and_not_before() {
        let mut child = tokio::process::Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap();
        let death = Death::of(pid).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(50), death.ended()).await.is_err(), "it runs");
        child.kill().await.unwrap();
        death.ended().await;
        assert!(Death::of(pid).is_err(), "there is none of this number any more");
    }
}
