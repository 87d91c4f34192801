//! What is refused is refused in one message, and nothing is lost.

use crate::plane::{PATIENCE, Plane, condition, refusal, settled, skipped, text, until};
use coregent_api::DatabaseCluster;
use k8s_openapi::api::core::v1::Event;
use kube::api::Api;
use std::net::TcpListener;
use std::process::{Command, Stdio};

fn orders(spec: &str) -> String {
    format!("apiVersion: coregent.io/v1alpha1\nkind: DatabaseCluster\nmetadata: {{name: orders}}\nspec: {spec}\n")
}

#[test]
fn a_manifest_that_cannot_be_carried_out_is_refused_with_the_field_and_nothing_is_made() {
    let plane = Plane::new();
    let table = [
        (
            "an unknown field",
            orders("{replica: 3, engine: {postgresql: {version: \"15\"}}, storage: {size: 1Gi}}"),
            "spec.replica",
        ),
        (
            "a wrong type",
            orders("{replicas: three, engine: {postgresql: {version: \"15\"}}, storage: {size: 1Gi}}"),
            "spec.replicas",
        ),
        (
            "two engines",
            orders("{engine: {postgresql: {version: \"15\"}, mysql: {version: \"8.0\"}}, storage: {size: 1Gi}}"),
            "engine",
        ),
        ("mysql", orders("{engine: {mysql: {version: \"8.0\"}}, storage: {size: 1Gi}}"), "mysql"),
        (
            "no member",
            orders("{replicas: 0, engine: {postgresql: {version: \"15\"}}, storage: {size: 1Gi}}"),
            "spec.replicas",
        ),
        (
            "an engine that nobody has",
            orders("{engine: {postgresql: {version: \"99\"}}, storage: {size: 1Gi}}"),
            "PostgreSQL 13 to 18",
        ),
        (
            "the agent's own port",
            orders("{port: 8008, engine: {postgresql: {version: \"15\"}}, storage: {size: 1Gi}}"),
            "spec.port",
        ),
        (
            "more acknowledgements than there are others",
            orders("{replication: {k: 3}, engine: {postgresql: {version: \"15\"}}, storage: {size: 1Gi}}"),
            "spec.replication.k",
        ),
        ("no YAML", "a: [".into(), "YAML"),
        ("no kind of ours", "apiVersion: coregent.io/v1alpha1\nkind: Nothing\nmetadata: {name: a}".into(), "Nothing"),
    ];
    for (what, manifest, names) in &table {
        let file = plane.write("bad.yaml", manifest);
        let said = plane.refused(["up", "--detach", "-f", &file.display().to_string()], 2);
        assert!(said.contains(names), "{what}: {said}");
        assert!(!plane.data_dir().exists(), "{what}: refused before anything was made");
    }
    plane.must(["up", "--detach"]);
    for (what, manifest, names) in table {
        let file = plane.write("bad.yaml", &manifest);
        let said = plane.refused(["apply", "-f", &file.display().to_string()], 2);
        assert!(said.contains(names), "{what}: {said}");
    }
    assert_eq!(plane.must(["get", "dbc", "-o", "name"]), "");
    // A plane that was there before is started, since only it knows what the manifest meets; that it goes on is said.
    plane.must(["down"]);
    let file = plane.write("bad.yaml", &orders("{replicas: 0}"));
    let said = plane.refused(["up", "--detach", "-f", &file.display().to_string()], 4);
    assert!(said.contains("was started and goes on") && !said.contains("nothing was changed"), "{said}");
    assert_eq!(plane.must(["get", "dbc", "-o", "name"]), "");
}

