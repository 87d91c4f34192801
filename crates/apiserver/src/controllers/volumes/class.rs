//! The storage class that claims get when they name none.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::core::ObjectMeta;

use super::{DEFAULT_CLASS, PROVISIONER, annotation};
use crate::controllers::world::World;
use crate::controllers::write::{Decision, Write};

/// The name of our class.
pub const NAME: &str = "local";

/// Makes the class `local` at the start, as the default one unless another class already is.
pub fn decide(world: &World) -> Decision {
    if world.tables.storage_classes.get("", NAME).is_some() {
        return Decision::nothing();
    }
    let is_default = default_class(world).is_none().to_string();
    let class = StorageClass {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            annotations: Some([(DEFAULT_CLASS.to_owned(), is_default)].into()),
            ..ObjectMeta::default()
        },
        provisioner: PROVISIONER.to_owned(),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        ..StorageClass::default()
    };
    Decision::in_order(Write::create(&class).into_iter().collect())
}

/// The default class; of several the newest (Kubernetes, "Default StorageClass").
pub fn default_class(world: &World) -> Option<&StorageClass> {
    let classes = world.tables.storage_classes.all().map(|class| &**class);
    classes
        .filter(|class| annotation(&class.metadata, DEFAULT_CLASS) == Some("true"))
        .max_by_key(|class| class.metadata.creation_timestamp.as_ref().map(|time| time.0))
}
