//! What several verbs need of a DatabaseCluster: where it is reached and with which credentials.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::output::percent_encode;
use coregent_api::DatabaseCluster;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{Api, ListParams};

/// Name and password of a database user.
pub struct Credentials {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
}

/// Reads the cluster.
///
/// # Errors
/// When it is not there.
pub async fn get(connection: &Connection, name: &str) -> Outcome<DatabaseCluster> {
    let api: Api<DatabaseCluster> = Api::namespaced(connection.client.clone(), &connection.namespace);
    api.get(name).await.map_err(|error| Failure::from_api(format!("cannot read database cluster {name}"), error))
}

/// `host:port` of its read-write or read-only Service.
///
/// # Errors
/// When the Service is not there yet.
pub async fn service_address(connection: &Connection, name: &str, readonly: bool) -> Outcome<String> {
    get(connection, name).await?;
    let service = if readonly { format!("{name}-replica") } else { name.to_owned() };
    let api: Api<Service> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let what = format!("no address for {name}");
    let found = api.get_opt(&service).await.map_err(|error| Failure::from_api(&what, error))?;
    let address = found.and_then(|service| service.spec).and_then(|spec| {
        let ip = spec.cluster_ip.filter(|ip| !ip.is_empty() && ip != "None")?;
        Some(format!("{ip}:{}", spec.ports?.first()?.port))
    });
    address.ok_or_else(|| {
        Failure::not_yet(
            what,
            format!("its Service {service} has no address yet"),
            format!("wait for it: coregent wait dbc/{name} --for=Ready"),
        )
    })
}

/// `host:port` of every member that has an address, in order of name.
///
/// # Errors
/// When the pods cannot be listed, or none has an address yet.
pub async fn member_addresses(connection: &Connection, name: &str) -> Outcome<Vec<String>> {
    let cluster = get(connection, name).await?;
    let api: Api<Pod> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let what = format!("no addresses for {name}");
    let selector = ListParams::default().labels(&format!("{}={name}", coregent_api::labels::CLUSTER));
    let mut pods = api.list(&selector).await.map_err(|error| Failure::from_api(&what, error))?.items;
    pods.sort_by_key(ResourceExt::name_any);
    let addresses: Vec<_> =
        pods.into_iter().filter_map(|pod| Some(format!("{}:{}", pod.status?.pod_ip?, cluster.spec.port))).collect();
    if addresses.is_empty() {
        return Err(Failure::not_yet(
            what,
            "no member has an address yet",
            format!("wait for it: coregent wait dbc/{name} --for=Ready"),
        ));
    }
    Ok(addresses)
}

/// The superuser's credentials, from the Secret that the spec names or that was generated.
///
/// # Errors
/// When the Secret is not there or lacks a key.
pub async fn superuser(connection: &Connection, name: &str) -> Outcome<Credentials> {
    let cluster = get(connection, name).await?;
    let secret = cluster.spec.superuser_secret.clone().unwrap_or_else(|| format!("{name}-superuser"));
    let api: Api<Secret> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let found =
        api.get(&secret).await.map_err(|error| Failure::from_api(format!("cannot read Secret {secret}"), error))?;
    let data = found.data.unwrap_or_default();
    let read = |key: &str| {
        let bytes = data.get(key).map(|value| value.0.clone()).ok_or_else(|| {
            Failure::refused(
                format!("cannot use Secret {secret}"),
                format!("it has no key {key}"),
                "give it the keys username and password",
            )
        })?;
        String::from_utf8(bytes).map_err(|_| {
            Failure::refused(format!("cannot use Secret {secret}"), format!("{key} is not UTF-8"), "correct it")
        })
    };
    Ok(Credentials { username: read("username")?, password: read("password")? })
}

/// A libpq connection URI.
pub fn uri(hosts: &str, credentials: &Credentials, parameters: &str) -> String {
    let (user, password) = (percent_encode(&credentials.username), percent_encode(&credentials.password));
    format!("postgresql://{user}:{password}@{hosts}/postgres{parameters}")
}
