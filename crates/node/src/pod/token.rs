//! ServiceAccount tokens in pods: asked of the API for this very pod, renewed before they run out.

use std::time::Duration;

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
use kube::{Api, Client, api::PostParams};
use tokio::time::Instant;

use super::state::spec;

/// The lifetime that Kubernetes asks for by default: an hour and a little.
pub(crate) const DEFAULT_LIFETIME: i64 = 3607;

/// The pod waits for the answer with everything that it does.
const PATIENCE: Duration = Duration::from_secs(5);

/// A token and when to ask for the next.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub value: String,
    /// After four fifths of its life, as a kubelet does.
    pub renew_at: Instant,
}

/// Asks for a token of the pod's ServiceAccount that is bound to the pod.
pub(crate) async fn request(
    client: &Client,
    pod: &Pod,
    audience: Option<&str>,
    lifetime: i64,
) -> Result<Token, kube::Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: audience.map(|a| vec![a.to_owned()]),
            expiration_seconds: Some(lifetime),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
        }),
        ..TokenRequest::default()
    };
    let asked_at = Instant::now();
    let params = PostParams::default();
    let answer = tokio::time::timeout(PATIENCE, accounts.create_token_request(account(pod), &params, &request));
    let answer = answer.await.map_err(|_| kube::Error::Service("no answer within 5 s".into()))??;
    let given = answer.status.unwrap_or_default();
    let seconds = given.expiration_timestamp.map_or(lifetime, |t| t.0.duration_since(jiff::Timestamp::now()).as_secs());
    // Renewed by our own clock from the moment of asking; a clock set back must not keep a dead token.
    let life = Duration::from_secs(u64::try_from(seconds.clamp(60, lifetime.max(60))).unwrap_or(60));
    Ok(Token { value: given.token.unwrap_or_default(), renew_at: asked_at + life * 4 / 5 })
}

/// The name of the pod's ServiceAccount.
pub(crate) fn account(pod: &Pod) -> &str {
    spec(pod).service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default")
}
