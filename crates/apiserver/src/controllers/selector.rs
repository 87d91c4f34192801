//! Label selectors and small facts about pods that several controllers need.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};

/// Whether labels fulfil a selector. An empty selector selects everything, an operator that is not known nothing.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|wish| {
            let values = wish.values.as_deref().unwrap_or_default();
            holds(&wish.operator, values, labels.get(&wish.key).map(String::as_str))
        })
}

/// One requirement of a label or node selector.
pub fn holds(operator: &str, values: &[String], actual: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || Some((number(actual?)?, number(values.first()?)?));
    match operator {
        "In" => actual.is_some_and(|actual| values.iter().any(|value| value == actual)),
        "NotIn" => actual.is_none_or(|actual| values.iter().all(|value| value != actual)),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => compared().is_some_and(|(actual, value)| actual > value),
        "Lt" => compared().is_some_and(|(actual, value)| actual < value),
        _ => false,
    }
}

/// The labels, or none.
pub fn labels(meta: &ObjectMeta) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    meta.labels.as_ref().unwrap_or(&NONE)
}

/// The owner that controls an object.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The reference that makes `owner` the controlling owner of something.
pub fn controlled_by<T: kube::Resource<DynamicType = ()>>(owner: &T) -> OwnerReference {
    OwnerReference {
        api_version: T::api_version(&()).into_owned(),
        kind: T::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Facts about a pod.
pub trait PodFacts {
    /// A condition of its status.
    fn condition(&self, type_: &str) -> Option<&PodCondition>;
    /// The phase; empty before anybody has written one.
    fn phase(&self) -> &str;
    /// Whether it has the condition Ready=True.
    fn is_ready(&self) -> bool;
    /// Since when it is ready.
    fn ready_since(&self) -> Option<Timestamp>;
    /// Whether deletion has been asked for.
    fn is_terminating(&self) -> bool;
    /// Whether all its containers have ended for good.
    fn is_over(&self) -> bool;
    /// The node it is bound to.
    fn node(&self) -> Option<&str>;
}

impl PodFacts for Pod {
    fn condition(&self, type_: &str) -> Option<&PodCondition> {
        self.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
    }

    fn phase(&self) -> &str {
        self.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }

    fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|condition| condition.status == "True")
    }

    fn ready_since(&self) -> Option<Timestamp> {
        let ready = self.condition("Ready").filter(|condition| condition.status == "True")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    }

    fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn is_over(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    fn node(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
    }
}
