//! Single passes: what one look writes, and that the next one writes nothing.

use coregent_api::ReplicatedStateMachine;
use coregent_api::conditions;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Service};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::plane::{Fault, Plane, manifest, wait};

async fn plane_with(spec: Value) -> Plane {
    let plane = Plane::start().await;
    plane.create::<ReplicatedStateMachine>(manifest("bar", spec)).await;
    plane
}

/// A pod as the StatefulSet controller and a kubelet would leave it.
async fn pod(plane: &Plane, name: &str, set: &str, role: &str, ready: bool) {
    let owner = plane.get::<StatefulSet>(set).await.unwrap();
    let labels = json!({"app": "bar", "coregent.io/managed-by": "ReplicatedStateMachine", "coregent.io/instance": set,
        "coregent.io/role": role});
    plane
        .create::<Pod>(json!({
            "metadata": {"name": name, "labels": labels, "ownerReferences": [{"apiVersion": "apps/v1",
                "kind": "StatefulSet", "name": set, "uid": owner.uid(), "controller": true}]},
            "spec": {"containers": [{"name": "db", "image": "db:1"}]},
        }))
        .await;
    let status = if ready { "True" } else { "False" };
    plane.patch_status::<Pod>(name, json!({"conditions": [{"type": "Ready", "status": status}]})).await;
}

#[tokio::test]
async fn dependencies_are_written_before_the_set_and_the_status_last_and_then_nothing() {
    let plane = plane_with(json!({})).await;
    assert_eq!(plane.pass("bar").await, ["PATCH replicatedstatemachines/bar"], "the finalizer alone");
    assert_eq!(
        plane.pass("bar").await,
        [
            "POST configmaps",
            "POST services",
            "POST services",
            "POST statefulsets",
            "PUT replicatedstatemachines/bar/status"
        ]
    );
    let rsm = plane.rsm("bar").await;
    assert_eq!(rsm.status.unwrap().observed_generation, Some(1));
    assert_eq!(plane.pass("bar").await, ["PUT replicatedstatemachines/bar/status"], "what was seen");
    assert_eq!(plane.pass("bar").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_changed_spec_changes_what_was_generated_once() {
    let plane = plane_with(json!({})).await;
    plane.settle("bar").await;
    let template = json!({"spec": {"template": {"spec": {"containers": [{"name": "db", "image": "db:2"}]}}}});
    plane.patch::<ReplicatedStateMachine>("bar", template).await;
    assert_eq!(
        plane.pass("bar").await,
        ["PUT services/bar-headless", "PUT statefulsets/bar", "PUT replicatedstatemachines/bar/status"],
        "the container has no port any more, so the headless Service has none"
    );
    plane.settle("bar").await;
    let set = plane.get::<StatefulSet>("bar").await.unwrap();
    let spec = set.spec.unwrap().template.spec.unwrap();
    assert_eq!(spec.containers[0].image.as_deref(), Some("db:2"));
    assert!(
        spec.containers[0].resources.as_ref().is_none_or(|resources| resources.limits.is_none()),
        "what is gone is removed"
    );
    assert_eq!(plane.rsm("bar").await.status.unwrap().current_generation, Some(2));
}

#[tokio::test]
async fn drift_is_corrected_and_what_others_added_stays() {
    let plane = plane_with(json!({})).await;
    plane.settle("bar").await;
    plane.patch::<StatefulSet>("bar", json!({"spec": {"replicas": 7}, "metadata": {"labels": {"theirs": "x"}}})).await;
    assert_eq!(plane.pass("bar").await, ["PUT statefulsets/bar"]);
    let set = plane.get::<StatefulSet>("bar").await.unwrap();
    assert_eq!((set.labels()["theirs"].as_str(), set.spec.as_ref().unwrap().replicas), ("x", Some(3)));
    plane.settle("bar").await;
}

#[tokio::test]
async fn a_service_that_is_no_longer_asked_for_goes() {
    let alternative = json!([{"metadata": {"name": "bar-ro"}, "spec": {"ports": [{"port": 5432}],
        "selector": {"app": "bar", "coregent.io/role": "follower"}}}]);
    let plane = plane_with(json!({"alternativeServices": alternative})).await;
    plane.settle("bar").await;
    let main = plane.get::<Service>("bar").await.unwrap().spec.unwrap();
    assert_eq!(main.selector.unwrap()["coregent.io/role"], "leader");
    assert!(plane.get::<Service>("bar-ro").await.is_some());
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"alternativeServices": []}})).await;
    plane.settle("bar").await;
    assert!(plane.get::<Service>("bar-ro").await.is_none());
}

