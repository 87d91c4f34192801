//! The body of a watch that lags and breaks.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::watch;
use tokio::time::Sleep;

use super::{Dice, Drawn, Outage, Switch};

/// A connection that the other end has closed.
pub(super) fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection to the API broke")
}

struct Watch {
    inner: BodyDataStream,
    switch: watch::Receiver<Switch>,
    cuts: u64,
    life: Pin<Box<Sleep>>,
    dice: Dice,
    lag: Duration,
    broken: bool,
    _open: Arc<()>,
}

/// `body` until it breaks. Its pieces come late, in order.
pub(super) fn watch(body: Body, switch: watch::Receiver<Switch>, drawn: &Drawn, open: Arc<()>) -> Body {
    let cuts = switch.borrow().cuts;
    let watch = Watch {
        inner: body.into_data_stream(),
        switch,
        cuts,
        life: Box::pin(tokio::time::sleep(drawn.life.unwrap_or(FOR_EVER))),
        dice: Dice::new(drawn.seed),
        lag: drawn.lag,
        broken: false,
        _open: open,
    };
    Body::from_stream(futures::stream::unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((piece, watch))
    }))
}

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(400 * 24 * 3_600);

impl Watch {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.broken {
            return None;
        }
        let Watch { inner, switch, cuts, life, dice, lag, .. } = self;
        let late = dice.up_to(*lag);
        let piece = async {
            let piece = inner.next().await;
            tokio::time::sleep(late).await;
            piece
        };
        tokio::select! {
            biased;
            _ = switch.wait_for(|now| now.cuts != *cuts) => {}
            () = life => {}
            piece = piece => return piece.map(|piece| piece.map_err(io::Error::other)),
        }
        // A silent outage is noticed when it ends. The handle that switches outlives every client of a test.
        let _ = switch.wait_for(|now| now.outage != Some(Outage::Silent)).await;
        self.broken = true;
        // Half of the broken ones end as if the server had closed them.
        if self.dice.chance(500) { None } else { Some(Err(reset())) }
    }
}
