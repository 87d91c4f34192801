//! The four ways a client may change an object without sending all of it, and who owns which field.
//!
//! Everything here is a pure function over [`serde_json::Value`]: no storage, no clock. The shape of the lists
//! (which are sets, which are maps and by which keys) comes in as [`ListKeys`].

pub mod apply;
mod json;
mod list_keys;
mod list_table;
mod merge;
mod strategic;

pub use apply::{ApplyError, ApplyOptions, Conflict, apply, conflict_message, track_update};
pub use json::json;
pub use list_keys::{ApplyRule, ListKeys, Shape, StrategicRule};
pub(crate) use list_table::metadata as metadata_shape;
pub(crate) use merge::kind_of;
pub use merge::merge;
pub use strategic::strategic;

/// The patch types of the Kubernetes API, as told apart by the request's content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`, RFC 6902.
    Json,
    /// `application/merge-patch+json`, RFC 7396.
    Merge,
    /// `application/strategic-merge-patch+json`: a merge patch that knows list keys; built-in kinds only.
    Strategic,
    /// `application/apply-patch+yaml`: server-side apply.
    Apply,
}

impl PatchKind {
    /// The patch type named by a `Content-Type` header (parameters such as `charset` are ignored).
    pub fn from_content_type(content_type: &str) -> Option<PatchKind> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(PatchKind::Json),
            "application/merge-patch+json" => Some(PatchKind::Merge),
            "application/strategic-merge-patch+json" => Some(PatchKind::Strategic),
            "application/apply-patch+yaml" => Some(PatchKind::Apply),
            _ => None,
        }
    }
}

/// Why a patch could not be computed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PatchError {
    /// The patch document itself cannot be understood: answer 400 BadRequest.
    #[error("error decoding patch: {0}")]
    Malformed(String),
    /// The patch is well-formed but does not fit the object (a failed `test`, a missing path): answer 422.
    #[error("{0}")]
    Unprocessable(String),
}
