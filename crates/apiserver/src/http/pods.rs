//! `pods/binding` and `pods/eviction`.

use serde_json::{Value, json};

use super::body::DeleteOptions;
use super::status::{ApiError, Outcome};
use super::write::{Answer, Reply, change, text};
use super::{Call, remove};
use crate::time;

fn success(code: u16) -> Reply {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code});
    Reply { code, answer: Answer::Status(status), warnings: Vec::new() }
}

/// Gives a pod its node, once.
pub(super) async fn bind(call: &Call, binding: &Value) -> Outcome<Reply> {
    let node = text(binding, "/target/name");
    let (kind, name) = (&call.target.kind, call.target.name());
    if node.is_empty() || !matches!(text(binding, "/target/kind"), "" | "Node") {
        let message =
            format!("Binding \"{name}\" is invalid: target.name: Required value: the name of a Node is required");
        return Err(ApiError::new(422, "Invalid", message));
    }
    let uid = text(binding, "/metadata/uid");
    change(call, |pod| {
        if !uid.is_empty() && uid != text(pod, "/metadata/uid") {
            return Err(ApiError::conflict(kind, name, "Precondition failed: UID in precondition does not match"));
        }
        if !text(pod, "/metadata/deletionTimestamp").is_empty() {
            return Err(ApiError::conflict(
                kind,
                name,
                &format!("pod {name} is being deleted, cannot be assigned to a host"),
            ));
        }
        let bound = text(pod, "/spec/nodeName");
        if !bound.is_empty() {
            return Err(ApiError::conflict(kind, name, &format!("pod {name} is already assigned to node \"{bound}\"")));
        }
        let mut next = pod.clone();
        next["spec"]["nodeName"] = node.into();
        let mut conditions = next["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": time::now()}));
        next["status"]["conditions"] = conditions.into();
        Ok(next)
    })
    .await?;
    Ok(success(201))
}

/// Deletes a pod as its eviction asks.
pub(super) async fn evict(call: &Call, eviction: &Value) -> Outcome<Reply> {
    let options = eviction.get("deleteOptions").filter(|options| options.is_object()).cloned();
    let options: DeleteOptions = match options {
        Some(options) => serde_json::from_value(options)
            .map_err(|error| ApiError::bad_request(format!("deleteOptions cannot be read: {error}")))?,
        None => DeleteOptions::default(),
    };
    remove::delete(call, options).await?;
    Ok(success(201))
}
