//! Promotion (F9, F11).

use super::dummies;
use super::names::Show;
use super::stream::LOOK;
use super::wal::Wal;
use super::{EngineError, Postgres};
use crate::clock;
use coregent_core::member::Names;
use coregent_core::names::MemberName;
use coregent_core::position::Promotion;
use std::collections::BTreeSet;

/// Time that must be left to the deadline: nothing but SIGKILL ends a promotion once asked for.
const ENOUGH_MILLIS: u64 = 1_000;

impl Postgres {
    /// Turns the standby into the primary of the allotted timeline; returns when recovery has ended.
    pub(super) async fn promote(
        &self,
        attempt: Promotion,
        chain: Vec<Promotion>,
        names: Names,
        slots: BTreeSet<MemberName>,
    ) -> Result<(), EngineError> {
        let timeline = attempt.timeline;
        let replication = self.credentials("replication")?;
        {
            let mut in_force = self.in_force.borrow_mut();
            in_force.names = names.clone();
            in_force.proved = false;
            in_force.open = false;
            in_force.seen.clear();
        }
        self.files
            .write_hba(&self.config, &replication.user, false)
            .map_err(EngineError::io("cannot write pg_hba.conf"))?;
        self.write_role(&replication.user)?;
        self.reload();
        self.volume.borrow_mut().change(|state| {
            state.attempt = Some(attempt.clone());
            state.attempt_recorded = false;
            state.chain = chain;
        })?;
        let prepared = async {
            self.keep_slots(attempt.epoch, &slots).await?;
            self.end_sessions().await
        };
        futures::try_join!(prepared, self.shown(Show::Names(&names)))?;
        Wal::open(&self.config.pgdata)
            .and_then(|wal| dummies::reserve(&wal, timeline))
            .map_err(EngineError::io("cannot reserve the timelines of others"))?;
        let left = self.deadline.get().map_or(0, |deadline| deadline.since(clock::now()));
        if left <= ENOUGH_MILLIS {
            return Err(EngineError::Refused(format!("only {left} ms to the deadline: a promotion cannot be ended")));
        }
        self.rows("select pg_promote(false)").await?;
        while self.value("select pg_is_in_recovery()").await? == "t" {
            tokio::time::sleep(LOOK).await;
        }
        let made = self.value("select left(pg_walfile_name(pg_current_wal_lsn()), 8)").await?;
        if u32::from_str_radix(&made, 16) != Ok(timeline.0) {
            return Err(EngineError::Refused(format!("the promotion made timeline {made}, {timeline} was allotted")));
        }
        Ok(())
    }

    /// Read sessions of a standby live through a promotion and turn writable, so they end before it. «Ended» means
    /// that the process is gone.
    async fn end_sessions(&self) -> Result<(), EngineError> {
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where backend_type = 'client backend' and usename is distinct from 'coregent'";
        while self.value(end).await? != "0" {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}
