//! `port-forward`: connections of a client to ports of a pod, in one WebSocket. Two protocols are served: `channels`, and
//! that of kubectl, `tunnel`.

mod channels;
mod frame;
mod headers;
mod tunnel;

use super::{Refusal, channel};
use crate::node::{Node, words};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, header::SEC_WEBSOCKET_PROTOCOL};
use axum::response::Response;
use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Messages that wait for either side.
const BACKLOG: usize = 16;

pub(super) async fn port_forward(
    State(node): State<Arc<Node>>,
    Path((namespace, pod)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    asked: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refusal> {
    let asked = asked.get_all(SEC_WEBSOCKET_PROTOCOL);
    if asked.iter().any(|protocols| protocols.to_str().is_ok_and(|text| text.contains(tunnel::PROTOCOL))) {
        let ip = address(&node, &namespace, &pod).await?;
        return Ok(upgrade
            .protocols([tunnel::PROTOCOL])
            .on_upgrade(async move |socket| tunnel::serve(socket, ip).await));
    }
    let ports = ports(query.as_deref().unwrap_or_default())
        .ok_or_else(|| Refusal::bad_request("ports: a list of numbers is needed"))?;
    let ip = address(&node, &namespace, &pod).await?;
    let targets = ports.into_iter().map(|port| SocketAddr::new(ip, port)).collect();
    Ok(channel::protocols(upgrade).on_upgrade(async move |socket| channels::forward(socket, targets).await))
}

async fn address(node: &Node, namespace: &str, pod: &str) -> Result<IpAddr, Refusal> {
    let object = Api::<Pod>::namespaced(node.client.clone(), namespace).get(pod).await;
    let object = object.map_err(|e| Refusal::not_found(words(&e)))?;
    let ip = object.status.and_then(|s| s.pod_ip?.parse().ok());
    ip.ok_or_else(|| Refusal::bad_request(format!("pod {namespace}/{pod} has no address yet")))
}

/// `ports=1&ports=2` or `ports=1,2`.
fn ports(query: &str) -> Option<Vec<u16>> {
    let values = query.split('&').filter_map(|pair| pair.strip_prefix("ports=").or(pair.strip_prefix("port=")));
    let numbers = values.flat_map(|v| v.split("%2C").flat_map(|v| v.split(',')));
    let ports: Vec<u16> = numbers.map(|n| n.parse().ok()).collect::<Option<_>>()?;
    (!ports.is_empty() && ports.len() <= 100).then_some(ports)
}

/// One connection to `target`, until the pod closes it or nobody takes what it says. The end of `input` ends the pod's input
/// alone.
async fn pipe<T>(
    target: SocketAddr,
    mut input: mpsc::Receiver<Bytes>,
    output: &mpsc::Sender<T>,
    framed: impl Fn(&[u8]) -> T,
) -> Result<(), String> {
    let stream = TcpStream::connect(target).await.map_err(|e| format!("failed to connect to {target}: {e}"))?;
    let (mut reading, mut writing) = stream.into_split();
    let into_pod = async {
        while let Some(chunk) = input.recv().await {
            if writing.write_all(&chunk).await.is_err() {
                return;
            }
        }
        let _ = writing.shutdown().await;
        // The answer may still be on its way: the other direction decides when this is over.
        std::future::pending::<()>().await;
    };
    let out_of_pod = async {
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(n @ 1..) = reading.read(&mut buffer).await {
            if output.send(framed(&buffer[..n])).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = into_pod => {}
        () = out_of_pod => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_in_both_spellings() {
        for (query, expected) in [
            ("ports=5432&ports=80", Some(vec![5432, 80])),
            ("ports=5432%2C80", Some(vec![5432, 80])),
            ("ports=5432,80", Some(vec![5432, 80])),
            ("ports=x", None),
            ("ports=70000", None),
            ("", None),
        ] {
            assert_eq!(ports(query), expected, "{query}");
        }
    }
}
