//! Leaving a source, following another, and whom a holder admits (F6).

use super::files::slot_name;
use super::sql::{literal, rows};
use super::wal::Wal;
use super::{EngineError, Postgres};
use crate::clock;
use coregent_core::lsn::Lsn;
use coregent_core::member::Source;
use coregent_core::names::{Epoch, MemberName};
use coregent_core::position::Promotion;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Pause between two looks while something is about to happen.
pub(super) const LOOK: Duration = Duration::from_millis(1);

/// A source that has not answered a connection in this time is tried again.
const CONNECT: Duration = Duration::from_secs(1);
/// Pause between two tries to reach a source.
const RETRY: Duration = Duration::from_millis(10);
/// A receiver that is still there so long after its source was taken away is told to end. The server does that itself, save
/// for one whose source has ended the timeline: that one waits for the next start, and without a source there is none
/// (PostgreSQL's `walreceiverfuncs.c`: `WALRCV_WAITING` does not count as streaming).
const RECEIVER_MILLIS: u64 = 200;
/// Replay that has not moved for so long before all that was received may have come to the end of what can be replayed.
const STILL_MILLIS: u64 = 10;
/// For so long a slot is tried to be dropped that is taken again and again.
const DROP_MILLIS: u64 = 1_000;
/// Replay that stands before the end of the log for so long is a failure that somebody has to see.
const STUCK_MILLIS: u64 = 10_000;

