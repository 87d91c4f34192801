//! The agent's configuration: environment variables that the pod template sets.

use coregent_core::member::{Mode, Settings, Timing, TimingError, WhenTooFew};
use coregent_core::names::MemberName;
use std::net::IpAddr;
use std::path::PathBuf;

/// What the agent of one PostgreSQL member needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// The DatabaseCluster; its primary Lease is `<cluster>-primary`.
    pub cluster: String,
    /// This member; its own Lease is `<member>-member`.
    pub member: MemberName,
    /// Namespace of both.
    pub namespace: String,
    /// `metadata.uid` of the pod.
    pub pod_uid: String,
    /// The one address that the server and the health endpoint listen on.
    pub pod_ip: IpAddr,
    /// Port of the server.
    pub port: u16,
    /// Port of the health endpoint.
    pub agent_port: u16,
    /// The data folder. The agent's own files lie beside it, in `coregent/`.
    pub pgdata: PathBuf,
    /// Folder of the Unix socket, outside the data folder: one inside breaks a rewind half way
    /// (postgres-recipes.md 7).
    pub run_dir: PathBuf,
    /// `postgresql.conf` and `pg_hba.conf` of the user.
    pub config_dir: PathBuf,
    /// `superuser/` and `replication/` with `username` and `password` each.
    pub credentials_dir: PathBuf,
    /// Name of the create-only bootstrap grant (failover.md F14).
    pub bootstrap_lease: Option<String>,
    /// Folder of the server's programs; found through PATH when absent.
    pub bin_dir: PathBuf,
    /// What the decisions need.
    pub settings: Settings,
}

/// A configuration that the agent cannot start with.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A variable is missing.
    #[error("the environment variable {0} is not set: the pod template of the operator sets it")]
    Missing(&'static str),
    /// A variable has a value that is not understood.
    #[error("the environment variable {name} has the value {value:?}: expected {expected}")]
    Invalid {
        /// Which.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// The server's programs are not there.
    #[error(
        "PostgreSQL's programs are not found: no `postgres` in PATH; use an image that has them, or set COREGENT_BIN_DIR"
    )]
    NoPrograms,
    /// The lengths of time do not fit together.
    #[error(transparent)]
    Timing(#[from] TimingError),
}

impl Config {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// When a variable is missing or cannot be understood.
    pub fn from_env() -> Result<Config, ConfigError> {
        Config::from(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Reads variables through `get`.
    ///
    /// # Errors
    /// When a variable is missing or cannot be understood.
    pub fn from(get: impl Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let need = |name: &'static str| get(name).ok_or(ConfigError::Missing(name));
        let path = |name: &str, default: &str| PathBuf::from(get(name).unwrap_or_else(|| default.to_owned()));
        let invalid = |name, value, expected| ConfigError::Invalid { name, value, expected };
        let port = |name: &'static str, default: u16| match get(name) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| invalid(name, value, "a port number")),
        };
        let pod_ip = need("POD_IP")?;
        let mode = match get("COREGENT_REPLICATION_MODE").as_deref() {
            None | Some("Quorum") => Mode::Quorum,
            Some("Async") => Mode::Async,
            Some(other) => {
                return Err(invalid("COREGENT_REPLICATION_MODE", other.to_owned(), "Quorum or Async"));
            }
        };
        let when_too_few = match get("COREGENT_WHEN_TOO_FEW").as_deref() {
            None | Some("Block") => WhenTooFew::Block,
            Some("Degrade") => WhenTooFew::Degrade,
            Some(other) => return Err(invalid("COREGENT_WHEN_TOO_FEW", other.to_owned(), "Degrade or Block")),
        };
        let bin_dir = match get("COREGENT_BIN_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => programs(&get("PATH").unwrap_or_default()).ok_or(ConfigError::NoPrograms)?,
        };
        Ok(Config {
            cluster: need("COREGENT_CLUSTER")?,
            member: MemberName(need("COREGENT_MEMBER")?),
            namespace: need("COREGENT_NAMESPACE")?,
            pod_uid: need("POD_UID")?,
            pod_ip: pod_ip.parse().map_err(|_| invalid("POD_IP", pod_ip, "an IP address"))?,
            port: port("COREGENT_PORT", 5432)?,
            agent_port: port("COREGENT_AGENT_PORT", 8008)?,
            pgdata: PathBuf::from(need("PGDATA")?),
            run_dir: path("COREGENT_RUN_DIR", "/run/coregent"),
            config_dir: path("COREGENT_CONFIG_DIR", "/etc/coregent/config"),
            credentials_dir: path("COREGENT_CREDENTIALS_DIR", "/etc/coregent/credentials"),
            bootstrap_lease: get("COREGENT_BOOTSTRAP_LEASE"),
            bin_dir,
            settings: Settings { mode, when_too_few, timing: Timing::default().check()? },
        })
    }

    /// Content of a file of the mounted Secrets: `role` is `superuser` or `replication`, `key` a key of the Secret.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn credential(&self, role: &str, key: &str) -> std::io::Result<String> {
        let text = std::fs::read_to_string(self.credentials_dir.join(role).join(key))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// `host:port` of the engine here.
    pub fn address(&self) -> String {
        std::net::SocketAddr::new(self.pod_ip, self.port).to_string()
    }
}

fn programs(path: &str) -> Option<PathBuf> {
    std::env::split_paths(path).find(|dir| dir.join("postgres").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn good() -> BTreeMap<&'static str, &'static str> {
        BTreeMap::from([
            ("COREGENT_CLUSTER", "orders"),
            ("COREGENT_MEMBER", "orders-1"),
            ("COREGENT_NAMESPACE", "default"),
            ("POD_UID", "u1"),
            ("POD_IP", "127.64.0.2"),
            ("PGDATA", "/var/lib/postgresql/data/pgdata"),
            ("COREGENT_BIN_DIR", "/usr/lib/postgresql/15/bin"),
        ])
    }

    fn read(vars: &BTreeMap<&'static str, &'static str>) -> Result<Config, ConfigError> {
        Config::from(|name| vars.get(name).map(|value| (*value).to_owned()))
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        assert!(read(&good()).is_ok_and(|config| config.address() == "127.64.0.2:5432"));
        let table: [(&str, Option<&str>, &str); 5] = [
            ("COREGENT_CLUSTER", None, "COREGENT_CLUSTER is not set"),
            ("POD_IP", Some("localhost"), "POD_IP has the value \"localhost\": expected an IP address"),
            ("COREGENT_PORT", Some("x"), "COREGENT_PORT has the value \"x\": expected a port number"),
            ("COREGENT_REPLICATION_MODE", Some("quorum"), "expected Quorum or Async"),
            ("COREGENT_WHEN_TOO_FEW", Some("stop"), "expected Degrade or Block"),
        ];
        for (name, value, expected) in table {
            let mut vars = good();
            match value {
                Some(value) => vars.insert(name, value),
                None => vars.remove(name),
            };
            let error = read(&vars).map(|_| String::new()).unwrap_or_else(|error| error.to_string());
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
