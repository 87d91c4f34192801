//! What a person would ask about: Events for changes of an RSM's conditions, on the change and never again.

use coregent_api::conditions::{self, find};
use coregent_api::{ReplicatedStateMachine, refusal};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Resource, ResourceExt};

/// Reasons of Ready that need a person.
const TROUBLE: [&str; 2] = ["SpecInvalid", "TooManyLeaders"];
/// An Event's note holds 1,024 bytes.
const LONGEST_NOTE: usize = 1000;

/// An Event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Whether it needs a person.
    pub warning: bool,
    /// One CamelCase word.
    pub reason: String,
    /// What happened.
    pub note: String,
}

/// What changed for people between two states of the conditions.
#[must_use]
pub fn between(before: &[Condition], after: &[Condition]) -> Option<News> {
    if let Some(held) = held_up(before, after) {
        return Some(held);
    }
    let ready = find(after, conditions::READY)?;
    let was = find(before, conditions::READY);
    if was.is_some_and(|was| was.reason == ready.reason) {
        return None;
    }
    let warning = TROUBLE.contains(&ready.reason.as_str()) || refusal::known(&ready.reason).is_some();
    // A set that was never ready and is not yet has no news; one that became ready, or ceased to be, has.
    let turned = ready.status == "True" || was.is_some_and(|was| was.status == "True");
    (warning || turned).then(|| News {
        warning,
        reason: ready.reason.clone(),
        note: ready.message.chars().take(LONGEST_NOTE).collect(),
    })
}

/// A deletion that waits because the set is paused: nobody would look for a condition of what they deleted.
fn held_up(before: &[Condition], after: &[Condition]) -> Option<News> {
    let waits = |list| find(list, conditions::PAUSED).filter(|paused| paused.reason == "DeletionWaits");
    let paused = waits(after)?;
    waits(before).is_none().then(|| News { warning: true, reason: paused.reason.clone(), note: paused.message.clone() })
}

/// Publishes news about an RSM. That it cannot be published is no reason to fail: the condition says the same.
pub(crate) async fn publish(recorder: &Recorder, rsm: &ReplicatedStateMachine, news: News) {
    let reference: ObjectReference = rsm.object_ref(&());
    let event = Event {
        type_: if news.warning { EventType::Warning } else { EventType::Normal },
        reason: news.reason,
        note: (!news.note.is_empty()).then_some(news.note),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(&event, &reference).await {
        tracing::debug!(set = rsm.name_any(), %error, "an Event could not be published");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coregent_api::conditions::{State, set_condition};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    fn ready(state: State, reason: &str) -> Vec<Condition> {
        let mut list = Vec::new();
        let now = Time(Timestamp::UNIX_EPOCH);
        set_condition(&mut list, conditions::READY, state, reason, "why", Some(1), &now);
        list
    }

    #[test]
    fn only_what_turns_or_needs_a_person_is_news() {
        let starting = ready(State::False, "MembersNotReady");
        let up = ready(State::True, "AllMembersReady");
        let foreign = ready(State::False, "ForeignObject");
        let reason =
            |before: &[Condition], after: &[Condition]| between(before, after).map(|news| (news.warning, news.reason));
        assert_eq!(reason(&[], &starting), None);
        assert_eq!(reason(&starting, &up), Some((false, "AllMembersReady".into())));
        assert_eq!(reason(&up, &up), None);
        assert_eq!(reason(&up, &starting), Some((false, "MembersNotReady".into())));
        assert_eq!(reason(&[], &foreign), Some((true, "ForeignObject".into())));
        assert_eq!(reason(&foreign, &foreign), None);
    }
}
