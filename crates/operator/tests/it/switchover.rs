//! Planned hand-overs, and their undoing.

use crate::plane::Plane;
use kube::api::{Patch, PatchParams};
use serde_json::json;

async fn request(plane: &Plane, id: &str, to: Option<&str>) {
    let request = json!({"id": id, "to": to}).to_string();
    let patch = json!({"metadata": {"annotations": {"coregent.io/switchover": request}}});
    plane.clusters().patch("orders", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn answer(plane: &Plane, id: &str) -> String {
    plane
        .wait("an answer", |plane| {
            let id = id.to_owned();
            async move {
                let status = plane.cluster().await.status?;
                let idle = status.blocking_operation.is_none();
                status.handled_request.filter(|handled| idle && handled.starts_with(&id))
            }
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switchover_hands_over_to_the_member_asked_for_and_loses_nothing() {
    let plane = Plane::with_cluster(json!({})).await;
    assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
    request(&plane, "r1", Some("orders-3")).await;
    assert_eq!(answer(&plane, "r1").await, "r1");
    assert_eq!(plane.settled_primary().await, "orders-3");
    assert!(plane.net.get("orders-3").data.unwrap().rows.contains(&1));
    plane.wait_ready(3).await;
    assert_eq!(plane.labelled().await, ["orders-3-0"]);
    request(&plane, "r2", None).await;
    assert_eq!(answer(&plane, "r2").await, "r2");
    assert_ne!(plane.settled_primary().await, "orders-3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switchover_to_the_primary_is_refused_with_the_reason() {
    let plane = Plane::with_cluster(json!({})).await;
    request(&plane, "r1", Some("orders-1")).await;
    assert!(answer(&plane, "r1").await.contains("is the primary already"));
    assert_eq!(plane.epoch().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_dies_in_the_middle_leaves_the_old_primary_writing() {
    let plane = Plane::with_cluster(json!({})).await;
    assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
    plane.net.with("orders-2", |volume| volume.frozen = true);
    request(&plane, "r1", Some("orders-2")).await;
    plane.wait("the hand-over to begin", |plane| async move { (plane.epoch().await > 1).then_some(()) }).await;
    plane.kill_member_for_good("orders-2").await;
    assert_eq!(plane.write_until_acknowledged(2).await, "orders-1");
    let answer = answer(&plane, "r1").await;
    assert!(answer.starts_with("r1: ") && answer.contains("orders-1 is primary"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_never_takes_over_is_given_up_within_six_seconds() {
    let plane = Plane::with_cluster(json!({})).await;
    plane.net.with("orders-2", |volume| volume.cut = true);
    request(&plane, "r1", Some("orders-2")).await;
    assert!(answer(&plane, "r1").await.starts_with("r1: "));
    assert_eq!(plane.settled_primary().await, "orders-1");
    assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
}
