//! Who leads the controllers, as `coregent status` reads it: the operator's Lease, where no operator has led yet.

use coregent_operator::leader::LEASE;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use kube::{Client, ResourceExt};

const NAMESPACE: &str = "default";

/// Controllers that live and die with the API need no Lease, and one that an operator of another day left behind would
/// say that nobody leads. Where they are left out, a Lease that nobody holds says so until one does. Best effort: only
/// a warning depends on it.
pub async fn announce(client: &Client, within: bool) {
    let done = if within { remove_left_behind(client).await } else { leave_vacant(client).await };
    if let Err(error) = done {
        tracing::warn!(%error, "cannot say in the operator's Lease who leads");
    }
}

async fn remove_left_behind(client: &Client) -> kube::Result<()> {
    let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    for lease in Api::<Lease>::all(client.clone()).list(&named).await? {
        let api: Api<Lease> = Api::namespaced(client.clone(), &lease.namespace().unwrap_or_default());
        // Somebody who renews it just now keeps it.
        let seen = Preconditions { uid: lease.uid(), resource_version: lease.resource_version() };
        let unchanged = DeleteParams { preconditions: Some(seen), ..DeleteParams::default() };
        match api.delete(LEASE, &unchanged).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            deleted => drop(deleted?),
        }
    }
    Ok(())
}

async fn leave_vacant(client: &Client) -> kube::Result<()> {
    let metadata = ObjectMeta { name: Some(LEASE.into()), ..ObjectMeta::default() };
    let vacant = Lease { metadata, spec: None };
    match Api::<Lease>::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &vacant).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(|_| ()),
    }
}
