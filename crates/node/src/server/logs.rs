//! `kubectl logs`.

use std::{collections::BTreeMap, io, sync::Arc};

use axum::{
    body::Body,
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::sync::watch;

use super::Refusal;
use crate::{
    logs::{self, Progress, Reader, Selection},
    node::{Node, words},
};

type Answer = Result<Response, Refusal>;

pub(super) async fn container_logs(
    State(node): State<Arc<Node>>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Answer {
    let selection = selection(&query, Timestamp::now()).map_err(Refusal::bad_request)?;
    let flag = |name: &str| query.get(name).is_some_and(|v| v == "true" || v == "1");
    let object = Api::<Pod>::namespaced(node.client.clone(), &namespace).get(&pod).await;
    let object = object.map_err(|e| Refusal::not_found(words(&e)))?;
    let folder = logs::folder(&node.data_dir, &object);
    let previous = flag("previous");
    let Some(path) = logs::file(&folder, &container, previous) else {
        let which = if previous { "previous terminated container" } else { "container" };
        let message = format!("{which} {container:?} in pod {pod:?} has no log: it has not been started");
        return Err(Refusal::bad_request(message));
    };
    // Subscribed before the first read, so that no line falls between the two.
    let running = node.running(&(namespace, pod, container)).filter(|_| flag("follow") && !previous);
    let progress = running.map(|r| r.log.progress());
    let (reader, first) = Reader::open(&path, selection).map_err(|e| Refusal::internal(e.to_string()))?;
    let body = match progress {
        Some(progress) => Body::from_stream(follow(reader, first, progress)),
        None => Body::from(first),
    };
    Ok(([("content-type", "text/plain")], body).into_response())
}

fn selection(query: &BTreeMap<String, String>, now: Timestamp) -> Result<Selection, String> {
    let number = |name: &str| match query.get(name).filter(|v| !v.is_empty()) {
        Some(value) => value.parse::<i64>().map(Some).map_err(|_| format!("{name}: {value:?} is not a number")),
        None => Ok(None),
    };
    let since = match (number("sinceSeconds")?, query.get("sinceTime").filter(|v| !v.is_empty())) {
        (Some(seconds), _) => now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
        (None, Some(time)) => Some(time.parse().map_err(|_| format!("sinceTime: {time:?} is not RFC 3339"))?),
        (None, None) => None,
    };
    let size = |value: Option<i64>| value.and_then(|v| usize::try_from(v).ok());
    Ok(Selection {
        tail_lines: size(number("tailLines")?),
        limit_bytes: size(number("limitBytes")?),
        timestamps: query.get("timestamps").is_some_and(|v| v == "true" || v == "1"),
        since,
    })
}

/// The text there is, and what is added until the container has ended.
pub(super) fn follow(
    reader: Reader,
    first: Vec<u8>,
    progress: watch::Receiver<Progress>,
) -> impl futures::Stream<Item = io::Result<Bytes>> {
    stream::unfold((reader, Some(first), progress), |(mut reader, first, mut progress)| async move {
        let mut text = first.unwrap_or_default();
        while text.is_empty() {
            let ended = progress.borrow_and_update().ended;
            text = match reader.more() {
                Ok(text) => text,
                Err(e) => return Some((Err(e), (reader, None, progress))),
            };
            if text.is_empty() && (ended || reader.exhausted() || progress.changed().await.is_err()) {
                return None;
            }
        }
        Some((Ok(Bytes::from(text)), (reader, None, progress)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_checked() {
        let parse = |pairs: &[(&str, &str)]| {
            let query = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            selection(&query, Timestamp::from_second(100).unwrap())
        };
        let all = parse(&[("tailLines", "5"), ("sinceSeconds", "10"), ("timestamps", "true"), ("limitBytes", "9")]);
        let expected = Selection {
            tail_lines: Some(5),
            since: Some(Timestamp::from_second(90).unwrap()),
            timestamps: true,
            limit_bytes: Some(9),
        };
        assert_eq!(all, Ok(expected));
        assert!(parse(&[("tailLines", "many")]).is_err());
        assert!(parse(&[("sinceTime", "yesterday")]).is_err());
    }
}
