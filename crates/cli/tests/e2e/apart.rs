//! The controllers as a process of their own, for every test at once: with `COREGENT_E2E_CONTROLLERS=apart` in the
//! environment each plane is started with `--no-controllers` and has a `coregent operator` beside it, so that no part can
//! reach another but through the API.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Whether the controllers are asked to be a process of their own.
pub fn wanted() -> bool {
    std::env::var_os("COREGENT_E2E_CONTROLLERS").is_some_and(|value| value == "apart")
}

/// Runs `coregent operator` as a service manager would: whenever it ends, for example with its plane, it starts again.
pub struct Controllers {
    state: Arc<Mutex<State>>,
    keeper: Option<JoinHandle<()>>,
}

enum State {
    Between,
    Running(OwnedFd),
    Over,
}

impl Controllers {
    /// Of the plane with this data folder, which need not be up yet.
    pub fn start(data_dir: &Path, log: &Path) -> Controllers {
        let state = Arc::new(Mutex::new(State::Between));
        let (shared, data_dir, log) = (Arc::clone(&state), data_dir.to_owned(), log.to_owned());
        let keeper = std::thread::spawn(move || {
            while let Some(mut child) = begin(&shared, &data_dir, &log) {
                child.wait().expect("the controllers end");
                // Where there is no plane yet, nothing says when there will be.
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Controllers { state, keeper: Some(keeper) }
    }
}

fn begin(state: &Mutex<State>, data_dir: &Path, log: &Path) -> Option<Child> {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*state, State::Over) {
        return None;
    }
    let log = File::options().append(true).create(true).open(log).expect("the log of the controllers");
    // Of one name, so that the next need not wait until the Lease of their leader runs out.
    let mut operator = Command::new(env!("CARGO_BIN_EXE_coregent"));
    operator.args(["operator", "--identity", "the-one"]).env("COREGENT_DATA_DIR", data_dir).env_remove("KUBECONFIG");
    let child = operator.stderr(log).spawn().expect("the coregent binary");
    let pid = Pid::from_child(&child);
    *state = State::Running(pidfd_open(pid, PidfdFlags::empty()).expect("a child that was not waited for"));
    Some(child)
}

impl Drop for Controllers {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), State::Over);
        if let State::Running(pidfd) = before {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL); // it may have ended
        }
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join(); // a panic there has been printed
        }
    }
}
