//! Whether an object is what its kind says: the structural schema of a custom resource, the types of a built-in kind.
//!
//! Pure functions over [`serde_json::Value`]. The order in which the API server uses them is that of Kubernetes:
//! check or prune, default, validate.

pub mod builtin;
mod cel;
mod compile;
mod default;
mod error;
mod formats;
mod node;
mod prune;
mod validate;

use serde_json::Value;

pub use compile::{compile, compile_at};
pub use error::{FieldError, FieldErrorReason, invalid_message};

use crate::patch::ListKeys;
use node::Node;

/// The compiled schema of one version of a custom resource.
#[derive(Debug)]
pub struct CrdVersionSchema {
    root: Node,
}

impl CrdVersionSchema {
    /// Removes nulls that the schema does not allow and fills in what is missing and has a default.
    pub fn default(&self, object: &mut Value) {
        default::apply(&self.root, object);
    }

    /// Removes the fields that the schema does not know and returns their paths.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::root(&self.root, object)
    }

    /// Everything that is wrong with `new`; with `old`, what did not change is not held against it, and rules that
    /// compare the two hold.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::root(&self.root, new, old);
        // Rules may rely on types and cost time by size, so these faults keep them from being evaluated, as in Kubernetes.
        let blocks = |error: &FieldError| {
            use FieldErrorReason::{Required, TooLong, TooMany, TypeInvalid};
            matches!(error.reason, Required | TooLong | TooMany | TypeInvalid)
        };
        if !errors.iter().any(blocks) {
            errors.extend(cel::root(&self.root, new, old));
        } else if cel::has_rules(&self.root) {
            errors.push(FieldError::unchecked());
        }
        errors
    }

    /// How lists and maps of this type are merged by server-side apply.
    pub fn list_keys(&self) -> ListKeys {
        ListKeys::from_shape(node::root_shape(&self.root))
    }
}
