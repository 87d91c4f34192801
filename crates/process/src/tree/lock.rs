//! An exclusive lock that lives as long as any process that inherited it (failover.md F5).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// How often a held lock is tried again: the last holder is being killed, which takes some ten milliseconds.
const RETRY: Duration = Duration::from_millis(2);

/// A held `flock`. It is released when this and every descriptor inherited from it (see
/// [`Reaper::spawn`](super::Reaper::spawn)) are closed; so whoever gets it knows that all of those processes are dead.
/// Only on a file system local to the node: there alone it excludes every other process.
#[derive(Debug)]
pub struct Lock {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl Lock {
    /// The locked file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process (or one that inherited from it) holds it.
    #[error("{} is locked by another process: its holder, or something it started, still runs", path.display())]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened or locked.
    #[error("cannot lock {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Takes the lock, making the file if needed (its folder must exist), or says at once that it is held.
///
/// # Errors
/// [`LockError::Held`], or what the system said.
pub fn lock_exclusive(path: &Path) -> Result<Lock, LockError> {
    let io = |error: Errno| LockError::Io { path: path.to_owned(), source: error.into() };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let descriptor = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(io)?;
    match rustix::fs::flock(&descriptor, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock { descriptor, path: path.to_owned() }),
        Err(Errno::WOULDBLOCK) => Err(LockError::Held { path: path.to_owned() }),
        Err(error) => Err(io(error)),
    }
}

/// Takes the lock as soon as it is free, trying for `limit`.
///
/// # Errors
/// As [`lock_exclusive`], `Held` after `limit`.
pub async fn wait_exclusive(path: &Path, limit: Duration) -> Result<Lock, LockError> {
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        match lock_exclusive(path) {
            Err(LockError::Held { .. }) if tokio::time::Instant::now() < deadline => tokio::time::sleep(RETRY).await,
            result => return result,
        }
    }
}
