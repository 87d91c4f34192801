//! `kubectl exec` and `kubectl attach`.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Path, RawQuery, State, ws::WebSocketUpgrade},
    response::Response,
};
use coregent_process::{ExecProcess, ExecSpec, Input, Output, TerminalSize};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};

use super::Refusal;
use super::channel::{self, ERROR, Frame, RESIZE, Receiver, STDERR, STDIN, STDOUT, Sender};
use crate::{
    logs::{self, Reader, Selection},
    node::{Node, words},
    pod::container::Running,
};

/// Output that comes after the program's end belongs to what it left running; it is not waited for longer than this.
const DRAIN: Duration = Duration::from_millis(200);

type ContainerPath = Path<(String, String, String)>;
type Answer = Result<Response, Refusal>;

/// What a client asks for in the query.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    command: Vec<String>,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Wanted {
    /// `command` comes once for each argument. Kubelet and API server name the streams differently.
    fn parse(query: &str) -> Self {
        let mut wanted = Self::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let yes = value == "true" || value == "1";
            match name {
                "command" => wanted.command.push(decode(value)),
                "stdin" | "input" => wanted.stdin |= yes,
                "stdout" | "output" => wanted.stdout |= yes,
                "stderr" | "error" => wanted.stderr |= yes,
                "tty" => wanted.tty |= yes,
                _ => {}
            }
        }
        wanted
    }
}

/// Percent decoding of a query value.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|h| u8::from_str_radix(std::str::from_utf8(h).ok()?, 16).ok());
        match (byte, hex) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (other, _) => out.push(*other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) async fn exec(
    State(node): State<Arc<Node>>,
    Path(path): ContainerPath,
    RawQuery(query): RawQuery,
    upgrade: WebSocketUpgrade,
) -> Answer {
    let wanted = Wanted::parse(query.as_deref().unwrap_or_default());
    if wanted.command.is_empty() {
        return Err(Refusal::bad_request("no command was given"));
    }
    let running = running(&node, path)?;
    Ok(channel::protocols(upgrade).on_upgrade(async move |socket| {
        let (mut sender, receiver) = channel::split(socket);
        let spec = ExecSpec {
            argv: wanted.command.clone(),
            stdin: wanted.stdin,
            tty: wanted.tty.then(TerminalSize::default),
            ..ExecSpec::default()
        };
        let status = match running.process.exec(spec).await {
            Ok(process) => match converse(process, &wanted, &mut sender, receiver).await {
                Some(code) => channel::exit_status(code),
                None => return,
            },
            Err(e) => channel::failure(&e.to_string()),
        };
        sender.send(ERROR, status.to_string().as_bytes()).await;
        sender.close().await;
    }))
}

fn running(node: &Node, path: (String, String, String)) -> Result<Arc<Running>, Refusal> {
    node.running(&path).ok_or_else(|| {
        let (namespace, pod, container) = path;
        Refusal::not_found(format!("container {container:?} of pod {namespace}/{pod} is not running"))
    })
}

/// Carries the streams until the program has ended; `None` if the client left before.
async fn converse(mut process: ExecProcess, wanted: &Wanted, sender: &mut Sender, receiver: Receiver) -> Option<i32> {
    let (output, mut chunks) = mpsc::channel::<(u8, Vec<u8>)>(16);
    // Read even if nobody wants it: a program must not stop because its pipe is full.
    for (stream, id, shown) in
        [(process.stdout.take(), STDOUT, wanted.stdout), (process.stderr.take(), STDERR, wanted.stderr)]
    {
        if let Some(stream) = stream {
            tokio::spawn(read(stream, id, shown, output.clone()));
        }
    }
    drop(output);
    let stdin = process.stdin.take();
    let mut input = std::pin::pin!(take_input(&process, stdin, receiver));
    let code = loop {
        tokio::select! {
            biased;
            chunk = chunks.recv() => match chunk {
                Some((id, data)) => if !sender.send(id, &data).await { break None },
                None => break Some(process.wait().await.code()),
            },
            status = process.wait() => break Some(status.code()),
            () = &mut input => break None,
        }
    };
    if code.is_some() {
        while let Ok(Some((id, data))) = tokio::time::timeout(DRAIN, chunks.recv()).await {
            if !sender.send(id, &data).await {
                break;
            }
        }
    }
    code
}

