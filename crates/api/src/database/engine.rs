//! The engine block: which database program, and which version of it.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Major versions of PostgreSQL that this build drives. The schema refuses others when they are written; a cluster that a
/// newer Coregent made is read all the same and has a condition that says so.
pub const SUPPORTED_POSTGRESQL: std::ops::RangeInclusive<u32> = 13..=18;

/// Exactly one engine.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("(has(self.postgresql) ? 1 : 0) + (has(self.mysql) ? 1 : 0) + (has(self.mariadb) ? 1 : 0) == 1")
        .message("set exactly one engine block: postgresql, mysql or mariadb"),
    validation = Rule::new("!has(self.mysql)")
        .message("mysql is not yet served by this version: use engine.postgresql"),
    validation = Rule::new("!has(self.mariadb)")
        .message("mariadb is not yet served by this version: use engine.postgresql"),
    validation = Rule::new("has(self.postgresql) == has(oldSelf.postgresql) && has(self.mysql) == has(oldSelf.mysql) && has(self.mariadb) == has(oldSelf.mariadb)")
        .message("the engine of a cluster cannot be changed: create another cluster and move the data")
)]
#[serde(rename_all = "camelCase")]
pub struct Engine {
    /// PostgreSQL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgresql: Option<Postgresql>,

    /// MySQL. Accepted by the schema for later versions, refused by this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mysql: Option<Mysql>,

    /// MariaDB. Accepted by the schema for later versions, refused by this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mariadb: Option<Mysql>,
}

/// PostgreSQL.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("self.version.matches('^1[3-8]([.]|$)')")
        .message("spec.engine.postgresql.version is not known: this version runs PostgreSQL 13 to 18, for example \"15\"")
)]
#[serde(rename_all = "camelCase")]
pub struct Postgresql {
    /// Version in quotes: a major version such as "15", or a minor one such as "15.8" where the image has such a tag.
    #[schemars(regex(pattern = r"^[0-9]{1,3}(\.[0-9]{1,3})?$"))]
    pub version: String,
}

impl Postgresql {
    /// The number before the first point.
    #[must_use]
    pub fn major(&self) -> Option<u32> {
        self.version.split('.').next().and_then(|major| major.parse().ok())
    }

    /// Why this version cannot be run, or `None` when it can.
    #[must_use]
    pub fn unsupported(&self) -> Option<String> {
        match self.major() {
            Some(major) if SUPPORTED_POSTGRESQL.contains(&major) => None,
            _ => Some(format!(
                "spec.engine.postgresql.version \"{}\" is not known: this version runs PostgreSQL {} to {}",
                self.version,
                SUPPORTED_POSTGRESQL.start(),
                SUPPORTED_POSTGRESQL.end()
            )),
        }
    }
}

/// MySQL or MariaDB.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mysql {
    /// Version in quotes, for example "8.0".
    #[schemars(regex(pattern = r"^[0-9]{1,3}(\.[0-9]{1,3}){0,2}$"))]
    pub version: String,
}
