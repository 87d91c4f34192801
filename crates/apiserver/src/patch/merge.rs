//! JSON merge patch (RFC 7396).

use serde_json::Value;

use super::PatchError;

/// Merges `patch` into `current`: objects recursively, `null` removes, everything else replaces.
pub fn merge(current: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed(format!("a merge patch must be an object, got {}", kind_of(patch))));
    }
    let mut object = current.clone();
    json_patch::merge(&mut object, patch);
    Ok(object)
}

/// The JSON type of a value, as error messages name it.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The table of RFC 7396, appendix A, as far as its patches are objects.
    #[test]
    fn appendix_a_of_rfc_7396() {
        let rows = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (current, patch, expected) in rows {
            assert_eq!(merge(&current, &patch), Ok(expected), "{current} + {patch}");
        }
    }

    #[test]
    fn a_list_is_not_a_merge_patch() {
        assert!(matches!(merge(&json!({}), &json!([1])), Err(PatchError::Malformed(_))));
    }
}
