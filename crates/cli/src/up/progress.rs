//! Live progress of databases on their way to Ready.

use super::reach;
use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::manifest::Document;
use crate::say;
use coregent_api::DatabaseCluster;
use coregent_api::database::DatabaseClusterStatus;
use futures::{StreamExt, TryStreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use kube::ResourceExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How soon an address that does not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Namespace and name of every DatabaseCluster among the documents.
pub fn databases(documents: &[Document], namespace: &str) -> Vec<(String, String)> {
    named(documents, "DatabaseCluster", namespace)
}

/// Namespace and name of every object of a kind among the documents.
pub fn named(documents: &[Document], kind: &str, namespace: &str) -> Vec<(String, String)> {
    documents
        .iter()
        .filter(|document| document.object.types.as_ref().is_some_and(|types| types.kind == kind))
        .map(|document| {
            let metadata = &document.object.metadata;
            (
                metadata.namespace.clone().unwrap_or_else(|| namespace.to_owned()),
                metadata.name.clone().unwrap_or_default(),
            )
        })
        .collect()
}

/// Namespace and name of every DatabaseCluster that there is.
///
/// # Errors
/// When they cannot be listed.
pub async fn every_database(connection: &Connection) -> Outcome<Vec<(String, String)>> {
    let api: Api<DatabaseCluster> = Api::all(connection.client.clone());
    let list = api.list(&ListParams::default()).await;
    let list = list.map_err(|error| Failure::from_api("cannot list the databases", error))?;
    Ok(list.items.into_iter().map(|cluster| (cluster.namespace().unwrap_or_default(), cluster.name_any())).collect())
}

/// Shows each member's steps until every database is Ready and answers at its address.
///
/// # Errors
/// Exit code 3 when time runs out, with what is still missing.
pub async fn until_ready(connection: &Connection, databases: &[(String, String)], timeout: Duration) -> Outcome {
    let lines = Lines::new();
    for (namespace, name) in databases {
        let mut why = "it has not been looked at yet".to_owned();
        let wait = until_usable(connection, namespace, name, &lines, &mut why);
        match tokio::time::timeout(timeout, wait).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Failure::from_api(format!("cannot follow {name}"), error)),
            Err(_) => {
                return Err(Failure::not_yet(
                    format!("{name} is not Ready after {timeout:?}"),
                    why,
                    format!("it goes on by itself: look at `coregent status {name} -w` and `coregent events`"),
                ));
            }
        }
    }
    lines.finish();
    Ok(())
}

async fn until_usable(
    connection: &Connection,
    namespace: &str,
    name: &str,
    lines: &Lines,
    why: &mut String,
) -> Result<(), kube::Error> {
    let scoped = Connection { client: connection.client.clone(), namespace: namespace.to_owned() };
    let mut shown = BTreeMap::new();
    loop {
        follow(connection, namespace, name, (lines, &mut shown), why).await?;
        match reach::read_write(&scoped, name).await {
            Ok(()) => return Ok(()),
            Err(unreachable) => *why = unreachable,
        }
        if shown.insert(format!("{name} address"), why.clone()).as_ref() != Some(why) {
            lines.print(&format!("{name}  {why}"));
        }
        lines.waiting_for(why);
        // Nothing tells a client when somebody answers; it has to ask.
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

async fn follow(
    connection: &Connection,
    namespace: &str,
    name: &str,
    (lines, shown): (&Lines, &mut BTreeMap<String, String>),
    why: &mut String,
) -> Result<(), kube::Error> {
    let api: Api<DatabaseCluster> = Api::namespaced(connection.client.clone(), namespace);
    let field = format!("metadata.name={name}");
    loop {
        let list = api.list(&ListParams::default().fields(&field)).await?;
        for cluster in &list.items {
            if advance(cluster, shown, lines, why) {
                return Ok(());
            }
        }
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut events = api.watch(&WatchParams::default().fields(&field), &version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(cluster) | WatchEvent::Modified(cluster) = event
                && advance(&cluster, shown, lines, why)
            {
                return Ok(());
            }
        }
    }
}

/// Prints what is new; true once the database is Ready.
fn advance(cluster: &DatabaseCluster, shown: &mut BTreeMap<String, String>, lines: &Lines, why: &mut String) -> bool {
    let status = cluster.status.clone().unwrap_or_default();
    for member in &status.members {
        let role = member.role.as_deref().map_or(String::new(), |role| format!(" ({role})"));
        let ready = if member.ready { ", ready" } else { "" };
        let state = format!("{}{role}{ready}", member.state.as_deref().unwrap_or("created"));
        if shown.get(&member.name) != Some(&state) {
            lines.print(&format!("{}  {state}", member.name));
            shown.insert(member.name.clone(), state);
        }
        if let Some(error) = &member.last_error
            && shown.insert(format!("{} error", member.name), error.clone()).as_ref() != Some(error)
        {
            lines.print(&format!("{}  {error}", member.name));
        }
    }
    let (ready, message) = readiness(&status, cluster.metadata.generation);
    if !ready {
        lines.waiting_for(&message);
        *why = message;
    }
    ready
}

fn readiness(status: &DatabaseClusterStatus, generation: Option<i64>) -> (bool, String) {
    match status.conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(condition)
            if condition.status == "True"
                && condition.observed_generation.is_none_or(|seen| Some(seen) == generation) =>
        {
            (true, String::new())
        }
        // What a member lacks says more than what is waited for.
        Some(condition) => {
            let failed = status.conditions.iter().find(|other| other.type_ == "MemberFailed" && other.status == "True");
            let why = failed.map_or(String::new(), |failed| format!("; {}", failed.message));
            (false, format!("{}{why}", condition.message))
        }
        None => (false, "no controller has looked at it yet".into()),
    }
}

/// A spinner on a terminal, plain lines elsewhere.
struct Lines {
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Lines {
    fn new() -> Lines {
        let bar = std::io::stdout().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Lines { started: Instant::now(), bar }
    }

    fn print(&self, text: &str) {
        let line = format!("{:6.1}s  {text}", self.started.elapsed().as_secs_f64());
        match &self.bar {
            Some(bar) => bar.println(line),
            None => say::out(line),
        }
    }

    fn waiting_for(&self, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(message.to_owned());
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_waited_for_is_told_with_what_keeps_a_member_from_it() {
        let not_ready = json!({"type": "Ready", "status": "False", "message": "waits for orders-1 to run"});
        let failed =
            |status: &str| json!({"type": "MemberFailed", "status": status, "message": "orders-1: ErrImagePull"});
        let table = [
            (json!([]), "no controller has looked at it yet"),
            (json!([not_ready, failed("False")]), "waits for orders-1 to run"),
            (json!([not_ready, failed("True")]), "waits for orders-1 to run; orders-1: ErrImagePull"),
        ];
        for (mut conditions, expected) in table {
            for condition in conditions.as_array_mut().unwrap() {
                condition["reason"] = json!("R");
                condition["lastTransitionTime"] = json!("2026-11-30T10:00:00Z");
            }
            let status: DatabaseClusterStatus = serde_json::from_value(json!({"conditions": conditions})).unwrap();
            assert_eq!(readiness(&status, Some(1)), (false, expected.to_owned()));
        }
    }
}
