//! The configuration that every member starts with: ours, then the user's ConfigMap, then `spec.config`. PostgreSQL
//! takes the last line of a name. What the protocol rests on is written by the agent after all of these.

use super::{config_name, object_labels, owner};
use coregent_api::DatabaseCluster;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use std::collections::BTreeMap;

/// Settings that the protocol itself writes: one of them in a spec is an error, not a wish.
pub const PROTECTED: [&str; 16] = [
    "archive_cleanup_command",
    "config_file",
    "data_directory",
    "fsync",
    "full_page_writes",
    "hba_file",
    "hot_standby",
    "ident_file",
    "listen_addresses",
    "port",
    "primary_conninfo",
    "primary_slot_name",
    "recovery_target_timeline",
    "synchronous_standby_names",
    "unix_socket_directories",
    "wal_level",
];

/// Why each: postgres-recipes.md, "Base config that the recipes assume".
const BASE: &str = "\
# Base configuration of Coregent. Values of customConfig and spec.config follow below and win.
wal_level = replica
hot_standby = on
wal_log_hints = on
wal_keep_size = 512MB
max_slot_wal_keep_size = 1GB
max_wal_senders = 20
max_replication_slots = 40
wal_retrieve_retry_interval = 10ms
wal_receiver_status_interval = 1s
wal_receiver_timeout = 2s
wal_sender_timeout = 5s
synchronous_commit = on
recovery_target_timeline = latest
max_connections = 100
superuser_reserved_connections = 5
password_encryption = scram-sha-256
log_line_prefix = '%m [%p] %q%u@%d '
";

/// The ConfigMap `<cluster>-config`. `custom` is the data of the ConfigMap that `spec.customConfig` names.
#[must_use]
pub fn config_map(cluster: &DatabaseCluster, custom: Option<&BTreeMap<String, String>>) -> ConfigMap {
    let of_user = |key: &str| custom.and_then(|data| data.get(key)).map(String::as_str).unwrap_or_default();
    let mut conf = BASE.to_owned();
    section(&mut conf, "# From spec.customConfig.", of_user("postgresql.conf"));
    let settings: Vec<String> = cluster.spec.config.iter().map(|(name, value)| setting(name, value)).collect();
    section(&mut conf, "# From spec.config.", &settings.join("\n"));
    let mut hba = String::new();
    section(&mut hba, "# From spec.customConfig.", of_user("pg_hba.conf"));
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(config_name(&cluster.name_any())),
            namespace: cluster.namespace(),
            labels: Some(object_labels(&cluster.name_any())),
            owner_references: Some(owner(cluster)),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("postgresql.conf".to_owned(), conf), ("pg_hba.conf".to_owned(), hba)])),
        ..ConfigMap::default()
    }
}

fn section(text: &mut String, title: &str, lines: &str) {
    if !lines.trim().is_empty() {
        text.push_str(title);
        text.push('\n');
        text.push_str(lines.trim_end());
        text.push('\n');
    }
}

/// One line. A value is always quoted; a quote in it is doubled (manual, section 20.1.2).
fn setting(name: &str, value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => format!("{name} = {number}"),
        IntOrString::String(text) => format!("{name} = '{}'", text.replace('\'', "''").replace(['\n', '\r'], " ")),
    }
}
