//! What runs beside a database: the first process of its container.
//!
//! The agent observes the primary Lease, its volume and its engine, lets [`coregent_core::member::decide`] decide and
//! carries the decision out. It writes two objects only: the primary Lease, and its own member Lease.
//!
//! Beside a member of a plain `ReplicatedStateMachine` runs the role [`probe`].

pub mod clock;
mod config;
mod durable;
pub mod engine;
mod health;
mod install;
mod lease;
pub mod member;
pub mod postgresql;
pub mod probe;
mod processes;
mod read_out;
mod report;
mod volume;
mod watchdog;

pub use config::{Config, ConfigError};
pub use health::Health;
pub use install::{InstallError, install};
