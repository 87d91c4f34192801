//! An embedded plane of a test's own, and what tests do to it.

use crate::apart::{self, Controllers};
use crate::cluster;
use crate::small_disk::SmallDisk;
use coregent_api::DatabaseCluster;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// How long a condition may take at worst on a busy machine; nothing is concluded from how long it did take.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A plane in a folder of its own. Dropping it stops everything and removes the folder.
pub struct Plane {
    dir: tempfile::TempDir,
    disk: Option<SmallDisk>,
    controllers: Option<Controllers>,
    /// The kubeconfig of a real cluster that stands for it.
    cluster: Option<PathBuf>,
    _one_at_a_time: File,
}

/// Waits for its turn: databases of several tests at once would starve each other.
fn turn() -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("one-database-test-at-a-time");
    let file = File::create(path).expect("the lock file of the database tests");
    flock(&file, FlockOperation::LockExclusive).expect("the lock of the database tests");
    file
}

impl Plane {
    /// A folder; nothing runs in it yet.
    pub fn new() -> Plane {
        let dir = tempfile::Builder::new().prefix("coregent-e2e-").tempdir().expect("a temporary folder");
        let turn = turn();
        let controllers =
            apart::wanted().then(|| Controllers::start(&dir.path().join("data"), &dir.path().join("operator.log")));
        Plane { dir, disk: None, controllers, cluster: None, _one_at_a_time: turn }
    }

    /// A folder on a disk of its own of so many bytes, or why that cannot be had.
    pub fn on_small_disk(bytes: u64) -> Result<Plane, String> {
        let mut plane = Plane::new();
        plane.disk = Some(SmallDisk::mount(&plane.data_dir(), bytes)?);
        Ok(plane)
    }

    /// The disk that it is on.
    pub fn disk(&self) -> &SmallDisk {
        self.disk.as_ref().expect("a plane on a disk of its own")
    }

    /// A running plane, the API answering; a real cluster where one is named.
    pub fn up() -> Plane {
        let mut plane = Plane::new();
        if let Some(kubeconfig) = cluster::kubeconfig() {
            plane.controllers = None;
            plane.cluster = Some(kubeconfig);
            cluster::clear(&plane);
            return plane;
        }
        plane.must(["up", "--detach"]);
        plane
    }

    /// The data folder, as the test sees it.
    pub fn data_dir(&self) -> PathBuf {
        self.disk.as_ref().map_or_else(|| self.dir.path().join("data"), SmallDisk::folder)
    }

    /// The test's folder, around the data folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file in the test's folder.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("a file in the temporary folder");
        path
    }

    /// The command line, on this plane.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let program = OsStr::new(env!("CARGO_BIN_EXE_coregent"));
        let mut command = self.disk.as_ref().map_or_else(|| Command::new(program), |disk| disk.command(program));
        let args: Vec<_> = args.into_iter().collect();
        if let Some(kubeconfig) = &self.cluster {
            command.arg("--kubeconfig").arg(kubeconfig).args(args);
            command.env_remove("COREGENT_DATA_DIR").env_remove("KUBECONFIG");
            return command;
        }
        if self.controllers.is_some() && args.first().is_some_and(|verb| verb.as_ref() == "up") {
            command.args([OsStr::new("up"), OsStr::new("--no-controllers")]).args(args.iter().skip(1));
        } else {
            command.args(args);
        }
        command.env("COREGENT_DATA_DIR", self.dir.path().join("data")).env_remove("KUBECONFIG");
        command
    }

    /// Runs a verb.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.command(args).output().expect("the coregent binary")
    }

    /// Runs a verb that must succeed; gives its standard output.
    #[track_caller]
    pub fn must<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{}{}{}", self.evidence(), text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a verb that must be refused in three lines, what, why and what to do, and end with `code`; gives its standard
    /// error.
    #[track_caller]
    pub fn refused<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, code: i32) -> String {
        refusal(&self.run(args), code)
    }

    /// Applies text as a manifest.
    pub fn apply(&self, manifest: &str) {
        let file = self.write("manifest.yaml", manifest);
        self.must([OsStr::new("apply"), OsStr::new("-f"), file.as_os_str()]);
    }

    /// Waits until a condition holds.
    #[track_caller]
    pub fn wait(&self, object: &str, condition: &str) {
        let timeout = format!("{}s", PATIENCE.as_secs());
        self.must(["wait", object, &format!("--for={condition}"), "--timeout", &timeout]);
    }

    /// What a person would look at when it went wrong.
    pub fn evidence(&self) -> String {
        let mut evidence = String::new();
        for verb in [vec!["status"], vec!["get", "pods"], vec!["events"]] {
            evidence.push_str(&text(&self.run(verb).stdout));
        }
        let pods = text(&self.run(["get", "pods", "-o", "name"]).stdout);
        for pod in pods.lines().filter_map(|pod| pod.strip_prefix("pod/")) {
            let log = self.run(["logs", pod, "--tail", "25"]);
            evidence.push_str(&format!("log of {pod}:\n{}{}", text(&log.stdout), text(&log.stderr)));
        }
        for log in [self.data_dir().join("up.log"), self.dir().join("operator.log")] {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let tail: Vec<_> = log.lines().rev().take(30).collect();
            evidence.extend(tail.into_iter().rev().map(|line| format!("{line}\n")));
        }
        evidence
    }

    /// Process that runs the plane.
    pub fn pid(&self) -> i32 {
        let lock = std::fs::read_to_string(self.data_dir().join("lock")).expect("the lock of the data folder");
        lock.trim().parse().expect("a process id")
    }

    /// kill -9 of the plane; returns once it is gone.
    pub fn kill(&self) {
        kill_and_wait(self.pid());
    }

    /// First process of a pod's database container, as this machine numbers it.
    pub fn container_pid(&self, pod: &str) -> Option<i32> {
        let uid = self.must(["get", "pod", pod, "-o", "json"]);
        let uid = serde_json::from_str::<serde_json::Value>(&uid).ok()?["metadata"]["uid"].as_str()?.to_owned();
        process_with(&format!("POD_UID={uid}"))
    }

    /// A client of its API.
    pub async fn client(&self) -> kube::Client {
        let file = self.cluster.clone().unwrap_or_else(|| self.data_dir().join("kubeconfig"));
        let kubeconfig = Kubeconfig::read_from(file).expect("the kubeconfig");
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("its configuration");
        kube::Client::try_from(config).expect("a client")
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.evidence());
        }
        if self.cluster.is_some() {
            // What went wrong is left there to be looked at; the next test clears it.
            return;
        }
        let _ = self.run(["down"]);
    }
}

