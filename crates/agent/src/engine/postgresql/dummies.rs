//! History files that say nothing, for numbers of timelines that were attempted elsewhere (F9).
//!
//! PostgreSQL looks for the newest timeline one number after the other, from that of the last checkpoint on, and stops at
//! the first without a history file (`findNewestTimeLine` of its `timeline.c`). A dummy makes it look further, both when
//! it chooses the number of a promotion and when it looks how far its own log goes.

use super::wal::{DUMMY, Wal};
use coregent_core::lsn::Timeline;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;

/// Keeps a promotion from taking any number below the allotted one.
pub(super) fn reserve(wal: &Wal, allotted: Timeline) -> io::Result<()> {
    fill(wal, 2..allotted.0)
}

/// Makes a server that starts see the newest timeline of its files: a dummy for every number below it that has no history
/// here, and none above it, which would refuse the start («not a child of this server's history»).
///
/// Gaps are usual: a copy of the primary brings the newest history only, and a timeline that was attempted in vain has none.
/// They are filled from the first number on, since a replica that lies further back asks its primary for every one it lacks,
/// and gets no log before it has them all.
pub(super) fn bridge(wal: &Wal) -> io::Result<()> {
    let newest = wal.histories().next_back();
    for (timeline, path) in wal.dummies() {
        if newest.is_none_or(|newest| timeline > newest) {
            fs::remove_file(path)?;
        }
    }
    newest.map_or(Ok(()), |newest| fill(wal, 2..newest.0))
}

fn fill(wal: &Wal, numbers: std::ops::Range<u32>) -> io::Result<()> {
    let mut folder = None;
    for number in numbers {
        let path = wal.history_path(Timeline(number));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => {
                file.write_all(DUMMY.as_bytes())?;
                file.sync_all()?;
                folder = path.parent().map(ToOwned::to_owned);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    folder.map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dummy_that_a_loss_of_power_cut_short_is_no_history() -> io::Result<()> {
        for text in ["", "# coregent: this", "\0\0\0\0"] {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("pg_wal/00000004.history");
            fs::create_dir(folder.path().join("pg_wal"))?;
            fs::write(&path, text)?;
            bridge(&Wal::open(folder.path())?)?;
            assert!(!path.exists(), "{text:?} hides the newest timeline");
        }
        Ok(())
    }

    /// Timelines with a history (true) or a dummy (false), and all that are there once gaps are bridged.
    #[test]
    fn a_server_that_starts_has_every_number_up_to_its_newest_history_and_none_above() -> io::Result<()> {
        type Files = &'static [(u32, bool)];
        let table: [(Files, Files); 6] = [
            (&[], &[]),
            (&[(2, false), (3, false)], &[]),
            (&[(3, true)], &[(2, false), (3, true)]),
            (&[(2, false), (3, true), (4, false)], &[(2, false), (3, true)]),
            (
                &[(2, true), (4, true), (7, true)],
                &[(2, true), (3, false), (4, true), (5, false), (6, false), (7, true)],
            ),
            (&[(2, true), (3, true)], &[(2, true), (3, true)]),
        ];
        for (before, after) in table {
            let folder = tempfile::tempdir()?;
            let pg_wal = folder.path().join("pg_wal");
            fs::create_dir(&pg_wal)?;
            for (number, is_real) in before {
                let text = if *is_real { "1\t0/3000000\tx\n" } else { DUMMY };
                fs::write(pg_wal.join(format!("{number:08X}.history")), text)?;
            }
            bridge(&Wal::open(folder.path())?)?;
            let wal = Wal::open(folder.path())?;
            let dummies = wal.dummies().map(|(timeline, _)| (timeline.0, false));
            let real = wal.histories().map(|timeline| (timeline.0, true));
            let mut found: Vec<_> = dummies.chain(real).collect();
            found.sort_unstable();
            assert_eq!(found, after, "{before:?}");
        }
        Ok(())
    }
}
