//! `coregent wait KIND/NAME --for=CONDITION[=VALUE]`.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::kinds::{Kinds, kind_and_name};
use crate::say;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use std::time::Duration;

/// For what to wait.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// KIND NAME, or KIND/NAME
    #[arg(value_name = "KIND/NAME", num_args = 1..=2, required = true)]
    pub object: Vec<String>,
    /// A condition, `Ready` or `Ready=False`, or `delete`
    #[arg(long = "for", value_name = "CONDITION[=VALUE]")]
    pub condition: String,
    /// How long: 90, 90s, 5m
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub timeout: Duration,
}

/// Returns once the condition holds.
///
/// # Errors
/// Exit code 3 when the time ran out, saying why it does not hold yet.
pub async fn run(connection: &Connection, args: &Args) -> Outcome {
    let (kind, name) = kind_and_name(&args.object)?;
    let name = name.ok_or_else(|| Failure::refused("wait for what?", "no name was given", "type KIND/NAME"))?;
    let kinds = Kinds::discover(connection).await?;
    let served = kinds.find(&kind)?;
    let goal = Goal::parse(&args.condition);
    let api = served.api(connection, &connection.namespace);
    let mut why = String::from("it is not there yet");
    match tokio::time::timeout(args.timeout, holds(&api, &name, &goal, &mut why)).await {
        Ok(Ok(())) => {
            say::out(format_args!("{}/{name} condition met", served.display()));
            Ok(())
        }
        Ok(Err(error)) => Err(Failure::from_api(format!("cannot wait for {}/{name}", served.display()), error)),
        Err(_) => Err(Failure::not_yet(
            format!("{}/{name} is not {} after {:?}", served.display(), args.condition, args.timeout),
            why,
            format!("look at `coregent describe {kind} {name}`, or wait longer with --timeout"),
        )),
    }
}

enum Goal {
    Condition { name: String, value: String },
    Deleted,
}

impl Goal {
    fn parse(text: &str) -> Goal {
        let text = text.strip_prefix("condition=").unwrap_or(text);
        if text.eq_ignore_ascii_case("delete") || text.eq_ignore_ascii_case("deleted") {
            return Goal::Deleted;
        }
        let (name, value) = text.split_once('=').unwrap_or((text, "True"));
        Goal::Condition { name: name.to_owned(), value: value.to_owned() }
    }

    /// Why it does not hold for the object, or nothing when it does.
    fn missing(&self, object: Option<&DynamicObject>) -> Option<String> {
        let (object, (name, value)) = match (self, object) {
            (Goal::Deleted, object) => return object.map(|_| "it is still there".into()),
            (Goal::Condition { .. }, None) => return Some("it is not there yet".into()),
            (Goal::Condition { name, value }, Some(object)) => (object, (name, value)),
        };
        let conditions = object.data["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(condition) =
            conditions.iter().find(|c| c["type"].as_str().is_some_and(|t| t.eq_ignore_ascii_case(name)))
        else {
            return Some(format!("it has no condition {name} yet"));
        };
        if condition["observedGeneration"].as_i64().is_some_and(|seen| Some(seen) != object.metadata.generation) {
            return Some(format!("{name} has not been judged since the last change of the spec"));
        }
        let status = condition["status"].as_str().unwrap_or("Unknown");
        if status.eq_ignore_ascii_case(value) {
            return None;
        }
        let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        Some(format!("{name} is {status}: {} {}", text("reason"), text("message")).trim_end().to_owned())
    }
}

async fn holds(api: &Api<DynamicObject>, name: &str, goal: &Goal, why: &mut String) -> Result<(), kube::Error> {
    let field = format!("metadata.name={name}");
    loop {
        let list = api.list(&ListParams::default().fields(&field)).await?;
        match goal.missing(list.items.first()) {
            None => return Ok(()),
            Some(reason) => *why = reason,
        }
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut events = api.watch(&WatchParams::default().fields(&field), &version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            let reason = match &event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => goal.missing(Some(object)),
                WatchEvent::Deleted(_) => goal.missing(None),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(_) => break,
            };
            match reason {
                None => return Ok(()),
                Some(reason) => *why = reason,
            }
        }
    }
}

/// Reads `90`, `90s`, `5m` or `1h`.
///
/// # Errors
/// When it is none of these.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (digits, factor) = match text.strip_suffix(|c: char| c.is_ascii_alphabetic()) {
        Some(digits) if text.ends_with('s') => (digits, 1),
        Some(digits) if text.ends_with('m') => (digits, 60),
        Some(digits) if text.ends_with('h') => (digits, 3600),
        Some(_) => return Err(format!("{text:?} is no duration: write 90s, 5m or 1h")),
        None => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no duration: write 90s, 5m or 1h"))?;
    Ok(Duration::from_secs(number.saturating_mul(factor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_of_an_older_generation_does_not_count() {
        let object: DynamicObject = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "orders", "generation": 2},
            "status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]},
        }))
        .unwrap();
        assert!(Goal::parse("Ready").missing(Some(&object)).is_some());
        assert!(Goal::parse("delete").missing(None).is_none());
    }

    #[test]
    fn durations_read_as_people_write_them() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert!(duration("soon").is_err());
    }
}
