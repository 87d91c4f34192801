//! Leases, with what only their observer knows: since when nothing has renewed them (failover.md F2).

use super::cache::{Change, Key, Ours, key_of, version_of};
use coregent_core::names::Monotonic;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};

/// A Lease as it was received.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) lease: Lease,
    /// When the last change that a holder made was received.
    pub(super) renewed: Monotonic,
    /// When the last change of any kind was received.
    pub(super) changed: Monotonic,
    /// The same, where what was received first was changed since: that may have been of any age.
    pub(super) moved: Option<Monotonic>,
    /// When this epoch was first seen, and at which resourceVersion.
    pub(super) epoch_since: Monotonic,
    pub(super) epoch_version: u64,
}

#[derive(Default)]
pub(super) struct Leases {
    leases: BTreeMap<Key, Tracked>,
    ours: Ours,
}

impl Leases {
    pub(super) fn get(&self, key: &Key) -> Option<&Tracked> {
        self.leases.get(key)
    }

    pub(super) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Tracked> {
        self.leases.iter().filter(move |((of, _), _)| of == namespace).map(|(_, tracked)| tracked)
    }

    /// Takes in the answer of a write of ours.
    pub(super) fn wrote(&mut self, lease: Lease, now: Monotonic) {
        let (key, version) = (key_of(&lease), version_of(&lease));
        self.put(lease, now, false);
        if self.leases.get(&key).is_some_and(|held| version_of(&held.lease) == version) {
            self.ours.wrote(key);
        }
    }

    /// Takes in what was read while version `before` was held.
    pub(super) fn read(&mut self, lease: Lease, before: Option<u64>, now: Monotonic) {
        let held = self.leases.get(&key_of(&lease)).map(|held| version_of(&held.lease));
        self.put(lease, now, held.is_some() && held == before);
    }

    fn put(&mut self, lease: Lease, now: Monotonic, replaces: bool) {
        let key = key_of(&lease);
        let version = version_of(&lease);
        let Some(held) = self.leases.get_mut(&key).filter(|held| held.lease.uid() == lease.uid()) else {
            let tracked =
                Tracked { lease, renewed: now, changed: now, moved: None, epoch_since: now, epoch_version: version };
            self.leases.insert(key, tracked);
            return;
        };
        let same = version_of(&held.lease) == version;
        if same || (version_of(&held.lease) > version && !replaces) {
            return;
        }
        // `renewTime` is compared with itself, never with a clock. A raise of ours renews nothing.
        if mark(&held.lease) != mark(&lease) {
            held.renewed = now;
        }
        if epoch(&held.lease) != epoch(&lease) {
            held.epoch_since = now;
            held.epoch_version = version;
        }
        held.changed = now;
        held.moved = Some(now);
        held.lease = lease;
    }

    pub(super) fn take(&mut self, change: Change<Lease>, now: Monotonic, mut touched: impl FnMut(&Lease)) {
        match change {
            Change::Listing => self.ours.list_begins(),
            Change::Applied(lease) => {
                touched(&lease);
                self.put(lease, now, false);
            }
            Change::Deleted(lease) => {
                touched(&lease);
                let key = key_of(&lease);
                if self.leases.get(&key).is_some_and(|held| held.lease.uid() == lease.uid()) {
                    self.leases.remove(&key);
                }
            }
            Change::Listed(leases) => {
                let ours = self.ours.list_ends();
                let listed: BTreeSet<Key> = leases.iter().map(key_of).collect();
                self.leases.retain(|key, held| {
                    let kept = listed.contains(key) || ours.contains(key);
                    if !kept {
                        touched(&held.lease);
                    }
                    kept
                });
                for lease in leases {
                    touched(&lease);
                    let replaces = !ours.contains(&key_of(&lease));
                    self.put(lease, now, replaces);
                }
                self.start_anew(now);
            }
            Change::Broken => self.start_anew(now),
        }
    }

    /// After a gap nothing is known about what happened in it: the duration is counted anew (F2).
    fn start_anew(&mut self, now: Monotonic) {
        for held in self.leases.values_mut() {
            held.renewed = now;
        }
    }
}

