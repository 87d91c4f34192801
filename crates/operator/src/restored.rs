//! An older copy of the API's store was put back: said to every primary Lease, before any member runs (failover.md F14).

use coregent_api::annotations;
use coregent_core::fence::Fence;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};

/// Marks every primary Lease as restored: nobody takes it before the controller has raised it above what the members
/// know. Gives the names of those that were marked, `namespace/cluster`. A Lease whose record cannot be read is left as
/// it is: nobody is promoted under it anyway.
///
/// # Errors
/// When the API server cannot be asked or refuses a write.
pub async fn mark(client: &Client) -> Result<Vec<String>, kube::Error> {
    let all: Api<Lease> = Api::all(client.clone());
    let mut marked = Vec::new();
    for mut lease in all.list(&ListParams::default()).await? {
        let Some(Ok(fence)) = lease.annotations().get(annotations::FENCE).map(|text| Fence::parse(text)) else {
            continue;
        };
        let namespace = lease.namespace().unwrap_or_default();
        let fence = Fence { restored: true, ..fence };
        lease.annotations_mut().insert(annotations::FENCE.to_owned(), fence.to_annotation());
        let api: Api<Lease> = Api::namespaced(client.clone(), &namespace);
        api.replace(&lease.name_any(), &PostParams::default(), &lease).await?;
        let name = lease.name_any();
        marked.push(format!("{namespace}/{}", name.strip_suffix("-primary").unwrap_or(&name)));
    }
    Ok(marked)
}
