//! The plane ends, gently or not, and starts again.

use crate::plane::{Plane, primary, settled, until};
use crate::writer::{Writer, connected, rows};

const ORDERS: &str = include_str!("../../../../examples/postgres.yaml");

async fn three_members_with_a_row() -> (Plane, String) {
    let plane = Plane::up();
    plane.apply(ORDERS);
    plane.wait("dbc/orders", "Ready");
    let uri = plane.must(["endpoint", "orders", "--uri"]).trim().to_owned();
    let mut writer = Writer::start(&uri).await;
    writer.next_acknowledgement().await;
    writer.stop().await;
    (plane, uri)
}

/// What identifies the data: PostgreSQL's system identifier, and a token in each data folder that a fresh copy lacks.
async fn marks(plane: &Plane, uri: &str) -> (String, usize) {
    let system: String = connected(uri)
        .await
        .query_one("select system_identifier::text from pg_control_system()", &[])
        .await
        .expect("a row")
        .get(0);
    let volumes = plane.data_dir().join("volumes");
    let marked = std::fs::read_dir(volumes)
        .map_or(0, |entries| entries.flatten().filter(|entry| entry.path().join("test-mark").exists()).count());
    (system, marked)
}

fn mark_volumes(plane: &Plane) -> usize {
    let entries = std::fs::read_dir(plane.data_dir().join("volumes")).expect("the volumes");
    entries
        .flatten()
        .filter(|entry| {
            std::fs::write(entry.path().join("pgdata").join("test-mark"), "x").is_ok()
                && std::fs::write(entry.path().join("test-mark"), "x").is_ok()
        })
        .count()
}

fn copies_kept(plane: &Plane) -> usize {
    let entries = std::fs::read_dir(plane.data_dir().join("volumes")).expect("the volumes");
    entries.flatten().filter(|entry| entry.path().join("pgdata").join("test-mark").exists()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn down_and_up_gives_the_same_data_without_a_fresh_copy() {
    let (plane, uri) = three_members_with_a_row().await;
    let marked = mark_volumes(&plane);
    let (before, written) = (marks(&plane, &uri).await, rows(&uri).await);
    plane.must(["down"]);
    plane.must(["up", "--detach"]);
    until(&plane.client().await, "orders", settled).await;
    assert_eq!(marks(&plane, &uri).await, before);
    assert_eq!(rows(&uri).await, written);
    assert_eq!(copies_kept(&plane), marked, "no member was copied anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_of_everything_and_up_gives_the_same_data_without_a_fresh_copy() {
    let (plane, uri) = three_members_with_a_row().await;
    let marked = mark_volumes(&plane);
    let (before, written) = (marks(&plane, &uri).await, rows(&uri).await);
    let member = plane.container_pid("orders-1-0").expect("a member");
    plane.kill();
    assert!(
        !std::path::Path::new(&format!("/proc/{member}/root")).exists() || stopped(member),
        "a dead node leaves nothing running"
    );
    plane.must(["up", "--detach"]);
    let cluster = until(&plane.client().await, "orders", settled).await;
    assert!(primary(&cluster).is_some());
    assert_eq!(marks(&plane, &uri).await, before);
    assert_eq!(rows(&uri).await, written);
    assert_eq!(copies_kept(&plane), marked, "no member was copied anew");
}

/// Waits for the end of a process that has been killed already.
fn stopped(pid: i32) -> bool {
    crate::plane::kill_and_wait(pid);
    true
}
