//! The layer itself.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use tower::{Layer, Service, ServiceExt};

use super::body::{self, reset};
use super::{Asked, Drawn, Fault, Faults, Outage};

/// Answers of each list that are kept.
const KEPT: usize = 4;

/// Earlier answers of lists, by what was asked.
#[derive(Default)]
pub(super) struct Earlier(BTreeMap<String, VecDeque<Bytes>>);

impl Earlier {
    fn keep(&mut self, what: String, answer: Bytes) {
        let answers = self.0.entry(what).or_default();
        answers.push_back(answer);
        if answers.len() > KEPT {
            answers.pop_front();
        }
    }
}

/// Puts faults around a service that answers as the API does.
#[derive(Clone)]
pub struct FaultLayer {
    pub(super) faults: Faults,
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> FaultService<S> {
        FaultService { inner, faults: self.faults.clone() }
    }
}

/// A service with faults.
#[derive(Clone)]
pub struct FaultService<S> {
    inner: S,
    faults: Faults,
}

impl<S, B> Service<Request<B>> for FaultService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (inner, faults) = (self.inner.clone(), self.faults.clone());
        Box::pin(async move { faults.carry(inner, request.map(Body::new)).await })
    }
}

impl Faults {
    async fn carry<S>(&self, inner: S, request: Request<Body>) -> std::io::Result<Response<Body>>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
        S::Future: Send,
    {
        let asked = Asked::new(request.method(), request.uri());
        let drawn = self.draw(&asked);
        tokio::time::sleep(drawn.there).await;
        self.passable().await?;
        match drawn.fault {
            Some(Fault::Refused) => return Err(reset()),
            Some(Fault::Swallowed) => std::future::pending().await,
            Some(Fault::Status(code)) => return Ok(self.late(&drawn, refusal(code)).await),
            Some(Fault::Forbidden(why)) => return Ok(self.late(&drawn, status(403, "Forbidden", why)).await),
            Some(Fault::Busy { code, after }) => {
                let mut answer = refusal(code);
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after));
                return Ok(self.late(&drawn, answer).await);
            }
            Some(Fault::Conflict) => return Ok(self.late(&drawn, refusal(409)).await),
            Some(Fault::Stale) => {
                if let Some(answer) = self.earlier(&asked, drawn.seed) {
                    return Ok(self.late(&drawn, json_response(StatusCode::OK, answer)).await);
                }
            }
            Some(Fault::AnswerLost | Fault::Unanswered) | None => {}
        }
        let answer = match inner.oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        if asked.is_write() {
            self.journal.wrote(&self.name, &asked, answer.status().as_u16());
        }
        tokio::time::sleep(drawn.back).await;
        match drawn.fault {
            Some(Fault::AnswerLost) => return Err(reset()),
            Some(Fault::Unanswered) => std::future::pending().await,
            _ => {}
        }
        // Carried out, and the answer does not get through: the worst moment for an outage to begin.
        self.passable().await?;
        if asked.is_watch() {
            let (switch, open) = (self.switch.subscribe(), self.begin_watch());
            return Ok(answer.map(|body| body::watch(body, switch, &drawn, open)));
        }
        self.remember(&asked, answer).await
    }

    /// Waits out a silent outage; an error when the API was or is away.
    async fn passable(&self) -> std::io::Result<()> {
        let mut switch = self.switch.subscribe();
        let outage = switch.borrow().outage;
        match outage {
            None => Ok(()),
            Some(Outage::Refused) => Err(reset()),
            Some(Outage::Silent) => {
                // This handle keeps the sender, so that waiting ends only by a change.
                let _ = switch.wait_for(|now| now.outage != Some(Outage::Silent)).await;
                Err(reset())
            }
        }
    }

    async fn late(&self, drawn: &Drawn, answer: Response<Body>) -> Response<Body> {
        tokio::time::sleep(drawn.back).await;
        answer
    }

    /// Keeps what a list was answered, for later.
    async fn remember(&self, asked: &Asked, answer: Response<Body>) -> std::io::Result<Response<Body>> {
        if !asked.is_list() || answer.status() != StatusCode::OK || self.lock().odds.stale == 0 {
            return Ok(answer);
        }
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        self.lock().earlier.keep(what(asked), bytes.clone());
        Ok(Response::from_parts(parts, Body::from(bytes)))
    }

    fn earlier(&self, asked: &Asked, seed: u64) -> Option<Bytes> {
        let state = self.lock();
        let answers = state.earlier.0.get(&what(asked))?;
        let at = usize::try_from(seed % answers.len().max(1) as u64).ok()?;
        answers.get(at).cloned()
    }
}

fn what(asked: &Asked) -> String {
    format!("{asked}?{}", asked.query)
}

/// An answer of the API that says no.
fn refusal(code: u16) -> Response<Body> {
    let (reason, message) = match code {
        409 => ("Conflict", "the object has been modified; please apply your changes to the latest version"),
        429 => ("TooManyRequests", "too many requests, please try again later"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        _ => ("InternalError", "an error on the server has prevented the request from succeeding"),
    };
    status(code, reason, message)
}

fn status(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_response(code, status.to_string().into())
}

fn json_response(code: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
