//! How far the store had come, kept beside its file: by it a file that was put back, or that lost its newest part, is
//! told from the one that ran last (failover.md F14).
//!
//! The file holds one line of fixed length, written in place after each commit and never synced: it outlives this
//! process, and it never claims more than the store has made durable. After a power failure it may claim less.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::OpenError;

/// First words of the line, with the format's number.
const HEADER: &str = "coregent-store 1";
/// Name of the file, in the folder of the store. Not `store.*`, so that whoever copies the store leaves it.
const NAME: &str = "reached";

/// The store was further than the file that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The newest revision in the file.
    pub found: u64,
    /// The newest revision that this data folder had reached; unknown when its record cannot be read.
    pub reached: Option<u64>,
}

/// What the record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// There is none: a new folder, or one of an earlier version.
    None,
    /// It cannot be read.
    Unreadable,
    /// The store of this incarnation had come to this revision.
    At { incarnation: String, revision: u64 },
}

/// Reads the record beside the store at `path`.
pub(super) fn read(path: &Path) -> Result<Record, OpenError> {
    let mut text = String::new();
    let record = place(path);
    match File::open(&record).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => Ok(parse(&text).unwrap_or(Record::Unreadable)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Record::None),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Ok(Record::Unreadable),
        Err(source) => Err(OpenError::Io { path: record, what: "read the record of", source }),
    }
}

fn parse(text: &str) -> Option<Record> {
    let mut words = text.strip_suffix('\n')?.strip_prefix(HEADER)?.split_whitespace();
    let (incarnation, revision) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    words.next().is_none().then_some(Record::At { incarnation, revision })
}

fn place(path: &Path) -> PathBuf {
    path.with_file_name(NAME)
}

fn line(incarnation: &str, revision: u64) -> String {
    format!("{HEADER} {incarnation} {revision:020}\n")
}

/// The record, open for as long as the store is.
pub(super) struct Keeper {
    file: File,
    incarnation: String,
    revision: u64,
}

impl Keeper {
    /// Makes the record of a store that stands at `revision`; an earlier one is replaced whole.
    pub fn start(path: &Path, incarnation: &str, revision: u64) -> Result<Keeper, OpenError> {
        let record = place(path);
        let draft = record.with_extension("new");
        let make = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(line(incarnation, revision).as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&draft, &record)?;
            Ok(file)
        };
        let file = make().map_err(|source| OpenError::Io { path: record.clone(), what: "record", source })?;
        Ok(Keeper { file, incarnation: incarnation.to_owned(), revision })
    }

    /// The store has made `revision` durable.
    pub fn advance(&mut self, revision: u64) {
        if revision <= self.revision {
            return;
        }
        match self.file.write_all_at(line(&self.incarnation, revision).as_bytes(), 0) {
            Ok(()) => self.revision = revision,
            // It then claims less than there is, which only makes it a weaker witness.
            Err(error) => tracing::warn!(%error, "the record beside the store cannot be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_says_what_was_reached_last_and_one_that_cannot_be_read_is_no_record_of_a_new_store() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store.db");
        assert_eq!(read(&store).unwrap(), Record::None);
        let mut keeper = Keeper::start(&store, "abc", 7).unwrap();
        keeper.advance(12);
        keeper.advance(9);
        assert_eq!(read(&store).unwrap(), Record::At { incarnation: "abc".into(), revision: 12 });
        for bad in ["", "coregent-store 2 abc 12\n", "coregent-store 1 abc 12", "coregent-store 1 abc x\n"] {
            std::fs::write(dir.path().join(NAME), bad).unwrap();
            assert_eq!(read(&store).unwrap(), Record::Unreadable, "{bad:?}");
        }
    }
}
