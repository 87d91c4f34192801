//! What `/proc` says about processes.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One line of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: u32,
    pub command: String,
    pub state: char,
    pub parent: u32,
    pub threads: u32,
}

impl Process {
    pub(super) fn read(pid: u32) -> Option<Self> {
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
    pub(super) fn alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }
}

/// All processes that `/proc` showed.
pub(super) struct Seen {
    pub found: Vec<Process>,
    /// Some ended between being listed and being read; what they forked meanwhile may not be listed.
    pub vanished: bool,
}

pub(super) fn list_all() -> io::Result<Seen> {
    let mut seen = Seen { found: Vec::new(), vanished: false };
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match Process::read(pid) {
            Some(process) => seen.found.push(process),
            None => seen.vanished = true,
        }
    }
    Ok(seen)
}

/// The children of this process, dead ones included.
pub(super) fn children() -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        match std::fs::read_to_string(thread?.path().join("children")) {
            Ok(list) => children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok())),
            Err(_) => return children_by_search(), // a thread that ended, or a kernel without this file
        }
    }
    Ok(children)
}

fn children_by_search() -> io::Result<Vec<u32>> {
    let me = std::process::id();
    Ok(list_all()?.found.iter().filter(|process| process.parent == me).map(|process| process.pid).collect())
}

/// The number of the last process or thread made in this PID namespace (proc_loadavg(5), last field).
pub(super) fn newest() -> Option<u32> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().last()?.parse().ok()
}

/// Is this the process's working folder? Compared as a file, so that other mounts of it count, and by name, so that a
/// removed folder does.
pub(super) fn works_in(pid: u32, folder: &Path) -> io::Result<bool> {
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
}
