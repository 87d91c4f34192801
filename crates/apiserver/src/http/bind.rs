//! `pods/binding`: how a scheduler puts a pod on a node.

use serde_json::{Value, json};

use super::Call;
use super::status::{ApiError, Outcome};
use super::write::{Answer, Reply, change, text};
use crate::time;

/// Sets the pod's node, once and for ever (Kubernetes' BindingREST).
pub(crate) async fn bind(call: &Call, binding: Value) -> Outcome<Reply> {
    let node = text(&binding, "/target/name");
    if node.is_empty() {
        return Err(ApiError::bad_request("target.name: Required value"));
    }
    let uid = text(&binding, "/metadata/uid");
    let (kind, name) = (&call.target.kind, call.target.name());
    change(call, |pod| {
        let own = text(pod, "/metadata/uid");
        if !uid.is_empty() && uid != own {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
            return Err(ApiError::conflict(kind, name, &why));
        }
        if !text(pod, "/metadata/deletionTimestamp").is_empty() {
            let why = format!("pod {name} is being deleted, cannot be assigned to a host");
            return Err(ApiError::conflict(kind, name, &why));
        }
        let bound = text(pod, "/spec/nodeName");
        if !bound.is_empty() {
            let why = format!("pod {name} is already assigned to node \"{bound}\"");
            return Err(ApiError::conflict(kind, name, &why));
        }
        let mut next = pod.clone();
        next["spec"]["nodeName"] = node.into();
        let mut conditions = pod.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": time::now()}));
        next["status"]["conditions"] = conditions.into();
        Ok(next)
    })
    .await?;
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Reply { code: 201, answer: Answer::Status(success), warnings: Vec::new() })
}
