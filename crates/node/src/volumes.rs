//! The folders of PersistentVolumes: made on first use, removed only when the store says so.
//!
//! A folder is never removed because something is not there: an older copy of the store knows fewer
//! volumes than there are (failover.md F14).

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    events::{Events, about_node},
    node::Node,
};

/// Holds a PersistentVolume back until its folder is gone.
pub const FOLDER_FINALIZER: &str = "coregent.io/volume-folder";
/// Taken off by the volume controller when no claim needs the volume any more: only then may the folder go.
const PROTECTION: &str = "kubernetes.io/pv-protection";
/// Says that the folder has been made, so that one that is missing later is a loss and not a beginning.
const CREATED: &str = "coregent.io/volume-folder-created";

/// The folder of a claim; the error says what is waited for.
pub(crate) async fn folder_of_claim(node: &Node, namespace: &str, claim: &str) -> Result<PathBuf, String> {
    let found = node.claims.get(namespace, claim).ok_or_else(|| format!("claim {claim:?} not found"))?;
    let volume = found.spec.as_ref().and_then(|s| s.volume_name.clone()).filter(|name| !name.is_empty());
    let bound = found.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
    let Some(name) = volume.filter(|_| bound) else {
        return Err(format!("claim {claim:?} is not bound to a volume yet"));
    };
    let volume = node.volumes.get("", &name).ok_or_else(|| format!("PersistentVolume {name:?} not found"))?;
    if volume.metadata.deletion_timestamp.is_some() {
        return Err(format!("PersistentVolume {name:?} is being deleted"));
    }
    let path = path(&volume).ok_or_else(|| {
        format!("PersistentVolume {name:?} has no path of this machine (served are hostPath and local)")
    })?;
    if path.is_dir() {
        mark_created(node, &volume).await?;
        return Ok(path);
    }
    if !is_ours(&node.data_dir, &path) {
        return Err(format!("{} of PersistentVolume {name:?} is not a folder of this machine", path.display()));
    }
    if volume.annotations().contains_key(CREATED) {
        return Err(format!(
            "{} is missing, although it was made once: its data is lost or elsewhere. Put it back, or remove the annotation \
             {CREATED} from PersistentVolume {name:?} to start with an empty one",
            path.display()
        ));
    }
    let made = fs::create_dir_all(&path).and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
    made.map_err(|e| format!("failed to create {}: {e}", path.display()))?;
    mark_created(node, &volume).await?;
    Ok(path)
}

async fn mark_created(node: &Node, volume: &PersistentVolume) -> Result<(), String> {
    let path = path(volume).unwrap_or_default();
    if volume.annotations().contains_key(CREATED) || !is_ours(&node.data_dir, &path) {
        return Ok(());
    }
    let api: Api<PersistentVolume> = Api::all(node.client.clone());
    let patch = json!({"metadata": {"uid": volume.uid(), "annotations": {CREATED: "true"}}});
    let marked = api.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
    marked
        .map(drop)
        .map_err(|e| format!("PersistentVolume {:?} not marked: {}", volume.name_any(), crate::node::words(&e)))
}

fn path(volume: &PersistentVolume) -> Option<PathBuf> {
    let spec = volume.spec.as_ref()?;
    let host = spec.host_path.as_ref().map(|h| h.path.as_str());
    let local = spec.local.as_ref().map(|l| l.path.as_str());
    host.or(local).map(PathBuf::from)
}

/// Whether the folder is directly below `<data_dir>/volumes`: only such a folder is ours to make or remove.
fn is_ours(data_dir: &Path, path: &Path) -> bool {
    path.parent() == Some(&data_dir.join("volumes")) && path.file_name().is_some()
}

/// What happens to the folder of a volume that is deleted.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Its reclaim policy says that the data goes too.
    Remove,
    /// The data is kept, out of the way of a volume of the same name.
    SetAside,
    /// Not our folder.
    Leave,
}

fn fate(data_dir: &Path, volume: &PersistentVolume) -> Fate {
    let policy = volume.spec.as_ref().and_then(|s| s.persistent_volume_reclaim_policy.as_deref());
    match (path(volume), policy) {
        (Some(path), _) if !is_ours(data_dir, &path) => Fate::Leave,
        (None, _) => Fate::Leave,
        (Some(_), Some("Delete")) => Fate::Remove,
        (Some(_), _) => Fate::SetAside,
    }
}