#[tokio::test]
async fn a_service_by_role_or_access_mode_leads_to_its_members_and_a_silent_role_is_in_none() {
    let services = json!([{"accessMode": "ReadWrite"}, {"accessMode": "Readonly"}, {"role": "FOLLOWER", "name": "bar-second",
        "service": {"metadata": {"labels": {"theirs": "x"}}, "spec": {"ports": [{"port": 99}]}}}]);
    let plane = plane_with(json!({"roleServices": services})).await;
    plane.settle("bar").await;
    let selects = async |name: &str| plane.get::<Service>(name).await.unwrap().spec.unwrap().selector.unwrap();
    assert_eq!(selects("bar-rw").await["coregent.io/access-mode"], "ReadWrite");
    assert_eq!(selects("bar-ro").await["coregent.io/access-mode"], "Readonly");
    assert_eq!(selects("bar-second").await["coregent.io/role"], "follower", "as it is declared");
    for name in ["bar-rw", "bar-ro", "bar-second", "bar"] {
        let selector = selects(name).await;
        assert_eq!(selector["app"], "bar");
        // The labels of a pod whose role is declared with the access mode None.
        let silent = [("app", "bar"), ("coregent.io/role", "logger"), ("coregent.io/access-mode", "None")];
        let matches = selector.iter().all(|(key, value)| silent.contains(&(key.as_str(), value.as_str())));
        assert!(!matches, "{name} selects a silent member");
    }
    let second = plane.get::<Service>("bar-second").await.unwrap();
    let port = second.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port;
    assert_eq!((second.labels()["theirs"].as_str(), port), ("x", 99));
    assert_eq!(plane.get::<Service>("bar-ro").await.unwrap().spec.unwrap().ports.unwrap()[0].port, 5432);
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"roleServices": []}})).await;
    plane.settle("bar").await;
    assert!(plane.get::<Service>("bar-ro").await.is_none());
}

#[tokio::test]
async fn services_of_one_name_are_refused_by_a_condition_that_names_it() {
    let alternative = |metadata: Value| json!([{"metadata": metadata, "spec": {"ports": [{"port": 5432}]}}]);
    let cases = [
        (
            json!({"alternativeServices": alternative(json!({"name": "bar"}))}),
            "NameTaken",
            "spec.alternativeServices[0]",
        ),
        (json!({"alternativeServices": alternative(json!({}))}), "FieldRequired", "spec.alternativeServices[0]"),
        (json!({"roleServices": [{"role": "follower", "name": "bar-headless"}]}), "NameTaken", "spec.roleServices[0]"),
    ];
    for (spec, reason, part) in cases {
        let plane = plane_with(spec).await;
        plane.settle("bar").await;
        let status = plane.rsm("bar").await.status.unwrap();
        let valid = conditions::find(&status.conditions, conditions::SPEC_VALID).unwrap();
        assert_eq!(valid.reason, reason, "{valid:?}");
        assert!(valid.message.contains(part), "{valid:?}");
        assert!(plane.get::<StatefulSet>("bar").await.is_none());
    }
}

#[tokio::test]
async fn none_and_a_thousand_members_are_taken() {
    for replicas in [0, 1000] {
        let plane = plane_with(json!({"replicas": replicas, "roleProbe": {}})).await;
        plane.settle("bar").await;
        let set = plane.get::<StatefulSet>("bar").await.unwrap();
        assert_eq!(set.spec.unwrap().replicas, Some(replicas));
        let env = plane.get::<ConfigMap>("bar-rsm-env").await.unwrap().data.unwrap();
        assert_eq!(env["KB_REPLICA_COUNT"], replicas.to_string());
        let reason = if replicas == 0 { "NoMembers" } else { "MembersNotReady" };
        let status = plane.rsm("bar").await.status.unwrap();
        assert_eq!(conditions::find(&status.conditions, "Ready").unwrap().reason, reason);
    }
}

