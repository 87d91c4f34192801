//! Observing: what the watches and our own writes' answers say, as one [`World`](coregent_core::failover::World) per
//! cluster.

mod cache;
mod leases;
mod pods;
mod refused;
mod trouble;
mod watch;
mod world;

pub use cache::{Cache, Key};
pub use refused::Refusal;
pub(crate) use refused::said;
pub use watch::start;
pub use world::{Held, View};
