//! Two operators at once, as after an installation in two namespaces, perhaps of two versions.

use crate::plane::{Plane, run};
use coregent_operator::Options;
use kube::ResourceExt;
use serde_json::json;
use std::time::Duration;

/// An operator that elects itself in a namespace, with an image of its own: what one version renders differs from what
/// another does.
fn of(namespace: &str, image: &str) -> Options {
    Options { leader_election: Some(namespace.into()), image: Some(image.into()), ..Options::default() }
}

impl Plane {
    /// The image that members are rendered with, and the uids of their pods.
    async fn rendered(&self) -> (String, Vec<String>) {
        let sets: kube::Api<coregent_api::ReplicatedStateMachine> = kube::Api::default_namespaced(self.client.clone());
        let text = serde_json::to_string(&sets.get("orders").await.unwrap().spec).unwrap();
        let image = ["coregent:old", "coregent:new"].into_iter().find(|image| text.contains(image)).unwrap();
        let pods = self.pods().list(&kube::api::ListParams::default()).await.unwrap();
        let mut uids: Vec<String> = pods.items.iter().filter_map(ResourceExt::uid).collect();
        uids.sort();
        (image.to_owned(), uids)
    }
}

#[test]
fn of_two_installations_only_the_first_works_and_the_other_takes_over_without_a_restart_of_any_pod() {
    run(async {
        let mut plane = Plane::bare(1, 1).await;
        plane.start_operator_with(of("default", "coregent:old"));
        plane.create_cluster(json!({})).await;
        plane.wait_ready(3).await;
        let before = plane.rendered().await;
        plane.start_operator_with(of("kube-system", "coregent:new"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(plane.rendered().await, before, "the second waits");
        let idle = plane.server_version().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        // Leases are renewed, and nothing else is written: four of members, two of operators, once or so a second.
        let writes = plane.server_version().await - idle;
        assert!(writes < 600, "{writes} writes in a minute");
        let first = plane.take_operator("operator-1");
        first.kill();
        plane
            .wait(
                "the other to render",
                |plane| async move { (plane.rendered().await.0 == "coregent:new").then_some(()) },
            )
            .await;
        plane.wait_ready(3).await;
        assert_eq!(plane.rendered().await.1, before.1, "no pod was restarted");
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
    });
}

#[test]
fn one_that_works_gives_way_to_one_of_an_earlier_namespace() {
    run(async {
        let mut plane = Plane::bare(1, 1).await;
        plane.start_operator_with(of("kube-system", "coregent:old"));
        plane.create_cluster(json!({})).await;
        plane.wait_ready(3).await;
        plane.start_operator_with(of("default", "coregent:new"));
        plane
            .wait(
                "the first to render",
                |plane| async move { (plane.rendered().await.0 == "coregent:new").then_some(()) },
            )
            .await;
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(plane.rendered().await.0, "coregent:new");
        }
        plane.wait_ready(3).await;
    });
}

impl Plane {
    /// The newest resourceVersion: how much has been written.
    async fn server_version(&self) -> u64 {
        let list = self.pods().list(&kube::api::ListParams::default()).await.unwrap();
        list.metadata.resource_version.unwrap().parse().unwrap()
    }
}
