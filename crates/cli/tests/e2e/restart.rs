//! The plane ends, gently or not, and starts again.

use crate::members::{Volumes, at_rest, system_id};
use crate::plane::{Plane, primary};
use crate::writer::{Writer, rows};

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

#[tokio::test(flavor = "multi_thread")]
async fn down_and_up_gives_the_same_data_without_a_fresh_copy() {
    let (plane, uri) = three_members_with_a_row().await;
    let volumes = Volumes::of(&plane, &plane.client().await).await;
    let (before, copies, written) = (system_id(&uri).await, volumes.folders(), rows(&uri).await);
    let old = primary(&at_rest(&plane, &plane.client().await, "orders").await);
    plane.must(["down"]);
    plane.must(["up", "--detach"]);
    let resumed = at_rest(&plane, &plane.client().await, "orders").await;
    assert_eq!(primary(&resumed), old, "it stopped last and has the most: nobody is rewound");
    assert_eq!(system_id(&uri).await, before);
    assert_eq!(rows(&uri).await, written);
    assert_eq!(volumes.folders(), copies, "no member was copied anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_of_everything_and_up_gives_the_same_data_without_a_fresh_copy() {
    let (plane, uri) = three_members_with_a_row().await;
    let volumes = Volumes::of(&plane, &plane.client().await).await;
    let (before, copies, written) = (system_id(&uri).await, volumes.folders(), rows(&uri).await);
    let member = plane.container_pid("orders-1-0").expect("a member");
    plane.kill();
    assert!(
        !std::path::Path::new(&format!("/proc/{member}/root")).exists() || stopped(member),
        "a dead node leaves nothing running"
    );
    plane.must(["up", "--detach"]);
    let cluster = at_rest(&plane, &plane.client().await, "orders").await;
    assert!(primary(&cluster).is_some());
    assert_eq!(system_id(&uri).await, before);
    assert_eq!(rows(&uri).await, written);
    assert_eq!(volumes.folders(), copies, "no member was copied anew");
}

/// Waits for the end of a process that has been killed already.
fn stopped(pid: i32) -> bool {
    crate::plane::kill_and_wait(pid);
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_deleted_and_made_again_has_its_data_and_the_passwords_of_its_secrets() {
    let (plane, uri) = three_members_with_a_row().await;
    let (before, written) = (system_id(&uri).await, rows(&uri).await);
    plane.must(["delete", "dbc", "orders"]);
    plane.apply(ORDERS);
    let client = plane.client().await;
    at_rest(&plane, &client, "orders").await;
    let again = plane.must(["endpoint", "orders", "--uri"]).trim().to_owned();
    assert_ne!(again, uri, "its Secrets went with it");
    assert_eq!(system_id(&again).await, before, "no initdb");
    assert_eq!(rows(&again).await, written);

    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> = kube::Api::namespaced(client.clone(), "default");
    let changed = serde_json::json!({"stringData": {"password": "chan'ged"}});
    let patch = kube::api::Patch::Merge(&changed);
    secrets.patch("orders-superuser", &kube::api::PatchParams::default(), &patch).await.expect("the Secret changes");
    let changed = plane.must(["endpoint", "orders", "--uri"]).trim().to_owned();
    assert_ne!(changed, again);
    let limit = std::time::Instant::now() + crate::plane::PATIENCE;
    while let Err(error) = tokio_postgres::connect(&changed, tokio_postgres::NoTls).await {
        assert!(std::time::Instant::now() < limit, "{error:?}\n{}", plane.evidence());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await; // between two looks
    }
    assert!(tokio_postgres::connect(&again, tokio_postgres::NoTls).await.is_err(), "the old password is none any more");
}
