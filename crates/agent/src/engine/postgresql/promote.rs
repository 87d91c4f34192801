//! Promotion (F9, F11).

use super::names::Show;
use super::stream::LOOK;
use super::wal::{DUMMY, Wal};
use super::{EngineError, Postgres};
use crate::clock;
use coregent_core::lsn::Timeline;
use coregent_core::member::Names;
use coregent_core::names::MemberName;
use coregent_core::position::Promotion;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;

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
        self.write_dummies(timeline).map_err(EngineError::io("cannot reserve the timelines of others"))?;
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

    /// For every number below the allotted one that has no history here a file that keeps PostgreSQL from choosing it.
    fn write_dummies(&self, timeline: Timeline) -> std::io::Result<()> {
        let wal = Wal::open(&self.config.pgdata)?;
        let mut folder = None;
        for number in 2..timeline.0 {
            let path = wal.history_path(Timeline(number));
            let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            match file {
                Ok(mut file) => {
                    file.write_all(DUMMY.as_bytes())?;
                    file.sync_all()?;
                    folder = path.parent().map(ToOwned::to_owned);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        folder.map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}
