//! Starting the server, ending every process of it, reading where its log ends.

use super::dummies;
use super::sql::SILENT;
use super::wal::Wal;
use super::{Blamed, EngineError, Postgres, ServerEnd, last_words};
use crate::clock;
use crate::processes::{self, Words};
use coregent_core::member::{Names, Source};
use coregent_core::position::{Position, Promotion};
use rustix::process::{Signal, WaitStatus, kill_process};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use std::{fs, io};
use tokio::sync::oneshot;

/// How long a fast shutdown may take: with a placeholder in force a session with temporary tables hangs it for ever
/// (F8).
const FAST_STOP: Duration = Duration::from_secs(1);

impl Postgres {
    /// Starts the server. **Without `standby.signal` only for the holder** (F5): that is for the caller to decide.
    pub(super) fn start(
        &self,
        writable: bool,
        follow: Option<(Source, Vec<Promotion>)>,
        names: Names,
    ) -> Result<ServerEnd, EngineError> {
        let pgdata = &self.config.pgdata;
        self.prepare_folders(follow.is_some())
            .map_err(EngineError::io("cannot prepare the data folder for a start"))?;
        let source = match follow {
            Some((source, chain)) => {
                self.volume.borrow_mut().change(|state| state.chain = chain)?;
                Some(source)
            }
            None => None,
        };
        let replication = self.credentials("replication")?;
        self.files.write_fixed(&self.config).map_err(EngineError::io("cannot write the server's configuration"))?;
        {
            let mut in_force = self.in_force.borrow_mut();
            in_force.source = source;
            in_force.names = names;
            in_force.proved = false;
            in_force.open = false;
            in_force.settled = false;
            in_force.cut_at = None;
            in_force.writable_since = None;
            in_force.seen.clear();
        }
        let write = || -> io::Result<()> {
            self.files.write_passwords(&replication.user, &replication.password)?;
            self.files.write_hba(&self.config, &replication.user, false)?;
            let signal = pgdata.join("standby.signal");
            remove_if_there(&pgdata.join("recovery.signal"))?;
            if writable { remove_if_there(&signal) } else { fs::write(&signal, b"") }
        };
        write().map_err(EngineError::io("cannot write the server's configuration"))?;
        self.write_role(&replication.user)?;
        let mut command = Command::new(self.config.bin_dir.join("postgres"));
        command.arg("-D").arg(pgdata).arg("-c").arg(format!("config_file={}", self.files.main().display()));
        let (child, words) =
            self.processes.spawn_heard(&mut command).map_err(EngineError::io("cannot start the program postgres"))?;
        self.server.set(Some(child.pid()));
        self.blamed.replace(None);
        self.refusal.borrow_mut().over();
        Ok(Box::pin(end(child.detach(), words, Rc::clone(&self.blamed))))
    }

    /// fsGroup makes the folder group-writable, which the server refuses; a `postmaster.pid` of a dead server may name
    /// any live process, pids repeat in a PID namespace (traps.md). Both are safe under the volume's lock.
    fn prepare_folders(&self, follows: bool) -> io::Result<()> {
        let pgdata = &self.config.pgdata;
        fs::set_permissions(pgdata, fs::Permissions::from_mode(0o700))?;
        remove_if_there(&pgdata.join("postmaster.pid"))?;
        socket_folder(&self.config.run_dir, rustix::process::geteuid().as_raw())?;
        let socket = format!(".s.PGSQL.{}", self.config.port);
        remove_if_there(&self.config.run_dir.join(format!("{socket}.lock")))?;
        remove_if_there(&self.config.run_dir.join(socket))?;
        super::files::clean_auto_conf(pgdata)?;
        let wal = Wal::open(pgdata)?;
        self.is_cut.set(false);
        // The server would wait for the rest of that record, on the primary's timeline where something else stands. Whom it
        // follows has everything that was acknowledged, and sends the segment anew from its beginning.
        if follows && let Some((timeline, end)) = wal.end_within_record()? {
            tracing::info!(%end, "blanks the beginning of a record whose rest never came");
            wal.blank_behind(timeline, end)?;
        }
        let wal = Wal::open(pgdata)?;
        for shadow in wal.shadows() {
            tracing::info!(segment = %shadow.display(), "removes an empty segment that hides one of an older timeline");
            fs::remove_file(shadow)?;
        }
        dummies::bridge(&wal)
    }

    /// Writes names and source as they are in force now; a start or a reload adopts them.
    pub(super) fn write_role(&self, replication_user: &str) -> Result<(), EngineError> {
        let in_force = self.in_force.borrow();
        let member = &self.config.member;
        let source = in_force.source.as_ref().map(|source| {
            let conninfo = super::files::source_conninfo(
                &source.address,
                replication_user,
                member.as_str(),
                &self.files.passwords(),
            );
            (conninfo, super::files::slot_name(member, source.epoch))
        });
        self.files
            .write_role(&in_force.names, source)
            .map_err(EngineError::io("cannot write the server's configuration"))
    }

