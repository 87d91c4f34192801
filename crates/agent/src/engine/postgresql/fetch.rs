//! Getting the end of the old primary's log, which its server can no longer send (F10; postgres-recipes.md 4).

use super::stream::LOOK;
use super::wal::Wal;
use super::{EngineError, Postgres};
use crate::clock;
use crate::read_out;
use bytes::Bytes;
use coregent_core::fence::RestOfLog;
use coregent_core::lsn::Lsn;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Silence of the other agent after which it is given up.
const SILENCE: Duration = Duration::from_secs(2);
/// Replay that stands still for so long has reached the end of what there is.
const STANDSTILL_MILLIS: u64 = 2_000;

impl Postgres {
    /// Returns once all of it is replayed. A try that ends early has only added valid log of the same timeline.
    pub(super) async fn fetch(&self, rest: &RestOfLog, within: Option<u64>) -> Result<(), EngineError> {
        let fetch = self.fetch_segments(rest);
        match within {
            None => fetch.await,
            Some(millis) => timeout(Duration::from_millis(millis), fetch).await.unwrap_or_else(|_| {
                Err(EngineError::Refused(format!("the log of {} was not here after {millis} ms", rest.member)))
            }),
        }
    }

    async fn fetch_segments(&self, rest: &RestOfLog) -> Result<(), EngineError> {
        let what = || format!("cannot fetch the log of {}", rest.member);
        let from = self.snapshot().await?.replayed;
        let wal = Wal::open(&self.config.pgdata).map_err(EngineError::io(what()))?;
        let mut agent = self.connect_to_agent(&rest.agent).await?;
        let folder = File::open(self.config.pgdata.join("pg_wal")).map_err(EngineError::io(what()))?;
        let part = self.volume.borrow().path("fetched-segment");
        for segment in wal.segments_between(rest.timeline, from, rest.end_lsn) {
            self.get(&mut agent, &rest.agent, &segment, &part).await?;
            // The startup process may read it from here on; a promotion trusts it after a crash.
            std::fs::rename(&part, wal.segment_path(&segment)).map_err(EngineError::io(what()))?;
            folder.sync_all().map_err(EngineError::io(what()))?;
        }
        self.replay_to(rest.end_lsn).await
    }

    async fn connect_to_agent(&self, address: &str) -> Result<SendRequest<Empty<Bytes>>, EngineError> {
        let what = || format!("cannot reach the agent at {address}");
        let stream = timeout(SILENCE, TcpStream::connect(address)).await.map_err(|_| silent(address))?;
        let stream = stream.map_err(EngineError::io(what()))?;
        let (agent, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| EngineError::Refused(format!("{}: {error}", what())))?;
        tokio::task::spawn_local(async move {
            // What goes wrong with it is seen by the request that waits for it.
            let _ = connection.await;
        });
        Ok(agent)
    }

    async fn get(
        &self,
        agent: &mut SendRequest<Empty<Bytes>>,
        address: &str,
        segment: &str,
        into: &Path,
    ) -> Result<(), EngineError> {
        let what = || format!("cannot fetch segment {segment} from {address}");
        let epoch = self.volume.borrow().state().epoch.0;
        let path = read_out::path(epoch, self.config.member.as_str(), segment);
        let proof = read_out::authorization(&self.config, &path).map_err(EngineError::io(what()))?;
        let request = Request::get(path).header(HOST, address).header(AUTHORIZATION, proof);
        let request = request.body(Empty::new()).map_err(|error| EngineError::Refused(error.to_string()))?;
        let refused = |why: String| EngineError::Refused(format!("{}: {why}", what()));
        let answer = timeout(SILENCE, agent.send_request(request)).await.map_err(|_| silent(address))?;
        let mut answer = answer.map_err(|error| refused(error.to_string()))?;
        if answer.status() != StatusCode::OK {
            return Err(refused(answer.status().to_string()));
        }
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(into).map_err(EngineError::io(what()))?;
        while let Some(frame) = timeout(SILENCE, answer.frame()).await.map_err(|_| silent(address))? {
            let frame = frame.map_err(|error| refused(error.to_string()))?;
            if let Some(piece) = frame.data_ref() {
                file.write_all(piece).map_err(EngineError::io(what()))?;
            }
        }
        file.sync_all().map_err(EngineError::io(what()))
    }

    /// A torn copy would just end earlier, so nothing but the position proves that all of it is here.
    async fn replay_to(&self, end: Lsn) -> Result<(), EngineError> {
        let mut moved = (Lsn::default(), clock::now());
        loop {
            let replayed = self.snapshot().await?.replayed;
            if replayed >= end {
                return Ok(());
            }
            if replayed > moved.0 {
                moved = (replayed, clock::now());
            } else if clock::now().since(moved.1) > STANDSTILL_MILLIS {
                return Err(EngineError::Refused(format!(
                    "replay of the fetched log stands still at {replayed}, before {end}"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn silent(address: &str) -> EngineError {
    EngineError::Refused(format!("the agent at {address} is silent"))
}
