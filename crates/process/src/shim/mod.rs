//! The hidden verbs: what runs in a fresh single-threaded copy of this binary between launcher and program.
//!
//! A user namespace cannot be made in a program with threads, and a parent-death signal fires when the *thread* that
//! forked ends (traps.md «Process death»); so the work is done here, before any runtime exists. The shim stays as the
//! parent of the program: it ends the program when the launcher's process is gone, however that happened.

mod container;
mod exec;
mod identity;
mod place;
mod root;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, WaitOptions};

use crate::spec::ExitStatus;
use crate::sys::{self, Fork};
use crate::wire::{self, Failure, FailureKind, Reply};

/// `argv[1]` of the shim that becomes a container.
pub(crate) const CONTAINER_VERB: &str = "__container";
/// `argv[1]` of the shim that enters one.
pub(crate) const EXEC_VERB: &str = "__exec";

/// Runs a hidden verb if the arguments name one. Call it first thing in `main`, before any thread or runtime exists.
///
/// ```no_run
/// if let Some(code) = coregent_process::dispatch(std::env::args_os()) {
///     std::process::exit(code);
/// }
/// ```
pub fn dispatch(arguments: impl IntoIterator<Item = OsString>) -> Option<i32> {
    let verb = arguments.into_iter().nth(1)?;
    if verb == CONTAINER_VERB {
        Some(run(container::start))
    } else if verb == EXEC_VERB {
        Some(run(exec::start))
    } else {
        None
    }
}

/// A program that was forked and will exec, or say on the pipe why not.
struct Forked {
    pid: Pid,
    pidfd: OwnedFd,
    /// Closed without a word by a successful exec; otherwise it carries a [`Failure`].
    failure: OwnedFd,
}

/// What the child does after the fork: it returns only if the program cannot be started.
type Body<'a> = &'a mut dyn FnMut(&OwnedFd) -> Failure;

fn run(start: fn(&OwnedFd) -> Result<Option<Forked>, Failure>) -> i32 {
    let control = match prepare() {
        Ok(control) => control,
        Err(error) => {
            eprintln!("this verb is for internal use only: {error}");
            return 2;
        }
    };
    match start(&control) {
        Ok(Some(forked)) => supervise(&control, forked),
        Ok(None) => 0, // the launcher went away before it gave an order
        Err(failure) => answer(&control, &Reply::Failed(failure), &[]),
    }
}

/// Cuts the shim off from whatever it inherited: terminal, process group (a `kill -9 -group` must not reach it before
/// it has ended its program), descriptors.
fn prepare() -> std::io::Result<OwnedFd> {
    let _ = rustix::process::setsid(); // fails only if it already leads a session
    sys::close_from(3)?;
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    if rustix::net::sockopt::socket_type(&control)? != rustix::net::SocketType::SEQPACKET {
        return Err(std::io::Error::other("standard input is not a launcher"));
    }
    Ok(control)
}

fn answer(control: &OwnedFd, reply: &Reply, descriptors: &[std::os::fd::BorrowedFd<'_>]) -> i32 {
    // A launcher that is gone needs no answer.
    i32::from(wire::send(control.as_fd(), reply, descriptors).is_err())
}

/// Forks; the child runs `body`, whose failure comes back through the pipe.
fn fork_program(body: Body<'_>) -> Result<Forked, Failure> {
    let setup = |what| Failure::because(FailureKind::Setup, what);
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(setup("pipe"))?;
    match sys::fork() {
        Ok(Fork::Child) => {
            drop(read);
            crate::priority::step_down();
            let failure = body(&write);
            let text = serde_json::to_vec(&failure).unwrap_or_default();
            let _ = File::from(write).write_all(&text);
            sys::exit_now(127)
        }
        Ok(Fork::Parent(raw)) => {
            let pid = Pid::from_raw(raw).ok_or_else(|| Failure::new(FailureKind::Setup, "fork returned no child"))?;
            let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(setup("pidfd_open"))?;
            Ok(Forked { pid, pidfd, failure: read })
        }
        Err(error) => Err(Failure::new(FailureKind::Namespaces, format!("cannot fork: {error}"))),
    }
}

/// Reports the start, waits for the end of the program or of the launcher, reports the end.
///
/// The wait for the first process of a PID namespace returns only when no process is left in it: the kernel holds it
/// back until then. So `Ended` is the proof that failover.md F3 asks for.
fn supervise(control: &OwnedFd, forked: Forked) -> i32 {
    let mut owner_alive = true;
    wait_for(control, &forked.failure, &forked.pidfd, &mut owner_alive);
    let mut text = Vec::new();
    let _ = File::from(forked.failure).read_to_end(&mut text);
    if !text.is_empty() {
        reap(forked.pid);
        let failure = serde_json::from_slice(&text)
            .unwrap_or_else(|_| Failure::new(FailureKind::Setup, "the container ended while it was set up"));
        return answer(control, &Reply::Failed(failure), &[]);
    }
    answer(control, &Reply::Started { pid: forked.pid.as_raw_nonzero().get().unsigned_abs() }, &[forked.pidfd.as_fd()]);
    wait_for(control, &forked.pidfd, &forked.pidfd, &mut owner_alive);
    let status = reap(forked.pid);
    drop(forked.pidfd);
    answer(control, &Reply::Ended(status), &[])
}

/// Waits until `event` is readable; meanwhile, if the launcher's process goes away, kills the program.
fn wait_for(control: &OwnedFd, event: &OwnedFd, program: &OwnedFd, owner_alive: &mut bool) {
    loop {
        let watched = sys::poll_entry(event.as_fd(), libc::POLLIN);
        let mut entries = [watched, sys::poll_entry(control.as_fd(), libc::POLLIN)];
        // After the launcher is gone its socket is readable for ever: watch it no more.
        let count = if *owner_alive { 2 } else { 1 };
        let failed = match entries.get_mut(..count) {
            Some(entries) => sys::poll(entries, -1).is_err(),
            None => true,
        };
        let [watched, owner] = entries;
        if failed || owner.revents != 0 {
            *owner_alive = false;
            let _ = sys::send_signal(program.as_fd(), libc::SIGKILL);
        }
        if failed || watched.revents != 0 {
            return;
        }
    }
}

fn reap(pid: Pid) -> ExitStatus {
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return ExitStatus::from_wait(status),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ExitStatus::Signaled(libc::SIGKILL),
        }
    }
}
