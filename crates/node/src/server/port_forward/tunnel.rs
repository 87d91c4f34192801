//! `SPDY/3.1+portforward.k8s.io`, which kubectl speaks: SPDY in the binary messages of a WebSocket. For each connection
//! the client opens two streams of one request id, for errors and for data.

use super::frame::{self, Broken, Decoder, Frame};
use super::headers::{Headers, NoHeaders};
use super::{BACKLOG, pipe};
use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

pub(super) const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";

/// Connections that one client may have open.
const MOST_CONNECTIONS: usize = 1_000;

/// The streams of a client.
struct Tunnel {
    ip: IpAddr,
    headers: Headers,
    no_headers: NoHeaders,
    /// Error streams whose data stream has not come yet, by request id.
    errors: BTreeMap<String, u32>,
    /// By data stream.
    connections: BTreeMap<u32, Connection>,
    pipes: JoinSet<u32>,
    output: mpsc::Sender<Bytes>,
}

struct Connection {
    /// Gone once the client has closed its half.
    input: Option<mpsc::Sender<Bytes>>,
    pipe: AbortHandle,
}

/// What a stream of a client is for.
enum Opened {
    Errors { request: String },
    Data { errors: u32, port: u16 },
}

/// Serves until the client is gone. Its connections end with it.
pub(super) async fn serve(socket: WebSocket, ip: IpAddr) {
    let (mut sink, mut stream) = socket.split();
    let (output, mut frames) = mpsc::channel::<Bytes>(BACKLOG);
    // Apart, so that a client that does not read holds up nothing but itself.
    let mut writer = tokio::spawn(async move {
        while let Some(frame) = frames.recv().await {
            if sink.send(Message::Binary(frame)).await.is_err() {
                return;
            }
        }
    });
    let mut tunnel = Tunnel {
        ip,
        headers: Headers::default(),
        no_headers: NoHeaders::default(),
        errors: BTreeMap::new(),
        connections: BTreeMap::new(),
        pipes: JoinSet::new(),
        output,
    };
    let mut decoder = Decoder::default();
    loop {
        let message = tokio::select! {
            message = stream.next() => message,
            Some(ended) = tunnel.pipes.join_next() => {
                if let Ok(stream) = ended {
                    tunnel.connections.remove(&stream);
                }
                continue;
            }
            _ = &mut writer => return,
        };
        match message {
            Some(Ok(Message::Binary(piece))) => decoder.push(&piece),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Text(_))) => continue,
            Some(Ok(Message::Close(_)) | Err(_)) | None => break,
        }
        if let Err(error) = tunnel.take_all(&mut decoder).await {
            tracing::debug!(%error, "a port-forward ends: its client broke the protocol");
            break;
        }
    }
    // Whoever left, or broke the protocol, is told nothing more.
    writer.abort();
}

impl Tunnel {
    async fn take_all(&mut self, decoder: &mut Decoder) -> Result<(), Broken> {
        while let Some(frame) = decoder.next()? {
            self.take(frame).await?;
        }
        Ok(())
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Broken> {
        match frame {
            Frame::Open { stream, headers } => {
                let headers = self.headers.read(&headers)?;
                let Some(opened) = self.judge(&headers) else {
                    self.send(frame::refuse(stream)).await;
                    return Ok(());
                };
                // Before anything that comes over the stream.
                let reply = frame::reply(stream, &self.no_headers.next());
                self.send(reply).await;
                self.begin(stream, opened);
            }
            Frame::Data { stream, data, last } => {
                // What is said on an error stream, or on one that has ended, is nobody's.
                if let Some(connection) = self.connections.get_mut(&stream) {
                    if let Some(input) = connection.input.as_ref().filter(|_| !data.is_empty()) {
                        let _ = input.send(data).await;
                    }
                    if last {
                        connection.input = None;
                    }
                }
            }
            Frame::Reset { stream } => {
                self.errors.retain(|_, error| *error != stream);
                if let Some(connection) = self.connections.remove(&stream) {
                    connection.pipe.abort();
                }
            }
            Frame::Ping { id } => self.send(frame::pong(id)).await,
            Frame::GoAway => {}
        }
        Ok(())
    }

    /// What a stream is for, if it is one of a connection to a port.
    fn judge(&mut self, headers: &BTreeMap<String, String>) -> Option<Opened> {
        let request = headers.get("requestid")?;
        let port: u16 = headers.get("port")?.parse().ok()?;
        if self.connections.len() + self.errors.len() >= MOST_CONNECTIONS {
            return None;
        }
        match headers.get("streamtype")?.as_str() {
            "error" => Some(Opened::Errors { request: request.clone() }),
            "data" => Some(Opened::Data { errors: self.errors.remove(request)?, port }),
            _ => None,
        }
    }

    fn begin(&mut self, stream: u32, opened: Opened) {
        match opened {
            Opened::Errors { request } => {
                self.errors.insert(request, stream);
            }
            Opened::Data { errors, port } => {
                let (input, chunks) = mpsc::channel(BACKLOG);
                let target = SocketAddr::new(self.ip, port);
                let pipe = self.pipes.spawn(connect(target, (stream, errors), chunks, self.output.clone()));
                self.connections.insert(stream, Connection { input: Some(input), pipe });
            }
        }
    }

    async fn send(&self, frame: Bytes) {
        let _ = self.output.send(frame).await; // the writer is gone: so is the client
    }
}

/// One connection; its streams end with it, the one for errors first says what was wrong.
async fn connect(
    target: SocketAddr,
    (data, error): (u32, u32),
    input: mpsc::Receiver<Bytes>,
    output: mpsc::Sender<Bytes>,
) -> u32 {
    let framed = |chunk: &[u8]| frame::data(data, chunk, false);
    let why = pipe(target, input, &output, framed).await.err().unwrap_or_default();
    for ending in [frame::data(error, why.as_bytes(), true), frame::data(data, b"", true)] {
        let _ = output.send(ending).await;
    }
    data
}
