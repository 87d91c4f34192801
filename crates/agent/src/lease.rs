//! The primary Lease over the API: watched, and written on the resourceVersion that was decided on.

use crate::clock::Clock;
use coregent_core::fence;
use coregent_core::member::{LeaseWrite, Purpose};
use coregent_core::names::Monotonic;
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use std::pin::pin;
use std::time::Duration;

/// Silence after which the watch itself is doubted: a living holder renews every 1.5 s.
const SILENCE: Duration = Duration::from_secs(3);

/// What the watch has seen.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Read or changed; `asked` is the time before the request where it was a read.
    Lease { lease: Box<Lease>, asked: Option<Monotonic> },
    /// It does not exist.
    Absent,
    /// Nothing can be said about the time since the last answer (F2).
    Gap(String),
}

/// How a write ended.
#[derive(Debug)]
pub(crate) enum Written {
    Done(Box<Lease>),
    /// Somebody was faster; the state as read afterwards.
    Conflict(Option<Box<Lease>>, Monotonic),
    /// No answer, or a refusal: the write may have happened.
    Failed(String),
}

/// Reads and watches until `seen` says that nobody listens.
pub(crate) async fn watch(api: Api<Lease>, name: String, clock: Clock, request: Duration, seen: impl Fn(Seen) -> bool) {
    let mut pause = Duration::from_millis(50);
    loop {
        match follow(&api, &name, clock, request, &seen).await {
            Ok(true) => pause = Duration::from_millis(50),
            Ok(false) => return,
            Err(reason) => {
                if !seen(Seen::Gap(reason)) {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        }
    }
}

/// One read and the watch after it. `Ok(false)` when nobody listens any more.
async fn follow(
    api: &Api<Lease>,
    name: &str,
    clock: Clock,
    request: Duration,
    seen: &impl Fn(Seen) -> bool,
) -> Result<bool, String> {
    let (lease, revision) = read(api, name, clock, request, seen).await?;
    let Some(lease) = lease else {
        if !seen(Seen::Absent) {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        return Ok(true);
    };
    let mut version = lease.metadata.resource_version.unwrap_or_default();
    let parameters = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(240);
    let stream = tokio::time::timeout(request, api.watch(&parameters, &revision))
        .await
        .map_err(|_| "the watch was not answered".to_owned())?
        .map_err(|error| error.to_string())?;
    let mut stream = pin!(stream);
    loop {
        match tokio::time::timeout(SILENCE, stream.next()).await {
            Ok(Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)))) => {
                version = lease.metadata.resource_version.clone().unwrap_or_default();
                if !seen(Seen::Lease { lease: Box::new(lease), asked: None }) {
                    return Ok(false);
                }
            }
            Ok(Some(Ok(WatchEvent::Deleted(_)))) => return Ok(seen(Seen::Absent)),
            Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
            Ok(Some(Ok(WatchEvent::Error(status)))) => return Err(status.message),
            Ok(Some(Err(error))) => return Err(error.to_string()),
            Ok(None) => return Ok(true),
            Err(_) => {
                // Silent: either nobody renews, or the connection is dead and does not know it.
                let (read, _) = read(api, name, clock, request, seen).await?;
                if read.is_none_or(|lease| lease.metadata.resource_version.as_deref() != Some(&version)) {
                    return Ok(true);
                }
            }
        }
    }
}

/// Reads by listing: the collection's revision is of now, so that a watch can go on from it. The Lease's own may be older
/// than what the API keeps for watches: nobody writes it in a round, or while the API is away.
async fn read(
    api: &Api<Lease>,
    name: &str,
    clock: Clock,
    request: Duration,
    seen: &impl Fn(Seen) -> bool,
) -> Result<(Option<Lease>, String), String> {
    let asked = clock.now();
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = tokio::time::timeout(request, api.list(&only))
        .await
        .map_err(|_| "the API did not answer in time".to_owned())?
        .map_err(|error| error.to_string())?;
    let lease = found.items.into_iter().next();
    if let Some(lease) = &lease {
        seen(Seen::Lease { lease: Box::new(lease.clone()), asked: Some(asked) });
    }
    Ok((lease, found.metadata.resource_version.unwrap_or_default()))
}

/// Writes a decision onto the state that it was decided on.
pub(crate) async fn write(
    api: Api<Lease>,
    base: Lease,
    me: String,
    write: LeaseWrite,
    clock: Clock,
    request: Duration,
) -> Written {
    let name = base.metadata.name.clone().unwrap_or_default();
    let next = changed(base, &me, &write);
    let sent = tokio::time::timeout(request, api.replace(&name, &PostParams::default(), &next)).await;
    match sent {
        Ok(Ok(lease)) => Written::Done(Box::new(lease)),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
            let asked = clock.now();
            match tokio::time::timeout(request, api.get_opt(&name)).await {
                Ok(Ok(lease)) => Written::Conflict(lease.map(Box::new), asked),
                _ => Written::Failed("a conflict, and the read after it failed".to_owned()),
            }
        }
        Ok(Err(error)) => Written::Failed(error.to_string()),
        Err(_) => Written::Failed("the API did not answer in time".to_owned()),
    }
}

fn changed(mut lease: Lease, me: &str, write: &LeaseWrite) -> Lease {
    let now = MicroTime(jiff::Timestamp::now());
    let spec = lease.spec.get_or_insert_default();
    match write.purpose {
        Purpose::Take => {
            spec.holder_identity = Some(me.to_owned());
            spec.acquire_time = Some(now.clone());
        }
        Purpose::Renew => {}
        Purpose::Release => spec.holder_identity = None,
    }
    spec.renew_time = Some(now);
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(fence::ANNOTATION.to_owned(), write.fence.to_annotation());
    lease
}

#[cfg(test)]
mod tests {
    use super::*;
    use coregent_apiserver::{ApiServer, Options};
    use kube::api::DeleteParams;
    use tokio::sync::mpsc;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn named(name: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = Some(name.to_owned());
        lease
    }

    fn write(purpose: Purpose) -> LeaseWrite {
        LeaseWrite { purpose, fence: fence::Fence::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_older_than_the_history_of_the_api_is_watched_without_a_gap() -> Outcome {
        let server = ApiServer::open(Options { history: 1, ..Options::default() }).await?;
        let leases: Api<Lease> = Api::namespaced(server.client(), "default");
        let lease = leases.create(&PostParams::default(), &named("orders-primary")).await?;
        for _ in 0..3 {
            leases.create(&PostParams::default(), &named("another")).await?;
            leases.delete("another", &DeleteParams::default()).await?;
        }
        let (sender, mut seen) = mpsc::unbounded_channel();
        let clock = Clock::Runtime(tokio::time::Instant::now());
        let watching = watch(leases.clone(), "orders-primary".to_owned(), clock, Duration::from_secs(1), move |what| {
            sender.send(what).is_ok()
        });
        let watching = tokio::spawn(watching);
        assert!(matches!(seen.recv().await, Some(Seen::Lease { asked: Some(_), .. })));
        let taken = changed(lease, "orders-1/uid/nonce", &write(Purpose::Take));
        leases.replace("orders-primary", &PostParams::default(), &taken).await?;
        let next = seen.recv().await;
        assert!(matches!(next, Some(Seen::Lease { asked: None, .. })), "{next:?}");
        watching.abort();
        Ok(())
    }
}
