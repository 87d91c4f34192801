//! StatefulSets, their places, their volumes and their addresses, from one end to the other.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;

fn set(spec: Value) -> Value {
    let mut object = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 3,
            "serviceName": "web",
            "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "busybox", "ports": [{ "name": "sql", "containerPort": 5432 }] }] },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
            }],
        },
    });
    json_patch::merge(&mut object["spec"], &spec);
    object
}

async fn ready(cluster: &Cluster, replicas: i32) -> StatefulSet {
    let sets: Api<StatefulSet> = Api::default_namespaced(cluster.client.clone());
    let sets = &sets;
    cluster
        .wait("ready replicas", || async move {
            let set = sets.get("web").await.ok()?;
            let status = set.status.clone()?;
            let settled = status.observed_generation == set.metadata.generation && status.replicas == replicas;
            (settled && status.ready_replicas == Some(replicas) && status.updated_replicas == Some(replicas))
                .then_some(set)
        })
        .await
}

async fn addresses(cluster: &Cluster) -> Vec<String> {
    let slices: Api<EndpointSlice> = Api::default_namespaced(cluster.client.clone());
    let list = slices.list(&ListParams::default().labels("kubernetes.io/service-name=web")).await.unwrap();
    let endpoints = list.items.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
    let ready = endpoints.filter(|endpoint| endpoint.conditions.as_ref().unwrap().ready == Some(true));
    ready.map(|endpoint| endpoint.target_ref.unwrap().name.unwrap()).collect()
}

#[tokio::test]
async fn a_stateful_set_gets_places_volumes_and_addresses() {
    let cluster = Cluster::start(&["node-a", "node-b"]).await;
    let service = json!({
        "metadata": { "name": "web" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": "sql" }] },
    });
    cluster.create::<Service>(service).await;
    cluster.create::<StatefulSet>(set(json!({}))).await;
    ready(&cluster, 3).await;

    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let mut nodes = BTreeSet::new();
    for ordinal in 0..3 {
        let claims = &claims;
        let claim = cluster
            .wait("a bound claim", || async move {
                let claim = claims.get(&format!("data-web-{ordinal}")).await.ok()?;
                (claim.status.as_ref()?.phase.as_deref() == Some("Bound")).then_some(claim)
            })
            .await;
        let name = claim.spec.unwrap().volume_name.unwrap();
        let volume = volumes.get(&name).await.unwrap().spec.unwrap();
        assert_eq!(volume.host_path.unwrap().path, format!("/data/volumes/{name}"));
        let terms = volume.node_affinity.unwrap().required.unwrap().node_selector_terms;
        let node = terms[0].match_expressions.as_ref().unwrap()[0].values.as_ref().unwrap()[0].clone();
        let pod = pods.get(&format!("web-{ordinal}")).await.unwrap();
        assert_eq!(pod.spec.unwrap().node_name.as_ref(), Some(&node), "the volume lies where the pod runs");
        nodes.insert(node);
    }
    assert_eq!(nodes.len(), 2, "pods are spread over the nodes");
    let cluster = &cluster;
    cluster.wait("three addresses", || async move { (addresses(cluster).await.len() == 3).then_some(()) }).await;
}

#[tokio::test]
async fn a_deleted_pod_comes_back_on_the_node_of_its_volume() {
    let cluster = Cluster::start(&["node-a", "node-b"]).await;
    cluster.create::<StatefulSet>(set(json!({}))).await;
    ready(&cluster, 3).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let pods = &pods;
    for _ in 0..3 {
        let old = pods.get("web-1").await.unwrap();
        pods.delete("web-1", &DeleteParams::default()).await.unwrap();
        let old_uid = &old.metadata.uid;
        let new = cluster
            .wait("a new pod", || async move {
                let pod = pods.get("web-1").await.ok()?;
                let is_new = pod.metadata.uid != *old_uid;
                (is_new && pod.status.as_ref()?.phase.as_deref() == Some("Running")).then_some(pod)
            })
            .await;
        assert_eq!(new.spec.unwrap().node_name, old.spec.unwrap().node_name);
    }
}

#[tokio::test]
async fn a_change_of_label_or_readiness_is_in_the_slice() {
    let cluster = Cluster::start(&["node-a"]).await;
    let service = json!({
        "metadata": { "name": "web" },
        "spec": { "selector": { "app": "web", "role": "primary" }, "ports": [{ "port": 80 }] },
    });
    cluster.create::<Service>(service).await;
    cluster.create::<StatefulSet>(set(json!({ "volumeClaimTemplates": null }))).await;
    ready(&cluster, 3).await;
    assert!(addresses(&cluster).await.is_empty());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let cluster = &cluster;
    let expect = async |expected: &'static str| {
        cluster.wait(expected, || async move { (addresses(cluster).await.join(" ") == expected).then_some(()) }).await;
    };
    let label = async |pod: &str, role: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "role": role } } }));
        pods.patch(pod, &PatchParams::default(), &patch).await.unwrap();
    };
    label("web-1", json!("primary")).await;
    expect("web-1").await;
    label("web-1", Value::Null).await;
    label("web-2", json!("primary")).await;
    expect("web-2").await;
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    pods.patch_status("web-2", &PatchParams::default(), &Patch::Merge(unready)).await.unwrap();
    expect("").await;
}

#[tokio::test]
async fn a_cluster_at_rest_writes_nothing() {
    let cluster = Cluster::start(&["node-a"]).await;
    cluster.create::<StatefulSet>(set(json!({}))).await;
    ready(&cluster, 3).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    let revision = async || claims.list(&ListParams::default()).await.unwrap().metadata.resource_version;
    // Everything that follows from the start has been written once the revision of the whole store stands still
    // through many rounds of the scheduler of this very task.
    let mut last = revision().await;
    let mut still = 0;
    for _ in 0..2000 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let now = revision().await;
        still = if now == last { still + 1 } else { 0 };
        last = now;
        if still == 100 {
            return;
        }
    }
    panic!("the store never comes to rest");
}