#[tokio::test]
async fn a_paused_set_gets_no_write_and_its_deletion_waits() {
    let plane = plane_with(json!({})).await;
    plane.settle("bar").await;
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"paused": true, "replicas": 5}})).await;
    let told = "PUT replicatedstatemachines/bar/status";
    assert_eq!(plane.pass("bar").await, [told], "that it is paused, and nothing else");
    assert_eq!(plane.pass("bar").await, Vec::<String>::new());
    plane.api::<ReplicatedStateMachine>().delete("bar", &DeleteParams::default()).await.unwrap();
    assert!(plane.pass("bar").await[0] == told);
    let status = plane.rsm("bar").await.status.unwrap();
    assert_eq!(conditions::find(&status.conditions, conditions::PAUSED).unwrap().reason, "DeletionWaits");
    wait("an Event that says so", || async {
        let events = plane.api::<Event>().list(&Default::default()).await.unwrap();
        events.iter().any(|event| event.reason.as_deref() == Some("DeletionWaits")).then_some(())
    })
    .await;
    assert_eq!(plane.pass("bar").await, Vec::<String>::new());
    assert!(plane.get::<StatefulSet>("bar").await.is_some());
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"paused": false}})).await;
    plane.pass("bar").await;
    assert!(plane.get::<ReplicatedStateMachine>("bar").await.is_none());
}

#[tokio::test]
async fn deletion_takes_what_was_generated_and_leaves_what_was_not() {
    let plane = plane_with(json!({})).await;
    plane.settle("bar").await;
    let labels = json!({"coregent.io/managed-by": "ReplicatedStateMachine", "coregent.io/instance": "bar"});
    plane.create::<ConfigMap>(json!({"metadata": {"name": "other", "labels": labels}})).await;
    plane
        .patch::<ReplicatedStateMachine>(
            "bar",
            json!({"metadata": {"finalizers": [coregent_rsm::names::FINALIZER, "example.com/theirs"]}}),
        )
        .await;
    plane.api::<ReplicatedStateMachine>().delete("bar", &DeleteParams::default()).await.unwrap();
    plane.pass("bar").await;
    assert_eq!(plane.rsm("bar").await.finalizers(), ["example.com/theirs"], "a finalizer of others is theirs to take");
    assert!(plane.get::<StatefulSet>("bar").await.is_none());
    assert!(plane.get::<Service>("bar-headless").await.is_none());
    assert!(plane.get::<ConfigMap>("bar-rsm-env").await.is_none());
    assert!(plane.get::<ConfigMap>("other").await.is_some());
    assert_eq!(plane.pass("bar").await, Vec::<String>::new());
}

