//! A disk of a test's own that can be filled: a tmpfs in a mount namespace that only the plane of that test is in.

use crate::plane::text;
use rustix::process::{getgid, getuid};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

/// The disk; it goes with the namespace once nothing is in that any more.
pub struct SmallDisk {
    holder: Child,
    /// The holder ends when this is closed, however the test ends.
    _alive: ChildStdin,
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk of so many bytes on `folder`, or says why that cannot be had here.
    pub fn mount(folder: &Path, bytes: u64) -> Result<SmallDisk, String> {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let mut command = Command::new("unshare");
        if !getuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let script = format!("mount -t tmpfs -o size={bytes},mode=0700 small \"$0\" && echo mounted && read -r _");
        command.args(["--mount", "sh", "-c", &script]).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = command.spawn().map_err(|error| format!("unshare (util-linux) cannot be run: {error}"))?;
        let (alive, said) = (holder.stdin.take(), holder.stdout.take());
        let mut line = String::new();
        let heard = said.is_some_and(|said| BufReader::new(said).read_line(&mut line).is_ok());
        match alive.filter(|_| heard && line == "mounted\n") {
            Some(alive) => Ok(SmallDisk { holder, _alive: alive, folder: folder.to_owned() }),
            None => {
                let output = holder.wait_with_output().map_err(|error| error.to_string())?;
                Err(text(&output.stderr).trim().to_owned())
            }
        }
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.holder.id().to_string()).arg("--mount");
        if !getuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command
    }

    /// A command that runs where the disk is, as the user that the test runs as.
    pub fn command(&self, program: &OsStr) -> Command {
        let mut command = self.enter();
        if !getuid().is_root() {
            // Root of the disk's namespace is this user; the plane must not take itself for root.
            let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
            command.args(["unshare", "--user"]).arg(format!("--map-user={uid}")).arg(format!("--map-group={gid}"));
        }
        command.arg(program);
        command
    }

    /// The folder as it is seen from outside of the namespace.
    pub fn folder(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.folder.strip_prefix("/").unwrap_or(&self.folder))
    }

    /// Gives it another size.
    pub fn resize(&self, bytes: u64) {
        let mut command = self.enter();
        command.args(["mount", "-o", &format!("remount,size={bytes}")]).arg(&self.folder);
        let output = command.output().expect("nsenter (util-linux)");
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// Fills it, and fills it again whenever a program gives room back, until the guard is dropped.
    pub fn fill(&self) -> Full {
        let path = self.folder().join("filler");
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&path).expect("a file on the disk");
        let (stop, filled) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
        let (stopped, first) = (Arc::clone(&stop), Arc::clone(&filled));
        let thread = std::thread::spawn(move || {
            let mut fill = || {
                for size in [1 << 20, 1 << 12, 1] {
                    while file.write_all(&vec![0x5a; size]).is_ok() {}
                }
            };
            fill();
            first.wait();
            while !stopped.load(Ordering::Relaxed) {
                fill();
                // Nothing tells when there is room.
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        filled.wait();
        Full { path, stop, thread: Some(thread) }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A disk that is full for as long as this is there.
pub struct Full {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Full {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.path);
    }
}
