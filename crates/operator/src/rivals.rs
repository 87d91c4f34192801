//! Operators of another installation: the election of one namespace knows nothing of that of another. Of two that look
//! after the same clusters, perhaps in different versions, each would undo what the other renders, for ever; so that only
//! that of the first namespace by name works, and the other takes over when it falls silent. As advisory as any election
//! of operators: what they write is conditional anyway.

use crate::clock::Clock;
use crate::leader::{self, LEASE, Observed, Verdict};
use coregent_core::names::Monotonic;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often they are looked for.
const AGAIN: Duration = Duration::from_secs(2);
/// How long those that work and go after us are given to notice and to end what they have begun.
const NOTICED: Duration = Duration::from_secs(5);
/// No answer for so long: looked again.
const ANSWER: Duration = Duration::from_secs(1);

/// The other installations that were seen.
pub(crate) struct Rivals {
    all: Api<Lease>,
    namespace: String,
    clock: Clock,
    seen: BTreeMap<String, (String, Observed)>,
    said: Option<String>,
}

impl Rivals {
    pub(crate) fn new(client: &Client, namespace: &str, clock: Clock) -> Rivals {
        let all = Api::all(client.clone());
        Rivals { all, namespace: namespace.to_owned(), clock, seen: BTreeMap::new(), said: None }
    }

    /// Waits until no other goes first, for as long as this one leads at home; and until those that we go before have
    /// noticed, if there are any.
    pub(crate) async fn give_way(&mut self, lost: &CancellationToken, shutdown: &CancellationToken) {
        let mut others_know = false;
        loop {
            let pause = if self.goes_first().await.is_some() {
                AGAIN
            } else if !others_know
                && self.seen.iter().any(|(at, (_, seen))| *at != self.namespace && !seen.holder.is_empty())
            {
                others_know = true;
                NOTICED
            } else {
                return;
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = lost.cancelled() => return,
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// Ends when another goes first.
    pub(crate) async fn watch(mut self) {
        loop {
            tokio::time::sleep(AGAIN).await;
            if self.goes_first().await.is_some() {
                return;
            }
        }
    }

    /// Who works instead of us, if anybody does. Nobody as far as is known where the API does not say.
    async fn goes_first(&mut self) -> Option<String> {
        let only = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        let found = tokio::time::timeout(ANSWER, self.all.list(&only)).await.ok()?.ok()?;
        let now = self.clock.now();
        self.seen.retain(|namespace, _| found.iter().any(|lease| lease.namespace().as_ref() == Some(namespace)));
        for lease in found.iter().filter(|lease| leader::scope(lease).is_none()) {
            let (namespace, version) = (lease.namespace().unwrap_or_default(), lease.resource_version());
            let version = version.unwrap_or_default();
            if self.seen.get(&namespace).is_none_or(|(seen, _)| *seen != version) {
                let observed = Observed { holder: leader::holder(lease).to_owned(), since: now };
                self.seen.insert(namespace, (version, observed));
            }
        }
        let first = first(&self.namespace, self.seen.iter().map(|(at, (_, observed))| (at.as_str(), observed)), now);
        let first = first.map(|(namespace, holder)| format!("{namespace}/{holder}"));
        if first != self.said {
            match &first {
                Some(first) => tracing::warn!(
                    "another operator is installed in this cluster and works: {first}; this one waits. Remove one of the two: \
                     `kubectl get deployments -A -l app.kubernetes.io/name=coregent-operator` lists them"
                ),
                None => tracing::info!("no other operator goes first any more"),
            }
            self.said.clone_from(&first);
        }
        first
    }
}

/// The living one of the first namespace before ours.
fn first<'a>(
    ours: &str,
    seen: impl Iterator<Item = (&'a str, &'a Observed)>,
    now: Monotonic,
) -> Option<(&'a str, &'a str)> {
    let lives = |observed: &Observed| leader::evaluate("", Some(observed), now) == Verdict::Wait;
    seen.filter(|(namespace, observed)| *namespace < ours && !observed.holder.is_empty() && lives(observed))
        .min_by_key(|(namespace, _)| *namespace)
        .map(|(namespace, observed)| (namespace, observed.holder.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_living_operator_of_an_earlier_namespace_goes_first() {
        let of = |holder: &str, since: u64| Observed { holder: holder.into(), since: Monotonic(since) };
        let table = [
            (vec![("b", of("x", 99_000))], None),
            (vec![("m", of("x", 99_000))], None),
            (vec![("a", of("x", 99_000)), ("b", of("y", 99_000))], Some(("a", "x"))),
            (vec![("a", of("x", 94_000)), ("aa", of("y", 99_000))], Some(("aa", "y"))),
            (vec![("a", of("", 99_000))], None),
        ];
        for (seen, expected) in table {
            let all = seen.iter().map(|(namespace, observed)| (*namespace, observed));
            assert_eq!(first("b", all, Monotonic(100_000)), expected, "{seen:?}");
        }
    }
}
