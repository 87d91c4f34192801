//! Members come and go by actions that their agents carry out: what is written, and in which order.

use coregent_api::conditions::{self, find};
use coregent_api::rsm::{ActionKind, OperationPhase};
use coregent_api::{ReplicatedStateMachine, labels};
use coregent_core::rsm::membership;
use coregent_core::rsm::request::{ANSWER, REQUEST, Request};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::plane::{Plane, manifest};

const REQUESTS: &str = "bar-rsm-requests";

/// Three founders, of which the second leads.
async fn founded(via: Value) -> Plane {
    let plane = Plane::start().await;
    let actions = json!({
        "switchoverAction": via, "memberJoinAction": via, "memberLeaveAction": via, "logSyncAction": via,
        "promoteAction": via, "maxAttempts": 1,
    });
    let spec = json!({"roleProbe": {"builtinHandlerName": "etcd"}, "membershipReconfiguration": actions});
    plane.create::<ReplicatedStateMachine>(manifest("bar", spec)).await;
    plane.settle("bar").await;
    for (number, role) in [(0, "follower"), (1, "leader"), (2, "follower")] {
        pod(&plane, number).await;
        becomes(&plane, number, role).await;
    }
    plane.settle("bar").await;
    assert_eq!(status(&plane).await.joined_members, [0, 1, 2]);
    plane
}

/// A pod that runs and is no member yet.
async fn pod(plane: &Plane, number: i32) {
    let set = plane.get::<StatefulSet>("bar").await.unwrap();
    let name = format!("bar-{number}");
    plane
        .create::<Pod>(json!({
            "metadata": {"name": name, "labels": {"app": "bar"}, "ownerReferences": [{"apiVersion": "apps/v1",
                "kind": "StatefulSet", "name": "bar", "uid": set.uid(), "controller": true}]},
            "spec": {"containers": [{"name": "db", "image": "db:1"}]},
        }))
        .await;
    let container = json!({"name": "db", "image": "db:1", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"running": {"startedAt": "2026-11-30T00:00:00Z"}}});
    plane.patch_status::<Pod>(&name, json!({"phase": "Running", "containerStatuses": [container]})).await;
}

/// What the probe and the kubelet would say.
async fn becomes(plane: &Plane, number: i32, role: &str) {
    let name = format!("bar-{number}");
    let role = if role.is_empty() { Value::Null } else { json!(role) };
    let ready = if role.is_null() { "False" } else { "True" };
    plane.patch::<Pod>(&name, json!({"metadata": {"labels": {labels::ROLE: role}}})).await;
    plane.patch_status::<Pod>(&name, json!({"conditions": [{"type": "Ready", "status": ready}]})).await;
}

async fn status(plane: &Plane) -> coregent_api::ReplicatedStateMachineStatus {
    plane.rsm("bar").await.status.unwrap()
}

async fn scale(plane: &Plane, replicas: i32) {
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"replicas": replicas}})).await;
}

async fn replicas(plane: &Plane) -> Option<i32> {
    plane.get::<StatefulSet>("bar").await.unwrap().spec.unwrap().replicas
}

/// Passes until an agent is asked for something new; gives that.
async fn asked(plane: &Plane) -> Request {
    plane.settle("bar").await;
    let map = plane.get::<ConfigMap>(REQUESTS).await.expect("a request");
    let data = map.data.unwrap();
    assert!(!data.contains_key(ANSWER), "it was answered before: {data:?}");
    serde_json::from_str(&data[REQUEST]).unwrap()
}

async fn answer(plane: &Plane, request: &Request, done: bool) {
    let answer =
        json!({"id": request.id, "attempt": request.attempt, "done": done, "message": "no quorum"}).to_string();
    plane.patch::<ConfigMap>(REQUESTS, json!({"data": {ANSWER: answer}})).await;
}

fn is(request: &Request) -> (membership::ActionKind, &str, &str) {
    (request.action, &request.member.pod, &request.executor)
}

