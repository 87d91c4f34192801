//! What is refused is refused in one message, and nothing is lost.

use crate::plane::Plane;

fn orders(spec: &str) -> String {
    format!("apiVersion: coregent.io/v1alpha1\nkind: DatabaseCluster\nmetadata: {{name: orders}}\nspec: {spec}\n")
}

#[test]
fn a_manifest_that_cannot_be_carried_out_is_refused_with_the_field_and_nothing_is_made() {
    let plane = Plane::up();
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
        ("no YAML", "a: [".into(), "YAML"),
        ("no kind of ours", "apiVersion: coregent.io/v1alpha1\nkind: Nothing\nmetadata: {name: a}".into(), "Nothing"),
    ];
    for (what, manifest, names) in table {
        let file = plane.write("bad.yaml", &manifest);
        let said = plane.refused(["apply", "-f", &file.display().to_string()], 2);
        assert!(said.contains(names), "{what}: {said}");
        assert_eq!(said.lines().count(), 3, "{what}: {said}");
    }
    assert_eq!(plane.must(["get", "dbc", "-o", "name"]), "");
}

#[test]
fn an_unknown_version_and_an_absent_secret_are_said_in_the_status_and_the_secret_is_awaited() {
    let plane = Plane::up();
    plane.apply(&orders("{replicas: 1, engine: {postgresql: {version: \"99\"}}, storage: {size: 1Gi}}"));
    plane.wait("dbc/orders", "Ready=False");
    let status = plane.must(["status", "orders"]);
    assert!(status.contains("99"), "{status}");
    plane.must(["delete", "dbc", "orders"]);
    plane.apply(&orders(
        "{replicas: 1, superuserSecret: mine, engine: {postgresql: {version: \"15\"}}, storage: {size: 1Gi}}",
    ));
    plane.wait("dbc/orders", "Ready=False");
    let status = plane.must(["status", "orders"]);
    assert!(status.contains("mine"), "{status}");
    plane.apply(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: mine}\nstringData: {username: postgres, password: hunter2}",
    );
    plane.wait("dbc/orders", "Ready");
    let everything =
        plane.must(["get", "dbc", "-o", "yaml"]) + &plane.must(["events"]) + &plane.must(["logs", "orders-1-0"]);
    assert!(!everything.contains("hunter2"), "a secret was printed");
}

#[test]
fn a_data_folder_in_use_or_of_a_newer_version_is_refused() {
    let plane = Plane::up();
    let said = plane.refused(["up", "--detach"], 2);
    assert!(said.contains(&plane.pid().to_string()), "{said}");
    plane.must(["down"]);
    std::fs::write(plane.data_dir().join("format"), "999\n").expect("the format file");
    let said = plane.refused(["up", "--detach"], 2);
    assert!(said.contains("newer version"), "{said}");
    std::fs::write(plane.data_dir().join("format"), "1\n").expect("the format file");
    plane.must(["up", "--detach"]);
}

#[test]
fn a_corrupted_store_is_refused_and_left_as_it_was() {
    let plane = Plane::up();
    plane.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\ndata: {a: b}");
    plane.must(["down"]);
    let store = plane.data_dir().join("store.db");
    let good = std::fs::read(&store).expect("the store");
    let mut bad = good.clone();
    let middle = bad.len().min(8192) / 2;
    bad[..middle].fill(0x5a);
    std::fs::write(&store, &bad).expect("the store");
    let said = plane.refused(["up", "--detach"], 2);
    assert!(said.contains("store.db"), "{said}");
    assert_eq!(std::fs::read(&store).expect("the store"), bad, "a store that cannot be read is not touched");
    std::fs::write(&store, &good).expect("the store");
    plane.must(["up", "--detach"]);
    assert!(plane.must(["get", "configmap", "kept", "-o", "yaml"]).contains("a: b"));
}

#[test]
fn a_port_that_is_taken_is_refused_and_named() {
    let plane = Plane::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let said = plane.refused(["up", "--detach", "--listen", &address], 2);
    assert!(said.contains(&address), "{said}");
}

#[test]
fn a_verb_without_a_control_plane_says_how_to_start_one() {
    let plane = Plane::new();
    let said = plane.refused(["get", "pods"], 2);
    assert!(said.contains("coregent up"), "{said}");
}
