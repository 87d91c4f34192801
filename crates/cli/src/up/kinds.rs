//! Our kinds in the embedded API server.

use crate::failure::{Failure, Outcome};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;

/// Applies the definitions of this version and waits until they are served.
///
/// # Errors
/// When the API server refuses them.
pub async fn install(client: &kube::Client) -> Outcome {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in coregent_api::crds() {
        let name = crd.name_any();
        let what = format!("cannot install the kind {name}");
        let params = PatchParams::apply("coregent-up").force();
        api.patch(&name, &params, &Patch::Apply(&crd)).await.map_err(|error| Failure::from_api(&what, error))?;
        await_condition(api.clone(), &name, is_crd_established()).await.map_err(|error| {
            Failure::failed(&what, crate::failure::chain(&error), "look at `coregent describe crd` for its conditions")
        })?;
    }
    Ok(())
}
