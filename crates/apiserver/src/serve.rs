//! The router behind HTTPS sockets.

use crate::ApiServer;
use crate::pki::Identity;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A client that does not finish its TLS handshake within this is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that are still open this long after the stop was asked for are cut: watches never end by themselves.
const DRAIN: Duration = Duration::from_millis(500);

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// What the system said.
    pub source: std::io::Error,
}

/// Listens on an address.
///
/// # Errors
/// When it is taken or not this machine's.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address, source })
}

/// Serves until `shutdown`; then finishes what is under way and returns once every connection is closed.
pub async fn https(server: ApiServer, listener: TcpListener, identity: Identity, shutdown: CancellationToken) {
    let acceptor = TlsAcceptor::from(identity.tls);
    let service = server.router();
    let connections = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, mostly: the next attempt would fail at once as well.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        connections.spawn(connection(stream, acceptor.clone(), service.clone(), shutdown.clone()));
    }
    connections.close();
    connections.wait().await;
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, service: axum::Router, shutdown: CancellationToken) {
    // Small answers must not wait for each other.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("no TCP_NODELAY: {error}");
    }
    let Ok(Ok(tls)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let builder = Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(tls), TowerToHyperService::new(service));
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        ended = serving.as_mut() => log_end(ended),
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            if let Ok(ended) = tokio::time::timeout(DRAIN, serving).await {
                log_end(ended);
            }
        }
    }
}

/// A connection that a client cut is an everyday thing.
fn log_end(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}
