//! `coregent events`.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
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
    /// Only those about this object: KIND/NAME or NAME
    #[arg(long = "for", value_name = "OBJECT")]
    pub about: Option<String>,
}

/// Prints events, oldest first.
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
    let list = api.list(&ListParams::default()).await.map_err(|error| Failure::from_api(what, error))?;
    let mut version = list.metadata.resource_version.clone().unwrap_or_default();
    let mut events: Vec<Event> = list.items.into_iter().filter(|event| concerns(event, args)).collect();
    events.sort_by_key(|event| (seen(event), event.metadata.name.clone()));
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
                    if concerns(&event, args) {
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

fn concerns(event: &Event, args: &Args) -> bool {
    let Some(about) = &args.about else { return true };
    let object = &event.involved_object;
    let name = object.name.as_deref().unwrap_or_default();
    match about.split_once('/') {
        Some((kind, wanted)) => name == wanted && object.kind.as_deref().unwrap_or_default().eq_ignore_ascii_case(kind),
        None => name == about,
    }
}

fn seen(event: &Event) -> Option<jiff::Timestamp> {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    last.or_else(|| event.event_time.as_ref().map(|time| time.0))
        .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

fn row(event: &Event) -> Vec<String> {
    let ago = seen(event).map_or("?".into(), |time| output::age(jiff::Timestamp::now().duration_since(time).as_secs()));
    let object = &event.involved_object;
    vec![
        ago,
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