#[tokio::test]
async fn an_object_of_somebody_else_is_named_and_not_touched() {
    let plane = plane_with(json!({})).await;
    plane
        .create::<StatefulSet>(json!({"metadata": {"name": "bar"}, "spec": {"serviceName": "x", "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
        .await;
    let before = plane.get::<StatefulSet>("bar").await.unwrap();
    plane.pass("bar").await;
    let error = plane.try_pass("bar").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Create StatefulSet default/bar: an object of this name is there and is not ours (nobody's); \
         rename one of them or delete it"
    );
    let status = plane.rsm("bar").await.status.unwrap();
    assert_eq!(conditions::find(&status.conditions, "Ready").unwrap().reason, "ForeignObject");
    assert_eq!(plane.get::<StatefulSet>("bar").await.unwrap(), before);
    plane.try_pass("bar").await.unwrap_err();
    assert!(!plane.writes.take().iter().any(|write| write.contains("status")), "it is said once");
    plane.api::<StatefulSet>().delete("bar", &DeleteParams::default()).await.unwrap();
    plane.settle("bar").await;
    assert!(coregent_rsm::ownership::is_owned_by_rsm(&plane.get::<StatefulSet>("bar").await.unwrap().metadata));
}

#[tokio::test]
async fn a_template_with_an_unknown_field_is_refused_by_a_condition_that_names_it() {
    let template = json!({"metadata": {"labels": {"app": "bar"}},
        "spec": {"containers": [{"name": "db", "imagge": "db:1"}]}});
    let plane = plane_with(json!({"template": template})).await;
    plane.settle("bar").await;
    let status = plane.rsm("bar").await.status.unwrap();
    let valid = conditions::find(&status.conditions, conditions::SPEC_VALID).unwrap();
    assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("False", "UnknownField"));
    assert!(valid.message.contains("spec.template.spec.containers[0].imagge"), "{}", valid.message);
    assert!(plane.get::<StatefulSet>("bar").await.is_none());
}

#[tokio::test]
async fn a_plan_that_fails_half_way_is_completed_by_the_next_pass() {
    for fault in [Fault::Refused, Fault::AnswerLost] {
        for step in ["POST configmaps", "POST services", "POST statefulsets", "PUT replicatedstatemachines"] {
            let plane = plane_with(json!({})).await;
            plane.pass("bar").await;
            plane.writes.fail(step, fault);
            plane.try_pass("bar").await.unwrap_err();
            let written = plane.writes.take();
            assert!(written.last().unwrap().starts_with(step), "nothing after the failed step: {written:?}");
            plane.settle("bar").await;
            assert!(plane.get::<StatefulSet>("bar").await.is_some());
            assert_eq!(plane.rsm("bar").await.status.unwrap().current_generation, Some(1));
        }
    }
}

#[tokio::test]
async fn members_are_listed_by_role_once_they_are_ready() {
    let plane = plane_with(json!({})).await;
    plane.settle("bar").await;
    pod(&plane, "bar-0", "bar", "follower", true).await;
    pod(&plane, "bar-1", "bar", "LEADER", true).await;
    pod(&plane, "bar-2", "bar", "follower", false).await;
    plane.settle("bar").await;
    let members = plane.rsm("bar").await.status.unwrap().members_status;
    let listed: Vec<(&str, &str)> = members.iter().map(|m| (m.pod_name.as_str(), m.role.name.as_str())).collect();
    assert_eq!(listed, [("bar-1", "leader"), ("bar-0", "follower")]);
    let env = plane.get::<ConfigMap>("bar-rsm-env").await.unwrap().data.unwrap();
    assert_eq!((env["KB_LEADER"].as_str(), env["KB_FOLLOWERS"].as_str()), ("bar-1", "bar-0"));
    plane.patch::<Pod>("bar-0", json!({"metadata": {"labels": {"coregent.io/role": "leader"}}})).await;
    plane.settle("bar").await;
    let status = plane.rsm("bar").await.status.unwrap();
    assert_eq!(conditions::find(&status.conditions, "Ready").unwrap().reason, "TooManyLeaders");
}

#[tokio::test]
async fn instances_are_numbered_before_they_are_created_and_never_again() {
    let plane = plane_with(json!({"memberLayout": "Instances"})).await;
    plane.pass("bar").await;
    assert_eq!(plane.pass("bar").await, ["PUT replicatedstatemachines/bar/status"], "numbers are written ahead");
    plane.settle("bar").await;
    for n in 1..=3 {
        let set = plane.get::<StatefulSet>(&format!("bar-{n}")).await.unwrap().spec.unwrap();
        assert_eq!(set.replicas, Some(1));
        assert_eq!(set.selector.match_labels.unwrap()["coregent.io/instance"], format!("bar-{n}"));
    }
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"replicas": 2}})).await;
    plane.settle("bar").await;
    assert!(plane.get::<StatefulSet>("bar-3").await.is_none());
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"replicas": 3}})).await;
    plane.settle("bar").await;
    assert!(plane.get::<StatefulSet>("bar-3").await.is_none());
    assert!(plane.get::<StatefulSet>("bar-4").await.is_some());
    let status = plane.rsm("bar").await.status.unwrap();
    assert_eq!((status.instances, status.last_created_instance_index), (vec![1, 2, 4], Some(4)));
}

#[tokio::test]
async fn numbers_that_the_owner_gives_are_followed() {
    let plane = plane_with(json!({"memberLayout": "Instances", "instances": [2, 5]})).await;
    plane.settle("bar").await;
    assert!(plane.get::<StatefulSet>("bar-2").await.is_some() && plane.get::<StatefulSet>("bar-5").await.is_some());
    assert!(plane.get::<StatefulSet>("bar-1").await.is_none());
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"instances": [5, 6]}})).await;
    plane.settle("bar").await;
    assert!(plane.get::<StatefulSet>("bar-2").await.is_none() && plane.get::<StatefulSet>("bar-6").await.is_some());
    pod(&plane, "bar-6-0", "bar-6", "leader", true).await;
    plane.settle("bar").await;
    assert_eq!(plane.rsm("bar").await.status.unwrap().members_status[0].pod_name, "bar-6-0");
}

