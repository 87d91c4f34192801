//! Names of what an RSM generates, its labels and its finalizer (rsm.md 3.1, 3.3).

use std::collections::BTreeMap;

use coregent_api::rsm::{ActionVia, MemberLayout};
use coregent_api::{ReplicatedStateMachine, labels};
use kube::ResourceExt;

/// Field manager of every write of the RSM controller.
pub const MANAGER: &str = "coregent-rsm";
/// Finalizer on the RSM itself. Nothing that is generated carries one, so that it can go when no controller runs.
pub const FINALIZER: &str = "rsm.coregent.io/finalizer";
/// Annotation on generated objects: digest of what was rendered, to notice that something is to be removed.
pub const RENDERED: &str = "coregent.io/rendered";

/// The Service that gives pods their names.
#[must_use]
pub fn headless_service(rsm: &str) -> String {
    format!("{rsm}-headless")
}

/// The ConfigMap with the environment of the members.
#[must_use]
pub fn env_config_map(rsm: &str) -> String {
    format!("{rsm}-rsm-env")
}

/// The account of the probes beside the members, its Role and its RoleBinding.
#[must_use]
pub fn agent_account(rsm: &str) -> String {
    format!("{rsm}-rsm-agent")
}

/// The ConfigMap in which actions are asked of the members' agents.
#[must_use]
pub fn requests(rsm: &str) -> String {
    format!("{rsm}-rsm-requests")
}

/// Whether an action of the set is carried out by a member's agent.
#[must_use]
pub fn has_agent_actions(rsm: &ReplicatedStateMachine) -> bool {
    rsm.spec.membership_reconfiguration.as_ref().is_some_and(|actions| {
        let all = [
            &actions.switchover_action,
            &actions.member_join_action,
            &actions.member_leave_action,
            &actions.log_sync_action,
            &actions.promote_action,
        ];
        all.into_iter().flatten().any(|action| action.via == ActionVia::Agent)
    })
}

/// The StatefulSet of a member in the `Instances` layout.
#[must_use]
pub fn instance(rsm: &str, number: i32) -> String {
    format!("{rsm}-{number}")
}

/// The pod of a member.
#[must_use]
pub fn pod(rsm: &str, layout: MemberLayout, number: i32) -> String {
    match layout {
        MemberLayout::StatefulSet => format!("{rsm}-{number}"),
        MemberLayout::Instances => format!("{rsm}-{number}-0"),
    }
}

/// Labels by which everything that is generated is listed back.
#[must_use]
pub fn generated(rsm: &ReplicatedStateMachine) -> BTreeMap<String, String> {
    BTreeMap::from([
        (labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_RSM.to_owned()),
        (labels::INSTANCE.to_owned(), rsm.name_any()),
    ])
}

/// All labels of a generated object: also the cluster that the RSM belongs to, so that a whole cluster can be listed.
#[must_use]
pub fn generated_labels(rsm: &ReplicatedStateMachine) -> BTreeMap<String, String> {
    let mut all = generated(rsm);
    if let Some(cluster) = rsm.labels().get(labels::CLUSTER) {
        all.insert(labels::CLUSTER.to_owned(), cluster.clone());
    }
    all
}

/// `a=1,b=2`, as list requests and the scale subresource want it.
#[must_use]
pub fn selector_text(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
