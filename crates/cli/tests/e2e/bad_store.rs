//! A store file that cannot be used: refused, left as it is, no volume touched, no empty store in its place.

use crate::plane::Plane;
use std::collections::BTreeMap;
use std::path::Path;

const CLAIM: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\ndata: {a: b}\n---\napiVersion: v1\nkind: \
    PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: \
    1Gi}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: writer}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
    containers: [{name: main, image: busybox, command: [sh, -c, 'echo kept >>/d/f; exec sleep 100000'], volumeMounts: [{name: \
    d, mountPath: /d}]}]\n  volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]\n";

/// Every file below a folder with what it holds.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().is_dir() {
            all.extend(contents(&entry.path()));
        } else {
            all.insert(entry.path().display().to_string(), std::fs::read(entry.path()).expect("a file"));
        }
    }
    all
}

#[test]
fn a_store_that_is_damaged_truncated_or_gone_is_refused_and_neither_it_nor_a_volume_is_touched() {
    let plane = Plane::up();
    plane.apply(CLAIM);
    plane.wait("pod/writer", "Ready");
    plane.must(["down"]);
    let (store, volumes) = (plane.data_dir().join("store.db"), plane.data_dir().join("volumes"));
    let good = std::fs::read(&store).expect("the store");
    let before = contents(&volumes);
    assert_eq!(before.values().collect::<Vec<_>>(), [b"kept\n"]);
    let with = |from: usize, to: usize, fill: u8| {
        let mut bytes = good.clone();
        bytes[from..to].fill(fill);
        Some(bytes)
    };
    let noise: Vec<u8> =
        (0_u32..).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).take(good.len() / 3).collect();
    let mut random = good.clone();
    random[good.len() / 3..good.len() / 3 + noise.len()].copy_from_slice(&noise);
    let table = [
        ("half of it is there", Some(good[..good.len() / 2].to_vec()), "damaged"),
        ("it is empty", Some(Vec::new()), "damaged"),
        ("its head is overwritten", with(0, 4096, 0x5a), "damaged"),
        ("random bytes in its middle", Some(random), "damaged"),
        ("its end is zeros", with(good.len() - 8192, good.len(), 0), "damaged"),
        ("it is gone", None, "is gone"),
    ];
    for (what, bytes, says) in table {
        match &bytes {
            Some(bytes) => std::fs::write(&store, bytes).expect("the store"),
            None => std::fs::remove_file(&store).expect("the store"),
        }
        let said = plane.refused(["up", "--detach"], 2);
        assert!(said.contains("store.db") && said.contains(says) && said.contains("put a good copy"), "{what}: {said}");
        assert_eq!(std::fs::read(&store).ok(), bytes, "{what}: it is left as it was");
        assert_eq!(contents(&volumes), before, "{what}: no volume is touched");
        assert!(!plane.data_dir().join("orphaned").exists(), "{what}: none is set aside either");
    }
    std::fs::write(&store, &good).expect("the store");
    plane.must(["up", "--detach"]);
    assert!(plane.must(["get", "configmap", "kept", "-o", "yaml"]).contains("a: b"));
    plane.wait("pod/writer", "Ready");
    assert_eq!(contents(&volumes).values().collect::<Vec<_>>(), [b"kept\nkept\n"], "the volume is its claim's again");
}
