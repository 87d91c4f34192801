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
    /// Its role label.
    pub role: Option<String>,
    /// Its access-mode label.
    pub access_mode: Option<String>,
}

impl PodSeen {
    /// How new what was accepted for it last is.
    pub fn newness(&self) -> Newness {
        Newness { version: 0, number: None }.or_stored(self)
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
        /// How new it is, to be remembered.
        newness: Newness,
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

    /// Whether it is newer than what was accepted for `pod` last. Once the engine's numbers were heard, a claim without
    /// one says nothing about the pod any more.
    fn beats(self, pod: &PodSeen) -> bool {
        match (self.number, Newness::stored(pod)) {
            (Some(number), (_, Some(stored))) => number > stored,
            (Some(_), (_, None)) => true,
            (None, (_, Some(_))) => false,
            (None, (stored, None)) => stored.is_none_or(|stored| self.version > stored),
        }
    }

    /// The newer of this and what was accepted for `pod`.
    fn or_stored(self, pod: &PodSeen) -> Newness {
        let (version, number) = Newness::stored(pod);
        Newness { version: self.version.max(version.unwrap_or_default()), number: self.number.max(number) }
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
    let Some(role) = roles::find(declared, role.trim()) else { return Verdict::Clear { newness } };
    let newer = peers.iter().find(|peer| holds(role, peer) && !newness.beats(peer));
    match newer {
        Some(peer) => Verdict::Clear { newness: newness.or_stored(peer) },
        None => Verdict::Label { role: role.name.clone(), access_mode: role.access_mode, newness },
    }
}

/// What an accepted claim means for another pod of the set: that it has the exclusive role no longer. What is remembered
/// of it is the claim's newness, so that what it said before that is not believed afterwards (issues 782, 10087).
pub fn yields(role: &str, newness: Newness, peer: &PodSeen, declared: &[Role]) -> Option<Verdict> {
    let role = roles::find(declared, role)?;
    (holds(role, peer) && newness.beats(peer)).then(|| Verdict::Clear { newness: newness.or_stored(peer) })
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
        Some(vec![Claim { pod: None, uid: None, role: role.to_owned(), version: None, number: None }])
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
                Claim {
                    pod: Some("a-0".into()),
                    uid: Some("u0".into()),
                    role: "leader".into(),
                    version: Some(7),
                    number: None
                },
                Claim { pod: Some("a-1".into()), uid: None, role: "follower".into(), version: Some(7), number: None },
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
        assert_eq!(
            judge("leader", Some("old"), Newness::at(9), &pod, &[], &declared()),
            Verdict::Ignore(Ignored::OtherPod)
        );
        assert_eq!(judge("leader", None, Newness::at(9), &pod, &[], &declared()), Verdict::Ignore(Ignored::OtherPod));
    }

    #[test]
    fn a_role_is_labelled_as_declared_and_an_unknown_one_cleared() {
        let pod =
            PodSeen { uid: "u".into(), stored_version: Some("2026-11-30T00:00:00Z".into()), ..PodSeen::default() };
        assert_eq!(
            judge("LEADER", Some("u"), Newness::at(1), &pod, &[], &declared()),
            Verdict::Label { role: "Leader".into(), access_mode: AccessMode::ReadWrite, newness: Newness::at(1) }
        );
        assert_eq!(
            judge("candidate", Some("u"), Newness::at(1), &pod, &[], &declared()),
            Verdict::Clear { newness: Newness::at(1) }
        );
        assert_eq!(
            judge("", Some("u"), Newness::at(1), &pod, &[], &declared()),
            Verdict::Clear { newness: Newness::at(1) }
        );
    }

    #[test]
    fn a_longer_number_is_newer_than_a_shorter_one() {
        let pod = PodSeen { uid: "u".into(), stored_version: Some("999".into()), ..PodSeen::default() };
        assert!(matches!(judge("leader", Some("u"), Newness::at(1000), &pod, &[], &declared()), Verdict::Label { .. }));
    }

    #[test]
    fn kubelet_events_of_one_second_are_told_apart_by_their_count() {
        assert!(version_of(None, Some(5), 2) > version_of(None, Some(5), 1));
        assert!(version_of(Some(0), Some(6), 1) > version_of(None, Some(5), 999));
        assert_eq!(version_of(Some(7), Some(5), 1), 7);
    }

    #[test]
    fn a_number_of_the_engine_weighs_more_than_any_time() {
        let text = |role: &str| json_role(role);
        assert_eq!(read(&text("leader 7")).unwrap()[0].number, Some(7));
        assert_eq!(read(&text("leader\t7\n")).unwrap()[0].role, "leader");
        for garbage in ["leader seven", "leader 7 8", "leader -1"] {
            assert_eq!(read(&text(garbage)), None, "{garbage}");
        }
        let pod = PodSeen { uid: "u".into(), stored_number: Some("7".into()), ..PodSeen::default() };
        let judged = |newness| judge("leader", Some("u"), newness, &pod, &[], &declared());
        assert_eq!(judged(Newness::at(9_000)), Verdict::Ignore(Ignored::Stale), "a plain claim after a numbered one");
        assert_eq!(judged(Newness { version: 9, number: Some(7) }), Verdict::Ignore(Ignored::Stale));
        assert!(matches!(judged(Newness { version: 1, number: Some(8) }), Verdict::Label { .. }));
    }

    fn json_role(role: &str) -> String {
        serde_json::json!({"event": "Success", "role": role}).to_string()
    }

    /// Issues 782 and 10087: the late claim of the old leader took the role from the new one.
    #[test]
    fn a_late_claim_to_an_exclusive_role_is_not_believed_over_a_newer_one() {
        let mut a = PodSeen { uid: "a".into(), role: Some("LEADER".into()), ..stored("50") };
        let b = PodSeen { uid: "b".into(), role: Some("follower".into()), ..stored("60") };
        let claim = judge("leader", Some("b"), Newness::at(100), &b, std::slice::from_ref(&a), &declared());
        assert!(matches!(claim, Verdict::Label { .. }));
        assert_eq!(
            yields("leader", Newness::at(100), &a, &declared()),
            Some(Verdict::Clear { newness: Newness::at(100) }),
            "what the old leader said before is not believed afterwards"
        );
        let b = PodSeen { role: Some("Leader".into()), ..b };
        let b = PodSeen { stored_version: Some("100".into()), ..b };
        a.role = None;
        let late = judge("leader", Some("a"), Newness::at(90), &a, std::slice::from_ref(&b), &declared());
        assert_eq!(late, Verdict::Clear { newness: Newness::at(100) });
        assert_eq!(yields("leader", Newness::at(90), &b, &declared()), None);
        let follows = judge("follower", Some("a"), Newness::at(90), &a, &[b], &declared());
        assert!(matches!(follows, Verdict::Label { .. }), "a role that is not exclusive is nobody else's business");
    }

    fn stored(version: &str) -> PodSeen {
        PodSeen { stored_version: Some(version.to_owned()), ..PodSeen::default() }
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
                let (uid, newness) = (Some(if ours { "u" } else { "other" }), Newness::at(1_000_000 + time));
                match judge(names[role], uid, newness, pod, &[], &declared()) {
                    Verdict::Label { role, newness, .. } => {
                        pod.role = Some(role.to_lowercase());
                        pod.stored_version = Some(newness.version.to_string());
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

        /// Late, doubled, reordered, one microsecond apart, about a predecessor of the same name: never do two pods have
        /// the exclusive role, and once everybody has said what it is again, the newest claim has it.
        #[test]
        fn one_pod_at_most_has_an_exclusive_role(
            reports in prop::collection::vec((0..3usize, 0..6u64, prop::bool::ANY, prop::bool::ANY), 1..12),
            order in prop::collection::vec(0..1000usize, 1..40),
        ) {
            let mut pods: Vec<PodSeen> =
                (0..3).map(|i| PodSeen { uid: format!("u{i}"), ..PodSeen::default() }).collect();
            let deliver = |pods: &mut Vec<PodSeen>, at: usize, role: &str, uid: &str, newness: Newness| {
                let peers: Vec<PodSeen> = (0..pods.len()).filter(|i| *i != at).map(|i| pods[i].clone()).collect();
                let verdict = judge(role, Some(uid), newness, &pods[at], &peers, &declared());
                if matches!(verdict, Verdict::Label { .. }) {
                    for peer in (0..pods.len()).filter(|i| *i != at) {
                        if let Some(verdict) = yields(role, newness, &pods[peer], &declared()) {
                            write(&mut pods[peer], &verdict);
                        }
                    }
                }
                write(&mut pods[at], &verdict);
            };
            let holders = |pods: &[PodSeen]| pods.iter().filter(|pod| pod.role.as_deref() == Some("Leader")).count();
            for index in order.into_iter().chain(0..reports.len()) {
                let (at, time, leads, ours) = reports[index % reports.len()];
                let uid = if ours { format!("u{at}") } else { "old".to_owned() };
                // No two pods speak at the same microsecond.
                let newness = Newness::at(1_000_000 + time * 3 + u64::try_from(at).unwrap());
                deliver(&mut pods, at, if leads { "leader" } else { "follower" }, &uid, newness);
                prop_assert!(holders(&pods) <= 1, "{:?}", pods);
            }
            for (at, role) in [(0, "leader"), (1, "follower"), (2, "leader")] {
                deliver(&mut pods, at, role, &format!("u{at}"), Newness::at(2_000_000 + u64::try_from(at).unwrap()));
            }
            let roles: Vec<Option<&str>> = pods.iter().map(|pod| pod.role.as_deref()).collect();
            prop_assert_eq!(roles, [None, Some("follower"), Some("Leader")]);
        }
    }

    fn write(pod: &mut PodSeen, verdict: &Verdict) {
        let (role, newness) = match verdict {
            Verdict::Label { role, newness, .. } => (Some(role.clone()), newness),
            Verdict::Clear { newness } => (None, newness),
            Verdict::Ignore(_) => return,
        };
        pod.role = role;
        pod.stored_version = Some(newness.version.to_string());
        pod.stored_number = newness.number.map(|number| number.to_string());
    }
}
