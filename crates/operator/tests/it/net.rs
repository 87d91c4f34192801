//! The databases that the modelled agents run: volumes that outlive pods, engines, links. Writes are numbers.

use coregent_core::lsn::{Lsn, Timeline};
use coregent_core::names::{Epoch, MemberName};
use coregent_core::position::{Position, Promotion};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// What an engine does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Nothing.
    #[default]
    Off,
    /// In recovery.
    Standby,
    /// Open for writes.
    Primary,
}

/// One data folder.
#[derive(Clone, Debug, Default)]
pub struct Data {
    pub system_id: String,
    pub lsn: u64,
    pub chain: Vec<Promotion>,
    /// The writes that it holds, by number.
    pub rows: BTreeSet<u64>,
}

/// One member's volume and what runs on it.
#[derive(Clone, Debug, Default)]
pub struct Volume {
    pub data: Option<Data>,
    /// The durable epoch.
    pub epoch: Epoch,
    pub engine: Engine,
    /// Whom it streams from.
    pub source: Option<MemberName>,
    /// Names in force on a primary.
    pub sync: Option<BTreeSet<MemberName>>,
    /// Times that initdb ran and that a copy was made.
    pub inits: u32,
    pub copies: u32,
    /// Somebody killed the engine under its agent.
    pub killed: bool,
    /// Nothing on it moves.
    pub frozen: bool,
    /// It cannot reach the API.
    pub cut: bool,
    /// It cannot be reached by other members.
    pub unlinked: bool,
    /// Promotion never ends.
    pub stuck: bool,
}

/// Every volume.
#[derive(Clone, Default)]
pub struct Net {
    volumes: Arc<Mutex<BTreeMap<MemberName, Volume>>>,
}

impl Net {
    pub fn all(&self) -> MutexGuard<'_, BTreeMap<MemberName, Volume>> {
        self.volumes.lock().unwrap()
    }

    pub fn with<T>(&self, member: &str, change: impl FnOnce(&mut Volume) -> T) -> T {
        change(self.all().entry(member.into()).or_default())
    }

    pub fn get(&self, member: &str) -> Volume {
        self.all().get(&member.into()).cloned().unwrap_or_default()
    }

    /// The standbys that stream from `primary` now, which thereby have all that it has.
    pub fn stream(&self, primary: &MemberName) -> BTreeSet<MemberName> {
        let mut volumes = self.all();
        let Some(source) = volumes.get(primary).filter(|v| v.engine == Engine::Primary && !v.frozen).cloned() else {
            return BTreeSet::new();
        };
        let mut standbys = BTreeSet::new();
        for (name, volume) in volumes.iter_mut() {
            let linked = !volume.unlinked && !source.unlinked && !volume.frozen;
            if volume.engine == Engine::Standby && volume.source.as_ref() == Some(primary) && linked {
                if let (Some(mine), Some(theirs)) = (&mut volume.data, &source.data) {
                    assert!(theirs.rows.is_superset(&mine.rows), "{name} streams from {primary} with rows of its own");
                    *mine = theirs.clone();
                }
                standbys.insert(name.clone());
            }
        }
        standbys
    }

    /// Writes row `number` on `member`; whether a client is told that it is safe.
    pub fn write(&self, member: &str, number: u64) -> bool {
        let name: MemberName = member.into();
        {
            let mut volumes = self.all();
            let Some(volume) = volumes.get_mut(&name) else { return false };
            if volume.engine != Engine::Primary || volume.frozen {
                return false;
            }
            let Some(data) = &mut volume.data else { return false };
            data.lsn += 10;
            data.rows.insert(number);
        }
        let standbys = self.stream(&name);
        match self.get(member).sync {
            None => true,
            Some(names) => names.iter().any(|name| standbys.contains(name)),
        }
    }

    /// The members that would accept a write at this instant.
    pub fn primaries(&self) -> Vec<MemberName> {
        let volumes = self.all();
        volumes.iter().filter(|(_, v)| v.engine == Engine::Primary && !v.frozen).map(|(name, _)| name.clone()).collect()
    }
}

impl Data {
    pub fn position(&self) -> Position {
        let timeline = self.chain.last().map_or(Timeline(1), |last| last.timeline);
        Position { timeline, lsn: Lsn(self.lsn), chain: self.chain.clone() }
    }
}
