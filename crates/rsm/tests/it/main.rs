//! The RSM controller against the embedded API server, in process.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod admission;
mod compatibility;
mod controller;
mod passes;
mod plane;
mod rendering;
mod roles;
mod update;
