//! The folders of PersistentVolumes (failover.md F14).

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    fixture::{self, World, phase},
    tests,
};

tests![
    a_deleted_volume_goes_with_its_folder_and_an_unknown_folder_is_set_aside_whole,
    a_folder_that_was_there_and_is_missing_is_a_loss_and_not_a_beginning,
];

/// A claim `data` that is bound to the volume `pv-1`, and a pod that writes into it.
async fn use_claim(world: &World) {
    let path = world.data_dir.join("volumes/pv-1");
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let volume = json!({"metadata": {"name": "pv-1", "finalizers": [coregent_node::FOLDER_FINALIZER]}, "spec": {
        "hostPath": {"path": path}, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete", "claimRef": {"namespace": "default", "name": "data"}}});
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    world
        .create::<PersistentVolumeClaim>(json!({"metadata": {"name": "data"}, "spec": {"volumeName": "pv-1",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))
        .await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(world.client.clone());
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    claims.patch_status("data", &PatchParams::default(), &bound).await.unwrap();
    writer(world, "p").await;
    world.until("p", "success", |s| phase(s) == "Succeeded").await;
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.until_gone("p").await;
}

async fn writer(world: &World, name: &str) {
    let main = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", "echo x >/data/f"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    world.pod(name, json!({"restartPolicy": "Never", "containers": [main], "volumes": volumes})).await;
}

fn a_deleted_volume_goes_with_its_folder_and_an_unknown_folder_is_set_aside_whole() {
    fixture::run(|world| async move {
        let unknown = world.data_dir.join("volumes/of-another-store");
        std::fs::create_dir_all(&unknown).unwrap();
        use_claim(&world).await;
        let folder = world.data_dir.join("volumes/pv-1");
        assert!(folder.join("f").exists());
        let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
        volumes.delete("pv-1", &DeleteParams::default()).await.unwrap();
        let gone = kube::runtime::wait::await_condition(volumes, "pv-1", |v: Option<&PersistentVolume>| v.is_none());
        gone.await.unwrap();
        assert!(!folder.exists());
        assert!(unknown.exists());
        std::fs::write(unknown.join("f"), "kept").unwrap();
        let moved = coregent_node::set_aside_unknown(&world.client, &world.data_dir, "n").await.unwrap();
        let target = world.data_dir.join("orphaned/of-another-store");
        assert_eq!(moved, [(unknown, target.clone())]);
        assert_eq!(std::fs::read_to_string(target.join("f")).unwrap(), "kept");
    });
}

fn a_folder_that_was_there_and_is_missing_is_a_loss_and_not_a_beginning() {
    fixture::run(|world| async move {
        use_claim(&world).await;
        let folder = world.data_dir.join("volumes/pv-1");
        std::fs::remove_dir_all(&folder).unwrap();
        writer(&world, "q").await;
        let pod = world
            .until("q", "explanation", |s| {
                s.conditions.iter().flatten().any(|c| c.message.as_deref().is_some_and(|m| m.contains("is missing")))
            })
            .await;
        assert_eq!(phase(pod.status.as_ref().unwrap()), "Pending");
        assert!(!folder.exists());
    });
}
