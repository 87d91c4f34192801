//! CLOCK_BOOTTIME: it goes on while the machine sleeps, so a laptop that slept does not think its Lease is young
//! (failover.md F2).

use coregent_core::names::Monotonic;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tokio::time::Instant;

/// What an agent's loop reads the time from.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// CLOCK_BOOTTIME.
    Boottime,
    /// The runtime's clock, counted from this instant: for a modelled engine on a clock that a test runs.
    Runtime(Instant),
}

impl Clock {
    /// Now.
    #[must_use]
    pub fn now(self) -> Monotonic {
        match self {
            Clock::Boottime => now(),
            // Not from zero: that stands for «never» in places.
            Clock::Runtime(start) => {
                Monotonic(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)).plus(60_000)
            }
        }
    }

    /// How long it is from now until `at`.
    #[must_use]
    pub fn until(self, at: Monotonic) -> Duration {
        Duration::from_millis(at.since(self.now()))
    }
}

/// Now, by CLOCK_BOOTTIME.
pub(crate) fn now() -> Monotonic {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let millis = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000;
    Monotonic(seconds.saturating_mul(1_000).saturating_add(millis))
}
