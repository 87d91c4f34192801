//! Garbage collection by owner references, across all kinds that are served.
//!
//! As Kubernetes' garbage collector: an object whose owners are all gone is deleted; an owner that is deleted in the
//! foreground waits for the dependents that block it; one that is deleted with `orphan` first lets its dependents go.
//! An owner is gone only when the server itself says that no object of its name has its uid: nothing is deleted on
//! the word of a mirror.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ApiResource;
use serde_json::json;

use super::world::{Change, Meta, ObjectKey, World};
use super::write::{Decision, Propagation, Target, Write};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The uids of the objects that a change concerns, as names of keys.
pub fn touched(world: &World, change: &Change) -> Vec<ObjectKey> {
    let mut uids: Vec<&str> = Vec::new();
    if let Some(meta) = &change.new_meta
        && (!meta.owners.is_empty() || meta.finalizers.iter().any(|name| name == FOREGROUND || name == ORPHAN))
    {
        uids.push(&meta.uid);
    }
    if let Some(old) = &change.old_meta {
        // Owners may have waited for it.
        uids.extend(old.owners.iter().map(|owner| owner.uid.as_str()));
        if change.new_meta.as_ref().is_none_or(|new| new.uid != old.uid) {
            uids.extend(world.dependents(&old.uid).map(|meta| meta.uid.as_str()));
        }
    }
    if let Some(new) = &change.new_meta {
        let owners = new.owners.iter().filter(|owner| world.by_uid(&owner.uid).is_some_and(|owner| owner.deleting));
        uids.extend(owners.map(|owner| owner.uid.as_str()));
    }
    uids.sort_unstable();
    uids.dedup();
    uids.into_iter().map(|uid| ObjectKey::new("", uid)).collect()
}

/// What to write for the object with this uid.
pub fn decide(world: &World, uid: &str) -> Decision {
    let Some(meta) = world.by_uid(uid) else { return Decision::nothing() };
    if !meta.deleting {
        return Decision::in_order(collect(world, meta));
    }
    if has(meta, ORPHAN) {
        return orphan(world, meta);
    }
    if has(meta, FOREGROUND) {
        return foreground(world, meta);
    }
    Decision::nothing()
}

fn has(meta: &Meta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|name| name == finalizer)
}

fn without(meta: &Meta, finalizer: &str) -> Write {
    let left: Vec<&String> = meta.finalizers.iter().filter(|name| *name != finalizer).collect();
    patch(meta, json!({ "metadata": { "finalizers": left } }))
}

fn patch(meta: &Meta, patch: serde_json::Value) -> Write {
    Write::Patch { target: Target::known(meta), subresource: None, patch }
}

/// Takes the owner out of its dependents, then lets it go.
fn orphan(world: &World, owner: &Meta) -> Decision {
    let mut dependents = world.dependents(&owner.uid).peekable();
    if dependents.peek().is_none() {
        return Decision::in_order(vec![without(owner, ORPHAN)]);
    }
    Decision::side_by_side(dependents.map(|dependent| disown(dependent, &[&owner.uid])))
}

fn disown(dependent: &Meta, gone: &[&str]) -> Write {
    let left: Vec<&OwnerReference> =
        dependent.owners.iter().filter(|owner| !gone.contains(&owner.uid.as_str())).collect();
    patch(dependent, json!({ "metadata": { "ownerReferences": left } }))
}

/// Deletes the dependents, and lets the owner go when none is left that blocks it.
fn foreground(world: &World, owner: &Meta) -> Decision {
    let blocks = |dependent: &&Meta| {
        let mut references = dependent.owners.iter().filter(|reference| reference.uid == owner.uid);
        references.any(|reference| reference.block_owner_deletion == Some(true))
    };
    let alive = world.dependents(&owner.uid).filter(|dependent| !dependent.deleting);
    // One that has another living owner stays, without this one.
    let mut writes: Vec<Write> = alive
        .map(|dependent| match dependent.owners.iter().any(|other| other.uid != owner.uid && lives(world, other)) {
            true => disown(dependent, &[&owner.uid]),
            false => delete(world, dependent),
        })
        .collect();
    if world.dependents(&owner.uid).filter(blocks).count() == 0 {
        writes.push(without(owner, FOREGROUND));
    }
    Decision::side_by_side(writes)
}

fn lives(world: &World, owner: &OwnerReference) -> bool {
    world.by_uid(&owner.uid).is_some_and(|meta| !(meta.deleting && has(meta, FOREGROUND)))
}

fn delete(world: &World, meta: &Meta) -> Write {
    let is_owner = world.dependents(&meta.uid).next().is_some();
    let propagation = if is_owner { Propagation::Foreground } else { Propagation::Background };
    Write::Delete { target: Target::known(meta), propagation, grace: None }
}