#[test]
fn a_protected_setting_and_an_absent_secret_are_said_in_the_status_and_the_secret_is_awaited() {
    let plane = Plane::up();
    plane.apply(&orders(
        "{replicas: 1, config: {fsync: \"off\"}, engine: {postgresql: {version: \"15\"}}, storage: {size: 1Gi}}",
    ));
    plane.wait("dbc/orders", "Ready=False");
    let status = plane.must(["status", "orders"]);
    assert!(status.contains("spec.config.fsync"), "{status}");
    plane.must(["delete", "dbc", "orders"]);
    plane.apply(&orders(
        "{replicas: 1, superuserSecret: mine, engine: {postgresql: {version: \"15\"}}, storage: {size: 1Gi}}",
    ));
    plane.wait("dbc/orders", "Ready=False");
    let status = plane.must(["status", "orders"]);
    assert!(status.contains("Secret \"mine\"") && status.contains("create it"), "{status}");
    let events = plane.must(["events"]);
    assert!(events.contains("WaitsForNamedObject"), "{events}");
    plane.apply(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: mine}\nstringData: {username: postgres, password: hunter2}",
    );
    plane.wait("dbc/orders", "Ready");
    let everything =
        plane.must(["get", "dbc", "-o", "yaml"]) + &plane.must(["events"]) + &plane.must(["logs", "orders-1-0"]);
    assert!(!everything.contains("hunter2"), "a secret was printed");

    // Who deletes the cluster is told that the data stays, and how it goes.
    let said = text(&plane.run(["delete", "dbc", "orders"]).stderr);
    let remedy = "delete pvc -l coregent.io/cluster=orders";
    assert!(said.contains("data-orders-1-0") && said.contains(remedy), "{said}");
    assert!(plane.must(["get", "pvc", "-o", "name"]).contains("data-orders-1-0"));
    plane.must(remedy.split(' '));
    assert_eq!(plane.must(["get", "pvc", "-o", "name"]), "");
}

#[test]
fn a_data_folder_in_use_or_of_a_newer_version_is_refused() {
    let plane = Plane::up();
    let said = plane.refused(["up", "--detach"], 2);
    assert!(said.contains(&plane.pid().to_string()), "{said}");
    let log = std::fs::read_to_string(plane.data_dir().join("up.log")).expect("the log of the plane that runs");
    assert!(!log.contains("cannot use the data folder"), "{log}");
    plane.must(["down"]);
    std::fs::write(plane.data_dir().join("format"), "999\n").expect("the format file");
    let said = plane.refused(["up", "--detach"], 2);
    assert!(said.contains("newer version"), "{said}");
    std::fs::write(plane.data_dir().join("format"), "1\n").expect("the format file");
    // The store's own format: SQLite keeps it at this place of its header (its file format, section 1.3).
    let store = plane.data_dir().join("store.db");
    let good = std::fs::read(&store).expect("the store");
    let mut newer = good.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&store, &newer).expect("the store");
    let said = plane.refused(["up", "--detach"], 2);
    assert!(said.contains("format 99") && said.contains("use that newer version"), "{said}");
    assert_eq!(std::fs::read(&store).expect("the store"), newer, "it was left as it is");
    std::fs::write(&store, good).expect("the store");
    plane.must(["up", "--detach"]);
}

#[test]
fn a_port_of_the_api_that_is_taken_is_refused_and_named() {
    let plane = Plane::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let said = plane.refused(["up", "--detach", "--listen", &address], 2);
    assert!(said.contains(&address) && said.contains("--listen"), "{said}");
    // Its own address, once it has one.
    plane.must(["up", "--detach"]);
    let network = std::fs::read_to_string(plane.data_dir().join("network")).expect("the network");
    plane.must(["down"]);
    let prefix = network.trim().trim_end_matches("/24").trim_end_matches('0');
    let taken = TcpListener::bind(format!("{prefix}1:6443")).expect("the plane's address");
    let said = plane.refused(["up", "--detach"], 2);
    assert!(said.contains(&format!("{prefix}1:6443")), "{said}");
    drop(taken);
    plane.must(["up", "--detach"]);
}

