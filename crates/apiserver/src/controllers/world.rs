//! What the controllers know: a mirror of every object that the API serves, kept by watches.
//!
//! [`World`] is a plain value with [`World::apply`] and [`World::remove`]; tests fill it by calling them and read
//! decisions off it, with no server and no mock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject, ObjectMeta};

/// The moment of a decision: decisions never read a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall time, for what is written into objects and compared with what is read from them.
    pub wall: Timestamp,
    /// Time since the controllers started, on a clock that nobody sets back; for silence and time-outs.
    pub mono: Duration,
}

/// Where an object lies within its kind. The namespace of a cluster-wide object is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ObjectKey {
    /// The namespace, or nothing for a cluster-wide kind.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of the object that this metadata belongs to.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

/// All objects of one kind, in the order of namespace and name.
#[derive(Debug)]
pub struct Table<T> {
    rows: BTreeMap<ObjectKey, Arc<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: BTreeMap::new() }
    }
}

impl<T> Table<T> {
    /// The object of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.rows.get(&ObjectKey::new(namespace, name))
    }

    /// Every object.
    pub fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.rows.values()
    }

    /// Every object of a namespace.
    pub fn within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<T>> {
        self.rows
            .range(ObjectKey::new(namespace, "")..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, row)| row)
    }
}

/// What garbage collection needs of an object of whatever kind.
#[derive(Clone, Debug)]
pub struct Meta {
    /// The kind.
    pub resource: Arc<ApiResource>,
    /// Namespace and name.
    pub key: ObjectKey,
    /// The uid.
    pub uid: String,
    /// The resourceVersion as the server wrote it.
    pub resource_version: String,
    /// The owners that the object names.
    pub owners: Vec<OwnerReference>,
    /// The finalizers left.
    pub finalizers: Vec<String>,
    /// Whether deletion has been asked for.
    pub deleting: bool,
}

macro_rules! mirrored {
    ($($variant:ident($type:ty) in $table:ident),* $(,)?) => {
        /// The kinds whose whole objects the controllers read.
        #[derive(Debug, Default)]
        pub struct Tables {
            $(
                #[doc = concat!("Every `", stringify!($type), "`.")]
                pub $table: Table<$type>,
            )*
        }

        /// One object of a kind that the controllers read, or of any other kind.
        #[derive(Clone, Debug)]
        pub enum Object {
            $(
                #[doc = concat!("A `", stringify!($type), "`.")]
                $variant(Arc<$type>),
            )*
            /// A kind of which only the metadata matters.
            Other,
        }

        /// The kinds that [`Tables`] holds.
        pub fn typed_resources() -> Vec<ApiResource> {
            vec![$(ApiResource::erase::<$type>(&())),*]
        }

        fn decode(resource: &ApiResource, object: &DynamicObject) -> Object {
            $(
                if is::<$type>(resource) {
                    return match object.clone().try_parse::<$type>() {
                        Ok(parsed) => Object::$variant(Arc::new(parsed)),
                        Err(error) => {
                            tracing::warn!(kind = resource.kind, ?error, "failed to read an object; it is left alone");
                            Object::Other
                        }
                    };
                }
            )*
            Object::Other
        }

        impl Tables {
            fn put(&mut self, key: &ObjectKey, object: &Object) -> Option<Object> {
                match object {
                    $(Object::$variant(new) => {
                        self.$table.rows.insert(key.clone(), new.clone()).map(Object::$variant)
                    })*
                    Object::Other => None,
                }
            }

            fn take(&mut self, resource: &ApiResource, key: &ObjectKey) -> Option<Object> {
                $(
                    if is::<$type>(resource) {
                        return self.$table.rows.remove(key).map(Object::$variant);
                    }
                )*
                None
            }
        }
    };
}

mirrored! {
    ControllerRevision(ControllerRevision) in revisions,
    Crd(CustomResourceDefinition) in crds,
    EndpointSlice(EndpointSlice) in slices,
    Event(Event) in events,
    Job(Job) in jobs,
    Lease(Lease) in leases,
    Namespace(Namespace) in namespaces,
    Node(Node) in nodes,
    PersistentVolume(PersistentVolume) in volumes,
    PersistentVolumeClaim(PersistentVolumeClaim) in claims,
    Pod(Pod) in pods,
    Service(Service) in services,
    ServiceAccount(ServiceAccount) in service_accounts,
    StatefulSet(StatefulSet) in stateful_sets,
    StorageClass(StorageClass) in storage_classes,
}

fn is<T: kube::Resource<DynamicType = ()>>(resource: &ApiResource) -> bool {
    T::kind(&()) == resource.kind && T::group(&()) == resource.group
}

