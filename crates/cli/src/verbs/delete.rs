//! `coregent delete`.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::kinds::{Kinds, Served, kinds_and_names};
use crate::manifest;
use crate::say;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PropagationPolicy, WatchEvent, WatchParams};
use std::path::PathBuf;
use std::time::Duration;

/// What to delete and how.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// KIND NAME…, or KIND/NAME…
    #[arg(value_name = "KIND NAME", num_args = 0..)]
    pub object: Vec<String>,
    /// Delete what these manifests name
    #[arg(short, long, value_name = "FILE")]
    pub filename: Vec<PathBuf>,
    /// Delete every object of KIND whose labels match
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "filename")]
    pub selector: Option<String>,
    /// Do not wait until it is gone
    #[arg(long)]
    pub no_wait: bool,
    /// What becomes of the objects that it owns
    #[arg(long, value_parser = ["background", "foreground", "orphan"], default_value = "background")]
    pub cascade: String,
    /// Grace period of a pod, in seconds
    #[arg(long)]
    pub grace_period: Option<u32>,
}

/// Deletes and, unless told otherwise, waits until the objects are gone.
///
/// # Errors
/// When one is not there or cannot be deleted.
pub async fn run(connection: &Connection, args: &Args) -> Outcome {
    let kinds = Kinds::discover(connection).await?;
    let params = DeleteParams {
        grace_period_seconds: args.grace_period,
        propagation_policy: Some(match args.cascade.as_str() {
            "foreground" => PropagationPolicy::Foreground,
            "orphan" => PropagationPolicy::Orphan,
            _ => PropagationPolicy::Background,
        }),
        ..DeleteParams::default()
    };
    // All are deleted before any is waited for: one may be held by another.
    let mut asked = Vec::new();
    for (served, name, namespace) in asked_for(connection, args, &kinds).await? {
        let api = served.api(connection, &namespace);
        let what = format!("cannot delete {}/{name}", served.display());
        let answer = api.delete(&name, &params).await.map_err(|error| Failure::from_api(&what, error))?;
        asked.push((served, name, namespace, answer.left()));
    }
    for (served, name, namespace, left) in asked {
        let what = format!("cannot delete {}/{name}", served.display());
        if let (Some(object), false) = (left, args.no_wait) {
            wait_until_gone(connection, served, &namespace, &object)
                .await
                .map_err(|error| Failure::from_api(&what, error))?;
        }
        say::out(format_args!("{}/{name} deleted", served.display()));
        if served.resource.kind == "DatabaseCluster" {
            tell_what_stays(connection, &name, &namespace).await;
        }
    }
    Ok(())
}

/// Kind, name and namespace of every object to be deleted.
async fn asked_for<'a>(
    connection: &Connection,
    args: &Args,
    kinds: &'a Kinds,
) -> Outcome<Vec<(&'a Served, String, String)>> {
    let mut objects = Vec::new();
    if args.filename.is_empty() {
        for (kind, name) in kinds_and_names(&args.object)? {
            let served = kinds.find(&kind)?;
            match (name, &args.selector) {
                (Some(name), None) => objects.push((served, name, connection.namespace.clone())),
                (None, Some(selector)) => {
                    for name in matching(connection, served, selector).await? {
                        objects.push((served, name, connection.namespace.clone()));
                    }
                }
                _ => {
                    return Err(Failure::refused(
                        "which object?",
                        "neither a name nor labels were given, or both",
                        "type KIND NAME, or KIND -l LABELS",
                    ));
                }
            }
        }
    }
    for document in manifest::read(&args.filename)?.into_iter().rev() {
        let types = document.object.types.clone().unwrap_or_default();
        let served = kinds.of(&types).ok_or_else(|| {
            Failure::refused(
                format!("cannot delete what {} names", document.origin),
                "no such kind is served here",
                "correct the manifest",
            )
        })?;
        let namespace = document.object.metadata.namespace.clone().unwrap_or_else(|| connection.namespace.clone());
        objects.push((served, document.object.metadata.name.clone().unwrap_or_default(), namespace));
    }
    Ok(objects)
}

async fn matching(connection: &Connection, served: &Served, selector: &str) -> Outcome<Vec<String>> {
    let api = served.api(connection, &connection.namespace);
    let what = format!("cannot list {}", served.resource.plural);
    let list = api.list(&ListParams::default().labels(selector)).await;
    let found: Vec<_> =
        list.map_err(|error| Failure::from_api(what, error))?.items.iter().map(ResourceExt::name_any).collect();
    if found.is_empty() {
        say::err(format_args!("no {} match {selector}", served.resource.plural));
    }
    Ok(found)
}

/// A database that is gone by mistake must not take its data along: its volumes stay until somebody removes them.
async fn tell_what_stays(connection: &Connection, name: &str, namespace: &str) {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(connection.client.clone(), namespace);
    let labels = format!("{}={name}", coregent_api::labels::CLUSTER);
    // It is no part of what was asked for: a list that fails makes no failure of it.
    let Ok(claims) = api.list(&ListParams::default().labels(&labels)).await else { return };
    let names: Vec<String> = claims.items.iter().map(ResourceExt::name_any).collect();
    if !names.is_empty() {
        say::err(format_args!(
            "its data stays in {}; `coregent delete pvc -l {labels} -n {namespace}` removes it for good",
            names.join(", ")
        ));
    }
}

/// What keeps an object may take long, or for ever: after a moment it is said.
const SILENT_WAIT: Duration = Duration::from_secs(2);

async fn wait_until_gone(
    connection: &Connection,
    served: &Served,
    namespace: &str,
    object: &DynamicObject,
) -> Result<(), kube::Error> {
    let (api, name) = (served.api(connection, namespace), object.name_any());
    let gone = gone(&api, &name, object.metadata.uid.as_deref());
    tokio::pin!(gone);
    if let Ok(gone) = tokio::time::timeout(SILENT_WAIT, &mut gone).await {
        return gone;
    }
    let kept = match object.finalizers() {
        [] => String::new(),
        finalizers => format!("; it is kept by {}", finalizers.join(", ")),
    };
    say::err(format_args!("waits until {}/{name} is gone{kept}", served.display()));
    gone.await
}

/// Waits until the object of this uid is gone; another of the same name may have taken its place.
async fn gone(api: &Api<DynamicObject>, name: &str, uid: Option<&str>) -> Result<(), kube::Error> {
    loop {
        let list = api.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await?;
        let same = |object: &DynamicObject| object.metadata.uid.as_deref() == uid;
        if !list.items.iter().any(same) {
            return Ok(());
        }
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut events = api.watch(&params, &version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            if matches!(event, WatchEvent::Deleted(object) if same(&object)) {
                return Ok(());
            }
        }
    }
}
