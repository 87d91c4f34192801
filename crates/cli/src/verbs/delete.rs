//! `coregent delete`.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::kinds::{Kinds, kind_and_name};
use crate::manifest;
use crate::say;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, DeleteParams, DynamicObject, PropagationPolicy, WatchEvent, WatchParams};
use std::path::PathBuf;

/// What to delete and how.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// KIND NAME, or KIND/NAME
    #[arg(value_name = "KIND NAME", num_args = 0..=2)]
    pub object: Vec<String>,
    /// Delete what these manifests name
    #[arg(short, long, value_name = "FILE")]
    pub filename: Vec<PathBuf>,
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
    let mut objects = Vec::new();
    if args.filename.is_empty() {
        let (kind, name) = kind_and_name(&args.object)?;
        let name = name.ok_or_else(|| Failure::refused("which object?", "no name was given", "type KIND NAME"))?;
        objects.push((kinds.find(&kind)?, name, connection.namespace.clone()));
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
    for (served, name, namespace) in objects {
        let api = served.api(connection, &namespace);
        let params = DeleteParams {
            grace_period_seconds: args.grace_period,
            propagation_policy: Some(match args.cascade.as_str() {
                "foreground" => PropagationPolicy::Foreground,
                "orphan" => PropagationPolicy::Orphan,
                _ => PropagationPolicy::Background,
            }),
            ..DeleteParams::default()
        };
        let what = format!("cannot delete {}/{name}", served.display());
        let answer = api.delete(&name, &params).await.map_err(|error| Failure::from_api(&what, error))?;
        if let (Some(object), false) = (answer.left(), args.no_wait) {
            gone(&api, &name, object.metadata.uid.as_deref()).await.map_err(|error| Failure::from_api(&what, error))?;
        }
        say::out(format_args!("{}/{name} deleted", served.display()));
    }
    Ok(())
}

/// Waits until the object of this uid is gone; another of the same name may have taken its place.
async fn gone(api: &Api<DynamicObject>, name: &str, uid: Option<&str>) -> Result<(), kube::Error> {
    loop {
        let list = api.list(&kube::api::ListParams::default().fields(&format!("metadata.name={name}"))).await?;
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