/// Text of what a program printed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a refused run printed: three lines, and nothing on standard output.
#[track_caller]
pub fn refusal(output: &Output, code: i32) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{}{said}", text(&output.stdout));
    let begins: Vec<&str> = said.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(begins, ["error:", "why:", "do:"], "{said}");
    assert_eq!(text(&output.stdout), "", "{said}");
    said
}

/// A test that cannot run on this machine says so on the terminal, past the harness, which shows nothing of tests that
/// pass.
pub fn skipped(test: &str, reason: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}"); // nobody is left to tell
}

/// The first process of the container whose environment holds `entry`, as this machine numbers it.
pub fn process_with(entry: &str) -> Option<i32> {
    let processes =
        std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    processes.into_iter().find(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let first = status
            .lines()
            .find(|line| line.starts_with("NSpid:"))
            .is_some_and(|line| line.split_whitespace().next_back() == Some("1"));
        first && environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    })
}

/// SIGKILL to a process of the test's own; returns once it is gone.
pub fn kill_and_wait(pid: i32) {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let pid = Pid::from_raw(pid).expect("a process id");
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    ended(&pidfd, None);
}

/// Waits until the process is gone, for so long at most; whether it is.
pub fn ended(pidfd: &OwnedFd, within: Option<Duration>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let within = within.map(|within| Timespec::try_from(within).expect("a length of time"));
    loop {
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], within.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.expect("a process that can be waited for") > 0,
        }
    }
}

/// Waits until a DatabaseCluster is as wanted.
pub async fn until(client: &kube::Client, name: &str, wanted: impl Fn(&DatabaseCluster) -> bool) -> DatabaseCluster {
    use futures::{StreamExt, TryStreamExt};
    let api: Api<DatabaseCluster> = Api::namespaced(client.clone(), "default");
    let look = async {
        loop {
            let Ok(cluster) = api.get(name).await else { continue };
            if wanted(&cluster) {
                return cluster;
            }
            let params = WatchParams::default().fields(&format!("metadata.name={name}"));
            let version = cluster.metadata.resource_version.unwrap_or_default();
            let Ok(events) = api.watch(&params, &version).await else { continue };
            let mut events = events.boxed();
            while let Ok(Some(event)) = events.try_next().await {
                if let WatchEvent::Added(cluster) | WatchEvent::Modified(cluster) = event
                    && wanted(&cluster)
                {
                    return cluster;
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("the cluster becomes as wanted")
}

/// The primary of a healthy cluster.
pub fn primary(cluster: &DatabaseCluster) -> Option<String> {
    cluster.status.as_ref()?.primary.as_ref()?.current.clone()
}

/// The election round that it is in. A failover raises it, whether another member was chosen or the old primary restarted
/// in place because it alone had the end of the log.
pub fn epoch(cluster: &DatabaseCluster) -> Option<u64> {
    cluster.status.as_ref()?.primary.as_ref()?.epoch
}

/// The message of a condition that is True.
pub fn condition<'a>(cluster: &'a DatabaseCluster, kind: &str) -> Option<&'a str> {
    let condition = cluster.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)?;
    (condition.status == "True").then_some(condition.message.as_str())
}

/// Every member is ready and nothing is going on.
pub fn settled(cluster: &DatabaseCluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| {
        status.blocking_operation.is_none()
            && status.members.len() == usize::try_from(cluster.spec.replicas).unwrap_or(0)
            && status.members.iter().all(|member| member.ready)
            && status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}
