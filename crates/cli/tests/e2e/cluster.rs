//! A real cluster instead of the embedded plane, for the same test code: with `COREGENT_E2E_KUBECONFIG` in the environment
//! [`crate::plane::Plane::up`] gives the cluster that the file is of. The operator must be installed there, and its nodes
//! must be on this machine where a test kills processes (`make test-cluster` sees to both).

use crate::plane::{PATIENCE, Plane};
use coregent_api::{DatabaseCluster, labels};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use std::path::PathBuf;
use std::time::Duration;

/// The kubeconfig of the cluster, where one is named.
pub fn kubeconfig() -> Option<PathBuf> {
    std::env::var_os("COREGENT_E2E_KUBECONFIG").filter(|file| !file.is_empty()).map(PathBuf::from)
}

/// Removes every database of the default namespace with its data, and waits until nothing of it runs: what an earlier
/// test left there must not be taken over by the next one under the same name.
pub fn clear(plane: &Plane) {
    // Tests call this from within a runtime and from `drop`.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let gone = tokio::time::timeout(PATIENCE, remove(plane.client().await)).await;
                gone.expect("the databases of the namespace go");
            });
        });
    });
}

async fn remove(client: kube::Client) {
    let (all, now) = (ListParams::default(), DeleteParams::default());
    let clusters: Api<DatabaseCluster> = Api::default_namespaced(client.clone());
    clusters.delete_collection(&now, &all).await.expect("the databases can be deleted");
    let ours = ListParams::default().labels(labels::CLUSTER);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client);
    // A claim goes once no pod uses it.
    while !pods.list(&ours).await.expect("the pods").items.is_empty() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    claims.delete_collection(&now, &ours).await.expect("the claims can be deleted");
    while !claims.list(&ours).await.expect("the claims").items.is_empty() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
