//! `coregent logs`.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use std::io::Write;

/// Whose log, and how much of it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pod
    pub pod: String,
    /// The container; the first where none is named
    #[arg(short, long)]
    pub container: Option<String>,
    /// Keep printing as it grows
    #[arg(short, long)]
    pub follow: bool,
    /// Of the container before the last restart
    #[arg(short, long)]
    pub previous: bool,
    /// Only the last lines
    #[arg(long)]
    pub tail: Option<i64>,
    /// With the time of each line
    #[arg(long)]
    pub timestamps: bool,
}

/// Prints a container's log.
///
/// # Errors
/// When the pod or its log is not there.
pub async fn run(connection: &Connection, args: &Args) -> Outcome {
    let api: Api<Pod> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let what = format!("cannot read the log of pod {}", args.pod);
    let pod = api.get(&args.pod).await.map_err(|error| Failure::from_api(&what, error))?;
    let first = pod.spec.and_then(|spec| spec.containers.into_iter().next()).map(|container| container.name);
    let params = LogParams {
        container: args.container.clone().or(first),
        follow: args.follow,
        previous: args.previous,
        tail_lines: args.tail,
        timestamps: args.timestamps,
        ..LogParams::default()
    };
    let stream = api.log_stream(&args.pod, &params).await.map_err(|error| Failure::from_api(&what, error))?;
    let mut lines = std::pin::pin!(stream.lines());
    while let Some(line) = lines.try_next().await.map_err(|error| Failure::failed(&what, error, "try again"))? {
        // A reader that went away (`| head`) wants no more.
        if writeln!(std::io::stdout(), "{line}").is_err() {
            break;
        }
    }
    Ok(())
}