impl Postgres {
    /// Persists the epoch, streams from nobody, replays what is there (postgres-recipes.md 3).
    pub(super) async fn leave(&self, epoch: Epoch) -> Result<(), EngineError> {
        self.volume.borrow_mut().change(|state| state.epoch = state.epoch.max(epoch))?;
        {
            let mut in_force = self.in_force.borrow_mut();
            in_force.source = None;
            in_force.settled = false;
        }
        self.write_role("")?;
        self.reload();
        // What the files held when no process ran: after a restart nothing else tells when replay has reached it.
        let at_least = self.end.borrow().as_ref().map(|end| end.lsn).unwrap_or_default();
        let mut last = None;
        let begun = clock::now();
        let mut moved = (Lsn::default(), begun);
        let mut end = None;
        loop {
            let seen = self.snapshot().await?;
            if let Some(pid) = seen.receiver_pid.filter(|_| clock::now().since(begun) >= RECEIVER_MILLIS) {
                // As the server would; it may be gone by now.
                let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::TERM));
            }
            if !seen.in_recovery {
                return Err(EngineError::Refused(
                    "the server left recovery while it was to leave its source".to_owned(),
                ));
            }
            if seen.paused {
                self.rows("select pg_wal_replay_resume()").await?;
            }
            let position = (seen.received, seen.replayed);
            if seen.receiver || seen.replayed > moved.0 {
                moved = (seen.replayed, clock::now());
            }
            let still = clock::now().since(moved.1);
            if still >= STILL_MILLIS && end.is_none() {
                end = Some(self.end_of_files().await?);
            }
            // What was received ends where the receiver was stopped, perhaps within a record: the rest of that never comes,
            // and nobody was told that it is safe.
            let reached = seen.received <= seen.replayed || end.is_some_and(|end| end <= seen.replayed);
            let done = !seen.receiver && reached && at_least <= seen.replayed;
            if done && last == Some(position) {
                let mut in_force = self.in_force.borrow_mut();
                in_force.settled = true;
                in_force.cut_at = (seen.received > seen.replayed).then_some(seen.received);
                return Ok(());
            }
            last = done.then_some(position);
            if still >= STUCK_MILLIS {
                return Err(stuck(seen.replayed, end.unwrap_or_default().max(at_least)));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether the log ends within a record. A server that waits there reads on where the record would, and on another
    /// timeline it finds something else: across a segment it gives up for good (PostgreSQL's `xlogrecovery.c`,
    /// `WaitForWALToBecomeAvailable`).
    async fn ends_within_record(&self) -> Result<bool, EngineError> {
        let seen = self.snapshot().await?;
        if seen.receiver || seen.received == seen.replayed {
            return Ok(false);
        }
        let pgdata = self.config.pgdata.clone();
        let read = tokio::task::spawn_blocking(move || Wal::open(&pgdata)?.end_within_record()).await;
        let cut = read.map_err(io::Error::other).flatten().map_err(EngineError::io("cannot read the local log"))?;
        Ok(cut.is_some_and(|(_, end)| end == seen.replayed))
    }

    /// Where the log in the files ends, which nobody writes to: the end of its last complete record.
    async fn end_of_files(&self) -> Result<Lsn, EngineError> {
        let pgdata = self.config.pgdata.clone();
        let read = tokio::task::spawn_blocking(move || Wal::open(&pgdata)?.end()).await;
        let end = read.map_err(io::Error::other).flatten().map_err(EngineError::io("cannot read the local log"))?;
        Ok(end.map(|(_, end)| end).unwrap_or_default())
    }

    /// Streams from `source` by reload. The chain is durable before the receiver can pass a fork (F9).
    ///
    /// The source is awaited here and not by the server, which would write several lines about each try in vain, a
    /// hundred times a second.
    pub(super) async fn follow(&self, source: Source, chain: Vec<Promotion>) -> Result<(), EngineError> {
        if self.ends_within_record().await? {
            self.is_cut.set(true);
            return Ok(());
        }
        while !matches!(timeout(CONNECT, TcpStream::connect(&source.address)).await, Ok(Ok(_))) {
            tokio::time::sleep(RETRY).await;
        }
        self.volume.borrow_mut().change(|state| state.chain = chain)?;
        let replication = self.credentials("replication")?;
        {
            let mut in_force = self.in_force.borrow_mut();
            in_force.source = Some(source);
            in_force.settled = false;
        }
        self.write_role(&replication.user)?;
        self.reload();
        Ok(())
    }

    /// Makes exactly the slots of this epoch for these members. A receiver of another epoch loses its slot and with it
    /// its stream. A primary's slots keep the log for who does not stream yet; a standby's, made in case it is promoted,
    /// keep none.
    pub(super) async fn keep_slots(&self, epoch: Epoch, members: &BTreeSet<MemberName>) -> Result<(), EngineError> {
        let client = self.client().await?;
        let wanted: BTreeSet<String> = members.iter().map(|member| slot_name(member, epoch)).collect();
        let list = "select slot_name, wal_status, pg_is_in_recovery() or active or restart_lsn is not null \
                    from pg_replication_slots where slot_type = 'physical' and not temporary";
        let mut present = BTreeSet::new();
        for row in rows(&client, list).await? {
            let slot = row.get(0).unwrap_or_default().to_owned();
            let of_use = row.get(1) != Some("lost") && row.get(2) == Some("t");
            if wanted.contains(&slot) && of_use {
                present.insert(slot);
                continue;
            }
            drop_slot(&client, &slot).await?;
        }
        for slot in wanted.difference(&present) {
            let name = literal(slot);
            rows(&client, &format!("select pg_create_physical_replication_slot({name}, not pg_is_in_recovery())"))
                .await?;
        }
        self.admitted.replace((epoch, members.clone()));
        Ok(())
    }
}

/// Ends whoever uses the slot, and drops it. A receiver whose agent can do nothing, or is gone, comes back within
/// milliseconds: both go to the server at once, and again where it was faster nevertheless.
async fn drop_slot(client: &tokio_postgres::Client, slot: &str) -> Result<(), EngineError> {
    let name = literal(slot);
    let drop = format!(
        "select pg_terminate_backend(active_pid, 1000) from pg_replication_slots where slot_name = {name} and active; \
         select pg_drop_replication_slot({name})"
    );
    let begun = clock::now();
    loop {
        match rows(client, &drop).await {
            Ok(_) => return Ok(()),
            Err(error) if clock::now().since(begun) >= DROP_MILLIS => return Err(error),
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

fn stuck(replayed: Lsn, end: Lsn) -> EngineError {
    EngineError::Refused(format!(
        "replay stands still at {replayed}, before the end of the local log at {end}: its server's log says why"
    ))
}