/// One difference between what was known and what is known now.
#[derive(Clone, Debug)]
pub struct Change {
    /// The kind.
    pub resource: Arc<ApiResource>,
    /// Namespace and name.
    pub key: ObjectKey,
    /// The object as it was known before.
    pub old: Option<Object>,
    /// The object as it is; absent when it is gone.
    pub new: Option<Object>,
    /// The metadata before.
    pub old_meta: Option<Meta>,
    /// The metadata now.
    pub new_meta: Option<Meta>,
}

impl Change {
    /// The versions of the object, newest first.
    pub fn versions(&self) -> impl Iterator<Item = &Object> {
        self.new.iter().chain(self.old.iter())
    }
}

/// The mirror.
#[derive(Debug, Default)]
pub struct World {
    /// Whole objects of the kinds that controllers read.
    pub tables: Tables,
    metas: BTreeMap<(String, String), BTreeMap<ObjectKey, Meta>>,
    by_uid: BTreeMap<String, (String, String, ObjectKey)>,
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// The highest resourceVersion that the watch of a kind has brought.
    watched: BTreeMap<(String, String), u64>,
    /// Every kind that is served, and whether its objects lie in namespaces.
    kinds: BTreeMap<(String, String), (Arc<ApiResource>, bool)>,
    lease_seen: BTreeMap<ObjectKey, Duration>,
    node_seen: BTreeMap<String, Duration>,
}

impl World {
    /// Takes an object that a watch brought. Returns nothing when it was already known in this version.
    pub fn apply(&mut self, resource: &Arc<ApiResource>, object: &DynamicObject, now: Now) -> Option<Change> {
        let seen = self.watched.entry(kind_of(resource)).or_default();
        *seen = (*seen).max(version(&object.metadata));
        self.insert(resource, object, now)
    }

    /// Takes the answer to a write of our own, so that the next decision already sees it.
    ///
    /// The answer is ignored when the watch has passed it: whatever happened to the object since is known better
    /// from there, and an object that is gone must not come back.
    pub fn apply_answer(&mut self, resource: &Arc<ApiResource>, object: &DynamicObject, now: Now) -> Option<Change> {
        let answered = version(&object.metadata);
        let seen = self.watched.get(&kind_of(resource)).copied().unwrap_or_default();
        if answered <= seen {
            return None;
        }
        self.insert(resource, object, now)
    }

    fn insert(&mut self, resource: &Arc<ApiResource>, object: &DynamicObject, now: Now) -> Option<Change> {
        let key = ObjectKey::of(&object.metadata);
        let meta = meta_of(resource, &object.metadata);
        let rows = self.metas.entry(kind_of(resource)).or_default();
        if let Some(known) = rows.get(&key)
            && known.uid == meta.uid
            && (known.resource_version == meta.resource_version || is_newer(known, &object.metadata))
        {
            return None;
        }
        let old_meta = rows.insert(key.clone(), meta.clone());
        if let Some(old) = &old_meta {
            self.unlink(old);
        }
        self.link(&meta);
        let new = decode(resource, object);
        // An object that can no longer be read is as good as absent for those who read whole objects.
        let old = match &new {
            Object::Other => self.tables.take(resource, &key),
            known => self.tables.put(&key, known),
        };
        self.note_time(&new, old.as_ref(), &key, now);
        Some(Change { resource: resource.clone(), key, old, new: Some(new), old_meta, new_meta: Some(meta) })
    }

    /// Forgets an object that is gone. `version` is the resourceVersion of its removal.
    pub fn remove(&mut self, resource: &Arc<ApiResource>, meta: &ObjectMeta) -> Option<Change> {
        let seen = self.watched.entry(kind_of(resource)).or_default();
        *seen = (*seen).max(version(meta));
        self.forget(resource, &ObjectKey::of(meta))
    }

    fn forget(&mut self, resource: &Arc<ApiResource>, key: &ObjectKey) -> Option<Change> {
        let old_meta = self.metas.get_mut(&kind_of(resource))?.remove(key)?;
        self.unlink(&old_meta);
        let old = self.tables.take(resource, key);
        match &old {
            Some(Object::Lease(_)) => drop(self.lease_seen.remove(key)),
            Some(Object::Node(_)) => drop(self.node_seen.remove(&key.name)),
            _ => {}
        }
        let resource = resource.clone();
        Some(Change { resource, key: key.clone(), old, new: None, old_meta: Some(old_meta), new_meta: None })
    }

