//! Kills until nothing is left (failover.md F3, postgres-recipes.md (1)).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use tokio::io::Interest;
use tokio::time::{Instant, timeout_at};

use super::processes::{Process, children, list_all, newest, works_in};
use crate::sys;

/// How soon to look again when nothing is dying but something is not finished (a zombie that the reaper gets to).
const PAUSE: Duration = Duration::from_millis(1);

/// Which processes to kill. Never the calling one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Those whose working folder is this one: every PostgreSQL process has the data folder.
    WorkingFolder(PathBuf),
    /// Everything this process started, and everything started by that. Needs a running
    /// [`Reaper`](super::Reaper), which makes orphans come back to this process and collects them.
    Descendants,
    /// Everything in the PID namespace. Refused unless this process is the first of it.
    Namespace,
}

/// What a finished sweep did: at its end, one whole pass found nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// Process ids that were killed.
    pub killed: BTreeSet<u32>,
    /// Passes over all processes, the empty one included.
    pub passes: u32,
    /// Processes whose working folder may not be read (another user's); they were not touched.
    pub unreadable: BTreeSet<u32>,
}

/// A process that outlives SIGKILL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckProcess {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub command: String,
    /// Its state as in proc_pid_stat(5): `D` waits in the kernel, for example for a disk.
    pub state: char,
}

/// Why it is not known that nothing is left.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Some processes do not die. Until they are gone they may still write: nothing may be released (F3).
    #[error("not dead {after:?} after SIGKILL: {}; the Lease must run out", list(processes))]
    Stuck {
        /// The processes.
        processes: Vec<StuckProcess>,
        /// How long was waited.
        after: Duration,
    },
    /// Processes come and go so fast that no look at them was conclusive. Nothing may be released (F3).
    #[error("no conclusive look at the processes within {after:?}; the Lease must run out")]
    Restless {
        /// How long was tried.
        after: Duration,
    },
    /// [`Selector::Namespace`] from a process that is not the first of its namespace.
    #[error("only the first process of a PID namespace may kill all others in it")]
    NotFirst,
    /// The processes cannot be listed.
    #[error("cannot read /proc: {0}")]
    Proc(#[from] io::Error),
}

fn list(processes: &[StuckProcess]) -> String {
    let each = |process: &StuckProcess| format!("{} {} (state {})", process.pid, process.command, process.state);
    processes.iter().map(each).collect::<Vec<_>>().join(", ")
}

/// Sends SIGKILL to every process that `selector` names, again and again until none is left.
///
/// What proves that none is left:
/// * [`Selector::Descendants`]: the kernel says that this process has no child; a descendant without a living parent
///   would be one.
/// * [`Selector::Namespace`]: all others are killed in one step that no fork slips through, then none is seen.
/// * [`Selector::WorkingFolder`]: a whole pass that found nothing, while no process was made or went away; or two such
///   passes in a row, since on a machine shared with others processes are made all the time. A process that forks
///   into a number already passed and dies before its own is reached could be missed; the volume's
///   [`Lock`](super::Lock) is the proof that does not depend on this.
///
/// # Errors
/// [`SweepError::Stuck`] if some are not dead after `limit`; then nothing may be concluded.
pub async fn sweep(selector: &Selector, limit: Duration) -> Result<SweepReport, SweepError> {
    let mut sweep = Sweep { report: SweepReport::default(), deadline: Instant::now() + limit, limit };
    match selector {
        Selector::Descendants => sweep.descendants().await?,
        Selector::Namespace if rustix::process::getpid().is_init() => sweep.namespace().await?,
        Selector::Namespace => return Err(SweepError::NotFirst),
        Selector::WorkingFolder(folder) => sweep.working_folder(folder).await?,
    }
    Ok(sweep.report)
}

/// A sweep under way.
struct Sweep {
    report: SweepReport,
    deadline: Instant,
    limit: Duration,
}

