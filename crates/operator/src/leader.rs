//! Leader election of the operator: advisory (failover.md F1). Two leaders would be a nuisance, not a danger: every
//! step carries the version it was decided on, and the Lease of the cluster is where a deposed leader fails.

use coregent_api::annotations;
use coregent_core::names::Monotonic;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// Name of the operator's own Lease.
pub const LEASE: &str = "coregent-operator";
/// No longer than the Lease of a cluster: the leader may be on the very node that is lost with a primary.
const DURATION: u64 = crate::LEASE_DURATION;
const RENEW: Duration = Duration::from_secs(1);
/// No answer for so long: a candidate asks again.
const ANSWER: Duration = Duration::from_secs(3);
/// A leader that could not renew for so long stops by itself, before another may begin: a last pause and a last request
/// still fit in.
const STOP: u64 = 4_000;

/// What is known of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Who holds it.
    pub holder: String,
    /// Since when it has not changed, on our clock.
    pub since: Monotonic,
}

/// What to do about the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Make ourselves the holder.
    Take,
    /// It is ours: renew.
    Renew,
    /// It is another's, who may be alive.
    Wait,
}

/// Judges the Lease. Pure; the holder's clock plays no part in it.
#[must_use]
pub fn evaluate(me: &str, observed: Option<&Observed>, now: Monotonic) -> Verdict {
    match observed {
        None => Verdict::Take,
        Some(observed) if observed.holder == me => Verdict::Renew,
        Some(observed) if observed.holder.is_empty() => Verdict::Take,
        Some(observed) if now.since(observed.since) >= DURATION => Verdict::Take,
        Some(_) => Verdict::Wait,
    }
}

/// Waits until this process leads; then returns a token that is cancelled when it no longer does. On `shutdown` the Lease is
/// given back by [`Leadership::resign`], once the work has been drained.
pub(crate) async fn lead(
    client: &Client,
    namespace: &str,
    options: &crate::Options,
    clock: Clock,
    shutdown: &CancellationToken,
) -> Option<Leadership> {
    let api = Api::namespaced(client.clone(), namespace);
    let mut seat = Seat { api, me: options.identity.clone(), scope: options.namespace.clone(), clock, seen: None };
    loop {
        if shutdown.is_cancelled() {
            return None;
        }
        // An answer that is lost on the way must not keep the only candidate waiting for the client's own limit of minutes.
        if tokio::time::timeout(ANSWER, seat.step()).await == Ok(Some(true)) {
            let lost = CancellationToken::new();
            let task = tokio::spawn(keep(seat.clone(), lost.clone(), shutdown.clone()));
            return Some(Leadership { lost, seat, task });
        }
        tokio::select! {
            () = tokio::time::sleep(RENEW) => {}
            () = shutdown.cancelled() => return None,
        }
    }
}

/// A leadership that has begun.
pub(crate) struct Leadership {
    pub(crate) lost: CancellationToken,
    seat: Seat,
    task: tokio::task::JoinHandle<()>,
}

impl Leadership {
    /// Gives the Lease back, so that the next leader need not wait for it to run out.
    pub(crate) async fn resign(self) {
        self.task.abort();
        let give_back = async {
            let Ok(Some(mut lease)) = self.seat.api.get_opt(LEASE).await else { return };
            if holder(&lease) == self.seat.me {
                lease.spec.get_or_insert_default().holder_identity = None;
                let _ = self.seat.api.replace(LEASE, &PostParams::default(), &lease).await;
            }
        };
        // Not given back, it runs out.
        let _ = tokio::time::timeout(ANSWER, give_back).await;
    }
}

#[derive(Clone)]
struct Seat {
    api: Api<Lease>,
    me: String,
    scope: Option<String>,
    clock: Clock,
    seen: Option<(String, Observed)>,
}

impl Seat {
    /// One look and, where it is called for, one write. Whether we lead; `None` when the API does not say.
    async fn step(&mut self) -> Option<bool> {
        let found = self.api.get_opt(LEASE).await.ok()?;
        let now = self.clock.now();
        let observed = found.as_ref().map(|lease| {
            let version = lease.resource_version().unwrap_or_default();
            match &self.seen {
                Some((seen, observed)) if *seen == version => observed.clone(),
                _ => {
                    let observed = Observed { holder: holder(lease).to_owned(), since: now };
                    self.seen = Some((version, observed.clone()));
                    observed
                }
            }
        });
        match evaluate(&self.me, observed.as_ref(), now) {
            Verdict::Wait => Some(false),
            Verdict::Take | Verdict::Renew => Some(self.write(found).await),
        }
    }

    async fn write(&self, found: Option<Lease>) -> bool {
        let now = Some(MicroTime(jiff::Timestamp::now()));
        let is_new = found.is_none();
        let mut lease = found.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec::default()),
        });
        let changes_hands = holder(&lease) != self.me;
        let notes = lease.annotations_mut();
        notes.insert(annotations::OPERATOR_VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        match &self.scope {
            Some(scope) => notes.insert(annotations::OPERATOR_SCOPE.to_owned(), scope.clone()),
            None => notes.remove(annotations::OPERATOR_SCOPE),
        };
        let spec = lease.spec.get_or_insert_default();
        if changes_hands {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
            spec.acquire_time = now.clone();
        }
        spec.holder_identity = Some(self.me.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION / 1_000).ok();
        spec.renew_time = now;
        let params = PostParams::default();
        if is_new {
            self.api.create(&params, &lease).await.is_ok()
        } else {
            self.api.replace(LEASE, &params, &lease).await.is_ok()
        }
    }
}

async fn keep(mut seat: Seat, lost: CancellationToken, shutdown: CancellationToken) {
    let mut renewed = seat.clock.now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(RENEW) => {}
            () = shutdown.cancelled() => return,
        }
        let asked = seat.clock.now();
        match tokio::time::timeout(RENEW, seat.step()).await {
            Ok(Some(true)) => renewed = asked,
            Ok(Some(false)) => break,
            _ if seat.clock.now().since(renewed) >= STOP => break,
            _ => {}
        }
    }
    lost.cancel();
}

/// The one namespace that the operator of this Lease looks after, if it does not look after all.
pub(crate) fn scope(lease: &Lease) -> Option<&str> {
    lease.annotations().get(annotations::OPERATOR_SCOPE).map(String::as_str)
}

pub(crate) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_was_watched_without_a_change_for_its_whole_duration() {
        let of = |holder: &str, since: u64| Observed { holder: holder.into(), since: Monotonic(since) };
        let table = [
            (None, 5, Verdict::Take),
            (Some(of("", 5)), 5, Verdict::Take),
            (Some(of("me", 1)), 50_000, Verdict::Renew),
            (Some(of("other", 1_000)), 6_999, Verdict::Wait),
            (Some(of("other", 1_000)), 7_000, Verdict::Take),
        ];
        for (observed, now, expected) in table {
            assert_eq!(evaluate("me", observed.as_ref(), Monotonic(now)), expected, "{observed:?} at {now}");
        }
    }
}
