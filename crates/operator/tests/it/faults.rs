//! A layer between the operator and the API that counts writes, loses answers and stops the operator at one write.

use crate::plane::Plane;
use coregent_apiserver::{ApiServer, UserInfo};
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tower::ServiceExt;

/// What happens to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never reaches the API, and no answer ever comes.
    Before,
    /// It is carried out, and no answer ever comes.
    After,
}

#[derive(Default)]
struct State {
    writes: usize,
    last: Option<Instant>,
    log: Vec<String>,
    stop_at: Option<(usize, Fault)>,
    stopped: bool,
    lose_odd: bool,
    seen: BTreeMap<String, usize>,
}

/// The handle of a test on the layer.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<State>>);

impl Faults {
    pub fn writes(&self) -> usize {
        self.0.lock().unwrap().writes
    }

    pub fn log(&self) -> Vec<String> {
        let state = self.0.lock().unwrap();
        state.log.iter().rev().take(20).cloned().collect()
    }

    pub fn quiet_for(&self, time: Duration) -> bool {
        self.0.lock().unwrap().last.is_some_and(|last| last.elapsed() >= time)
    }

    /// The operator stops at its `nth` write from now.
    pub fn stop_at(&self, nth: usize, fault: Fault) {
        let mut state = self.0.lock().unwrap();
        state.stop_at = Some((state.writes + nth, fault));
        state.stopped = false;
    }

    pub fn is_stopped(&self) -> bool {
        self.0.lock().unwrap().stopped
    }

    /// The first write to each object is carried out and answered with an error; of Leases and statuses, which are
    /// written again and again, every other one.
    pub fn lose_odd(&self) {
        self.0.lock().unwrap().lose_odd = true;
    }

    /// What is to happen to this request.
    fn judge(&self, request: &Request<Body>) -> (Option<Fault>, bool) {
        let is_event = request.uri().path().contains("/events");
        if request.method() == Method::GET || is_event {
            // A stopped process reads nothing either.
            return (self.is_stopped().then_some(Fault::Before), false);
        }
        let mut state = self.0.lock().unwrap();
        state.writes += 1;
        state.last = Some(Instant::now());
        let line = format!("{} {}", request.method(), request.uri());
        state.log.push(line.clone());
        let times = state.seen.entry(line).or_insert(0);
        *times += 1;
        let again = request.uri().path().contains("/leases") || request.uri().path().ends_with("/status");
        let odd = if again { *times % 2 == 1 } else { *times == 1 };
        if state.stopped {
            return (Some(Fault::Before), false);
        }
        let writes = state.writes;
        let stop = state.stop_at.filter(|(at, _)| *at == writes).map(|(_, fault)| fault);
        state.stopped |= stop.is_some();
        (stop, state.lose_odd && odd)
    }
}

/// A client of `server` with faults.
pub fn client(server: &ApiServer) -> (Client, Faults) {
    let faults = Faults::default();
    let router = server.service_as(UserInfo::admin());
    let of_layer = faults.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (router, faults) = (router.clone(), of_layer.clone());
        async move {
            let (fault, lost) = faults.judge(&request);
            if fault == Some(Fault::Before) {
                return std::future::pending().await;
            }
            let answer = router.oneshot(request.map(axum::body::Body::new)).await;
            if fault == Some(Fault::After) {
                return std::future::pending().await;
            }
            if lost {
                let body = axum::body::Body::from("the answer is lost");
                let mut response = Response::new(body);
                *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
                return Ok::<_, std::convert::Infallible>(response);
            }
            answer
        }
    });
    (Client::new(service, "default"), faults)
}

/// Bootstraps and fails over with every other answer of a write lost.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_delay_and_harm_nothing() {
    let mut plane = Plane::bare().await;
    let (client, faults) = client(&plane.server);
    faults.lose_odd();
    plane.start_operator(client);
    plane.create_cluster(json!({})).await;
    plane.wait_ready(3).await;
    assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
    plane.net.with("orders-1", |volume| volume.killed = true);
    plane.wait("the engine to stop", |plane| async move { plane.net.primaries().is_empty().then_some(()) }).await;
    let next = plane.write_until_acknowledged(2).await;
    assert!(plane.net.get(&next).data.unwrap().rows.contains(&1));
    plane.wait_ready(3).await;
    assert_eq!(plane.net.all().values().map(|volume| volume.inits).sum::<u32>(), 1);
}

/// Stops the operator at each write of a failover in turn, before it and after it with the answer lost, and starts
/// another: the failover is finished or undone, never stuck.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_dies_at_any_write_of_a_failover_is_followed_by_one_that_ends_it() {
    let mut plane = Plane::with_cluster(json!({})).await;
    plane.kill_operator();
    let mut row = 0;
    for fault in [Fault::Before, Fault::After] {
        for nth in 1.. {
            let (client, faults) = client(&plane.server);
            plane.start_operator(client);
            let primary = plane.settled_primary().await;
            plane.wait_ready(3).await;
            plane
                .wait("writes to cease", |_| async {
                    (faults.writes() == 0 || faults.quiet_for(Duration::from_millis(300))).then_some(())
                })
                .await;
            row += 1;
            assert_eq!(plane.write_until_acknowledged(row).await, primary);
            let epoch = u64::try_from(plane.epoch().await).unwrap();
            faults.stop_at(nth, fault);
            plane.net.with(&primary, |volume| volume.killed = true);
            plane
                .wait("the operator to stop, or the failover to end without it", |plane| {
                    let faults = faults.clone();
                    async move {
                        let status = plane.cluster().await.status?;
                        let reported =
                            status.primary.filter(|primary| primary.current.is_some()).and_then(|it| it.epoch);
                        // Whoever was chosen: the old primary itself may have been the only one with the last row.
                        let ended = status.blocking_operation.is_none() && reported.is_some_and(|now| now > epoch);
                        (faults.is_stopped() || ended).then_some(())
                    }
                })
                .await;
            let stopped = faults.is_stopped();
            plane.kill_operator();
            plane.start_operator(plane.client.clone());
            let before: std::collections::BTreeSet<u64> = (1..=row).collect();
            row += 1;
            let next = plane.write_until_acknowledged(row).await;
            assert!(plane.net.get(&next).data.unwrap().rows.is_superset(&before), "{fault:?} {nth}");
            plane.wait_ready(3).await;
            assert_eq!(plane.labelled().await.len(), 1, "{fault:?} {nth}");
            plane.kill_operator();
            if !stopped {
                assert!(nth > 5, "a failover has more writes than {nth}");
                break;
            }
        }
    }
}
