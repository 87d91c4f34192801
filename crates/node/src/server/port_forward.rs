//! `port-forward` over one WebSocket, as `v4.channel.k8s.io` has it (kube-rs and dashboards use it).
//!
//! Each port has two channels, data and error, in the order of the `ports` in the query; the first message of each
//! is the port number, little-endian. kubectl itself speaks SPDY inside a WebSocket (`SPDY/3.1+portforward.k8s.io`),
//! which is not served: every address of a pod can be reached directly on this machine.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{Path, RawQuery, State, ws::WebSocket, ws::WebSocketUpgrade},
    response::Response,
};
use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

use super::{
    Refusal,
    channel::{self, Frame},
};
use crate::node::{Node, words};

/// Messages that wait for the client, over all ports.
const BACKLOG: usize = 16;

pub(super) async fn port_forward(
    State(node): State<Arc<Node>>,
    Path((namespace, pod)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refusal> {
    let ports = ports(query.as_deref().unwrap_or_default())
        .ok_or_else(|| Refusal::bad_request("ports: a list of numbers is needed"))?;
    let object = Api::<Pod>::namespaced(node.client.clone(), &namespace).get(&pod).await;
    let object = object.map_err(|e| Refusal::not_found(words(&e)))?;
    let ip = object.status.and_then(|s| s.pod_ip?.parse().ok());
    let ip = ip.ok_or_else(|| Refusal::bad_request(format!("pod {namespace}/{pod} has no address yet")))?;
    let targets = ports.into_iter().map(|port| SocketAddr::new(ip, port)).collect();
    Ok(channel::protocols(upgrade).on_upgrade(async move |socket| forward(socket, targets).await))
}

/// `ports=1&ports=2` or `ports=1,2`.
fn ports(query: &str) -> Option<Vec<u16>> {
    let values = query.split('&').filter_map(|pair| pair.strip_prefix("ports=").or(pair.strip_prefix("port=")));
    let numbers = values.flat_map(|v| v.split("%2C").flat_map(|v| v.split(',')));
    let ports: Vec<u16> = numbers.map(|n| n.parse().ok()).collect::<Option<_>>()?;
    (!ports.is_empty() && ports.len() <= 100).then_some(ports)
}

async fn forward(socket: WebSocket, targets: Vec<SocketAddr>) {
    let (mut sender, mut receiver) = channel::split(socket);
    let (output, mut messages) = mpsc::channel::<(u8, Bytes)>(BACKLOG);
    let mut inputs = Vec::new();
    for (number, target) in targets.into_iter().enumerate() {
        let Ok(data) = u8::try_from(number * 2) else { return };
        for id in [data, data + 1] {
            if !sender.send(id, &target.port().to_le_bytes()).await {
                return;
            }
        }
        let (input, chunks) = mpsc::channel(BACKLOG);
        tokio::spawn(one_port(target, data, chunks, output.clone()));
        inputs.push(Some(input));
    }
    drop(output);
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some((id, data)) => if !sender.send(id, &data).await { return },
                // Every port has ended.
                None => return sender.close().await,
            },
            frame = receiver.next() => match frame {
                Some(Frame::Data(id, data)) => {
                    if let Some(Some(input)) = inputs.get(usize::from(id) / 2) {
                        let _ = input.send(data).await;
                    }
                }
                Some(Frame::Close(id)) => {
                    if let Some(input) = inputs.get_mut(usize::from(id) / 2) {
                        *input = None;
                    }
                }
                None => return,
            },
        }
    }
}

async fn one_port(target: SocketAddr, data: u8, mut input: mpsc::Receiver<Bytes>, output: mpsc::Sender<(u8, Bytes)>) {
    let stream = match TcpStream::connect(target).await {
        Ok(stream) => stream,
        Err(e) => {
            let _ = output.send((data + 1, format!("failed to connect to {target}: {e}").into())).await;
            return;
        }
    };
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
            if output.send((data, Bytes::copy_from_slice(&buffer[..n]))).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = into_pod => {}
        () = out_of_pod => {}
    }
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
