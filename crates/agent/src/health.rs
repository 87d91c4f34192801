//! `/livez`, `/readyz`, `/metrics` on the pod's own address, and what other agents may ask. They depend on nothing remote: an API that is away must not
//! restart a database.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use coregent_core::names::Monotonic;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock;

/// The loop turns at least this often, or the agent is stuck.
const STUCK_MILLIS: u64 = 15_000;

/// What the endpoint shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    pub(crate) turned: Monotonic,
    pub(crate) ready: bool,
    pub(crate) state: String,
    pub(crate) epoch: u64,
    pub(crate) timeline: u32,
    pub(crate) lsn: u64,
    pub(crate) holding: bool,
    /// Every process of the engine is gone and nothing is about to start one.
    pub(crate) log_is_final: bool,
    pub(crate) jobs_failed: u64,
}

/// What the agent's loop shows on its endpoint.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Shown>>);

impl Health {
    pub(crate) fn show(&self, shown: Shown) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    /// What /readyz answers.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.get().ready
    }

    pub(crate) fn get(&self) -> Shown {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Serves until the process ends. A port that is taken is retried: it may be the predecessor's.
pub(crate) async fn serve(address: SocketAddr, health: Health, peers: Router) {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health)
        .merge(peers);
    loop {
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => {
                if let Err(error) = axum::serve(listener, router.clone()).await {
                    tracing::warn!(%error, "the health endpoint ended and is opened again");
                }
            }
            Err(error) => tracing::warn!(%address, %error, "the health endpoint cannot listen"),
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

async fn livez(State(health): State<Health>) -> (StatusCode, String) {
    let silent = clock::now().since(health.get().turned);
    if silent > STUCK_MILLIS {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("the agent's loop has not turned for {silent} ms\n"));
    }
    (StatusCode::OK, "ok\n".to_owned())
}

async fn readyz(State(health): State<Health>) -> (StatusCode, String) {
    let shown = health.get();
    let code = if shown.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, format!("{}\n", shown.state))
}

async fn metrics(State(health): State<Health>) -> String {
    let shown = health.get();
    let mut text = String::new();
    let table = [
        ("coregent_agent_ready", "gauge", u64::from(shown.ready)),
        ("coregent_agent_holding", "gauge", u64::from(shown.holding)),
        ("coregent_agent_epoch", "gauge", shown.epoch),
        ("coregent_agent_timeline", "gauge", u64::from(shown.timeline)),
        ("coregent_agent_lsn_bytes", "gauge", shown.lsn),
        ("coregent_agent_jobs_failed_total", "counter", shown.jobs_failed),
    ];
    for (name, kind, value) in table {
        let _ = writeln!(text, "# TYPE {name} {kind}\n{name} {value}"); // writing to a String cannot fail
    }
    text
}
