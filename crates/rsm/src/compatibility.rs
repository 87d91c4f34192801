//! `RSM_COMPATIBILITY_MODE`: generated objects take labels, owner and finalizer over from the RSM, as controllers of the
//! origin before 0.6 expect to find them (the first seed, `FeatureGateRSMCompatibilityMode`; rsm.md 3.1, 3.2).

use std::collections::BTreeMap;

use coregent_api::ReplicatedStateMachine;
use kube::{Resource, ResourceExt};

use crate::names;
use crate::ownership::{AlreadyOwned, controller_of, copy_ownership};
use crate::render::Desired;

/// Environment variable that turns it on.
pub const FEATURE_GATE_RSM_COMPATIBILITY_MODE: &str = "RSM_COMPATIBILITY_MODE";

/// Labels that are taken over, where the RSM has them.
const COPIED: [&str; 5] = [
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "apps.kubeblocks.io/component-name",
];

/// Whether the environment of this process asks for it.
#[must_use]
pub fn from_environment() -> bool {
    std::env::var(FEATURE_GATE_RSM_COMPATIBILITY_MODE).is_ok_and(|text| means_yes(&text))
}

/// As Go's `strconv.ParseBool` reads it, which the origin did.
fn means_yes(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// The labels of the RSM that generated objects take over, and by which they are listed back. `None`: it has none of
/// them, and an empty selector would list everything.
#[must_use]
pub fn copied_labels(rsm: &ReplicatedStateMachine) -> Option<BTreeMap<String, String>> {
    let of = |key: &&str| rsm.labels().get(*key).map(|value| ((*key).to_owned(), value.clone()));
    let copied: BTreeMap<String, String> = COPIED.iter().filter_map(of).collect();
    (!copied.is_empty()).then_some(copied)
}

/// The same objects with the RSM's labels, the RSM's own controller for theirs, and the RSM's finalizer. An RSM without a
/// controller stays the owner itself.
pub fn adapt(rsm: &ReplicatedStateMachine, mut desired: Desired) -> Result<Desired, AlreadyOwned> {
    desired.stateful_sets.iter_mut().try_for_each(|object| take_over(rsm, object))?;
    desired.services.iter_mut().try_for_each(|object| take_over(rsm, object))?;
    desired.config_maps.iter_mut().try_for_each(|object| take_over(rsm, object))?;
    Ok(desired)
}

fn take_over<K: Resource<DynamicType = ()>>(rsm: &ReplicatedStateMachine, object: &mut K) -> Result<(), AlreadyOwned> {
    // Ours stay beside them: they tell what is ours from what the RSM's own controller made with the same labels.
    object.labels_mut().extend(copied_labels(rsm).unwrap_or_default());
    if controller_of(&rsm.metadata).is_some() {
        object.meta_mut().owner_references = None;
    }
    copy_ownership(rsm, object, names::FINALIZER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_read_as_the_origin_read_it() {
        for yes in ["1", "t", "true", "TRUE", "True"] {
            assert!(means_yes(yes), "{yes}");
        }
        for no in ["", "0", "false", "yes", "on"] {
            assert!(!means_yes(no), "{no}");
        }
    }
}
