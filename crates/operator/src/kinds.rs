//! Whether the API server has the definitions of our kinds that this operator needs. One that is older drops what it does
//! not know from every status without a word, what a failover remembers included: nothing is begun before it is renewed.

use crate::error::Error;
use crate::metrics::Metrics;
use coregent_api::{API_VERSION, refusal};
use kube::Client;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often it is looked again.
const AGAIN: Duration = Duration::from_secs(2);
/// No answer for so long: asked again.
const ANSWER: Duration = Duration::from_secs(10);
/// Definitions that are wrong for so long end the operator, so that whoever started it sees it: whatever installs the
/// definitions and the operator together takes less.
const PATIENCE: Duration = Duration::from_secs(60);
/// Fields that are named; the rest is counted.
const NAMED: usize = 5;

/// Waits until the definitions are there.
///
/// # Errors
/// When the API server has said for a minute that they are missing or older. While it says nothing, there is nothing to
/// end for.
pub(crate) async fn wait(client: &Client, metrics: &Metrics, shutdown: &CancellationToken) -> Result<(), Error> {
    let mut wrong: Option<(Instant, String)> = None;
    loop {
        match tokio::time::timeout(ANSWER, look(client)).await {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(why))) => {
                let since = wrong.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                if wrong.as_ref().is_none_or(|(_, before)| *before != why) {
                    tracing::warn!("{why}; {}", refusal::remedy(refusal::KIND_MISSING));
                }
                if since.elapsed() >= PATIENCE {
                    return Err(Error::Kinds(why));
                }
                wrong = Some((since, why));
            }
            Ok(Err(error)) => tracing::debug!(%error, "the kinds could not be asked for"),
            Err(_) => tracing::debug!("the API server does not say which kinds it has"),
        }
        metrics.set_ready(false);
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = shutdown.cancelled() => return Ok(()),
        }
    }
}

/// What is wrong with the definitions that are served, if anything is.
async fn look(client: &Client) -> Result<Option<String>, kube::Error> {
    let missing = || format!("the API server does not serve {API_VERSION}: the definitions of our kinds are missing");
    let request = http::Request::get(format!("/openapi/v3/apis/{API_VERSION}"));
    let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
    let document: Value = match client.request(request).await {
        Ok(document) => document,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Some(missing())),
        Err(error) => return Err(error),
    };
    let mut lacking = Vec::new();
    for definition in coregent_api::crds() {
        let kind = definition.spec.names.kind;
        let Some(served) = served(&document, &kind) else {
            return Ok(Some(format!("{}, {kind} at least", missing())));
        };
        let ours = definition.spec.versions.into_iter().next().and_then(|version| version.schema);
        let ours = serde_json::to_value(ours.and_then(|schema| schema.open_api_v3_schema)).unwrap_or_default();
        lacks(&ours, served, &kind, &mut lacking);
    }
    if lacking.is_empty() {
        return Ok(None);
    }
    let named: Vec<&str> = lacking.iter().take(NAMED).map(String::as_str).collect();
    let more = lacking.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Ok(Some(format!(
        "the definitions of our kinds that the API server has are older than this operator ({}): they lack {}{more}",
        env!("CARGO_PKG_VERSION"),
        named.join(", "),
    )))
}

/// The schema of a kind in an `OpenAPI` document.
fn served<'a>(document: &'a Value, kind: &str) -> Option<&'a Value> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let is_kind = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|one| one["kind"] == kind && one["group"] == coregent_api::GROUP))
    };
    schemas.values().find(is_kind)
}

/// Names every field of `ours` that `served` would drop.
fn lacks(ours: &Value, served: &Value, path: &str, lacking: &mut Vec<String>) {
    let keeps_all = &served["x-kubernetes-preserve-unknown-fields"] == true || served["additionalProperties"] == true;
    for (field, schema) in ours["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{field}");
        match served["properties"].get(field) {
            Some(served) => lacks(schema, served, &path, lacking),
            // Every object has these; no definition says how they look.
            None if keeps_all || matches!(field.as_str(), "apiVersion" | "kind" | "metadata") => {}
            None => lacking.push(path),
        }
    }
    if ours["items"].is_object() {
        lacks(&ours["items"], &served["items"], path, lacking);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_that_would_be_dropped_are_named_wherever_they_are() {
        let ours = json!({"properties": {
            "kind": {}, "spec": {"properties": {"a": {}, "b": {}}},
            "status": {"properties": {"list": {"items": {"properties": {"x": {}, "y": {}}}}}},
        }});
        let of = |served: Value| {
            let mut lacking = Vec::new();
            lacks(&ours, &served, "K", &mut lacking);
            lacking
        };
        assert_eq!(of(ours.clone()), Vec::<String>::new());
        let older = json!({"properties": {
            "spec": {"properties": {"a": {}, "gone": {}}},
            "status": {"properties": {"list": {"items": {"properties": {"x": {}}}}}},
        }});
        assert_eq!(of(older), ["K.spec.b", "K.status.list.y"]);
        assert_eq!(
            of(json!({"properties": {"spec": {"x-kubernetes-preserve-unknown-fields": true},
            "status": {"x-kubernetes-preserve-unknown-fields": true}}})),
            Vec::<String>::new()
        );
    }
}
