//! `coregent logs`.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Container, Pod};
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
    let container = container(&pod, args, &what)?;
    let params = LogParams {
        container: Some(container.clone()),
        follow: args.follow,
        previous: args.previous,
        tail_lines: args.tail,
        timestamps: args.timestamps,
        ..LogParams::default()
    };
    let stream = match api.log_stream(&args.pod, &params).await {
        Err(kube::Error::Api(status)) if status.code == 400 => {
            return Err(no_log(what, args, &container, &status.message));
        }
        stream => stream.map_err(|error| Failure::from_api(&what, error))?,
    };
    let mut lines = std::pin::pin!(stream.lines());
    while let Some(line) = lines.try_next().await.map_err(|error| Failure::failed(&what, error, "try again"))? {
        // A reader that went away (`| head`) wants no more.
        if writeln!(std::io::stdout(), "{line}").is_err() {
            break;
        }
    }
    Ok(())
}

/// The container that was named, or the first.
fn container(pod: &Pod, args: &Args, what: &str) -> Outcome<String> {
    let spec = pod.spec.clone().unwrap_or_default();
    let names = |containers: &[Container]| containers.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    let (main, init) = (names(&spec.containers), names(&spec.init_containers.unwrap_or_default()));
    match &args.container {
        None => main.into_iter().next().ok_or_else(|| Failure::refused(what, "it has no container", "look at the pod")),
        Some(name) if main.contains(name) || init.contains(name) => Ok(name.clone()),
        Some(name) => {
            let all = main.into_iter().chain(init).collect::<Vec<_>>().join(", ");
            Err(Failure::refused(
                what,
                format!("it has no container {name}"),
                format!("name one of these with -c: {all}"),
            ))
        }
    }
}

/// There is no such log now.
fn no_log(what: String, args: &Args, container: &str, why: &str) -> Failure {
    if args.previous {
        let remedy = "leave -p out for the log of the container that runs now";
        return Failure::refused(
            what,
            format!("container {container} has not been restarted: no log is before this one"),
            remedy,
        );
    }
    Failure::not_yet(what, why, format!("look at `coregent describe pod {}` for why it has not started", args.pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_container_is_found_by_name_or_is_the_first_and_others_are_named() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "postgresql"}, {"name": "side"}], "initContainers": [{"name": "coregent"}],
        }}))
        .unwrap();
        let args = |container: Option<&str>| Args {
            pod: "p".into(),
            container: container.map(str::to_owned),
            follow: false,
            previous: false,
            tail: None,
            timestamps: false,
        };
        for (named, found) in [(None, "postgresql"), (Some("side"), "side"), (Some("coregent"), "coregent")] {
            assert_eq!(container(&pod, &args(named), "").as_deref(), Ok(found));
        }
        let refused = container(&pod, &args(Some("nope")), "").unwrap_err();
        assert!(refused.remedy.contains("postgresql, side, coregent"), "{refused:?}");
    }
}
