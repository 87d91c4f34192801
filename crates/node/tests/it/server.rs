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

tests![logs_are_told_to_the_holder_of_the_token_alone, a_followed_log_ends_with_its_container];

/// The code and the rest of the answer to a GET.
async fn get(world: &World, path: &str, token: &str) -> (u16, String) {
    let status = world.node_object().await.status.unwrap();
    let port = status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port;
    let host = status.addresses.unwrap().into_iter().find(|a| a.type_ == "InternalIP").unwrap().address;
    let mut stream = TcpStream::connect(format!("{host}:{port}")).await.unwrap();
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
        assert!(text.contains("one\ntwo\n") && text.contains("three\n"), "{text}");
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
