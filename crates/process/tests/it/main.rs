//! Tests of real containers and process trees. This binary is also the shim of the containers it starts, and (by the
//! verbs in `helper`) the processes that the tests kill.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests; clippy.toml's leave holds only for functions marked #[test]"
)]

mod containers;
mod death;
mod exec;
mod fixture;
mod harness;
mod helper;
mod ordinary_user;
mod postgresql;
mod tree;

fn main() -> std::process::ExitCode {
    if let Some(code) = coregent_process::dispatch(std::env::args_os()) {
        std::process::exit(code);
    }
    if let Some(code) = helper::dispatch() {
        std::process::exit(code);
    }
    harness::run(&[
        ("containers", containers::TESTS),
        ("death", death::TESTS),
        ("exec", exec::TESTS),
        ("ordinary_user", ordinary_user::TESTS),
        ("postgresql", postgresql::TESTS),
        ("tree", tree::TESTS),
    ])
}
