//! Decisions of a replicated state machine that need no Kubernetes types: roles and their order, the numbers of members,
//! what a role report means (rsm.md 4 and 7).

pub mod instances;
pub mod membership;
pub mod probe;
pub mod report;
pub mod request;
pub mod roles;
pub mod update;

pub use roles::{AccessMode, Role};
