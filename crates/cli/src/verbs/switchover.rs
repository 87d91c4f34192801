//! `coregent switchover NAME [--to MEMBER]`: planned, loses nothing.

use crate::connection::Connection;
use crate::database;
use crate::failure::{Failure, Outcome};
use crate::say;
use coregent_api::{DatabaseCluster, annotations};
use futures::{StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use std::time::Duration;

/// Whom to hand over to, and how long to wait.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The database cluster
    pub name: String,
    /// The member that is to be primary; the most advanced replica where none is named
    #[arg(long, value_name = "MEMBER")]
    pub to: Option<String>,
    /// Return once it is asked for
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait: 90, 90s, 5m
    #[arg(long, default_value = "60s", value_parser = super::wait::duration)]
    pub timeout: Duration,
}

/// Asks the controller to hand over and waits for the outcome.
///
/// # Errors
/// When it cannot be done, with the reason; the old primary goes on then.
pub async fn run(connection: &Connection, args: &Args) -> Outcome {
    let api: Api<DatabaseCluster> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let id = request_id()?;
    let what = format!("cannot switch {} over", args.name);
    let (asked, from) = ask(connection, &api, args, &id, &what).await?;
    if args.no_wait {
        say::out(format_args!("asked {} to hand over from {from}", args.name));
        return Ok(());
    }
    let outcome = tokio::time::timeout(args.timeout, settled(&api, asked, &from, &id)).await;
    match outcome {
        Ok(done) => done,
        Err(_) => Err(Failure::not_yet(
            &what,
            format!("{from} had not handed over after {:?}", args.timeout),
            format!("look at `coregent status {}`: the operation goes on or is undone by itself", args.name),
        )),
    }
}

/// Writes the request on the state that it was judged on. The controller writes the status all the time: whatever came
/// in between is judged anew.
async fn ask(
    connection: &Connection,
    api: &Api<DatabaseCluster>,
    args: &Args,
    id: &str,
    what: &str,
) -> Outcome<(DatabaseCluster, String)> {
    let request = json!({"id": id, "to": args.to}).to_string();
    loop {
        let cluster = database::get(connection, &args.name).await?;
        let from = refuse_what_cannot_work(&cluster, args)?;
        let patch = json!({"metadata": {
            "resourceVersion": cluster.resource_version(),
            "annotations": {annotations::SWITCHOVER: request},
        }});
        match api.patch(&args.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(asked) => return Ok((asked, from)),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Failure::from_api(what, error)),
        }
    }
}

fn refuse_what_cannot_work(cluster: &DatabaseCluster, args: &Args) -> Outcome<String> {
    let refuse = |why: String, remedy: &str| Failure::refused(format!("cannot switch {} over", args.name), why, remedy);
    let status = cluster.status.clone().unwrap_or_default();
    let current = status.primary.and_then(|primary| primary.current).ok_or_else(|| {
        refuse(
            "it has no primary now".into(),
            "wait until `coregent status` shows one; a lost primary is failed over by itself",
        )
    })?;
    if let Some(operation) = status.blocking_operation {
        return Err(refuse(format!("another operation is active: {}", operation.step_id), "wait until it has ended"));
    }
    let replicas: Vec<_> = status.members.iter().filter(|member| member.name != current).collect();
    match &args.to {
        Some(to) if *to == current => {
            Err(refuse(format!("{to} is the primary already"), "name another member with --to"))
        }
        Some(to) => match replicas.iter().find(|member| member.name == *to) {
            None => Err(refuse(format!("it has no member {to}"), "`coregent status` lists its members")),
            Some(member) if !member.ready => {
                Err(refuse(format!("{to} is not ready"), "wait until it streams, or name another"))
            }
            Some(_) => Ok(current),
        },
        None if replicas.iter().any(|member| member.ready) => Ok(current),
        None => Err(refuse("no replica is ready".into(), "wait until one streams")),
    }
}

/// Waits until another member is primary or the request was refused or undone.
async fn settled(api: &Api<DatabaseCluster>, mut cluster: DatabaseCluster, from: &str, id: &str) -> Outcome {
    let what = format!("cannot switch {} over", cluster.name_any());
    loop {
        if let Some(outcome) = judge(&cluster, from, id, &what) {
            return outcome;
        }
        let params = WatchParams::default().fields(&format!("metadata.name={}", cluster.name_any()));
        let version = cluster.resource_version().unwrap_or_default();
        let mut events = api.watch(&params, &version).await.map_err(|error| Failure::from_api(&what, error))?.boxed();
        while let Some(event) = events.try_next().await.map_err(|error| Failure::from_api(&what, error))? {
            if let WatchEvent::Modified(newer) = event {
                cluster = newer;
                if let Some(outcome) = judge(&cluster, from, id, &what) {
                    return outcome;
                }
            }
        }
    }
}

fn judge(cluster: &DatabaseCluster, from: &str, id: &str, what: &str) -> Option<Outcome> {
    let status = cluster.status.as_ref()?;
    let handled = status.handled_request.as_deref().is_some_and(|handled| handled.starts_with(id));
    if !handled || status.blocking_operation.is_some() {
        return None;
    }
    let current = status.primary.as_ref()?.current.as_deref()?;
    if current != from {
        say::out(format_args!("{} is now the primary of {} (was {from})", current, cluster.name_any()));
        return Some(Ok(()));
    }
    let why = status
        .handled_request
        .as_deref()
        .and_then(|handled| handled.split_once(": "))
        .map_or("it was undone", |(_, why)| why);
    Some(Err(Failure::failed(what, why, format!("{from} is still the primary; `coregent events` tells more"))))
}

fn request_id() -> Outcome<String> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed("cannot draw a random number", error, "check the system"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
