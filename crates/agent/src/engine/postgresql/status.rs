//! What the server says about itself.

use super::files::slot_name;
use super::sql::rows;
use super::wal::Wal;
use super::{EngineError, Postgres, Status};
use crate::clock;
use coregent_core::lsn::{Lsn, Timeline};
use coregent_core::member::{Engine, Standby, StandbySeen, Writable};
use coregent_core::names::{Epoch, MemberName};
use coregent_core::position::Position;
use coregent_core::report;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::SimpleQueryRow;

/// One row whether in recovery or not.
const STATUS: &str = "select r, case when r then pg_last_wal_receive_lsn() else pg_current_wal_flush_lsn() end, \
     case when r then pg_last_wal_replay_lsn() end, \
     (select count(*) from pg_stat_activity where backend_type = 'walreceiver'), \
     (select status from pg_stat_wal_receiver limit 1), \
     (select timeline_id from pg_control_checkpoint()), \
     case when not r then left(pg_walfile_name(pg_current_wal_lsn()), 8) end, \
     case when r then pg_is_wal_replay_paused() else false end, \
     (select pid from pg_stat_wal_receiver limit 1) \
     from pg_is_in_recovery() r";

const STANDBYS: &str = "select application_name, state, sync_state, \
     pg_wal_lsn_diff(pg_current_wal_flush_lsn(), replay_lsn)::bigint \
     from pg_stat_replication where application_name not in ('pg_basebackup', 'coregent')";

const SLOTS: &str = "select slot_name from pg_replication_slots where slot_type = 'physical' and not temporary \
     and wal_status is distinct from 'lost' and (active or restart_lsn is not null)";

/// The answer to [`STATUS`].
pub(super) struct Snapshot {
    pub(super) in_recovery: bool,
    /// In recovery what was received, else what was flushed.
    pub(super) received: Lsn,
    pub(super) replayed: Lsn,
    pub(super) receiver: bool,
    pub(super) streaming: bool,
    pub(super) checkpoint_timeline: Timeline,
    /// Out of recovery only.
    pub(super) timeline: Option<Timeline>,
    pub(super) paused: bool,
    pub(super) receiver_pid: Option<i32>,
}

impl Postgres {
    /// The engine now. A server that does not answer yet is starting.
    pub(super) async fn look(&self) -> Status {
        let only = |engine| Status { engine, standbys: Vec::new(), warnings: BTreeSet::new() };
        if self.server.get().is_none() {
            return only(Engine::Stopped { position: self.end.borrow().clone() });
        }
        let snapshot = self.snapshot().await;
        if snapshot.is_ok() {
            self.refusal.borrow_mut().over();
        }
        match snapshot {
            Err(error) => {
                tracing::trace!(%error, "the server does not answer");
                if self.client.borrow().is_some() {
                    // It let the agent in and leaves its question unanswered.
                    self.refusal.borrow_mut().refused(error.to_string(), clock::now());
                }
                self.give_up_on_unserved();
                let warnings = self.refusal.borrow().warning(clock::now()).into_iter().collect();
                Status { warnings, ..only(Engine::Starting) }
            }
            Ok(snapshot) if snapshot.in_recovery => {
                self.receiver.watch(snapshot.receiver_pid.filter(|_| snapshot.streaming));
                only(self.standby(&snapshot))
            }
            Ok(snapshot) => match self.writable(&snapshot).await {
                Ok(status) => status,
                Err(_) => only(Engine::Starting),
            },
        }
    }

    pub(super) async fn snapshot(&self) -> Result<Snapshot, EngineError> {
        let rows = self.rows(STATUS).await?;
        let row = rows.first().ok_or_else(|| EngineError::Refused("the server's status is empty".to_owned()))?;
        Ok(Snapshot {
            in_recovery: row.get(0) == Some("t"),
            // NULL after a restart (postgres-recipes.md 3): the greater of both is the only safe reading.
            received: lsn(row, 1),
            replayed: lsn(row, 2),
            receiver: row.get(3) != Some("0"),
            streaming: row.get(4) == Some("streaming"),
            checkpoint_timeline: Timeline(row.get(5).and_then(|text| text.parse().ok()).unwrap_or(0)),
            timeline: row.get(6).and_then(|text| u32::from_str_radix(text, 16).ok()).map(Timeline),
            paused: row.get(7) == Some("t"),
            receiver_pid: row.get(8).and_then(|text| text.parse().ok()),
        })
    }

