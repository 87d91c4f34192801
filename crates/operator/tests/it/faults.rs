//! Answers of the operator's writes are lost, and the operator is killed at one write after the other.

use crate::plane::{Plane, run};
use coregent_apiserver::faults::{Asked, Fault, Faults};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The first write to each object is carried out and its answer lost; of Leases and statuses, which are written again and
/// again, every other one.
fn lose_odd(faults: &Faults) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    faults.script(move |asked: &Asked| {
        if !asked.is_write() || asked.is_event() {
            return None;
        }
        let times = seen.entry(asked.to_string()).or_default();
        *times += 1;
        let again = asked.resource == "leases" || asked.subresource.as_deref() == Some("status");
        let odd = if again { *times % 2 == 1 } else { *times == 1 };
        odd.then_some(Fault::AnswerLost)
    });
}

/// The client stops at its `nth` write from now, before or after it: nothing reaches the API any more. How many writes
/// it has come to.
fn stop_at(faults: &Faults, nth: usize, at: Fault) -> Arc<AtomicUsize> {
    let writes = Arc::new(AtomicUsize::new(0));
    let count = writes.clone();
    faults.script(move |asked: &Asked| {
        if asked.is_write() && !asked.is_event() && count.load(Ordering::Relaxed) < nth {
            let now = count.fetch_add(1, Ordering::Relaxed) + 1;
            return (now == nth).then_some(at);
        }
        // A stopped process reads nothing either.
        (count.load(Ordering::Relaxed) >= nth).then_some(Fault::Swallowed)
    });
    writes
}

/// Bootstraps and fails over with every other answer of a write lost.
#[test]
fn lost_answers_delay_and_harm_nothing() {
    run(async {
        let mut plane = Plane::bare(1, 1).await;
        lose_odd(&plane.start_operator());
        plane.create_cluster(json!({})).await;
        plane.wait_ready(3).await;
        plane.survives_its_first_primary().await;
        assert_eq!(plane.net.all().values().map(|member| member.inits).sum::<u32>(), 1);
    });
}

/// Stops the operator at each write of a failover in turn, before it and after it with the answer lost, and starts
/// another: the failover is finished or undone, never stuck.
#[test]
fn an_operator_that_dies_at_any_write_of_a_failover_is_followed_by_one_that_ends_it() {
    run(async {
        let mut plane = Plane::with_cluster(json!({})).await;
        plane.kill_operators();
        let mut row = 0;
        for fault in [Fault::Swallowed, Fault::Unanswered] {
            for nth in 1.. {
                let faults = plane.start_operator();
                let primary = plane.settled_primary().await;
                plane.wait_ready(3).await;
                // What it has begun comes to rest.
                tokio::time::sleep(std::time::Duration::from_secs(15)).await;
                row += 1;
                assert_eq!(plane.write_until_acknowledged(row).await, primary);
                let epoch = u64::try_from(plane.epoch().await).unwrap();
                let writes = stop_at(&faults, nth, fault);
                plane.net.kill_engine(&primary);
                let stopped = || writes.load(Ordering::Relaxed) >= nth;
                plane
                    .wait("the operator to stop, or the failover to end without it", |plane| {
                        let stopped = stopped();
                        async move {
                            let status = plane.cluster().await.status?;
                            let reported =
                                status.primary.filter(|primary| primary.current.is_some()).and_then(|it| it.epoch);
                            // Whoever was chosen: the old primary itself may have been the only one with the last row.
                            let ended = status.blocking_operation.is_none() && reported.is_some_and(|now| now > epoch);
                            (stopped || ended).then_some(())
                        }
                    })
                    .await;
                let stopped = stopped();
                plane.kill_operators();
                plane.start_operator();
                let before: std::collections::BTreeSet<u64> = (1..=row).collect();
                row += 1;
                let next = plane.write_until_acknowledged(row).await;
                assert!(plane.net.rows(&next).is_superset(&before), "{fault:?} {nth}");
                plane.wait_ready(3).await;
                assert_eq!(plane.labelled().await.len(), 1, "{fault:?} {nth}");
                plane.kill_operators();
                if !stopped {
                    assert!(nth > 5, "a failover has more writes than {nth}");
                    break;
                }
            }
        }
    });
}
