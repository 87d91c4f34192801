//! The end of namespaces: first everything in them, then they themselves.

use super::world::{Change, Object, ObjectKey, World};
use super::write::{Decision, Propagation, Target, Write};

/// The namespaces that a change concerns.
pub fn touched(world: &World, change: &Change) -> Vec<ObjectKey> {
    let name = match change.versions().next() {
        Some(Object::Namespace(_)) => &change.key.name,
        _ => &change.key.namespace,
    };
    if is_ending(world, name) { vec![ObjectKey::new("", name)] } else { Vec::new() }
}

fn is_ending(world: &World, name: &str) -> bool {
    let namespace = world.tables.namespaces.get("", name);
    namespace.is_some_and(|namespace| {
        let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
        namespace.metadata.deletion_timestamp.is_some() && finalizers.is_some_and(|list| !list.is_empty())
    })
}

/// Deletes what a namespace holds; when it holds nothing, lets go of it.
pub fn decide(world: &World, key: &ObjectKey) -> Decision {
    let Some(namespace) = world.tables.namespaces.get("", &key.name).filter(|_| is_ending(world, &key.name)) else {
        return Decision::nothing();
    };
    let mut held = world.metas_within(&key.name).peekable();
    if held.peek().is_none() {
        return Decision::in_order(vec![Write::FinalizeNamespace { target: Target::of(&**namespace) }]);
    }
    Decision::side_by_side(held.filter(|meta| !meta.deleting).map(|meta| Write::Delete {
        target: Target::known(meta),
        propagation: Propagation::Background,
        grace: None,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::controllers::fixture::Fixture;
    use crate::controllers::registry::Controller::Namespace;

    #[test]
    fn a_namespace_goes_after_all_that_it_holds() {
        let mut fixture = Fixture::new();
        fixture.put(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "finalizers": ["kubernetes"] },
        }));
        fixture.put(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } }));
        fixture.put(json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "b" } }));
        assert_eq!(fixture.lines(Namespace, "default"), ["delete Pod default/a", "delete Service default/b"]);
        fixture.step(Namespace, "default");
        assert!(fixture.decide(Namespace, "default").is_quiet(), "the pod takes its time");
        fixture.remove("Pod", "a");
        assert_eq!(fixture.lines(Namespace, "default"), ["finalize Namespace default"]);
    }

    #[test]
    fn a_namespace_that_stays_is_left_alone() {
        let mut fixture = Fixture::new();
        fixture.put(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "default" } }));
        fixture.put(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } }));
        assert!(fixture.decide(Namespace, "default").is_quiet());
    }
}
