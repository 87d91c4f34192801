use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use coregent_apiserver::{ApiServer, OpenError, Options, Storage};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::crud::config_map;

const STORE: &str = "COREGENT_TEST_STORE";

async fn open(path: &Path) -> Result<ApiServer, OpenError> {
    ApiServer::open(Options { store: Storage::Sqlite(path.into()), ..Options::default() }).await
}

/// Not a test: what the test below starts and kills. Prints each name once its create was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child process of a_killed_server_has_everything_it_acknowledged"]
async fn acknowledging_child() {
    let Some(path) = std::env::var_os(STORE) else { return };
    let server = open(Path::new(&path)).await.unwrap();
    let write = |writer: usize, client: Client| async move {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let epoch = api.list(&ListParams::default()).await.unwrap().items.len();
        for index in 0.. {
            let name = format!("w{writer}-{epoch}-{index}");
            api.create(&PostParams::default(), &config_map(&name, "1")).await.unwrap();
            println!("acknowledged {name}");
        }
    };
    futures::future::join_all((0..4).map(|writer| write(writer, server.client()))).await;
}

#[tokio::test]
async fn a_killed_server_has_everything_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut acknowledged = Vec::new();
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "durability::acknowledging_child"])
            .env(STORE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut heard = 0;
        while heard < 100 {
            let line = lines.next().unwrap().unwrap();
            // The harness prints its own words on the same line as the first one.
            if let Some((_, name)) = line.split_once("acknowledged ") {
                acknowledged.push(name.to_owned());
                heard += 1;
            }
        }
        child.kill().unwrap();
        acknowledged.extend(lines.filter_map(|line| Some(line.ok()?.split_once("acknowledged ")?.1.to_owned())));
        child.wait().unwrap();
        let server = open(&path).await.unwrap();
        let api: Api<ConfigMap> = Api::default_namespaced(server.client());
        let there: Vec<String> = api.list(&ListParams::default()).await.unwrap().iter().map(|o| o.name_any()).collect();
        let missing: Vec<&String> = acknowledged.iter().filter(|name| !there.contains(name)).collect();
        assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
        server.close().await;
    }
}

#[tokio::test]
async fn a_store_closed_and_opened_is_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let server = open(&path).await.unwrap();
    let incarnation = server.incarnation().to_owned();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client());
    let first = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    api.create(&PostParams::default(), &config_map("b", "1")).await.unwrap();
    api.delete("b", &DeleteParams::default()).await.unwrap();
    let newest = api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"k": "2"}}))).await.unwrap();
    server.close().await;

    let server = open(&path).await.unwrap();
    assert_eq!(server.incarnation(), incarnation);
    let api: Api<ConfigMap> = Api::default_namespaced(server.client());
    assert_eq!(api.get("a").await.unwrap(), newest);
    assert!(api.get_opt("b").await.unwrap().is_none());
    let next = api.create(&PostParams::default(), &config_map("c", "1")).await.unwrap();
    let number = |object: &ConfigMap| object.resource_version().unwrap().parse::<u64>().unwrap();
    assert!(number(&next) > number(&newest));
    use futures::StreamExt;
    let events = api.watch(&WatchParams::default(), &first.resource_version().unwrap()).await.unwrap();
    assert_eq!(events.take(4).filter(|event| std::future::ready(event.is_ok())).count().await, 4, "history is kept");
}

#[tokio::test]
async fn a_lost_renewal_never_gives_its_revision_to_another_change() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("store.db"), folder.path().join("copy.db"));
    let server = open(&path).await.unwrap();
    let api: Api<Lease> = Api::default_namespaced(server.client());
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me",
        "renewTime": "2026-01-01T00:00:00.000000Z"}});
    api.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let renew = json!({"spec": {"renewTime": "2026-01-01T00:00:05.000000Z"}});
    let renewed = api.patch("l", &PatchParams::default(), &Patch::Merge(&renew)).await.unwrap();
    // What a crash at this moment leaves on the disk.
    for suffix in ["", "-wal"] {
        std::fs::copy(format!("{}{suffix}", path.display()), format!("{}{suffix}", copy.display())).unwrap();
    }
    let crashed = open(&copy).await.unwrap();
    let api: Api<Lease> = Api::default_namespaced(crashed.client());
    let number = |lease: &Lease| lease.resource_version().unwrap().parse::<u64>().unwrap();
    let raise = json!({"spec": {"leaseTransitions": 1}});
    let next = api.patch("l", &PatchParams::default(), &Patch::Merge(&raise)).await.unwrap();
    assert!(number(&next) > number(&renewed));
    use futures::StreamExt;
    let since = renewed.resource_version().unwrap();
    let mut events = Box::pin(api.watch(&WatchParams::default(), &since).await.unwrap());
    assert!(matches!(events.next().await, Some(Ok(kube::api::WatchEvent::Error(status))) if status.code == 410));
}

