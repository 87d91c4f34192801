//! Reading out the log of a stopped engine to the member that was named after it (failover.md F10).
//!
//! `GET /wal/<epoch>/<member>/<segment>` on the agent's port. Who asks proves to know the replication password, with which
//! it could have streamed the same log; the password itself is not sent.

use crate::config::Config;
use crate::health::Health;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::sync::Arc;
use tokio_util::io::ReaderStream;

/// One piece at a time is in memory.
const PIECE: usize = 64 * 1024;

/// What the endpoint reads from.
pub(crate) struct ReadOut {
    config: Config,
    health: Health,
}

impl ReadOut {
    pub(crate) fn new(config: &Config, health: Health) -> Arc<ReadOut> {
        Arc::new(ReadOut { config: config.clone(), health })
    }
}

/// The path of a segment, as the successor asks for it.
pub(crate) fn path(epoch: u64, member: &str, segment: &str) -> String {
    format!("/wal/{epoch}/{member}/{segment}")
}

/// The proof for a path.
pub(crate) fn authorization(config: &Config, path: &str) -> std::io::Result<String> {
    Ok(format!("Bearer {}", BASE64_URL_SAFE_NO_PAD.encode(mac(config, path)?.finalize().into_bytes())))
}

fn mac(config: &Config, path: &str) -> std::io::Result<Hmac<Sha256>> {
    let password = config.credential("replication", "password")?;
    let mac = Hmac::<Sha256>::new_from_slice(password.as_bytes()).map_err(std::io::Error::other)?;
    Ok(mac.chain_update(format!("{}/{} {path}", config.namespace, config.cluster)))
}

/// Whether `headers` hold the proof for `path`.
fn is_authorized(config: &Config, path: &str, headers: &HeaderMap) -> bool {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(given) = given.and_then(|given| BASE64_URL_SAFE_NO_PAD.decode(given).ok()) else { return false };
    mac(config, path).is_ok_and(|mac| mac.verify_slice(&given).is_ok())
}

/// The route.
pub(crate) fn router(read_out: Arc<ReadOut>) -> Router {
    Router::new().route("/wal/{epoch}/{member}/{segment}", get(segment)).with_state(read_out)
}

type Refusal = (StatusCode, &'static str);

async fn segment(
    State(read_out): State<Arc<ReadOut>>,
    Path((epoch, member, segment)): Path<(u64, String, String)>,
    headers: HeaderMap,
) -> Result<Body, Refusal> {
    if !is_authorized(&read_out.config, &path(epoch, &member, &segment), &headers) {
        return Err((StatusCode::UNAUTHORIZED, "this is for members of the cluster\n"));
    }
    if segment.len() != 24 || !segment.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err((StatusCode::BAD_REQUEST, "a segment has 24 hexadecimal digits\n"));
    }
    // F10: the log of a server that runs is not at its end.
    if !read_out.health.get().log_is_final {
        return Err((StatusCode::CONFLICT, "the engine here has not stopped\n"));
    }
    let file = tokio::fs::File::open(read_out.config.pgdata.join("pg_wal").join(&segment)).await;
    let file = file.map_err(|_| (StatusCode::NOT_FOUND, "no such segment here\n"))?;
    tracing::info!(%member, epoch, %segment, "reads out its log");
    Ok(Body::from_stream(ReaderStream::with_capacity(file, PIECE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Shown;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use std::collections::BTreeMap;
    use tower::ServiceExt as _;

    const SEGMENT: &str = "000000010000000000000003";

    fn config(folder: &std::path::Path) -> Config {
        let folder = folder.display().to_string();
        let vars = BTreeMap::from([
            ("COREGENT_CLUSTER", "orders".to_owned()),
            ("COREGENT_MEMBER", "orders-1".to_owned()),
            ("COREGENT_NAMESPACE", "default".to_owned()),
            ("POD_UID", "u1".to_owned()),
            ("POD_IP", "127.0.0.1".to_owned()),
            ("PGDATA", format!("{folder}/pgdata")),
            ("COREGENT_CREDENTIALS_DIR", format!("{folder}/credentials")),
            ("COREGENT_BIN_DIR", "/nowhere".to_owned()),
        ]);
        Config::from(|name| vars.get(name).cloned()).unwrap()
    }

    async fn ask(config: &Config, log_is_final: bool, path: &str, authorization: &str) -> (u16, Vec<u8>) {
        let health = Health::default();
        health.show(Shown { log_is_final, ..Shown::default() });
        let request = Request::get(path).header("Authorization", authorization).body(Body::empty()).unwrap();
        let answer = router(ReadOut::new(config, health)).oneshot(request).await.unwrap();
        (answer.status().as_u16(), answer.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_log_is_read_out_only_to_who_knows_the_password_and_only_once_the_engine_has_stopped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("pgdata/pg_wal")).unwrap();
        std::fs::create_dir_all(folder.path().join("credentials/replication")).unwrap();
        std::fs::write(folder.path().join("pgdata/pg_wal").join(SEGMENT), b"log").unwrap();
        std::fs::write(folder.path().join("credentials/replication/password"), "secret\n").unwrap();
        let config = config(folder.path());
        let good = path(2, "orders-2", SEGMENT);
        let proof = authorization(&config, &good).unwrap();
        assert!(!proof.contains("secret"));
        assert_eq!(ask(&config, true, &good, &proof).await, (200, b"log".to_vec()));
        assert_eq!(ask(&config, false, &good, &proof).await.0, 409);
        assert_eq!(ask(&config, true, &good, "Bearer AAAA").await.0, 401);
        let other = path(2, "orders-2", "000000010000000000000004");
        assert_eq!(ask(&config, true, &other, &proof).await.0, 401);
        let absent = authorization(&config, &other).unwrap();
        assert_eq!(ask(&config, true, &other, &absent).await.0, 404);
        let outside = path(2, "orders-2", "..%2F..%2Fcredentials%2Freplication%2Fpassword");
        assert_ne!(ask(&config, true, &outside, &proof).await.0, 200);
    }
}
