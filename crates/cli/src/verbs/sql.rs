//! `coregent sql NAME`: the engine's own client with the right address and credentials.

use crate::connection::Connection;
use crate::database;
use crate::failure::{Failure, Outcome};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What to open.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The database cluster
    pub name: String,
    /// The read-only service
    #[arg(long)]
    pub readonly: bool,
    /// Passed to the client
    #[arg(last = true, value_name = "CLIENT-ARGS")]
    pub client_args: Vec<String>,
}

/// Becomes psql. The password goes by environment, never on the command line.
///
/// # Errors
/// When the cluster has no address yet or psql is not installed.
pub async fn run(connection: &Connection, args: &Args) -> Outcome {
    let address = database::service_address(connection, &args.name, args.readonly).await?;
    let credentials = database::superuser(connection, &args.name).await?;
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "5432"));
    let error = Command::new("psql")
        .env("PGHOST", host)
        .env("PGPORT", port)
        .env("PGUSER", &credentials.username)
        .env("PGPASSWORD", &credentials.password)
        .env("PGDATABASE", std::env::var("PGDATABASE").unwrap_or_else(|_| "postgres".into()))
        .args(&args.client_args)
        .exec();
    Err(Failure::failed(
        "cannot start psql",
        error,
        "install the client, for example `apt-get install postgresql-client`",
    ))
}
