//! Services: a listener on every cluster address and port that passes connections on to a ready endpoint.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Service, ServicePort},
    discovery::v1::EndpointSlice,
};
use kube::{Resource, ResourceExt};
use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::node::Node;

mod served;

use served::Found;
pub use served::SERVED;

const BUFFER: usize = 64 * 1024;
/// An endpoint on this machine answers at once or not at all.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How soon an address that was taken is tried again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Where connections to a Service address go.
type Routes = BTreeMap<SocketAddr, Vec<SocketAddr>>;

/// The routes that Services and their endpoints amount to. Pure.
fn routes(services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> Routes {
    let mut routes = Routes::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let Some(ip) = spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok()) else { continue };
        for port in spec.ports.iter().flatten().filter(|p| p.protocol.as_deref().unwrap_or("TCP") == "TCP") {
            let Ok(number) = u16::try_from(port.port) else { continue };
            routes.insert(SocketAddr::new(ip, number), targets(service, port, slices));
        }
    }
    routes
}

fn targets(service: &Service, port: &ServicePort, slices: &[Arc<EndpointSlice>]) -> Vec<SocketAddr> {
    let publish_all = service.spec.as_ref().and_then(|s| s.publish_not_ready_addresses) == Some(true);
    let mine = slices.iter().filter(|slice| {
        slice.namespace() == service.namespace()
            && slice.labels().get("kubernetes.io/service-name") == service.metadata.name.as_ref()
    });
    let mut targets = Vec::new();
    for slice in mine {
        let wanted = port.name.as_deref().unwrap_or_default();
        let number = slice.ports.iter().flatten().find(|p| p.name.as_deref().unwrap_or_default() == wanted);
        let Some(number) = number.and_then(|p| u16::try_from(p.port?).ok()) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            // A slice that does not say is to be taken as ready (EndpointConditions).
            let ready = endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
            let address = endpoint.addresses.first().and_then(|a| a.parse().ok());
            targets.extend(address.filter(|_| ready || publish_all).map(|ip: IpAddr| SocketAddr::new(ip, number)));
        }
    }
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// The current targets of one listener.
#[derive(Debug, Default)]
struct Targets {
    list: RwLock<Vec<SocketAddr>>,
    turn: AtomicUsize,
}

impl Targets {
    /// All targets, the next in turn first.
    fn in_turn(&self) -> Vec<SocketAddr> {
        let mut list = self.list.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !list.is_empty() {
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % list.len();
            list.rotate_left(first);
        }
        list
    }

    fn set(&self, new: Vec<SocketAddr>) {
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = new;
    }
}

#[derive(Debug)]
struct Listener {
    targets: Arc<Targets>,
    /// Ends the accepting; connections that are passed on go on until a peer closes them.
    _accepting: DropGuard,
}

/// Keeps a listener for every route until the node stops.
pub(crate) async fn run(node: Arc<Node>, shutdown: CancellationToken) {
    let mut services = node.services.changes();
    let mut slices = node.slices.changes();
    let mut listeners: BTreeMap<SocketAddr, Listener> = BTreeMap::new();
    let (found, told) = watch::channel(Found::default());
    tokio::spawn(served::run(node.clone(), told, shutdown.clone()));
    loop {
        let all = node.services.all();
        let routes = routes(&all, &node.slices.all());
        // Without an endpoint nobody listens: the kernel refuses at once, and no client waits.
        listeners.retain(|address, _| routes.get(address).is_some_and(|targets| !targets.is_empty()));
        let mut refused = BTreeMap::new();
        for (address, targets) in routes.iter().filter(|(_, targets)| !targets.is_empty()) {
            if let Some(listener) = listeners.get(address) {
                listener.targets.set(targets.clone());
                continue;
            }
            match listen(*address, targets.clone()).await {
                Ok(listener) => drop(listeners.insert(*address, listener)),
                Err(error) => {
                    let why = format!("cannot listen on {address}: {error}; trying again each second");
                    warn(&node, &all, *address, why.clone());
                    refused.insert(*address, why);
                }
            }
        }
        let again = !refused.is_empty();
        found.send_replace(Found { routes, refused });
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = services.changed() => {}
            _ = slices.changed() => {}
            () = tokio::time::sleep(LISTEN_AGAIN), if again => {}
        }
    }
}

fn warn(node: &Node, services: &[Arc<Service>], address: SocketAddr, note: String) {
    let ip = address.ip().to_string();
    let found = services.iter().find(|s| s.spec.as_ref().is_some_and(|spec| spec.cluster_ip.as_ref() == Some(&ip)));
    if let Some(service) = found {
        node.events.warning(&service.object_ref(&()), "ListenFailed", note);
    }
}

