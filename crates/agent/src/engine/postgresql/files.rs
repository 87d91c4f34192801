//! The server's configuration. All of it lies in the agent's folder, outside the data folder, so that neither a
//! rewind nor a copy brings another member's settings (postgres-recipes.md 7).

use crate::config::Config;
use crate::durable;
use coregent_core::member::Names;
use coregent_core::names::{Epoch, MemberName};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The agent's own role: the bootstrap superuser, without a password, so that it exists only on the Unix socket.
pub(super) const AGENT_ROLE: &str = "coregent";

/// Matches no member: a member name is an RFC 1123 label and has no colon.
const PLACEHOLDER: &str = "coregent:nobody";

/// Defaults that the user's file may change.
const DEFAULTS: &str = "\
max_connections = 100
superuser_reserved_connections = 5
max_wal_senders = 20
max_replication_slots = 20
min_wal_size = 80MB
max_wal_size = 1GB
wal_keep_size = 512MB
max_slot_wal_keep_size = 2GB
wal_compression = on
checkpoint_completion_target = 0.9
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
datestyle = 'iso, mdy'
default_text_search_config = 'pg_catalog.english'
log_line_prefix = '%m [%p] %q%u@%d '
password_encryption = 'scram-sha-256'
";

/// What the protocol stands on; written last, so that it wins.
const FIXED: &str = "\
wal_level = replica
hot_standby = on
wal_log_hints = on
fsync = on
full_page_writes = on
logging_collector = off
log_destination = 'stderr'
restore_command = ''
recovery_target_timeline = 'latest'
wal_retrieve_retry_interval = 10ms
wal_receiver_status_interval = 1s
wal_receiver_timeout = 2s
wal_sender_timeout = 5s
restart_after_crash = off
";

/// Where the files are.
#[derive(Debug, Clone)]
pub(super) struct Files {
    folder: PathBuf,
    major: Option<u32>,
}

impl Files {
    /// `major` is the version of the server's programs.
    pub(super) fn new(agent_folder: &Path, major: Option<u32>) -> Files {
        Files { folder: agent_folder.join("postgresql"), major }
    }

    pub(super) fn main(&self) -> PathBuf {
        self.folder.join("postgresql.conf")
    }

    fn role(&self) -> PathBuf {
        self.folder.join("role.conf")
    }

    fn hba(&self) -> PathBuf {
        self.folder.join("pg_hba.conf")
    }

    /// libpq reads passwords from here, so that none stands on a command line or in a setting.
    pub(super) fn passwords(&self) -> PathBuf {
        self.folder.join("pgpass")
    }

    /// Writes what does not change while the server runs.
    pub(super) fn write_fixed(&self, config: &Config) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let user = read_optional(&config.config_dir.join("postgresql.conf"))?;
        // After a crash everything is synced before recovery: in one call where the server can, instead of a file at a
        // time beside the syncs of the new primary.
        let sync = if self.major >= Some(14) { "recovery_init_sync_method = syncfs\n" } else { "" };
        let mut text = format!("{DEFAULTS}{sync}{user}\n{FIXED}");
        let ident = self.folder.join("pg_ident.conf");
        let settings = [
            ("listen_addresses", config.pod_ip.to_string()),
            ("port", config.port.to_string()),
            ("unix_socket_directories", config.run_dir.display().to_string()),
            ("unix_socket_permissions", "0700".to_owned()),
            ("cluster_name", config.member.to_string()),
            ("hba_file", self.hba().display().to_string()),
            ("ident_file", ident.display().to_string()),
        ];
        for (name, value) in settings {
            let _ = writeln!(text, "{name} = {}", quoted(&value)); // writing to a String cannot fail
        }
        let _ = writeln!(text, "include = {}", quoted(&self.role().display().to_string()));
        durable::replace_unsynced(&ident, b"")?;
        durable::replace_unsynced(&self.main(), text.as_bytes())
    }

    /// Writes the passwords of the replication role.
    pub(super) fn write_passwords(&self, user: &str, password: &str) -> io::Result<()> {
        durable::replace_unsynced(&self.passwords(), password_line(user, password).as_bytes())
    }

    /// The same where they have changed.
    pub(super) fn keep_passwords(&self, user: &str, password: &str) -> io::Result<()> {
        match std::fs::read_to_string(self.passwords()) {
            Ok(kept) if kept == password_line(user, password) => Ok(()),
            _ => self.write_passwords(user, password),
        }
    }

    /// Writes what depends on the role: names, and the source with the slot. A reload puts it in force.
    pub(super) fn write_role(&self, names: &Names, source: Option<(String, String)>) -> io::Result<()> {
        let mut text = format!("synchronous_standby_names = {}\n", quoted(&names_setting(names)));
        let (conninfo, slot) = source.unwrap_or_default();
        let _ = writeln!(text, "primary_conninfo = {}\nprimary_slot_name = {}", quoted(&conninfo), quoted(&slot));
        durable::replace_unsynced(&self.role(), text.as_bytes())
    }

    /// Who may connect: members for replication and rewinding always, clients only when `open` (F11).
    pub(super) fn write_hba(&self, config: &Config, replication_user: &str, open: bool) -> io::Result<()> {
        let user = if open { read_optional(&config.config_dir.join("pg_hba.conf"))? } else { String::new() };
        let member = quoted_name(replication_user);
        let mut text = format!(
            "local all {AGENT_ROLE} trust\n\
             host all {AGENT_ROLE} all reject\n\
             host replication {member} all scram-sha-256\n\
             host postgres {member} all scram-sha-256\n\
             host all {member} all reject\n"
        );
        // The socket lies in a folder that only the server's own user may enter.
        text.push_str(&if open {
            format!("{user}\nlocal all all trust\nhost all all all scram-sha-256\n")
        } else {
            "local all all reject\nhost all all all reject\n".to_owned()
        });
        durable::replace_unsynced(&self.hba(), text.as_bytes())
    }
}