#[tokio::test]
async fn a_new_member_joins_gets_the_log_and_is_promoted_each_written_down_before_it_is_asked_for() {
    let plane = founded(json!({"via": "Agent"})).await;
    scale(&plane, 4).await;
    plane.settle("bar").await;
    assert_eq!(replicas(&plane).await, Some(4), "pods first");
    assert!(plane.get::<ConfigMap>(REQUESTS).await.is_none());
    pod(&plane, 3).await;
    let first = plane.pass("bar").await;
    assert_eq!(first, ["PUT replicatedstatemachines/bar/status"], "the intent before the effect");
    let join = asked(&plane).await;
    assert_eq!(is(&join), (membership::ActionKind::MemberJoin, "bar-3", "bar-3"));
    assert_eq!(join.leader.as_ref().map(|leader| leader.host.as_str()), Some("bar-1.bar-headless"));
    answer(&plane, &join, true).await;
    plane.settle("bar").await;
    let waits = status(&plane).await;
    assert_eq!(find(&waits.conditions, conditions::MEMBERSHIP).unwrap().reason, "EffectNotSeen");
    becomes(&plane, 3, "learner").await;
    let sync = asked(&plane).await;
    assert_eq!(is(&sync), (membership::ActionKind::LogSync, "bar-3", "bar-3"));
    answer(&plane, &sync, true).await;
    let promote = asked(&plane).await;
    assert_eq!(is(&promote), (membership::ActionKind::Promote, "bar-3", "bar-3"));
    answer(&plane, &promote, true).await;
    becomes(&plane, 3, "follower").await;
    plane.settle("bar").await;
    let done = status(&plane).await;
    assert_eq!((done.joined_members, done.member_operation), (vec![0, 1, 2, 3], None));
}

#[tokio::test]
async fn a_leader_hands_over_before_it_leaves_and_the_pods_stay_until_all_have_left() {
    let plane = founded(json!({"via": "Agent"})).await;
    scale(&plane, 1).await;
    let leave = asked(&plane).await;
    assert_eq!(is(&leave), (membership::ActionKind::MemberLeave, "bar-2", "bar-1"), "who leads takes it out");
    answer(&plane, &leave, true).await;
    becomes(&plane, 2, "").await;
    let switchover = asked(&plane).await;
    assert_eq!(is(&switchover), (membership::ActionKind::Switchover, "bar-1", "bar-1"));
    assert_eq!(switchover.target.as_ref().map(|target| target.pod.as_str()), Some("bar-0"));
    answer(&plane, &switchover, true).await;
    plane.settle("bar").await;
    assert_eq!(status(&plane).await.joined_members, [0, 1], "it still leads by its label");
    becomes(&plane, 0, "leader").await;
    becomes(&plane, 1, "follower").await;
    let leave = asked(&plane).await;
    assert_eq!(is(&leave), (membership::ActionKind::MemberLeave, "bar-1", "bar-0"));
    assert_eq!(replicas(&plane).await, Some(3));
    answer(&plane, &leave, true).await;
    becomes(&plane, 1, "").await;
    plane.settle("bar").await;
    assert_eq!(replicas(&plane).await, Some(1));
}

#[tokio::test]
async fn an_action_that_failed_for_good_is_shown_until_a_person_skips_or_retries_it() {
    let plane = founded(json!({"via": "Agent"})).await;
    scale(&plane, 4).await;
    plane.settle("bar").await;
    pod(&plane, 3).await;
    let join = asked(&plane).await;
    answer(&plane, &join, false).await;
    plane.settle("bar").await;
    let failed = status(&plane).await;
    let condition = find(&failed.conditions, conditions::MEMBERSHIP).unwrap().clone();
    assert_eq!((condition.reason.as_str(), condition.status.as_str()), ("ActionFailed", "False"));
    for part in ["no quorum", &format!("retry {}", join.id), &format!("skip {}", join.id)] {
        assert!(condition.message.contains(part), "{}", condition.message);
    }
    let wish = |wish: String| json!({"metadata": {"annotations": {"coregent.io/member-operation": wish}}});
    plane.patch::<ReplicatedStateMachine>("bar", wish("skip another".into())).await;
    plane.settle("bar").await;
    assert_eq!(status(&plane).await.member_operation.unwrap().phase, OperationPhase::Failed);
    plane.patch::<ReplicatedStateMachine>("bar", wish(format!("retry {}", join.id))).await;
    let again = asked(&plane).await;
    assert_eq!(is(&again), is(&join));
    assert_ne!(again.id, join.id);
    answer(&plane, &again, false).await;
    plane.settle("bar").await;
    plane.patch::<ReplicatedStateMachine>("bar", wish(format!("skip {}", again.id))).await;
    becomes(&plane, 3, "learner").await;
    let next = asked(&plane).await;
    assert_eq!(next.action, membership::ActionKind::LogSync);
}

