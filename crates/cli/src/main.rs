//! The `coregent` binary: arguments, output and wiring; it decides nothing.

mod args;
mod connection;
mod database;
mod failure;
mod kinds;
mod manifest;
mod output;
mod say;
mod up;
mod verbs;

use args::{Cli, Verb};
use clap::{CommandFactory, Parser};
use failure::{Failure, Outcome};
use std::io::IsTerminal;
use std::process;

fn main() -> process::ExitCode {
    // Containers start through this very binary, single-threaded, before any runtime exists.
    if let Some(code) = coregent_process::dispatch(std::env::args_os()) {
        return process::ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => process::ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(failure) => {
            say::err(failure.render());
            process::ExitCode::from(failure.code as u8)
        }
    }
}

/// Runs a verb; the number is the exit code (only `exec` has one of its own).
fn run(cli: Cli) -> Outcome<i32> {
    let runs_long = matches!(cli.verb, Verb::Agent(_) | Verb::Operator(_));
    init_tracing(cli.verbose, runs_long);
    let single = match cli.verb {
        Verb::Agent(agent) => return args::run_agent(agent).map(|()| 0),
        Verb::Version => {
            say::out(concat!("coregent ", env!("CARGO_PKG_VERSION")));
            return Ok(0);
        }
        Verb::Crds => return verbs::install::crds().map(|()| 0),
        Verb::Install(install) => return verbs::install::run(&cli.target, install).map(|()| 0),
        Verb::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "coregent", &mut std::io::stdout());
            return Ok(0);
        }
        Verb::Up(_) => {
            coregent_process::priority::rise();
            false
        }
        Verb::Operator(_) => false,
        _ => true,
    };
    let mut builder = if single {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("cannot start", error, "check the limits on threads and open files"))?;
    runtime.block_on(dispatch(cli))
}

async fn dispatch(cli: Cli) -> Outcome<i32> {
    match cli.verb {
        Verb::Up(up) => up::run(&cli.target, up).await,
        Verb::Down(down) => up::down(&cli.target, &down).await.map(|()| 0),
        Verb::Operator(operator) => up::operator::run(&cli.target, operator).await.map(|()| 0),
        other => {
            let connection = cli.target.connect().await?;
            match other {
                Verb::Apply { filename, force } => verbs::apply::run(&connection, &filename, force).await,
                Verb::Get(args) => verbs::get::run(&connection, &args).await,
                Verb::Describe { object } => verbs::describe::run(&connection, &object).await,
                Verb::Delete(args) => verbs::delete::run(&connection, &args).await,
                Verb::Logs(args) => verbs::logs::run(&connection, &args).await,
                Verb::Events(args) => verbs::events::run(&connection, &args).await,
                Verb::Exec(args) => return verbs::exec::run(&connection, &args).await,
                Verb::Wait(args) => verbs::wait::run(&connection, &args).await,
                Verb::Status(args) => verbs::status::run(&connection, &args).await,
                Verb::Endpoint(args) => verbs::endpoint::run(&connection, &args).await,
                Verb::Sql(args) => verbs::sql::run(&connection, &args).await,
                Verb::Switchover(args) => verbs::switchover::run(&connection, &args).await,
                Verb::Up(_)
                | Verb::Down(_)
                | Verb::Operator(_)
                | Verb::Agent(_)
                | Verb::Version
                | Verb::Crds
                | Verb::Install(_)
                | Verb::Completions { .. } => Ok(()),
            }
            .map(|()| 0)
        }
    }
}

/// What a part that runs for long does is told in its log; a verb that a person waits for tells only what is wrong.
fn init_tracing(verbose: u8, runs_long: bool) {
    let default = match verbose {
        // What the client says of an answer that is an error lacks what was asked; whoever asked says both.
        0 if runs_long => {
            "warn,kube_client::client::builder=off,coregent_agent=info,coregent_operator=info,coregent_rsm=info"
        }
        0 => "warn,kube_client::client::builder=off",
        1 => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("COREGENT_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(colours)
        // It would complain with `eprintln!` of a line that cannot be written, and that panics where the disk is full.
        .log_internal_errors(false)
        .init();
}
