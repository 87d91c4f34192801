//! The fault layer does what it says: else every test that stands on it proves nothing.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coregent_apiserver::faults::{Asked, Fault, Faults, Journal, Odds, Outage};
use coregent_apiserver::{ApiServer, Options};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

struct Bench {
    sound: Api<ConfigMap>,
    faults: Faults,
    faulty: Api<ConfigMap>,
    journal: Journal,
}

impl Bench {
    async fn new() -> Bench {
        let server = ApiServer::open(Options::default()).await.unwrap();
        let journal = Journal::default();
        let faults = Faults::new("tested", 7, &journal);
        let maps = |client: Client| Api::default_namespaced(client);
        Bench { sound: maps(server.client()), faulty: maps(faults.client(&server)), faults, journal }
    }

    /// The next write meets this fault, and nothing after it.
    fn once(&self, fault: Fault) {
        let done = Arc::new(AtomicBool::new(false));
        self.faults
            .script(move |asked: &Asked| (asked.is_write() && !done.swap(true, Ordering::Relaxed)).then_some(fault));
    }

    async fn exists(&self, name: &str) -> bool {
        self.sound.get_opt(name).await.unwrap().is_some()
    }
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_before_a_write_leaves_nothing_and_a_lost_answer_leaves_the_write() {
    let bench = Bench::new().await;
    // The fault, the code that the client sees (none: the connection broke), whether the write is there.
    let table = [
        ("a", Fault::Refused, None, false),
        ("b", Fault::Status(503), Some(503), false),
        ("c", Fault::Conflict, Some(409), false),
        ("d", Fault::AnswerLost, None, true),
    ];
    for (name, fault, seen, landed) in table {
        bench.once(fault);
        let error = bench.faulty.create(&PostParams::default(), &map(name)).await.unwrap_err();
        assert_eq!((code(&error), bench.exists(name).await), (seen, landed), "{fault:?}: {error}");
        // The next try is sound.
        let again = bench.faulty.create(&PostParams::default(), &map(name)).await;
        assert_eq!(again.as_ref().err().and_then(code), landed.then_some(409), "{fault:?}: {again:?}");
    }
    for (name, fault, landed) in [("e", Fault::Swallowed, false), ("f", Fault::Unanswered, true)] {
        bench.once(fault);
        let (params, object) = (PostParams::default(), map(name));
        let never = tokio::time::timeout(Duration::from_secs(3_600), bench.faulty.create(&params, &object));
        assert!(never.await.is_err(), "{fault:?}");
        assert_eq!(bench.exists(name).await, landed, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_reached_the_api_are_counted_and_no_others() {
    let bench = Bench::new().await;
    for fault in [Fault::Refused, Fault::Conflict, Fault::AnswerLost] {
        bench.once(fault);
        let _ = bench.faulty.create(&PostParams::default(), &map("a")).await;
    }
    bench.faulty.list(&ListParams::default()).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"a": "b"}}));
    bench.faulty.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let counts = bench.journal.take_counts();
    let lines: Vec<(&str, u64)> = counts.iter().map(|((_, line), count)| (line.as_str(), *count)).collect();
    assert_eq!(lines, [("PATCH default/configmaps/a", 1), ("POST default/configmaps", 1)]);
    assert!(bench.journal.take_counts().is_empty());
    assert_eq!(bench.journal.newest(1).first().map(|write| write.answered), Some(200));
}

#[tokio::test(start_paused = true)]
async fn an_outage_refuses_or_holds_back_and_breaks_what_waited() {
    let bench = Bench::new().await;
    bench.faults.begin_outage(Outage::Refused);
    assert!(bench.faulty.get_opt("a").await.is_err());
    bench.faults.end_outage();
    assert!(bench.faulty.get_opt("a").await.unwrap().is_none());
    bench.faults.begin_outage(Outage::Silent);
    let mut waiting = pin!(bench.faulty.get_opt("a"));
    assert!(tokio::time::timeout(Duration::from_secs(600), waiting.as_mut()).await.is_err());
    bench.faults.end_outage();
    assert!(waiting.await.is_err(), "what waited breaks");
    assert!(bench.faulty.get_opt("a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_outage_and_an_order_to_cut_end_open_watches() {
    let bench = Bench::new().await;
    let mut version = "0".to_owned();
    for round in ["cut", "refused", "silent"] {
        let stream = bench.faulty.watch(&WatchParams::default(), &version).await.unwrap();
        let mut stream = pin!(stream);
        assert_eq!(bench.faults.open_watches(), 1);
        bench.sound.create(&PostParams::default(), &map(round)).await.unwrap();
        let event = stream.try_next().await.unwrap().unwrap();
        let WatchEvent::Added(object) = event else { panic!("{event:?}") };
        version = object.resource_version().unwrap();
        match round {
            "cut" => bench.faults.cut_watches(),
            "refused" => bench.faults.begin_outage(Outage::Refused),
            _ => {
                bench.faults.begin_outage(Outage::Silent);
                // A bookmark is due each minute; not one comes.
                assert!(tokio::time::timeout(Duration::from_secs(300), stream.next()).await.is_err());
            }
        }
        bench.faults.end_outage();
        assert!(!matches!(stream.next().await, Some(Ok(_))), "{round}");
    }
    assert_eq!(bench.faults.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_is_one_that_was_true_earlier() {
    let bench = Bench::new().await;
    bench.faults.set_odds(Odds { stale: 500, ..Odds::default() });
    let mut seen = Vec::new();
    for number in 0..20 {
        bench.sound.create(&PostParams::default(), &map(&format!("m{number}"))).await.unwrap();
        let list = bench.faulty.list(&ListParams::default()).await.unwrap();
        seen.push((number + 1 - list.items.len(), list.metadata.resource_version.unwrap()));
    }
    assert!(seen.iter().any(|(behind, _)| *behind == 0) && seen.iter().any(|(behind, _)| *behind > 0), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bad_day_is_survived_by_a_watcher_that_sees_the_last_state_of_everything() {
    let bench = Bench::new().await;
    bench.faults.set_odds(Odds::bad());
    let (store, writer) = kube::runtime::reflector::store::<ConfigMap>();
    let events = kube::runtime::watcher(bench.faulty.clone(), kube::runtime::watcher::Config::default());
    let events = kube::runtime::WatchStreamExt::default_backoff(events);
    let reflected = kube::runtime::reflector(writer, events);
    let following = tokio::spawn(reflected.for_each(|_| std::future::ready(())));
    for number in 0..300 {
        let name = format!("m{}", number % 5);
        let patch = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"n": number.to_string()}}));
        bench.sound.patch(&name, &PatchParams::apply("test"), &patch).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    bench.faults.heal();
    let all = async {
        let newest = |map: &Arc<ConfigMap>| {
            let number: u32 = map.data.as_ref().unwrap()["n"].parse().unwrap();
            number >= 295
        };
        while store.state().len() < 5 || !store.state().iter().all(newest) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all).await.unwrap();
    following.abort();
}
