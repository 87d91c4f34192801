//! The kinds that are served now: the built-in table and what CustomResourceDefinitions add.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use super::{Kind, builtin, crd};

/// Group, version, plural.
type Place = (String, String, String);

/// All kinds served, by place.
pub(crate) struct Registry {
    kinds: RwLock<BTreeMap<Place, Arc<Kind>>>,
}

impl Registry {
    /// The built-in kinds.
    pub fn new() -> Registry {
        let kinds = builtin::kinds().into_iter().map(|kind| (place(&kind), Arc::new(kind))).collect();
        Registry { kinds: RwLock::new(kinds) }
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned())).cloned()
    }

    /// Every kind, ordered by group, version and plural.
    pub fn all(&self) -> Vec<Arc<Kind>> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The group and versions served under `/apis`.
    pub fn groups(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for kind in self.all() {
            groups.entry(kind.group.clone()).or_default().insert(kind.version.clone());
        }
        groups
    }

    /// Whether a built-in kind lives at this group and plural.
    pub fn is_builtin(&self, group: &str, plural: &str) -> bool {
        self.all().iter().any(|kind| kind.custom.is_none() && kind.group == group && kind.plural == plural)
    }

    /// Serves what an established CustomResourceDefinition describes, in place of what it described before.
    pub fn install(&self, definition: &Value) {
        let kinds = crd::kinds_of(definition);
        let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let mut served = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        served.retain(|_, kind| kind.custom.as_ref().is_none_or(|custom| custom.definition != name));
        served.extend(kinds.into_iter().map(|kind| (place(&kind), Arc::new(kind))));
    }

    /// Stops serving what a CustomResourceDefinition described.
    pub fn uninstall(&self, definition: &str) {
        let mut served = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        served.retain(|_, kind| kind.custom.as_ref().is_none_or(|custom| custom.definition != definition));
    }
}

fn place(kind: &Kind) -> Place {
    (kind.group.clone(), kind.version.clone(), kind.plural.clone())
}
