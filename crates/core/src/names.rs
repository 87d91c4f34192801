//! Names and numbers that must not be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The election round of one cluster: `spec.leaseTransitions` of its primary Lease (failover.md F1).
///
/// It only ever grows. The first epoch in which a member may be named is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The last epoch that there can be: `spec.leaseTransitions` is an i32.
    pub const LAST: Epoch = Epoch(i32::MAX as u64);

    /// The next epoch.
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A member of a cluster: the name of its instance (`orders-2`), which outlives its pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberName(pub String);

impl MemberName {
    /// Name of member `index` of `cluster`.
    pub fn of(cluster: &str, index: u32) -> MemberName {
        MemberName(format!("{cluster}-{index}"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&str> for MemberName {
    fn from(name: &str) -> Self {
        MemberName(name.to_owned())
    }
}

/// One run of one agent: `member/podUID/nonce`, the `holderIdentity` of a primary Lease (failover.md F1, F5).
///
/// A new agent process has a new nonce, so that nobody inherits what its predecessor held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HolderIdentity {
    /// The member.
    pub member: MemberName,
    /// `metadata.uid` of the pod that the agent runs in.
    pub pod_uid: String,
    /// Drawn anew by each agent process.
    pub nonce: String,
}

impl fmt::Display for HolderIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.member, self.pod_uid, self.nonce)
    }
}

impl std::str::FromStr for HolderIdentity {
    type Err = InvalidHolderIdentity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(member), Some(pod_uid), Some(nonce), None)
                if ![member, pod_uid, nonce].iter().any(|part| part.is_empty()) =>
            {
                Ok(HolderIdentity { member: member.into(), pod_uid: pod_uid.into(), nonce: nonce.into() })
            }
            _ => Err(InvalidHolderIdentity(text.to_owned())),
        }
    }
}

/// A holder identity that is not `member/podUID/nonce`. Whoever reads one treats the Lease as held by a stranger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the holder identity {0:?} is not member/podUID/nonce")]
pub struct InvalidHolderIdentity(pub String);

/// Milliseconds on the observer's own CLOCK_BOOTTIME. Never compared across machines (failover.md F2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// This instant plus `millis`.
    pub fn plus(self, millis: u64) -> Monotonic {
        Monotonic(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to this instant; 0 when `earlier` is later.
    pub fn since(self, earlier: Monotonic) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_identity_reads_back_what_it_prints_and_refuses_anything_else() {
        let text = "orders-2/2f1c/9a";
        assert_eq!(text.parse::<HolderIdentity>().map(|id| id.to_string()), Ok(text.to_owned()));
        for wrong in ["", "orders-2", "orders-2/uid", "orders-2//n", "a/b/c/d"] {
            assert!(wrong.parse::<HolderIdentity>().is_err(), "{wrong:?}");
        }
    }
}
