//! The probe's configuration: environment variables that the RSM controller sets (rsm.md 3.8).

use coregent_core::rsm::roles::{AccessMode, Role};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// What the probe of one member needs to know.
#[derive(Debug, Clone)]
pub struct ProbeConfig {
    /// Its pod.
    pub pod: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// uid of the pod.
    pub pod_uid: String,
    /// Address of the pod; the engine listens there.
    pub pod_ip: String,
    /// Who is asked.
    pub engine: Engine,
    /// Port of the engine's clients; 0 for the engine's usual one.
    pub port: u16,
    /// Port of the engine's members among themselves; 0 for the engine's usual one.
    pub peer_port: u16,
    /// How a role reaches the API.
    pub mechanism: Mechanism,
    /// How long a question may take.
    pub timeout: Duration,
    /// How long between questions to a program; a server is asked more often.
    pub period: Duration,
    /// Failures in a row that are tolerated.
    pub failure_threshold: u32,
    /// After how long an unchanged role is said again.
    pub say_again: Option<Duration>,
    /// Account for the engine.
    pub account: Option<Account>,
    /// Roles that the set declares.
    pub declared: Vec<Role>,
    /// Folder that the containers of the pod share.
    pub shared: PathBuf,
    /// The ConfigMap in which actions are asked for; none are where it is absent.
    pub requests: Option<String>,
}

/// Who knows the role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// etcd.
    Etcd,
    /// Redis.
    Redis,
    /// PostgreSQL.
    Postgresql,
    /// Programs of the user, so many of them.
    Custom(usize),
}

/// How a role reaches the API (rsm.md 3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// The readiness probe fails once, with the report as its output, of which the kubelet makes an Event.
    Readiness,
    /// The probe makes the Event itself.
    Direct,
}

/// Name and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name, possibly empty.
    pub username: String,
    /// Password.
    pub password: String,
}

/// The declared role of each kind, in the set's own words; empty where it declares none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kinds {
    /// The one that leads.
    pub leader: String,
    /// The first that votes and does not lead.
    pub follower: String,
    /// The first that does not vote.
    pub learner: String,
}

impl Kinds {
    /// From what a set declares.
    #[must_use]
    pub fn of(declared: &[Role]) -> Kinds {
        let first = |wanted: &dyn Fn(&Role) -> bool| {
            declared.iter().find(|role| wanted(role)).map(|role| role.name.clone()).unwrap_or_default()
        };
        Kinds {
            leader: first(&|role| role.is_leader),
            follower: first(&|role| !role.is_leader && role.can_vote),
            learner: first(&|role| !role.is_leader && !role.can_vote),
        }
    }
}

