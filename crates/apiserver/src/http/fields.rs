//! Where patches, schemas and field owners come in: the calls into [`crate::patch`] and [`crate::schema`].

use serde_json::{Value, json};

use super::Call;
use super::body::{PatchBody, PatchType};
use super::params::FieldValidation;
use super::status::{ApiError, Cause, Outcome};
use crate::patch::{self, ApplyError, ApplyOptions, ListKeys, PatchError};
use crate::schema::{self, FieldError};
use crate::time;

fn list_keys(call: &Call) -> ListKeys {
    let kind = &call.target.kind;
    match &kind.custom {
        Some(custom) => custom.keys.clone(),
        None => ListKeys::builtin(&kind.group, &kind.kind),
    }
}

/// The object that a patch makes of `current`.
pub(crate) fn patched(call: &Call, current: &Value, body: &PatchBody) -> Outcome<Value> {
    let result = match body.kind {
        PatchType::Json => patch::json(current, &body.value),
        PatchType::Merge => patch::merge(current, &body.value),
        PatchType::Strategic if call.target.kind.custom.is_some() => {
            let message = "the body of the request was in an unknown format - accepted media types include: \
                           application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            return Err(ApiError::new(415, "UnsupportedMediaType", message));
        }
        PatchType::Strategic => patch::strategic(current, &body.value, &list_keys(call)),
        PatchType::Apply => return applied(call, Some(current), &body.value),
    };
    result.map_err(|error| match error {
        PatchError::Malformed(_) => ApiError::bad_request(error.to_string()),
        PatchError::Unprocessable(_) => unprocessable(error.to_string()),
    })
}

/// A patch that does not fit the object.
fn unprocessable(message: String) -> ApiError {
    let mut error = ApiError::new(422, "Invalid", message);
    error.details = Some(json!({}));
    error
}

/// The object that an apply makes, with its new field owners.
pub(crate) fn applied(call: &Call, current: Option<&Value>, config: &Value) -> Outcome<Value> {
    let kind = &call.target.kind;
    let subresource = call.target.subresource.as_deref();
    let mut config = config.clone();
    if let (true, None, Some(map)) = (kind.status, subresource, config.as_object_mut()) {
        map.remove("status");
    }
    let (now, api_version) = (time::now(), kind.api_version());
    let force = call.params.flag("force");
    let options = ApplyOptions { manager: &call.manager, force, subresource, now: &now, api_version: &api_version };
    declared(call, &config)?;
    patch::apply(current, &config, &list_keys(call), &options).map_err(|error| match error {
        ApplyError::Invalid(message) if message.starts_with("metadata.managedFields") => ApiError::bad_request(message),
        ApplyError::Invalid(message) => untypable(call, &config, &message),
        ApplyError::Conflicts(conflicts) => {
            let cause = |conflict: &patch::Conflict| {
                let message = format!("conflict with {}", conflict.manager);
                json!({"reason": "FieldManagerConflict", "message": message, "field": conflict.field})
            };
            let causes: Vec<Value> = conflicts.iter().map(cause).collect();
            let mut error = ApiError::new(409, "Conflict", patch::conflict_message(&conflicts));
            error.details = Some(json!({"causes": causes}));
            error
        }
    })
}

/// A configuration may not state fields that its kind does not have, whatever `fieldValidation` says: nobody could own
/// them. Kubernetes answers 500 here, not 400.
fn declared(call: &Call, config: &Value) -> Outcome<()> {
    let kind = &call.target.kind;
    let mut object = config.clone();
    let mut unknown = schema::builtin::prune(&kind.group, &kind.kind, &mut object).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(|error| format!(".{error}")).collect();
        untypable(call, config, &errors.join(", "))
    })?;
    if let Some(schema) = kind.custom.as_ref().and_then(|custom| custom.schema.as_ref()) {
        unknown.extend(schema.prune(&mut object));
    }
    let complaints: Vec<String> = unknown.iter().map(|path| format!(".{path}: field not declared in schema")).collect();
    let complaints = match complaints.as_slice() {
        [] => return Ok(()),
        [only] => only.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    };
    Err(untypable(call, config, &complaints))
}

