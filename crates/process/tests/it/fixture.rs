//! What the tests share: a launcher, specs, output, and a look at the processes of the machine.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coregent_process::{Container, ContainerSpec, ExitStatus, Launcher, Mount, User};

/// Runs an async test.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// Longest wait for a condition; only a failing test reaches it.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    soon(what, poll).await;
}

pub fn launcher() -> Launcher {
    Launcher::new(std::env::current_exe().unwrap()).unwrap()
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A shell script as a container, with its output in a file.
pub struct Script {
    pub spec: ContainerSpec,
    output: File,
}

impl Script {
    pub fn new(script: &str) -> Self {
        Self::program(&["/bin/sh", "-c", script])
    }

    pub fn program(argv: &[&str]) -> Self {
        let output = tempfile::tempfile().unwrap();
        let spec = ContainerSpec {
            id: "test".to_owned(),
            hostname: "orders-1-0".to_owned(),
            mounts: Vec::new(),
            argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
            env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            working_dir: PathBuf::from("/"),
            user: User {
                uid: 999,
                gid: 999,
                groups: vec![],
                name: "postgres".to_owned(),
                home: "/home/postgres".into(),
            },
            stdout: output.try_clone().unwrap().into(),
            stderr: output.try_clone().unwrap().into(),
            stdin: None,
        };
        Script { spec, output }
    }

    pub fn mount(mut self, source: &Path, target: &str, read_only: bool) -> Self {
        self.spec.mounts.push(Mount { source: source.to_owned(), target: target.into(), read_only });
        self
    }

    pub async fn start(self) -> (Container, Log) {
        let container = soon("start", launcher().start(self.spec)).await.unwrap();
        (container, Log(self.output))
    }

    /// Runs it to its end.
    pub async fn finish(self) -> (ExitStatus, String) {
        let (container, log) = self.start().await;
        (soon("end", container.wait()).await, log.text())
    }
}

/// The output of a script.
pub struct Log(File);

impl Log {
    pub fn text(&self) -> String {
        use std::io::Seek;
        // The program shares the file and its offset: read through a view of our own.
        let mut file = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.0))).unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    }

    pub async fn wait_for(&self, text: &str) {
        until(&format!("{text:?} in the output"), || self.text().contains(text)).await;
    }
}

/// Processes of this machine whose command line contains `mark`, which no other test uses.
pub fn processes_with(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(mark)
    })
    .collect()
}

/// A number of seconds for `sleep` that marks the processes of one test.
pub fn mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("7{:07}{:02}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn assert_none(mark: &str) {
    assert_eq!(processes_with(mark), Vec::<u32>::new(), "processes with {mark} are left");
}

/// A temporary folder that every user may enter and write to.
pub fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    folder
}
