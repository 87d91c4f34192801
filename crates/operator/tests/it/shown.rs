//! What a person reads in the status about what is not as asked.

use crate::plane::{Plane, run};
use coregent_api::conditions::{self, find};
use coregent_api::database::Phase;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

impl Plane {
    /// The condition `kind`, once its status is `status`.
    pub async fn condition(&self, kind: &str, status: &str) -> Condition {
        self.wait(&format!("{kind}={status}"), |plane| async move {
            let conditions = plane.cluster().await.status?.conditions;
            find(&conditions, kind).filter(|condition| condition.status == status).cloned()
        })
        .await
    }

    /// What the node says of the address of `service`.
    async fn served(&self, service: &str, status: &str, message: &str) {
        let said = json!({"status": {"conditions": [{"type": conditions::SERVED, "status": status, "reason": "Any",
            "message": message, "lastTransitionTime": "2026-11-30T10:00:00Z"}]}});
        let services: Api<Service> = Api::default_namespaced(self.client.clone());
        services.patch_status(service, &PatchParams::default(), &Patch::Merge(&said)).await.unwrap();
    }
}

#[test]
fn an_address_that_is_not_served_is_no_readiness_and_says_what_to_do() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        plane.condition(conditions::READY, "True").await;
        for service in ["orders", "orders-replica"] {
            plane.served(service, "False", "cannot listen on 127.64.0.180:5432: Address already in use").await;
            let said = plane.condition(conditions::ADDRESS_UNAVAILABLE, "True").await.message;
            assert!(said.starts_with(&format!("Service {service}: cannot listen on 127.64.0.180:5432")), "{said}");
            assert!(said.contains("stop what uses that port"), "{said}");
            assert_eq!(plane.condition(conditions::READY, "False").await.message, said);
            assert_eq!(plane.cluster().await.status.unwrap().phase, Some(Phase::Degraded));
            plane.served(service, "True", "").await;
            plane.condition(conditions::READY, "True").await;
            plane.condition(conditions::ADDRESS_UNAVAILABLE, "False").await;
        }
    });
}

#[test]
fn a_lowered_number_of_replicas_removes_nobody_weakens_nothing_and_says_so() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        let scaled = json!({"spec": {"replicas": 1}});
        plane.clusters().patch("orders", &PatchParams::default(), &Patch::Merge(&scaled)).await.unwrap();
        let said = plane.condition(conditions::SURPLUS_MEMBERS, "True").await.message;
        assert!(said.contains("all 3 members go on (orders-1, orders-2, orders-3)"), "{said}");
        plane.condition(conditions::READY, "True").await;
        assert_eq!(plane.cluster().await.status.unwrap().ready.as_deref(), Some("3/3"));
        // A write waits for another member as before: the death of the primary loses nothing.
        assert_eq!(plane.write_until_acknowledged(1).await, "orders-1");
        plane.net.kill_engine("orders-1");
        let next = plane.write_until_acknowledged(2).await;
        assert!(plane.net.rows(&next).is_superset(&[1, 2].into()));
        plane.wait_ready(3).await;
        let pods = plane.pods().get("orders-2-0").await.unwrap();
        let env = pods.spec.unwrap().containers.remove(0).env.unwrap_or_default();
        let mode = env.into_iter().find(|one| one.name == "COREGENT_REPLICATION_MODE").unwrap().value;
        assert_eq!(mode.as_deref(), Some("Quorum"));
        let raised = json!({"spec": {"replicas": 3}});
        plane.clusters().patch("orders", &PatchParams::default(), &Patch::Merge(&raised)).await.unwrap();
        plane.condition(conditions::SURPLUS_MEMBERS, "False").await;
    });
}

#[test]
fn a_frozen_replica_is_not_shown_as_ready() {
    run(async {
        let plane = Plane::with_cluster(json!({})).await;
        plane.net.freeze("orders-3");
        let frozen = plane
            .wait("the frozen member not to be ready", |plane| async move {
                let members = plane.cluster().await.status?.members;
                members.into_iter().find(|member| member.name == "orders-3" && !member.ready)
            })
            .await;
        assert_eq!(frozen.state.as_deref(), Some("NotAnswering"));
        assert!(plane.condition(conditions::MEMBER_FAILED, "True").await.message.contains("does not answer"));
        plane.net.thaw("orders-3");
        plane.wait_ready(3).await;
    });
}
