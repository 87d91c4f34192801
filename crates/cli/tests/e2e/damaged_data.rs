//! A data folder that cannot be used: it is set aside and copied anew while another member is primary (failover.md F12),
//! and left alone while none can be.

use crate::members::{at_rest, kill_postmaster, three_members, uri};
use crate::plane::{Plane, condition, epoch, kill_and_wait, primary, settled, until};
use crate::writer::{Writer, rows};
use coregent_api::DatabaseCluster;
use std::path::{Path, PathBuf};

/// The volume's folder of a member.
fn volume(plane: &Plane, member: &str) -> PathBuf {
    let claim = plane.must(["get", "pvc", &format!("data-{member}-0"), "-o", "json"]);
    let claim: serde_json::Value = serde_json::from_str(&claim).expect("a claim");
    plane.data_dir().join("volumes").join(claim["spec"]["volumeName"].as_str().expect("its volume"))
}

/// The folders that were set aside in a volume.
fn set_aside(volume: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(volume).expect("the volume").flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains("pgdata.diverged-")).collect()
}

/// What members say that are not ready.
fn failed(cluster: &DatabaseCluster) -> Option<&str> {
    condition(cluster, "MemberFailed")
}

fn remove(path: &Path) {
    std::fs::remove_file(path).expect("a file to remove");
}

/// Wipes the log: there is nothing to start from.
fn wipe_log(pgdata: &Path) {
    for entry in std::fs::read_dir(pgdata.join("pg_wal")).expect("the log").flatten() {
        if entry.file_name().len() == 24 {
            let size = entry.metadata().expect("a segment").len();
            std::fs::write(entry.path(), vec![0; usize::try_from(size).expect("its size")]).expect("a segment");
        }
    }
}

type Damage = (&'static str, fn(&Path), &'static str);

const DAMAGE: [Damage; 6] = [
    ("global/pg_control is missing", |pgdata| remove(&pgdata.join("global/pg_control")), "global/pg_control"),
    (
        "global/pg_control is garbage",
        |pgdata| std::fs::write(pgdata.join("global/pg_control"), [0x5a; 8192]).expect("a file"),
        "global/pg_control",
    ),
    ("PG_VERSION is missing", |pgdata| remove(&pgdata.join("PG_VERSION")), "PG_VERSION"),
    ("the log is wiped", wipe_log, "pg_wal"),
    (
        "the server finds a folder of its own missing",
        |pgdata| std::fs::remove_dir_all(pgdata.join("pg_replslot")).expect("a folder to remove"),
        "pg_replslot",
    ),
    // It starts and streams, and refuses whoever logs in, its agent first.
    (
        "the folder of the database postgres is missing",
        |pgdata| std::fs::remove_dir_all(pgdata.join("base/5")).expect("a folder to remove"),
        "base/5",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_replica_is_copied_anew_a_damaged_primary_is_failed_over_and_three_damaged_ones_wait_for_a_person() {
    let plane = three_members("Quorum");
    let uri = uri(&plane);
    let client = plane.client().await;
    let mut writer = Writer::start(&uri).await;
    let cluster = until(&client, "orders", settled).await;
    let first = primary(&cluster).expect("a primary");
    let replica = ["orders-1", "orders-2", "orders-3"].into_iter().find(|member| *member != first).expect("a replica");
    let folder = volume(&plane, replica);
    for (at, (what, damage, said)) in DAMAGE.into_iter().enumerate() {
        std::fs::write(folder.join("pgdata/test-damaged"), what).expect("a mark");
        damage(&folder.join("pgdata"));
        kill_postmaster(&plane, replica);
        until(&client, "orders", |cluster| failed(cluster).is_some_and(|text| text.contains(said))).await;
        until(&client, "orders", |cluster| settled(cluster) && failed(cluster).is_none()).await;
        let kept = set_aside(&folder);
        assert_eq!(kept.len(), 1, "case {at}: {kept:?}: the newest is kept");
        let mark = std::fs::read_to_string(kept[0].join("test-damaged"));
        assert_eq!(mark.expect("its mark"), what, "case {at}: as it was");
        assert!(!folder.join("pgdata/test-damaged").exists(), "{what}: it was copied anew");
    }
    assert!(plane.must(["events"]).contains("MemberFailed"));
    assert_eq!(primary(&until(&client, "orders", settled).await), Some(first.clone()), "nobody failed over");

    // The primary's: another takes over, and it is copied from that one.
    let before = epoch(&until(&client, "orders", settled).await);
    let folder = volume(&plane, &first);
    remove(&folder.join("pgdata/global/pg_control"));
    kill_and_wait(plane.container_pid(&format!("{first}-0")).expect("the primary"));
    let cluster = until(&client, "orders", |cluster| settled(cluster) && epoch(cluster) > before).await;
    assert_ne!(primary(&cluster), Some(first));
    assert_eq!(set_aside(&folder).len(), 1);
    writer.next_acknowledgement().await;
    let acknowledged = writer.stop().await;

    // Everybody's: nothing is made, nothing is removed, and each says what is wrong with it.
    let last = primary(&cluster).expect("a primary");
    let folders = ["orders-1", "orders-2", "orders-3"].map(|member| volume(&plane, member));
    let control = |folder: &Path, name: &str| folder.join("pgdata/global").join(name);
    plane.must(["down"]);
    for folder in &folders {
        std::fs::write(folder.join("pgdata/test-mark"), "x").expect("a mark");
        std::fs::rename(control(folder, "pg_control"), control(folder, "kept")).expect("a control file to move");
    }
    plane.must(["up", "--detach"]);
    let client = plane.client().await;
    let everybody = |cluster: &DatabaseCluster| {
        failed(cluster).is_some_and(|text| text.matches("pg_control is damaged").count() == 3)
    };
    until(&client, "orders", everybody).await;
    for folder in &folders {
        assert!(folder.join("pgdata/test-mark").exists(), "{} was replaced", folder.display());
    }
    // A person puts one right; it is primary again and the others are copied from it.
    let mended = volume(&plane, &last);
    std::fs::rename(control(&mended, "kept"), control(&mended, "pg_control")).expect("a control file to put back");
    at_rest(&plane, &client, "orders").await;
    let there = rows(&uri).await;
    let lost: Vec<_> = acknowledged.difference(&there).collect();
    assert!(lost.is_empty(), "acknowledged and gone: {lost:?}");
    let kept = folders.iter().filter(|folder| set_aside(folder).iter().any(|aside| aside.join("test-mark").exists()));
    assert_eq!(kept.count(), 2, "the other two are set aside, not removed");
}
