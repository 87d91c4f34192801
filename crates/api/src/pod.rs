//! Parts of a pod that users write, kept as JSON and turned into Kubernetes types where they are used.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A value that does not fit the Kubernetes type it is meant for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// A field has the wrong type or a required one is absent.
    #[error("{path}: {reason}; correct it as the Kubernetes reference describes this field")]
    Wrong {
        /// Where, for example `spec.probe.readinessProbe`.
        path: String,
        /// What the reader said.
        reason: String,
    },
    /// A name that something else of the set has already.
    #[error("{path}: {name} is the name of another Service of this set; choose another")]
    Taken {
        /// Where, for example `spec.roleServices[0].name`.
        path: String,
        /// The name.
        name: String,
    },
    /// A field without which the object cannot be.
    #[error("{path} is required")]
    Missing {
        /// Where.
        path: String,
    },
    /// Fields that the type does not have. They would be dropped without a word.
    #[error("{path}: unknown field(s) {}; remove them or correct their spelling", .fields.join(", "))]
    Unknown {
        /// Where, for example `spec.template`.
        path: String,
        /// Full paths of the unknown fields.
        fields: Vec<String>,
    },
}

/// Reads `value` as a `T` and refuses fields that `T` does not have, since the reader alone would drop them.
pub fn typed<T: DeserializeOwned + Serialize>(path: &str, value: &Value) -> Result<T, Misfit> {
    let parsed: T = serde_json::from_value(value.clone())
        .map_err(|error| Misfit::Wrong { path: path.to_owned(), reason: error.to_string() })?;
    let kept = serde_json::to_value(&parsed)
        .map_err(|error| Misfit::Wrong { path: path.to_owned(), reason: error.to_string() })?;
    let mut fields = Vec::new();
    lost(path, value, &kept, &mut fields);
    if fields.is_empty() { Ok(parsed) } else { Err(Misfit::Unknown { path: path.to_owned(), fields }) }
}

/// Reads an optional value, see [`typed`].
pub fn typed_opt<T: DeserializeOwned + Serialize>(path: &str, value: Option<&Value>) -> Result<Option<T>, Misfit> {
    value.map(|value| typed(path, value)).transpose()
}

/// Reads a list, see [`typed`].
pub fn typed_list<T: DeserializeOwned + Serialize>(path: &str, values: &[Value]) -> Result<Vec<T>, Misfit> {
    values.iter().enumerate().map(|(i, value)| typed(&format!("{path}[{i}]"), value)).collect()
}

/// Paths that `before` has and `after` has not. Absent and empty are the same to Kubernetes, so an empty value that
/// vanished is not lost.
fn lost(path: &str, before: &Value, after: &Value, fields: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let path = format!("{path}.{key}");
                match after.get(key) {
                    Some(kept) => lost(&path, value, kept, fields),
                    None if is_empty(value) => {}
                    None => fields.push(path),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (i, (value, kept)) in before.iter().zip(after).enumerate() {
                lost(&format!("{path}[{i}]"), value, kept, fields);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
