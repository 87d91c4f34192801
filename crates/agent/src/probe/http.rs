//! JSON over HTTP/1.1 to one address, on one kept connection.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::HandlerError;

/// More than any answer about membership is long.
const LONGEST_ANSWER: usize = 1024 * 1024;
/// Silence after which the other side is given up.
const SILENCE: Duration = Duration::from_secs(5);

/// A kept connection; it is opened anew after whatever went wrong.
#[derive(Debug)]
pub(crate) struct Http {
    address: String,
    kept: Option<SendRequest<Full<Bytes>>>,
}

impl Http {
    /// To `host:port`; nothing is opened yet.
    pub(crate) fn new(address: String) -> Http {
        Http { address, kept: None }
    }

    /// `POST` of `body` to `path`.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Result<Value, HandlerError> {
        let answer = timeout(SILENCE, self.try_post(path, body)).await;
        let answer = answer.unwrap_or_else(|_| Err(HandlerError::Silent { address: self.address.clone() }));
        // Whatever is left of a failed request on the connection is not to be taken for the next answer.
        if !matches!(answer, Ok(_) | Err(HandlerError::Refused { .. })) {
            self.kept = None;
        }
        answer
    }

    async fn try_post(&mut self, path: &str, body: &Value) -> Result<Value, HandlerError> {
        let unreadable = |why: String| HandlerError::Unreadable { address: self.address.clone(), why };
        let request = Request::post(path)
            .header(HOST, &self.address)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|error| unreadable(error.to_string()))?;
        let mut sender = match self.kept.take().filter(|kept| !kept.is_closed()) {
            Some(kept) => kept,
            None => connect(&self.address).await?,
        };
        let gone = |error: hyper::Error| HandlerError::Unreachable {
            address: self.address.clone(),
            source: std::io::Error::other(error),
        };
        sender.ready().await.map_err(gone)?;
        let answer = sender.send_request(request).await.map_err(gone)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| unreadable(error.to_string()))?.to_bytes();
        let json: Result<Value, _> = serde_json::from_slice(&body);
        self.kept = Some(sender);
        match (status, json) {
            (StatusCode::OK, Ok(json)) => Ok(json),
            (StatusCode::OK, Err(error)) => Err(unreadable(error.to_string())),
            (status, json) => {
                let said = json.ok().and_then(|json| Some(json.get("message")?.as_str()?.to_owned()));
                let message = said.unwrap_or_else(|| String::from_utf8_lossy(&body).chars().take(200).collect());
                Err(HandlerError::Refused { code: status.as_u16(), message })
            }
        }
    }
}

async fn connect(address: &str) -> Result<SendRequest<Full<Bytes>>, HandlerError> {
    let unreachable = |source| HandlerError::Unreachable { address: address.to_owned(), source };
    let stream = TcpStream::connect(address).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let (sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(std::io::Error::other(error)))?;
    tokio::spawn(async move {
        // What goes wrong with it is seen by the request that waits for it.
        let _ = connection.await;
    });
    Ok(sender)
}