    /// Makes the server read its configuration again.
    pub(super) fn reload(&self) {
        if let Some(pid) = self.server.get() {
            let _ = kill_process(pid, Signal::HUP); // its end is reported by the reaping loop
        }
    }

    /// Ends every process of the engine and reads the end of its log (F3, F10).
    pub(super) async fn stop(&self, fast: bool, diverged: bool, reason: &'static str) -> Result<(), EngineError> {
        tracing::info!(reason, fast, "stopping the server");
        if diverged {
            self.volume.borrow_mut().change(|state| state.unusable = Some(reason.to_owned()))?;
        }
        self.client.borrow_mut().take();
        if let Some(pid) = self.server.get()
            && fast
            && kill_process(pid, Signal::INT).is_ok()
        {
            let gone = async {
                while self.running() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            let _ = tokio::time::timeout(FAST_STOP, gone).await; // then it is killed
        }
        processes::sweep(&self.config.pgdata).await;
        self.server.set(None);
        self.in_force.borrow_mut().writable_since = None;
        self.read_end().await
    }

    /// What is done about a server that runs and has not served its own agent for long.
    pub(super) fn give_up_on_unserved(&self) {
        let Some(pid) = self.server.get() else { return };
        let now = clock::now();
        let refusal = self.refusal.borrow();
        let Some(words) = refusal.lasting(now) else { return };
        // Its end is reported by the reaping loop, in both cases.
        if words.ends_with(SILENT) {
            // It serves clients as little as its agent. Nobody else sees that: the Lease is renewed, and connections to a
            // frozen server are made by the kernel. As after a crash its log is read to its end (F10).
            tracing::warn!(words, "the server does not answer its own agent: killed");
            let _ = kill_process(pid, Signal::KILL);
        } else if last_words::is_about_data(words) && self.config.pgdata.join("standby.signal").exists() {
            // Such a standby can do nothing but be copied anew: its folder counts as damaged from now on, as if the server
            // had given up on it at its start. A primary is left alone, since it may serve.
            tracing::warn!(words, "the server refuses its own agent because of its data: stopped");
            self.blamed.replace(Some((words.to_owned(), now)));
            let _ = kill_process(pid, Signal::QUIT);
        }
    }

    /// The server's first process still exists (a zombie is gone as soon as the loop has reaped it).
    fn running(&self) -> bool {
        self.server.get().is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
    }

    /// Reads the end of the local log. Only when every process is gone.
    pub(crate) async fn read_end(&self) -> Result<(), EngineError> {
        let pgdata = self.config.pgdata.clone();
        let chain = self.volume.borrow().state().chain.clone();
        let read = tokio::task::spawn_blocking(move || end_position(&pgdata, &chain)).await;
        let position = read
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(EngineError::io("cannot read the end of the local log"))?;
        *self.end.borrow_mut() = position;
        self.end_read.set(true);
        Ok(())
    }
}

fn end_position(pgdata: &Path, chain: &[Promotion]) -> io::Result<Option<Position>> {
    if !pgdata.join("pg_wal").is_dir() {
        return Ok(None);
    }
    let wal = Wal::open(pgdata)?;
    Ok(wal.end()?.map(|(timeline, lsn)| wal.position(timeline, lsn, chain)))
}

/// Major version of the programs; `None` when they do not say, then the server itself judges.
pub(super) fn program_major(bin_dir: &Path) -> Option<u32> {
    let output = Command::new(bin_dir.join("postgres")).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    version.split('.').next()?.parse().ok()
}

/// Waits for the end of the server's first process, passing on what it says meanwhile; gives how and why it ended.
async fn end(mut ended: oneshot::Receiver<WaitStatus>, mut words: Words, blamed: Blamed) -> String {
    let status = tokio::select! {
        status = &mut ended => status,
        () = words.pass_on() => ended.await,
    };
    // One that was killed did not give up on anything.
    let gave_up = status.as_ref().is_ok_and(|status| status.exit_status().is_some_and(|code| code != 0));
    words.pass_on_rest();
    let last = words.last();
    // Processes that live a moment longer still write.
    tokio::task::spawn_local(async move { words.pass_on().await });
    let how = status.map_or_else(|_| "unknown".to_owned(), how);
    let why = last_words::cause(&last).map_or(how.clone(), |cause| format!("{how}: {cause}"));
    if gave_up && last_words::blames_data(&last) {
        blamed.replace(Some((why.clone(), clock::now())));
    }
    why
}

/// How a process ended.
fn how(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the folder of the Unix socket; where it is ours (`me`), for nobody else. A kubelet's emptyDir belongs to root and
/// is open to the group of the pod: its mode is not ours to change, and the socket itself lets nobody else in
/// (`unix_socket_permissions`).
fn socket_folder(folder: &Path, me: u32) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    if fs::metadata(folder)?.uid() == me {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_a_socket_folder_is_left_alone_where_it_belongs_to_somebody_else() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mode = || fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777;
        let me = rustix::process::geteuid().as_raw();
        socket_folder(folder.path(), me + 1).unwrap();
        assert_eq!(mode(), 0o777);
        socket_folder(folder.path(), me).unwrap();
        assert_eq!(mode(), 0o700);
    }
}