    /// Takes a complete list of a kind: what it does not hold is gone.
    pub fn replace(&mut self, resource: &Arc<ApiResource>, objects: &[DynamicObject], now: Now) -> Vec<Change> {
        let listed: BTreeSet<ObjectKey> = objects.iter().map(|object| ObjectKey::of(&object.metadata)).collect();
        let gone: Vec<ObjectKey> = self
            .metas
            .get(&kind_of(resource))
            .map(|rows| rows.keys().filter(|key| !listed.contains(key)).cloned().collect())
            .unwrap_or_default();
        let mut changes: Vec<Change> = gone.iter().filter_map(|key| self.forget(resource, key)).collect();
        changes.extend(objects.iter().filter_map(|object| self.apply(resource, object, now)));
        changes
    }

    /// Forgets a kind that the server no longer serves.
    pub fn drop_kind(&mut self, kind: &(String, String)) -> Vec<Change> {
        let metas: Vec<Meta> = self.metas.get(kind).map(|rows| rows.values().cloned().collect()).unwrap_or_default();
        metas.iter().filter_map(|meta| self.forget(&meta.resource, &meta.key)).collect()
    }

    /// Takes note of all kinds that are served, and whether each is namespaced.
    pub fn serve(&mut self, kinds: impl IntoIterator<Item = (ApiResource, bool)>) {
        self.kinds =
            kinds.into_iter().map(|(kind, namespaced)| (kind_of(&kind), (Arc::new(kind), namespaced))).collect();
    }

    /// The kind of this group and name, if it is served, and whether it is namespaced.
    pub fn kind(&self, group: &str, kind: &str) -> Option<(&Arc<ApiResource>, bool)> {
        self.kinds.get(&(group.to_owned(), kind.to_owned())).map(|(resource, namespaced)| (resource, *namespaced))
    }

    /// The metadata of the object with this uid.
    pub fn by_uid(&self, uid: &str) -> Option<&Meta> {
        let (group, kind, key) = self.by_uid.get(uid)?;
        self.metas.get(&(group.clone(), kind.clone()))?.get(key)
    }

    /// The objects that name this uid among their owners.
    pub fn dependents(&self, owner: &str) -> impl Iterator<Item = &Meta> {
        self.dependents.get(owner).into_iter().flatten().filter_map(|uid| self.by_uid(uid))
    }

    /// The metadata of every object in a namespace, of whatever kind.
    pub fn metas_within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Meta> {
        self.metas.values().flat_map(move |rows| {
            rows.range(ObjectKey::new(namespace, "")..)
                .take_while(move |(key, _)| key.namespace == namespace)
                .map(|(_, meta)| meta)
        })
    }

    /// When a Lease was last seen to change, on our own clock.
    pub fn lease_seen(&self, namespace: &str, name: &str) -> Option<Duration> {
        self.lease_seen.get(&ObjectKey::new(namespace, name)).copied()
    }

    /// When a Node was first seen, on our own clock.
    pub fn node_seen(&self, name: &str) -> Option<Duration> {
        self.node_seen.get(name).copied()
    }

    fn note_time(&mut self, new: &Object, old: Option<&Object>, key: &ObjectKey, now: Now) {
        match (new, old) {
            (Object::Lease(new), Some(Object::Lease(old))) if new.spec == old.spec => {}
            (Object::Lease(_), _) => drop(self.lease_seen.insert(key.clone(), now.mono)),
            (Object::Node(_), None) => drop(self.node_seen.insert(key.name.clone(), now.mono)),
            _ => {}
        }
    }

    fn link(&mut self, meta: &Meta) {
        let place = (meta.resource.group.clone(), meta.resource.kind.clone(), meta.key.clone());
        self.by_uid.insert(meta.uid.clone(), place);
        for owner in &meta.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(meta.uid.clone());
        }
    }

    fn unlink(&mut self, meta: &Meta) {
        self.by_uid.remove(&meta.uid);
        for owner in &meta.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&meta.uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }
}

fn kind_of(resource: &ApiResource) -> (String, String) {
    (resource.group.clone(), resource.kind.clone())
}

/// Our server's resourceVersions are the numbers of one log; a server whose are not is taken at its word.
fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn is_newer(known: &Meta, offered: &ObjectMeta) -> bool {
    let known: u64 = known.resource_version.parse().unwrap_or_default();
    known > version(offered) && version(offered) > 0
}

fn meta_of(resource: &Arc<ApiResource>, meta: &ObjectMeta) -> Meta {
    Meta {
        resource: resource.clone(),
        key: ObjectKey::of(meta),
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        owners: meta.owner_references.clone().unwrap_or_default(),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
    }
}
