//! `coregent describe KIND NAME`: the object for people, and what happened to it.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::kinds::{Kinds, kind_and_name};
use crate::say;
use crate::verbs::events;
use kube::ResourceExt;
use serde_json::Value;

/// Prints an object without what only machines need, then its events.
///
/// # Errors
/// When it is not there.
pub async fn run(connection: &Connection, object: &[String]) -> Outcome {
    let (kind, name) = kind_and_name(object)?;
    let name =
        name.ok_or_else(|| Failure::refused("which object?", "no name was given", "type KIND NAME or KIND/NAME"))?;
    let kinds = Kinds::discover(connection).await?;
    let served = kinds.find(&kind)?;
    let what = format!("cannot describe {}/{name}", served.display());
    let mut object = served
        .api(connection, &connection.namespace)
        .get(&name)
        .await
        .map_err(|error| Failure::from_api(&what, error))?;
    object.managed_fields_mut().clear();
    object.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
    let mut value =
        serde_json::to_value(&object).map_err(|error| Failure::failed(&what, error, "try `coregent get -o json`"))?;
    hide_secrets(&served.resource.kind, &mut value);
    print!("{}", serde_saphyr::to_string(&value).unwrap_or_default());
    say::out("\nEvents:");
    let args = events::Args {
        watch: false,
        all_namespaces: !served.namespaced,
        about: Some(format!("{}/{name}", served.resource.kind)),
    };
    events::run(connection, &args).await
}

/// A Secret's values are shown by their length alone.
fn hide_secrets(kind: &str, value: &mut Value) {
    if kind != "Secret" {
        return;
    }
    if let Some(data) = value["data"].as_object_mut() {
        for entry in data.values_mut() {
            *entry = Value::String(format!("<{} characters of base64>", entry.as_str().map_or(0, str::len)));
        }
    }
}