#[tokio::test]
async fn a_damaged_store_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("store.db");
    let server = open(&good).await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client());
    for index in 0..50 {
        api.create(&PostParams::default(), &config_map(&format!("c{index}"), &"x".repeat(2000))).await.unwrap();
    }
    server.close().await;
    let settled = rusqlite::Connection::open(&good).unwrap();
    settled.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(settled);
    let bytes = std::fs::read(&good).unwrap();
    let mut flipped = bytes.clone();
    let middle = bytes.windows(6).position(|window| window == b"xxxxxx").unwrap();
    flipped[middle + 100] = b'y';
    // A column that no checksum covers: the index knows it as well.
    let mut renamed = bytes.clone();
    let key = b"/configmapsdefaultc17";
    let name = bytes.windows(key.len()).position(|window| window == key).unwrap();
    renamed[name + key.len() - 1] = b'x';
    for (what, bytes) in [
        ("truncated", bytes[..bytes.len() / 2].to_vec()),
        ("empty", Vec::new()),
        ("text", b"not a database, by far".repeat(100)),
        ("one byte changed", flipped),
        ("one byte of a name changed", renamed),
    ] {
        let path = folder.path().join("bad.db");
        std::fs::write(&path, &bytes).unwrap();
        let error = open(&path).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{what}: {error}");
        assert!(error.to_string().contains("bad.db"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{what}");
    }
    open(&good).await.unwrap();
}

#[tokio::test]
async fn a_newer_or_busy_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let server = open(&path).await.unwrap();
    assert!(matches!(open(&path).await.map(|_| ()).unwrap_err(), OpenError::InUse { .. }));
    server.close().await;
    let file = rusqlite::Connection::open(&path).unwrap();
    file.pragma_update(None, "user_version", 99).unwrap();
    drop(file);
    assert!(matches!(open(&path).await.map(|_| ()).unwrap_err(), OpenError::Newer { found: 99, .. }));
}

/// The file and its WAL as they lie there now.
fn copy(from: &Path, to: &Path) {
    for suffix in ["", "-wal"] {
        let name = |path: &Path| format!("{}{suffix}", path.display());
        std::fs::copy(name(from), name(to)).unwrap();
    }
}

#[tokio::test]
async fn an_older_copy_is_told_from_the_store_that_ran_last_and_hands_out_no_revision_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (folder.path().join("store.db"), folder.path().join("aside"));
    let server = open(&path).await.unwrap();
    assert_eq!(server.restored(), None);
    let api: Api<ConfigMap> = Api::default_namespaced(server.client());
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    // A copy of a store that runs.
    copy(&path, &aside);
    let newest = api.create(&PostParams::default(), &config_map("b", "1")).await.unwrap();
    server.close().await;
    copy(&aside, &path);
    let number = |object: &ConfigMap| object.resource_version().unwrap().parse::<u64>().unwrap();
    for start in 0..2 {
        let server = open(&path).await.unwrap();
        let restored = server.restored().expect("it is told until somebody says that he knows");
        if start == 0 {
            assert!(restored.found < number(&newest));
            assert_eq!(restored.reached, Some(number(&newest)));
        }
        let api: Api<ConfigMap> = Api::default_namespaced(server.client());
        let next = api.create(&PostParams::default(), &config_map(&format!("c{start}"), "1")).await.unwrap();
        assert!(number(&next) > number(&newest) + 4096, "renewals after the last commit had revisions as well");
        server.close().await;
    }
    let server = open(&path).await.unwrap();
    server.settle_restored().await.unwrap();
    server.close().await;
    assert_eq!(open(&path).await.unwrap().restored(), None);
}

#[tokio::test]
async fn a_store_whose_newest_part_is_lost_is_told_as_an_older_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (folder.path().join("store.db"), folder.path().join("aside"));
    let server = open(&path).await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client());
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    // What a crash leaves, and then the WAL is gone.
    copy(&path, &aside);
    server.close().await;
    copy(&aside, &path);
    std::fs::write(folder.path().join("store.db-wal"), "").unwrap();
    assert!(open(&path).await.unwrap().restored().is_some());
}

#[tokio::test]
async fn a_store_that_is_gone_or_of_another_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    open(&path).await.unwrap().close().await;
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(open(&path).await.map(|_| ()).unwrap_err(), OpenError::Missing { .. }));
    assert!(!path.exists(), "no empty one is made in its place");
    let other = tempfile::tempdir().unwrap();
    open(&other.path().join("store.db")).await.unwrap().close().await;
    std::fs::copy(other.path().join("store.db"), &path).unwrap();
    assert!(matches!(open(&path).await.map(|_| ()).unwrap_err(), OpenError::Foreign { .. }));
}
