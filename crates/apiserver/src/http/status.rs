//! Errors as Kubernetes words them: a `Status` with code, reason, message and details.

use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::store::{Expired, WriteError};

/// An answer that is not a success.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Value>,
}

/// One complaint about a field, as `details.causes` carries it.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// What a handler answers.
pub(crate) type Outcome<T> = Result<T, ApiError>;

fn details(kind: &Kind, name: &str) -> Value {
    json!({"name": name, "group": kind.group, "kind": kind.plural})
}

impl ApiError {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { code, reason, message: message.into(), details: None }
    }

    fn of(code: u16, reason: &'static str, message: String, kind: &Kind, name: &str) -> ApiError {
        ApiError { code, reason, message, details: Some(details(kind, name)) }
    }

    pub fn not_found(kind: &Kind, name: &str) -> ApiError {
        ApiError::of(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified()), kind, name)
    }

    /// The path names nothing that is served.
    pub fn no_such_path() -> ApiError {
        ApiError::of_nothing(404, "NotFound", "the server could not find the requested resource")
    }

    /// An error whose details say nothing, which Kubernetes sends all the same.
    fn of_nothing(code: u16, reason: &'static str, message: &str) -> ApiError {
        ApiError { code, reason, message: message.to_owned(), details: Some(json!({})) }
    }

    pub fn already_exists(kind: &Kind, name: &str) -> ApiError {
        ApiError::of(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.qualified()), kind, name)
    }

    pub fn conflict(kind: &Kind, name: &str, why: &str) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        ApiError::of(409, "Conflict", message, kind, name)
    }

    /// A deletion of another object than the one that is there; Kubernetes names the kind here, not the resource.
    pub fn precondition(kind: &Kind, name: &str, why: &str) -> ApiError {
        let named = if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        let message = format!("Operation cannot be fulfilled on {named} \"{name}\": {why}");
        let details = json!({"name": name, "group": kind.group, "kind": kind.kind});
        ApiError { code: 409, reason: "Conflict", message, details: Some(details) }
    }

    pub fn modified(kind: &Kind, name: &str) -> ApiError {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(kind, name, why)
    }

    pub fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> ApiError {
        ApiError::invalid_as(&kind.kind, &kind.group, name, causes)
    }

    /// The same where the object goes by another name than its kind.
    pub fn invalid_as(kind: &str, group: &str, name: &str, causes: &[Cause]) -> ApiError {
        // A rule about the object as a whole has no field to name.
        let complaint = |cause: &Cause| match cause.field.as_str() {
            "" => cause.message.clone(),
            field => format!("{field}: {}", cause.message),
        };
        let complaints: Vec<String> = causes.iter().map(complaint).collect();
        let complaints = match complaints.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        ApiError {
            code: 422,
            reason: "Invalid",
            message: format!("{qualified} \"{name}\" is invalid: {complaints}"),
            details: Some(json!({"name": name, "group": group, "kind": kind, "causes": causes})),
        }
    }

    /// Options of a request (`CreateOptions` and so on) that are not good.
    pub fn options(options: &str, cause: Cause) -> ApiError {
        let message = format!("{options}.meta.k8s.io \"\" is invalid: {}: {}", cause.field, cause.message);
        let causes = json!([{"reason": cause.reason, "message": cause.message, "field": cause.field}]);
        let details = json!({"group": "meta.k8s.io", "kind": options, "causes": causes});
        ApiError { code: 422, reason: "Invalid", message, details: Some(details) }
    }

    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> ApiError {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> ApiError {
        let name_part = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let message = format!("{}{name_part} is forbidden: {why}", kind.qualified());
        ApiError::of(403, "Forbidden", message, kind, name)
    }

    pub fn method_not_allowed() -> ApiError {
        let message = "the server does not allow this method on the requested resource";
        ApiError::of_nothing(405, "MethodNotAllowed", message)
    }

    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "InternalError", format!("Internal error occurred: {}", message.into()))
    }

    /// The error of a write on `name`.
    pub fn from_write(kind: &Kind, name: &str, error: WriteError) -> ApiError {
        match error {
            WriteError::Exists => ApiError::already_exists(kind, name),
            WriteError::Missing => ApiError::not_found(kind, name),
            WriteError::Conflict(_) => ApiError::modified(kind, name),
            WriteError::Unknown(_) => ApiError::new(500, "InternalError", error.to_string()),
            WriteError::Disk(_) => ApiError::new(507, "InternalError", error.to_string()),
            WriteError::Closed(_) => ApiError::new(503, "ServiceUnavailable", error.to_string()),
        }
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code});
        // Kubernetes has no reason for some of its failures.
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let (Some(details), Some(map)) = (&self.details, status.as_object_mut()) {
            map.insert("details".into(), without_blanks(details.clone()));
        }
        status
    }
}

/// Details without the names that are empty, as Kubernetes leaves them out.
pub(super) fn without_blanks(mut details: Value) -> Value {
    if let Some(map) = details.as_object_mut() {
        map.retain(|_, value| value.as_str() != Some(""));
    }
    details
}

impl From<Expired> for ApiError {
    fn from(expired: Expired) -> ApiError {
        ApiError::new(410, "Expired", expired.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = super::respond::json(self.code, self.status().to_string());
        if self.code == 401 {
            let realm = axum::http::HeaderValue::from_static("Bearer realm=\"coregent\"");
            response.headers_mut().insert(axum::http::header::WWW_AUTHENTICATE, realm);
        }
        response
    }
}
