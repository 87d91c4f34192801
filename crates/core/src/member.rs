//! What one member's agent does next: `decide(&World) -> Decision` (failover.md F1 to F14 as they bind a member).
//!
//! The agent builds a [`World`] after every event, carries the [`Decision`] out and feeds the outcome back. At most
//! one job runs on the engine and one write on the Lease at a time; stopping the engine goes before every other job.

mod action;
mod decide;
mod hold;
mod leave;
mod rejoin;
mod report;
mod sync_set;
mod take;
#[cfg(test)]
mod tests;
mod world;

pub use action::{Action, Decision, Job, LeaseWrite, Names, Purpose, Source};
pub use decide::{UNEXPECTED_PRIMARY, decide};
pub use rejoin::{Relation, relation};
pub use world::{
    Data, Engine, Held, JobKind, Mode, PrimaryLease, Settings, Standby, StandbySeen, Timing, TimingError, Volume,
    WhenTooFew, World, Writable,
};
