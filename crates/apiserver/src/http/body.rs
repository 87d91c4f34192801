//! Request bodies.

use axum::extract::Request;
use axum::http::header;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::params::Params;
use super::status::{ApiError, Outcome};
use super::{protobuf, repeated};

/// As Kubernetes: etcd's request limit doubled.
const LIMIT: usize = 3 << 20;

/// A patch as it came in.
pub(crate) struct PatchBody {
    pub kind: PatchType,
    pub value: Value,
}

/// The four content types of PATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// The options of a deletion, from the body or the query.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub preconditions: Option<Preconditions>,
    pub propagation_policy: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub dry_run: Option<Vec<String>>,
}

/// What must be true of the object for it to be deleted.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

fn content_type(request: &Request) -> String {
    let header = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    header.split(';').next().unwrap_or_default().trim().to_owned()
}

async fn read(request: Request) -> Outcome<Bytes> {
    let too_large = format!("Request entity too large: limit is {LIMIT}");
    axum::body::to_bytes(request.into_body(), LIMIT)
        .await
        .map_err(|_| ApiError::new(413, "RequestEntityTooLarge", too_large))
}

fn parse_yaml(bytes: &[u8]) -> Outcome<Value> {
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::bad_request("the body is not UTF-8"))?;
    serde_saphyr::from_str(text).map_err(|error| ApiError::bad_request(format!("the body is not YAML: {error}")))
}

fn parse_json(bytes: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::bad_request(format!("the body is not JSON: {error}")))
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn parse_protobuf(bytes: &[u8]) -> Outcome<Value> {
    protobuf::object(bytes).map_err(|error| match error {
        protobuf::Error::Malformed(_) => ApiError::bad_request(error.to_string()),
        _ => ApiError::new(415, "UnsupportedMediaType", error.to_string()),
    })
}

/// The object in the body of a create or an update.
pub(crate) async fn object(request: Request) -> Outcome<Value> {
    Ok(object_with_repeated(request, false).await?.0)
}

/// The same, and the fields that it gives more than once if they are wanted.
pub(crate) async fn object_with_repeated(request: Request, wanted: bool) -> Outcome<(Value, Vec<String>)> {
    let content_type = content_type(&request);
    let bytes = read(request).await?;
    match content_type.as_str() {
        "" | "application/json" => {
            let repeated = if wanted { repeated::fields(&bytes) } else { Vec::new() };
            Ok((parse_json(&bytes)?, repeated))
        }
        "application/yaml" | "text/yaml" | "application/x-yaml" => Ok((parse_yaml(&bytes)?, Vec::new())),
        PROTOBUF => Ok((parse_protobuf(&bytes)?, Vec::new())),
        other => Err(unsupported(other, "application/json, application/yaml, application/vnd.kubernetes.protobuf")),
    }
}

fn unsupported(found: &str, wanted: &str) -> ApiError {
    let message =
        format!("the body of the request was in an unknown format ({found}) - accepted media types: {wanted}");
    ApiError::new(415, "UnsupportedMediaType", message)
}

/// The patch in the body of a PATCH.
pub(crate) async fn patch(request: Request) -> Outcome<PatchBody> {
    let content_type = content_type(&request);
    let kind = match content_type.as_str() {
        "application/json-patch+json" => PatchType::Json,
        "application/merge-patch+json" => PatchType::Merge,
        "application/strategic-merge-patch+json" => PatchType::Strategic,
        "application/apply-patch+yaml" => PatchType::Apply,
        other => {
            let wanted = "application/json-patch+json, application/merge-patch+json, \
                          application/strategic-merge-patch+json, application/apply-patch+yaml";
            return Err(unsupported(other, wanted));
        }
    };
    let bytes = read(request).await?;
    // Most clients send JSON under the YAML type, and JSON parses much faster.
    let value = match kind {
        PatchType::Apply => serde_json::from_slice(&bytes).or_else(|_| parse_yaml(&bytes))?,
        _ => parse_json(&bytes)?,
    };
    Ok(PatchBody { kind, value })
}

/// The options of a DELETE: the body, else the query.
pub(crate) async fn delete_options(request: Request, params: &Params) -> Outcome<DeleteOptions> {
    let content_type = content_type(&request);
    let bytes = read(request).await?;
    let mut options = if bytes.is_empty() {
        DeleteOptions::default()
    } else {
        let value = match content_type.as_str() {
            PROTOBUF => parse_protobuf(&bytes)?,
            yaml if yaml.contains("yaml") => parse_yaml(&bytes)?,
            _ => parse_json(&bytes)?,
        };
        serde_json::from_value(value)
            .map_err(|error| ApiError::bad_request(format!("the body is not DeleteOptions: {error}")))?
    };
    if options.grace_period_seconds.is_none() {
        options.grace_period_seconds = params.number("gracePeriodSeconds")?.map(|seconds| seconds.cast_signed());
    }
    if options.propagation_policy.is_none() {
        options.propagation_policy = params.get("propagationPolicy").map(str::to_owned);
    }
    if options.orphan_dependents.is_none() && options.propagation_policy.is_none() {
        options.orphan_dependents = params.get("orphanDependents").map(|_| params.flag("orphanDependents"));
    }
    if params.dry_run()? {
        options.dry_run = Some(vec!["All".into()]);
    }
    Ok(options)
}
