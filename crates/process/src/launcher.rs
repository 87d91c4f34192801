//! Starts shims from one thread that lives as long as the process, and attends to them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::container::Container;
use crate::error::StartError;
use crate::running::Running;
use crate::shim::CONTAINER_VERB;
use crate::spec::{ContainerSpec, ExitStatus};
use crate::support::needs_user_namespace;
use crate::sys;
use crate::wire::{self, ContainerOrder, ProcessOrder, Reply};

type Job = Box<dyn FnOnce() + Send>;

/// How long a shim may take to say that its program has ended; it does so at once unless it is frozen.
const SHIM_SAYS: Duration = Duration::from_millis(500);

/// The one spawning thread of this process. It never ends: a parent-death signal fires when the thread that forked
/// ends (traps.md «Process death»), so threads of a runtime must not fork.
static SPAWNER: Mutex<Option<Sender<Job>>> = Mutex::new(None);

/// Starts containers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Launcher {
    self_exe: Arc<Path>,
    pub(crate) user_namespace: bool,
}

impl Launcher {
    /// A launcher that uses `self_exe`, a binary whose `main` calls [`crate::dispatch`] first.
    ///
    /// # Errors
    /// If the binary is missing or the spawning thread cannot be made. Whether the system allows containers at all is
    /// [`crate::check_support`]'s question.
    pub fn new(self_exe: PathBuf) -> Result<Self, StartError> {
        std::fs::metadata(&self_exe).map_err(StartError::launcher("program"))?;
        spawner().map_err(StartError::launcher("thread"))?;
        Ok(Launcher { self_exe: self_exe.into(), user_namespace: needs_user_namespace() })
    }

    /// Starts a container; returns when its program runs.
    ///
    /// The container goes on if the returned handle is dropped. It ends with this process or with the runtime that
    /// this is called on.
    ///
    /// # Errors
    /// If any step up to and including the exec of the program fails; then nothing is left of it.
    pub async fn start(&self, spec: ContainerSpec) -> Result<Container, StartError> {
        let stdin = match spec.stdin {
            Some(stdin) => stdin,
            None => null().map_err(StartError::launcher("/dev/null"))?,
        };
        let process =
            ProcessOrder { argv: spec.argv, env: spec.env, working_dir: spec.working_dir, user: spec.user, tty: false };
        let order = ContainerOrder {
            hostname: spec.hostname,
            mounts: spec.mounts,
            process,
            user_namespace: self.user_namespace,
        };
        let running = self.launch(CONTAINER_VERB, &order, vec![stdin, spec.stdout, spec.stderr]).await?;
        tracing::debug!(container = %spec.id, pid = running.pid, "container started");
        Ok(Container::new(spec.id, self.clone(), running, order.process))
    }

