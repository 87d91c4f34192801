//! Watches: a stream of JSON lines, one event each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use super::params::Form;
use super::select::Selector;
use super::status::{ApiError, Outcome};
use super::{Call, read, render, table};
use crate::kinds::Kind;
use crate::store::{Event, EventKind, Expired, Store, Stored, Subscription};

/// Bookmarks keep quiet watchers' positions fresh (kube-rs issue 219); Kubernetes sends them about once a minute.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A watch without `timeoutSeconds` ends by itself: between 30 and 60 minutes in Kubernetes.
const LONGEST: Duration = Duration::from_secs(45 * 60);

struct Stream {
    kind: Arc<Kind>,
    form: Form,
    selector: Selector,
    subscription: Result<Subscription, Option<Expired>>,
    /// Lines that are ready to be sent.
    ready: VecDeque<Bytes>,
    bookmarks: bool,
    next_bookmark: std::pin::Pin<Box<Sleep>>,
    end: std::pin::Pin<Box<Sleep>>,
    /// What travels with the rows of a table.
    include: Option<String>,
    /// The first row of a watched table says what its columns are.
    columns_sent: bool,
}

pub(crate) fn watch(call: &Call) -> Outcome<Response> {
    let selector = read::selector(call)?;
    let bookmarks = call.params.flag("allowWatchBookmarks");
    let timeout = call.params.number("timeoutSeconds")?.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let (initial, since, initial_end) = start(call, &selector, bookmarks)?;
    let kind = call.target.kind.clone();
    let (namespace, name) = (read::scope(call, &selector), selector.name.as_deref());
    let subscription = call.server.store.watch(&kind.resource, namespace, name, since).map_err(Some);
    let mut stream = Stream {
        kind,
        form: call.form,
        subscription,
        selector,
        ready: VecDeque::new(),
        bookmarks,
        next_bookmark: Box::pin(tokio::time::sleep(BOOKMARK_EVERY)),
        end: Box::pin(tokio::time::sleep(timeout.unwrap_or(LONGEST))),
        include: call.params.get("includeObject").map(str::to_owned),
        columns_sent: false,
    };
    for object in initial {
        let line = stream.line("ADDED", &object);
        stream.ready.push_back(line);
    }
    if initial_end {
        let line = stream.bookmark(since, true);
        stream.ready.push_back(line);
    }
    let lines = futures::stream::unfold(stream, |mut stream| async move {
        let line = stream.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), stream))
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The objects to begin with, the revision to go on from, and whether a bookmark ends the beginning.
fn start(call: &Call, selector: &Selector, bookmarks: bool) -> Outcome<(Vec<Arc<Stored>>, u64, bool)> {
    let store: &Store = &call.server.store;
    let at = call.params.number("resourceVersion")?;
    let current = || {
        let (revision, mut items) = store.list(&call.target.kind.resource, read::scope(call, selector));
        items.retain(|object| selector.matches(&object.value()));
        (revision, items)
    };
    match (call.params.get("sendInitialEvents"), call.params.get("resourceVersionMatch")) {
        (Some("true"), Some("NotOlderThan")) => {
            if let Some(at) = at
                && let Err(error @ Expired::TooLarge { .. }) = store.check(at)
            {
                return Err(error.into());
            }
            let (revision, items) = current();
            Ok((items, revision, bookmarks))
        }
        (Some("true"), _) => {
            Err(read::refuse_match(call, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
        }
        (None, Some(_)) => Err(read::refuse_match(
            call,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        (Some(_), _) if at.unwrap_or(0) == 0 => Ok((Vec::new(), store.revision(), false)),
        _ => match at.unwrap_or(0) {
            // Without a revision a watch begins with synthetic ADDED events for what is there.
            0 => {
                let (revision, items) = current();
                Ok((items, revision, false))
            }
            at => Ok((Vec::new(), at, false)),
        },
    }
}

impl Stream {
    /// The next line; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            let subscription = match &mut self.subscription {
                Ok(subscription) => subscription,
                // An expired revision is told inside the stream: kube-rs re-lists only then.
                Err(expired) => {
                    let status = ApiError::from(expired.take()?).status();
                    return Some(line_of("ERROR", status.to_string().as_bytes()));
                }
            };
            tokio::select! {
                biased;
                () = &mut self.end => return None,
                event = subscription.next() => match event {
                    Ok(event) => self.offer(&event),
                    Err(expired) => self.subscription = Err(Some(expired)),
                },
                () = &mut self.next_bookmark => self.on_bookmark_time(),
            }
        }
    }

    fn on_bookmark_time(&mut self) {
        self.next_bookmark.as_mut().reset(Instant::now() + BOOKMARK_EVERY);
        let Ok(subscription) = &mut self.subscription else { return };
        let Some(mut horizon) = subscription.horizon() else { return };
        let mut events = Vec::new();
        while let Some(event) = subscription.ready() {
            horizon = horizon.max(event.revision());
            events.push(event);
        }
        events.iter().for_each(|event| self.offer(event));
        if self.bookmarks {
            let line = self.bookmark(horizon, false);
            self.ready.push_back(line);
        }
    }

    /// Turns an event into what this watch sees of it: an object that enters or leaves its selection is added or
    /// deleted for it.
    fn offer(&mut self, event: &Event) {
        let is = event.kind != EventKind::Deleted && self.selector.matches(&event.object.value());
        let was = event.previous.as_ref().is_some_and(|previous| self.selector.matches(&previous.value()));
        let line = match (was, is) {
            (false, true) => self.line("ADDED", &event.object),
            (true, true) => self.line("MODIFIED", &event.object),
            (true, false) if event.kind == EventKind::Deleted => self.line("DELETED", &event.object),
            (true, false) => match &event.previous {
                Some(previous) => match Stored::at(event.revision(), Value::clone(&previous.value())) {
                    Ok(last) => self.line("DELETED", &last),
                    Err(_) => return,
                },
                None => return,
            },
            (false, false) => return,
        };
        self.ready.push_back(line);
    }

    fn line(&mut self, kind: &str, object: &Stored) -> Bytes {
        if self.form != Form::Table {
            return line_of(kind, &render::served(&self.kind, self.form, object));
        }
        let row = table::row(&self.kind, self.include.as_deref(), object);
        self.table(kind, json!({"resourceVersion": object.revision.to_string()}), vec![row])
    }

    fn table(&mut self, kind: &str, metadata: Value, rows: Vec<Value>) -> Bytes {
        let columns = if self.columns_sent { Value::Null } else { table::definitions(&self.kind).into() };
        self.columns_sent = true;
        let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": columns, "rows": rows});
        line_of(kind, table.to_string().as_bytes())
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        if self.form == Form::Table {
            // kubectl reads the revision of a bookmark from the object of its row.
            let row = json!({"cells": [], "object": {"kind": self.kind.kind, "apiVersion": self.kind.api_version(),
                "metadata": metadata}});
            return self.table("BOOKMARK", json!({"resourceVersion": revision.to_string()}), vec![row]);
        }
        let (api_version, kind) = match self.form {
            Form::PartialMetadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata".to_owned()),
            _ => (self.kind.api_version(), self.kind.kind.clone()),
        };
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        line_of("BOOKMARK", object.to_string().as_bytes())
    }
}

fn line_of(kind: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(kind.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}
