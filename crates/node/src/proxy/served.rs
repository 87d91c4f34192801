//! Whether a Service's addresses are listened on, as a condition of the Service: an event ages away, and whoever hands the
//! address out has to know.

use super::Routes;
use crate::node::Node;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The condition. `False` names the address and why; absent where nobody was asked to listen yet, and on a cluster, where
/// Service addresses are no sockets.
pub const SERVED: &str = "coregent.io/Served";

/// How soon a write that failed is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// What the proxy found at its last look.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Where connections are to go.
    pub routes: Routes,
    /// Addresses that could not be listened on, and why.
    pub refused: BTreeMap<SocketAddr, String>,
}

/// Keeps the condition of every Service. Beside the proxy: no connection waits for a write.
pub(super) async fn run(node: Arc<Node>, mut found: watch::Receiver<Found>, shutdown: CancellationToken) {
    let mut services = node.services.changes();
    loop {
        let due: Vec<_> = {
            let found = found.borrow_and_update();
            let all = node.services.all();
            all.into_iter().filter_map(|service| changed(&service, &found).map(|said| (service, said))).collect()
        };
        let mut told = true;
        for (service, condition) in due {
            told &= write(&node, &service, condition).await;
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = services.changed() => {}
            Ok(()) = found.changed() => {}
            () = tokio::time::sleep(WRITE_AGAIN), if !told => {}
        }
    }
}

/// Whether it was written.
async fn write(node: &Node, service: &Service, condition: Condition) -> bool {
    let api: Api<Service> = Api::namespaced(node.client.clone(), &service.namespace().unwrap_or_default());
    let others = conditions(service).iter().filter(|c| c.type_ != SERVED).cloned();
    let conditions: Vec<Condition> = others.chain([condition]).collect();
    // On the very version that was looked at, since the list is written as a whole.
    let patch = json!({
        "metadata": {"resourceVersion": service.resource_version(), "uid": service.uid()},
        "status": {"conditions": conditions},
    });
    let name = service.name_any();
    let answer = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    answer.inspect_err(|error| tracing::debug!(service = name, "whether it is served was not written: {error}")).is_ok()
}

fn conditions(service: &Service) -> &[Condition] {
    service.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// The condition as it has to be written; `None` where it says so already or there is nothing to say.
fn changed(service: &Service, found: &Found) -> Option<Condition> {
    let ip: IpAddr = service.spec.as_ref()?.cluster_ip.as_deref()?.parse().ok()?;
    let why: Vec<&str> =
        found.refused.iter().filter(|(address, _)| address.ip() == ip).map(|(_, why)| why.as_str()).collect();
    let listened = found.routes.iter().any(|(address, targets)| address.ip() == ip && !targets.is_empty());
    let before = conditions(service).iter().find(|condition| condition.type_ == SERVED);
    let (status, reason, message) = match (why.is_empty(), listened) {
        (false, _) => ("False", "ListenFailed", why.join("; ")),
        (true, true) => ("True", "Listening", String::new()),
        // Without an endpoint nobody listens, which is as it should be: what was said last stands.
        (true, false) => return None,
    };
    if before.is_some_and(|before| before.status == status && before.message == message) {
        return None;
    }
    let since = before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    Some(Condition {
        type_: SERVED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: None,
        last_transition_time: since.unwrap_or_else(|| Time(jiff::Timestamp::now())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> SocketAddr {
        "127.64.0.180:5432".parse().unwrap()
    }

    fn said(status: &str, message: &str) -> serde_json::Value {
        json!({"conditions": [{"type": SERVED, "status": status, "reason": "Any", "message": message,
            "lastTransitionTime": "2026-11-30T10:00:00Z"}]})
    }

    /// What is written of a Service that said `before`, with an endpoint or not, its address refused or not.
    fn check(before: serde_json::Value, endpoint: bool, refusal: Option<&str>) -> Option<String> {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "db"}, "spec": {"clusterIP": "127.64.0.180"}, "status": before,
        }))
        .unwrap();
        let targets = if endpoint { vec!["127.64.0.2:5432".parse().unwrap()] } else { vec![] };
        let routes = Routes::from([(address(), targets)]);
        let refused = refusal.map(|why| (address(), why.to_owned())).into_iter().collect();
        changed(&service, &Found { routes, refused })
            .map(|condition| format!("{} {}", condition.status, condition.message))
    }

    #[test]
    fn a_service_says_whether_it_is_served_and_only_when_that_changes() {
        let (nothing, good, bad) = (json!({}), said("True", ""), said("False", "taken"));
        let table = [
            (nothing.clone(), true, None, Some("True ")),
            (nothing.clone(), false, None, None),
            (nothing, true, Some("taken"), Some("False taken")),
            (good.clone(), true, None, None),
            (good.clone(), false, None, None),
            (good, true, Some("taken"), Some("False taken")),
            (bad.clone(), true, Some("taken"), None),
            (bad.clone(), true, Some("denied"), Some("False denied")),
            (bad.clone(), false, None, None),
            (bad, true, None, Some("True ")),
        ];
        for (before, endpoint, refusal, expected) in table {
            let given = format!("{before} {endpoint} {refusal:?}");
            assert_eq!(check(before, endpoint, refusal).as_deref(), expected, "{given}");
        }
    }
}