    /// Starts a shim, gives it the order, and returns when the program runs.
    ///
    /// A task of its own attends to it, so that nothing is lost if the caller stops waiting.
    pub(crate) async fn launch<T: Serialize>(
        &self,
        verb: &'static str,
        order: &T,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Running, StartError> {
        let (ours, theirs) = wire::channel().map_err(StartError::launcher("socket"))?;
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        // Sent before the shim exists: the socket keeps it.
        wire::send_order(ours.as_fd(), order, &borrowed).map_err(StartError::launcher("order"))?;
        drop(descriptors);
        rustix::io::ioctl_fionbio(&ours, true).map_err(|error| StartError::launcher("socket")(error.into()))?;
        let control = sys::register(ours, Interest::READABLE).map_err(StartError::launcher("socket"))?;

        let (started, answer) = oneshot::channel();
        let shim = self.spawn(verb, theirs);
        tokio::spawn(async move {
            match shim.await {
                Ok(child) => attend(control, child, started).await,
                Err(error) => drop(started.send(Err(StartError::launcher("spawn")(error)))),
            }
        });
        answer.await.map_err(|_| StartError::silent())?
    }

    /// Has the spawning thread start a shim with `control` as its standard input.
    fn spawn(&self, verb: &'static str, control: OwnedFd) -> impl Future<Output = io::Result<Child>> + use<> {
        let (done, spawned) = oneshot::channel();
        let self_exe = self.self_exe.clone();
        let job: Job = Box::new(move || {
            let mut command = Command::new(&*self_exe);
            command.arg(verb).env_clear().stdin(control).stdout(Stdio::null());
            if let Err(Ok(mut orphan)) = done.send(command.spawn()) {
                let _ = orphan.wait(); // nobody waits for it any more: its socket is closed, so it ends at once
            }
        });
        let handed_over = spawner().and_then(|jobs| jobs.send(job).map_err(|_| io::Error::other("thread is gone")));
        async move {
            handed_over?;
            spawned.await.map_err(|_| io::Error::other("spawning thread gave no answer"))?
        }
    }
}

/// Follows a shim from its first answer to its end.
async fn attend(control: AsyncFd<OwnedFd>, mut shim: Child, started: oneshot::Sender<Result<Running, StartError>>) {
    let first = receive(&control).await;
    let (pid, pidfd) = match first {
        Ok(Some((Reply::Started { pid }, mut descriptors))) if descriptors.len() == 1 => (pid, descriptors.remove(0)),
        other => {
            drop(control);
            reap(shim).await;
            let error = match other {
                Ok(Some((Reply::Failed(failure), _))) => failure.into(),
                Ok(_) => StartError::silent(),
                Err(error) => StartError::launcher("answer")(error),
            };
            let _ = started.send(Err(error));
            return;
        }
    };
    let (running, publish) = Running::new(pid, pidfd);
    let program = running.clone();
    if started.send(Ok(running)).is_err() {
        program.signal(libc::SIGKILL); // the caller stopped waiting and has no handle
    }
    let ended = tokio::select! {
        said = receive(&control) => match said {
            Ok(Some((Reply::Ended(status), _))) => status,
            _ => kill_without_shim(&program).await,
        },
        () = gone_without_a_word(&program) => {
            tracing::warn!(pid = program.pid, "the program is gone and its shim does not say so: it is frozen");
            let _ = shim.kill(); // it may have ended just now
            ExitStatus::Signaled(libc::SIGKILL)
        }
    };
    reap(shim).await;
    publish.send_replace(Some(ended));
}

/// Resolves when the program is gone and its shim has had time to say so. Whoever freezes all of a container may freeze
/// the shim as well, and the proof of a death must not wait until that is thawed (failover.md F4).
async fn gone_without_a_word(program: &Running) {
    gone(program).await;
    tokio::time::sleep(SHIM_SAYS).await;
}

/// Resolves when every process of the program is gone.
async fn gone(program: &Running) {
    let pidfd = program.pidfd.try_clone().and_then(|pidfd| sys::register(pidfd, Interest::READABLE));
    match pidfd {
        // Readable once the process is a zombie, which the first of a namespace becomes only when that is empty.
        Ok(pidfd) if pidfd.readable().await.is_ok() => {}
        _ => std::future::pending().await, // not provably dead: say nothing
    }
}

/// Somebody killed the shim: its death signal has ended the program in most cases, we make sure and wait.
async fn kill_without_shim(program: &Running) -> ExitStatus {
    program.signal(libc::SIGKILL);
    gone(program).await;
    ExitStatus::Signaled(libc::SIGKILL)
}

async fn receive(control: &AsyncFd<OwnedFd>) -> io::Result<Option<(Reply, Vec<OwnedFd>)>> {
    loop {
        let mut ready = control.readable().await?;
        if let Ok(result) = ready.try_io(|socket| wire::receive(socket.as_fd())) {
            return result;
        }
    }
}

/// Collects a shim that has said its last word.
async fn reap(mut shim: Child) {
    let _ = tokio::task::spawn_blocking(move || shim.wait()).await;
}

/// `/dev/null` for reading.
pub(crate) fn null() -> io::Result<OwnedFd> {
    Ok(std::fs::File::open("/dev/null")?.into())
}

fn spawner() -> io::Result<Sender<Job>> {
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(jobs) = &*spawner {
        return Ok(jobs.clone());
    }
    let (jobs, queue) = mpsc::channel::<Job>();
    std::thread::Builder::new().name("spawner".to_owned()).spawn(move || {
        for job in queue {
            job();
        }
    })?;
    Ok(spawner.insert(jobs).clone())
}
