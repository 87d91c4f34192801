//! What can go wrong with the store.

use std::path::PathBuf;

/// Why a write did not happen. None of these leaves anything half done, and none can be seen by a reader.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// A create found an object.
    #[error("the object exists")]
    Exists,
    /// An update or delete found none.
    #[error("the object does not exist")]
    Missing,
    /// The object is at another revision.
    #[error("the object is at revision {0}")]
    Conflict(u64),
    /// The disk refused; nothing was changed.
    #[error("the store could not write to its file: {0}")]
    Disk(String),
    /// The disk failed at the end of the write: it is undone by the next one that succeeds, but a crash before that may
    /// bring it out.
    #[error("the store could not make the write durable, and it may be there after a crash: {0}")]
    Unknown(String),
    /// The store is closed, or its file is not what was written to it.
    #[error("the store takes no writes: {0}")]
    Closed(String),
}

/// Why a list or a watch from a revision cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Expired {
    /// The history up to there has been compacted.
    #[error("too old resource version: {asked} ({oldest})")]
    TooOld {
        /// The revision asked for.
        asked: u64,
        /// The oldest that can be had.
        oldest: u64,
    },
    /// The revision was not handed out by this store (failover.md F14: an older copy was put back).
    #[error("too large resource version: {asked}, current: {current}")]
    TooLarge {
        /// The revision asked for.
        asked: u64,
        /// The store's own.
        current: u64,
    },
}

/// Why a store could not be opened. The file is left as it is in every case.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not a store, or is damaged.
    #[error("store file {path} is damaged ({what})")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It is gone, and what lies beside it says that it was there.
    #[error("store file {path} is gone, although this folder had one: an empty one in its place would know nothing")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to another data folder.
    #[error("store file {path} is that of another data folder: its objects are not those of the volumes here")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version of Coregent wrote it.
    #[error(
        "store file {path} has format {found}, this program knows up to {known}: use the newer coregent that wrote it"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// Another process has it open.
    #[error("store file {path} is in use by another process: stop the other `coregent up` of this data folder first")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("failed to {what} store file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// SQLite refused.
    #[error("failed to {what} store file {path}: {source}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: rusqlite::Error,
    },
    /// No random bytes could be had.
    #[error("failed to read random bytes from the operating system: {0}")]
    Random(String),
    /// A stored object contradicts the table of kinds.
    #[error("failed to set up the built-in objects: {0}")]
    Bootstrap(String),
}
