//! The last steps before a program runs: terminal, user, death signal, working folder, exec.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Gid, Signal, Uid};

use crate::sys;
use crate::wire::{Failure, FailureKind, ProcessOrder};

/// `PATH` of a program whose environment names none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The program's standard descriptors.
pub(super) struct Stdio {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// Becomes the program; returns only with the reason why that failed.
pub(super) fn become_program(
    process: &ProcessOrder,
    stdio: &Stdio,
    user_namespace: bool,
    failure: &OwnedFd,
) -> Failure {
    match prepare(process, stdio, user_namespace, failure) {
        Ok(()) => exec(process),
        Err(failure) => failure,
    }
}

fn prepare(process: &ProcessOrder, stdio: &Stdio, user_namespace: bool, failure: &OwnedFd) -> Result<(), Failure> {
    let setup = |what| Failure::because(FailureKind::Setup, what);
    sys::reset_signals();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::setsid().map_err(Failure::because(FailureKind::Setup, "session"))?;
    if process.tty {
        rustix::process::ioctl_tiocsctty(&stdio.stdin).map_err(Failure::because(FailureKind::Setup, "terminal"))?;
    }
    let [stdin, stdout, stderr] = stdio.raw();
    sys::replace_stdio(stdin, stdout, stderr).map_err(setup("standard descriptors"))?;
    if !user_namespace {
        set_user(process)?;
    }
    // Gaining rights by exec clears the death signal, so a setuid program must not gain any.
    sys::set_no_new_privileges().map_err(setup("no_new_privs"))?;
    // After the change of user, which clears it (traps.md «Process death»).
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(Failure::because(FailureKind::Setup, "death signal"))?;
    if shim_is_gone(failure) {
        return Err(Failure::new(FailureKind::Setup, "the launcher is gone"));
    }
    std::env::set_current_dir(&process.working_dir)
        .map_err(Failure::because(FailureKind::WorkingDir, format!("working folder {}", process.working_dir.display())))
}

/// In a user namespace the mapping has already made us this user; here the ids are real.
fn set_user(process: &ProcessOrder) -> Result<(), Failure> {
    let user = &process.user;
    let refused = Failure::because(FailureKind::Setup, format!("user {}:{}", user.uid, user.gid));
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::thread::set_thread_groups(&groups)
        .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid))
        .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
        .map_err(refused)
}

/// The death signal was set too late if the shim died before; the parent's id cannot tell (it is 0 across PID
/// namespaces), but the shim alone holds the other end of this pipe.
fn shim_is_gone(failure: &OwnedFd) -> bool {
    let mut entries = [sys::poll_entry(failure.as_fd(), 0)];
    sys::poll(&mut entries, 0).is_ok() && entries.iter().any(|entry| entry.revents & libc::POLLERR != 0)
}

fn exec(process: &ProcessOrder) -> Failure {
    let Some((program, arguments)) = process.argv.split_first() else {
        return Failure::new(FailureKind::Program, "no program given");
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", DEFAULT_PATH).env("HOME", &process.user.home);
    command.envs(process.env.iter().map(|(name, value)| (name, value)));
    let error = command.exec();
    Failure::new(FailureKind::Program, explain(process, program, &error))
}

fn explain(process: &ProcessOrder, program: &str, error: &std::io::Error) -> String {
    let by_path = program.contains('/');
    match error.kind() {
        std::io::ErrorKind::NotFound if by_path && std::path::Path::new(program).exists() => {
            format!("cannot run {program:?}: its interpreter is not in the container")
        }
        std::io::ErrorKind::NotFound if by_path => format!("cannot run {program:?}: no such file in the container"),
        std::io::ErrorKind::NotFound => {
            let path = process.env.iter().find(|(name, _)| name == "PATH").map_or(DEFAULT_PATH, |(_, path)| path);
            format!("cannot run {program:?}: not found in PATH ({path})")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("cannot run {program:?}: not an executable file for user {}", process.user.uid)
        }
        _ => format!("cannot run {program:?}: {error}"),
    }
}
