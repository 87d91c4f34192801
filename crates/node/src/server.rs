//! The node's own HTTP server, which the API server tunnels to: logs, exec, attach, port-forward.

mod channel;
mod exec;
mod logs;
mod port_forward;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header::AUTHORIZATION},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Error, node::Node};

/// The port that a kubelet has; another is taken if it is not free, and the Node object says which.
const PORT: u16 = 10250;

/// Listens on the node's own address.
pub(crate) async fn listen(host: Ipv4Addr) -> Result<TcpListener, Error> {
    if let Ok(listener) = TcpListener::bind((host, PORT)).await {
        return Ok(listener);
    }
    let address = SocketAddr::from((host, 0));
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// Serves until `shutdown`.
pub(crate) async fn run(node: Arc<Node>, listener: TcpListener, shutdown: CancellationToken) {
    let router = Router::new()
        .route("/containerLogs/{namespace}/{pod}/{container}", get(logs::container_logs))
        .route("/exec/{namespace}/{pod}/{container}", get(exec::exec))
        .route("/attach/{namespace}/{pod}/{container}", get(exec::attach))
        .route("/portForward/{namespace}/{pod}", get(port_forward::port_forward))
        .route("/healthz", get(async || "ok"))
        .layer(middleware::from_fn_with_state(Arc::clone(&node), authenticate))
        .with_state(node);
    let server = axum::serve(listener, router).with_graceful_shutdown({
        let shutdown = shutdown.clone();
        async move { shutdown.cancelled().await }
    });
    // Followers of logs never end by themselves: they do not hold up the stop.
    tokio::select! {
        result = server => if let Err(e) = result {
            tracing::error!("the node's server ended: {e}");
        },
        () = shutdown.cancelled() => {}
    }
}

/// A refusal as the `Status` that kubectl shows to people.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: StatusCode,
    reason: &'static str,
    message: String,
}

impl Refusal {
    fn bad_request(message: impl Into<String>) -> Self {
        Self { code: StatusCode::BAD_REQUEST, reason: "BadRequest", message: message.into() }
    }

    fn not_found(message: impl Into<String>) -> Self {
        Self { code: StatusCode::NOT_FOUND, reason: "NotFound", message: message.into() }
    }

    fn internal(message: impl Into<String>) -> Self {
        Self { code: StatusCode::INTERNAL_SERVER_ERROR, reason: "InternalError", message: message.into() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = serde_json::json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        (self.code, [("content-type", "application/json")], status.to_string()).into_response()
    }
}

/// Nobody but the API server, which holds the node's token, may see into a pod.
async fn authenticate(State(node): State<Arc<Node>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(AUTHORIZATION).and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
    if given.is_some_and(|given| same(given, &node.node_token)) {
        next.run(request).await
    } else {
        (StatusCode::UNAUTHORIZED, "the node's token is needed\n").into_response()
    }
}

/// Compares without telling by its time how much was right.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}
