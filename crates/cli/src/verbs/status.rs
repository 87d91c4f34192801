//! `coregent status [NAME] [-w]`: the picture of a database cluster.

mod operator_lease;
mod picture;

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Format};
use crate::say;
use coregent_api::DatabaseCluster;
use futures::{StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

pub use picture::draw;

/// How often a watch looks whether an operator leads.
const LOOK: Duration = Duration::from_secs(10);

/// Whose status, and how.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The database cluster; every one where none is named
    pub name: Option<String>,
    /// Keep it live
    #[arg(short, long)]
    pub watch: bool,
    /// Format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// Prints the picture, once or for as long as it changes.
///
/// # Errors
/// When the named cluster is not there.
pub async fn run(connection: &Connection, args: &Args) -> Outcome {
    let api: Api<DatabaseCluster> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let field = args.name.as_ref().map(|name| format!("metadata.name={name}"));
    let selector = ListParams { field_selector: field.clone(), ..ListParams::default() };
    let what = "cannot read the status";
    let list = api.list(&selector).await.map_err(|error| Failure::from_api(what, error))?;
    let mut version = list.metadata.resource_version.clone().unwrap_or_default();
    let mut clusters: BTreeMap<String, DatabaseCluster> =
        list.items.into_iter().map(|cluster| (cluster.name_any(), cluster)).collect();
    if clusters.is_empty() && !args.watch {
        return nothing(connection, args);
    }
    let mut warning = operator_lease::warning(&connection.client).await;
    print(&clusters, warning.as_deref(), args, false)?;
    if !args.watch {
        return Ok(());
    }
    // A dead operator changes nothing that a watch would tell.
    let mut looks = tokio::time::interval_at(tokio::time::Instant::now() + LOOK, LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let params = WatchParams { field_selector: field.clone(), ..WatchParams::default() };
        let mut events = api.watch(&params, &version).await.map_err(|error| Failure::from_api(what, error))?.boxed();
        loop {
            tokio::select! {
                event = events.try_next() => match event {
                    Ok(Some(event)) => {
                        if take_in(&mut clusters, &mut version, event)? {
                            print(&clusters, warning.as_deref(), args, true)?;
                        }
                    }
                    _ => break,
                },
                // Other formats do not say it.
                _ = looks.tick(), if args.output.is_table() => {
                    let found = operator_lease::warning(&connection.client).await;
                    if found.is_some() || warning.is_some() {
                        warning = found;
                        print(&clusters, warning.as_deref(), args, true)?;
                    }
                }
            }
        }
    }
}

/// Whether the event changes what is drawn.
fn take_in(
    clusters: &mut BTreeMap<String, DatabaseCluster>,
    version: &mut String,
    event: WatchEvent<DatabaseCluster>,
) -> Outcome<bool> {
    match event {
        WatchEvent::Added(cluster) | WatchEvent::Modified(cluster) => {
            *version = cluster.resource_version().unwrap_or_else(|| version.clone());
            clusters.insert(cluster.name_any(), cluster);
        }
        WatchEvent::Deleted(cluster) => {
            *version = cluster.resource_version().unwrap_or_else(|| version.clone());
            clusters.remove(&cluster.name_any());
        }
        WatchEvent::Bookmark(bookmark) => {
            *version = bookmark.metadata.resource_version;
            return Ok(false);
        }
        WatchEvent::Error(status) => {
            return Err(Failure::not_yet("cannot read the status", status.message, "start it again"));
        }
    }
    Ok(true)
}

fn nothing(connection: &Connection, args: &Args) -> Outcome {
    match &args.name {
        Some(name) => Err(Failure::refused(
            format!("no database cluster {name} in namespace {}", connection.namespace),
            "it is not there",
            "`coregent get dbc -A` lists them all",
        )),
        None => {
            say::err(format_args!("no database clusters in namespace {}", connection.namespace));
            Ok(())
        }
    }
}

fn print(clusters: &BTreeMap<String, DatabaseCluster>, warning: Option<&str>, args: &Args, again: bool) -> Outcome {
    let mut text = String::new();
    if args.output.is_table() {
        let now = jiff::Timestamp::now();
        for cluster in clusters.values() {
            text.push_str(&draw(cluster, now));
        }
        if let Some(warning) = warning {
            text.push_str(&format!("warning: {warning}\n"));
        }
    } else {
        for cluster in clusters.values() {
            let value = serde_json::to_value(cluster).unwrap_or_default();
            text.push_str(&output::objects(&value, args.output, "databasecluster.coregent.io"));
        }
    }
    let mut stdout = std::io::stdout().lock();
    let clear = if again && stdout.is_terminal() { "\x1b[2J\x1b[H" } else { "" };
    // A reader that went away (`| head`) is no failure of ours.
    let _ = write!(stdout, "{clear}{text}").and_then(|()| stdout.flush());
    Ok(())
}
