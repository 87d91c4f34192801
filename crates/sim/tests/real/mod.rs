//! Real PostgreSQL servers, each ordered as the modelled ones are, by the programs that come with it. They reach one another
//! through Unix sockets only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Far beyond what anything here takes on a busy machine: a limit for a hang, not a measurement.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the servers have in common.
const SETTINGS: &str = "listen_addresses = ''
port = 5432
wal_level = replica
wal_log_hints = on
wal_keep_size = 256MB
max_wal_senders = 10
max_replication_slots = 10
max_connections = 30
shared_buffers = 16MB
hot_standby = on
restart_after_crash = off
autovacuum = off
fsync = off
wal_retrieve_retry_interval = 100ms
include_if_exists = 'orders.conf'
";

/// The programs of PostgreSQL; `None` skips what needs them.
pub(crate) fn programs() -> Option<PathBuf> {
    let newest = (13..=20).rev().map(|major| PathBuf::from(format!("/usr/lib/postgresql/{major}/bin")));
    let found = newest.into_iter().find(|dir| dir.join("postgres").is_file());
    if found.is_none() {
        eprintln!("skipped: PostgreSQL is not installed (apt-get install postgresql)");
    }
    found
}

/// Holds back other tests that run real servers, in this and in other test programs.
fn one_at_a_time() -> Result<File> {
    let name = format!("coregent-database-tests-{}.lock", rustix::process::getuid().as_raw());
    let file = File::create(std::env::temp_dir().join(name))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

/// The account that servers run under: PostgreSQL refuses root.
fn account() -> Result<Option<(u32, u32)>> {
    if !rustix::process::getuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.starts_with("postgres:")).ok_or("there is no user postgres")?;
    let mut numbers = line.split(':').skip(2);
    let mut number = || -> Result<u32> { Ok(numbers.next().ok_or("a line of /etc/passwd is short")?.parse()?) };
    Ok(Some((number()?, number()?)))
}

/// The servers.
pub(crate) struct Servers {
    bin: PathBuf,
    account: Option<(u32, u32)>,
    running: BTreeMap<usize, Child>,
    /// Clients that wait for an acknowledgement.
    waiting: Vec<Child>,
    epoch: u32,
    folder: TempDir,
    _turn: File,
}

impl Servers {
    /// Folders for `members` servers.
    pub(crate) fn new(bin: PathBuf, members: usize) -> Result<Servers> {
        let turn = one_at_a_time()?;
        let folder = tempfile::Builder::new().prefix("cg").tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let account = account()?;
        let servers =
            Servers { bin, account, running: BTreeMap::new(), waiting: Vec::new(), epoch: 1, folder, _turn: turn };
        for member in 0..members {
            fs::create_dir_all(servers.home(member))?;
            if let Some((user, group)) = account {
                chown(servers.home(member), Some(user), Some(group))?;
            }
        }
        Ok(servers)
    }

    /// A server's own folder, with its socket.
    fn home(&self, member: usize) -> PathBuf {
        self.folder.path().join(format!("m{member}"))
    }

    fn data(&self, member: usize) -> PathBuf {
        self.home(member).join("data")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.env_clear().env("LC_ALL", "C").env("PATH", &self.bin).current_dir(self.folder.path());
        command.stdin(Stdio::null());
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    fn done(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let output = self.program(name).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(format!("{name} {arguments:?}: {said}").into());
        }
        Ok(String::from_utf8(output.stdout)? + &said)
    }

    fn conninfo(&self, member: usize) -> String {
        format!("host={} port=5432 user=postgres dbname=postgres", self.home(member).display())
    }

