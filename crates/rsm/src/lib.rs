//! `ReplicatedStateMachine`: members with roles, as a library and as a controller.

pub mod failpoint;
