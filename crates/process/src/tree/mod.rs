//! The engine's process tree, for the agent: first process of its container or, where it is not, a sub-reaper.
//!
//! failover.md F3: a database server that lost its first process still has backends that acknowledge writes. So an
//! engine is «ended» only when [`sweep`] has seen a whole pass without any of its processes, and the volume's
//! [`Lock`], which every engine process inherits, is an independent proof (F5).
//!
//! A process that reaps orphans must be the only one to wait for children: in the agent use [`Reaper`] for every
//! program, never `tokio::process` or `std::process::Child::wait`.

mod death;
mod lock;
mod processes;
mod reaper;
mod sweep;

pub use death::Death;
pub use lock::{Lock, LockError, lock_exclusive, wait_exclusive};
pub use reaper::{Child, Output, Reaper, SpawnError};
pub use sweep::{Selector, StuckProcess, SweepError, SweepReport, sweep};
