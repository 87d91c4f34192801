//! Child processes of the agent: started, reaped, swept.
//!
//! The agent is process 1 of its container, or a sub-reaper, so every orphan of the engine becomes its child. One
//! loop reaps them all; whoever started a process is told how it ended.

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Bytes kept of what a server says.
const KEPT: usize = 16 * 1024;

type Waiting = Rc<RefCell<BTreeMap<i32, oneshot::Sender<WaitStatus>>>>;

/// The one place that starts processes and reaps them.
#[derive(Debug, Clone)]
pub(crate) struct Processes {
    waiting: Waiting,
}

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    ended: oneshot::Receiver<WaitStatus>,
    stderr: Option<OwnedFd>,
    done: bool,
}

/// What a program said and how it ended.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) success: bool,
    pub(crate) stderr: String,
}

impl Processes {
    /// Starts the reaping loop on the current task set.
    pub(crate) fn start() -> io::Result<Processes> {
        // Orphans of the engine come to this process even where it is not process 1.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let waiting: Waiting = Rc::default();
        let mut signals = signal(SignalKind::child())?;
        let loop_waiting = Rc::clone(&waiting);
        tokio::task::spawn_local(async move {
            loop {
                reap(&loop_waiting);
                if signals.recv().await.is_none() {
                    break;
                }
            }
        });
        Ok(Processes { waiting })
    }

    /// Starts a program whose stderr goes where the agent's goes, heard on its way.
    pub(crate) fn spawn_heard(&self, command: &mut Command) -> io::Result<(Child, Words)> {
        let mut child = self.spawn(command)?;
        let pipe = child.stderr.take().ok_or_else(|| io::Error::other("no pipe for its stderr"))?;
        Ok((child, Words { pipe: Receiver::from_owned_fd(pipe)?, tail: Vec::new() }))
    }

    /// Starts a program with a pipe for its stderr.
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        // No await between the start and this entry: the loop runs on the same thread and cannot reap in between.
        let (tell, ended) = oneshot::channel();
        self.waiting.borrow_mut().insert(pid.as_raw_nonzero().get(), tell);
        Ok(Child { pid, ended, stderr: child.stderr.take().map(OwnedFd::from), done: false })
    }

    /// Runs a program to its end and returns what it wrote to stderr, at most 64 KiB of its end.
    pub(crate) async fn run(&self, command: &mut Command) -> io::Result<Output> {
        let mut child = self.spawn(command.stdout(Stdio::null()))?;
        let stderr = match child.stderr.take() {
            Some(pipe) => read_tail(pipe).await?,
            None => String::new(),
        };
        let status = child.wait().await;
        Ok(Output { success: status.is_some_and(|status| status.exit_status() == Some(0)), stderr })
    }
}

/// What a program writes to stderr, on its way to the agent's.
#[derive(Debug)]
pub(crate) struct Words {
    pipe: Receiver,
    tail: Vec<u8>,
}

impl Words {
    /// Passes on what is written until nobody can write any more.
    pub(crate) async fn pass_on(&mut self) {
        while self.pipe.readable().await.is_ok() && self.pass_on_rest() {}
    }

    /// Passes on what has been written; false once nobody can write any more.
    pub(crate) fn pass_on_rest(&mut self) -> bool {
        let mut buffer = [0_u8; 8192];
        loop {
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    let words = buffer.get(..count).unwrap_or_default();
                    let _ = io::stderr().write_all(words); // nobody is left to tell
                    self.tail.extend_from_slice(words);
                    let drop = self.tail.len().saturating_sub(KEPT);
                    self.tail.drain(..drop);
                }
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// The end of what was written.
    pub(crate) fn last(&self) -> String {
        String::from_utf8_lossy(&self.tail).into_owned()
    }
}

async fn read_tail(pipe: OwnedFd) -> io::Result<String> {
    use tokio::io::AsyncReadExt as _;
    let mut reader = Receiver::from_owned_fd(pipe)?;
    let mut all = Vec::new();
    let mut buffer = [0_u8; 8192];
    loop {
        let count = reader.read(&mut buffer).await?;
        if count == 0 {
            return Ok(String::from_utf8_lossy(&all).into_owned());
        }
        all.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if all.len() > 128 * 1024 {
            all.drain(..all.len() - 64 * 1024);
        }
    }
}

fn reap(waiting: &Waiting) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if let Some(tell) = waiting.borrow_mut().remove(&pid.as_raw_nonzero().get()) {
            let _ = tell.send(status); // nobody waits for it any more: the process is gone all the same
        }
    }
}

impl Child {
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for its end. `None` when the reaping loop is gone.
    pub(crate) async fn wait(&mut self) -> Option<WaitStatus> {
        let status = (&mut self.ended).await.ok();
        self.done = true;
        status
    }

    /// Leaves it to itself: dropping it no longer kills it.
    pub(crate) fn detach(mut self) -> oneshot::Receiver<WaitStatus> {
        self.done = true;
        let (_, never) = oneshot::channel();
        std::mem::replace(&mut self.ended, never)
    }
}

impl Drop for Child {
    /// A tool whose job was given up must not go on writing into the volume.
    fn drop(&mut self) {
        if !self.done {
            let _ = kill_process(self.pid, Signal::KILL); // already gone is what is wanted
        }
    }
}

/// Kills every process that works in `folder` until a whole pass finds none (F3: every process of the engine changes
/// into the data folder; process group and session prove nothing). It does not return while one cannot be killed.
pub(crate) async fn sweep(folder: &Path) {
    while kill_in(folder) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// One pass; true if it found a process. Also for the watchdog's thread.
pub(crate) fn kill_in(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else { return false };
    let own = std::process::id();
    let uid = rustix::process::geteuid().as_raw();
    let mut found = false;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if u32::try_from(pid) == Ok(own) || entry.metadata().is_ok_and(|meta| uid != 0 && meta.uid() != uid) {
            continue;
        }
        // The link of a zombie cannot be read: it is dead already.
        let works_here = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        if works_here && let Some(pid) = Pid::from_raw(pid) {
            found = true;
            let _ = kill_process(pid, Signal::KILL); // gone meanwhile is what is wanted
        }
    }
    found
}
