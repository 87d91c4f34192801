//! Events do not stay for ever.

use k8s_openapi::api::core::v1::Event;
use std::time::Duration;

use super::Options;
use super::world::{Change, Now, Object, ObjectKey, World};
use super::write::{Decision, Write};

/// The events that a change concerns.
pub fn touched(change: &Change) -> Vec<ObjectKey> {
    match &change.new {
        Some(Object::Event(_)) => vec![change.key.clone()],
        _ => Vec::new(),
    }
}

/// Deletes an event that nobody has repeated for the time that events are kept.
pub fn decide(world: &World, options: &Options, key: &ObjectKey, now: Now) -> Decision {
    let Some(event) = world.tables.events.get(&key.namespace, &key.name) else { return Decision::nothing() };
    let Some(last) = last_seen(event) else { return Decision::nothing() };
    let age = Duration::try_from(now.wall.duration_since(last)).unwrap_or_default();
    match options.event_ttl.checked_sub(age).filter(|left| !left.is_zero()) {
        Some(left) => Decision::nothing().again_after(Some(left)),
        None if event.metadata.deletion_timestamp.is_some() => Decision::nothing(),
        None => Decision::in_order(vec![Write::delete(&**event)]),
    }
}

fn last_seen(event: &Event) -> Option<jiff::Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let times = [
        event.metadata.creation_timestamp.as_ref().map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
        series.map(|time| time.0),
    ];
    times.into_iter().flatten().max()
}
