//! pg_rewind (F12).

use super::server::remove_if_there;
use super::sql::{connect, rows};
use super::{EngineError, Postgres};
use coregent_core::lsn::Timeline;
use coregent_core::member::Source;
use coregent_core::position::Promotion;
use std::process::Command;
use std::time::Duration;

impl Postgres {
    /// Rewinds to the holder. From its first change on the folder counts as unusable until it has succeeded: a second
    /// try on a half-rewound folder was seen to fail for good (postgres-recipes.md 7).
    pub(super) async fn rewind(&self, source: &Source, chain: Vec<Promotion>) -> Result<(), EngineError> {
        if let Some(newest) = chain.last() {
            self.await_checkpoint(source, newest.timeline).await?;
        }
        let conninfo = self.source(source, "pg_rewind")?;
        self.files.write_fixed(&self.config).map_err(EngineError::io("cannot write the server's configuration"))?;
        self.write_role("")?;
        let pgdata = &self.config.pgdata;
        self.volume.borrow_mut().change(|state| {
            state.unusable = Some("a rewind was interrupted or failed".to_owned());
            state.inconsistent = true;
        })?;
        // The recovery that it runs itself refuses standby mode.
        for name in ["standby.signal", "postmaster.pid"] {
            remove_if_there(&pgdata.join(name))
                .map_err(EngineError::io("cannot prepare the data folder for pg_rewind"))?;
        }
        let mut command = Command::new(self.config.bin_dir.join("pg_rewind"));
        command
            .arg("-D")
            .arg(pgdata)
            .arg(format!("--config-file={}", self.files.main().display()))
            .arg(format!("--source-server={conninfo}"));
        self.tool("pg_rewind", &mut command).await?;
        self.volume.borrow_mut().change(|state| {
            state.chain = chain;
            state.attempt = None;
            state.unusable = None;
        })?;
        self.read_end().await
    }

    /// Until the source's control file shows its own timeline, pg_rewind says «no rewind required» and leaves the
    /// divergent rows where they are.
    async fn await_checkpoint(&self, source: &Source, timeline: Timeline) -> Result<(), EngineError> {
        let replication = self.credentials("replication")?;
        let (host, port) = source.address.rsplit_once(':').unwrap_or((&source.address, "5432"));
        let mut config = tokio_postgres::Config::new();
        config
            .host(host.trim_start_matches('[').trim_end_matches(']'))
            .port(port.parse().unwrap_or(5432))
            .user(&replication.user)
            .password(&replication.password)
            .dbname("postgres")
            .application_name("coregent")
            .connect_timeout(Duration::from_secs(2));
        let connection = connect(&config).await?;
        let sql = "select timeline_id from pg_control_checkpoint()";
        for _ in 0..1_000 {
            let shown = rows(&connection.client, sql).await?;
            let shown = shown.first().and_then(|row| row.get(0)).and_then(|text| text.parse().ok()).unwrap_or(0);
            if shown >= timeline.0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(EngineError::Refused(format!(
            "{} has not written a checkpoint on timeline {timeline} in 10 s",
            source.member
        )))
    }
}
