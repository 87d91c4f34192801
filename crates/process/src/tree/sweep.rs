//! Kills until nothing is left (failover.md F3, postgres-recipes.md (1)).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};
use tokio::io::Interest;
use tokio::time::{Instant, timeout_at};

use crate::sys;

/// Which processes to kill. Never the calling one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Those whose working folder is this one: every PostgreSQL process has the data folder.
    WorkingFolder(PathBuf),
    /// Everything this process started, and started by that, as far as orphans come back to it (see
    /// [`Reaper::start`](super::Reaper::start)).
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

/// Sends SIGKILL to every process that `selector` names, again and again until a whole pass finds none.
///
/// # Errors
/// [`SweepError::Stuck`] if some are not dead after `limit`; then nothing may be concluded.
pub async fn sweep(selector: &Selector, limit: Duration) -> Result<SweepReport, SweepError> {
    if *selector == Selector::Namespace && !rustix::process::getpid().is_init() {
        return Err(SweepError::NotFirst);
    }
    let deadline = Instant::now() + limit;
    let mut report = SweepReport::default();
    loop {
        report.passes += 1;
        let dying = pass(selector, &mut report)?;
        if dying.is_empty() {
            return Ok(report);
        }
        let mut stuck = Vec::new();
        for (pid, pidfd) in dying {
            let ended = sys::register(pidfd, Interest::READABLE)?;
            // Readable when the process is a zombie: it runs no more and has closed its files.
            if !matches!(timeout_at(deadline, ended.readable()).await, Ok(Ok(_))) {
                stuck.extend(Process::read(pid).filter(Process::alive).map(Process::into_stuck));
            }
        }
        if Instant::now() >= deadline && !stuck.is_empty() {
            return Err(SweepError::Stuck { processes: stuck, after: limit });
        }
    }
}

/// Kills all that match now.
fn pass(selector: &Selector, report: &mut SweepReport) -> Result<Vec<(u32, OwnedFd)>, SweepError> {
    let mut dying = Vec::new();
    for pid in matching(selector, report)? {
        let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
        let pidfd = match rustix::process::pidfd_open(id, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => continue,
            Err(error) => return Err(SweepError::Proc(error.into())),
        };
        // The id may have passed to another process since it was listed; the pidfd cannot.
        if !still_matches(selector, pid) {
            continue;
        }
        match sys::send_signal(pidfd.as_fd(), libc::SIGKILL) {
            Ok(()) => {
                report.killed.insert(pid);
                dying.push((pid, pidfd));
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(SweepError::Proc(error)),
        }
    }
    Ok(dying)
}

fn matching(selector: &Selector, report: &mut SweepReport) -> io::Result<Vec<u32>> {
    let me = std::process::id();
    let processes: Vec<Process> = list_all()?.into_iter().filter(|process| process.pid != me).collect();
    let alive = processes.iter().filter(|process| process.alive()).map(|process| process.pid);
    Ok(match selector {
        Selector::Namespace => alive.collect(),
        Selector::Descendants => {
            let parents: BTreeMap<u32, u32> = processes.iter().map(|process| (process.pid, process.parent)).collect();
            alive.filter(|pid| descends(*pid, me, &parents)).collect()
        }
        Selector::WorkingFolder(folder) => {
            let mut found = Vec::new();
            for pid in alive {
                match works_in(pid, folder) {
                    Ok(true) => found.push(pid),
                    Ok(false) => {}
                    Err(_) => drop(report.unreadable.insert(pid)),
                }
            }
            found
        }
    })
}

fn still_matches(selector: &Selector, pid: u32) -> bool {
    match selector {
        Selector::WorkingFolder(folder) => works_in(pid, folder).unwrap_or(false),
        // Between listing and opening, an id can only have passed to another process of ours: the ids of a namespace
        // are handed out in a circle, and a descendant that was reaped was reaped by this very process or below it.
        Selector::Descendants | Selector::Namespace => true,
    }
}

fn descends(pid: u32, ancestor: u32, parents: &BTreeMap<u32, u32>) -> bool {
    let mut current = pid;
    // No chain is longer than the list; a table read while it changes could hold a loop.
    for _ in 0..=parents.len() {
        match parents.get(&current) {
            Some(parent) if *parent == ancestor => return true,
            Some(parent) => current = *parent,
            None => return false,
        }
    }
    false
}

/// Is this the process's working folder? Compared as a file, so that other mounts of it count, and by name, so that a
/// removed folder does.
fn works_in(pid: u32, folder: &Path) -> io::Result<bool> {
    let link = PathBuf::from(format!("/proc/{pid}/cwd"));
    let name = match std::fs::read_link(&link) {
        Ok(name) => name,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        Err(_) => return Ok(false), // gone, or past the point of its exit where it lets go of its folder
    };
    let mut removed = folder.as_os_str().to_owned();
    removed.push(" (deleted)");
    if name == folder || name.as_os_str() == removed {
        return Ok(true);
    }
    Ok(match (std::fs::metadata(&link), std::fs::metadata(folder)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    })
}

/// One line of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    command: String,
    state: char,
    parent: u32,
    threads: u32,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// proc_pid_stat(5): the name stands in brackets and may hold anything, so the last bracket ends it.
    fn parse(line: &str) -> Option<Self> {
        let (pid, rest) = line.split_once(" (")?;
        let (command, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let threads = fields.nth(15)?.parse().ok()?;
        Some(Process { pid: pid.parse().ok()?, command: command.to_owned(), state, parent, threads })
    }

    /// A zombie has ended, unless only its first thread has.
    fn alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }

    fn into_stuck(self) -> StuckProcess {
        StuckProcess { pid: self.pid, command: self.command, state: self.state }
    }
}

fn list_all() -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        processes.extend(pid.and_then(Process::read));
    }
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_hold_brackets_and_spaces() {
        let line = "42 (a) R (b) D 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 100 0 0\n";
        let wanted = Process { pid: 42, command: "a) R (b".to_owned(), state: 'D', parent: 7, threads: 3 };
        assert_eq!(Process::parse(line), Some(wanted));
    }

    #[test]
    fn a_zombie_leader_with_threads_is_alive() {
        let process = |state, threads| Process { pid: 2, command: String::new(), state, parent: 1, threads };
        assert!(process('Z', 2).alive());
        assert!(!process('Z', 1).alive());
        assert!(process('D', 1).alive());
    }

    #[test]
    fn descent_ends_on_a_loop() {
        let parents = BTreeMap::from([(2, 3), (3, 2), (4, 1), (5, 4)]);
        assert!(!descends(2, 1, &parents));
        assert!(descends(5, 1, &parents));
    }

    #[test]
    fn stuck_processes_are_named() {
        let processes = vec![StuckProcess { pid: 9, command: "postgres".to_owned(), state: 'D' }];
        let error = SweepError::Stuck { processes, after: Duration::from_secs(2) };
        assert_eq!(error.to_string(), "not dead 2s after SIGKILL: 9 postgres (state D); the Lease must run out");
    }
}
