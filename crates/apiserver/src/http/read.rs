//! get and list.

use std::sync::Arc;

use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::select::Selector;
use super::status::{ApiError, Outcome};
use super::{Call, render};
use crate::store::Stored;

/// `metadata.continue`: the revision of the first page and the last key of the previous one.
#[derive(Serialize, Deserialize)]
struct Continue {
    rv: u64,
    namespace: String,
    name: String,
}

/// One page of a list.
pub(crate) struct Page {
    pub revision: u64,
    pub items: Vec<Arc<Stored>>,
    pub token: Option<String>,
    pub remaining: Option<usize>,
}

/// The stored object that a call names.
pub(crate) fn find(call: &Call) -> Outcome<Arc<Stored>> {
    let target = &call.target;
    let found = call.server.store.get(&target.kind.resource, target.place(), target.name());
    found.ok_or_else(|| ApiError::not_found(&target.kind, target.name()))
}

pub(crate) fn get(call: &Call) -> Outcome<Response> {
    if let Some(at) = call.params.number("resourceVersion")? {
        reachable(call, at)?;
    }
    render::stored(call, 200, &*find(call)?)
}

/// A revision of the future is one that this store never gave out (failover.md F14).
fn reachable(call: &Call, at: u64) -> Outcome<()> {
    match call.server.store.check(at) {
        Err(error @ crate::store::Expired::TooLarge { .. }) => Err(error.into()),
        _ => Ok(()),
    }
}

pub(crate) fn list(call: &Call) -> Outcome<Response> {
    let selector = selector(call)?;
    render::list(call, page(call, &selector)?)
}

pub(crate) fn selector(call: &Call) -> Outcome<Selector> {
    Selector::parse(&call.target.kind, call.params.get("labelSelector"), call.params.get("fieldSelector"))
}

/// The namespace that a list or watch covers: of the path, or of the field selector.
pub(crate) fn scope<'c>(call: &'c Call, selector: &'c Selector) -> Option<&'c str> {
    call.target.namespace.as_deref().or(selector.namespace.as_deref())
}

fn page(call: &Call, selector: &Selector) -> Outcome<Page> {
    let (store, resource) = (&call.server.store, &*call.target.kind.resource);
    let namespace = scope(call, selector);
    let resumed = call.params.get("continue").map(decode).transpose()?;
    let (revision, mut items) = match (&resumed, call.params.number("resourceVersion")?) {
        (Some(_), Some(at)) if at != 0 => {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        (Some(token), _) => (token.rv, store.list_at(resource, namespace, token.rv)?),
        (None, at) => first_page(call, namespace, at)?,
    };
    if let Some(token) = &resumed {
        let key = |object: &Stored| {
            let value = object.value();
            let part = |pointer| value.pointer(pointer).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
            (part("/metadata/namespace"), part("/metadata/name"))
        };
        let last = (token.namespace.clone(), token.name.clone());
        items.retain(|object| key(object) > last);
    }
    if !selector.is_empty() {
        items.retain(|object| selector.matches(&object.value()));
    }
    let limit = call.params.number("limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok());
    let mut page = Page { revision, items, token: None, remaining: None };
    if let Some(limit) = limit.filter(|limit| *limit < page.items.len()) {
        // How many a selection leaves out is not known where it is made while reading on, as in Kubernetes.
        page.remaining = selector.is_empty().then(|| page.items.len() - limit);
        page.items.truncate(limit);
        page.token = page.items.last().map(|last| encode(revision, last));
    }
    Ok(page)
}

/// `resourceVersionMatch`: Exact gives that very state; otherwise the newest is not older than anything asked for.
fn first_page(call: &Call, namespace: Option<&str>, at: Option<u64>) -> Outcome<(u64, Vec<Arc<Stored>>)> {
    let (store, resource) = (&call.server.store, &*call.target.kind.resource);
    match (call.params.get("resourceVersionMatch"), at) {
        (Some("Exact"), Some(at)) if at > 0 => Ok((at, store.list_at(resource, namespace, at)?)),
        (Some("Exact" | "NotOlderThan"), None) => {
            Err(refuse_match(call, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        }
        (Some("Exact"), Some(_)) => {
            Err(refuse_match(call, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""))
        }
        (None | Some("NotOlderThan"), at) => {
            reachable(call, at.unwrap_or(0))?;
            Ok(store.list(resource, namespace))
        }
        (Some(other), _) => {
            let known = r#""Exact", "NotOlderThan", """#;
            let message = format!("Unsupported value: \"{other}\": supported values: {known}");
            Err(call.params.refuse("resourceVersionMatch", "FieldValueNotSupported", message))
        }
    }
}

pub(super) fn refuse_match(call: &Call, why: &str) -> ApiError {
    call.params.refuse("resourceVersionMatch", "FieldValueForbidden", format!("Forbidden: {why}"))
}

fn encode(rv: u64, last: &Stored) -> String {
    let value = last.value();
    let part = |pointer| value.pointer(pointer).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    let token = Continue { rv, namespace: part("/metadata/namespace"), name: part("/metadata/name") };
    BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

fn decode(token: &str) -> Outcome<Continue> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
    let parsed = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    parsed.ok_or_else(|| ApiError::bad_request("invalid continue token: continue key is not valid"))
}
