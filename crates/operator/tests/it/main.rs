//! The real controllers over a real API server in memory, with modelled nodes, agents and databases.

#![allow(clippy::unwrap_used, clippy::panic)]

mod agent;
mod bootstrap;
mod failover;
mod faults;
mod net;
mod plane;
mod rendered;
mod switchover;
