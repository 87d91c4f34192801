//! Waits for every child of this process, its own and the orphans it inherits.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, PidfdFlags, WaitOptions};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::Lock;
use crate::running::Running;
use crate::spec::ExitStatus;

/// Where to publish the end of each child that [`Reaper::spawn`] started. Orphans have no entry.
type Ends = HashMap<u32, watch::Sender<Option<ExitStatus>>>;

/// The one place of a process that waits for children. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reaper {
    /// Held while a child is spawned and while ends are collected, so that an end never comes before its entry.
    ends: Arc<Mutex<Ends>>,
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program is not there or may not be executed.
    #[error("cannot run {program:?}: {source}")]
    Program {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// It was started, but its descriptors could not be set up; it was killed.
    #[error("cannot attend to {program:?}: {source}")]
    Attend {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What a program that ran to its end wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Reaper {
    /// Starts to reap, and makes this process the one that inherits the orphans of its descendants (as the first
    /// process of a container it is that already).
    ///
    /// Call it once, on a runtime that lives as long as the process, before any child is started.
    ///
    /// # Errors
    /// If the system refuses the signal handler or the sub-reaper.
    pub fn start() -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let child_ended = signal(SignalKind::child())?;
        let reaper = Reaper { ends: Arc::default() };
        tokio::spawn(reaper.clone().reap_for_ever(child_ended));
        Ok(reaper)
    }

    /// Starts a program. It inherits `locks`, and so does everything it starts; all other descriptors are closed.
    ///
    /// User, folder, environment and streams are `command`'s; piped streams are in the returned [`Child`].
    ///
    /// # Errors
    /// If the program cannot be executed.
    pub fn spawn(&self, mut command: Command, locks: &[&Lock]) -> Result<Child, SpawnError> {
        let program = command.get_program().to_string_lossy().into_owned();
        if !locks.is_empty() {
            crate::sys::inherit(&mut command, locks.iter().map(|lock| lock.as_fd().as_raw_fd()).collect());
        }
        // The standard library waits for a child whose exec failed: under the lock nobody takes that end from it.
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let mut spawned = match command.spawn() {
            Ok(spawned) => spawned,
            Err(source) => return Err(SpawnError::Program { program, source }),
        };
        let attended = attend(&mut spawned);
        match attended {
            Ok((child, publish)) => {
                ends.insert(child.running.pid, publish);
                Ok(child)
            }
            Err(source) => {
                let _ = spawned.kill(); // reaped as an orphan
                Err(SpawnError::Attend { program, source })
            }
        }
    }

    /// Runs a program to its end and collects what it writes. Its standard input is empty.
    ///
    /// If the caller stops waiting, the program runs on.
    ///
    /// # Errors
    /// If the program cannot be executed or its output cannot be read.
    pub async fn output(&self, mut command: Command, locks: &[&Lock]) -> Result<Output, SpawnError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.spawn(command, locks)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr, status) = tokio::join!(read(stdout), read(stderr), child.wait());
        let attend = |source| SpawnError::Attend { program: program.clone(), source };
        Ok(Output { status, stdout: stdout.map_err(attend)?, stderr: stderr.map_err(attend)? })
    }

    async fn reap_for_ever(self, mut child_ended: Signal) {
        loop {
            self.reap();
            // Signals merge, so each one means «at least one»: reap() takes all there are.
            if child_ended.recv().await.is_none() {
                return;
            }
        }
    }

    fn reap(&self) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // `wait`, not `waitpid(None)`: that one means «of my own process group», which no engine process is in.
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let (pid, status) = (pid.as_raw_nonzero().get().unsigned_abs(), ExitStatus::from_wait(status));
                    match ends.remove(&pid) {
                        Some(publish) => drop(publish.send_replace(Some(status))),
                        None => tracing::trace!(pid, %status, "orphan reaped"),
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => return, // none has ended, or there are no children
            }
        }
    }
}

async fn read(stream: Option<pipe::Receiver>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match stream {
        Some(mut stream) => stream.read_to_end(&mut bytes).await.map(|_| bytes),
        None => Ok(bytes),
    }
}

/// Wraps a spawned child. It cannot have been reaped yet, so its process id is still its own.
fn attend(spawned: &mut std::process::Child) -> io::Result<(Child, watch::Sender<Option<ExitStatus>>)> {
    let raw = i32::try_from(spawned.id()).map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
    let pid = Pid::from_raw(raw).ok_or(ErrorKind::InvalidData)?;
    let (running, publish) = Running::new(spawned.id(), rustix::process::pidfd_open(pid, PidfdFlags::empty())?);
    let stdin = spawned.stdin.take().map(|stream| pipe::Sender::from_owned_fd(OwnedFd::from(stream))).transpose()?;
    let stdout =
        spawned.stdout.take().map(|stream| pipe::Receiver::from_owned_fd(OwnedFd::from(stream))).transpose()?;
    let stderr =
        spawned.stderr.take().map(|stream| pipe::Receiver::from_owned_fd(OwnedFd::from(stream))).transpose()?;
    Ok((Child { stdin, stdout, stderr, running }, publish))
}

/// A program started by a [`Reaper`]. Dropping it neither kills the program nor leaves a zombie.
#[derive(Debug)]
pub struct Child {
    /// Its standard input, if piped.
    pub stdin: Option<pipe::Sender>,
    /// Its standard output, if piped.
    pub stdout: Option<pipe::Receiver>,
    /// Its standard error, if piped.
    pub stderr: Option<pipe::Receiver>,
    running: Running,
}

impl Child {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.pid
    }

    /// Waits for its end: of this one process, not of what it started (for that: [`sweep`](super::sweep)).
    pub async fn wait(&self) -> ExitStatus {
        self.running.wait().await
    }

    /// How it ended, if it has.
    pub fn try_wait(&self) -> Option<ExitStatus> {
        self.running.try_wait()
    }

    /// Sends it a signal; without effect once it has ended, whoever has its process id then.
    pub fn signal(&self, signal: i32) {
        self.running.signal(signal);
    }
}
