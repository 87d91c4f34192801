//! `coregent endpoint NAME`.

use crate::connection::Connection;
use crate::database::{self, uri};
use crate::failure::Outcome;
use crate::say;

/// Which address, and in which form.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The database cluster
    pub name: String,
    /// The read-only service
    #[arg(long)]
    pub readonly: bool,
    /// A whole connection URI, with credentials
    #[arg(long)]
    pub uri: bool,
    /// The superuser's password instead of the address
    #[arg(long, conflicts_with_all = ["uri", "all", "readonly"])]
    pub password: bool,
    /// Every member, with target_session_attrs
    #[arg(long)]
    pub all: bool,
}

/// Prints the address and nothing else.
///
/// # Errors
/// When the cluster is not there or has no address yet.
pub async fn run(connection: &Connection, args: &Args) -> Outcome {
    if args.password {
        say::out(database::superuser(connection, &args.name).await?.password);
        return Ok(());
    }
    let hosts = if args.all {
        database::member_addresses(connection, &args.name).await?.join(",")
    } else {
        database::service_address(connection, &args.name, args.readonly).await?
    };
    let attributes = match (args.all, args.readonly) {
        (false, _) => "",
        (true, false) => "?target_session_attrs=read-write",
        (true, true) => "?target_session_attrs=prefer-standby",
    };
    if args.uri {
        say::out(uri(&hosts, &database::superuser(connection, &args.name).await?, attributes));
    } else {
        say::out(format_args!("{hosts}{attributes}"));
    }
    Ok(())
}
