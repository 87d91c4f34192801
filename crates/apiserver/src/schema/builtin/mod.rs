//! The built-in kinds: their types, their defaults, their rules.

use serde_json::Value;

use super::FieldError;

/// Checks an object against the type of its kind. Wrong types are errors; fields that the type does not have are
/// returned by their paths.
pub fn check(_group: &str, _kind: &str, _object: &Value) -> Result<Vec<String>, Vec<FieldError>> {
    Ok(Vec::new())
}

/// Fills in the defaults that clients and controllers rely on.
pub fn default(_group: &str, _kind: &str, _object: &mut Value) {}

/// Everything that is wrong with `new` beyond its types; with `old`, what may not be changed.
pub fn validate(_group: &str, _kind: &str, _new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}

/// Removes from a `metadata` at `path` what is not part of it.
pub fn prune_metadata(_metadata: &mut Value, _path: &str) -> Vec<String> {
    Vec::new()
}
