//! What a role report means: an Event that a probe made of a pod (rsm.md 4).
//!
//! Reports come late, doubled and out of order. The newest one about *this* pod wins: newest by microseconds as a number,
//! this pod by uid. A report about one pod never says anything about another of the same name.

use serde::Deserialize;

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
        Err(_) => Some(vec![Claim { pod: None, uid: None, role: role.to_owned(), version: None }]),
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
    /// Its role label.
    pub role: Option<String>,
    /// Its access-mode label.
    pub access_mode: Option<String>,
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
        /// Version to remember.
        version: u64,
    },
    /// Take both labels away: the pod has no declared role.
    Clear {
        /// Version to remember.
        version: u64,
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

/// Decides on one claim about one pod. `uid` is what the report says of the pod's identity, `version` how new it is in
/// microseconds.
pub fn judge(role: &str, uid: Option<&str>, version: u64, pod: &PodSeen, declared: &[Role]) -> Verdict {
    if uid != Some(pod.uid.as_str()) {
        return Verdict::Ignore(Ignored::OtherPod);
    }
    // A stored version that is no number was written by nobody we know and never blocks (rsm.md 4.4).
    let stored = pod.stored_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    if stored.is_some_and(|stored| version <= stored) {
        return Verdict::Ignore(Ignored::Stale);
    }
    match roles::find(declared, role.trim()) {
        Some(role) => Verdict::Label { role: role.name.clone(), access_mode: role.access_mode, version },
        None => Verdict::Clear { version },
    }
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn declared() -> Vec<Role> {
        let role = |name: &str, access_mode, is_leader| Role {
            name: name.to_owned(),
            access_mode,
            can_vote: true,
            is_leader,
            is_exclusive: is_leader,
        };
        vec![role("Leader", AccessMode::ReadWrite, true), role("follower", AccessMode::Readonly, false)]
    }

    fn plain(role: &str) -> Option<Vec<Claim>> {
        Some(vec![Claim { pod: None, uid: None, role: role.to_owned(), version: None }])
    }

    #[test]
    fn messages() {
        let cases = [
            (r#"{"event":"Success","originalRole":"","role":"leader"}"#, plain("leader")),
            (
                r#"Readiness probe failed: error: health rpc failed: {"event":"Success","role":"LEADER"}"#,
                plain("LEADER"),
            ),
            (r#"Readiness probe failed: {x} {"event":"Success","role":"follower"} tail"#, plain("follower")),
            (r#"{"event":"roleChanged","role":""}"#, plain("")),
            (r#"{"event":"Failed","role":"leader"}"#, None),
            (r#"{"event":"Success","role":"lea"#, None),
            ("Readiness probe failed: connection refused", None),
            ("", None),
            ("\u{0}{{{{", None),
        ];
        for (message, expected) in cases {
            assert_eq!(read(message), expected, "{message}");
        }
    }

    #[test]
    fn a_snapshot_names_every_pod_itself() {
        let text = r#"{"event":"Success","role":"{\"term\":\"7\",\"PodRoleNamePairs\":[{\"podName\":\"a-0\",\"roleName\":\"leader\",\"podUid\":\"u0\"},{\"podname\":\"a-1\",\"rolename\":\"follower\"}]}"}"#;
        let claims = read(text).unwrap();
        assert_eq!(
            claims,
            [
                Claim { pod: Some("a-0".into()), uid: Some("u0".into()), role: "leader".into(), version: Some(7) },
                Claim { pod: Some("a-1".into()), uid: None, role: "follower".into(), version: Some(7) },
            ]
        );
    }

    #[test]
    fn events_of_other_containers_are_not_role_events() {
        assert!(is_role_event(Some("spec.containers{kb-role-probe}"), None));
        assert!(is_role_event(None, Some("checkRole")));
        assert!(!is_role_event(Some("spec.containers{postgresql}"), Some("Unhealthy")));
        assert!(!is_role_event(None, None));
    }

    #[test]
    fn a_report_of_the_predecessor_says_nothing_about_the_pod() {
        let pod = PodSeen { uid: "new".into(), ..PodSeen::default() };
        assert_eq!(judge("leader", Some("old"), 9, &pod, &declared()), Verdict::Ignore(Ignored::OtherPod));
        assert_eq!(judge("leader", None, 9, &pod, &declared()), Verdict::Ignore(Ignored::OtherPod));
    }

    #[test]
    fn a_role_is_labelled_as_declared_and_an_unknown_one_cleared() {
        let pod =
            PodSeen { uid: "u".into(), stored_version: Some("2026-11-30T00:00:00Z".into()), ..PodSeen::default() };
        assert_eq!(
            judge("LEADER", Some("u"), 1, &pod, &declared()),
            Verdict::Label { role: "Leader".into(), access_mode: AccessMode::ReadWrite, version: 1 }
        );
        assert_eq!(judge("candidate", Some("u"), 1, &pod, &declared()), Verdict::Clear { version: 1 });
        assert_eq!(judge("", Some("u"), 1, &pod, &declared()), Verdict::Clear { version: 1 });
    }

    #[test]
    fn a_longer_number_is_newer_than_a_shorter_one() {
        let pod = PodSeen { uid: "u".into(), stored_version: Some("999".into()), ..PodSeen::default() };
        assert!(matches!(judge("leader", Some("u"), 1000, &pod, &declared()), Verdict::Label { .. }));
    }

    #[test]
    fn kubelet_events_of_one_second_are_told_apart_by_their_count() {
        assert!(version_of(None, Some(5), 2) > version_of(None, Some(5), 1));
        assert!(version_of(Some(0), Some(6), 1) > version_of(None, Some(5), 999));
        assert_eq!(version_of(Some(7), Some(5), 1), 7);
    }

    proptest! {
        /// However reports are doubled and ordered, the pod ends up with the newest one about itself.
        #[test]
        fn the_newest_report_wins(
            reports in prop::collection::vec((0..4u64, 0..2usize, prop::bool::ANY), 1..12),
            order in prop::collection::vec(0..1000usize, 1..40),
        ) {
            let names = ["leader", "follower"];
            // One truth per moment: what was reported first of it.
            let truth = |at: u64| reports.iter().find(|(time, _, ours)| *time == at && *ours).map(|(_, role, _)| *role);
            let mut pod = PodSeen { uid: "u".into(), ..PodSeen::default() };
            let deliver = |pod: &mut PodSeen, index: usize| {
                let (time, role, ours) = reports[index % reports.len()];
                let role = if ours { truth(time).unwrap_or(role) } else { role };
                match judge(names[role], Some(if ours { "u" } else { "other" }), 1_000_000 + time, pod, &declared()) {
                    Verdict::Label { role, version, .. } => {
                        pod.role = Some(role.to_lowercase());
                        pod.stored_version = Some(version.to_string());
                    }
                    Verdict::Clear { .. } => unreachable!("both roles are declared"),
                    Verdict::Ignore(_) => {}
                }
            };
            for index in order.into_iter().chain(0..reports.len()) {
                deliver(&mut pod, index);
            }
            let newest = (0..4).rev().find_map(truth).map(|role| names[role].to_owned());
            prop_assert_eq!(pod.role, newest);
        }
    }
}
