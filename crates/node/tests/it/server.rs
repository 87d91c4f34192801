//! What the API server asks of the node: logs, and nobody else may.

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    fixture::{self, World, is_ready, phase},
    tests,
};

tests![
    logs_are_told_to_the_holder_of_the_token_alone,
    a_followed_log_ends_with_its_container,
    an_exec_tells_its_output_then_its_exit_code_and_then_closes_in_order,
];

async fn connect(world: &World) -> TcpStream {
    let status = world.node_object().await.status.unwrap();
    let port = status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port;
    let host = status.addresses.unwrap().into_iter().find(|a| a.type_ == "InternalIP").unwrap().address;
    TcpStream::connect(format!("{host}:{port}")).await.unwrap()
}

/// The code and the rest of the answer to a GET.
async fn get(world: &World, path: &str, token: &str) -> (u16, String) {
    let mut stream = connect(world).await;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

fn logs_are_told_to_the_holder_of_the_token_alone() {
    fixture::run(|world| async move {
        let main =
            json!({"name": "main", "image": "busybox", "command": ["sh", "-c", "echo one; echo two; echo three >&2"]});
        world.pod("p", json!({"restartPolicy": "Never", "containers": [main]})).await;
        world.until("p", "success", |s| phase(s) == "Succeeded").await;
        let path = "/containerLogs/default/p/main";
        assert_eq!(get(&world, path, "wrong").await.0, 401);
        let (code, text) = get(&world, path, "token").await;
        assert_eq!(code, 200);
        // Output and errors come through pipes of their own: only lines of one of them have an order.
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let output: Vec<&str> = body.lines().filter(|line| *line != "three").collect();
        assert_eq!(output, ["one", "two"], "{text}");
        assert!(body.lines().any(|line| line == "three"), "{text}");
        let (code, text) = get(&world, "/containerLogs/default/p/main?previous=true", "token").await;
        assert_eq!(code, 400);
        assert!(text.contains("\"kind\":\"Status\""), "{text}");
        assert_eq!(get(&world, "/containerLogs/default/none/main", "token").await.0, 404);
    });
}

fn a_followed_log_ends_with_its_container() {
    fixture::run(|world| async move {
        let shared = tempfile::tempdir().unwrap();
        let script = "echo first; until test -e /shared/go; do sleep 0.05; done; echo last";
        let main = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
        let volumes = json!([{"name": "shared", "hostPath": {"path": shared.path()}}]);
        world.pod("p", json!({"restartPolicy": "Never", "containers": [main], "volumes": volumes})).await;
        world.until("p", "running container", is_ready).await;
        let follow = get(&world, "/containerLogs/default/p/main?follow=true", "token");
        let go = async { std::fs::write(shared.path().join("go"), "").unwrap() };
        let ((code, text), ()) = tokio::join!(follow, go);
        assert_eq!(code, 200);
        assert!(text.contains("first\n") && text.contains("last\n"), "{text}");
    });
}

/// The messages of a WebSocket answer: each frame's type and content. Enough for short frames from a server.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [first, length, rest @ ..] = bytes {
        let (length, rest) = match *length {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            short => (usize::from(short), rest),
        };
        frames.push((first & 0x0f, rest[..length].to_vec()));
        bytes = &rest[length..];
    }
    frames
}

fn an_exec_tells_its_output_then_its_exit_code_and_then_closes_in_order() {
    fixture::run(|world| async move {
        let main = json!({"name": "main", "image": "busybox", "command": ["sleep", "1000"]});
        world.pod("p", json!({"containers": [main], "terminationGracePeriodSeconds": 0})).await;
        world.until("p", "running container", is_ready).await;
        let mut stream = connect(&world).await;
        let request = "GET /exec/default/p/main?command=sh&command=-c&command=echo%20out%3B%20exit%207&stdout=true \
            HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
            Sec-WebSocket-Protocol: v4.channel.k8s.io, v5.channel.k8s.io\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Everything up to the close frame; then the server waits for ours.
        let close = [0x88, 2, 0x03, 0xe8];
        while !answer.ends_with(&close) {
            let mut buffer = [0; 4096];
            let n = stream.read(&mut buffer).await.unwrap();
            assert_ne!(n, 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&buffer[..n]);
        }
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        assert!(head.starts_with("http/1.1 101") && head.contains("v5.channel.k8s.io"), "{head}");
        let frames = frames(&answer[end..]);
        assert_eq!(frames[0], (2, b"\x01out\n".to_vec()));
        let (kind, status) = &frames[1];
        let status: serde_json::Value = serde_json::from_slice(&status[1..]).unwrap();
        assert_eq!((*kind, &status["details"]["causes"][0]["message"]), (2, &json!("7")));
    });
}