#[tokio::test]
async fn absent_parts_are_no_reason_to_fail() {
    let plane = Plane::start().await;
    let bare = json!({"metadata": {"name": "bar"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "bar"}},
        "template": {"metadata": {"labels": {"app": "bar"}}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}}}});
    plane.create::<ReplicatedStateMachine>(bare).await;
    plane.settle("bar").await;
    assert!(plane.get::<Service>("bar").await.is_none());
    plane.api::<ReplicatedStateMachine>().delete("bar", &DeleteParams::default()).await.unwrap();
    plane.pass("bar").await;
    assert!(plane.get::<ReplicatedStateMachine>("bar").await.is_none());
}

#[tokio::test]
async fn a_member_taken_out_of_service_is_replaced_and_comes_back_with_its_number() {
    let plane = plane_with(json!({"memberLayout": "Instances",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"}}))
    .await;
    plane.settle("bar").await;
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"offlineInstances": ["bar-2", "foo-3"]}})).await;
    assert_eq!(plane.pass("bar").await, ["PUT replicatedstatemachines/bar/status"], "written ahead");
    assert!(plane.pass("bar").await.contains(&"PUT statefulsets/bar-2".to_owned()), "its claims are to stay first");
    let set = plane.get::<StatefulSet>("bar-2").await.unwrap();
    let policy = set.spec.unwrap().persistent_volume_claim_retention_policy.unwrap();
    assert_eq!(policy.when_deleted.as_deref(), Some("Retain"));
    plane.settle("bar").await;
    assert!(plane.get::<StatefulSet>("bar-2").await.is_some(), "nobody has looked at the policy yet");
    plane
        .patch_status::<StatefulSet>("bar-2", json!({"replicas": 1, "observedGeneration": set.metadata.generation}))
        .await;
    plane.settle("bar").await;
    assert!(plane.get::<StatefulSet>("bar-2").await.is_none());
    assert!(plane.get::<StatefulSet>("bar-3").await.is_some(), "of another set");
    let status = plane.rsm("bar").await.status.unwrap();
    assert_eq!((status.instances, status.offline_instances), (vec![1, 3, 4], vec![2]));
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"offlineInstances": [], "replicas": 4}})).await;
    plane.settle("bar").await;
    assert!(plane.get::<StatefulSet>("bar-2").await.is_some());
    let status = plane.rsm("bar").await.status.unwrap();
    assert_eq!((status.instances, status.offline_instances), (vec![1, 2, 3, 4], vec![]));
}

#[tokio::test]
async fn what_becomes_of_claims_is_said_on_the_sets_and_taken_back() {
    let policy = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
    let plane = plane_with(json!({"persistentVolumeClaimRetentionPolicy": policy})).await;
    plane.settle("bar").await;
    let of_set = async || {
        let spec = plane.get::<StatefulSet>("bar").await.unwrap().spec.unwrap();
        let policy = spec.persistent_volume_claim_retention_policy.unwrap();
        (policy.when_deleted.unwrap(), policy.when_scaled.unwrap())
    };
    assert_eq!(of_set().await, ("Delete".to_owned(), "Retain".to_owned()));
    let none = json!({"spec": {"persistentVolumeClaimRetentionPolicy": null}});
    plane.patch::<ReplicatedStateMachine>("bar", none).await;
    plane.settle("bar").await;
    assert_eq!(of_set().await, ("Retain".to_owned(), "Retain".to_owned()));
}

/// A member's StatefulSet goes by a deletion, so what holds for a smaller set must be what holds for that.
#[tokio::test]
async fn a_smaller_set_of_instances_keeps_or_deletes_claims_as_asked() {
    for (deleted, scaled, first) in
        [("Delete", "Retain", true), ("Retain", "Delete", true), ("Delete", "Delete", false)]
    {
        let policy = json!({"whenDeleted": deleted, "whenScaled": scaled});
        let spec = json!({"memberLayout": "Instances", "replicas": 2, "persistentVolumeClaimRetentionPolicy": policy});
        let plane = plane_with(spec).await;
        plane.settle("bar").await;
        let generation = plane.get::<StatefulSet>("bar-2").await.unwrap().metadata.generation;
        plane.patch_status::<StatefulSet>("bar-2", json!({"replicas": 1, "observedGeneration": generation})).await;
        plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"replicas": 1}})).await;
        plane.settle("bar").await;
        let set = plane.get::<StatefulSet>("bar-2").await;
        assert_eq!(set.is_some(), first, "{deleted} {scaled}");
        let Some(set) = set else { continue };
        let policy = set.spec.unwrap().persistent_volume_claim_retention_policy.unwrap();
        assert_eq!(policy.when_deleted.as_deref(), Some(scaled));
        let observed = json!({"replicas": 1, "observedGeneration": set.metadata.generation});
        plane.patch_status::<StatefulSet>("bar-2", observed).await;
        plane.settle("bar").await;
        assert!(plane.get::<StatefulSet>("bar-2").await.is_none());
    }
}