/// Removes the folders of volumes that are being deleted, then lets the volumes go.
pub(crate) async fn run(node: Arc<Node>, shutdown: CancellationToken) {
    let mut changes = node.volumes.changes();
    loop {
        for volume in node.volumes.all() {
            let held = volume.finalizers().iter().any(|f| f == FOLDER_FINALIZER);
            // While a claim protects it, its deletion is only a wish (coregent_apiserver::controllers, "volumes").
            let protected = volume.finalizers().iter().any(|f| f == PROTECTION);
            if held && !protected && volume.metadata.deletion_timestamp.is_some() {
                reclaim(&node, &volume).await;
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = changes.changed() => {}
            // A volume that is still in use is looked at again.
            () = tokio::time::sleep(std::time::Duration::from_secs(5)), if has_leaving(&node) => {}
        }
    }
}

fn has_leaving(node: &Node) -> bool {
    node.volumes.all().iter().any(|v| v.metadata.deletion_timestamp.is_some())
}

async fn reclaim(node: &Node, volume: &PersistentVolume) {
    let name = volume.name_any();
    match in_use(node, volume).await {
        Ok(false) => {}
        Ok(true) => return tracing::debug!(volume = name, "still in use by a pod, not reclaimed yet"),
        Err(e) => return tracing::warn!(volume = name, "not reclaimed: {e}"),
    }
    let done = match (fate(&node.data_dir, volume), path(volume)) {
        (Fate::Remove, Some(path)) => remove(&node.data_dir, &path),
        (Fate::SetAside, Some(path)) => set_aside(&node.data_dir, &path).map(drop),
        _ => Ok(()),
    };
    if let Err(e) = done {
        return tracing::warn!(volume = name, "folder not reclaimed: {e}");
    }
    let finalizers: Vec<&String> = volume.finalizers().iter().filter(|f| *f != FOLDER_FINALIZER).collect();
    let patch = json!({"metadata": {
        "uid": volume.uid(), "resourceVersion": volume.resource_version(), "finalizers": finalizers,
    }});
    let api: Api<PersistentVolume> = Api::all(node.client.clone());
    if let Err(e) = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        tracing::debug!(volume = name, "finalizer not removed yet: {e}");
    }
}

/// Whether a pod that is not finished still has the volume's claim.
async fn in_use(node: &Node, volume: &PersistentVolume) -> Result<bool, kube::Error> {
    let Some(claim) = volume.spec.as_ref().and_then(|s| s.claim_ref.clone()) else { return Ok(false) };
    let (namespace, claim_name) = (claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default());
    // A claim of the same name with another volume is another claim.
    let other = node
        .claims
        .get(&namespace, &claim_name)
        .is_some_and(|c| c.spec.as_ref().and_then(|s| s.volume_name.as_deref()) != Some(volume.name_any().as_str()));
    if other || namespace.is_empty() {
        return Ok(false);
    }
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), &namespace);
    let pods = pods.list(&ListParams::default()).await?;
    Ok(pods.items.iter().any(|pod| {
        let ended = matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"));
        let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
        let mut claims = volumes.filter_map(|v| v.persistent_volume_claim.as_ref());
        !ended && claims.any(|c| c.claim_name == claim_name)
    }))
}