#[tokio::test]
async fn while_the_cluster_is_not_well_nobody_comes_and_the_template_may_change() {
    let plane = founded(json!({"via": "Agent"})).await;
    becomes(&plane, 0, "").await;
    scale(&plane, 2).await;
    plane
        .patch::<ReplicatedStateMachine>(
            "bar",
            json!({"spec": {"template": {"spec": {"containers": [
        {"name": "db", "image": "db:2"}]}}}}),
        )
        .await;
    plane.settle("bar").await;
    let set = plane.get::<StatefulSet>("bar").await.unwrap().spec.unwrap();
    let image = set.template.spec.unwrap().containers[0].image.clone();
    assert_eq!((set.replicas, image.as_deref()), (Some(3), Some("db:2")));
    assert_eq!(find(&status(&plane).await.conditions, conditions::MEMBERSHIP).unwrap().reason, "ClusterUnhealthy");
    assert!(plane.get::<ConfigMap>(REQUESTS).await.is_none());
}

#[tokio::test]
async fn a_job_carries_out_an_action_with_the_origins_name_and_environment() {
    let plane = founded(json!({"command": ["act"], "image": "tool:1"})).await;
    scale(&plane, 2).await;
    plane.settle("bar").await;
    let jobs = plane.api::<Job>().list(&ListParams::default()).await.unwrap().items;
    let generation = plane.rsm("bar").await.metadata.generation.unwrap();
    assert_eq!(
        jobs.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
        [format!("bar-{generation}-2-member-leave")]
    );
    let container = jobs[0].spec.clone().unwrap().template.spec.unwrap().containers.remove(0);
    let env = container.env.unwrap();
    let value = |name: &str| env.iter().find(|env| env.name == name).and_then(|env| env.value.clone()).unwrap();
    assert_eq!(value("KB_RSM_LEADER_HOST"), "bar-1.bar-headless");
    assert_eq!(value("KB_RSM_TARGET_HOST"), "bar-2.bar-headless");
    assert_eq!(value("KB_RSM_SERVICE_PORT"), "5432");
    plane.patch_status::<Job>(&jobs[0].name_any(), json!({"succeeded": 1})).await;
    plane.settle("bar").await;
    assert_eq!(status(&plane).await.joined_members, [0, 1]);
    assert_eq!(replicas(&plane).await, Some(2));
    let operation = status(&plane).await.member_operation;
    assert!(operation.is_none_or(|operation| operation.action == ActionKind::MemberLeave));
}

/// The Job of the start before has the origin's name still, and was taken for that of the retry: nothing ran.
#[tokio::test]
async fn a_retry_that_a_person_asks_for_runs_a_job_of_its_own() {
    let plane = founded(json!({"command": ["act"], "image": "tool:1"})).await;
    scale(&plane, 2).await;
    plane.settle("bar").await;
    let first = plane.api::<Job>().list(&ListParams::default()).await.unwrap().items.remove(0).name_any();
    let failed = json!([{"type": "Failed", "status": "True", "message": "no quorum"}]);
    plane.patch_status::<Job>(&first, json!({"conditions": failed})).await;
    plane.settle("bar").await;
    let operation = status(&plane).await.member_operation.unwrap();
    assert_eq!(operation.phase, OperationPhase::Failed);
    let wish =
        json!({"metadata": {"annotations": {"coregent.io/member-operation": format!("retry {}", operation.id)}}});
    plane.patch::<ReplicatedStateMachine>("bar", wish).await;
    plane.settle("bar").await;
    let jobs = plane.api::<Job>().list(&ListParams::default()).await.unwrap().items;
    let again = jobs.iter().map(ResourceExt::name_any).find(|name| *name != first).expect("another Job");
    plane.patch_status::<Job>(&again, json!({"succeeded": 1})).await;
    plane.settle("bar").await;
    assert_eq!(status(&plane).await.joined_members, [0, 1]);
}