/// Whoever listens on every address has the port of each.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_a_database_that_is_taken_is_said_and_tried_again() {
    let plane = Plane::up();
    let client = plane.client().await;
    let taken = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    plane.apply(&orders(&format!(
        "{{replicas: 1, port: {port}, engine: {{postgresql: {{version: \"15\"}}}}, storage: {{size: 1Gi}}}}"
    )));
    let cluster = until(&client, "orders", |cluster| {
        condition(cluster, "MemberFailed").is_some_and(|said| said.contains("Address already in use"))
    })
    .await;
    assert!(condition(&cluster, "MemberFailed").is_some_and(|said| said.contains(&format!("port {port}"))));
    assert!(plane.must(["events"]).contains("MemberFailed"));

    // Then only the address of its read-write Service is taken: the members are well, and nobody could connect.
    let ip = plane.must(["get", "service", "orders", "-o", "json"]);
    let ip: serde_json::Value = serde_json::from_str(&ip).expect("a Service");
    let address = format!("{}:{port}", ip["spec"]["clusterIP"].as_str().expect("its address"));
    drop(taken);
    let taken = TcpListener::bind(&address).expect("the Service's address");
    let unavailable = |cluster: &DatabaseCluster| condition(cluster, "AddressUnavailable").map(str::to_owned);
    let cluster = until(&client, "orders", |cluster| unavailable(cluster).is_some()).await;
    let said = unavailable(&cluster).unwrap_or_default();
    assert!(said.contains(&address) && said.contains("Address already in use") && said.contains("ss -ltnp"), "{said}");
    let all_but_that = |cluster: &DatabaseCluster| cluster.status.as_ref().is_some_and(|s| s.ready_replicas == Some(1));
    let cluster = until(&client, "orders", all_but_that).await;
    assert!(!settled(&cluster) && condition(&cluster, "MemberFailed").is_none());
    assert!(plane.must(["status", "orders"]).contains(&address));
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    watched(&events, |event| event.reason.as_deref() == Some("ListenFailed")).await;
    watched(&events, |event| event.reason.as_deref() == Some("AddressUnavailable")).await;

    // Whoever starts the plane again is not told that it is Ready either, though it was when it was written down.
    plane.must(["down"]);
    let mut command = plane.command(["up", "--detach", "--wait"]);
    let mut waiting = command.stdout(Stdio::piped()).spawn().expect("the coregent binary");
    until(&client, "orders", |cluster| unavailable(cluster).is_some()).await;
    assert_eq!(waiting.try_wait().expect("its state"), None, "it waits for as long as the address is another's");
    drop(taken);
    let output = waiting.wait_with_output().expect("its end");
    assert!(output.status.success() && text(&output.stdout).contains("orders is Ready"), "{}", text(&output.stdout));
    until(&client, "orders", |cluster| settled(cluster) && unavailable(cluster).is_none()).await;
}

/// The first object that is as wanted, there already or to come.
async fn watched(api: &Api<Event>, wanted: impl Fn(&Event) -> bool) -> Event {
    use futures::TryStreamExt;
    let stream = kube::runtime::watcher(api.clone(), kube::runtime::watcher::Config::default());
    let mut objects = std::pin::pin!(kube::runtime::WatchStreamExt::applied_objects(stream));
    let look = async {
        loop {
            // An interrupted watch is resumed by the next look.
            if let Ok(object) = objects.try_next().await
                && let Some(object) = Some(object.expect("a watch that goes on")).filter(&wanted)
            {
                return object;
            }
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("an object as wanted")
}

/// What an ordinary user hears where user namespaces are switched off: the test switches them off in a namespace of its
/// own, where it is somebody else than root.
#[test]
fn user_namespaces_that_are_switched_off_are_refused_with_the_sysctl_and_nothing_is_made() {
    let name = "user_namespaces_that_are_switched_off_are_refused_with_the_sysctl_and_nothing_is_made";
    let plane = Plane::new();
    // In a folder that this somebody may write to, so that nothing else refuses.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$0\" up --detach";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c", script]);
    command.arg(env!("CARGO_BIN_EXE_coregent")).env("COREGENT_DATA_DIR", plane.data_dir());
    let output = match command.output() {
        Err(error) => return skipped(name, &format!("unshare (util-linux) cannot be run: {error}")),
        Ok(output) if text(&output.stderr).contains("unshare:") => {
            return skipped(name, text(&output.stderr).trim());
        }
        Ok(output) => output,
    };
    let said = refusal(&output, 2);
    assert!(said.contains("sysctl -w user.max_user_namespaces="), "{said}");
    assert!(!plane.data_dir().exists(), "refused before anything was made");
}

#[test]
fn a_verb_without_a_control_plane_says_how_to_start_one() {
    let plane = Plane::new();
    let said = plane.refused(["get", "pods"], 2);
    assert!(said.contains("coregent up"), "{said}");
}