/// A configuration that the probe cannot start with.
#[derive(Debug, thiserror::Error)]
pub enum ProbeConfigError {
    /// A variable is missing.
    #[error("the environment variable {0} is not set: the RSM controller sets it")]
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
    /// The engine is not spoken yet.
    #[error("the probe does not speak {0:?} yet: it speaks etcd, redis and postgresql; use customHandler for others")]
    NotSpoken(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Declared {
    name: String,
    #[serde(default)]
    is_leader: bool,
    #[serde(default = "yes")]
    can_vote: bool,
}

fn yes() -> bool {
    true
}

impl ProbeConfig {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// When a variable is missing or cannot be understood.
    pub fn from_env() -> Result<ProbeConfig, ProbeConfigError> {
        ProbeConfig::from(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Reads variables through `get`.
    ///
    /// # Errors
    /// When a variable is missing or cannot be understood.
    pub fn from(get: impl Fn(&str) -> Option<String>) -> Result<ProbeConfig, ProbeConfigError> {
        let need = |name: &'static str| get(name).ok_or(ProbeConfigError::Missing(name));
        let number = |name: &'static str, default: u32| match get(name) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| ProbeConfigError::Invalid { name, value, expected: "a number" }),
        };
        let port = |name: &'static str| match get(name) {
            None => Ok(0),
            Some(value) => value.parse().map_err(|_| ProbeConfigError::Invalid { name, value, expected: "a port" }),
        };
        let seconds =
            |name, default| number(name, default).map(|seconds| Duration::from_secs(u64::from(seconds.max(1))));
        let say_again = match get("COREGENT_PROBE_REPORT_PERIOD") {
            None => None,
            Some(_) => Some(seconds("COREGENT_PROBE_REPORT_PERIOD", 300)?),
        };
        let password = get("KB_SERVICE_PASSWORD");
        Ok(ProbeConfig {
            pod: need("KB_POD_NAME")?,
            namespace: need("KB_NAMESPACE")?,
            pod_uid: need("KB_POD_UID")?,
            pod_ip: need("KB_POD_IP")?,
            engine: engine(&need("KB_SERVICE_CHARACTER_TYPE")?, number("COREGENT_PROBE_HANDLERS", 0)?)?,
            port: port("KB_SERVICE_PORT")?,
            peer_port: port("COREGENT_PROBE_PEER_PORT")?,
            mechanism: mechanism(get("KB_RSM_ROLE_UPDATE_MECHANISM"))?,
            timeout: seconds("KB_RSM_ROLE_PROBE_TIMEOUT", 1)?,
            period: seconds("COREGENT_PROBE_PERIOD", 2)?,
            failure_threshold: number("COREGENT_PROBE_FAILURE_THRESHOLD", 3)?,
            say_again,
            account: password
                .map(|password| Account { username: get("KB_SERVICE_USER").unwrap_or_default(), password }),
            declared: declared(need("COREGENT_PROBE_ROLES")?)?,
            shared: get("COREGENT_PROBE_FOLDER").map_or_else(|| PathBuf::from("/coregent-probe"), PathBuf::from),
            requests: get("COREGENT_PROBE_REQUESTS"),
        })
    }
}

fn engine(name: &str, handlers: u32) -> Result<Engine, ProbeConfigError> {
    match name {
        "etcd" => Ok(Engine::Etcd),
        "redis" => Ok(Engine::Redis),
        "postgresql" => Ok(Engine::Postgresql),
        "custom" => Ok(Engine::Custom(usize::try_from(handlers).unwrap_or_default())),
        other => Err(ProbeConfigError::NotSpoken(other.to_owned())),
    }
}

fn mechanism(name: Option<String>) -> Result<Mechanism, ProbeConfigError> {
    match name.as_deref() {
        None | Some("ReadinessProbeEventUpdate") => Ok(Mechanism::Readiness),
        Some("DirectAPIServerEventUpdate") => Ok(Mechanism::Direct),
        Some(other) => Err(ProbeConfigError::Invalid {
            name: "KB_RSM_ROLE_UPDATE_MECHANISM",
            value: other.to_owned(),
            expected: "ReadinessProbeEventUpdate or DirectAPIServerEventUpdate",
        }),
    }
}

fn declared(text: String) -> Result<Vec<Role>, ProbeConfigError> {
    let declared: Vec<Declared> = serde_json::from_str(&text).map_err(|_| ProbeConfigError::Invalid {
        name: "COREGENT_PROBE_ROLES",
        value: text,
        expected: "a list of roles in JSON",
    })?;
    let role = |role: Declared| Role {
        name: role.name,
        // Of no interest here: what clients may do is the controller's to label.
        access_mode: AccessMode::None,
        can_vote: role.can_vote,
        is_leader: role.is_leader,
        is_exclusive: false,
    };
    Ok(declared.into_iter().map(role).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn good() -> BTreeMap<&'static str, &'static str> {
        BTreeMap::from([
            ("KB_POD_NAME", "etcd-0"),
            ("KB_NAMESPACE", "default"),
            ("KB_POD_UID", "u"),
            ("KB_POD_IP", "127.64.0.2"),
            ("KB_SERVICE_CHARACTER_TYPE", "etcd"),
            (
                "COREGENT_PROBE_ROLES",
                r#"[{"name":"learner","canVote":false},{"name":"Leader","isLeader":true},{"name":"f"}]"#,
            ),
        ])
    }

    fn read(env: &BTreeMap<&'static str, &'static str>) -> Result<ProbeConfig, ProbeConfigError> {
        ProbeConfig::from(|name| env.get(name).map(|value| (*value).to_owned()))
    }

    #[test]
    fn the_declared_roles_give_the_words_for_each_kind() {
        let config = read(&good()).unwrap();
        let kinds = Kinds { leader: "Leader".into(), follower: "f".into(), learner: "learner".into() };
        assert_eq!(Kinds::of(&config.declared), kinds);
        assert_eq!((config.engine, config.mechanism), (Engine::Etcd, Mechanism::Readiness));
    }

    #[test]
    fn every_wrong_variable_is_named() {
        for (name, value) in [
            ("KB_POD_UID", ""),
            ("KB_SERVICE_CHARACTER_TYPE", "mysql"),
            ("KB_SERVICE_PORT", "70000"),
            ("KB_RSM_ROLE_UPDATE_MECHANISM", "Telepathy"),
            ("KB_RSM_ROLE_PROBE_TIMEOUT", "-1"),
            ("COREGENT_PROBE_ROLES", "{"),
        ] {
            let mut env = good();
            env.remove(name);
            if !value.is_empty() {
                env.insert(name, value);
            }
            let refused = read(&env).unwrap_err().to_string();
            assert!(refused.contains(name) || refused.contains(value), "{refused}");
        }
    }
}
