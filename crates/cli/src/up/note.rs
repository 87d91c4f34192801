//! Something that a person should know although nothing was refused.

use serde::{Deserialize, Serialize};

/// What happened, why, and what to do: the three lines of a failure without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// What happened.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

impl Note {
    /// The three lines.
    pub fn render(&self) -> String {
        format!("note:  {}\n  why: {}\n  do:  {}", self.what, self.why, self.remedy)
    }
}
