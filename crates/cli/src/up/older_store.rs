//! A store that is older than what ran here last, or gone (failover.md F14): told to whoever acts on it and to the
//! person who started the plane, before any pod runs.

use super::api::Api;
use super::note::Note;
use crate::failure::{Failure, Outcome, chain};
use std::path::Path;

/// What to do about a store that cannot be used.
pub const REMEDY: &str = "put a good copy of store.db back, an older one will do: every database's members are heard before one is \
     promoted; to begin anew name another folder with --data-dir";

/// Refuses to make an empty store where volumes are: whatever they hold would belong to nobody.
///
/// # Errors
/// When there are volumes and no store.
pub fn refuse_lost(dir: &Path) -> Outcome {
    let volumes = std::fs::read_dir(dir.join("volumes")).map_or(0, |entries| entries.flatten().count());
    if volumes == 0 || dir.join("store.db").exists() {
        return Ok(());
    }
    let file = dir.join("store.db");
    let why = format!("it is gone, and {} holds {volumes} volumes that only it knows", dir.join("volumes").display());
    Err(Failure::refused(format!("cannot open the store {}", file.display()), why, REMEDY))
}

/// Marks every primary Lease of a store that was put back, and says so.
///
/// # Errors
/// When the mark cannot be written: nothing may run before it is.
pub async fn tell(api: &Api, client: &kube::Client, notes: &mut Vec<Note>) -> Outcome {
    let Some(restored) = api.server.restored() else { return Ok(()) };
    let what = "cannot tell the databases that the store is older than they are";
    let marked = coregent_operator::restored::mark(client).await.map_err(|error| Failure::from_api(what, error))?;
    api.server
        .settle_restored()
        .await
        .map_err(|error| Failure::failed(what, chain(&error), "make room and start again"))?;
    let reached = restored.reached.map_or("more".to_owned(), |reached| format!("revision {reached}"));
    let effect = if marked.is_empty() {
        "it has no database".to_owned()
    } else {
        format!("{}: every member is heard before one is promoted", marked.join(", "))
    };
    notes.push(Note {
        what: "the store is older than what ran here last".to_owned(),
        why: format!("store.db ends at revision {}, this folder had come to {reached}; {effect}", restored.found),
        remedy: "apply again what was changed since the copy was made".to_owned(),
    });
    Ok(())
}

/// Sets volume folders aside that the store does not know, and says so.
pub async fn set_aside_unknown(client: &kube::Client, dir: &Path, node: &str, notes: &mut Vec<Note>) {
    let remedy = format!("look into {}: nothing in it was changed", dir.join("orphaned").display());
    match coregent_node::set_aside_unknown(client, dir, node).await {
        Ok(moved) if moved.is_empty() => {}
        Ok(moved) => {
            let names: Vec<String> = moved.iter().map(|(_, to)| to.display().to_string()).collect();
            notes.push(Note {
                what: format!("volume folders that the store does not know were set aside: {}", names.join(", ")),
                why: "an older copy of the store was put back, or somebody put them there".to_owned(),
                remedy,
            });
        }
        // They are nobody's: no pod meets them where they are.
        Err(error) => notes.push(Note {
            what: "volume folders that the store does not know could not be set aside".to_owned(),
            why: chain(&error),
            remedy: "correct what is named: they are tried again at the next start".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_gone_is_not_replaced_by_an_empty_one_while_there_are_volumes() {
        let dir = tempfile::tempdir().unwrap();
        refuse_lost(dir.path()).unwrap();
        std::fs::create_dir_all(dir.path().join("volumes/pvc-1")).unwrap();
        let refused = refuse_lost(dir.path()).unwrap_err();
        assert!(refused.why.contains("1 volumes"), "{refused:?}");
        std::fs::write(dir.path().join("store.db"), "x").unwrap();
        refuse_lost(dir.path()).unwrap();
    }
}
