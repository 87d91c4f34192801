//! The real controllers over a real API server in memory, with modelled nodes, agents and databases.

#![allow(clippy::unwrap_used, clippy::panic)]

mod bootstrap;
mod chart;
mod days;
mod engine;
mod failover;
mod faults;
mod host;
mod installed;
mod kinds;
mod net;
mod oracle;
mod plane;
mod refused;
mod rendered;
mod rivals;
mod shown;
mod storms;
mod switchover;
