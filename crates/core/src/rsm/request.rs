//! An action that is asked of the agent beside a member, through an object, and its answer (rsm.md 6).
//!
//! Nobody dials into a pod: the controller writes the request, the agent watches it and writes the answer. Both name the
//! start and the attempt that they belong to, so that neither can be taken for a later one.

use serde::{Deserialize, Serialize};

use super::membership::ActionKind;

/// Key of the request in its ConfigMap.
pub const REQUEST: &str = "request";
/// Key of the answer.
pub const ANSWER: &str = "answer";

/// A member and where it is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Name of its pod.
    pub pod: String,
    /// Name that it has among the members.
    pub host: String,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Names this start of the action.
    pub id: String,
    /// 1 for the first try.
    pub attempt: i32,
    /// Pod whose agent carries it out.
    pub executor: String,
    /// uid of that pod: a successor of the same name is not asked.
    pub executor_uid: String,
    /// What is to be done.
    pub action: ActionKind,
    /// On whom.
    pub member: Place,
    /// Who leads; nobody, perhaps.
    pub leader: Option<Place>,
    /// Who takes over, for a switchover.
    pub target: Option<Place>,
    /// All members that there are.
    pub members: Vec<Place>,
    /// The user's command; without one it is what the builtin handler does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Seconds that it may take.
    pub seconds: u32,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Of the request.
    pub id: String,
    /// Of the request.
    pub attempt: i32,
    /// It is done.
    pub done: bool,
    /// In words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Request {
    /// Whether the agent of this pod is asked.
    #[must_use]
    pub fn is_for(&self, pod: &str, uid: &str) -> bool {
        self.executor == pod && self.executor_uid == uid
    }
}

impl Answer {
    /// Whether it belongs to this very attempt.
    #[must_use]
    pub fn is_to(&self, id: &str, attempt: i32) -> bool {
        self.id == id && self.attempt == attempt
    }
}
