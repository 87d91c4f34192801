//! Names in force, marker commits, letting clients in (F7, F8, F11).

use super::files::names_setting;
use super::sql::rows;
use super::stream::LOOK;
use super::{EngineError, Postgres};
use coregent_core::member::Names;
use std::rc::Rc;
use std::time::Duration;

/// Until a new connection shows a reloaded value: the postmaster is busy otherwise.
const ADOPTED: Duration = Duration::from_secs(5);

/// How long a marker commit may wait for the standbys.
const ACKNOWLEDGED: Duration = Duration::from_secs(3);

/// What a new connection must show after a reload.
pub(super) enum Show<'a> {
    /// `synchronous_standby_names`.
    Names(&'a Names),
}

impl Postgres {
    /// Waits until a **new** connection shows the value: the postmaster forks it after it has read the files, so every
    /// older process has the signal pending (postgres-recipes.md 2). Returns that connection.
    pub(super) async fn shown(&self, show: Show<'_>) -> Result<super::sql::Connection, EngineError> {
        let Show::Names(names) = show;
        let expected = names_setting(names);
        let adopted = async {
            loop {
                let connection = self.connect("on").await?;
                let shown = rows(&connection.client, "show synchronous_standby_names").await?;
                if shown.first().and_then(|row| row.get(0)) == Some(expected.as_str()) {
                    return Ok(connection);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(ADOPTED, adopted).await.map_err(|_| {
            EngineError::Refused(
                "the server does not adopt synchronous_standby_names: ALTER SYSTEM or a command line overrides it"
                    .to_owned(),
            )
        })?
    }

    /// Puts recorded names in force, and kicks commits that wait: a waiter is released only by a standby's next reply.
    pub(super) async fn set_names(&self, names: Names) -> Result<(), EngineError> {
        let connection = self.adopt(&names).await?;
        if matches!(names, Names::Any { .. }) {
            let sync = "select count(*) from pg_stat_replication where sync_state = 'quorum'";
            for _ in 0..200 {
                if self.value(sync).await? != "0" {
                    break;
                }
                tokio::time::sleep(LOOK).await;
            }
            self.rows("select pg_logical_emit_message(true, 'coregent', 'kick')").await?;
        }
        drop(connection);
        Ok(())
    }

    async fn adopt(&self, names: &Names) -> Result<super::sql::Connection, EngineError> {
        {
            let mut in_force = self.in_force.borrow_mut();
            in_force.names = names.clone();
            in_force.proved = false;
        }
        let replication = self.credentials("replication")?;
        self.write_role(&replication.user)?;
        self.reload();
        self.shown(Show::Names(names)).await
    }

    /// Stronger names: in force, shown by a new connection, by `sync_state`, then a marker commit on that connection.
    pub(super) async fn strengthen(&self, names: Names) -> Result<(), EngineError> {
        let before = self.in_force.borrow().names.clone();
        let connection = self.adopt(&names).await?;
        if before == Names::Nobody {
            // That commits wait at all is one flag, which the checkpointer sets when it gets to its signal, and until then the
            // marker itself would not wait. One that is in the middle of its syncs takes as long as they do; it has been
            // there before it begins the checkpoint that is asked for now (PostgreSQL's `checkpointer.c`).
            rows(&connection.client, "checkpoint").await?;
        }
        let proof = async {
            self.await_sync_state(&names).await?;
            marker(&connection).await
        };
        let proved = tokio::time::timeout(ACKNOWLEDGED, proof).await;
        match proved {
            Ok(Ok(())) => {
                self.in_force.borrow_mut().proved = true;
                Ok(())
            }
            failed => {
                // What is recorded is weaker and must run again: the member that was relied on is gone.
                drop(connection);
                self.adopt(&before).await?;
                failed.unwrap_or_else(|_| Err(not_acknowledged()))
            }
        }
    }

    /// Members outside of the names must not count any more; this proves names, never k.
    async fn await_sync_state(&self, names: &Names) -> Result<(), EngineError> {
        let Names::Any { members, .. } = names else { return Ok(()) };
        let sql = "select application_name from pg_stat_replication where sync_state in ('quorum', 'sync')";
        loop {
            let counted = self.rows(sql).await?;
            let foreign = counted
                .iter()
                .filter_map(|row| row.get(0))
                .any(|name| !members.iter().any(|member| member.as_str() == name));
            if !foreign {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A commit acknowledged under the names in force (F7).
    pub(super) async fn mark(&self) -> Result<(), EngineError> {
        let names = self.in_force.borrow().names.clone();
        let connection = self.shown(Show::Names(&names)).await?;
        tokio::time::timeout(ACKNOWLEDGED, marker(&connection)).await.map_err(|_| not_acknowledged())??;
        let mut in_force = self.in_force.borrow_mut();
        if in_force.names == names {
            in_force.proved = true;
        }
        Ok(())
    }

    /// Lets clients in.
    pub(super) fn open(&self) -> Result<(), EngineError> {
        let replication = self.credentials("replication")?;
        self.files
            .write_hba(&self.config, &replication.user, true)
            .map_err(EngineError::io("cannot write pg_hba.conf"))?;
        self.reload();
        self.in_force.borrow_mut().open = true;
        Ok(())
    }

    /// Begins a checkpoint, after which the control file names the timeline (F12) and a shutdown has little to write. It
    /// takes as long as there are dirty buffers, so nothing waits for it: `status` shows when it is done.
    pub(super) async fn checkpoint(&self, prepares: Option<String>) -> Result<(), EngineError> {
        let connection = self.connect("local").await?;
        let under_way = Rc::clone(&self.checkpointing);
        let prepared = Rc::clone(&self.prepared);
        under_way.set(true);
        tokio::task::spawn_local(async move {
            if let Err(error) = connection.client.simple_query("checkpoint").await {
                tracing::warn!(%error, "CHECKPOINT failed");
            }
            under_way.set(false);
            // One that failed is no reason not to hand over: it is the shutdown that has to succeed.
            if prepares.is_some() {
                *prepared.borrow_mut() = prepares;
            }
        });
        Ok(())
    }
}

async fn marker(connection: &super::sql::Connection) -> Result<(), EngineError> {
    rows(&connection.client, "select pg_logical_emit_message(true, 'coregent', 'marker')").await?;
    if connection.warned() {
        return Err(EngineError::Refused(
            "a marker commit came back with a warning: it was not acknowledged".to_owned(),
        ));
    }
    Ok(())
}

fn not_acknowledged() -> EngineError {
    EngineError::Refused("no standby has acknowledged a marker commit in 3 s".to_owned())
}
