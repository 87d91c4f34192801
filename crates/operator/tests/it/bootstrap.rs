//! How a cluster begins, and that it begins once.

use crate::plane::{Plane, run};
use serde_json::json;

#[test]
fn a_cluster_comes_up_with_one_initdb_and_two_copies() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        let (inits, copies) = plane.net.all().values().fold((0, 0), |(i, c), v| (i + v.inits, c + v.copies));
        assert_eq!((inits, copies), (1, 2));
        assert_eq!(plane.labelled().await, ["orders-1-0"]);
        let status = plane.cluster().await.status.unwrap();
        assert_eq!(status.last_created_instance_index, Some(3));
        assert_eq!(status.system_id.as_deref(), Some("7000"));
        assert_eq!(status.primary.unwrap().epoch, Some(1));
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
    });
}

#[test]
fn a_cluster_that_rests_writes_nothing() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        // The last copy of a report into the status may still be under way.
        tokio::time::sleep(std::time::Duration::from_secs(30)).await;
        drop(plane.journal.take_counts());
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        let mut writes = plane.journal.take_counts();
        writes.retain(|(_, write), _| !write.contains("/leases/"));
        assert!(writes.is_empty(), "{writes:#?}");
    });
}

#[test]
fn a_named_secret_is_waited_for_by_name_and_the_cluster_goes_on_when_it_appears() {
    run(async {
        let plane = Plane::start().await;
        plane.create_cluster(json!({"superuserSecret": "mine"})).await;
        plane
            .wait("the condition that names the Secret", |plane| async move {
                let status = plane.cluster().await.status?;
                let waits = coregent_api::conditions::find(&status.conditions, "Waiting")?;
                (waits.status == "True" && waits.message.contains("\"mine\"")).then_some(())
            })
            .await;
        let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(json!({
            "metadata": {"name": "mine"}, "stringData": {"username": "postgres", "password": "x"},
        }))
        .unwrap();
        let secrets = kube::Api::default_namespaced(plane.client.clone());
        secrets.create(&kube::api::PostParams::default(), &secret).await.unwrap();
        plane.wait_ready(3).await;
    });
}

#[test]
fn a_spec_that_cannot_be_carried_out_is_refused_by_a_condition() {
    run(async {
        let plane = Plane::start().await;
        plane.create_cluster(json!({"config": {"listen_addresses": "*"}})).await;
        plane
            .wait("the condition that names the setting", |plane| async move {
                let status = plane.cluster().await.status?;
                let valid = coregent_api::conditions::find(&status.conditions, "SpecValid")?;
                (valid.status == "False" && valid.message.contains("spec.config.listen_addresses")).then_some(())
            })
            .await;
        assert_eq!(plane.pods().list(&kube::api::ListParams::default()).await.unwrap().items.len(), 0);
    });
}
