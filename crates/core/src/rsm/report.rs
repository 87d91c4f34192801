//! What a role report means: an Event that a probe made of a pod (rsm.md 4).
//!
//! Reports come late, doubled and out of order. The newest one about *this* pod wins: newest by microseconds as a number,
//! this pod by uid. A report about one pod never says anything about another of the same name.

use serde::Deserialize;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use super::roles::{self, AccessMode, Role};

/// Reason of an Event that a probe makes itself.
pub const CHECK_ROLE: &str = "checkRole";
/// Containers whose Events are role reports.
const PROBE_CONTAINERS: [&str; 4] = ["kb-role-probe", "kb-checkrole", "sqlchannel", "lorry"];
/// What the kubelet puts before the output of a readiness probe.
const READINESS_PREFIX: &str = "Readiness probe failed: ";

/// Whether an Event is about a role at all (rsm.md 4.1).
pub fn is_role_event(field_path: Option<&str>, reason: Option<&str>) -> bool {
    let container = field_path.and_then(|path| path.strip_prefix("spec.containers{")?.strip_suffix('}'));
    reason == Some(CHECK_ROLE) || container.is_some_and(|name| PROBE_CONTAINERS.contains(&name))
}

/// A role that a report gives to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Name of the pod; `None` means the pod that the Event is about.
    pub pod: Option<String>,
    /// uid of the pod, where the report knows it.
    pub uid: Option<String>,
    /// Name of the role, possibly empty.
    pub role: String,
    /// Version that the report itself carries; `None` means the time of the Event.
    pub version: Option<u64>,
    /// Number that the engine itself gives the claim, for example a term of an election: `leader 7`. It weighs more than
    /// any time.
    pub number: Option<u64>,
}

/// Reads the message of an Event. `None`: it says nothing about a role.
pub fn read(message: &str) -> Option<Vec<Claim>> {
    let body: Message = serde_json::from_str(message).ok().or_else(|| embedded(message))?;
    if body.event != "Success" && body.event != "roleChanged" {
        return None;
    }
    let role = body.role.trim();
    match serde_json::from_str::<Snapshot>(role) {
        Ok(snapshot) => Some(snapshot.claims()),
        Err(_) => {
            let (role, number) = numbered(role)?;
            Some(vec![Claim { pod: None, uid: None, role: role.to_owned(), version: None, number }])
        }
    }
}

/// `<role>` or `<role> <number>`; anything longer, or with something else for a number, is no report (rsm.md 4.4).
fn numbered(text: &str) -> Option<(&str, Option<u64>)> {
    let mut words = text.split_whitespace();
    let role = words.next().unwrap_or_default();
    match (words.next(), words.next()) {
        (None, _) => Some((role, None)),
        (Some(number), None) => Some((role, Some(number.parse().ok()?))),
        _ => None,
    }
}

/// The last brace block behind the kubelet's prefix.
fn embedded(message: &str) -> Option<Message> {
    let (_, output) = message.rsplit_once(READINESS_PREFIX)?;
    let end = output.rfind('}')?;
    let text = output.get(..=end)?;
    text.match_indices('{').find_map(|(at, _)| serde_json::from_str(text.get(at..)?).ok())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    #[serde(default)]
    event: String,
    #[serde(default)]
    role: String,
}

/// Roles of all pods as one member sees them.
#[derive(Deserialize)]
struct Snapshot {
    #[serde(default)]
    term: String,
    #[serde(alias = "podrolenamepairs", rename = "PodRoleNamePairs", default)]
    pairs: Vec<Pair>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pair {
    #[serde(alias = "podname", default)]
    pod_name: String,
    #[serde(alias = "rolename", default)]
    role_name: String,
    #[serde(alias = "poduid", default)]
    pod_uid: Option<String>,
}

impl Snapshot {
    fn claims(self) -> Vec<Claim> {
        let version = self.term.trim().parse().ok();
        let claim = |pair: Pair| Claim {
            pod: Some(pair.pod_name),
            uid: pair.pod_uid.filter(|uid| !uid.is_empty()),
            role: pair.role_name,
            version,
            number: None,
        };
        self.pairs.into_iter().filter(|pair| !pair.pod_name.is_empty()).map(claim).collect()
    }
}

/// A pod as the API server has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSeen {
    /// Its uid.
    pub uid: String,
    /// The version that was accepted last, as it is written on the pod.
    pub stored_version: Option<String>,
    /// The number of the engine that was accepted last, as it is written on the pod.
    pub stored_number: Option<String>,
    /// How new the claim was by which another pod took an exclusive role from it, as it is written on the pod.
    pub outranked: Option<String>,
    /// Its role label.
    pub role: Option<String>,
    /// Its access-mode label.
    pub access_mode: Option<String>,
}

impl PodSeen {
    /// How new what was accepted for it last is.
    pub fn newness(&self) -> Newness {
        let (version, number) = Newness::stored(self);
        Newness { version: version.unwrap_or_default(), number }
    }

    /// What another's claim is to be remembered by: the newest of those that took an exclusive role from it.
    fn outranked_by(&self, claim: Newness) -> Newness {
        self.outranked().filter(|before| !claim.is_newer_than(Some(before.version), before.number)).unwrap_or(claim)
    }

