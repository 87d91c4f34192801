//! One more program in a running container, with pipes or a terminal.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

use crate::container::Container;
use crate::error::StartError;
use crate::launcher::null;
use crate::pty::{self, Terminal};
use crate::running::Running;
use crate::shim::EXEC_VERB;
use crate::spec::{ExitStatus, User};
use crate::wire::{ExecOrder, ProcessOrder};

/// What to run in a container.
#[derive(Debug, Clone, Default)]
pub struct ExecSpec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Added to the container's environment; a later value of a name wins.
    pub env: Vec<(String, String)>,
    /// Folder to start in; the container's own if absent.
    pub working_dir: Option<PathBuf>,
    /// Who runs it; the container's own user if absent. Without root only that one is possible.
    pub user: Option<User>,
    /// Give it a standard input; else it reads `/dev/null` (or, with a terminal, that).
    pub stdin: bool,
    /// Give it a terminal of this size for all three streams.
    pub tty: Option<TerminalSize>,
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Width.
    pub columns: u16,
    /// Height.
    pub rows: u16,
}

impl Default for TerminalSize {
    fn default() -> Self {
        TerminalSize { columns: 80, rows: 24 }
    }
}

/// The writing side of a program's standard input; dropping it closes a pipe (a terminal stays open).
pub type Input = Box<dyn AsyncWrite + Send + Sync + Unpin>;
/// The reading side of a program's output.
pub type Output = Box<dyn AsyncRead + Send + Sync + Unpin>;

/// A program started by [`Container::exec`]. It is killed when this is dropped, and when its container ends.
pub struct ExecProcess {
    /// Its standard input, if asked for. Take it; drop it to close it.
    pub stdin: Option<Input>,
    /// Its standard output; with a terminal, everything it writes.
    pub stdout: Option<Output>,
    /// Its standard error; none with a terminal.
    pub stderr: Option<Output>,
    terminal: Option<Arc<Terminal>>,
    running: Running,
}

impl ExecProcess {
    /// Process id as this process sees it.
    pub fn host_pid(&self) -> u32 {
        self.running.pid
    }

    /// Waits for its end. What it started may live on in the container and hold its output open.
    pub async fn wait(&self) -> ExitStatus {
        self.running.wait().await
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        self.running.signal(signal);
    }

    /// Kills it.
    pub fn kill(&self) {
        self.running.signal(libc::SIGKILL);
    }

    /// Changes the size of its terminal; without effect if it has none.
    ///
    /// # Errors
    /// If the terminal refuses.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        self.terminal.as_ref().map_or(Ok(()), |terminal| terminal.resize(size))
    }
}

impl std::fmt::Debug for ExecProcess {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ExecProcess").field("pid", &self.running.pid).finish_non_exhaustive()
    }
}

impl Drop for ExecProcess {
    fn drop(&mut self) {
        if self.running.try_wait().is_none() {
            self.kill();
        }
    }
}

/// Our ends of the program's streams.
#[derive(Default)]
struct Ends {
    stdin: Option<Input>,
    stdout: Option<Output>,
    stderr: Option<Output>,
    terminal: Option<Arc<Terminal>>,
}

pub(crate) async fn start(container: &Container, spec: ExecSpec) -> Result<ExecProcess, StartError> {
    let base = &container.process;
    let mut env = base.env.clone();
    env.extend(spec.env);
    let user = spec.user.unwrap_or_else(|| base.user.clone());
    let streams = match spec.tty {
        Some(size) => with_terminal(size, spec.stdin),
        None => with_pipes(spec.stdin),
    };
    let (ours, program) = streams.map_err(StartError::launcher("streams"))?;
    let order = ExecOrder {
        process: ProcessOrder {
            argv: spec.argv,
            env,
            working_dir: spec.working_dir.unwrap_or_else(|| base.working_dir.clone()),
            user,
            tty: spec.tty.is_some(),
        },
        user_namespace: container.launcher.user_namespace,
    };
    let mut descriptors = Vec::from(program);
    descriptors.push(container.running.pidfd.try_clone().map_err(StartError::launcher("pidfd"))?);
    let running = container.launcher.launch(EXEC_VERB, &order, descriptors).await?;
    let Ends { stdin, stdout, stderr, terminal } = ours;
    Ok(ExecProcess { stdin, stdout, stderr, terminal, running })
}

fn with_pipes(stdin: bool) -> io::Result<(Ends, [OwnedFd; 3])> {
    let mut ours = Ends::default();
    let input = if stdin {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        ours.stdin = Some(Box::new(pipe::Sender::from_owned_fd(write)?));
        read
    } else {
        null()?
    };
    let (read, output) = pipe_with(PipeFlags::CLOEXEC)?;
    ours.stdout = Some(Box::new(pipe::Receiver::from_owned_fd(read)?));
    let (read, errors) = pipe_with(PipeFlags::CLOEXEC)?;
    ours.stderr = Some(Box::new(pipe::Receiver::from_owned_fd(read)?));
    Ok((ours, [input, output, errors]))
}

fn with_terminal(size: TerminalSize, stdin: bool) -> io::Result<(Ends, [OwnedFd; 3])> {
    let (terminal, program) = Terminal::open(size)?;
    let ours = Ends {
        stdin: stdin.then(|| Box::new(pty::Writer(terminal.clone())) as Input),
        stdout: Some(Box::new(pty::Reader(terminal.clone()))),
        stderr: None,
        terminal: Some(terminal),
    };
    Ok((ours, [program.try_clone()?, program.try_clone()?, program]))
}
