//! Long days of the whole control plane on a virtual clock: outages of the API, operators that come and go, watches
//! that are lost, and days on which nothing happens.

use crate::plane::{Plane, run};
use coregent_apiserver::faults::{Faults, Outage};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Everything is well again within this virtual time after a disturbance of minutes: kube's watches come back after at
/// most 30 s, and nothing waits longer than a minute between two tries.
const RECOVERY: Duration = Duration::from_secs(120);

impl Plane {
    async fn wait_whole(&self) {
        self.wait_within(RECOVERY, "everything to be well again", |plane| plane.is_whole(3)).await;
    }

    /// Who leads the operators.
    async fn leader(&self) -> Option<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "default");
        let lease = leases.get_opt("coregent-operator").await.unwrap()?;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }

    async fn wait_leader(&self, wanted: impl Fn(&str) -> bool) -> String {
        self.wait("a leader", |plane| {
            let wanted = &wanted;
            async move { plane.leader().await.filter(|leader| wanted(leader)) }
        })
        .await
    }

    /// How many objects there are of each kind.
    async fn objects(&self) -> BTreeMap<String, usize> {
        let discovery = Discovery::new(self.client.clone()).run().await.unwrap();
        let kinds: Vec<ApiResource> = discovery
            .groups()
            .flat_map(|group| group.recommended_resources())
            .filter(|(_, capabilities)| capabilities.supports_operation(verbs::LIST))
            .map(|(resource, _)| resource)
            .collect();
        let mut counts = BTreeMap::new();
        for kind in kinds {
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
            let count = api.list(&ListParams::default()).await.unwrap().items.len();
            counts.insert(format!("{}/{}", kind.api_version, kind.plural), count);
        }
        counts
    }
}

/// «A reconcile that changes nothing writes nothing»: over hours only Leases are renewed, and nothing piles up.
#[test]
fn in_hours_of_quiet_nothing_is_written_but_renewals_and_nothing_piles_up() {
    run(async {
        let mut plane = Plane::bare(1, 3).await;
        plane.start_candidate();
        plane.start_candidate();
        plane.create_cluster(json!({})).await;
        plane.wait_whole().await;
        // Reports of the last copy, events and their like come to rest; then the events of the beginning expire.
        tokio::time::sleep(5 * MINUTE).await;
        drop(plane.journal.take_counts());
        let watches = |plane: &Plane| plane.all_faults().iter().map(Faults::open_watches).collect::<Vec<_>>();
        let (objects, open) = (plane.objects().await, watches(&plane));
        tokio::time::sleep(quiet()).await;
        let mut writes = plane.journal.take_counts();
        writes.retain(|(_, write), _| !is_renewal(write));
        assert!(writes.is_empty(), "{writes:#?}");
        assert_eq!(plane.objects().await, objects);
        assert_eq!(watches(&plane), open);
        assert_eq!(plane.epoch().await, 1);
        plane.assert_sound();
    });
}

/// A day takes minutes with the tests' unoptimised code, so that an ordinary run does with less.
fn quiet() -> Duration {
    let hours = std::env::var("COREGENT_QUIET_HOURS").ok().and_then(|hours| hours.parse().ok()).unwrap_or(1);
    hours * HOUR
}

fn is_renewal(write: &str) -> bool {
    ["PUT default/leases/orders-primary", "PUT default/leases/coregent-operator", "PATCH kube-node-lease/leases/n"]
        .iter()
        .any(|renewal| write.starts_with(renewal))
}

/// The API is away from everybody for minutes: the primary ends before its Lease does, and afterwards the same data is
/// served again without a copy, by whoever is chosen.
fn nobody_reaches_the_api_for_minutes(outage: Outage) {
    run(async move {
        let plane = Plane::with_cluster(json!({})).await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        plane.all_faults().iter().for_each(|faults| faults.begin_outage(outage));
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(plane.net.primaries().is_empty(), "a holder that cannot renew is stopped before its Lease is over");
        tokio::time::sleep(7 * MINUTE).await;
        plane.all_faults().iter().for_each(Faults::end_outage);
        plane.wait_whole().await;
        let primary = plane.write_until_acknowledged(2).await;
        assert!(plane.net.rows(&primary).contains(&1));
        let members = plane.net.all();
        assert_eq!(members.values().map(|member| member.inits).sum::<u32>(), 1);
        assert_eq!(members.values().map(|member| member.copies).sum::<u32>(), 2, "no fresh copy was needed");
        assert_eq!(plane.pods().list(&ListParams::default()).await.unwrap().items.len(), 3);
    });
}

#[test]
fn after_minutes_without_an_api_that_refuses_the_same_data_is_served_again() {
    nobody_reaches_the_api_for_minutes(Outage::Refused);
}

#[test]
fn after_minutes_without_an_api_that_is_silent_the_same_data_is_served_again() {
    nobody_reaches_the_api_for_minutes(Outage::Silent);
}

/// Agents need no operator: while it is cut off the primary serves; a failover that falls due is made up for.
#[test]
fn an_operator_that_was_cut_off_for_minutes_makes_up_for_a_failover() {
    run(async {
        let mut plane = Plane::bare(1, 1).await;
        let operator = plane.start_operator();
        plane.create_cluster(json!({})).await;
        plane.wait_whole().await;
        for outage in [Outage::Refused, Outage::Silent] {
            operator.begin_outage(outage);
            tokio::time::sleep(3 * MINUTE).await;
            let before = plane.net.primaries();
            assert_eq!(before.len(), 1, "the primary serves without an operator");
            plane.net.kill_engine(before[0].as_str());
            tokio::time::sleep(3 * MINUTE).await;
            operator.end_outage();
            plane.wait_whole().await;
        }
        plane.write_until_acknowledged(1).await;
    });
}