/// The value of `synchronous_standby_names`.
pub(super) fn names_setting(names: &Names) -> String {
    let quote = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    match names {
        Names::Nobody => String::new(),
        Names::Placeholder => format!("ANY 1 ({})", quote(PLACEHOLDER)),
        Names::Any { k, members } => {
            let members: Vec<String> = members.iter().map(|member| quote(member.as_str())).collect();
            format!("ANY {k} ({})", members.join(", "))
        }
    }
}

/// The slot of one member in one epoch: a receiver that was told to stream under another epoch finds none (F6).
pub(super) fn slot_name(member: &MemberName, epoch: Epoch) -> String {
    let suffix = format!("_e{epoch}");
    let name: String = member
        .as_str()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' })
        .take(63 - suffix.len().min(63))
        .collect();
    name + &suffix
}

/// `key=value` pairs of libpq.
pub(super) fn conninfo(pairs: &[(&str, &str)]) -> String {
    let escape = |value: &str| value.replace('\\', "\\\\").replace('\'', "\\'");
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}='{}'", escape(value))).collect();
    pairs.join(" ")
}

/// A line of libpq's password file (PostgreSQL manual 34.16).
fn password_line(user: &str, password: &str) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
    format!("*:*:*:{}:{}\n", escape(user), escape(password))
}

/// How a member connects to the holder.
pub(super) fn source_conninfo(address: &str, user: &str, application: &str, passwords: &Path) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "5432"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    conninfo(&[
        ("host", host),
        ("port", port),
        ("user", user),
        ("dbname", "postgres"),
        ("passfile", &passwords.display().to_string()),
        ("application_name", application),
        ("sslmode", "disable"),
        ("gssencmode", "disable"),
        ("connect_timeout", "2"),
        ("keepalives_idle", "1"),
        ("keepalives_interval", "1"),
        ("keepalives_count", "2"),
        ("tcp_user_timeout", "2000"),
    ])
}

/// Drops from `postgresql.auto.conf` what only the agent may set: ALTER SYSTEM would win over its own files. Gives the names
/// of what it dropped.
pub(super) fn clean_auto_conf(pgdata: &Path) -> io::Result<Vec<String>> {
    const OWNED: [&str; 13] = [
        "synchronous_standby_names",
        "primary_conninfo",
        "primary_slot_name",
        "restore_command",
        "listen_addresses",
        "port",
        "hba_file",
        "unix_socket_directories",
        "recovery_target_timeline",
        "wal_level",
        "fsync",
        "full_page_writes",
        "hot_standby",
    ];
    let path = pgdata.join("postgresql.auto.conf");
    let text = read_optional(&path)?;
    // As PostgreSQL reads it: in any case of letters, and with or without an equals sign.
    let name = |line: &str| line.trim().split(['=', ' ', '\t']).next().unwrap_or_default().to_ascii_lowercase();
    let (owned, kept): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| OWNED.contains(&name(line).as_str()));
    if !owned.is_empty() {
        let kept: String = kept.into_iter().map(|line| format!("{line}\n")).collect();
        durable::replace_unsynced(&path, kept.as_bytes())?;
    }
    Ok(owned.into_iter().map(name).collect())
}

fn read_optional(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

fn quoted_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_empty_set_is_the_placeholder_and_names_are_quoted() {
        let any = Names::Any { k: 1, members: BTreeSet::from(["orders-2".into(), "orders-3".into()]) };
        assert_eq!(names_setting(&any), r#"ANY 1 ("orders-2", "orders-3")"#);
        assert_eq!(names_setting(&Names::Placeholder), r#"ANY 1 ("coregent:nobody")"#);
        assert_eq!(names_setting(&Names::Nobody), "");
    }

    #[test]
    fn slots_of_two_epochs_differ_whatever_the_length_of_the_name() {
        let long = MemberName("a".repeat(63));
        assert_eq!(slot_name(&"orders-2".into(), Epoch(5)), "orders_2_e5");
        assert_ne!(slot_name(&long, Epoch(5)), slot_name(&long, Epoch(6)));
        assert!(slot_name(&long, Epoch(u64::MAX)).len() <= 63);
    }

    #[test]
    fn what_a_superuser_set_by_alter_system_cannot_undo_the_fence() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("postgresql.auto.conf");
        fs::write(&path, "# note\nSynchronous_Standby_Names = ''\nwork_mem = '8MB'\nport= 1\nfsync\toff\n")?;
        assert_eq!(clean_auto_conf(folder.path())?, ["synchronous_standby_names", "port", "fsync"]);
        assert_eq!(fs::read_to_string(&path)?, "# note\nwork_mem = '8MB'\n");
        assert_eq!(clean_auto_conf(folder.path())?, [""; 0]);
        Ok(())
    }
}
