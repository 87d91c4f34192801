//! The store on a disk that refuses.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use proptest::prelude::*;
use rusqlite::{Connection, Error, ffi};
use serde_json::json;

use super::log::{Disk, Log};
use super::object::{Change, Durability, Event, Expect, Key, Write};
use super::refusal::Told;
use super::state::State;
use super::{WriteError, file, sqlite::Writer};

/// What the disk does with a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Works,
    /// There is no room for it.
    Full,
    /// It fails before the last frame is written.
    Write,
    /// It fails, and nothing of it is there.
    Sync,
    /// It fails although everything of it is there.
    Lost,
    /// It fails, and takes something that was there with it.
    Destroys,
}

fn meet(mood: Mood, file: &Connection) -> rusqlite::Result<()> {
    let code = match mood {
        Mood::Works => return file.execute_batch("COMMIT"),
        Mood::Full => ffi::SQLITE_FULL,
        Mood::Write => ffi::SQLITE_IOERR_WRITE,
        Mood::Sync => ffi::SQLITE_IOERR_FSYNC,
        Mood::Lost => {
            file.execute_batch("COMMIT")?;
            ffi::SQLITE_IOERR_FSYNC
        }
        Mood::Destroys => {
            file.execute_batch("DELETE FROM log WHERE revision = 1; COMMIT")?;
            ffi::SQLITE_IOERR_FSYNC
        }
    };
    Err(Error::SqliteFailure(ffi::Error::new(code), None))
}

struct Moods {
    now: Mood,
    /// What follows the next commit.
    then: Option<Mood>,
}

/// A store whose disk has moods.
struct Moody {
    folder: tempfile::TempDir,
    writer: Writer,
    state: Arc<RwLock<State>>,
    told: Told,
    moods: Arc<Mutex<Moods>>,
}

impl Moody {
    fn open(history: usize) -> Moody {
        Moody::open_in(tempfile::tempdir().unwrap(), history, |_| {})
    }

    fn open_in(folder: tempfile::TempDir, history: usize, prepare: impl FnOnce(&Connection)) -> Moody {
        let path = folder.path().join("store.db");
        let opened = file::open(&path, history).unwrap();
        prepare(&opened.file);
        let (state, told) = (Arc::new(RwLock::new(opened.state)), Told::default());
        let moods = Arc::new(Mutex::new(Moods { now: Mood::Works, then: None }));
        let felt = moods.clone();
        let commit = Box::new(move |file: &Connection| {
            let mut moods = felt.lock().unwrap();
            let now = moods.now;
            moods.now = moods.then.take().unwrap_or(now);
            meet(now, file)
        });
        let disk = Disk { commit, pause: Duration::from_millis(1) };
        let log = Log::new(&path, opened.file, disk, opened.keeper, state.clone(), told.clone()).unwrap();
        let writer = Writer::start(&path, log, state.clone()).unwrap();
        Moody { folder, writer, state, told, moods }
    }

    fn feel(&self, now: Mood) {
        *self.moods.lock().unwrap() = Moods { now, then: None };
    }

    fn feel_once(&self, now: Mood) {
        *self.moods.lock().unwrap() = Moods { now, then: Some(Mood::Works) };
    }

    async fn put(&self, name: &str, text: &str, durability: Durability) -> Result<Arc<Event>, WriteError> {
        let key = key(name);
        let expect = self.revision_of(name).map_or(Expect::Absent, Expect::Revision);
        let change = Change::Put(json!({"metadata": {"name": name}, "text": text}));
        self.writer.write(Write { key, expect, change, durability }).await
    }

    async fn write(&self, name: &str, text: &str) -> Result<Arc<Event>, WriteError> {
        self.put(name, text, Durability::Durable).await
    }

    async fn renew(&self, text: &str) -> Result<Arc<Event>, WriteError> {
        self.put("lease", text, Durability::Relaxed).await
    }

    /// Writes until it is taken.
    async fn insist(&self, name: &str, text: &str) -> Arc<Event> {
        loop {
            match self.write(name, text).await {
                Ok(event) => return event,
                Err(error) => assert!(matches!(error, WriteError::Disk(_) | WriteError::Unknown(_)), "{error}"),
            }
        }
    }

    fn revision_of(&self, name: &str) -> Option<u64> {
        let key = key(name);
        self.state.read().unwrap().get(&key.resource, &key.namespace, &key.name).map(|object| object.revision)
    }

    fn texts(&self) -> Vec<(String, String)> {
        texts(&self.state.read().unwrap())
    }

