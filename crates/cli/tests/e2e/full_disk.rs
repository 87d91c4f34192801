//! The disk of the data folder is full: while a database is made, and while it is written to.

use crate::members::{at_rest, direct_uris, kill_postmaster, manifest, system_id, uri};
use crate::plane::{PATIENCE, Plane, condition, primary, refusal, settled, skipped, until};
use crate::writer::{Writer, connected, rows};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// The control plane fits, a database's first data does not.
const TOO_SMALL: u64 = 12 * MIB;
/// What three members of a small database and everything else need.
const ROOM: u64 = 500 * MIB;

/// A ConfigMap, large or small.
fn config_map(name: &str, size: usize) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{k: {}}}\n", "x".repeat(size))
}

/// Status code of an answer; 0 if there was none.
fn code<T>(answer: kube::Result<T>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

/// Status code of one of the API's paths of health.
async fn health(client: &kube::Client, path: &str) -> u16 {
    code(client.request_text(http::Request::get(path).body(Vec::new()).expect("a request")).await)
}

/// Writes large objects until one is refused: the store has room for as much as its log has ever held. Gives the file of
/// that one.
fn use_up_the_store(plane: &Plane) -> std::path::PathBuf {
    for index in 0.. {
        let file = plane.write("large.yaml", &config_map(&format!("large-{index}"), 500_000));
        let output = plane.run(["apply", "-f", &file.display().to_string()]);
        if !output.status.success() {
            let said = refusal(&output, 3);
            assert!(said.contains("no space left") && said.contains("make room"), "{said}");
            return file;
        }
    }
    unreachable!("a disk has an end")
}

/// Writes small ones until the store takes none.
async fn until_not_ready(client: &kube::Client) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut index = 0;
    while health(client, "/readyz").await == 200 {
        let object = serde_json::json!({"metadata": {"name": format!("small-{index}")}});
        let object = serde_json::from_value(object).expect("a ConfigMap");
        let answer = code(api.create(&PostParams::default(), &object).await);
        assert!(answer == 200 || answer == 507, "{answer}");
        index += 1;
    }
}

/// Makes what [`use_up_the_log`] writes to.
async fn prepare(uri: &str) {
    let sql = "create table counter (n int); insert into counter values (0)";
    connected(uri).await.batch_execute(sql).await.expect("a table");
}

/// Writes until the server gives up: it ends every segment of its log at once, and there is no room for another. It does
/// not wait for replicas, whose logs are on the same disk.
async fn use_up_the_log(uri: &str) {
    let client = connected(uri).await;
    let more = "set synchronous_commit = local; update counter set n = n + 1; select pg_switch_wal()";
    while !client.is_closed() {
        let _ = client.batch_execute(more).await; // until the connection ends with the server
    }
}

/// Jobs of an agent that have failed, by its own endpoint.
async fn failed_jobs(address: &str) -> u64 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect((address, 8008)).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map(|_| answer)
    };
    let answer = ask.await.unwrap_or_default();
    let line = answer.lines().find_map(|line| line.strip_prefix("coregent_agent_jobs_failed_total "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_said_while_a_database_is_made_and_loses_nothing_while_it_is_written_to() {
    let name = "a_full_disk_is_said_while_a_database_is_made_and_loses_nothing_while_it_is_written_to";
    let plane = match Plane::on_small_disk(TOO_SMALL) {
        Ok(plane) => plane,
        Err(reason) => return skipped(name, &reason),
    };
    plane.must(["up", "--detach"]);
    let pid = plane.pid();
    let client = plane.client().await;
    plane.apply(&manifest("orders", 3, "Quorum"));
    let says_so = |text: &str| text.contains("No space left");
    until(&client, "orders", |cluster| condition(cluster, "MemberFailed").is_some_and(says_so)).await;
    let events = plane.must(["events"]);
    assert!(events.lines().any(|line| line.contains("MemberFailed") && says_so(line)), "{events}");

    // Room is made: it goes on by itself.
    plane.disk().resize(ROOM);
    let cluster = at_rest(&plane, &client, "orders").await;
    let uri = uri(&plane);
    let system = system_id(&uri).await;
    prepare(&uri).await;
    let mut writer = Writer::start(&uri).await;
    writer.next_acknowledgement().await;

    // Filled up under a writer: a replica whose server ends now cannot start another.
    let first = primary(&cluster);
    let replica =
        ["orders-1", "orders-2"].into_iter().find(|member| first.as_deref() != Some(*member)).expect("a replica");
    let members = direct_uris(&plane, &client, "orders").await;
    let address = members[replica].split(['@', ':']).nth(3).expect("its address").to_owned();
    let full = plane.disk().fill();
    kill_postmaster(&plane, replica);
    let tried = async {
        // Its agent tells nobody but those who ask: the API cannot keep what it would say.
        while failed_jobs(&address).await < 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, tried).await.expect("the agent tries");
    // Then the primary's server ends as well.
    use_up_the_log(&uri).await;
    let file = use_up_the_store(&plane);
    until_not_ready(&client).await;
    assert_eq!(health(&client, "/livez").await, 200, "to start it anew would help nobody");
    assert!(plane.must(["get", "dbc", "-o", "name"]).contains("orders"), "what is there can be read");
    assert_eq!(plane.pid(), pid, "the control plane goes on");

    // Room is made: everything settles, and what was acknowledged is there.
    drop(full);
    until(&client, "orders", settled).await;
    writer.next_acknowledgement().await;
    at_rest(&plane, &client, "orders").await;
    let acknowledged = writer.stop().await;
    let there = rows(&uri).await;
    let lost: Vec<_> = acknowledged.difference(&there).collect();
    assert!(lost.is_empty(), "acknowledged and gone: {lost:?}");
    assert_eq!(system_id(&uri).await, system);
    assert_eq!(health(&client, "/readyz").await, 200);
    let applied = plane.must(["apply", "-f", &file.display().to_string()]);
    assert!(applied.starts_with("configmap/large-") && applied.ends_with(" created\n"), "{applied}");
    assert_eq!(plane.pid(), pid, "the control plane has not been started anew");
}