    /// The position in the log of a running standby, with the promotions that its data has passed.
    fn position(&self, lsn: Lsn, timeline: Option<Timeline>) -> Position {
        let volume = self.volume.borrow();
        match Wal::open(&self.config.pgdata) {
            Ok(wal) => {
                let timeline = timeline.unwrap_or_else(|| wal.timeline_at(lsn));
                wal.position(timeline, lsn, &volume.state().chain)
            }
            Err(_) => Position { timeline: timeline.unwrap_or(Timeline(1)), lsn, chain: Vec::new() },
        }
    }

    fn standby(&self, snapshot: &Snapshot) -> Engine {
        // Whatever was acknowledged counts; half a record was not, and a position beyond its beginning would look like a
        // log that has gone on beyond the fork of the next timeline.
        let is_cut = self.in_force.borrow().cut_at == Some(snapshot.received);
        let end = if is_cut { snapshot.replayed } else { snapshot.received.max(snapshot.replayed) };
        let position = self.position(end, None);
        let next = self.volume.borrow().state().epoch.next();
        let mut in_force = self.in_force.borrow_mut();
        in_force.writable_since = None;
        Engine::Standby(Standby {
            source: in_force.source.clone(),
            receiver: snapshot.receiver,
            streaming: snapshot.streaming,
            settled: in_force.settled,
            cut: self.is_cut.get(),
            replayed: snapshot.replayed,
            position,
            open: in_force.open,
            next_slots: self.admitted(next),
        })
    }

    async fn writable(&self, snapshot: &Snapshot) -> Result<Status, EngineError> {
        let client = self.client().await?;
        let set_up = self.in_force.borrow().set_up;
        let (standbys, slots) = futures::try_join!(rows(&client, STANDBYS), rows(&client, SLOTS))?;
        if !set_up {
            let roles = "select count(*) from pg_roles where rolname <> 'coregent' and rolreplication";
            let made = rows(&client, roles).await?.first().and_then(|row| row.get(0)) != Some("0");
            self.in_force.borrow_mut().set_up = made;
        }
        // Not in the middle of a promotion.
        let open = self.in_force.borrow().open;
        let warnings = if open { self.weakened() } else { BTreeSet::new() };
        let position = self.position(snapshot.received, snapshot.timeline);
        let timeline = position.timeline;
        let epoch = self.volume.borrow().state().epoch;
        let now = clock::now();
        let mut in_force = self.in_force.borrow_mut();
        let since = *in_force.writable_since.get_or_insert(now);
        for row in standbys.iter().filter(|row| row.get(1) == Some("streaming")) {
            in_force.seen.insert(row.get(0).unwrap_or_default().into(), now);
        }
        let mut seen: BTreeMap<MemberName, StandbySeen> = in_force
            .seen
            .iter()
            .map(|(member, at)| (member.clone(), StandbySeen { seen: *at, ..StandbySeen::default() }))
            .collect();
        for row in standbys.iter().filter(|row| row.get(1) == Some("streaming")) {
            let sync = matches!(row.get(2), Some("quorum" | "sync"));
            seen.insert(row.get(0).unwrap_or_default().into(), StandbySeen { caught_up: true, sync, seen: now });
        }
        let engine = Engine::Writable(Writable {
            since,
            position,
            checkpoint_timeline: if self.checkpointing.get() { timeline } else { snapshot.checkpoint_timeline },
            checkpointing: self.checkpointing.get(),
            prepared: self.prepared.borrow().clone(),
            set_up: in_force.set_up,
            open: in_force.open,
            names: in_force.names.clone(),
            proved: in_force.proved,
            slots: slots.iter().filter_map(|row| self.slot_owner(row.get(0)?, epoch)).collect(),
            standbys: seen,
        });
        Ok(Status { engine, standbys: standbys.iter().map(reported).collect(), warnings })
    }

    /// The member of a slot of this epoch, as far as it is known by name here.
    fn slot_owner(&self, slot: &str, epoch: Epoch) -> Option<MemberName> {
        self.admitted(epoch).into_iter().find(|member| slot_name(member, epoch) == slot)
    }

    /// The members that a slot of `epoch` was made for.
    pub(super) fn admitted(&self, epoch: Epoch) -> BTreeSet<MemberName> {
        let (made_for, members) = &*self.admitted.borrow();
        if *made_for == epoch { members.clone() } else { BTreeSet::new() }
    }
}

fn lsn(row: &SimpleQueryRow, column: usize) -> Lsn {
    row.get(column).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn reported(row: &SimpleQueryRow) -> report::Standby {
    report::Standby {
        member: row.get(0).unwrap_or_default().into(),
        streaming: row.get(1) == Some("streaming"),
        sync: matches!(row.get(2), Some("quorum" | "sync")),
        lag_bytes: row.get(3).and_then(|text| text.parse().ok()),
    }
}
