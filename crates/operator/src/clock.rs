//! The controller's two clocks.

use coregent_core::names::Monotonic;
use coregent_core::wallclock::Timestamp;
use tokio::time::Instant;

/// Monotonic milliseconds since this process began to observe, and the time of day.
///
/// An observer may use a clock that stands still while the machine sleeps: it then counts less, and declares a Lease
/// expired later, never sooner (failover.md F2). Only a holder needs one that goes on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that begins now.
    #[must_use]
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Milliseconds since the start. One is added so that no observation is at zero, which stands for "never".
    #[must_use]
    pub fn now(&self) -> Monotonic {
        Monotonic(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1))
    }

    /// The time of day, for records.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        Timestamp(jiff::Timestamp::now().as_millisecond())
    }
}