/// Two controllers that act on the same picture: what one has done is no reason for the other to overwrite.
#[tokio::test]
async fn two_controllers_at_once_end_where_one_would() {
    let plane = plane_with(json!({})).await;
    for round in 0..30 {
        if round == 5 {
            let template = json!({"spec": {"replicas": 5, "template": {"spec": {"containers": [{"name": "db", "image": "db:2"}]}}}});
            plane.patch::<ReplicatedStateMachine>("bar", template).await;
        }
        let (one, other) = tokio::join!(plane.pass_alone("bar"), plane.pass_alone("bar"));
        for error in [one, other].into_iter().filter_map(Result::err) {
            let conflict = matches!(&error, coregent_rsm::controller::Error::Execute(error) if error.is_conflict());
            assert!(conflict, "{error}");
        }
    }
    plane.settle("bar").await;
    let set = plane.get::<StatefulSet>("bar").await.unwrap().spec.unwrap();
    assert_eq!((set.replicas, set.template.spec.unwrap().containers[0].image.as_deref()), (Some(5), Some("db:2")));
    assert_eq!(plane.rsm("bar").await.status.unwrap().current_generation, Some(2));
}

#[tokio::test]
async fn only_the_set_itself_carries_a_finalizer() {
    let plane = plane_with(json!({"roleServices": [{"accessMode": "Readonly"}]})).await;
    plane.settle("bar").await;
    let none = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| meta.finalizers.is_none();
    assert!(plane.api::<StatefulSet>().list(&Default::default()).await.unwrap().iter().all(|o| none(&o.metadata)));
    assert!(plane.api::<Service>().list(&Default::default()).await.unwrap().iter().all(|o| none(&o.metadata)));
    assert!(plane.api::<ConfigMap>().list(&Default::default()).await.unwrap().iter().all(|o| none(&o.metadata)));
    assert_eq!(plane.rsm("bar").await.finalizers(), [coregent_rsm::names::FINALIZER]);
}

#[tokio::test]
async fn objects_of_another_controller_are_named_with_it_and_not_touched() {
    for (kind, write) in [("StatefulSet", "POST statefulsets"), ("Service", "POST services")] {
        let plane = plane_with(json!({})).await;
        let owner = plane.create::<ConfigMap>(json!({"metadata": {"name": "cluster"}})).await;
        let metadata = json!({"name": "bar", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap",
            "name": "cluster", "uid": owner.uid(), "controller": true}]});
        if kind == "StatefulSet" {
            let template =
                json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            let spec = json!({"serviceName": "x", "selector": {"matchLabels": {"a": "b"}}, "template": template});
            plane.create::<StatefulSet>(json!({"metadata": metadata, "spec": spec})).await;
        } else {
            plane.create::<Service>(json!({"metadata": metadata, "spec": {"ports": [{"port": 1}]}})).await;
        }
        plane.pass("bar").await;
        let error = plane.try_pass("bar").await.unwrap_err().to_string();
        assert!(error.contains("is not ours (ConfigMap cluster)"), "{error}");
        assert!(plane.writes.take().iter().any(|written| written == write));
        let status = plane.rsm("bar").await.status.unwrap();
        let told = conditions::find(&status.conditions, "Ready").unwrap();
        assert!(told.reason == "ForeignObject" && told.message.contains("ConfigMap cluster"), "{told:?}");
        // The set can go all the same, and leaves what is not its own.
        plane.api::<ReplicatedStateMachine>().delete("bar", &DeleteParams::default()).await.unwrap();
        plane.pass("bar").await;
        assert!(plane.get::<ReplicatedStateMachine>("bar").await.is_none());
        let left = (plane.get::<StatefulSet>("bar").await.is_some(), plane.get::<Service>("bar").await.is_some());
        assert_eq!(left, (kind == "StatefulSet", kind == "Service"));
    }
}
