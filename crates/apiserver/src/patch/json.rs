//! JSON patch (RFC 6902).

use json_patch::PatchOperation;
use serde_json::Value;

use super::PatchError;

/// How many operations one patch may hold; the limit of the Kubernetes API server.
const MAX_OPERATIONS: usize = 10_000;

/// Applies the list of operations `patch` to `current`. Either all of them or none.
pub fn json(current: &Value, patch: &Value) -> Result<Value, PatchError> {
    const KNOWN: [&str; 6] = ["add", "remove", "replace", "move", "copy", "test"];
    let named = patch.as_array().into_iter().flatten().filter_map(|operation| operation["op"].as_str());
    if let Some(unknown) = named.into_iter().find(|name| !KNOWN.contains(name)) {
        return Err(PatchError::Unprocessable(format!("unexpected kind of operation: {unknown}")));
    }
    let operations: Vec<PatchOperation> =
        serde_json::from_value(patch.clone()).map_err(|error| PatchError::Malformed(error.to_string()))?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::Malformed(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut object = current.clone();
    for (index, operation) in operations.into_iter().enumerate() {
        let operation = lenient(&object, operation);
        json_patch::patch(&mut object, &[operation]).map_err(|error| {
            // Each operation is applied alone, so that the error counts from there.
            PatchError::Unprocessable(error.to_string().replacen("'/0'", &format!("'/{index}'"), 1))
        })?;
    }
    Ok(object)
}

/// The patches of Kubernetes may replace a key of an object that is not there, which RFC 6902 forbids.
fn lenient(object: &Value, operation: PatchOperation) -> PatchOperation {
    let PatchOperation::Replace(replace) = operation else { return operation };
    let parent = replace.path.parent().and_then(|parent| parent.resolve(object).ok());
    if parent.is_some_and(Value::is_object) {
        return PatchOperation::Add(json_patch::AddOperation { path: replace.path, value: replace.value });
    }
    PatchOperation::Replace(replace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_apply_in_order() {
        let got = json(
            &json!({"a": [1, 2], "b": "x"}),
            &json!([{"op": "add", "path": "/a/-", "value": 3}, {"op": "remove", "path": "/b"}]),
        );
        assert_eq!(got, Ok(json!({"a": [1, 2, 3]})));
    }

    #[test]
    fn failed_test_changes_nothing_and_is_unprocessable() {
        let got = json(&json!({"a": 1}), &json!([{"op": "test", "path": "/a", "value": 2}]));
        assert!(matches!(got, Err(PatchError::Unprocessable(_))), "{got:?}");
    }

    #[test]
    fn an_object_is_not_a_json_patch() {
        assert!(matches!(json(&json!({}), &json!({"a": 1})), Err(PatchError::Malformed(_))));
    }
}
