//! Discovery: what is served, in the old form (one document a group version) and the aggregated one.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::{Server, openapi, respond};
use crate::kinds::{Kind, api_version};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The answer for a path that is not of a resource, if it is one of ours.
pub(super) fn answer(server: &Server, path: &str, headers: &HeaderMap) -> Option<Response> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let aggregated = accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2");
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let document = match segments.as_slice() {
        [] => json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3",
            "/readyz", "/version"]}),
        ["version"] => version(),
        ["api"] if aggregated => return Some(aggregate(server, true)),
        ["apis"] if aggregated => return Some(aggregate(server, false)),
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ["api", version] => resource_list(server, "", version)?,
        ["apis"] => {
            let groups = server.kinds.groups().into_iter().filter(|(group, _)| !group.is_empty());
            let mut groups: Vec<_> = groups.collect();
            groups.sort_by_key(|(group, _)| rank(group));
            let groups: Vec<Value> = groups.into_iter().map(|(group, versions)| group_of(&group, versions)).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", group] => {
            let versions = server.kinds.groups().remove(*group)?;
            let mut found = group_of(group, versions);
            found["kind"] = "APIGroup".into();
            found["apiVersion"] = "v1".into();
            found
        }
        ["apis", group, version] => resource_list(server, group, version)?,
        ["openapi", "v2"] => return Some(openapi::v2(server, accept)),
        ["openapi", "v3"] => openapi::v3_index(server),
        ["openapi", "v3", "api", version] => openapi::v3(server, "", version)?,
        ["openapi", "v3", "apis", group, version] => openapi::v3(server, group, version)?,
        _ => return None,
    };
    Some(respond::json(200, document.to_string()))
}

/// Where a group stands: clients that look for a kind by its name take the first group that has it.
fn rank(group: &str) -> usize {
    const ORDER: [&str; 12] = [
        "apps",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "batch",
        "networking.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "storage.k8s.io",
        "apiextensions.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
    ];
    ORDER.iter().position(|known| *known == group).unwrap_or(ORDER.len())
}

fn version() -> Value {
    json!({"major": "1", "minor": "36", "gitVersion": concat!("v1.36.0+coregent.", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "rustc", "platform": concat!("linux/", "amd64")})
}

/// Versions as Kubernetes prefers them: stable before beta before alpha, newer first.
fn preferred(versions: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut versions: Vec<String> = versions.into_iter().collect();
    let rank = |version: &String| {
        let digits =
            |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0u32);
        let rest = version.trim_start_matches('v');
        let stability = match (rest.contains("alpha"), rest.contains("beta")) {
            (true, _) => 0,
            (_, true) => 1,
            _ => 2,
        };
        let minor = rest.rsplit(char::is_alphabetic).next().map_or(0, digits);
        std::cmp::Reverse((stability, digits(rest), minor))
    };
    versions.sort_by_key(rank);
    versions
}

fn group_of(group: &str, versions: impl IntoIterator<Item = String>) -> Value {
    let version = |version: &String| json!({"groupVersion": api_version(group, version), "version": version});
    let versions: Vec<Value> = preferred(versions).iter().map(version).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions[0]})
}

fn verbs(kind: &Kind) -> Value {
    if kind.review {
        return json!(["create"]);
    }
    if &*kind.resource == "/namespaces" {
        return json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    }
    if kind.custom.is_some() {
        return json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]);
    }
    json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"])
}

/// Subresources: name, the group, version and kind of what they exchange, and their verbs.
fn subresources(kind: &Kind) -> Vec<(&'static str, (String, String, String), Value)> {
    let own = (kind.group.clone(), kind.version.clone(), kind.kind.clone());
    let other = |group: &str, version: &str, kind: &str| (group.to_owned(), version.to_owned(), kind.to_owned());
    let mut found = Vec::new();
    if kind.status {
        found.push(("status", own.clone(), json!(["get", "patch", "update"])));
    }
    if kind.scale.is_some() {
        found.push(("scale", other("autoscaling", "v1", "Scale"), json!(["get", "patch", "update"])));
    }
    match &*kind.resource {
        "/pods" => {
            found.push(("attach", other("", "v1", "PodAttachOptions"), json!(["create", "get"])));
            found.push(("binding", other("", "v1", "Binding"), json!(["create"])));
            found.push(("eviction", other("policy", "v1", "Eviction"), json!(["create"])));
            found.push(("exec", other("", "v1", "PodExecOptions"), json!(["create", "get"])));
            found.push(("log", own, json!(["get"])));
            found.push(("portforward", other("", "v1", "PodPortForwardOptions"), json!(["create", "get"])));
        }
        "/namespaces" => found.push(("finalize", own, json!(["update"]))),
        "/serviceaccounts" => {
            found.push(("token", other("authentication.k8s.io", "v1", "TokenRequest"), json!(["create"])));
        }
        _ => {}
    }
    found
}

fn resource_list(server: &Server, group: &str, version: &str) -> Option<Value> {
    let kinds = of(server, group, version);
    let mut resources = Vec::new();
    for kind in &kinds {
        let mut entry = json!({"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": verbs(kind)});
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        resources.push(entry);
        for (name, (group, version, exchanged), verbs) in subresources(kind) {
            let mut entry = json!({"name": format!("{}/{name}", kind.plural), "singularName": "",
                "namespaced": kind.namespaced, "kind": exchanged, "verbs": verbs});
            if (group.as_str(), version.as_str()) != (kind.group.as_str(), kind.version.as_str()) {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            resources.push(entry);
        }
    }
    resources.sort_by(|one: &Value, two: &Value| one["name"].as_str().cmp(&two["name"].as_str()));
    (!resources.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version),
            "resources": resources})
    })
}

/// The kinds of one group version.
pub(super) fn of(server: &Server, group: &str, version: &str) -> Vec<Arc<Kind>> {
    server.kinds.all().into_iter().filter(|kind| kind.group == group && kind.version == version).collect()
}

fn aggregate(server: &Server, core: bool) -> Response {
    let mut groups: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (group, versions) in server.kinds.groups() {
        if group.is_empty() != core {
            continue;
        }
        for version in preferred(versions) {
            let resources: Vec<Value> = of(server, &group, &version).iter().map(|kind| entry(kind)).collect();
            let version = json!({"version": version, "freshness": "Current", "resources": resources});
            groups.entry(group.clone()).or_default().push(version);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(group, _)| rank(group));
    let item = |(name, versions): (String, Vec<Value>)| {
        let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
        json!({"metadata": metadata, "versions": versions})
    };
    let items: Vec<Value> = groups.into_iter().map(item).collect();
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items});
    respond::typed(200, AGGREGATED, list.to_string())
}

fn entry(kind: &Kind) -> Value {
    let scope = if kind.namespaced { "Namespaced" } else { "Cluster" };
    let sub = |(name, (group, version, kind), verbs): (&str, (String, String, String), Value)| json!({"subresource": name, "responseKind": {"group": group, "version": version, "kind": kind}, "verbs": verbs});
    let subresources: Vec<Value> = subresources(kind).into_iter().map(sub).collect();
    let mut entry = json!({"resource": kind.plural, "singularResource": kind.singular, "scope": scope,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind}, "verbs": verbs(kind)});
    for (name, list) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !list.is_empty() {
            entry[name] = json!(list);
        }
    }
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::preferred;

    #[test]
    fn stable_versions_are_preferred_and_newer_ones_first() {
        let versions = ["v1alpha1", "v1", "v2", "v1beta2", "v1beta1", "v10"].map(str::to_owned);
        assert_eq!(preferred(versions), ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1"]);
    }
}