    /// What a start after a crash at this moment finds.
    fn after_a_crash(&self) -> State {
        let folder = tempfile::tempdir().unwrap();
        for name in ["store.db", "store.db-wal", "reached"] {
            let _ = std::fs::copy(self.folder.path().join(name), folder.path().join(name)); // there may be no WAL
        }
        file::open(&folder.path().join("store.db"), 100).unwrap().state
    }

    async fn close(self) -> tempfile::TempDir {
        self.writer.close().await;
        self.folder
    }
}

fn key(name: &str) -> Key {
    Key { resource: "/configmaps".into(), namespace: "default".into(), name: name.into() }
}

/// Name and text of every object.
fn texts(state: &State) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let objects = state.list("/configmaps", None);
    objects.iter().map(|object| (text(&object.value()["metadata"]["name"]), text(&object.value()["text"]))).collect()
}

fn store(folder: &Path) -> PathBuf {
    folder.join("store.db")
}

#[tokio::test]
async fn a_write_without_room_is_refused_alone_and_renewals_and_smaller_ones_go_on() {
    let limit = |file: &Connection| {
        let pages: u32 = file.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        // SQLite refuses with the same word as on a full disk.
        file.pragma_update_and_check(None, "max_page_count", pages + 60, |_| Ok(())).unwrap();
    };
    let store = Moody::open_in(tempfile::tempdir().unwrap(), 1_000, limit);
    store.write("lease", "").await.unwrap();
    let large = "x".repeat(1_000_000);
    for index in 0..3 {
        let (refused, renewed) = tokio::join!(store.write("large", &large), store.renew("renewed"));
        assert!(matches!(&refused, Err(WriteError::Disk(why)) if why.contains("no space left")), "{refused:?}");
        renewed.unwrap();
        store.write("small", &index.to_string()).await.unwrap();
    }
    assert_eq!(store.told.get(), None, "it takes writes");
    // More of them than are kept back at most.
    for index in 0..600 {
        store.renew(&index.to_string()).await.unwrap();
    }
    let newest = store.revision_of("lease").unwrap();
    let store = Moody::open_in(store.close().await, 1_000, |_| {});
    assert_eq!(store.texts(), [("lease".into(), "599".into()), ("small".into(), "2".into())]);
    assert!(store.write("large", &large).await.unwrap().revision() > newest);
    store.close().await;
}

#[tokio::test]
async fn while_the_disk_refuses_nothing_is_acknowledged_and_renewals_go_on_and_it_opens_by_itself() {
    for mood in [Mood::Full, Mood::Write] {
        let store = Moody::open(1_000);
        store.write("lease", "").await.unwrap();
        store.feel(mood);
        assert!(matches!(store.write("a", "1").await, Err(WriteError::Disk(_))));
        let why = store.told.get().expect("it says so");
        assert!(why.contains("store.db"), "{why}");
        for index in 0..600 {
            store.renew(&index.to_string()).await.unwrap();
            assert!(index % 100 > 0 || store.write("a", "2").await.is_err());
        }
        assert_eq!(store.texts(), [("lease".into(), "599".into())]);
        assert_eq!(texts(&store.after_a_crash()), [("lease".into(), String::new())], "nothing that was refused");
        store.feel(Mood::Works);
        // Nobody writes, and yet it comes back, with the renewals.
        while store.told.get().is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(texts(&store.after_a_crash()), [("lease".into(), "599".into())]);
        store.write("a", "3").await.unwrap();
        let folder = store.close().await;
        assert_eq!(texts(&file::open(&self::store(folder.path()), 9).unwrap().state).len(), 2);
    }
}

#[tokio::test]
async fn a_commit_of_unknown_outcome_is_undone_before_anything_else_is_acknowledged() {
    for mood in [Mood::Sync, Mood::Lost] {
        let store = Moody::open(1_000);
        store.write("lease", "").await.unwrap();
        store.renew("before").await.unwrap();
        store.feel(mood);
        let refused = store.write("a", "refused").await;
        assert!(matches!(refused, Err(WriteError::Unknown(_))), "{refused:?}");
        assert!(store.renew("refused").await.is_err(), "it would build on what a crash may take back");
        assert_eq!(store.texts(), [("lease".into(), "before".into())], "nobody sees it");
        store.feel(Mood::Works);
        let newest = store.insist("b", "1").await.revision();
        assert_eq!(store.told.get(), None);
        let expected = [("b".to_owned(), "1".to_owned()), ("lease".to_owned(), "before".to_owned())];
        assert_eq!(texts(&store.after_a_crash()), expected, "{mood:?}");
        assert!(store.renew("after").await.unwrap().revision() > newest);
        let folder = store.close().await;
        let there = texts(&file::open(&self::store(folder.path()), 9).unwrap().state);
        assert_eq!(there, [("b".into(), "1".into()), ("lease".into(), "after".into())], "{mood:?}");
    }
}

