//! Coregent: see ARCHITECTURE.md for what this crate holds.

pub mod patch;
pub mod schema;
