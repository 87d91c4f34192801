//! Whether somebody keeps the picture true: what the operator's own Lease says.

use crate::output::age;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

/// Renewed every second by whoever leads; so long without it is no busy machine and no clock that is a little off.
const SILENT: i64 = 30;

/// A warning when no operator leads: a primary that is long dead would still be drawn as one. `None` as well when the
/// Leases may not be read.
pub async fn warning(client: &Client) -> Option<String> {
    let field = format!("metadata.name={}", coregent_operator::leader::LEASE);
    let list = Api::<Lease>::all(client.clone()).list(&ListParams::default().fields(&field)).await.ok()?;
    judge(&list.items, Timestamp::now())
}

/// Controllers within `coregent up` have no Lease: they end with the API itself.
fn judge(leases: &[Lease], now: Timestamp) -> Option<String> {
    let lease = leases.iter().max_by_key(|lease| renewed(lease))?;
    let since = match renewed(lease).map(|time| now.duration_since(time).as_secs()) {
        Some(seconds) if seconds < SILENT => return None,
        Some(seconds) => format!("no operator has renewed its Lease for {}", age(seconds)),
        None => "no operator has led yet".to_owned(),
    };
    let namespace = lease.namespace().unwrap_or_default();
    Some(format!(
        "{since}: nobody fails over, and this picture is as old as that; see to `coregent operator` (pods in namespace {namespace})"
    ))
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(spec: serde_json::Value) -> Lease {
        let name = coregent_operator::leader::LEASE;
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "coregent-system"}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn a_lease_that_nobody_renews_is_told_and_no_lease_is_not() {
        let now = "2026-11-30T10:03:20Z".parse().unwrap();
        let at = |time: &str| lease(json!({"holderIdentity": "a", "renewTime": time}));
        let table = [
            (vec![], None),
            (vec![at("2026-11-30T10:03:00.000000Z")], None),
            (vec![at("2026-11-30T10:03:21.000000Z")], None),
            (vec![at("2026-11-30T09:00:00.000000Z"), at("2026-11-30T10:03:19.000000Z")], None),
            (vec![at("2026-11-30T10:00:00.000000Z")], Some("no operator has renewed its Lease for 3m20s: ")),
            (vec![lease(json!({}))], Some("no operator has led yet: ")),
        ];
        for (leases, expected) in table {
            let said = judge(&leases, now);
            match expected {
                None => assert_eq!(said, None, "{leases:?}"),
                Some(begin) => assert!(said.as_ref().is_some_and(|said| said.starts_with(begin)), "{said:?}"),
            }
        }
    }
}
