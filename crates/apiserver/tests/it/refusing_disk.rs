//! A disk that refuses, seen by clients. A process's limit on the size of files makes it: the kernel then refuses every
//! write to one, while the file is as it was. The limit is the whole process's, so each scene plays in a child.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coregent_apiserver::{ApiServer, Options, Storage};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::crud::{code, config_map};

const STORE: &str = "COREGENT_TEST_STORE";

/// Lets files grow, or refuses every write to one.
fn let_files_grow(grow: bool) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = if grow { maximum } else { Some(0) };
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
}

/// Starts an ignored test of this file as a process of its own, where a refused write is an error and no signal.
fn child(scene: &str, store: &Path) -> Child {
    Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", &format!("refusing_disk::{scene}")])
        .env(STORE, store)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

async fn open(path: &Path) -> ApiServer {
    ApiServer::open(Options { store: Storage::Sqlite(path.into()), ..Options::default() }).await.unwrap()
}

fn store() -> Option<PathBuf> {
    std::env::var_os(STORE).map(PathBuf::from)
}

/// Status code and text of a path.
async fn ask(client: &Client, path: &str) -> (u16, String) {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let response = client.send(request.map(Into::into)).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.into()).unwrap())
}

/// Polls a condition that nothing announces.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a scene of while_the_disk_refuses_reads_watches_and_renewals_go_on_and_readiness_says_so"]
async fn scene_of_reads_and_renewals() {
    let Some(path) = store() else { return };
    let server = open(&path).await;
    let client = server.client();
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let first = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let since = first.resource_version().unwrap();
    let mut watch = Box::pin(api.watch(&WatchParams::default(), &since).await.unwrap());
    assert_eq!(ask(&client, "/readyz").await, (200, "ok".into()));

    let_files_grow(false);
    let refused = api.create(&PostParams::default(), &config_map("b", "1")).await;
    let words = refused.as_ref().unwrap_err().to_string();
    assert_eq!(code(refused), (507, "InternalError".into()));
    assert!(words.contains("store.db") && words.contains("writes are taken again"), "{words}");
    assert!(api.get_opt("b").await.unwrap().is_none(), "what was refused is not there");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items, [first]);
    for second in 0..3 {
        let renew = json!({"spec": {"renewTime": format!("2026-01-01T00:00:0{second}.000000Z")}});
        leases.patch("l", &PatchParams::default(), &Patch::Merge(&renew)).await.unwrap();
    }
    let take_over = json!({"spec": {"holderIdentity": "you"}});
    assert!(leases.patch("l", &PatchParams::default(), &Patch::Merge(&take_over)).await.is_err());
    let (status, text) = ask(&client, "/readyz").await;
    assert_eq!(status, 500);
    assert!(text.starts_with("[+]ping ok\n[-]store failed: ") && text.ends_with("readyz check failed\n"), "{text}");
    assert_eq!(ask(&client, "/readyz/ping").await, (200, "ok".into()));
    assert_eq!(ask(&client, "/livez").await, (200, "ok".into()));

    let_files_grow(true);
    while api.create(&PostParams::default(), &config_map("b", "2")).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let told = watch.next().await;
    assert!(matches!(&told, Some(Ok(WatchEvent::Added(b))) if b.data.as_ref().unwrap()["k"] == "2"), "{told:?}");
    let verbose = (200, "[+]ping ok\n[+]store ok\nreadyz check passed\n".to_owned());
    assert_eq!(ask(&client, "/readyz?verbose").await, verbose);
    leases.patch("l", &PatchParams::default(), &Patch::Merge(&take_over)).await.unwrap();
    server.close().await;
}

#[test]
fn while_the_disk_refuses_reads_watches_and_renewals_go_on_and_readiness_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let output = child("scene_of_reads_and_renewals", &folder.path().join("store.db")).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Prints the name of each object with how its create was answered, while the disk comes and goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a scene of a_server_killed_while_the_disk_comes_and_goes_has_what_it_acknowledged_and_nothing_refused"]
async fn scene_of_a_disk_that_comes_and_goes() {
    let Some(path) = store() else { return };
    let server = open(&path).await;
    let counts = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let [acknowledged, refused] = counts.clone();
    let write = |writer: usize, client: Client| {
        let (acknowledged, refused) = (acknowledged.clone(), refused.clone());
        async move {
            let api: Api<ConfigMap> = Api::default_namespaced(client);
            let epoch = api.list(&ListParams::default()).await.unwrap().items.len();
            for index in 0.. {
                let name = format!("w{writer}-{epoch}-{index}");
                match api.create(&PostParams::default(), &config_map(&name, &"x".repeat(index % 5000))).await {
                    Ok(_) => {
                        println!("acknowledged {name}");
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(kube::Error::Api(status)) if status.code == 507 => {
                        println!("refused {name}");
                        refused.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Err(error) => println!("unknown {name}: {error}"),
                }
            }
        }
    };
    let writers = futures::future::join_all((0..4).map(|writer| write(writer, server.client())));
    let client = server.client();
    let disk = async {
        loop {
            for (grow, count) in [true, false].into_iter().zip(&counts) {
                let_files_grow(grow);
                let before = count.load(Ordering::Relaxed);
                until(|| count.load(Ordering::Relaxed) > before + 20).await;
                assert_eq!(ask(&client, "/readyz").await.0, if grow { 200 } else { 500 });
                println!("turned {grow}");
            }
        }
    };
    futures::future::join(writers, disk).await;
}

#[tokio::test]
async fn a_server_killed_while_the_disk_comes_and_goes_has_what_it_acknowledged_and_nothing_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    for round in 0..3 {
        let mut child = child("scene_of_a_disk_that_comes_and_goes", &path);
        let mut turns = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            // The harness prints its own words on the same line as the first one.
            for (word, names) in [("acknowledged ", &mut acknowledged), ("refused ", &mut refused)] {
                names.extend(line.split_once(word).map(|(_, name)| name.to_owned()));
            }
            turns += usize::from(line.starts_with("turned"));
            // Once while it works, once while it refuses. What it has said by then is read to the end.
            if line.starts_with("turned") && turns == 3 + round % 2 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(turns >= 3, "it ended early");
        let server = open(&path).await;
        let api: Api<ConfigMap> = Api::default_namespaced(server.client());
        let there: Vec<String> = api.list(&ListParams::default()).await.unwrap().iter().map(|o| o.name_any()).collect();
        let missing: Vec<&String> = acknowledged.iter().filter(|name| !there.contains(name)).collect();
        assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
        let risen: Vec<&String> = refused.iter().filter(|name| there.contains(name)).collect();
        assert!(risen.is_empty(), "refused and there: {risen:?}");
        server.close().await;
    }
    assert!(!refused.is_empty());
}
