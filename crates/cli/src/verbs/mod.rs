//! One file a verb.

pub mod apply;
pub mod delete;
pub mod describe;
pub mod endpoint;
pub mod events;
pub mod exec;
pub mod get;
pub mod install;
pub mod logs;
pub mod sql;
pub mod status;
pub mod switchover;
pub mod wait;
