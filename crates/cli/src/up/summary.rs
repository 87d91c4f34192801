//! What `up` prints at its end: where to connect and what to try next.

use crate::connection::Connection;
use crate::database;
use crate::failure::Outcome;
use crate::say;
use std::path::Path;

/// Prints addresses, a psql line, the kubeconfig and next steps for each database.
///
/// # Errors
/// When an address or the credentials cannot be read.
pub async fn print(connection: &Connection, databases: &[(String, String)], data_dir: &Path) -> Outcome {
    for (namespace, name) in databases {
        let connection = Connection { client: connection.client.clone(), namespace: namespace.clone() };
        let write = database::service_address(&connection, name, false).await?;
        let read = database::service_address(&connection, name, true).await?;
        let (host, port) = write.rsplit_once(':').unwrap_or((&write, "5432"));
        // Of a database that was there before, any member may be the primary now.
        let status = database::get(&connection, name).await?.status.unwrap_or_default();
        let primary = status.primary.and_then(|primary| primary.current).unwrap_or_else(|| format!("{name}-1"));
        let program = std::env::args().next().unwrap_or_else(|| "coregent".into());
        let data = format!("--data-dir {}", data_dir.display());
        say::out(format_args!(
            "\n{name} is Ready.\n\
             \n  read-write  {write}\
             \n  read-only   {read}\
             \n  psql        PGPASSWORD=$({program} {data} endpoint {name} --password) psql -h {host} -p {port} -U postgres\
             \n  kubeconfig  {kubeconfig}\n\
             \nTry next:\
             \n  {program} {data} status {name} -w\
             \n  {program} {data} exec {primary}-0 -- sh -c 'kill -9 $(head -1 $PGDATA/postmaster.pid)'   (the primary dies)\
             \n  {program} {data} switchover {name}\
             \n  {program} {data} down",
            kubeconfig = data_dir.join("kubeconfig").display(),
        ));
    }
    Ok(())
}