/// Deletes an object all of whose owners are gone, or takes those that are gone out of it.
fn collect(world: &World, meta: &Meta) -> Vec<Write> {
    let absent: Vec<&OwnerReference> = meta.owners.iter().filter(|owner| world.by_uid(&owner.uid).is_none()).collect();
    // An owner of a kind that is not served cannot be asked for, so it is not known to be gone.
    let targets: Option<Vec<Target>> = absent.iter().map(|owner| target(world, owner, &meta.key.namespace)).collect();
    let Some(targets) = targets.filter(|targets| !targets.is_empty()) else { return Vec::new() };
    let mut writes: Vec<Write> = targets.into_iter().map(|target| Write::ConfirmGone { target }).collect();
    if absent.len() == meta.owners.len() {
        let target = Target::known(meta);
        writes.push(Write::Delete { target, propagation: Propagation::Background, grace: None });
    } else if meta.owners.iter().any(|owner| lives(world, owner)) {
        let gone: Vec<&str> = absent.iter().map(|owner| owner.uid.as_str()).collect();
        writes.push(disown(meta, &gone));
    } else {
        return Vec::new();
    }
    writes
}

fn target(world: &World, owner: &OwnerReference, namespace: &str) -> Option<Target> {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let (resource, namespaced): (&Arc<ApiResource>, bool) = world.kind(group, &owner.kind)?;
    Some(Target {
        resource: (**resource).clone(),
        namespace: if namespaced { namespace.to_owned() } else { String::new() },
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        resource_version: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::controllers::fixture::Fixture;
    use crate::controllers::registry::Controller::Garbage;

    fn map(name: &str, owners: Value, finalizers: Value) -> Value {
        let deleting = finalizers.is_array().then_some("2026-01-01T00:00:00Z");
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": name, "ownerReferences": owners, "finalizers": finalizers, "deletionTimestamp": deleting,
        }})
    }

    fn owner(name: &str, blocks: bool) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("uid-{name}"),
            "blockOwnerDeletion": blocks,
        })
    }

    fn lines(objects: &[Value], name: &str) -> Vec<String> {
        let mut fixture = Fixture::new();
        fixture.serve_config_maps();
        for object in objects {
            fixture.put(object.clone());
        }
        fixture.decide(Garbage, &format!("uid-{name}")).lines()
    }

    #[test]
    fn a_dependent_goes_when_the_server_says_that_all_its_owners_are_gone() {
        let orphaned = map("child", json!([owner("a", true), owner("b", true)]), Value::Null);
        assert_eq!(
            lines(&[orphaned], "child"),
            [
                "confirm that ConfigMap default/a uid-a is gone",
                "confirm that ConfigMap default/b uid-b is gone",
                "delete ConfigMap default/child",
            ]
        );
    }

    #[test]
    fn a_dependent_with_a_living_owner_stays_and_forgets_the_dead_one() {
        let objects = [
            map("a", Value::Null, Value::Null),
            map("child", json!([owner("a", true), owner("b", true)]), Value::Null),
        ];
        let lines = lines(&objects, "child");
        assert_eq!(lines[0], "confirm that ConfigMap default/b uid-b is gone");
        assert!(lines[1].contains("uid-a") && !lines[1].contains("uid-b"), "{lines:?}");
    }

    #[test]
    fn an_owner_of_a_kind_that_is_not_served_is_not_taken_for_gone() {
        let reference = json!([{ "apiVersion": "x.io/v1", "kind": "Thing", "name": "t", "uid": "t" }]);
        assert!(lines(&[map("child", reference, Value::Null)], "child").is_empty());
    }

    #[test]
    fn an_owner_deleted_in_the_foreground_waits_for_those_that_block_it() {
        let parent = map("a", Value::Null, json!(["foregroundDeletion"]));
        let blocking = map("child", json!([owner("a", true)]), Value::Null);
        let other = map("other", json!([owner("a", false)]), Value::Null);
        assert_eq!(
            lines(&[parent.clone(), blocking, other.clone()], "a"),
            ["delete ConfigMap default/child", "delete ConfigMap default/other",]
        );
        assert_eq!(
            lines(&[parent, other], "a"),
            ["delete ConfigMap default/other", "patch ConfigMap default/a {\"metadata\":{\"finalizers\":[]}}",]
        );
    }

    #[test]
    fn an_owner_deleted_with_orphan_first_lets_its_dependents_go() {
        let parent = map("a", Value::Null, json!(["orphan"]));
        let child = map("child", json!([owner("a", true)]), Value::Null);
        assert_eq!(
            lines(&[parent.clone(), child], "a"),
            ["patch ConfigMap default/child {\"metadata\":{\"ownerReferences\":[]}}",]
        );
        assert_eq!(lines(&[parent], "a"), ["patch ConfigMap default/a {\"metadata\":{\"finalizers\":[]}}"]);
    }
}
