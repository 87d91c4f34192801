//! Making a data folder: initdb, roles, a base copy.

use super::files::{AGENT_ROLE, source_conninfo};
use super::sql::{identifier, literal, rows};
use super::{EngineError, Postgres, aside, last_words};
use crate::durable;
use coregent_core::member::Source;
use coregent_core::position::Promotion;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

impl Postgres {
    /// initdb into a temporary folder, then a rename.
    pub(super) async fn init_db(&self) -> Result<(), EngineError> {
        let new = self.new_folder();
        remove_folder(&new).map_err(EngineError::io("cannot remove the rest of an earlier initdb"))?;
        let mut command = Command::new(self.config.bin_dir.join("initdb"));
        command
            .arg("-D")
            .arg(&new)
            .args(["--username", AGENT_ROLE, "--data-checksums", "--wal-segsize=4", "--encoding=UTF8"])
            .args(["--locale=C.UTF-8", "--auth-local=trust", "--auth-host=scram-sha-256", "--no-instructions"]);
        self.tool("initdb", &mut command).await?;
        self.put_in_place(&new).map_err(EngineError::io("cannot move the new data folder into place"))?;
        self.volume.borrow_mut().change(|state| {
            state.chain = Vec::new();
            state.attempt = None;
            state.unusable = None;
        })?;
        self.read_end().await
    }

    /// The roles of the Secrets. Nobody can connect yet but the agent, and nothing waits for a standby.
    pub(super) async fn set_up(&self) -> Result<(), EngineError> {
        let superuser = self.credentials("superuser")?;
        let replication = self.credentials("replication")?;
        let role = |name: &str, options: &str, password: &str| {
            format!("create role {} login {options} password {};", identifier(name), literal(password))
        };
        let member = identifier(&replication.user);
        // What pg_rewind needs of a role that is no superuser (PostgreSQL manual, pg_rewind, «Notes»).
        let grants = [
            "pg_ls_dir(text, boolean, boolean)",
            "pg_stat_file(text, boolean)",
            "pg_read_binary_file(text)",
            "pg_read_binary_file(text, bigint, bigint, boolean)",
        ]
        .map(|function| format!("grant execute on function pg_catalog.{function} to {member};"))
        .concat();
        let sql = format!(
            "begin; set local log_min_error_statement = panic; {} {} {grants} commit;",
            role(&superuser.user, "superuser createdb createrole replication bypassrls", &superuser.password),
            role(&replication.user, "replication", &replication.password),
        );
        let connection = self.connect("local").await?;
        rows(&connection.client, &sql).await?;
        self.in_force.borrow_mut().set_up = true;
        Ok(())
    }

    /// A base copy of the holder into a temporary folder; what is here is set aside, then the copy takes its place.
    pub(super) async fn copy(&self, source: &Source, chain: Vec<Promotion>) -> Result<(), EngineError> {
        let new = self.new_folder();
        remove_folder(&new).map_err(EngineError::io("cannot remove the rest of an earlier copy"))?;
        let conninfo = self.source(source, "pg_basebackup")?;
        let mut command = Command::new(self.config.bin_dir.join("pg_basebackup"));
        command
            .arg("-D")
            .arg(&new)
            .args(["--wal-method=stream", "--checkpoint=fast", "--no-password", "-d"])
            .arg(conninfo);
        self.tool("pg_basebackup", &mut command).await?;
        // A crash between here and the end finds a folder that says that it must not be used.
        self.volume.borrow_mut().change(|state| {
            state.unusable = Some("a base copy was being put into place when the agent ended".to_owned());
        })?;
        self.put_in_place(&new).map_err(EngineError::io("cannot move the copy into place"))?;
        self.volume.borrow_mut().change(|state| {
            state.chain = chain;
            state.attempt = None;
            state.unusable = None;
            state.inconsistent = false;
        })?;
        self.blamed.replace(None);
        self.read_end().await
    }

    /// Connection string of the holder for a tool; the password comes from a file.
    pub(super) fn source(&self, source: &Source, application: &str) -> Result<String, EngineError> {
        let replication = self.credentials("replication")?;
        let passwords = self.files.passwords();
        passwords
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| self.files.write_passwords(&replication.user, &replication.password))
            .map_err(EngineError::io("cannot write the password file"))?;
        Ok(source_conninfo(&source.address, &replication.user, application, &passwords))
    }

    /// Runs a program; its own last words are the reason when it fails.
    pub(super) async fn tool(&self, program: &'static str, command: &mut Command) -> Result<(), EngineError> {
        command.env("LC_ALL", "C").env("PGAPPNAME", program);
        let output = self.processes.run(command).await.map_err(EngineError::io(format!("cannot run {program}")))?;
        if output.success {
            return Ok(());
        }
        let lines: Vec<&str> = output.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(2);
        let reason = last_words::cause(&output.stderr);
        let reason = reason.unwrap_or_else(|| lines.get(from..).unwrap_or_default().join("; "));
        Err(EngineError::Program { program, reason })
    }

    /// Renames a complete folder to the data folder. What stood there is kept as `<pgdata>.diverged-<epoch>`: it is
    /// removed only once this member streams again (F12).
    fn put_in_place(&self, new: &Path) -> io::Result<()> {
        let pgdata = &self.config.pgdata;
        if pgdata.exists() {
            if fs::read_dir(pgdata)?.next().is_none() {
                fs::remove_dir(pgdata)?;
            } else {
                let aside = aside::next(pgdata, self.volume.borrow().state().epoch)?;
                fs::rename(pgdata, &aside)?;
            }
        }
        fs::rename(new, pgdata)?;
        durable::sync_parent(pgdata)
    }

    /// Removes what was set aside: this member streams, so the holder has everything that was acknowledged (F12). The
    /// newest is kept for a person to look at.
    pub(super) fn drop_old_set_aside(&self) {
        let Ok(mut aside) = aside::all(&self.config.pgdata) else { return };
        aside.pop();
        for path in aside {
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove a folder that was set aside");
            }
        }
    }
}

pub(super) fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
