//! Sequences of events.

use serde_json::json;

use super::{core, labelled};
use crate::scenario::*;

pub fn all() -> Vec<Scenario> {
    vec![sequences(), expired()]
}

fn sequences() -> Scenario {
    let all = core("configmaps");
    let from = |query: &str| format!("{all}?watch=true&labelSelector=w&{query}");
    Scenario::new(
        "watches",
        "watches from a revision, from none, as lists; selections; bookmarks",
        vec![
            post("zero", &all, labelled("zero", json!({"w": "1"})))
                .capture("start", "/metadata/resourceVersion")
                .silent(),
            post("a", &all, labelled("a", json!({"w": "1"}))).silent(),
            patch("change", &core("configmaps/a"), MERGE_PATCH, json!({"data": {"k": "1"}})).silent(),
            patch(
                "leaves the selection",
                &core("configmaps/a"),
                MERGE_PATCH,
                json!({"metadata": {"labels": {"w": "2"}}}),
            )
            .silent(),
            patch(
                "enters the selection",
                &core("configmaps/a"),
                MERGE_PATCH,
                json!({"metadata": {"labels": {"w": "1"}}}),
            )
            .silent(),
            post("other", &all, labelled("other", json!({"x": "1"}))).silent(),
            delete("deleted", &core("configmaps/a")).silent(),
            post("end", &all, labelled("end", json!({"w": "1"}))).silent(),
            watch("from a revision", &from("resourceVersion={start}"), 6),
            watch("of one value", &format!("{all}?watch=true&labelSelector=w%3D1&resourceVersion={{start}}"), 6),
            watch(
                "of one name",
                &format!("{all}?watch=true&fieldSelector=metadata.name%3Da&resourceVersion={{start}}"),
                5,
            ),
            watch("from zero", &from("resourceVersion=0"), 2),
            watch("from none", &from(""), 2),
            watch(
                "streaming list",
                &from("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"),
                3,
            ),
            watch(
                "streaming list without bookmarks",
                &from("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
                2,
            ),
            watch("streaming list without a match", &from("sendInitialEvents=true&allowWatchBookmarks=true"), 1),
            watch(
                "match without initial events",
                &from("resourceVersionMatch=NotOlderThan&resourceVersion={start}"),
                1,
            ),
            watch("until a time-out", &from("resourceVersion={start}&timeoutSeconds=1"), 100),
            watch("one object's path", &(core("configmaps/end") + "?watch=true&timeoutSeconds=1"), 100),
            watch(
                "old form of a watch",
                "/api/v1/watch/namespaces/{ns}/configmaps?labelSelector=w&resourceVersion={start}&timeoutSeconds=1",
                100,
            ),
            watch("revision that is none", &from("resourceVersion=x"), 1),
            watch("as a table", &from("resourceVersion={start}"), 2).accept(TABLE),
            watch("as metadata", &from("resourceVersion={start}"), 2).accept(METADATA),
        ],
    )
}

fn expired() -> Scenario {
    let all = core("configmaps");
    let mut steps: Vec<Step> = (0..9)
        .map(|number| {
            let name = format!("c{number}");
            post(&name, &all, labelled(&name, json!({"w": "1"}))).silent()
        })
        .collect();
    steps.extend([
        watch("watch of an expired revision", &format!("{all}?watch=true&resourceVersion=1"), 1),
        watch("watch of a future revision", &format!("{all}?watch=true&resourceVersion=99999999&timeoutSeconds=1"), 1),
    ]);
    Scenario::new("expired", "revisions that are no longer known, or not yet", steps).with_history(4)
}