impl Sweep {
    async fn descendants(&mut self) -> Result<(), SweepError> {
        let me = std::process::id();
        loop {
            self.report.passes += 1;
            let mut dying = Vec::new();
            for pid in children()? {
                dying.extend(self.kill(pid, |process| process.parent == me)?);
            }
            if no_children()? {
                return Ok(());
            }
            self.until_dead(dying).await?;
        }
    }

    async fn namespace(&mut self) -> Result<(), SweepError> {
        let me = std::process::id();
        loop {
            self.report.passes += 1;
            sys::kill_all_others()?;
            let mut dying = Vec::new();
            for process in list_all()?.found.iter().filter(|process| process.pid != me && process.alive()) {
                dying.extend(self.kill(process.pid, |_| true)?);
            }
            if dying.is_empty() {
                return Ok(());
            }
            self.until_dead(dying).await?;
        }
    }

    async fn working_folder(&mut self, folder: &std::path::Path) -> Result<(), SweepError> {
        let me = std::process::id();
        let mut empty_passes = 0;
        while empty_passes < 2 {
            self.report.passes += 1;
            let before = newest();
            let seen = list_all()?;
            let (mut found, mut dying) = (false, Vec::new());
            for process in seen.found.iter().filter(|process| process.pid != me && process.alive()) {
                match works_in(process.pid, folder) {
                    Ok(true) => {
                        found = true;
                        dying.extend(self.kill(process.pid, |process| works_in(process.pid, folder).unwrap_or(false))?);
                    }
                    Ok(false) => {}
                    Err(_) => drop(self.report.unreadable.insert(process.pid)),
                }
            }
            if found || seen.vanished {
                empty_passes = 0;
                self.until_dead(dying).await?;
            } else if before.is_some() && before == newest() {
                return Ok(());
            } else {
                empty_passes += 1;
            }
        }
        Ok(())
    }

    /// Kills one process, if it still is what was looked for: between look and kill its number may have passed to
    /// another one; the pidfd cannot.
    fn kill(&mut self, pid: u32, wanted: impl Fn(&Process) -> bool) -> Result<Option<(u32, OwnedFd)>, SweepError> {
        let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let pidfd = match rustix::process::pidfd_open(id, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(SweepError::Proc(error.into())),
        };
        if !Process::read(pid).is_some_and(|process| process.alive() && wanted(&process)) {
            return Ok(None);
        }
        match sys::send_signal(pidfd.as_fd(), libc::SIGKILL) {
            Ok(()) => {
                self.report.killed.insert(pid);
                Ok(Some((pid, pidfd)))
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(SweepError::Proc(error)),
        }
    }

    /// Waits until each is a zombie: then it runs no more and has closed its files.
    async fn until_dead(&self, dying: Vec<(u32, OwnedFd)>) -> Result<(), SweepError> {
        let mut stuck = Vec::new();
        if dying.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        for (pid, pidfd) in dying {
            let ended = sys::register(pidfd, Interest::READABLE)?;
            if !matches!(timeout_at(self.deadline, ended.readable()).await, Ok(Ok(_))) {
                stuck.extend(Process::read(pid).filter(Process::alive).map(StuckProcess::from));
            }
        }
        if Instant::now() < self.deadline {
            return Ok(());
        }
        let after = self.limit;
        Err(if stuck.is_empty() {
            SweepError::Restless { after }
        } else {
            SweepError::Stuck { processes: stuck, after }
        })
    }
}

/// Does the kernel say that there is no child, not even a dead one that waits to be collected?
fn no_children() -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match rustix::process::waitid(WaitId::All, options) {
        Err(Errno::CHILD) => Ok(true),
        Ok(_) | Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl From<Process> for StuckProcess {
    fn from(process: Process) -> Self {
        StuckProcess { pid: process.pid, command: process.command, state: process.state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuck_processes_are_named() {
        let processes = vec![StuckProcess { pid: 9, command: "postgres".to_owned(), state: 'D' }];
        let error = SweepError::Stuck { processes, after: Duration::from_secs(2) };
        assert_eq!(error.to_string(), "not dead 2s after SIGKILL: 9 postgres (state D); the Lease must run out");
    }
}
