//! Planned hand-overs, and their undoing.

use crate::plane::{Plane, run};
use coregent_apiserver::faults::Outage;
use serde_json::json;

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

#[test]
fn a_switchover_hands_over_to_the_member_asked_for_and_loses_nothing() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        plane.switch_over("r1", Some("orders-3")).await;
        assert_eq!(answer(&plane, "r1").await, "r1");
        assert_eq!(plane.settled_primary().await, "orders-3");
        assert!(plane.net.rows("orders-3").contains(&1));
        plane.wait_ready(3).await;
        assert_eq!(plane.labelled().await, ["orders-3-0"]);
        plane.switch_over("r2", None).await;
        assert_eq!(answer(&plane, "r2").await, "r2");
        assert_ne!(plane.settled_primary().await, "orders-3");
    });
}

#[test]
fn a_switchover_to_the_primary_is_refused_with_the_reason() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        plane.switch_over("r1", Some("orders-1")).await;
        assert!(answer(&plane, "r1").await.contains("is the primary already"));
        assert_eq!(plane.epoch().await, 1);
    });
}

#[test]
fn a_target_that_dies_in_the_middle_leaves_the_old_primary_writing() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        plane.net.freeze("orders-2");
        plane.switch_over("r1", Some("orders-2")).await;
        plane.wait("the hand-over to begin", |plane| async move { (plane.epoch().await > 1).then_some(()) }).await;
        plane.kill_member_for_good("orders-2");
        assert_eq!(plane.write_until_acknowledged(2).await, "orders-1");
        let answer = answer(&plane, "r1").await;
        assert!(answer.starts_with("r1: ") && answer.contains("orders-1 is primary"), "{answer}");
    });
}

#[test]
fn a_target_that_never_takes_over_is_given_up_within_six_seconds() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        plane.ground.faults_of("orders-2").begin_outage(Outage::Refused);
        plane.switch_over("r1", Some("orders-2")).await;
        assert!(answer(&plane, "r1").await.starts_with("r1: "));
        assert_eq!(plane.settled_primary().await, "orders-1");
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
    });
}