/// A configuration that is none of its kind.
fn untypable(call: &Call, config: &Value, why: &str) -> ApiError {
    let kind = &call.target.kind;
    let text = |pointer| super::write::text(config, pointer);
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let type_of = format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind);
    let why = why.trim_start_matches("failed to create typed patch object: ");
    ApiError::new(500, "", format!("failed to create typed patch object ({namespace}/{name}; {type_of}): {why}"))
}

/// Checks an object against its schema, drops unknown fields and fills in defaults; answers warnings.
pub(crate) fn conform(call: &Call, object: &mut Value, old: Option<&Value>) -> Outcome<Vec<String>> {
    let kind = &call.target.kind;
    let custom = kind.custom.as_ref().and_then(|custom| custom.schema.as_ref());
    // Of a custom resource this checks the metadata; the rest is its schema's.
    let mut unknown =
        schema::builtin::prune(&kind.group, &kind.kind, object).map_err(|errors| untyped(call, &errors))?;
    if let Some(schema) = custom {
        unknown.extend(schema.prune(object));
    }
    let warnings = judge(call, &unknown)?;
    match custom {
        Some(schema) => schema.default(object),
        None => schema::builtin::default(&kind.group, &kind.kind, object),
    }
    let mut errors = schema::builtin::validate(&kind.group, &kind.kind, object, old);
    if let Some(schema) = custom {
        errors.extend(schema.validate(object, old));
    }
    if errors.is_empty() { Ok(warnings) } else { Err(invalid(call, object, &errors)) }
}

/// A 422 with one cause for each field.
pub(crate) fn invalid(call: &Call, object: &Value, errors: &[FieldError]) -> ApiError {
    let cause = |error: &FieldError| Cause {
        reason: error.reason.cause().into(),
        message: error.message.clone(),
        field: error.path.clone(),
    };
    let causes: Vec<Cause> = errors.iter().map(cause).collect();
    ApiError::invalid(&call.target.kind, super::write::text(object, "/metadata/name"), &causes)
}

/// What does not even have the types of its kind cannot be decoded: 400, as Kubernetes answers.
fn untyped(call: &Call, errors: &[FieldError]) -> ApiError {
    let kind = &call.target.kind;
    let complaints: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if call.params.patches() && !call.applying {
        return misfit(&complaints.join(", "));
    }
    ApiError::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {}",
        kind.kind,
        kind.version,
        kind.kind,
        complaints.join(", ")
    ))
}

/// A patch that makes something that is no object of its kind. Kubernetes names the patch, and shows it whole.
fn misfit(why: &str) -> ApiError {
    let message = format!("Invalid value: {why}");
    let causes = json!([{"reason": "FieldValueInvalid", "message": message, "field": "patch"}]);
    let mut error = ApiError::new(422, "Invalid", format!(" \"\" is invalid: patch: {message}"));
    error.details = Some(json!({"causes": causes}));
    error
}

fn judge(call: &Call, unknown: &[String]) -> Outcome<Vec<String>> {
    let repeated = call.repeated.iter().map(|path| format!("duplicate field \"{path}\""));
    let complaints: Vec<String> =
        repeated.chain(unknown.iter().map(|path| format!("unknown field \"{path}\""))).collect();
    match call.params.field_validation()? {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(complaints),
        FieldValidation::Strict if complaints.is_empty() => Ok(Vec::new()),
        FieldValidation::Strict if call.params.patches() => {
            Err(misfit(&format!("strict decoding error: {}", complaints.join(", "))))
        }
        FieldValidation::Strict => Err(ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
            call.target.kind.kind,
            call.target.kind.version,
            call.target.kind.kind,
            complaints.join(", ")
        ))),
    }
}

/// Records in managedFields who made `new` of `old`; an apply has done so itself.
pub(crate) fn track(call: &Call, old: Option<&Value>, new: &mut Value) {
    if call.applying {
        return;
    }
    let subresource = call.target.subresource.as_deref();
    let api_version = call.target.kind.api_version();
    // The status that a new object starts with is the server's: it belongs to nobody yet.
    let own = old.is_none() && call.target.kind.status;
    let status = new.as_object_mut().filter(|_| own).and_then(|fields| fields.remove("status"));
    patch::track_update(old, new, &call.manager, subresource, &time::now(), &api_version, &list_keys(call));
    if let (Some(status), Some(fields)) = (status, new.as_object_mut()) {
        fields.insert("status".to_owned(), status);
    }
}