/// What a renewal changes.
fn mark(lease: &Lease) -> Option<(Option<&str>, Option<i64>)> {
    let spec = lease.spec.as_ref()?;
    let renewed = spec.renew_time.as_ref().map(|time| time.0.as_microsecond());
    Some((spec.holder_identity.as_deref(), renewed))
}

/// `spec.leaseTransitions`.
pub(super) fn epoch(lease: &Lease) -> u64 {
    lease.spec.as_ref().and_then(|spec| spec.lease_transitions).and_then(|epoch| u64::try_from(epoch).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use kube::core::ObjectMeta;

    fn lease(version: u64, renewed: i64, epoch: i32) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some("orders-primary".into()),
                namespace: Some("default".into()),
                uid: Some("u".into()),
                resource_version: Some(version.to_string()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some("orders-1/p/n".into()),
                lease_transitions: Some(epoch),
                renew_time: jiff::Timestamp::from_microsecond(renewed).ok().map(MicroTime),
                ..LeaseSpec::default()
            }),
        }
    }

    fn key() -> Key {
        ("default".into(), "orders-primary".into())
    }

    #[test]
    fn a_raise_of_the_controller_does_not_count_as_a_renewal_of_the_holder() {
        let mut leases = Leases::default();
        leases.put(lease(1, 1, 1), Monotonic(100), false);
        leases.put(lease(2, 1, 2), Monotonic(5_000), false);
        let held = leases.get(&key()).unwrap();
        assert_eq!((held.renewed, held.epoch_since, held.epoch_version), (Monotonic(100), Monotonic(5_000), 2));
        leases.put(lease(3, 2, 2), Monotonic(6_000), false);
        assert_eq!(leases.get(&key()).unwrap().renewed, Monotonic(6_000));
    }

    #[test]
    fn a_gap_of_the_watch_starts_the_count_anew() {
        let mut leases = Leases::default();
        leases.put(lease(1, 1, 1), Monotonic(100), false);
        leases.take(Change::Broken, Monotonic(7_000), |_| ());
        assert_eq!(leases.get(&key()).unwrap().renewed, Monotonic(7_000));
    }

    #[test]
    fn what_is_found_has_not_moved_until_it_changes_and_a_renewal_counts_whatever_clock_wrote_it() {
        let mut leases = Leases::default();
        leases.take(Change::Listed(vec![lease(1, 500, 1)]), Monotonic(100), |_| ());
        assert_eq!(leases.get(&key()).unwrap().moved, None);
        leases.take(Change::Listed(vec![lease(1, 500, 1)]), Monotonic(900), |_| ());
        assert_eq!(leases.get(&key()).unwrap().moved, None, "a gap moves nothing");
        // The next holder's clock is 5 s behind.
        leases.put(lease(2, 500 - 5_000_000, 1), Monotonic(1_000), false);
        let held = leases.get(&key()).unwrap();
        assert_eq!((held.moved, held.renewed), (Some(Monotonic(1_000)), Monotonic(1_000)));
    }

    #[test]
    fn an_older_version_that_arrives_late_changes_nothing() {
        let mut leases = Leases::default();
        leases.put(lease(5, 5, 2), Monotonic(100), false);
        leases.put(lease(4, 4, 1), Monotonic(200), false);
        let held = leases.get(&key()).unwrap();
        assert_eq!((epoch(&held.lease), held.renewed), (2, Monotonic(100)));
    }

    #[test]
    fn a_list_replaces_a_lease_that_is_newer_by_its_version_unless_we_wrote_it_meanwhile() {
        for (written, expected) in [(None, 1), (Some(lease(9, 9, 4)), 4)] {
            let mut leases = Leases::default();
            leases.put(lease(8, 8, 3), Monotonic(100), false);
            leases.take(Change::Listing, Monotonic(150), |_| ());
            if let Some(written) = written {
                leases.wrote(written, Monotonic(160));
            }
            leases.take(Change::Listed(vec![lease(2, 2, 1)]), Monotonic(200), |_| ());
            assert_eq!(leases.get(&key()).map(|held| epoch(&held.lease)), Some(expected));
        }
    }
}
