//! Agents as programs of their own with real PostgreSQL servers, against the embedded API server; the test plays the
//! controller: it raises and names.

mod cluster;
mod failover;
