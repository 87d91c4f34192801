//! The death of a primary in its many forms.

use crate::plane::{Plane, run};
use coregent_apiserver::faults::Outage;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

#[test]
fn a_dead_engine_is_replaced_and_no_acknowledged_row_is_missing() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        plane.net.kill_engine("orders-1");
        plane.wait_for_silence().await;
        let next = plane.write_until_acknowledged(2).await;
        assert_ne!(next, "orders-1");
        assert!(plane.net.rows(&next).contains(&1));
        plane.wait_ready(3).await;
        assert_eq!(plane.labelled().await, [format!("{next}-0")]);
        let last = plane.cluster().await.status.unwrap().last_failover.unwrap();
        assert_eq!((last.from.as_deref(), last.to.as_deref()), (Some("orders-1"), Some(next.as_str())));
    });
}

#[test]
fn a_member_that_is_killed_whole_is_replaced_and_comes_back_as_a_replica() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        plane.kill_member("orders-1");
        let next = plane.write_until_acknowledged(2).await;
        assert!(plane.net.rows(&next).contains(&1));
        plane.wait_ready(3).await;
    });
}

#[test]
fn a_frozen_primary_is_killed_first_and_never_acknowledges_again() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        plane.net.freeze("orders-1");
        let next = plane.write_until_acknowledged(2).await;
        assert_ne!(next, "orders-1");
        plane.net.thaw("orders-1");
        assert!(!plane.net.primaries().contains(&"orders-1".into()));
        plane.wait_ready(3).await;
    });
}

#[test]
fn in_async_mode_a_crash_loses_nothing_although_nobody_else_had_the_last_row() {
    run(async {
        let plane = Plane::with_cluster(json!({"replication": {"mode": "Async"}})).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        for member in ["orders-2", "orders-3"] {
            plane.net.unlink(member);
        }
        assert_eq!(plane.write_until_acknowledged(2).await, "orders-1");
        plane.net.kill_engine("orders-1");
        plane.wait("the engine to stop", |plane| async move { (plane.epoch().await > 1).then_some(()) }).await;
        for member in ["orders-2", "orders-3"] {
            plane.net.link(member);
        }
        let next = plane.write_until_acknowledged(3).await;
        assert!(plane.net.rows(&next).is_superset(&[1, 2, 3].into()));
        plane.wait_ready(3).await;
        let last = plane.cluster().await.status.unwrap().last_failover.unwrap();
        assert_eq!(last.data_loss.unwrap().lossless, coregent_api::database::Lossless::True);
    });
}

#[test]
fn a_cluster_of_one_starts_in_place() {
    run(async {
        let plane = Plane::start().await;
        plane.create_cluster(json!({"replicas": 1})).await;
        plane.wait_ready(1).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        plane.net.kill_engine("orders-1");
        plane.wait_for_silence().await;
        assert_eq!(plane.write_until_acknowledged(2).await, "orders-1");
        plane.kill_member("orders-1");
        assert_eq!(plane.write_until_acknowledged(3).await, "orders-1");
        assert!(plane.net.rows("orders-1").is_superset(&[1, 2, 3].into()));
    });
}

#[test]
fn with_failover_switched_off_the_old_primary_starts_in_place() {
    run(async {
        let plane = Plane::with_cluster(json!({"failover": {"isDisabled": true}})).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        plane.net.kill_engine("orders-1");
        plane.wait_for_silence().await;
        assert_eq!(plane.write_until_acknowledged(2).await, "orders-1");
    });
}

#[test]
fn a_holder_that_nobody_can_reach_is_deposed_for_one_that_can_collect_acknowledgements() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        plane.net.unlink("orders-1");
        let next = plane.write_until_acknowledged(2).await;
        assert_ne!(next, "orders-1");
        assert!(plane.net.rows(&next).contains(&1));
        let last = plane.cluster().await.status.unwrap().last_failover.unwrap();
        assert_eq!(last.reason.as_deref(), Some("PrimaryShortOfAcknowledgements"));
    });
}

/// Nobody could stop it, and nobody need wait for whoever tries: its replicas' word is enough, whenever it renewed last.
#[test]
fn a_primary_whose_cable_is_pulled_is_replaced_without_a_wait_for_a_kill_that_nobody_can_carry_out() {
    for millis in [0, 300, 600, 900, 1_200] {
        run(async move {
            let plane = Plane::with_cluster(json!({})).await;
            assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
            let before = plane.lease().await.spec.unwrap().renew_time;
            plane
                .wait("a renewal", |plane| {
                    let before = before.clone();
                    async move { (plane.lease().await.spec?.renew_time != before).then_some(()) }
                })
                .await;
            tokio::time::sleep(Duration::from_millis(millis)).await;
            plane.net.unlink("orders-1");
            plane.ground.faults_of("orders-1").begin_outage(Outage::Silent);
            let pulled = Instant::now();
            plane
                .wait("another primary", |plane| async move {
                    plane.net.primaries().iter().any(|member| member.as_str() != "orders-1").then_some(())
                })
                .await;
            let pause = pulled.elapsed();
            // The receivers notice after 2 s, a connection that nothing comes back of is given 0.4 s.
            assert!(pause < Duration::from_secs(4), "{millis} ms after a renewal: {pause:?}");
        });
    }
}

#[test]
fn ten_failovers_in_a_row_lose_nothing() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        let mut acknowledged = Vec::new();
        for round in 0..10 {
            let primary = plane.settled_primary().await;
            acknowledged.push(round);
            assert_eq!(plane.write_until_acknowledged(round).await, primary);
            plane.net.kill_engine(&primary);
            plane.wait_for_silence().await;
            plane.write_until_acknowledged(100 + round).await;
            acknowledged.push(100 + round);
            plane.wait_ready(3).await;
        }
        let primary = plane.settled_primary().await;
        let rows = plane.net.rows(&primary);
        assert!(acknowledged.iter().all(|row| rows.contains(row)));
        assert_eq!(plane.net.all().values().map(|volume| volume.inits).sum::<u32>(), 1);
    });
}
