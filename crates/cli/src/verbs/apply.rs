//! `coregent apply -f`: server-side apply with strict field validation.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::kinds::Kinds;
use crate::manifest::{self, Document};
use crate::say;
use kube::api::{Patch, PatchParams, ValidationDirective};
use std::path::PathBuf;

/// Field manager of what a person applies.
pub const MANAGER: &str = "coregent";

/// Applies every document and prints one line each.
///
/// # Errors
/// The first refusal; what was applied before it stays applied and has been printed.
pub async fn run(connection: &Connection, files: &[PathBuf], force: bool) -> Outcome {
    if files.is_empty() {
        return Err(Failure::refused("nothing to apply", "no file was named", "name one with -f"));
    }
    for line in documents(connection, &manifest::read(files)?, force).await? {
        say::out(line);
    }
    Ok(())
}

/// Applies documents in their order; returns a line for each.
///
/// # Errors
/// The first refusal.
pub async fn documents(connection: &Connection, documents: &[Document], force: bool) -> Outcome<Vec<String>> {
    let mut lines = Vec::new();
    let mut kinds = Kinds::discover(connection).await?;
    for document in documents {
        let types = document.object.types.clone().unwrap_or_default();
        if kinds.of(&types).is_none() {
            // A CustomResourceDefinition earlier in the same files makes new kinds.
            kinds = Kinds::discover(connection).await?;
        }
        let served = kinds.of(&types).ok_or_else(|| {
            Failure::refused(
                format!("cannot apply {}", document.origin),
                format!("no kind {} of {} is served here", types.kind, types.api_version),
                "correct apiVersion and kind, or install the kind: `coregent crds` prints ours",
            )
        })?;
        let name = document.object.metadata.name.clone().unwrap_or_default();
        let namespace = document.object.metadata.namespace.as_deref().unwrap_or(&connection.namespace);
        let mut params = PatchParams::apply(MANAGER).validation(ValidationDirective::Strict);
        params.force = force;
        let what = format!("cannot apply {}/{name} from {}", served.display(), document.origin);
        let api = served.api(connection, namespace);
        let before = api.get_opt(&name).await.map_err(|error| Failure::from_api(&what, error))?;
        let after = api
            .patch(&name, &params, &Patch::Apply(&document.object))
            .await
            .map_err(|error| Failure::from_api(&what, error))?;
        let done = match before {
            None => "created",
            Some(before) if before.metadata.resource_version == after.metadata.resource_version => "unchanged",
            Some(_) => "configured",
        };
        lines.push(format!("{}/{name} {done}", served.display()));
    }
    Ok(lines)
}
