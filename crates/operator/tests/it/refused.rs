//! An API that says no, is busy or slow: one condition that names the verb, the object and who refuses, no hot loop, and
//! everything goes on by itself once it is put right.

use crate::plane::{Plane, run};
use coregent_api::conditions::{self, BLOCKED};
use coregent_apiserver::UserInfo;
use coregent_apiserver::faults::{Asked, Fault, Faults, Odds};
use coregent_operator::Options;
use coregent_operator::install::{Install, install};
use coregent_operator::pace::Pace;
use k8s_openapi::api::core::v1::Event as OldEvent;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tower::Layer;

impl Plane {
    async fn unblocked_and_ready(&self) {
        self.wait_ready(3).await;
        self.condition(BLOCKED, "False").await;
    }

    /// The reasons of the events about the cluster.
    async fn told(&self) -> BTreeSet<String> {
        let events: Api<OldEvent> = Api::default_namespaced(self.client.clone());
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let of_cluster =
            events.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some("DatabaseCluster"));
        of_cluster.filter_map(|event| event.reason).collect()
    }
}

/// Counts the requests that `wanted` is about and answers them with `fault`.
fn answer(faults: &Faults, fault: Fault, wanted: impl Fn(&Asked) -> bool + Send + 'static) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    faults.script(move |asked| {
        let hit = wanted(asked) && !asked.is_event();
        count.fetch_add(usize::from(hit), Ordering::Relaxed);
        hit.then_some(fault)
    });
    asked
}

