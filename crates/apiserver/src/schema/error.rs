//! Errors of single fields, worded as Kubernetes words them (`k8s.io/apimachinery/pkg/util/validation/field`).

use std::fmt;

use serde_json::{Value, json};

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorReason {
    /// It must be given.
    Required,
    /// Its value breaks a rule.
    Invalid,
    /// Its value has the wrong JSON type.
    TypeInvalid,
    /// Its value is none of those allowed.
    NotSupported,
    /// Its value occurs twice where it must be unique.
    Duplicate,
    /// It must not be given, or not be changed.
    Forbidden,
    /// Its value is too long.
    TooLong,
    /// It has too many items.
    TooMany,
    /// It names something that is not there.
    NotFound,
}

impl FieldErrorReason {
    /// The `reason` of a cause in a Status.
    pub fn cause(self) -> &'static str {
        match self {
            FieldErrorReason::Required => "FieldValueRequired",
            FieldErrorReason::Invalid => "FieldValueInvalid",
            FieldErrorReason::TypeInvalid => "FieldValueTypeInvalid",
            FieldErrorReason::NotSupported => "FieldValueNotSupported",
            FieldErrorReason::Duplicate => "FieldValueDuplicate",
            FieldErrorReason::Forbidden => "FieldValueForbidden",
            FieldErrorReason::TooLong => "FieldValueTooLong",
            FieldErrorReason::TooMany => "FieldValueTooMany",
            FieldErrorReason::NotFound => "FieldValueNotFound",
        }
    }
}

/// One thing wrong with one field. Displays as `spec.replicas: Invalid value: -1: must be …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Where: `spec.template.spec.containers[0].image`.
    pub path: String,
    /// What kind of fault.
    pub reason: FieldErrorReason,
    /// The fault in words, starting with the kind of fault: `Invalid value: -1: must be …`.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            // A rule about the object as a whole has no field to name.
            "" => out.write_str(&self.message),
            path => write!(out, "{path}: {}", self.message),
        }
    }
}

impl std::error::Error for FieldError {}

impl FieldError {
    fn new(path: &str, reason: FieldErrorReason, message: String) -> FieldError {
        FieldError { path: path.to_owned(), reason, message }
    }

    /// A field that must be given.
    pub fn required(path: &str, detail: &str) -> FieldError {
        FieldError::new(path, FieldErrorReason::Required, with_detail("Required value", detail))
    }

    /// A value that breaks a rule.
    pub fn invalid(path: &str, value: &Value, detail: &str) -> FieldError {
        FieldError::new(path, FieldErrorReason::Invalid, with_detail(&format!("Invalid value: {value}"), detail))
    }

    /// A value that breaks a rule and is too large to be shown.
    pub fn unshown(path: &str, detail: &str) -> FieldError {
        FieldError::new(path, FieldErrorReason::Invalid, with_detail("Invalid value", detail))
    }

    /// Says that rules were not evaluated, since they may rely on what is wrong already.
    pub fn unchecked() -> FieldError {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors \
                      to complete validation";
        FieldError::invalid("<nil>", &Value::Null, detail)
    }

    /// A value of the wrong JSON type.
    pub fn type_invalid(path: &str, value: &Value, detail: &str) -> FieldError {
        FieldError::new(path, FieldErrorReason::TypeInvalid, with_detail(&format!("Invalid value: {value}"), detail))
    }

    /// A value that is none of those allowed.
    pub fn not_supported<'a>(path: &str, value: &Value, allowed: impl IntoIterator<Item = &'a str>) -> FieldError {
        let mut allowed: Vec<String> = allowed.into_iter().map(|allowed| format!("{allowed:?}")).collect();
        allowed.sort();
        let message = format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        FieldError::new(path, FieldErrorReason::NotSupported, message)
    }

    /// A value that occurs twice.
    pub fn duplicate(path: &str, value: &Value) -> FieldError {
        FieldError::new(path, FieldErrorReason::Duplicate, format!("Duplicate value: {value}"))
    }

    /// A reference to something that is not there.
    pub fn not_found(path: &str, value: &Value) -> FieldError {
        FieldError::new(path, FieldErrorReason::NotFound, format!("Not found: {value}"))
    }

    /// A field that must not be given or changed.
    pub fn forbidden(path: &str, detail: &str) -> FieldError {
        FieldError::new(path, FieldErrorReason::Forbidden, with_detail("Forbidden", detail))
    }

    /// A value with more characters than allowed.
    pub fn too_long(path: &str, most: u64) -> FieldError {
        let message = format!("Too long: may not be more than {most} bytes");
        FieldError::new(path, FieldErrorReason::TooLong, message)
    }

    /// A list or map with more entries than allowed.
    pub fn too_many(path: &str, actual: usize, most: u64) -> FieldError {
        let items = if most == 1 { "item" } else { "items" };
        let message = format!("Too many: {actual}: must have at most {most} {items}");
        FieldError::new(path, FieldErrorReason::TooMany, message)
    }

    /// The cause as it stands in a Status's `details.causes`.
    pub fn cause(&self) -> Value {
        json!({"reason": self.reason.cause(), "message": self.message, "field": self.path})
    }
}

fn with_detail(what: &str, detail: &str) -> String {
    if detail.is_empty() { what.to_owned() } else { format!("{what}: {detail}") }
}

/// The message of the Status 422 that reports `errors`: `StatefulSet.apps "x" is invalid: spec.replicas: …`.
pub fn invalid_message(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> String {
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let mut lines: Vec<String> = errors.iter().map(FieldError::to_string).collect();
    lines.dedup();
    let errors = match lines.as_slice() {
        [] => return format!("{kind} {name:?} is invalid"),
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    format!("{kind} {name:?} is invalid: {errors}")
}
