//! Enforces the holder's deadline from a thread of its own: whatever the agent's loop waits for (a hanging disk, a
//! long scan), the engine is killed when its time is out (failover.md F2).

use crate::clock;
use crate::processes::kill_in;
use coregent_core::names::Monotonic;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The armed deadline.
#[derive(Debug, Clone)]
pub(crate) struct Watchdog {
    deadline: Arc<AtomicU64>,
    timer: Arc<OwnedFd>,
}

impl Watchdog {
    /// Starts the thread, which sleeps until a deadline passes.
    pub(crate) fn start(pgdata: PathBuf) -> io::Result<Watchdog> {
        let timer = Arc::new(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?);
        let deadline = Arc::new(AtomicU64::new(NEVER));
        let watchdog = Watchdog { deadline, timer };
        let armed = watchdog.clone();
        std::thread::Builder::new().name("deadline".to_owned()).stack_size(64 * 1024).spawn(move || {
            loop {
                let mut expirations = [0_u8; 8];
                if rustix::io::read(&*armed.timer, &mut expirations).is_err() {
                    return; // cannot happen while this clone holds the descriptor
                }
                while clock::now().0 >= armed.deadline.load(Ordering::SeqCst) && kill_in(&pgdata) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        })?;
        Ok(watchdog)
    }

    /// Sets or clears the deadline.
    pub(crate) fn arm(&self, deadline: Option<Monotonic>) {
        let millis = deadline.map_or(NEVER, |deadline| deadline.0);
        if self.deadline.swap(millis, Ordering::SeqCst) == millis {
            return;
        }
        let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = match deadline {
            None => nothing,
            Some(Monotonic(at)) => Timespec {
                tv_sec: i64::try_from(at / 1_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(at % 1_000).unwrap_or(0) * 1_000_000,
            },
        };
        let timer = Itimerspec { it_interval: nothing, it_value: value };
        if let Err(error) = timerfd_settime(&*self.timer, TimerfdTimerFlags::ABSTIME, &timer) {
            tracing::error!(%error, "the deadline's timer cannot be set; the agent's own loop still enforces it");
        }
    }
}
