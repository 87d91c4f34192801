//! Tests of a whole node: the real API server in memory, real containers. This binary is also the shim of the
//! containers that it starts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may; without libtest clippy does not see that it is one")]

mod fixture;
mod harness;
mod pods;
mod postgres;
mod server;
mod volumes;

fn main() -> std::process::ExitCode {
    if let Some(code) = coregent_process::dispatch(std::env::args_os()) {
        std::process::exit(code);
    }
    harness::run(&[
        ("pods", pods::TESTS),
        ("postgres", postgres::TESTS),
        ("server", server::TESTS),
        ("volumes", volumes::TESTS),
    ])
}
