//! Figures for Prometheus, and whether this process is alive and ready.

use crate::error::Error;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
}

/// A cheap handle to every figure.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    reconciles: Counter,
    failures: Family<Reason, Counter>,
    duration: Histogram,
    steps: Family<StepLabel, Counter>,
    watch_events: Family<Kind, Counter>,
    watch_errors: Family<Kind, Counter>,
    leader: Gauge,
    ready: AtomicBool,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("coregent_operator");
        let reconciles = Counter::default();
        let failures = Family::<Reason, Counter>::default();
        let duration = Histogram::new(exponential_buckets(0.0005, 2.0, 14));
        let steps = Family::<StepLabel, Counter>::default();
        let watch_events = Family::<Kind, Counter>::default();
        let watch_errors = Family::<Kind, Counter>::default();
        let leader = Gauge::default();
        registry.register("reconciles", "Reconciliations of database clusters", reconciles.clone());
        registry.register("reconcile_failures", "Reconciliations that failed, by reason", failures.clone());
        registry.register("reconcile_duration_seconds", "Time that a reconciliation took", duration.clone());
        registry.register("steps", "Steps carried out, by kind", steps.clone());
        registry.register("watch_events", "Events received, by kind of object", watch_events.clone());
        registry.register("watch_errors", "Broken watches, by kind of object", watch_errors.clone());
        registry.register("leader", "1 while this process leads", leader.clone());
        let ready = AtomicBool::new(false);
        let inner =
            Inner { registry, reconciles, failures, duration, steps, watch_events, watch_errors, leader, ready };
        Metrics { inner: Arc::new(inner) }
    }
}

impl Metrics {
    pub(crate) fn reconciled(&self, took: Duration) {
        self.inner.reconciles.inc();
        self.inner.duration.observe(took.as_secs_f64());
    }

    pub(crate) fn failed(&self, reason: &'static str) {
        self.inner.failures.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn stepped(&self, step: &'static str) {
        self.inner.steps.get_or_create(&StepLabel { step }).inc();
    }

    pub(crate) fn watch_event(&self, kind: &'static str) {
        self.inner.watch_events.get_or_create(&Kind { kind }).inc();
    }

    pub(crate) fn watch_error(&self, kind: &'static str) {
        self.inner.watch_errors.get_or_create(&Kind { kind }).inc();
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.inner.leader.set(i64::from(leads));
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.inner.ready.store(ready, Ordering::Relaxed);
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.inner.registry)?;
        Ok(text)
    }
}

/// Serves `/metrics`, `/livez` and `/readyz` until `shutdown`.
pub(crate) async fn serve(address: SocketAddr, metrics: Metrics, shutdown: CancellationToken) -> Result<(), Error> {
    let listener = tokio::net::TcpListener::bind(address).await.map_err(|source| Error::Metrics { address, source })?;
    let router = Router::new()
        .route("/metrics", get(figures))
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(metrics);
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { shutdown.cancelled().await })
        .await
        .map_err(|source| Error::Metrics { address, source })
}

async fn figures(
    State(metrics): State<Metrics>,
) -> Result<([(header::HeaderName, &'static str); 1], String), StatusCode> {
    let text = metrics.text().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text))
}

/// Ready once every kind was listed; a process that does not lead is ready to.
async fn ready(State(metrics): State<Metrics>) -> (StatusCode, &'static str) {
    if metrics.inner.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the first lists are not complete")
    }
}
