//! `coregent events`.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::kinds::Kinds;
use crate::output;
use crate::say;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};

/// Which events.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Keep printing as they come
    #[arg(short, long)]
    pub watch: bool,
    /// Every namespace
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only those about this object: KIND/NAME or NAME, the kind as everywhere (dbc/orders, po/orders-1-0)
    #[arg(long = "for", value_name = "OBJECT")]
    pub about: Option<String>,
}

/// Prints events, the one that happened last at the end.
///
/// # Errors
/// When they cannot be listed.
pub async fn run(connection: &Connection, args: &Args) -> Outcome {
    let api: Api<Event> = if args.all_namespaces {
        Api::all(connection.client.clone())
    } else {
        Api::namespaced(connection.client.clone(), &connection.namespace)
    };
    let what = "cannot list events";
    let about = match &args.about {
        None => About::Anything,
        Some(text) => About::read(text, &Kinds::discover(connection).await?)?,
    };
    let list = api.list(&ListParams::default()).await.map_err(|error| Failure::from_api(what, error))?;
    let mut version = list.metadata.resource_version.clone().unwrap_or_default();
    let mut events: Vec<Event> = list.items.into_iter().filter(|event| about.concerns(event)).collect();
    events.sort_by_key(order);
    let header = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"].map(String::from);
    let rows: Vec<_> = events.iter().map(row).collect();
    if rows.is_empty() && !args.watch {
        say::err("no events");
    } else {
        print!("{}", output::columns(&header, &rows));
    }
    if !args.watch {
        return Ok(());
    }
    loop {
        let mut stream =
            api.watch(&WatchParams::default(), &version).await.map_err(|error| Failure::from_api(what, error))?.boxed();
        while let Ok(Some(event)) = stream.try_next().await {
            match event {
                WatchEvent::Added(event) | WatchEvent::Modified(event) => {
                    version = event.metadata.resource_version.clone().unwrap_or(version);
                    if about.concerns(&event) {
                        print!("{}", output::columns(&[], &[row(&event)]));
                    }
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Deleted(_) => {}
                WatchEvent::Error(status) => {
                    return Err(Failure::not_yet(what, status.message, "start the watch again"));
                }
            }
        }
    }
}

/// Which object the events are to be about.
#[derive(Debug, PartialEq)]
enum About {
    Anything,
    Named(String),
    Object { kind: String, name: String },
}

impl About {
    /// Reads KIND/NAME or NAME, the kind by any of its names.
    fn read(text: &str, kinds: &Kinds) -> Outcome<About> {
        Ok(match text.split_once('/') {
            Some((kind, name)) => {
                About::Object { kind: kinds.find(kind)?.resource.kind.clone(), name: name.to_owned() }
            }
            None => About::Named(text.to_owned()),
        })
    }

    fn concerns(&self, event: &Event) -> bool {
        let object = &event.involved_object;
        match self {
            About::Anything => true,
            About::Named(name) => object.name.as_ref() == Some(name),
            About::Object { kind, name } => object.name.as_ref() == Some(name) && object.kind.as_ref() == Some(kind),
        }
    }
}

/// When it happened last: a repeated event is kept as one with a series.
fn seen(event: &Event) -> Option<jiff::Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    series
        .max(last)
        .or_else(|| event.event_time.as_ref().map(|time| time.0))
        .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// What happened first comes first. Some authors write whole seconds and some microseconds: within a second the order is
/// that in which the API took them (resource versions compare as numbers, Kubernetes 1.35 on).
fn order(event: &Event) -> (Option<i64>, Option<u64>) {
    let version = event.metadata.resource_version.as_ref().and_then(|version| version.parse().ok());
    (seen(event).map(jiff::Timestamp::as_second), version)
}

/// How often it happened.
fn count(event: &Event) -> i32 {
    let series = event.series.as_ref().and_then(|series| series.count);
    series.max(event.count).unwrap_or(1)
}

fn last_seen(event: &Event, now: jiff::Timestamp) -> String {
    let ago = seen(event).map_or("?".into(), |time| output::age(now.duration_since(time).as_secs()));
    match count(event) {
        ..=1 => ago,
        times => format!("{ago} (x{times})"),
    }
}

fn row(event: &Event) -> Vec<String> {
    let object = &event.involved_object;
    vec![
        last_seen(event, jiff::Timestamp::now()),
        event.type_.clone().unwrap_or_default(),
        event.reason.clone().unwrap_or_default(),
        format!(
            "{}/{}",
            object.kind.as_deref().unwrap_or_default().to_lowercase(),
            object.name.as_deref().unwrap_or_default()
        ),
        event.message.clone().unwrap_or_default().replace('\n', " "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event(fields: Value) -> Event {
        let mut whole = json!({"metadata": {"name": "e", "creationTimestamp": "2026-11-30T10:00:00Z"},
            "involvedObject": {"kind": "DatabaseCluster", "name": "orders"}});
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn an_event_is_as_old_as_its_last_occurrence_and_counted_in_either_form() {
        let now = "2026-11-30T10:01:40Z".parse().unwrap();
        let table = [
            (json!({}), "100s"),
            (json!({"eventTime": "2026-11-30T10:00:30.000000Z"}), "70s"),
            (
                json!({"eventTime": "2026-11-30T10:00:30.000000Z",
                    "series": {"count": 7, "lastObservedTime": "2026-11-30T10:01:30.000000Z"}}),
                "10s (x7)",
            ),
            (json!({"count": 3, "lastTimestamp": "2026-11-30T10:01:20Z"}), "20s (x3)"),
            (json!({"count": 1, "lastTimestamp": "2026-11-30T10:01:20Z"}), "20s"),
        ];
        for (fields, expected) in table {
            assert_eq!(last_seen(&event(fields.clone()), now), expected, "{fields}");
        }
    }

    #[test]
    fn within_a_second_events_are_in_the_order_in_which_they_were_taken() {
        let at = |version: &str, fields: serde_json::Value| {
            let mut event = event(fields);
            event.metadata.resource_version = Some(version.into());
            event
        };
        let micros = json!({"eventTime": "2026-11-30T10:00:30.900000Z"});
        let seconds = json!({"count": 1, "lastTimestamp": "2026-11-30T10:00:30Z"});
        let later = json!({"count": 1, "lastTimestamp": "2026-11-30T10:00:31Z"});
        let mut events = [at("9", later), at("101", seconds.clone()), at("100", micros), at("99", seconds)].to_vec();
        events.sort_by_key(order);
        let order: Vec<_> = events.iter().filter_map(|event| event.metadata.resource_version.as_deref()).collect();
        assert_eq!(order, ["99", "100", "101", "9"]);
    }

    #[test]
    fn events_are_of_the_kind_and_name_asked_for() {
        let object = |kind: &str| About::Object { kind: kind.into(), name: "orders".into() };
        for (about, expected) in [
            (About::Anything, true),
            (About::Named("orders".into()), true),
            (About::Named("other".into()), false),
            (object("DatabaseCluster"), true),
            (object("Service"), false),
        ] {
            assert_eq!(about.concerns(&event(json!({}))), expected, "{about:?}");
        }
    }
}
