//! How long a container waits before it starts again.

use std::time::Duration;

/// A container that ran this long starts afresh, with no memory of earlier failures.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);
/// The longest wait, as Kubernetes has it.
const LONGEST: Duration = Duration::from_secs(300);

/// Waits of 0, 1, 2, 4 … 300 seconds. Kubernetes starts at 10 s; here the first restart is immediate,
/// because a database member that died must be back before its peers have to do anything about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after an exit of a container that ran for `ran`.
    pub fn after_exit(&mut self, ran: Duration) -> Duration {
        if ran >= FORGIVEN_AFTER {
            self.failures = 0;
        }
        let delay = match self.failures {
            0 => Duration::ZERO,
            n => Duration::from_secs(1 << (n - 1).min(16)).min(LONGEST),
        };
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// The wait after a start that failed: never zero, since nothing ran that could have changed anything.
    pub fn after_failed_start(&mut self) -> Duration {
        self.after_exit(Duration::ZERO).max(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_five_minutes_and_a_minute_of_running_forgives() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..12).map(|_| backoff.after_exit(Duration::from_secs(5)).as_secs()).collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(backoff.after_exit(Duration::from_secs(60)), Duration::ZERO);
        assert_eq!(backoff.after_exit(Duration::from_secs(59)), Duration::from_secs(1));
    }
}
