//! ServiceAccount tokens: signed by the store's key, bound to a pod, refused once account or pod is gone.
//!
//! The form is a JSON Web Token (RFC 7519) with HMAC-SHA-256 (RFC 2104), so that tools that decode tokens can read it.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;

use super::auth::UserInfo;
use super::status::{ApiError, Outcome};
use super::write::{Answer, Reply, text};
use super::{Call, Server, read};
use crate::time;

/// What a kubelet asks for when it will renew; Kubernetes then gives a year too, for clients that read a token once.
const RENEWED: i64 = 3607;
const YEAR: i64 = 365 * 86400;

#[derive(Serialize, Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    iat: i64,
    exp: i64,
    #[serde(rename = "kubernetes.io")]
    bound: Bound,
}

#[derive(Serialize, Deserialize)]
struct Bound {
    namespace: String,
    serviceaccount: Reference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<Reference>,
}

#[derive(Serialize, Deserialize)]
struct Reference {
    name: String,
    uid: String,
}

fn hmac(key: &[u8], message: &[u8]) -> Outcome<Hmac<Sha256>> {
    let mac = Hmac::<Sha256>::new_from_slice(key).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(mac.chain_update(message))
}

fn sign(key: &[u8], claims: &Claims) -> Outcome<String> {
    let claims = serde_json::to_vec(claims).map_err(|error| ApiError::internal(error.to_string()))?;
    let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let body = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(claims));
    let signature = BASE64_URL_SAFE_NO_PAD.encode(hmac(key, body.as_bytes())?.finalize().into_bytes());
    Ok(format!("{body}.{signature}"))
}

fn verify(key: &[u8], token: &str) -> Option<Claims> {
    let (body, signature) = token.rsplit_once('.')?;
    let given = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
    // Compared without a way out at the first differing byte, which would tell how much of a guess was right.
    hmac(key, body.as_bytes()).ok()?.verify_slice(&given).ok()?;
    let (_, claims) = body.split_once('.')?;
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

/// The user of a ServiceAccount token, if it still means anybody.
pub(super) fn authenticate(server: &Server, token: &str) -> Option<UserInfo> {
    let claims = verify(&server.store.identity().signing_key, token)?;
    if Timestamp::now().as_second() >= claims.exp {
        return None;
    }
    let bound = &claims.bound;
    let lives = |resource: &str, reference: &Reference| {
        let found = server.store.get(resource, &bound.namespace, &reference.name);
        found.is_some_and(|object| text(&object.value(), "/metadata/uid") == reference.uid)
    };
    if !lives("/serviceaccounts", &bound.serviceaccount) || !bound.pod.as_ref().is_none_or(|pod| lives("/pods", pod)) {
        return None;
    }
    Some(UserInfo::service_account(&bound.namespace, &bound.serviceaccount.name, &bound.serviceaccount.uid))
}

/// `serviceaccounts/{name}/token`: a TokenRequest.
pub(super) fn request(call: &Call, request: &Value) -> Outcome<Reply> {
    let account = read::find(call)?;
    let namespace = call.target.place();
    let pod = match request.pointer("/spec/boundObjectRef").filter(|reference| reference.is_object()) {
        None => None,
        Some(reference) if text(reference, "/kind") == "Pod" => Some(bound_pod(call, reference)?),
        Some(reference) => {
            let message =
                format!("cannot bind token to object of kind {}: only Pod is served", text(reference, "/kind"));
            return Err(ApiError::bad_request(message));
        }
    };
    let asked = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    let seconds = match asked {
        None | Some(RENEWED) => YEAR,
        Some(seconds) if seconds < 600 => {
            return Err(ApiError::new(
                422,
                "Invalid",
                "spec.expirationSeconds: may not specify a duration less than 10 minutes",
            ));
        }
        Some(seconds) => seconds,
    };
    let now = Timestamp::now();
    let claims = Claims {
        iss: "https://kubernetes.default.svc".into(),
        sub: format!("system:serviceaccount:{namespace}:{}", call.target.name()),
        iat: now.as_second(),
        exp: now.as_second().saturating_add(seconds),
        bound: Bound {
            namespace: namespace.into(),
            serviceaccount: Reference {
                name: call.target.name().into(),
                uid: text(&account.value(), "/metadata/uid").into(),
            },
            pod,
        },
    };
    let token = sign(&call.server.store.identity().signing_key, &claims)?;
    let end = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let answer = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": call.target.name(), "namespace": namespace, "creationTimestamp": time::format(now)},
        "spec": {"audiences": request.pointer("/spec/audiences").cloned().unwrap_or(json!([claims.iss])),
            "expirationSeconds": seconds,
            "boundObjectRef": request.pointer("/spec/boundObjectRef").cloned().unwrap_or(Value::Null)},
        "status": {"token": token, "expirationTimestamp": time::format(end)}});
    Ok(Reply { code: 201, answer: Answer::Status(answer), warnings: Vec::new() })
}

fn bound_pod(call: &Call, reference: &Value) -> Outcome<Reference> {
    let (name, uid) = (text(reference, "/name"), text(reference, "/uid"));
    let kind = call.server.kinds.find("", "v1", "pods").ok_or_else(ApiError::no_such_path)?;
    let pod = call.server.store.get("/pods", call.target.place(), name);
    let pod = pod.ok_or_else(|| ApiError::not_found(&kind, name))?;
    let pod = pod.value();
    let found = text(&pod, "/metadata/uid");
    if !uid.is_empty() && uid != found {
        let why = format!("the UID in the bound object reference ({uid}) does not match the UID in record ({found})");
        return Err(ApiError::conflict(&kind, name, &why));
    }
    let account = match text(&pod, "/spec/serviceAccountName") {
        "" => "default",
        account => account,
    };
    if account != call.target.name() {
        let message = format!(
            "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
            call.target.name()
        );
        return Err(ApiError::bad_request(message));
    }
    Ok(Reference { name: name.into(), uid: found.into() })
}
