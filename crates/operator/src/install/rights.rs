//! What the operator may: what a recorded run asked of the API server (`dev/kubernetes/rights.txt`), and what the accounts that
//! it makes for members may, since nobody may grant what they may not themselves. Tests hold it to both.

use coregent_api::GROUP;
use serde_json::{Value, json};

pub(super) fn rules() -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    vec![
        rule(GROUP, &["databaseclusters"], &["get", "list", "watch"]),
        rule(GROUP, &["databaseclusters/status", "replicatedstatemachines/status"], &["update"]),
        // An apply that makes an object is a `patch` and a `create`.
        rule(GROUP, &["replicatedstatemachines"], &["get", "list", "watch", "create", "patch"]),
        rule("apps", &["statefulsets"], &["get", "list", "watch", "create", "update", "delete"]),
        rule("batch", &["jobs"], &["get", "list", "watch", "create"]),
        rule("", &["services"], &["get", "list", "watch", "create", "update", "delete"]),
        rule("", &["configmaps"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
        rule("", &["pods"], &["get", "list", "watch", "patch", "delete"]),
        rule("", &["persistentvolumeclaims", "nodes"], &["list", "watch"]),
        rule("", &["secrets"], &["get", "list", "watch", "create"]),
        rule("", &["serviceaccounts"], &["create", "patch"]),
        rule("rbac.authorization.k8s.io", &["roles", "rolebindings"], &["create", "patch"]),
        rule("policy", &["poddisruptionbudgets"], &["list", "watch", "create", "patch"]),
        rule("coordination.k8s.io", &["leases"], &["get", "list", "watch", "create", "update"]),
        rule("", &["events"], &["list", "watch", "create", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}
