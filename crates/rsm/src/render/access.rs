//! What the probe beside a member may do: say its role in an Event, and read and answer the requests of its own set.

use coregent_api::ReplicatedStateMachine;
use coregent_api::rsm::RoleUpdateMechanism;
use k8s_openapi::api::core::v1::{PodTemplateSpec, ServiceAccount};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::ResourceExt;

use super::{meta, probe};
use crate::dag::{Action, Step};
use crate::names;

/// Whether pods of the template need an account of their own: their probe speaks to the API, and the template names none.
pub(super) fn is_needed(rsm: &ReplicatedStateMachine, template: &PodTemplateSpec) -> bool {
    let speaks = rsm.spec.role_probe.as_ref().filter(|probe| probe::is_added(probe)).is_some_and(|probe| {
        probe.role_update_mechanism == RoleUpdateMechanism::DirectApiServerEventUpdate || names::has_agent_actions(rsm)
    });
    let own = template.spec.as_ref().and_then(|pod| pod.service_account_name.as_deref());
    speaks && own.is_none_or(str::is_empty)
}

/// The account, its rights, and what binds them: applied whenever a StatefulSet that needs them is written, so that
/// nothing more has to be listed or watched for them.
pub(super) fn render(rsm: &ReplicatedStateMachine) -> Result<Vec<Step>, serde_json::Error> {
    let name = names::agent_account(&rsm.name_any());
    let apply = || Action::Apply { manager: names::MANAGER.to_owned() };
    let rule = |resource: &str, only: Option<String>, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: only.map(|name| vec![name]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let requests = names::requests(&rsm.name_any());
    let account = ServiceAccount { metadata: meta(rsm, name.clone()), ..ServiceAccount::default() };
    let role = Role {
        metadata: meta(rsm, name.clone()),
        rules: Some(vec![
            rule("events", None, &["create"]),
            rule("configmaps", Some(requests), &["get", "list", "watch", "patch"]),
        ]),
    };
    let binding = RoleBinding {
        metadata: meta(rsm, name.clone()),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name: name.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name,
            namespace: rsm.metadata.namespace.clone(),
            ..Subject::default()
        }]),
    };
    Ok(vec![Step::new(&account, apply())?, Step::new(&role, apply())?, Step::new(&binding, apply())?])
}