    fn outranked(&self) -> Option<Newness> {
        self.outranked.as_deref().and_then(|text| text.parse().ok())
    }
}

/// What to do with a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Set the labels to this declared role.
    Label {
        /// Name as declared.
        role: String,
        /// Its access mode.
        access_mode: AccessMode,
        /// How new it is, to be remembered.
        newness: Newness,
    },
    /// Take both labels away: the pod has no declared role.
    Clear {
        /// How new what the pod itself said last is, to be remembered.
        newness: Newness,
        /// The newer claim of another pod that took the exclusive role from it: what this one claimed of that role before
        /// is not believed afterwards (issues 782, 10087). It is no measure of anything else that this pod says of itself:
        /// members of one term share its number.
        outranked: Option<Newness>,
    },
    /// Nothing to do, for this reason.
    Ignore(Ignored),
}

/// Why a claim changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// It is about another pod of the same name.
    OtherPod,
    /// Something at least as new was accepted before.
    Stale,
}

/// How new a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newness {
    /// Microseconds.
    pub version: u64,
    /// The engine's own number, which decides where both have one.
    pub number: Option<u64>,
}

impl Newness {
    /// Of a claim without a number.
    pub fn at(version: u64) -> Newness {
        Newness { version, number: None }
    }

    /// Of what was accepted for a pod last. What is no number was written by nobody we know and never blocks (rsm.md 4.4).
    fn stored(pod: &PodSeen) -> (Option<u64>, Option<u64>) {
        let number = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<u64>().ok());
        (number(&pod.stored_version), number(&pod.stored_number))
    }

    /// Whether it is newer than what was accepted for `pod` last.
    fn beats(self, pod: &PodSeen) -> bool {
        let (version, number) = Newness::stored(pod);
        self.is_newer_than(version, number)
    }

    /// Once the engine's numbers were heard, a claim without one says nothing any more.
    fn is_newer_than(self, version: Option<u64>, number: Option<u64>) -> bool {
        match (self.number, number) {
            (Some(own), Some(stored)) => own > stored,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => version.is_none_or(|stored| self.version > stored),
        }
    }
}

/// As it is written on a pod: microseconds, and the engine's number behind them where there is one.
impl fmt::Display for Newness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        self.number.map_or(Ok(()), |number| write!(f, " {number}"))
    }
}

impl FromStr for Newness {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Newness, ParseIntError> {
        match text.split_once(' ') {
            Some((version, number)) => Ok(Newness { version: version.parse()?, number: Some(number.parse()?) }),
            None => Ok(Newness::at(text.parse()?)),
        }
    }
}

/// Decides on one claim about one pod. `uid` is what the report says of the pod's identity; `peers` are the other pods of
/// its set, of which only those count that have the same exclusive role.
///
/// A claim to an exclusive role that somebody else has by a newer one was true once: the pod has no role that is known.
pub fn judge(
    role: &str,
    uid: Option<&str>,
    newness: Newness,
    pod: &PodSeen,
    peers: &[PodSeen],
    declared: &[Role],
) -> Verdict {
    if uid != Some(pod.uid.as_str()) {
        return Verdict::Ignore(Ignored::OtherPod);
    }
    if !newness.beats(pod) {
        return Verdict::Ignore(Ignored::Stale);
    }
    let Some(role) = roles::find(declared, role.trim()) else { return Verdict::Clear { newness, outranked: None } };
    let outranked = pod.outranked().filter(|_| role.is_exclusive);
    if outranked.is_some_and(|by| !newness.is_newer_than(Some(by.version), by.number)) {
        return Verdict::Ignore(Ignored::Stale);
    }
    let newer = peers.iter().find(|peer| holds(role, peer) && !newness.beats(peer));
    match newer {
        Some(peer) => Verdict::Clear { newness, outranked: Some(pod.outranked_by(peer.newness())) },
        None => Verdict::Label { role: role.name.clone(), access_mode: role.access_mode, newness },
    }
}

/// What an accepted claim means for another pod of the set: that it has the exclusive role no longer. What it says of itself
/// otherwise counts by its own newness, also within the term of the claim.
pub fn yields(role: &str, newness: Newness, peer: &PodSeen, declared: &[Role]) -> Option<Verdict> {
    let role = roles::find(declared, role)?;
    (holds(role, peer) && newness.beats(peer)).then(|| outranked(peer, newness))
}

/// Takes an exclusive role from `pod`, since another claimed it by `newness`.
pub fn outranked(pod: &PodSeen, newness: Newness) -> Verdict {
    Verdict::Clear { newness: pod.newness(), outranked: Some(pod.outranked_by(newness)) }
}

fn holds(role: &Role, peer: &PodSeen) -> bool {
    role.is_exclusive && peer.role.as_deref().is_some_and(|held| role.is_called(held))
}

/// How new an Event is, in microseconds: its own time where it has one; else the kubelet's seconds, with the count to
/// tell Events of one second apart, since those carry no finer time.
pub fn version_of(event_time: Option<u64>, last_timestamp_seconds: Option<u64>, count: u32) -> u64 {
    match event_time {
        Some(micros) if micros > 0 => micros,
        _ => {
            last_timestamp_seconds.unwrap_or(0).saturating_mul(1_000_000).saturating_add(u64::from(count.min(999_999)))
        }
    }
}

#[cfg(test)]
mod tests;
