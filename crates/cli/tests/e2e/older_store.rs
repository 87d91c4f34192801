//! Yesterday's copy of the store is put back (failover.md F14).

use crate::members::{Volumes, at_rest, system_id, three_members, uri};
use crate::plane::{epoch, settled, text, until};
use crate::writer::{Writer, rows};
use std::path::Path;

const OTHER: &str = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: later}\nspec: {accessModes: [ReadWriteOnce], \
    resources: {requests: {storage: 1Gi}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: later}\nspec:\n  \
    terminationGracePeriodSeconds: 1\n  containers: [{name: main, image: busybox, command: [sh, -c, 'echo kept >/d/f; exec \
    sleep 100000'], volumeMounts: [{name: d, mountPath: /d}]}]\n  volumes: [{name: d, persistentVolumeClaim: {claimName: \
    later}}]\n";

/// Copies `store.db` and what SQLite has beside it.
fn copy_store(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("the folder of a store").flatten() {
        if entry.file_name().to_string_lossy().starts_with("store.db") {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn yesterdays_store_is_repaired_from_what_the_members_know_and_unknown_volumes_are_set_aside() {
    let plane = three_members("Quorum");
    let uri = uri(&plane);
    plane.must(["down"]);
    let yesterday = plane.data_dir().with_file_name("yesterday");
    copy_store(&plane.data_dir(), &yesterday);

    // Since then: two changes of primary, rows, and a volume that the copy does not know.
    plane.must(["up", "--detach"]);
    let client = plane.client().await;
    at_rest(&plane, &client, "orders").await;
    let volumes = Volumes::of(&plane, &client).await;
    let before = (system_id(&uri).await, volumes.folders());
    let mut writer = Writer::start(&uri).await;
    for _ in 0..2 {
        until(&client, "orders", settled).await;
        plane.must(["switchover", "orders"]);
        writer.next_acknowledgement().await;
    }
    plane.apply(OTHER);
    plane.wait("pod/later", "Ready");
    let today = epoch(&until(&client, "orders", settled).await);
    let acknowledged = writer.stop().await;
    plane.must(["down"]);

    copy_store(&yesterday, &plane.data_dir());
    let up = plane.run(["up", "--detach"]);
    let said = text(&up.stderr);
    assert!(up.status.success(), "{said}");
    assert!(said.contains("older than what ran here last") && said.contains("default/orders"), "{said}");
    assert!(said.contains("set aside"), "{said}");
    assert_eq!(said.lines().count(), 6, "two notes of three lines: {said}");
    let client = plane.client().await;
    until(&client, "orders", |cluster| settled(cluster) && epoch(cluster) > today).await;
    let cluster = at_rest(&plane, &client, "orders").await;
    assert_eq!((system_id(&uri).await, volumes.folders()), before, "no data folder was copied anew or initialised");
    let lost: Vec<_> = acknowledged.difference(&rows(&uri).await).copied().collect();
    assert_eq!(lost, [0_i64; 0], "acknowledged and gone");
    let reason = cluster.status.and_then(|status| status.last_failover).and_then(|last| last.reason);
    assert_eq!(reason.as_deref(), Some("StoreOlderThanMembers"));
    let events = plane.must(["events"]);
    assert!(events.contains("VolumeFolderSetAside") && events.contains("StoreOlderThanMembers"), "{events}");
    let orphaned: Vec<_> =
        std::fs::read_dir(plane.data_dir().join("orphaned")).expect("what was set aside").flatten().collect();
    assert_eq!(orphaned.len(), 1);
    assert_eq!(std::fs::read_to_string(orphaned[0].path().join("f")).expect("its file"), "kept\n");

    // A second start has nothing more to say.
    plane.must(["down"]);
    assert_eq!(text(&plane.run(["up", "--detach"]).stderr), "");
}
