//! Who may do what: Role, ClusterRole and their bindings, as Kubernetes evaluates them.

use serde_json::Value;

use super::auth::UserInfo;
use super::status::{ApiError, Outcome};
use super::write::text;
use super::{Call, Server};

const ROLES: &str = "rbac.authorization.k8s.io/roles";
const ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";
const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
const CLUSTER_ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";

/// What somebody wants to do to resources.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attributes {
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    /// Empty: the cluster, or all namespaces.
    pub namespace: String,
    /// Empty: not one object.
    pub name: String,
}

/// Refuses what no role allows.
pub(crate) fn authorize(call: &Call, verb: &str) -> Outcome<()> {
    if call.user.is_admin() {
        return Ok(());
    }
    let target = &call.target;
    let mut attributes = Attributes {
        verb: verb.into(),
        group: target.kind.group.clone(),
        resource: target.kind.plural.clone(),
        subresource: target.subresource.clone().unwrap_or_default(),
        namespace: target.place().into(),
        name: target.name().into(),
    };
    // A namespace itself belongs to its own namespace for RBAC, as in Kubernetes.
    if &*target.kind.resource == "/namespaces" {
        attributes.namespace = target.name().into();
    }
    // A list or watch of one object is as narrow as a get of it (Kubernetes' RequestInfo does the same).
    if matches!(verb, "list" | "watch" | "deletecollection")
        && let Some(name) = super::read::selector(call)?.name
    {
        attributes.name = name;
    }
    if allowed(&call.server, &call.user, &attributes) { Ok(()) } else { Err(refusal(call, &attributes)) }
}

fn refusal(call: &Call, attributes: &Attributes) -> ApiError {
    let resource = match attributes.subresource.as_str() {
        "" => attributes.resource.clone(),
        subresource => format!("{}/{subresource}", attributes.resource),
    };
    let place = match attributes.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {place}",
        call.user.name, attributes.verb, attributes.group
    );
    ApiError::forbidden(&call.target.kind, &attributes.name, &why)
}

/// Whether any role bound to the user allows it.
pub(crate) fn allowed(server: &Server, user: &UserInfo, attributes: &Attributes) -> bool {
    user.is_admin()
        || rules(server, user, &attributes.namespace).iter().any(|rule| covers(rule, attributes))
        || is_basic(user, attributes)
}

/// What everybody who is known may ask (the cluster role `system:basic-user`).
fn is_basic(user: &UserInfo, attributes: &Attributes) -> bool {
    let own = ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"];
    user.groups.iter().any(|group| group == "system:authenticated")
        && attributes.verb == "create"
        && own.contains(&attributes.resource.as_str())
}

/// The rules that hold for a user: of cluster role bindings everywhere, of role bindings in their namespace.
pub(crate) fn rules(server: &Server, user: &UserInfo, namespace: &str) -> Vec<Value> {
    let mut rules = Vec::new();
    let (_, cluster) = server.store.list(CLUSTER_ROLE_BINDINGS, None);
    for binding in cluster.iter().filter(|binding| binds(&binding.value(), user, "")) {
        rules.extend(role_rules(server, &binding.value(), ""));
    }
    if !namespace.is_empty() {
        let (_, bindings) = server.store.list(ROLE_BINDINGS, Some(namespace));
        for binding in bindings.iter().filter(|binding| binds(&binding.value(), user, namespace)) {
            rules.extend(role_rules(server, &binding.value(), namespace));
        }
    }
    rules
}

fn role_rules(server: &Server, binding: &Value, namespace: &str) -> Vec<Value> {
    let name = text(binding, "/roleRef/name");
    let role = match text(binding, "/roleRef/kind") {
        "Role" if !namespace.is_empty() => server.store.get(ROLES, namespace, name),
        "ClusterRole" => server.store.get(CLUSTER_ROLES, "", name),
        _ => None,
    };
    role.and_then(|role| role.value()["rules"].as_array().cloned()).unwrap_or_default()
}

fn binds(binding: &Value, user: &UserInfo, namespace: &str) -> bool {
    let is_user = |subject: &Value| match text(subject, "/kind") {
        "User" => text(subject, "/name") == user.name,
        "Group" => user.groups.iter().any(|group| group == text(subject, "/name")),
        "ServiceAccount" => {
            let at = match text(subject, "/namespace") {
                "" => namespace,
                given => given,
            };
            user.name == format!("system:serviceaccount:{at}:{}", text(subject, "/name"))
        }
        _ => false,
    };
    binding["subjects"].as_array().is_some_and(|subjects| subjects.iter().any(is_user))
}

fn covers(rule: &Value, wanted: &Attributes) -> bool {
    let has = |field: &str, wanted: &str| {
        let list = rule[field].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().any(|entry| entry == "*" || entry == wanted)
    };
    let resource = match wanted.subresource.as_str() {
        "" => has("resources", &wanted.resource),
        subresource => {
            has("resources", &format!("{}/{subresource}", wanted.resource))
                || has("resources", &format!("*/{subresource}"))
        }
    };
    let names = rule["resourceNames"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = names.is_empty() || names.iter().any(|name| *name == wanted.name && !wanted.name.is_empty());
    has("verbs", &wanted.verb) && has("apiGroups", &wanted.group) && resource && named
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_cover_what_they_name_and_nothing_else() {
        let rule = json!({"verbs": ["get", "watch"], "apiGroups": [""], "resources": ["pods", "pods/log"],
            "resourceNames": ["a"]});
        let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        for (verb, resource, subresource, name, expected) in [
            ("get", "pods", "", "a", true),
            ("get", "pods", "log", "a", true),
            ("get", "pods", "exec", "a", false),
            ("get", "pods", "", "b", false),
            ("watch", "pods", "", "", false),
            ("delete", "pods", "", "a", false),
            ("get", "secrets", "", "a", false),
        ] {
            let (verb, resource, subresource, name) = (verb.into(), resource.into(), subresource.into(), name.into());
            let wanted = Attributes { verb, resource, subresource, name, ..Attributes::default() };
            assert_eq!(covers(&rule, &wanted), expected, "{wanted:?}");
            assert!(covers(&all, &wanted));
        }
    }
}
