//! What the store holds: keys, objects, writes and the events that they become.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;

/// Where an object lives. Ordered as lists are answered: by namespace, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// `<group>/<plural>`; the core group is the empty string (`/pods`).
    pub resource: Arc<str>,
    /// Empty for kinds without namespaces.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

/// An object at one revision. Its text is made once and shared by every get, list and watch of it.
///
/// The text is what is kept. As a [`Value`] an object takes about ten times the memory, most of it for `managedFields`, so
/// that one is made when somebody looks into the object and lives no longer than the object is current.
#[derive(Debug)]
pub struct Stored {
    /// The revision that wrote it, which is also its `metadata.resourceVersion`.
    pub revision: u64,
    /// The object as JSON.
    pub json: Bytes,
    parsed: Mutex<Parsed>,
}

#[derive(Debug)]
enum Parsed {
    /// Nobody has looked since it was written.
    NotYet,
    /// Kept for the next who looks.
    Kept(Arc<Value>),
    /// It is history: made anew for each who looks.
    Never,
}

impl Stored {
    /// Stamps `value` with `revision` and renders it.
    pub(crate) fn at(revision: u64, mut value: Value) -> Result<Stored, serde_json::Error> {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), Value::String(revision.to_string()));
        }
        let json = Bytes::from(serde_json::to_vec(&value)?);
        Ok(Stored { revision, json, parsed: Mutex::new(Parsed::NotYet) })
    }

    /// Of an object that is answered with and not stored (dry run).
    pub(crate) fn unsaved(value: &Value) -> Result<Stored, serde_json::Error> {
        let json = Bytes::from(serde_json::to_vec(value)?);
        Ok(Stored { revision: 0, json, parsed: Mutex::new(Parsed::Never) })
    }

    /// The object itself.
    pub fn value(&self) -> Arc<Value> {
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Parsed::Kept(value) = &*parsed {
            return value.clone();
        }
        // Its text was rendered from a value, so that it can be read back.
        let value: Arc<Value> = Arc::new(serde_json::from_slice(&self.json).unwrap_or_default());
        if let Parsed::NotYet = *parsed {
            *parsed = Parsed::Kept(value.clone());
        }
        value
    }

    /// It is not current any more.
    pub(crate) fn retire(&self) {
        *self.parsed.lock().unwrap_or_else(PoisonError::into_inner) = Parsed::Never;
    }
}

/// What must be true of the key for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is there: a create.
    Absent,
    /// The object is there at exactly this revision: an update or a delete.
    Revision(u64),
}

/// What a write does.
#[derive(Clone, Debug)]
pub enum Change {
    /// Puts this object there.
    Put(Value),
    /// Removes the object; the value is its last state, which the DELETED event carries.
    Delete(Value),
}

/// Whether a write waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Answered only after fsync.
    Durable,
    /// Answered at once and written with the next durable one: renewals of a Lease (failover.md F2).
    Relaxed,
}

/// One compare-and-set on one key.
#[derive(Clone, Debug)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// The condition.
    pub expect: Expect,
    /// The effect.
    pub change: Change,
    /// Whether the answer waits for the disk.
    pub durability: Durability,
}

/// The kinds of event, as watches name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The object came to be.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One revision of the log.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Where.
    pub key: Key,
    /// The object after it; for a deletion, its last state at the deletion's revision.
    pub object: Arc<Stored>,
    /// The object before it, by which selectors see objects enter and leave.
    pub previous: Option<Arc<Stored>>,
}

impl Event {
    /// The revision of this event.
    pub fn revision(&self) -> u64 {
        self.object.revision
    }
}
