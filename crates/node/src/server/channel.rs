//! The framing of exec, attach and port-forward: one WebSocket, the first byte of a message names a channel.
//!
//! `v4.channel.k8s.io` and `v5.channel.k8s.io` as Kubernetes defines them; v5 adds the closing of one channel,
//! which is how a client ends standard input.

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use serde_json::{Value, json};

/// The protocols that are served, the preferred first.
pub(super) const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const RESIZE: u8 = 4;
/// In v5: the next byte is the channel that the client closes.
const CLOSE: u8 = 255;

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Data(u8, Bytes),
    Close(u8),
}

/// The sending half.
pub(super) struct Sender(SplitSink<WebSocket, Message>);

/// The receiving half.
pub(super) struct Receiver(SplitStream<WebSocket>);

/// Accepts one of [`PROTOCOLS`].
pub(super) fn protocols(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade.protocols(PROTOCOLS)
}

/// Both halves of a connection.
pub(super) fn split(socket: WebSocket) -> (Sender, Receiver) {
    let (sender, receiver) = socket.split();
    (Sender(sender), Receiver(receiver))
}

impl Sender {
    /// Sends `data` on a channel; false if the client is gone.
    pub async fn send(&mut self, channel: u8, data: &[u8]) -> bool {
        let mut message = BytesMut::with_capacity(data.len() + 1);
        message.put_u8(channel);
        message.put_slice(data);
        self.0.send(Message::Binary(message.freeze())).await.is_ok()
    }

    /// Ends the connection in order.
    pub async fn close(mut self) {
        // A close without a code is an error to kubectl, which then hides the status that came before it.
        let normal = CloseFrame { code: close_code::NORMAL, reason: "".into() };
        let _ = self.0.send(Message::Close(Some(normal))).await;
        let _ = self.0.close().await;
    }
}

impl Receiver {
    /// The next frame; `None` when the client is gone.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            match self.0.next().await?.ok()? {
                Message::Binary(data) => {
                    if let Some(frame) = parse(data) {
                        return Some(frame);
                    }
                }
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }
}

fn parse(mut data: Bytes) -> Option<Frame> {
    let channel = *data.first()?;
    let rest = data.split_off(1);
    match channel {
        CLOSE => rest.first().map(|closed| Frame::Close(*closed)),
        _ => Some(Frame::Data(channel, rest)),
    }
}

/// What the error channel says at the end of a command.
pub(super) fn exit_status(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        "code": 500,
    })
}

/// What the error channel says if there was no command to end.
pub(super) fn failure(message: &str) -> Value {
    json!({"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_is_the_channel_and_255_closes_one() {
        for (bytes, expected) in [
            (&b"\x00in"[..], Some(Frame::Data(STDIN, Bytes::from_static(b"in")))),
            (b"\x04{}", Some(Frame::Data(RESIZE, Bytes::from_static(b"{}")))),
            (b"\x00", Some(Frame::Data(STDIN, Bytes::new()))),
            (b"\xff\x00", Some(Frame::Close(STDIN))),
            (b"\xff", None),
            (b"", None),
        ] {
            assert_eq!(parse(Bytes::from_static(bytes)), expected);
        }
    }

    #[test]
    fn exit_codes_are_told_as_kubectl_reads_them() {
        assert_eq!(exit_status(0)["status"], "Success");
        let failed = exit_status(7);
        assert_eq!(failed["reason"], "NonZeroExitCode");
        assert_eq!(failed["details"]["causes"][0], json!({"reason": "ExitCode", "message": "7"}));
    }
}
