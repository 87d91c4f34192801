//! `coregent down`.

use super::data_folder;
use crate::connection::Target;
use crate::failure::{Failure, Outcome};
use crate::say;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

/// What to stop, and what becomes of the data.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Remove the data as well
    #[arg(long)]
    pub purge: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// Stops the control plane of the data folder and waits until it has ended.
///
/// # Errors
/// When it cannot be stopped, or the removal of the data was not confirmed.
pub async fn run(target: &Target, args: &Args) -> Outcome {
    let dir = target.data_dir();
    if args.purge && !args.yes {
        confirm(&dir)?;
    }
    match data_folder::user_of(&dir) {
        Some(pid) => {
            stop(pid, &dir)?;
            say::out(format_args!("stopped the control plane in {}", dir.display()));
        }
        None => say::out(format_args!("no control plane runs in {}", dir.display())),
    }
    if args.purge && dir.exists() {
        purge(&dir)?;
        say::out(format_args!("removed {}", dir.display()));
    }
    Ok(())
}

fn confirm(dir: &Path) -> Outcome {
    let refuse =
        |why: &str| Failure::refused(format!("did not remove {}", dir.display()), why, "answer yes, or say --yes");
    if !std::io::stdin().is_terminal() {
        return Err(refuse("nobody can be asked here"));
    }
    eprint!("Remove {} and every database in it? [yes/no] ", dir.display());
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| refuse(&error.to_string()))?;
    if answer.trim() == "yes" { Ok(()) } else { Err(refuse("it was not confirmed")) }
}

/// The pidfd names this very process, so that no other of the same number is ever signalled.
fn stop(pid: u32, dir: &Path) -> Outcome {
    let cannot = |why: std::io::Error| {
        Failure::failed(format!("cannot stop process {pid}"), why, "stop it by hand with SIGTERM")
    };
    let number = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| cannot(std::io::Error::other("no such process")))?;
    let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(cannot(error.into())),
    };
    if data_folder::user_of(dir) != Some(pid) {
        return Ok(());
    }
    pidfd_send_signal(&pidfd, Signal::TERM).map_err(|error| cannot(error.into()))?;
    loop {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(cannot(error.into())),
            Ok(_) => return Ok(()),
        }
    }
}

/// Removes only what an `up` made: a folder that holds no store is left alone.
fn purge(dir: &Path) -> Outcome {
    let refuse = |why: String| {
        Failure::refused(format!("did not remove {}", dir.display()), why, "remove it by hand if you are sure")
    };
    if !dir.join("format").exists() {
        return Err(refuse("it is not a data folder of coregent".into()));
    }
    let folder = data_folder::DataFolder::open(dir)?;
    std::fs::remove_dir_all(folder.path()).map_err(|error| refuse(error.to_string()))
}