/// Renamed first: a removal that is cut short must not leave half a folder under the old name.
fn remove(data_dir: &Path, path: &Path) -> io::Result<()> {
    let Some(name) = path.file_name() else { return Ok(()) };
    let leaving = data_dir.join("volumes").join(format!(".removing-{}", name.to_string_lossy()));
    if path.exists() {
        if leaving.exists() {
            fs::remove_dir_all(&leaving)?;
        }
        fs::rename(path, &leaving)?;
    }
    match fs::remove_dir_all(&leaving) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Moves a folder to `<data_dir>/orphaned` and says where it is now.
fn set_aside(data_dir: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
    let Some(name) = path.file_name() else { return Ok(None) };
    if !path.exists() {
        return Ok(None);
    }
    let orphaned = data_dir.join("orphaned");
    fs::create_dir_all(&orphaned)?;
    let mut target = orphaned.join(name);
    let mut number = 1;
    while target.exists() {
        target = orphaned.join(format!("{}.{number}", name.to_string_lossy()));
        number += 1;
    }
    fs::rename(path, &target)?;
    Ok(Some(target))
}

/// Folders of `<data_dir>/volumes` that neither a PersistentVolume nor a claim of the store accounts for: an older
/// copy of the store was put back, or somebody put them there.
pub async fn unknown_folders(client: &kube::Client, data_dir: &Path) -> Result<Vec<PathBuf>, kube::Error> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let root = data_dir.join("volumes");
    let mut known: Vec<PathBuf> = volumes.list(&ListParams::default()).await?.iter().filter_map(path).collect();
    // A claim's volume is named after its uid: the volume will be made again, and finds its folder.
    known.extend(
        claims.list(&ListParams::default()).await?.iter().filter_map(|c| Some(root.join(format!("pvc-{}", c.uid()?)))),
    );
    let Ok(folders) = fs::read_dir(root) else { return Ok(Vec::new()) };
    let mut unknown: Vec<PathBuf> = folders.flatten().map(|f| f.path()).filter(|p| !known.contains(p)).collect();
    unknown.retain(|p| p.is_dir() && !p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(".removing-")));
    unknown.sort();
    Ok(unknown)
}

/// Moves the folders of [`unknown_folders`] to `<data_dir>/orphaned`, as they are: no pod can have them, and nothing
/// that is made later may meet them (failover.md F14). For the start of `node`, before any pod runs. Returns where they
/// came from and where they are.
///
/// # Errors
/// When what is known cannot be asked, or a folder cannot be moved.
pub async fn set_aside_unknown(
    client: &kube::Client,
    data_dir: &Path,
    node: &str,
) -> Result<Vec<(PathBuf, PathBuf)>, SetAsideError> {
    let mut moved = Vec::new();
    for path in unknown_folders(client, data_dir).await? {
        match set_aside(data_dir, &path) {
            Ok(Some(target)) => moved.push((path, target)),
            Ok(None) => {}
            Err(source) => return Err(SetAsideError::Move { path, source }),
        }
    }
    if !moved.is_empty() {
        let events = Events::start(client.clone(), node);
        for (path, target) in &moved {
            let note = format!(
                "{} is a volume folder that the store does not know: it is now {}, nothing in it was changed",
                path.display(),
                target.display()
            );
            events.warning(&about_node(node), "VolumeFolderSetAside", note);
        }
    }
    Ok(moved)
}

/// Why unknown volume folders were not set aside.
#[derive(Debug, thiserror::Error)]
pub enum SetAsideError {
    /// Which volumes are known could not be asked.
    #[error("failed to list PersistentVolumes: {0}")]
    Api(#[from] kube::Error),
    /// A folder could not be moved.
    #[error("failed to move {path}: {source}")]
    Move {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(path: &str, policy: &str) -> PersistentVolume {
        let spec = json!({"hostPath": {"path": path}, "persistentVolumeReclaimPolicy": policy});
        serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap()
    }

    #[test]
    fn only_a_folder_of_ours_is_removed_and_only_if_the_policy_says_so() {
        let data_dir = Path::new("/data");
        for (path, policy, expected) in [
            ("/data/volumes/pv", "Delete", Fate::Remove),
            ("/data/volumes/pv", "Retain", Fate::SetAside),
            ("/data/volumes", "Delete", Fate::Leave),
            ("/data/volumes/pv/sub", "Delete", Fate::Leave),
            ("/data/volumes/..", "Delete", Fate::Leave),
            ("/etc", "Delete", Fate::Leave),
        ] {
            assert_eq!(fate(data_dir, &volume(path, policy)), expected, "{path} {policy}");
        }
    }

    #[test]
    fn a_folder_that_is_set_aside_never_replaces_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volumes/pv");
        for content in ["first", "second"] {
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("data"), content).unwrap();
            set_aside(dir.path(), &path).unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join("orphaned").join(name).join("data")).unwrap();
        assert_eq!((read("pv").as_str(), read("pv.1").as_str()), ("first", "second"));
    }

    #[test]
    fn a_removal_that_was_cut_short_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volumes/pv");
        fs::create_dir_all(path.join("base")).unwrap();
        fs::create_dir_all(dir.path().join("volumes/.removing-pv/old")).unwrap();
        remove(dir.path(), &path).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("volumes")).unwrap().count(), 0);
        remove(dir.path(), &path).unwrap();
    }
}