/// What Kubernetes is refused in making a pod is shown on the cluster, in the words of whoever refuses.
#[test]
fn a_pod_that_is_not_let_in_is_a_condition_of_the_cluster_until_it_is() {
    let table = [
        (
            "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0",
            "QuotaExceeded",
            "raise the ResourceQuota",
        ),
        ("violates PodSecurity \"restricted:latest\": runAsNonRoot != true", "AdmissionRejected", "let it in"),
    ];
    for (why, reason, advice) in table {
        run(async move {
            let words: &'static str = format!("pods \"orders-1-0\" is forbidden: {why}").leak();
            let plane = Plane::start().await;
            let asked = answer(&plane.controllers, Fault::Forbidden(words), |asked| {
                asked.resource == "pods" && asked.method == http::Method::POST && asked.subresource.is_none()
            });
            plane.create_cluster(json!({})).await;
            let said = plane.condition(BLOCKED, "True").await;
            assert_eq!(said.reason, reason, "{said:?}");
            for part in ["create Pod orders-1-0 in StatefulSet orders-1", why, advice] {
                assert!(said.message.contains(part), "{part:?} in {said:?}");
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(plane.told().await.contains(reason));
            assert!(asked.load(Ordering::Relaxed) < 30, "{asked:?} in a minute");
            plane.controllers.heal();
            plane.unblocked_and_ready().await;
        });
    }
}

/// The same for what this operator is refused itself.
#[test]
fn a_write_of_the_operator_that_is_refused_is_a_condition_and_is_tried_again_ever_less() {
    let quota = "statefulsets.apps \"orders-1\" is forbidden: exceeded quota: q, requested: count/statefulsets.apps=1, used: \
                 count/statefulsets.apps=0, limited: count/statefulsets.apps=0";
    let webhook = "admission webhook \"policy.example\" denied the request: no Secrets by robots";
    let ending = "leases.coordination.k8s.io \"orders-primary\" is forbidden: unable to create new content in namespace \
                  default because it is being terminated";
    let table: [(&'static str, &'static str, &'static str, &'static str); 3] = [
        ("statefulsets", quota, "QuotaExceeded", "StatefulSet default/orders-1"),
        ("secrets", webhook, "AdmissionRejected", "create secrets \"orders-superuser\""),
        ("leases", ending, "NamespaceTerminating", "create leases \"orders-"),
    ];
    for (resource, words, reason, object) in table {
        run(async move {
            let mut plane = Plane::bare(1, 1).await;
            let faults = plane.start_operator();
            let asked = answer(&faults, Fault::Forbidden(words), move |asked| {
                asked.resource == resource && asked.method == http::Method::POST
            });
            plane.create_cluster(json!({})).await;
            let said = plane.condition(BLOCKED, "True").await;
            assert_eq!(said.reason, reason, "{said:?}");
            assert!(said.message.contains(words) && said.message.contains(object), "{said:?}");
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(asked.load(Ordering::Relaxed) < 30, "{asked:?} in a minute");
            assert_eq!(plane.told().await.contains(reason), reason != "NamespaceTerminating");
            faults.heal();
            plane.unblocked_and_ready().await;
        });
    }
}

/// The role of `coregent install` without one verb on one resource.
fn role(without: Option<(&str, &str)>) -> Value {
    let wanted = Install { namespace: "default".into(), image: "i".into(), replicas: 1, pod_monitor: false };
    let objects = install(&wanted).unwrap();
    let mut role = objects.into_iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    let mut rules = Vec::new();
    for rule in role["rules"].as_array().unwrap() {
        for resource in rule["resources"].as_array().unwrap() {
            let mut verbs = rule["verbs"].as_array().unwrap().clone();
            verbs.retain(|verb| without.is_none_or(|(of, taken)| resource != of || verb != taken));
            if !verbs.is_empty() {
                rules.push(json!({"apiGroups": rule["apiGroups"], "resources": [resource], "verbs": verbs}));
            }
        }
    }
    role["rules"] = rules.into();
    role
}

/// Starts an operator that may what `coregent install` lets it, less one verb.
async fn start_restricted(plane: &mut Plane, without: (&str, &str)) {
    let roles: Api<ClusterRole> = Api::all(plane.client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(plane.client.clone());
    let role: ClusterRole = serde_json::from_value(role(Some(without))).unwrap();
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding = json!({"metadata": {"name": "coregent-operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "coregent-operator"},
        "subjects": [{"kind": "ServiceAccount", "name": "coregent-operator", "namespace": "default"}]});
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    plane.start_operator_through(Options::default(), |faults, server| {
        let account = UserInfo::service_account("default", "coregent-operator", "u");
        Client::new(faults.layer().layer(server.service_as(account)), "default")
    });
}

async fn grant_all(plane: &Plane) {
    let roles: Api<ClusterRole> = Api::all(plane.client.clone());
    let mut whole: ClusterRole = serde_json::from_value(role(None)).unwrap();
    whole.metadata.resource_version = roles.get("coregent-operator").await.unwrap().metadata.resource_version;
    roles.replace("coregent-operator", &PostParams::default(), &whole).await.unwrap();
}

/// Every verb in turn that a cluster needs to come up.
#[test]
fn a_missing_permission_is_a_condition_that_names_the_verb_and_the_object_and_nothing_but_it_is_missing() {
    let verbs = [
        ("replicatedstatemachines", "list"),
        ("replicatedstatemachines", "watch"),
        ("replicatedstatemachines", "patch"),
        ("statefulsets", "list"),
        ("statefulsets", "watch"),
        ("statefulsets", "create"),
        ("services", "list"),
        ("services", "create"),
        ("configmaps", "watch"),
        ("configmaps", "patch"),
        ("pods", "list"),
        ("pods", "watch"),
        ("pods", "patch"),
        ("persistentvolumeclaims", "list"),
        ("nodes", "watch"),
        ("secrets", "list"),
        ("secrets", "create"),
        ("serviceaccounts", "patch"),
        ("roles", "patch"),
        ("rolebindings", "patch"),
        ("poddisruptionbudgets", "list"),
        ("poddisruptionbudgets", "patch"),
        ("leases", "list"),
        ("leases", "create"),
        ("leases", "update"),
        ("events", "list"),
    ];
    for (resource, verb) in verbs {
        run(async move {
            let mut plane = Plane::bare(1, 1).await;
            start_restricted(&mut plane, (resource, verb)).await;
            plane.create_cluster(json!({})).await;
            let said = plane.condition(BLOCKED, "True").await;
            assert_eq!(said.reason, "PermissionMissing", "{verb} {resource}: {said:?}");
            let words = format!("cannot {verb} resource \"{resource}\"");
            assert!(said.message.contains(&words), "{words}: {said:?}");
            assert!(said.message.contains("coregent install"), "{said:?}");
            grant_all(&plane).await;
            plane.unblocked_and_ready().await;
        });
    }
}

/// The status itself cannot be written: then an event says so.
#[test]
fn a_status_that_may_not_be_written_is_an_event() {
    run(async {
        let mut plane = Plane::bare(1, 1).await;
        start_restricted(&mut plane, ("databaseclusters/status", "update")).await;
        plane.create_cluster(json!({})).await;
        plane
            .wait("the event", |plane| async move { plane.told().await.contains("PermissionMissing").then_some(()) })
            .await;
        grant_all(&plane).await;
        plane.unblocked_and_ready().await;
    });
}

/// An operator whose requests are paced, as those of `coregent operator` are.
fn start_paced(plane: &mut Plane) -> Faults {
    plane.start_operator_through(Options::default(), |faults, server| {
        let service = faults.layer().layer(server.service_as(UserInfo::admin()));
        Client::new(Pace::default().layer(service), "default")
    })
}

#[test]
fn a_server_that_asks_for_a_pause_by_429_is_asked_nothing_until_it_is_over() {
    run(async {
        let mut plane = Plane::bare(1, 1).await;
        let faults = start_paced(&mut plane);
        plane.create_cluster(json!({})).await;
        plane.wait_ready(3).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        let heard: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let times = heard.clone();
        faults.script(move |_| {
            let mut times = times.lock().unwrap();
            times.push(Instant::now());
            (times.len() == 1).then_some(Fault::Busy { code: 429, after: 5 })
        });
        plane.net.kill_engine("orders-1");
        plane.wait_for_silence().await;
        let next = plane.write_until_acknowledged(2).await;
        assert!(plane.net.rows(&next).contains(&1));
        plane.wait_ready(3).await;
        let heard = heard.lock().unwrap();
        assert!(heard.len() > 2, "{heard:?}");
        assert!(heard[1] - heard[0] >= Duration::from_secs(5), "{:?}", heard[1] - heard[0]);
    });
}

/// Every write of the operator fails for a while: a failover waits, nobody is harmed, and the server is not flooded.
#[test]
fn a_server_that_fails_is_asked_ever_less_and_the_failover_goes_on_when_it_no_longer_does() {
    for code in [429, 500, 503] {
        run(async move {
            let mut plane = Plane::with_cluster(json!({})).await;
            plane.kill_operators();
            let faults = plane.start_operator();
            plane.settled_primary().await;
            assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
            let asked = answer(&faults, Fault::Status(code), |asked| {
                asked.is_write() && asked.subresource.as_deref() != Some("status")
            });
            plane.net.kill_engine("orders-1");
            let said = plane.condition(BLOCKED, "True").await;
            assert_eq!(said.reason, if code == 429 { "TooManyRequests" } else { "ApiServerError" }, "{said:?}");
            assert!(said.message.contains("cannot update leases \"orders-primary\""), "{said:?}");
            let before = asked.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert!(asked.load(Ordering::Relaxed) - before <= 90, "{asked:?} in half a minute");
            faults.heal();
            let next = plane.write_until_acknowledged(2).await;
            assert!(plane.net.rows(&next).contains(&1));
            plane.unblocked_and_ready().await;
        });
    }
}

#[test]
fn a_slow_server_delays_a_failover_and_loses_nothing() {
    run(async {
        let mut plane = Plane::with_cluster(json!({})).await;
        plane.kill_operators();
        let faults = plane.start_operator();
        faults.set_odds(Odds { latency: Duration::from_millis(1_200), ..Odds::default() });
        plane.settled_primary().await;
        plane.survives_its_first_primary().await;
        plane.condition(conditions::READY, "True").await;
    });
}
