//! The blocks of a DatabaseCluster's spec.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where each member keeps its data.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size of each member's volume, for example `1Gi`.
    #[schemars(schema_with = "crate::schema::quantity")]
    pub size: String,

    /// StorageClass of the volumes. The cluster's default one when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// How many members must have a write before it is acknowledged (failover.md F7, F16).
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replication {
    /// `Quorum`: a write is acknowledged once the primary and `k` other members have it, so that a failover loses
    /// nothing. `Async`: the primary alone; a failover may lose the newest writes.
    #[serde(default)]
    pub mode: ReplicationMode,

    /// Members beside the primary that a write waits for in `Quorum` mode: 1, as long as no other
    /// number is served. A cluster of one waits for nobody.
    #[serde(default = "default_k")]
    #[schemars(range(min = 1, max = 8))]
    pub k: i32,

    /// What `Quorum` mode does when fewer than `k` others are left. `Block`: writes wait, nothing acknowledged can be
    /// lost; this is the default, since whoever asks for a quorum asks for that. `Degrade`: writes go on unprotected,
    /// condition `SyncDegraded`.
    #[serde(default)]
    pub when_too_few: WhenTooFew,
}

impl Default for Replication {
    fn default() -> Replication {
        Replication { mode: ReplicationMode::default(), k: default_k(), when_too_few: WhenTooFew::default() }
    }
}

fn default_k() -> i32 {
    1
}

/// See [`Replication::mode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicationMode {
    /// The primary and `k` others have a write before it is acknowledged.
    #[default]
    Quorum,
    /// The primary alone.
    Async,
}

/// See [`Replication::when_too_few`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhenTooFew {
    /// Writes wait.
    #[default]
    Block,
    /// Writes go on unprotected.
    Degrade,
}

/// What happens when the primary is lost.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// No member is promoted without a person asking for it (`promotePod`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_disabled: bool,

    /// Name of a pod to promote now. Handled once per value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote_pod: Option<String>,

    /// How long to wait for the old primary before a failover that may lose writes, for example `30s`. One that loses
    /// nothing never waits (failover.md F10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub delay: Option<String>,

    /// How far behind the last seen position of the primary a member may be and still be promoted, for example `16Mi`.
    /// Unlimited when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub max_lag: Option<String>,
}

impl Failover {
    /// [`Failover::delay`], or its default of 30 seconds.
    #[must_use]
    pub fn delay(&self) -> std::time::Duration {
        self.delay.as_deref().and_then(parse_duration).unwrap_or(std::time::Duration::from_secs(30))
    }

    /// [`Failover::max_lag`] in bytes.
    #[must_use]
    pub fn max_lag_bytes(&self) -> Option<u64> {
        self.max_lag.as_deref().and_then(parse_quantity)
    }
}

/// Reads `1m30s`, `250ms`; the schema admits nothing else.
fn parse_duration(text: &str) -> Option<std::time::Duration> {
    let mut rest = text;
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let (factor, unit) = match tail {
            tail if tail.starts_with("ms") => (1, 2),
            tail if tail.starts_with('s') => (1_000, 1),
            tail if tail.starts_with('m') => (60_000, 1),
            tail if tail.starts_with('h') => (3_600_000, 1),
            _ => return None,
        };
        millis = millis.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = tail.get(unit..)?;
    }
    Some(std::time::Duration::from_millis(millis))
}

/// Reads `16Mi`, `1G`, `1.5Gi` as bytes; the schema admits nothing else.
fn parse_quantity(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: f64 = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        _ => return None,
    };
    let value = number.parse::<f64>().ok()? * factor;
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

/// Where pods may run.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    /// Kubernetes Affinity. Without one, members prefer to be on different hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object")]
    pub affinity: Option<Value>,

    /// Kubernetes Tolerations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::objects")]
    pub tolerations: Vec<Value>,

    /// Labels that a host must have.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub node_selector: std::collections::BTreeMap<String, String>,
}

/// Probes that replace the default ones (Kubernetes Probe).
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Whether the container is to be restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object")]
    pub liveness_probe: Option<Value>,

    /// Whether the pod gets traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object")]
    pub readiness_probe: Option<Value>,
}

/// Volumes beside the data volume.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Kubernetes VolumeMounts of the database container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::objects")]
    pub volume_mounts: Vec<Value>,

    /// Kubernetes Volumes of the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::objects")]
    pub volumes: Vec<Value>,

    /// `{name, spec}` of claims that each member gets besides its data (Kubernetes PersistentVolumeClaim).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::named_objects")]
    pub volume_claim_templates: Vec<Value>,
}

/// Name of an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectReference {
    /// Its name.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [("30s", 30_000), ("1m30s", 90_000), ("250ms", 250), ("0s", 0), ("2h", 7_200_000)] {
            assert_eq!(parse_duration(text), Some(std::time::Duration::from_millis(millis)), "{text}");
        }
        for text in ["30", "s", "1d", "99999999999999999999s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn quantities_are_read_in_bytes() {
        for (text, bytes) in [("16Mi", 16 << 20), ("1G", 1_000_000_000), ("1.5Ki", 1536), ("7", 7)] {
            assert_eq!(parse_quantity(text), Some(bytes), "{text}");
        }
        assert_eq!(parse_quantity("1X"), None);
    }
}
