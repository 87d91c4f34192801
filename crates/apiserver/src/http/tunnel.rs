//! log, exec, attach and port-forward: passed through to the HTTP endpoint of the pod's node.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::status::{ApiError, Outcome};
use super::write::text;
use super::{Call, read};
use crate::kinds::jsonpath;

/// Passes a request for a pod's subresource on to its node and its answer back; an upgraded connection stays a pipe.
pub(super) async fn forward(call: &Call, request: Request) -> Outcome<Response> {
    let pod = read::find(call)?;
    let address = node_address(call, &pod.value())?;
    let path = node_path(call, &pod.value(), request.uri().query().unwrap_or_default())?;
    let mut outgoing = Request::new(Body::empty());
    *outgoing.method_mut() = request.method().clone();
    *outgoing.uri_mut() = path.parse().map_err(|_| ApiError::bad_request("the request's query cannot be passed on"))?;
    copy_headers(request.headers(), outgoing.headers_mut());
    let token = format!("Bearer {}", call.server.node_token);
    for (name, value) in [(header::HOST, address.as_str()), (header::AUTHORIZATION, token.as_str())] {
        let value =
            value.parse().map_err(|_| ApiError::internal("the node's address or token is not a header value"))?;
        outgoing.headers_mut().insert(name, value);
    }
    let answer = send(&address, outgoing).await.map_err(|why| {
        let pod = pod.value();
        let node = text(&pod, "/spec/nodeName");
        ApiError::new(502, "InternalError", format!("failed to reach node \"{node}\" at {address}: {why}"))
    })?;
    Ok(join(request, answer))
}

/// Headers that make an upgrade, and the accepted type.
fn copy_headers(from: &HeaderMap, to: &mut HeaderMap) {
    let wanted = |name: &str| {
        matches!(name, "connection" | "upgrade" | "accept" | "x-stream-protocol-version")
            || name.starts_with("sec-websocket-")
    };
    for (name, value) in from.iter().filter(|(name, _)| wanted(name.as_str())) {
        to.append(name.clone(), value.clone());
    }
}

fn node_address(call: &Call, pod: &Value) -> Outcome<String> {
    let name = text(pod, "/spec/nodeName");
    if name.is_empty() {
        return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", call.target.name())));
    }
    let kind = call.server.kinds.find("", "v1", "nodes").ok_or_else(ApiError::no_such_path)?;
    let node = call.server.store.get("/nodes", "", name).ok_or_else(|| ApiError::not_found(&kind, name))?;
    let at = |path: &str| jsonpath::first(&node.value(), path).map(jsonpath::text).unwrap_or_default();
    let (ip, port) =
        (at(".status.addresses[?(@.type=='InternalIP')].address"), at(".status.daemonEndpoints.kubeletEndpoint.Port"));
    if ip.is_empty() || port.is_empty() || port == "0" {
        return Err(ApiError::new(
            503,
            "ServiceUnavailable",
            format!("node \"{name}\" has no endpoint for logs and exec yet"),
        ));
    }
    Ok(format!("{ip}:{port}"))
}

fn node_path(call: &Call, pod: &Value, query: &str) -> Outcome<String> {
    let (namespace, name) = (call.target.place(), call.target.name());
    let endpoint = match call.target.subresource.as_deref() {
        Some("log") => "containerLogs",
        Some("exec") => "exec",
        Some("attach") => "attach",
        _ => {
            let path = format!("/portForward/{namespace}/{name}");
            return Ok(if query.is_empty() { path } else { format!("{path}?{query}") });
        }
    };
    let container = container(call, pod)?;
    let rest: Vec<&str> = query.split('&').filter(|part| !part.is_empty() && !part.starts_with("container=")).collect();
    Ok(format!("/{endpoint}/{namespace}/{name}/{container}?{}", rest.join("&")))
}

/// The container asked for, or the only one.
fn container(call: &Call, pod: &Value) -> Outcome<String> {
    let names = |field: &str| -> Vec<String> {
        let list = pod["spec"][field].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().map(|container| text(container, "/name").to_owned()).collect()
    };
    let (containers, inits) = (names("containers"), names("initContainers"));
    match (call.params.get("container"), containers.as_slice()) {
        (Some(asked), _) if containers.iter().chain(&inits).any(|name| name == asked) => Ok(asked.to_owned()),
        (Some(asked), _) => {
            Err(ApiError::bad_request(format!("container {asked} is not valid for pod {}", call.target.name())))
        }
        (None, [only]) => Ok(only.clone()),
        (None, many) => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {}, choose one of: [{}]",
            call.target.name(),
            many.join(" ")
        ))),
    }
}

async fn send(address: &str, request: Request) -> Result<hyper::Response<hyper::body::Incoming>, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    // Terminals send single characters.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(|error| error.to_string())
}

/// The node's answer as ours. In process there is no connection of the client's that could be upgraded: it is given
/// the node's own (its `OnUpgrade` travels in the response), with nothing in between.
fn join(mut request: Request, mut answer: hyper::Response<hyper::body::Incoming>) -> Response {
    let client = request.extensions_mut().remove::<OnUpgrade>();
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(client)) = (answer.status(), client) {
        let node = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            let (Ok(client), Ok(node)) = tokio::join!(client, node) else { return };
            let (mut client, mut node) = (TokioIo::new(client), TokioIo::new(node));
            // Either end may break off at any time; that ends the session and is nobody's error.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut node).await;
        });
    }
    answer.map(Body::new)
}
