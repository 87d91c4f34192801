//! The handle of a running container.

use crate::error::StartError;
use crate::exec::{self, ExecProcess, ExecSpec};
use crate::launcher::Launcher;
use crate::running::Running;
use crate::spec::ExitStatus;
use crate::wire::ProcessOrder;

/// A running (or ended) container. Cheap to clone; dropping it does not stop the container.
#[derive(Debug, Clone)]
pub struct Container {
    id: String,
    pub(crate) launcher: Launcher,
    pub(crate) running: Running,
    /// What the first process was started with: an exec inherits it.
    pub(crate) process: std::sync::Arc<ProcessOrder>,
}

impl Container {
    pub(crate) fn new(id: String, launcher: Launcher, running: Running, process: ProcessOrder) -> Self {
        Container { id, launcher, running, process: process.into() }
    }

    /// The name given at the start.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Process id of the first process as this process sees it.
    pub fn host_pid(&self) -> u32 {
        self.running.pid
    }

    /// Waits for the end: resolves only when no process is left in the container's PID namespace (failover.md F3).
    ///
    /// A process that the kernel cannot kill (in D state) holds this back, as it must.
    pub async fn wait(&self) -> ExitStatus {
        self.running.wait().await
    }

    /// How it ended, if it has.
    pub fn try_wait(&self) -> Option<ExitStatus> {
        self.running.try_wait()
    }

    /// Sends a signal to the first process. As in every container, a signal it installs no handler for has no effect,
    /// save SIGKILL and SIGSTOP. Without effect on an ended container.
    pub fn signal(&self, signal: i32) {
        self.running.signal(signal);
    }

    /// Kills every process of the container.
    pub fn kill(&self) {
        self.running.signal(libc::SIGKILL);
    }

    /// Starts one more program inside.
    ///
    /// # Errors
    /// If the container has ended or the program cannot be run.
    pub async fn exec(&self, spec: ExecSpec) -> Result<ExecProcess, StartError> {
        exec::start(self, spec).await
    }
}
