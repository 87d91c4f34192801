//! ControllerRevisions: the templates that pods of a StatefulSet were, are and will be made from.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{is_ours, pod};
use crate::controllers::selector::controlled_by;
use crate::controllers::world::World;
use crate::controllers::write::Write;

/// Kubernetes keeps ten (StatefulSetSpec.revisionHistoryLimit).
const HISTORY_LIMIT: i32 = 10;
/// Letters that make no words and cannot be misread, as Kubernetes uses in generated names.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const HASH_LENGTH: usize = 10;

/// The revisions of one StatefulSet.
pub struct History {
    /// Oldest first.
    known: Vec<Arc<ControllerRevision>>,
    /// What new pods are made from.
    pub update: Revision,
    /// What pods below the partition are made from.
    pub current: Revision,
    step: Step,
}

/// A named template.
#[derive(Clone)]
pub struct Revision {
    /// The name, which is the value of the pods' revision label.
    pub name: String,
    /// The template.
    pub template: PodTemplateSpec,
}

enum Step {
    Nothing,
    Create(Box<ControllerRevision>),
    /// The template went back to an earlier one, which becomes the newest.
    Renumber(Arc<ControllerRevision>, i64),
}

impl History {
    /// Reads the revisions of a set and finds those in use.
    pub fn read(world: &World, set: &StatefulSet) -> Self {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let owned = world.tables.revisions.within(namespace).filter(|revision| is_ours(set, &revision.metadata));
        let mut known: Vec<_> = owned.cloned().collect();
        known.sort_by(|a, b| (a.revision, &a.metadata.name).cmp(&(b.revision, &b.metadata.name)));
        let data = data_of(set);
        let newest = known.last().map_or(0, |last| last.revision);
        let equal = known.iter().rev().find(|revision| same(revision, &data)).cloned();
        let (name, step) = match equal {
            Some(equal) if equal.revision == newest => (name_of(&equal), Step::Nothing),
            Some(equal) => (name_of(&equal), Step::Renumber(equal, newest + 1)),
            None => {
                let new = build(set, data, newest + 1, free_name(world, set));
                (name_of(&new), Step::Create(Box::new(new)))
            }
        };
        let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let update = Revision { name, template };
        let current = current(set, &known).unwrap_or_else(|| update.clone());
        Self { known, update, current, step }
    }

    /// What to write before any pod of the new revision is made.
    pub fn writes(&self) -> Vec<Write> {
        match &self.step {
            Step::Nothing => Vec::new(),
            Step::Create(new) => Write::create(&**new).into_iter().collect(),
            Step::Renumber(revision, number) => vec![Write::patch(&**revision, json!({ "revision": number }))],
        }
    }

    /// Revisions beyond the limit that nobody uses, oldest first.
    pub fn surplus(&self, set: &StatefulSet, pods: &[Arc<Pod>]) -> Vec<Write> {
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(HISTORY_LIMIT).max(0);
        let live = |revision: &&Arc<ControllerRevision>| {
            let name = name_of(revision);
            name == self.update.name || name == self.current.name || pods.iter().any(|pod| pod::revision(pod) == name)
        };
        let unused: Vec<_> = self.known.iter().filter(|revision| !live(revision)).collect();
        let surplus = unused.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        unused.into_iter().take(surplus).map(|revision| Write::delete(&**revision)).collect()
    }
}

fn current(set: &StatefulSet, known: &[Arc<ControllerRevision>]) -> Option<Revision> {
    let name = set.status.as_ref()?.current_revision.as_deref()?;
    let revision = known.iter().find(|revision| name_of(revision) == name)?;
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    Some(Revision { name: name.to_owned(), template: serde_json::from_value(template).ok()? })
}

fn name_of(revision: &ControllerRevision) -> String {
    revision.metadata.name.clone().unwrap_or_default()
}

/// The template as a patch that puts it back, which is what `kubectl rollout undo` reads.
fn data_of(set: &StatefulSet) -> Value {
    let template = set.spec.as_ref().map(|spec| &spec.template);
    let mut template = template.and_then(|template| serde_json::to_value(template).ok()).unwrap_or_default();
    if let Some(template) = template.as_object_mut() {
        template.insert("$patch".to_owned(), json!("replace"));
    }
    json!({ "spec": { "template": template } })
}

fn same(revision: &ControllerRevision, data: &Value) -> bool {
    revision.data.as_ref().is_some_and(|known| canonical(&known.0) == canonical(data))
}

/// A name that no revision of other content bears. A collision is possible only by a hash that two templates share,
/// or by a revision that somebody else made.
fn free_name(world: &World, set: &StatefulSet) -> String {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let data = canonical(&data_of(set));
    let mut collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
    loop {
        let name = format!("{set_name}-{}", hash(&data, collisions));
        if world.tables.revisions.get(namespace, &name).is_none() {
            return name;
        }
        collisions += 1;
    }
}

fn build(set: &StatefulSet, data: Value, number: i64, name: String) -> ControllerRevision {
    let template = set.spec.as_ref().and_then(|spec| spec.template.metadata.clone()).unwrap_or_default();
    let mut labels = template.labels.unwrap_or_default();
    labels.insert(pod::REVISION_LABEL.to_owned(), name.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: template.annotations,
            owner_references: Some(vec![controlled_by(set)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: number,
    }
}

/// The hash must be the same in every version of this program, else an upgrade restarts every pod.
fn hash(canonical: &str, collisions: i32) -> String {
    let mut digest = Sha256::new();
    digest.update(canonical.as_bytes());
    if collisions > 0 {
        digest.update(collisions.to_be_bytes());
    }
    let letter = |byte: &u8| LETTERS.get(usize::from(*byte) % LETTERS.len()).copied().map_or('b', char::from);
    digest.finalize().iter().take(HASH_LENGTH).map(letter).collect()
}

/// JSON with sorted keys and without absent values, whatever order the map keeps.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().filter(|(_, value)| !value.is_null()).collect();
            fields.sort_by_key(|(key, _)| *key);
            let fields: Vec<_> =
                fields.into_iter().map(|(key, value)| format!("{}:{}", json!(key), canonical(value))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_template_is_the_same_in_every_version() {
        let data = json!({ "spec": { "template": { "spec": { "b": 1, "a": [true, null] }, "$patch": "replace" } } });
        let reordered =
            json!({ "spec": { "template": { "$patch": "replace", "spec": { "a": [true, null], "b": 1 } } } });
        assert_eq!(canonical(&data), canonical(&reordered));
        insta::assert_snapshot!(hash(&canonical(&data), 0), @"qnl2px5mk8");
        assert_ne!(hash(&canonical(&data), 0), hash(&canonical(&data), 1));
    }
}
