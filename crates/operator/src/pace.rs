//! An API server that answers 429 or 503 with `Retry-After` is left alone for so long, by everything that goes through this
//! client: controllers begin again on their own, each with a wait of its own that knows nothing of what the server asked.

use http::{Request, Response, StatusCode, header};
use kube::client::Body;
use kube::core::Status;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};
use tower::{BoxError, Layer, Service};

/// So long a request waits by itself. One that would have to wait longer is answered at once, without being sent, so that
/// whoever asked can say what it waits for.
const WAITS: Duration = Duration::from_secs(2);
/// A server that asks for more is asked again after this.
const LONGEST: Duration = Duration::from_secs(60);

/// Puts a pace around a client's service; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    not_before: Arc<Mutex<Option<Instant>>>,
}

impl<S> Layer<S> for Pace {
    type Service = Paced<S>;

    fn layer(&self, inner: S) -> Paced<S> {
        Paced { inner, pace: self.clone(), waits: None }
    }
}

/// See [`Pace`].
pub struct Paced<S> {
    inner: S,
    pace: Pace,
    waits: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    fn left(&self) -> Duration {
        let not_before = *self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
    }

    fn heed<B>(&self, answer: &Response<B>) {
        let asks = matches!(answer.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let seconds = answer.headers().get(header::RETRY_AFTER).filter(|_| asks);
        let Some(seconds) = seconds.and_then(|value| value.to_str().ok()?.trim().parse().ok()) else { return };
        let at = Instant::now() + Duration::from_secs(seconds).min(LONGEST);
        let mut not_before = self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        *not_before = Some(not_before.map_or(at, |before| before.max(at)));
    }

    /// What the server would answer.
    fn refusal(left: Duration) -> kube::Error {
        let message = format!("the API server asked for no request for another {} s", left.as_secs() + 1);
        let reason = "TooManyRequests".to_owned();
        kube::Error::Api(Box::new(Status { code: 429, reason, message, ..Status::default() }))
    }
}

impl<S, B> Service<Request<Body>> for Paced<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            if let Some(waits) = &mut self.waits {
                ready!(waits.as_mut().poll(context));
                self.waits = None;
            }
            // Another answer may have put it off meanwhile.
            match self.pace.left() {
                left if left > Duration::ZERO && left <= WAITS => self.waits = Some(Box::pin(sleep(left))),
                _ => return self.inner.poll_ready(context).map_err(Into::into),
            }
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (pace, left) = (self.pace.clone(), self.pace.left());
        if left > WAITS {
            return Box::pin(async move { Err(BoxError::from(Pace::refusal(left))) });
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into)?;
            pace.heed(&answer);
            Ok(answer)
        })
    }
}
