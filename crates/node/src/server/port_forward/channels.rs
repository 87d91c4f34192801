//! `v4.channel.k8s.io`, which kube-rs and dashboards use: each port has two channels, data and error, in the order of the
//! `ports` in the query; the first message of each is the port number, little-endian.

use super::{BACKLOG, pipe};
use crate::server::channel::{self, Frame};
use axum::extract::ws::WebSocket;
use bytes::Bytes;
use std::net::SocketAddr;
use tokio::sync::mpsc;

pub(super) async fn forward(socket: WebSocket, targets: Vec<SocketAddr>) {
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

async fn one_port(target: SocketAddr, data: u8, input: mpsc::Receiver<Bytes>, output: mpsc::Sender<(u8, Bytes)>) {
    let framed = |chunk: &[u8]| (data, Bytes::copy_from_slice(chunk));
    if let Err(why) = pipe(target, input, &output, framed).await {
        let _ = output.send((data + 1, why.into())).await;
    }
}
