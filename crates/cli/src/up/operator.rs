//! `coregent operator`: the controllers as a process of their own.

use crate::connection::Target;
use crate::failure::{Failure, Outcome};
use std::net::SocketAddr;
use tokio_util::sync::CancellationToken;

/// How the controllers run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where /metrics, /livez and /readyz are served
    #[arg(long, value_name = "ADDR")]
    pub metrics_addr: Option<SocketAddr>,
    /// Name of this process in the leader election
    #[arg(long, env = "POD_NAME")]
    pub identity: Option<String>,
    /// Image that members get their agent from; by default that of this version
    #[arg(long, env = "COREGENT_IMAGE")]
    pub image: Option<String>,
}

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
/// When the API server cannot be reached or the controllers cannot start.
pub async fn run(target: &Target, args: Args) -> Outcome {
    let connection = target.connect_paced().await?;
    let shutdown = CancellationToken::new();
    tokio::spawn(super::signals::cancel_on_signal(shutdown.clone()));
    let options = coregent_operator::Options {
        identity: args.identity.unwrap_or_else(|| format!("operator-{}", std::process::id())),
        namespace: target.namespace.clone(),
        leader_election: Some(connection.namespace.clone()),
        metrics_addr: args.metrics_addr,
        image: args.image,
        without_rsm: false,
    };
    coregent_operator::run(connection.client, options, shutdown).await.map_err(|error| match error {
        coregent_operator::Error::Kinds(why) => Failure::not_yet(
            "the operator has nothing to work on",
            why,
            "`coregent install | kubectl apply --server-side -f -` brings the definitions; the operator can be started again",
        ),
        error => Failure::failed(
            "the controllers ended",
            crate::failure::chain(&error),
            "look at the API server; the operator can be started again",
        ),
    })
}