    /// What a statement gives, without spaces around it.
    fn sql(&self, member: usize, statement: &str) -> Result<String> {
        let conninfo = self.conninfo(member);
        Ok(self.done("psql", &["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &conninfo, "-c", statement])?.trim().to_owned())
    }

    fn wait(&self, what: &str, condition: impl Fn() -> bool) -> Result<()> {
        let begun = Instant::now();
        while !condition() {
            if begun.elapsed() > PATIENCE {
                return Err(format!("waited in vain for {what}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The slot of `member` under the epoch.
    fn slot(&self, member: usize) -> String {
        format!("m{member}_{}", self.epoch)
    }

    /// Writes a server's settings anew: a copy and a rewind bring its source's.
    fn configure(&self, member: usize, source: Option<usize>, sync: &[usize]) -> Result<()> {
        let home = self.home(member);
        let mut own = format!("unix_socket_directories = '{}'\n", home.display());
        if let Some(source) = source {
            let conninfo = format!("{} application_name=m{member}", self.conninfo(source));
            own.push_str(&format!("primary_conninfo = '{conninfo}'\nprimary_slot_name = '{}'\n", self.slot(member)));
        }
        if !sync.is_empty() {
            let names: Vec<String> = sync.iter().map(|name| format!("m{name}")).collect();
            own.push_str(&format!("synchronous_standby_names = 'ANY 1 ({})'\n", names.join(", ")));
        }
        for (name, text) in [("postgresql.conf", SETTINGS), ("orders.conf", &own), ("postgresql.auto.conf", "")] {
            self.put(&self.data(member).join(name), text)?;
        }
        Ok(())
    }

    fn put(&self, path: &Path, text: &str) -> Result<()> {
        fs::write(path, text)?;
        if let Some((user, group)) = self.account {
            chown(path, Some(user), Some(group))?;
        }
        Ok(())
    }

    fn reload(&self, member: usize) -> Result<()> {
        self.sql(member, "select pg_reload_conf()").map(drop)
    }

    pub(crate) fn make(&mut self, member: usize) -> Result<()> {
        let data = self.data(member).display().to_string();
        self.done("initdb", &["-D", &data, "-U", "postgres", "-A", "trust", "-N", "-k"])?;
        self.start(member, None)?;
        self.wait("a new server to answer", || self.sql(member, "create table if not exists t (row int)").is_ok())?;
        let others: Vec<usize> = (0..3).filter(|other| *other != member).collect();
        self.slots(member, &others)
    }

    /// Starts a server, as a standby of `follow` or writable, and waits until it answers or cannot yet.
    pub(crate) fn start(&mut self, member: usize, follow: Option<usize>) -> Result<()> {
        self.configure(member, follow, &[])?;
        let signal = self.data(member).join("standby.signal");
        match follow {
            Some(_) => self.put(&signal, "")?,
            None if signal.exists() => fs::remove_file(&signal)?,
            None => {}
        }
        self.spawn(member)
    }

    pub(crate) fn start_alone(&mut self, member: usize) -> Result<()> {
        self.configure(member, None, &[])?;
        self.put(&self.data(member).join("standby.signal"), "")?;
        self.spawn(member)
    }

    fn spawn(&mut self, member: usize) -> Result<()> {
        let log = File::create(self.home(member).join("log"))?;
        let mut command = self.program("postgres");
        command.args(["-D", &self.data(member).display().to_string()]);
        command.stdout(log.try_clone()?).stderr(log);
        self.running.insert(member, command.spawn()?);
        Ok(())
    }

    /// Every process of a server is killed, the first of them first (F3).
    pub(crate) fn kill(&mut self, member: usize) -> Result<()> {
        if let Some(mut first) = self.running.remove(&member) {
            first.kill()?;
            first.wait()?;
        }
        let data = fs::canonicalize(self.data(member))?;
        self.wait("the processes of a server to end", || {
            let left = processes_in(&data);
            for pid in &left {
                let _ = rustix::process::kill_process(*pid, rustix::process::Signal::KILL); // it may be gone by now
            }
            left.is_empty()
        })?;
        self.reap();
        Ok(())
    }

    fn reap(&mut self) {
        self.waiting.retain_mut(|client| !matches!(client.try_wait(), Ok(Some(_))));
    }

    pub(crate) fn stop(&mut self, member: usize) -> Result<()> {
        let data = self.data(member).display().to_string();
        self.done("pg_ctl", &["stop", "-D", &data, "-m", "fast", "-w", "-t", "120"])?;
        if let Some(mut first) = self.running.remove(&member) {
            first.wait()?;
        }
        self.reap();
        Ok(())
    }

    /// It streams from nobody and has replayed what it has.
    fn leave(&self, member: usize) -> Result<()> {
        self.configure(member, None, &[])?;
        self.reload(member)?;
        // What is said to be received may be the beginning of a segment: it has replayed everything once it stands still.
        let left = "select pg_last_wal_replay_lsn() where not exists (select from pg_stat_wal_receiver)";
        let before = std::cell::RefCell::new(String::new());
        self.wait("a standby to leave its source", || {
            // The receiver of a standby whose log its source refused waits for a start that never comes, source or not.
            let waiting = self.sql(member, "select pid from pg_stat_wal_receiver where status = 'waiting'");
            let waiting = waiting.ok().and_then(|pid| pid.parse().ok()).and_then(rustix::process::Pid::from_raw);
            if let Some(pid) = waiting {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM); // it may be gone by now
            }
            let at = self.sql(member, left).unwrap_or_default();
            let stands = !at.is_empty() && *before.borrow() == at;
            before.replace(at);
            stands
        })
    }

    pub(crate) fn promote(&mut self, member: usize) -> Result<()> {
        self.leave(member)?;
        self.epoch += 1;
        self.sql(member, "select pg_promote(false)")?;
        self.wait("a promotion", || self.sql(member, "select pg_is_in_recovery()").is_ok_and(|said| said == "f"))?;
        let others: Vec<usize> = (0..3).filter(|other| *other != member).collect();
        self.slots(member, &others)
    }

    pub(crate) fn follow(&mut self, member: usize, source: usize) -> Result<()> {
        self.leave(member)?;
        self.configure(member, Some(source), &[])?;
        self.reload(member)
    }

    pub(crate) fn rewind(&mut self, member: usize, source: usize) -> Result<()> {
        self.sql(source, "checkpoint")?;
        let (data, source) = (self.data(member).display().to_string(), self.conninfo(source));
        // It has to recover first what was killed, which a standby does not do by itself.
        let signal = self.data(member).join("standby.signal");
        if signal.exists() {
            fs::remove_file(&signal)?;
        }
        self.configure(member, None, &[])?;
        self.done("pg_rewind", &["-D", &data, "--source-server", &source, "-N"]).map(drop)
    }

    pub(crate) fn copy(&mut self, member: usize, source: usize) -> Result<()> {
        let data = self.data(member);
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        let (data, source) = (data.display().to_string(), self.conninfo(source));
        self.done("pg_basebackup", &["-D", &data, "-d", &source, "-X", "stream", "-c", "fast", "-N"]).map(drop)
    }

    /// Slots for these alone: whoever streams by another loses it.
    pub(crate) fn slots(&mut self, member: usize, of: &[usize]) -> Result<()> {
        let wanted: BTreeSet<String> = of.iter().map(|other| self.slot(*other)).collect();
        let all = self.sql(member, "select slot_name from pg_replication_slots")?;
        let all: BTreeSet<String> = all.lines().map(ToOwned::to_owned).collect();
        for surplus in all.difference(&wanted) {
            let end = format!(
                "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{surplus}' and active"
            );
            let drop = format!("select pg_drop_replication_slot('{surplus}')");
            self.wait("a slot to be dropped", || self.sql(member, &end).is_ok() && self.sql(member, &drop).is_ok())?;
        }
        for missing in wanted.difference(&all) {
            self.sql(member, &format!("select pg_create_physical_replication_slot('{missing}', true)"))?;
        }
        Ok(())
    }

    pub(crate) fn sync(&mut self, member: usize, of: &[usize]) -> Result<()> {
        self.configure(member, None, of)?;
        self.reload(member)?;
        let wanted: Vec<String> = of.iter().map(|name| format!("m{name}")).collect();
        let wanted = if of.is_empty() { String::new() } else { format!("ANY 1 ({})", wanted.join(", ")) };
        self.wait("names to be in force", || {
            self.sql(member, "show synchronous_standby_names").is_ok_and(|said| said == wanted)
        })
    }

    /// Writes a row. What is expected is waited for: its acknowledgement, or that it waits for one.
    pub(crate) fn write(&mut self, member: usize, row: u32, acknowledged: bool) -> Result<bool> {
        let conninfo = self.conninfo(member);
        let insert = format!("insert into t values ({row})");
        let mut command = self.program("psql");
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &conninfo, "-c", &insert]).stderr(Stdio::null());
        let mut client = command.spawn()?;
        let waits =
            format!("select count(*) from pg_stat_activity where wait_event = 'SyncRep' and query = '{insert}'");
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = client.try_wait()? {
                return Ok(status.success());
            }
            // A wait that ends by itself is none.
            if !acknowledged && self.sql(member, &waits)? == "1" {
                self.waiting.push(client);
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.waiting.push(client);
        Err(format!("row {row} is neither acknowledged nor waited for").into())
    }

    /// In recovery or not, timeline, whether it streams, rows; `None` where it does not answer.
    pub(crate) fn seen(&self, member: usize) -> Option<(bool, Option<u32>, bool, BTreeSet<u32>)> {
        self.running.get(&member)?;
        let all = "select pg_is_in_recovery(), \
                   case when pg_is_in_recovery() then (select received_tli::text from pg_stat_wal_receiver) \
                        else left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) end, \
                   exists (select from pg_stat_wal_receiver where status = 'streaming'), \
                   (select coalesce(string_agg(row::text, ','), '') from t)";
        let said = self.sql(member, all).ok()?;
        let mut fields = said.split('|');
        let recovers = fields.next()? == "t";
        let timeline = fields.next()?;
        let timeline = if recovers { timeline.parse().ok() } else { u32::from_str_radix(timeline, 16).ok() };
        let streams = fields.next()? == "t";
        let rows = fields.next()?.split(',').filter_map(|row| row.parse().ok()).collect();
        Some((recovers, timeline, streams, rows))
    }

    /// Waits until a server has ended by itself, or waits for log that only another has.
    pub(crate) fn rests(&mut self, member: usize) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let ended = self.running.get_mut(&member).is_none_or(|first| matches!(first.try_wait(), Ok(Some(_))));
            if ended || self.last_words(member).contains("waiting for WAL") || self.seen(member).is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Err(format!("member {member} neither answers nor waits for anything").into())
    }

    /// The last that a server said, for a report of a difference.
    pub(crate) fn last_words(&self, member: usize) -> String {
        let log = fs::read_to_string(self.home(member).join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(12)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let members: Vec<usize> = self.running.keys().copied().collect();
        for member in members {
            let _ = self.kill(member); // the folder goes in any case
        }
        for client in &mut self.waiting {
            let _ = client.kill().and_then(|()| client.wait()); // it ends with its server
        }
    }
}

/// Processes that work in a folder.
fn processes_in(folder: &Path) -> Vec<rustix::process::Pid> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder))
        .filter_map(rustix::process::Pid::from_raw)
        .collect()
}
