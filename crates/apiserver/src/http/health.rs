//! `/livez`, `/readyz` and `/healthz`, in Kubernetes' words (kubernetes.io/docs/reference/using-api/health-checks).

use axum::http::Uri;
use axum::response::Response;

use super::params::Params;
use super::status::Outcome;
use super::{Server, respond};

/// One thing that is looked at.
struct Check {
    name: &'static str,
    /// What is wrong.
    trouble: Option<String>,
}

/// The answer for a path of health, if it is one.
///
/// While the store takes no writes this process lives, and to start it anew helps nobody: only readiness says so.
pub(super) fn answer(server: &Server, uri: &Uri) -> Outcome<Option<Response>> {
    let mut segments = uri.path().split('/').filter(|segment| !segment.is_empty());
    let Some(endpoint @ ("livez" | "readyz" | "healthz")) = segments.next() else { return Ok(None) };
    let mut checks = vec![Check { name: "ping", trouble: None }];
    if endpoint == "readyz" {
        checks.push(Check { name: "store", trouble: server.store.refuses() });
    }
    let params = Params::of(&axum::http::Method::GET, uri)?;
    let one = segments.next();
    if let Some(name) = one {
        checks.retain(|check| check.name == name);
    }
    if checks.is_empty() || segments.next().is_some() {
        return Ok(None);
    }
    checks.retain(|check| !params.all("exclude").any(|name| name == check.name));
    let well = checks.iter().all(|check| check.trouble.is_none());
    if well && !params.flag("verbose") {
        return Ok(Some(respond::text(200, "ok")));
    }
    let mut text: String = checks.iter().map(line).collect();
    text += &format!("{endpoint} check {}\n", if well { "passed" } else { "failed" });
    Ok(Some(respond::text(if well { 200 } else { 500 }, text)))
}

fn line(check: &Check) -> String {
    match &check.trouble {
        None => format!("[+]{} ok\n", check.name),
        Some(trouble) => format!("[-]{} failed: {trouble}\n", check.name),
    }
}
