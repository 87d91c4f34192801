//! How things end: Jobs, owners, namespaces, volumes.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::cluster::Cluster;

fn map(name: &str, owner: Option<&ConfigMap>) -> Value {
    let owners = owner.map(|owner| {
        json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name, "uid": owner.metadata.uid,
            "blockOwnerDeletion": true,
        }])
    });
    json!({ "metadata": { "name": name, "ownerReferences": owners } })
}

async fn family(cluster: &Cluster) -> Api<ConfigMap> {
    let parent: ConfigMap = cluster.create(map("parent", None)).await;
    let child: ConfigMap = cluster.create(map("child", Some(&parent))).await;
    cluster.create::<ConfigMap>(map("grandchild", Some(&child))).await;
    Api::default_namespaced(cluster.client.clone())
}

async fn left(maps: &Api<ConfigMap>) -> Vec<String> {
    maps.list(&ListParams::default()).await.unwrap().into_iter().map(|map| map.metadata.name.unwrap()).collect()
}

#[tokio::test]
async fn what_an_owner_leaves_behind_is_collected_in_background_and_foreground() {
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        let cluster = Cluster::start(&[]).await;
        let maps = family(&cluster).await;
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        maps.delete("parent", &params).await.unwrap();
        let maps = &maps;
        cluster.wait("an empty list", || async move { left(maps).await.is_empty().then_some(()) }).await;
    }
}

#[tokio::test]
async fn orphans_stay_and_forget_their_owner() {
    let cluster = Cluster::start(&[]).await;
    let maps = family(&cluster).await;
    let params = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    maps.delete("parent", &params).await.unwrap();
    let maps = &maps;
    cluster.wait("the end of the parent", || async move { (left(maps).await.len() == 2).then_some(()) }).await;
    let child = maps.get("child").await.unwrap();
    assert_eq!(child.metadata.owner_references.unwrap_or_default(), []);
}

#[tokio::test]
async fn a_namespace_has_an_account_and_ends_with_all_that_it_holds() {
    let cluster = Cluster::start(&["node-a"]).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespace = json!({ "metadata": { "name": "team" } });
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "team");
    let accounts = &accounts;
    cluster.wait("an account", || async move { accounts.get_opt("default").await.unwrap() }).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "team");
    let pod =
        json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "main", "image": "busybox" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let (namespaces, pods) = (&namespaces, &pods);
    cluster
        .wait("the end of the namespace", || async move {
            namespaces.get_opt("team").await.unwrap().is_none().then_some(())
        })
        .await;
    assert!(pods.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_job_runs_to_its_end() {
    let cluster = Cluster::start(&["node-a"]).await;
    let template =
        json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] } });
    let spec = json!({ "completions": 3, "parallelism": 2, "template": template });
    cluster.create::<Job>(json!({ "metadata": { "name": "work" }, "spec": spec })).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let jobs: Api<Job> = Api::default_namespaced(cluster.client.clone());
    let (pods, jobs) = (&pods, &jobs);
    cluster
        .wait("the end of the job", || async move {
            for pod in pods.list(&ListParams::default()).await.unwrap() {
                if pod.status.as_ref()?.phase.as_deref() == Some("Running") {
                    let end = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
                    let _ = pods.patch_status(&pod.metadata.name?, &PatchParams::default(), &end).await;
                }
            }
            let status = jobs.get("work").await.unwrap().status?;
            let complete = status.conditions?.into_iter().any(|c| c.type_ == "Complete" && c.status == "True");
            complete.then(|| assert_eq!(status.succeeded, Some(3)))
        })
        .await;
}

#[tokio::test]
async fn the_volume_of_a_deleted_claim_waits_for_the_node_to_remove_its_folder() {
    let cluster = Cluster::start(&["node-a"]).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    cluster
        .create::<PersistentVolumeClaim>(json!({
            "metadata": { "name": "data", "annotations": { "volume.kubernetes.io/selected-node": "node-a" } },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        }))
        .await;
    let (claims, volumes) = (&claims, &volumes);
    let name = cluster
        .wait("a bound claim", || async move {
            let claim = claims.get("data").await.unwrap();
            let is_bound = claim.status?.phase? == "Bound";
            claim.spec?.volume_name.filter(|_| is_bound)
        })
        .await;
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    let name = &name;
    let permitted = cluster
        .wait("the permission to remove the folder", || async move {
            let volume = volumes.get(name).await.unwrap();
            coregent_apiserver::controllers::volumes::may_remove_folder(&volume).then_some(volume)
        })
        .await;
    assert_eq!(permitted.status.unwrap().phase.as_deref(), Some("Released"));
    // What the node does once the folder is gone.
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    volumes.patch(name, &PatchParams::default(), &none).await.unwrap();
    assert!(volumes.get_opt(name).await.unwrap().is_none());
}
