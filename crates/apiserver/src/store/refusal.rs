//! What the store remembers and says of itself while it takes no writes.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use super::error::WriteError;

/// Why no writes are taken, for those who ask whether the store is ready.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<RwLock<Option<String>>>);

impl Told {
    pub fn get(&self) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, why: Option<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

/// The store takes no writes.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    /// In words.
    pub why: String,
    /// A commit whose outcome only the next one settles has failed: until then not even renewals are taken, since they
    /// would build on what a crash may take back.
    pub unsettled: bool,
    /// When it began.
    pub since: Instant,
    /// When to try again; never, once the file is not what it must be.
    pub next: Option<Instant>,
}

impl Refusal {
    /// The answer to a write that is not tried.
    pub fn answer(&self) -> WriteError {
        match self.next {
            Some(_) => WriteError::Disk(self.why.clone()),
            None => WriteError::Closed(self.why.clone()),
        }
    }
}
