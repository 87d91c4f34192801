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
        (r#"Readiness probe failed: error: health rpc failed: {"event":"Success","role":"LEADER"}"#, plain("LEADER")),
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
    let pod = PodSeen { uid: "u".into(), stored_version: Some("2026-11-30T00:00:00Z".into()), ..PodSeen::default() };
    assert_eq!(
        judge("LEADER", Some("u"), Newness::at(1), &pod, &[], &declared()),
        Verdict::Label { role: "Leader".into(), access_mode: AccessMode::ReadWrite, newness: Newness::at(1) }
    );
    assert_eq!(
        judge("candidate", Some("u"), Newness::at(1), &pod, &[], &declared()),
        Verdict::Clear { newness: Newness::at(1), outranked: None }
    );
    assert_eq!(
        judge("", Some("u"), Newness::at(1), &pod, &[], &declared()),
        Verdict::Clear { newness: Newness::at(1), outranked: None }
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
        Some(Verdict::Clear { newness: Newness::at(50), outranked: Some(Newness::at(100)) }),
        "what the old leader said before is not believed afterwards"
    );
    let b = PodSeen { role: Some("Leader".into()), ..b };
    let b = PodSeen { stored_version: Some("100".into()), ..b };
    a.role = None;
    let late = judge("leader", Some("a"), Newness::at(90), &a, std::slice::from_ref(&b), &declared());
    assert_eq!(late, Verdict::Clear { newness: Newness::at(90), outranked: Some(Newness::at(100)) });
    assert_eq!(yields("leader", Newness::at(90), &b, &declared()), None);
    let follows = judge("follower", Some("a"), Newness::at(90), &a, &[b], &declared());
    assert!(matches!(follows, Verdict::Label { .. }), "a role that is not exclusive is nobody else's business");
}

/// Whoever had led said that it follows, in the new leader's own term, after that one's claim had taken the role from it:
/// it was ignored, and the member had no role for ever.
#[test]
fn who_was_outranked_is_believed_what_it_says_of_itself_within_the_same_term() {
    let term = |number| Newness { version: 9, number: Some(number) };
    for (claim, own) in
        [(term(196_608), term(196_608)), (term(196_609), term(196_608)), (Newness::at(150), Newness::at(100))]
    {
        let before = if claim.number.is_some() { term(131_072) } else { Newness::at(90) };
        let mut old = PodSeen { uid: "a".into(), ..PodSeen::default() };
        write(&mut old, &Verdict::Label { role: "Leader".into(), access_mode: AccessMode::ReadWrite, newness: before });
        let outranked = yields("leader", claim, &old, &declared()).unwrap();
        write(&mut old, &outranked);
        assert_eq!(old.role, None);
        // A late claim of its own is not believed, whether or not anybody still leads.
        let late = Newness { version: before.version + 1, number: before.number.map(|number| number + 1) };
        assert_eq!(judge("leader", Some("a"), late, &old, &[], &declared()), Verdict::Ignore(Ignored::Stale));
        let follows = judge("follower", Some("a"), own, &old, &[], &declared());
        assert!(matches!(follows, Verdict::Label { .. }), "{claim:?} {own:?}: {follows:?}");
        let newer = Newness { version: claim.version + 1, number: claim.number.map(|number| number + 65_536) };
        assert!(matches!(judge("leader", Some("a"), newer, &old, &[], &declared()), Verdict::Label { .. }));
    }
}

#[test]
fn newness_is_read_as_it_is_written() {
    for newness in [Newness::at(7), Newness { version: 7, number: Some(9) }] {
        assert_eq!(newness.to_string().parse(), Ok(newness));
    }
    assert!("7 x".parse::<Newness>().is_err() && "".parse::<Newness>().is_err());
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

    /// Elections of an engine that numbers them: in whatever order and how often reports arrive, in the end everybody
    /// has the role that it said last.
    #[test]
    fn everybody_has_the_role_of_the_last_election_in_the_end(
        leaders in prop::collection::vec((0..3usize, prop::bool::ANY), 1..5),
        order in prop::collection::vec(0..1000usize, 0..40),
    ) {
        let mut reports = Vec::new();
        for (term, (leader, was_candidate)) in (1_u64..).zip(&leaders) {
            for at in 0..3 {
                let number = |changes: u64| Newness { version: 1, number: Some((term << 16) + changes) };
                if at != *leader || *was_candidate {
                    reports.push((at, "follower", number(0)));
                }
                if at == *leader {
                    reports.push((at, "leader", number(u64::from(*was_candidate))));
                }
            }
        }
        let mut pods: Vec<PodSeen> =
            (0..3).map(|i| PodSeen { uid: format!("u{i}"), ..PodSeen::default() }).collect();
        for index in order.into_iter().chain(0..reports.len()) {
            let (at, role, newness) = reports[index % reports.len()];
            let peers: Vec<PodSeen> = (0..3).filter(|i| *i != at).map(|i| pods[i].clone()).collect();
            let verdict = judge(role, Some(&format!("u{at}")), newness, &pods[at], &peers, &declared());
            if matches!(verdict, Verdict::Label { .. }) {
                for peer in (0..3).filter(|i| *i != at) {
                    if let Some(verdict) = yields(role, newness, &pods[peer], &declared()) {
                        write(&mut pods[peer], &verdict);
                    }
                }
            }
            write(&mut pods[at], &verdict);
        }
        let last = leaders.last().map(|(leader, _)| *leader);
        for (at, pod) in pods.iter().enumerate() {
            let expected = if Some(at) == last { "Leader" } else { "follower" };
            prop_assert_eq!(pod.role.as_deref(), Some(expected), "{}: {:?}", at, pods);
        }
    }
}

fn write(pod: &mut PodSeen, verdict: &Verdict) {
    let (role, newness) = match verdict {
        Verdict::Label { role, newness, .. } => (Some(role.clone()), newness),
        Verdict::Clear { newness, outranked } => {
            pod.outranked = outranked.map(|by| by.to_string()).or(pod.outranked.take());
            (None, newness)
        }
        Verdict::Ignore(_) => return,
    };
    pod.role = role;
    pod.stored_version = Some(newness.version.to_string());
    pod.stored_number = newness.number.map(|number| number.to_string());
}