/// A node that cannot speak to the API for minutes is called silent, and speaks up afterwards; its members' agents have
/// their own way to the API and go on.
#[test]
fn a_node_that_was_silent_for_minutes_is_ready_again_and_no_primary_has_moved() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        plane.host("n1").begin_outage(Outage::Silent);
        tokio::time::sleep(3 * MINUTE).await;
        plane.host("n1").end_outage();
        plane.wait_whole().await;
        assert_eq!(plane.epoch().await, 1);
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
    });
}

/// All watches of all clients break every few seconds, a failover under way or not.
#[test]
fn watches_that_break_again_and_again_delay_and_lose_nothing() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        for row in 1..=3 {
            for _ in 0..5 {
                plane.all_faults().iter().for_each(Faults::cut_watches);
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
            let primary = plane.settled_primary().await;
            plane.net.kill_engine(&primary);
            for _ in 0..5 {
                plane.all_faults().iter().for_each(Faults::cut_watches);
                tokio::time::sleep(Duration::from_millis(700)).await;
            }
            plane.write_until_acknowledged(row).await;
            plane.wait_whole().await;
        }
        let primary = plane.settled_primary().await;
        assert!(plane.net.rows(&primary).is_superset(&[1, 2, 3].into()));
    });
}

/// Two operators: one leads; killed, it is followed once its Lease has run out; told to end, at once. Neither a
/// failover nor a switchover under way is lost.
#[test]
fn an_operator_is_followed_by_the_other_in_the_middle_of_a_failover_and_of_a_switchover() {
    run(async {
        let mut plane = Plane::bare(1, 1).await;
        plane.start_candidate();
        let first = plane.wait_leader(|_| true).await;
        plane.start_candidate();
        plane.create_cluster(json!({})).await;
        plane.wait_whole().await;
        assert_eq!(plane.leader().await.as_ref(), Some(&first), "a second operator changes nothing");

        let before = plane.write_until_acknowledged(1).await;
        plane.net.kill_engine(&before);
        plane.wait("the failover to begin", |plane| async move { (plane.epoch().await > 1).then_some(()) }).await;
        plane.take_operator(&first).kill();
        let second = plane.wait_leader(|leader| leader != first).await;
        plane.wait_whole().await;
        let next = plane.write_until_acknowledged(2).await;
        assert!(plane.net.rows(&next).contains(&1));

        plane.start_candidate();
        let epoch = plane.epoch().await;
        plane.switch_over("r1", None).await;
        plane.wait("the hand-over to begin", |plane| async move { (plane.epoch().await > epoch).then_some(()) }).await;
        let told = tokio::time::Instant::now();
        plane.take_operator(&second).stop().await;
        plane.wait_leader(|leader| leader != second).await;
        assert!(told.elapsed() < Duration::from_secs(5), "a leader that is told to end gives its Lease back");
        plane.wait_whole().await;
        assert!(plane.net.rows(&plane.settled_primary().await).is_superset(&[1, 2].into()));
    });
}

/// A leader that cannot reach the API stops by itself before another may lead, and follows once it can again.
#[test]
fn a_leader_that_is_cut_off_is_followed_and_never_works_beside_its_successor() {
    run(async {
        let mut plane = Plane::bare(1, 1).await;
        let faults = plane.start_candidate();
        let first = plane.wait_leader(|_| true).await;
        plane.start_candidate();
        plane.create_cluster(json!({})).await;
        plane.wait_whole().await;
        faults.begin_outage(Outage::Silent);
        plane.wait_leader(|leader| leader != first).await;
        let primary = plane.settled_primary().await;
        plane.net.kill_engine(&primary);
        plane.wait_whole().await;
        drop(plane.journal.take_counts());
        faults.end_outage();
        tokio::time::sleep(MINUTE).await;
        let mut writes = plane.journal.take_counts();
        writes.retain(|(by, _), _| **by == *first);
        assert!(writes.is_empty(), "it does not lead: {writes:#?}");
        plane.take_operator(&plane.leader().await.unwrap()).kill();
        plane.wait_leader(|leader| leader == first).await;
        let primary = plane.settled_primary().await;
        plane.net.kill_engine(&primary);
        plane.write_until_acknowledged(1).await;
        plane.wait_whole().await;
    });
}

/// A host loses power with the primary on it, and comes back much later.
#[test]
fn a_host_that_loses_power_is_survived_and_its_member_comes_back_with_its_data() {
    run(async {
        let mut plane = Plane::bare(1, 3).await;
        plane.start_operator();
        plane.create_cluster(json!({})).await;
        plane.wait_whole().await;
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        let pod = plane.pods().get("orders-1-0").await.unwrap();
        let host = pod.spec.unwrap().node_name.unwrap();
        plane.power_off(&host);
        let next = plane.write_until_acknowledged(2).await;
        assert_ne!(next, "orders-1");
        assert!(plane.net.rows(&next).contains(&1));
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(plane.net.primaries(), [next.as_str().into()]);
        plane.power_on(&host);
        plane.wait_whole().await;
        assert_eq!(plane.net.get("orders-1").copies, 0, "its own data was good enough");
    });
}
