//! What a container is made of, and how it ends.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One bind mount of a file or folder of the host into the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Path on the host; symbolic links are followed on the host.
    pub source: PathBuf,
    /// Absolute path in the container; made if it is missing, symbolic links are followed inside the container.
    pub target: PathBuf,
    /// The container cannot write to it (nor to anything mounted below the source).
    pub read_only: bool,
}

/// Who the program runs as.
///
/// As root the ids are the real ones. As an ordinary user exactly one uid can be mapped (traps.md «User ids»): inside
/// the container the program has the uid and gid given here, outside it is the user who started the node, and
/// `groups` has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User id inside the container.
    pub uid: u32,
    /// Primary group id inside the container.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Name in the container's own `/etc/passwd`.
    pub name: String,
    /// Home folder; made in the container and owned by the user.
    pub home: PathBuf,
}

impl User {
    /// The superuser of the container.
    pub fn root() -> Self {
        User { uid: 0, gid: 0, groups: Vec::new(), name: "root".to_owned(), home: PathBuf::from("/root") }
    }
}

/// Everything needed to start one container.
///
/// The root file system is a fresh tmpfs with the host's `/usr`, `/opt`, `/etc` and `/sys` (read-only) and `/dev`, an
/// own `/proc`, `/tmp`, `/run`, `/var`, `/dev/shm`, `/etc/passwd`, `/etc/group` and `/etc/hostname`, and the mounts.
/// The network is the host's.
#[derive(Debug)]
pub struct ContainerSpec {
    /// Name in logs and messages.
    pub id: String,
    /// Host name inside.
    pub hostname: String,
    /// Bind mounts; a mount below another one may be given in any order.
    pub mounts: Vec<Mount>,
    /// Program and arguments; a program without `/` is searched in the `PATH` of `env`.
    pub argv: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub env: Vec<(String, String)>,
    /// Folder the program starts in; made if it is missing.
    pub working_dir: PathBuf,
    /// Who the program runs as.
    pub user: User,
    /// Where standard output goes.
    pub stdout: OwnedFd,
    /// Where standard error goes.
    pub stderr: OwnedFd,
    /// Standard input; `/dev/null` if absent.
    pub stdin: Option<OwnedFd>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It returned this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

impl ExitStatus {
    /// The code a shell (and Kubernetes) reports: 128 + signal for a death by signal.
    pub fn code(self) -> i32 {
        match self {
            ExitStatus::Exited(code) => code,
            ExitStatus::Signaled(signal) => 128 + signal,
        }
    }

    /// It returned 0.
    pub fn success(self) -> bool {
        self == ExitStatus::Exited(0)
    }

    /// The signal that ended it.
    pub fn signal(self) -> Option<i32> {
        match self {
            ExitStatus::Exited(_) => None,
            ExitStatus::Signaled(signal) => Some(signal),
        }
    }

    pub(crate) fn from_wait(status: rustix::process::WaitStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ExitStatus::Exited(code),
            (None, Some(signal)) => ExitStatus::Signaled(signal),
            (None, None) => ExitStatus::Exited(status.as_raw()),
        }
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitStatus::Exited(code) => write!(formatter, "exit code {code}"),
            ExitStatus::Signaled(signal) => write!(formatter, "killed by signal {signal}"),
        }
    }
}