async fn read(mut stream: Output, id: u8, shown: bool, chunks: mpsc::Sender<(u8, Vec<u8>)>) {
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        if shown && chunks.send((id, buffer[..n].to_vec())).await.is_err() {
            return;
        }
    }
}

/// Gives the client's input to the program; returns when the client is gone.
async fn take_input(process: &ExecProcess, mut stdin: Option<Input>, mut receiver: Receiver) {
    while let Some(frame) = receiver.next().await {
        match frame {
            Frame::Data(STDIN, data) => {
                if let Some(input) = &mut stdin
                    && (input.write_all(&data).await.is_err() || input.flush().await.is_err())
                {
                    stdin = None;
                }
            }
            Frame::Close(STDIN) => stdin = None,
            Frame::Data(RESIZE, data) => {
                if let Some(size) = terminal_size(&data) {
                    let _ = process.resize(size);
                }
            }
            _ => {}
        }
    }
}

fn terminal_size(data: &[u8]) -> Option<TerminalSize> {
    let value: Value = serde_json::from_slice(data).ok()?;
    let read = |name: &str| value[name].as_u64().and_then(|n| u16::try_from(n).ok());
    Some(TerminalSize { columns: read("Width")?, rows: read("Height")? })
}

/// What the container writes from now on. Containers have no standard input of their own.
pub(super) async fn attach(
    State(node): State<Arc<Node>>,
    Path(path): ContainerPath,
    upgrade: WebSocketUpgrade,
) -> Answer {
    let (namespace, pod, container) = path.clone();
    let running = running(&node, path)?;
    let object = Api::<Pod>::namespaced(node.client.clone(), &namespace).get(&pod).await;
    let object = object.map_err(|e| Refusal::not_found(words(&e)))?;
    let file = logs::file(&logs::folder(&node.data_dir, &object), &container, false);
    let progress = running.log.progress();
    let from_now = Selection { tail_lines: Some(0), ..Selection::default() };
    let opened = file.and_then(|file| Reader::open(&file, from_now).ok());
    let (reader, first) = opened.ok_or_else(|| Refusal::not_found("the container has no output"))?;
    Ok(channel::protocols(upgrade).on_upgrade(async move |socket| {
        let (mut sender, mut receiver) = channel::split(socket);
        let mut lines = Box::pin(super::logs::follow(reader, first, progress));
        loop {
            tokio::select! {
                line = lines.next() => match line {
                    Some(Ok(text)) => if !sender.send(STDOUT, &text).await { return },
                    _ => break,
                },
                frame = receiver.next() => if frame.is_none() { return },
            }
        }
        let code = running.process.wait().await.code();
        sender.send(ERROR, channel::exit_status(code).to_string().as_bytes()).await;
        sender.close().await;
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_kubectl_and_of_a_kubelet_are_understood() {
        let expected = Wanted {
            command: vec!["sh".into(), "-c".into(), "echo a&b +1 \u{e9}".into()],
            stdin: true,
            stdout: true,
            stderr: false,
            tty: true,
        };
        for query in [
            "command=sh&command=-c&command=echo+a%26b+%2B1+%C3%A9&stdin=true&stdout=true&tty=true&container=c",
            "command=sh&command=-c&command=echo%20a%26b%20%2b1%20%c3%a9&input=1&output=1&error=0&tty=1",
        ] {
            assert_eq!(Wanted::parse(query), expected, "{query}");
        }
        assert_eq!(decode("100%"), "100%");
    }

    #[test]
    fn terminal_sizes_are_read_as_kubectl_sends_them() {
        let size = terminal_size(br#"{"Width":132,"Height":43}"#);
        assert_eq!(size, Some(TerminalSize { columns: 132, rows: 43 }));
        assert_eq!(terminal_size(b"x"), None);
    }
}
