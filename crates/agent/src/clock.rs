//! CLOCK_BOOTTIME: it goes on while the machine sleeps, so a laptop that slept does not think its Lease is young
//! (failover.md F2).

use coregent_core::names::Monotonic;
use rustix::time::{ClockId, clock_gettime};

/// Now.
pub(crate) fn now() -> Monotonic {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let millis = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000;
    Monotonic(seconds.saturating_mul(1_000).saturating_add(millis))
}

/// How long it is from now until `at`.
pub(crate) fn until(at: Monotonic) -> std::time::Duration {
    std::time::Duration::from_millis(at.since(now()))
}