async fn listen(address: SocketAddr, targets: Vec<SocketAddr>) -> std::io::Result<Listener> {
    let listener = TcpListener::bind(address).await?;
    let accepting = CancellationToken::new();
    let shared = Arc::new(Targets::default());
    shared.set(targets);
    tokio::spawn(accept(listener, Arc::clone(&shared), accepting.clone()));
    Ok(Listener { targets: shared, _accepting: accepting.drop_guard() })
}

async fn accept(listener: TcpListener, targets: Arc<Targets>, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, _)) => drop(tokio::spawn(pass_on(client, targets.in_turn()))),
            Err(e) => {
                // Out of descriptors, most likely; accepting again at once would only spin.
                tracing::warn!("connection not accepted: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn pass_on(mut client: TcpStream, targets: Vec<SocketAddr>) {
    for target in targets {
        let Ok(Ok(mut server)) = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(target)).await else {
            continue;
        };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let _ = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER).await;
        return;
    }
    // Nobody took it: reset, so that the client knows at once that this was no orderly end.
    let _ = rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn service(spec: serde_json::Value) -> Arc<Service> {
        Arc::new(serde_json::from_value(json!({"metadata": {"namespace": "n", "name": "db"}, "spec": spec})).unwrap())
    }

    fn slice(ports: serde_json::Value, endpoints: serde_json::Value) -> Arc<EndpointSlice> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"namespace": "n", "name": "db-x", "labels": {"kubernetes.io/service-name": "db"}},
                "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
            }))
            .unwrap(),
        )
    }

    fn check(service_spec: serde_json::Value, endpoints: serde_json::Value) -> Vec<String> {
        let slices = [slice(json!([{"name": "pg", "port": 5432}]), endpoints)];
        let routes = routes(&[service(service_spec)], &slices);
        routes.iter().map(|(a, t)| format!("{a} -> {t:?}")).collect()
    }

    #[test]
    fn a_route_leads_to_ready_endpoints_of_the_port_of_that_name() {
        let endpoints = json!([
            {"addresses": ["127.64.0.2"], "conditions": {"ready": true}},
            {"addresses": ["127.64.0.3"], "conditions": {"ready": false}},
            {"addresses": ["127.64.0.4"]},
        ]);
        let port = json!([{"name": "pg", "port": 5433, "targetPort": 5432}]);
        let ip = "127.64.0.180";
        for (spec, expected) in [
            (json!({"clusterIP": ip, "ports": port}), vec!["127.64.0.180:5433 -> [127.64.0.2:5432, 127.64.0.4:5432]"]),
            (
                json!({"clusterIP": ip, "ports": port, "publishNotReadyAddresses": true}),
                vec!["127.64.0.180:5433 -> [127.64.0.2:5432, 127.64.0.3:5432, 127.64.0.4:5432]"],
            ),
            (json!({"clusterIP": "None", "ports": port}), vec![]),
            (json!({"clusterIP": ip, "ports": [{"name": "other", "port": 1}]}), vec!["127.64.0.180:1 -> []"]),
            (json!({"clusterIP": ip, "ports": [{"name": "pg", "port": 53, "protocol": "UDP"}]}), vec![]),
        ] {
            assert_eq!(check(spec.clone(), endpoints.clone()), expected, "{spec}");
        }
    }

    async fn echo(greeting: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = stream.write_all(greeting.as_bytes()).await;
                    let mut buffer = [0; 64];
                    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                        let _ = stream.write_all(&buffer[..n]).await;
                    }
                });
            }
        });
        address
    }

    async fn greeting(address: SocketAddr) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut buffer = [0; 1];
        stream.read_exact(&mut buffer).await.unwrap();
        (stream, String::from_utf8_lossy(&buffer).into_owned())
    }

    #[tokio::test]
    async fn new_connections_go_to_the_new_target_and_old_ones_stay() {
        let (a, b) = (echo("a").await, echo("b").await);
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let listener = listen(address, vec![a]).await.unwrap();
        let (mut old, first) = greeting(address).await;
        assert_eq!(first, "a");
        listener.targets.set(vec![b]);
        assert_eq!(greeting(address).await.1, "b");
        old.write_all(b"x").await.unwrap();
        let mut buffer = [0; 1];
        old.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"x");
    }

    #[tokio::test]
    async fn a_dead_target_is_passed_over_and_without_any_the_connection_is_reset() {
        let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let alive = echo("a").await;
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let listener = listen(address, vec![dead, alive]).await.unwrap();
        assert_eq!(greeting(address).await.1, "a");
        assert_eq!(greeting(address).await.1, "a");
        listener.targets.set(vec![dead]);
        let mut stream = TcpStream::connect(address).await.unwrap();
        let error = stream.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