#[tokio::test]
async fn a_failure_that_is_over_at_once_refuses_one_write_for_good_and_leaves_the_store_open() {
    for mood in [Mood::Full, Mood::Write, Mood::Sync, Mood::Lost] {
        let store = Moody::open(1_000);
        store.write("a", "1").await.unwrap();
        store.feel_once(mood);
        // Its outcome is known: the next commit has undone it.
        assert!(matches!(store.write("a", "2").await, Err(WriteError::Disk(_))), "{mood:?}");
        assert_eq!(store.told.get(), None);
        assert_eq!(texts(&store.after_a_crash()), [("a".into(), "1".into())], "{mood:?}");
        store.write("a", "3").await.unwrap();
        store.close().await;
    }
}

#[tokio::test]
async fn a_file_that_lost_something_acknowledged_is_not_written_any_more_and_memory_is_read_on() {
    let store = Moody::open(1_000);
    store.write("a", "1").await.unwrap();
    store.write("b", "1").await.unwrap();
    store.feel(Mood::Destroys);
    assert!(store.write("c", "1").await.is_err());
    store.feel(Mood::Works);
    for _ in 0..3 {
        assert!(matches!(store.write("d", "1").await, Err(WriteError::Closed(_))));
    }
    assert!(store.told.get().unwrap().contains("does not hold what was acknowledged"));
    assert_eq!(store.texts(), [("a".into(), "1".into()), ("b".into(), "1".into())]);
    store.close().await;
}

/// What a step of the random test does.
#[derive(Clone, Debug)]
enum Step {
    Feel(Mood, bool),
    Write(u8),
    Renew,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let mood = prop_oneof![
        4 => Just(Mood::Works),
        1 => Just(Mood::Full),
        1 => Just(Mood::Write),
        1 => Just(Mood::Sync),
        1 => Just(Mood::Lost),
    ];
    prop_oneof![
        2 => (mood, any::<bool>()).prop_map(|(mood, once)| Step::Feel(mood, once)),
        6 => (0..4u8).prop_map(Step::Write),
        3 => Just(Step::Renew),
        1 => Just(Step::Crash),
    ]
}

/// What the texts of one object may be after a crash.
#[derive(Default)]
struct Allowed {
    /// One of these, the newest durable one first.
    texts: Vec<String>,
    /// Or none at all.
    absent: bool,
}

/// Takes the steps; says what is wrong.
async fn take(steps: Vec<Step>) {
    // So few that compaction has something to do.
    let store = Moody::open(3);
    let names = ["o0", "o1", "o2", "o3", "lease"];
    let mut allowed: Vec<Allowed> = names.iter().map(|_| Allowed { absent: true, ..Allowed::default() }).collect();
    for (index, step) in steps.into_iter().enumerate() {
        let text = index.to_string();
        let (place, durability) = match step {
            Step::Feel(mood, true) => {
                store.feel_once(mood);
                continue;
            }
            Step::Feel(mood, false) => {
                store.feel(mood);
                continue;
            }
            Step::Write(name) => (usize::from(name), Durability::Durable),
            Step::Renew => (4, Durability::Relaxed),
            Step::Crash => {
                let there = texts(&store.after_a_crash());
                for (name, allowed) in names.iter().zip(&allowed) {
                    let found = there.iter().find(|(found, _)| found == name).map(|(_, text)| text);
                    let well = found.map_or(allowed.absent, |text| allowed.texts.contains(text));
                    assert!(well, "{name} is {found:?} after a crash, and not one of {:?}", allowed.texts);
                }
                continue;
            }
        };
        let before = store.texts();
        match (store.put(names[place], &text, durability).await, durability) {
            (Ok(_), Durability::Durable) => allowed[place] = Allowed { texts: vec![text], absent: false },
            (Ok(_), Durability::Relaxed) | (Err(WriteError::Unknown(_)), _) => allowed[place].texts.push(text),
            (Err(WriteError::Disk(_)), _) => assert_eq!(store.texts(), before),
            (Err(error), _) => panic!("{error}"),
        }
    }
    store.feel(Mood::Works);
    store.insist("o0", "last").await;
    let expected = store.texts();
    let folder = store.close().await;
    assert_eq!(texts(&file::open(&self::store(folder.path()), 3).unwrap().state), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn whatever_the_disk_does_the_file_ends_as_memory_is_and_a_crash_loses_nothing_acknowledged(
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(take(steps));
    }
}
