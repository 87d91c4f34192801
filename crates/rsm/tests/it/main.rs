//! The RSM controller against the embedded API server, in process.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod admission;
mod compatibility;
mod controller;
mod cost;
mod membership;
#[path = "../../examples/own_controller.rs"]
mod own_controller;
mod passes;
mod plane;
mod rendering;
mod roles;
mod update;

/// A controller that a program outside builds from the library's face brings a set up and lets it go.
#[test]
fn the_example_of_an_own_controller_runs() {
    own_controller::main().unwrap();
}
