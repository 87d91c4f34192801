//! Objects and lists in the form that the client asked for.

use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use super::params::Form;
use super::read::Page;
use super::status::{ApiError, Outcome};
use super::{Call, respond, table};
use crate::kinds::Kind;
use crate::store::Stored;

/// The JSON in which `kind` serves a stored object; stored text is shared where it can be.
pub(crate) fn served(kind: &Kind, form: Form, object: &Stored) -> Bytes {
    if form == Form::Object && kind.served_as_stored() {
        return object.json.clone();
    }
    let value = kind.to_served(Value::clone(&object.value()));
    Bytes::from(match form {
        Form::PartialMetadata => partial(&value).to_string(),
        _ => value.to_string(),
    })
}

/// The same as an item of a list: those of built-in kinds do not say what they are, since the list does. A client that
/// relied on it would fail on a cluster.
fn listed(kind: &Kind, form: Form, object: &Stored) -> Bytes {
    if form != Form::Object || kind.custom.is_some() {
        return served(kind, form, object);
    }
    // Its text was rendered from a value; what is parsed for a list need not be kept.
    let mut value = kind.to_served(serde_json::from_slice(&object.json).unwrap_or_default());
    if let Some(map) = value.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
    Bytes::from(value.to_string())
}

fn partial(value: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": value["metadata"]})
}

/// An answer with one stored object.
pub(crate) fn stored(call: &Call, code: u16, object: &Stored) -> Outcome<Response> {
    if call.form == Form::Table {
        let revision = json!({"resourceVersion": object.revision.to_string()});
        return Ok(respond::json(code, table::table(call, revision, std::iter::once(object)).to_string()));
    }
    Ok(respond::json(code, served(&call.target.kind, call.form, object)))
}

/// An answer with one object that is not in the store (dry run).
pub(crate) fn value(call: &Call, code: u16, object: Value) -> Outcome<Response> {
    let object = Stored::unsaved(&object).map_err(|error| ApiError::internal(error.to_string()))?;
    stored(call, code, &object)
}

/// An answer with a page.
pub(crate) fn list(call: &Call, page: Page) -> Outcome<Response> {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(token) = page.token {
        metadata["continue"] = token.into();
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    if call.form == Form::Table {
        let items = page.items.iter().map(|item| &**item);
        return Ok(respond::json(200, table::table(call, metadata, items).to_string()));
    }
    let kind = &call.target.kind;
    let (api_version, list_kind) = match call.form {
        Form::PartialMetadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList"),
        _ => (kind.api_version(), kind.list_kind.as_str()),
    };
    let head = json!({"kind": list_kind, "apiVersion": api_version, "metadata": metadata}).to_string();
    let size: usize = page.items.iter().map(|item| item.json.len() + 1).sum();
    let mut body = BytesMut::with_capacity(head.len() + size + 16);
    body.put_slice(&head.as_bytes()[..head.len() - 1]);
    body.put_slice(b",\"items\":[");
    for (index, item) in page.items.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        body.put_slice(&listed(kind, call.form, item));
    }
    body.put_slice(b"]}");
    Ok(respond::json(200, body.freeze()))
}
