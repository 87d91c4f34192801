//! The smaller decisions: what is read from texts, the operation machine, the numbers and roles of a replicated state
//! machine, the checks of a configuration.

use super::values::{fence, identity, moment, name, number, position, report, short};
use super::{Tape, cases, read_by};
use coregent_core::fence::Fence;
use coregent_core::lsn::Lsn;
use coregent_core::member::{Timing, relation};
use coregent_core::names::HolderIdentity;
use coregent_core::operation::{OperationId, Operations, Outcome, Start, StepId};
use coregent_core::position::Comparison;
use coregent_core::report::MemberReport;
use coregent_core::rsm::instances::{Members, assign};
use coregent_core::rsm::report::{Newness, PodSeen, Verdict, judge, read, version_of};
use coregent_core::rsm::{AccessMode, Role, roles};
use coregent_core::wallclock::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A text that was one of ours before something happened to it.
fn damaged(t: &mut Tape, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..t.below(4) {
        let at = usize::from(t.byte()) << 2 | t.below(4);
        let at = at % bytes.len().max(1);
        match t.below(4) {
            0 => bytes.truncate(at),
            1 => {
                let byte = t.byte();
                bytes.splice(at..at, [byte]);
            }
            2 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = t.byte();
                }
            }
            _ => {
                let with = t.pick(&["null", "-1", "18446744073709551616", "{}", "\"\"", "1e99", "\"\\ud800\""]);
                let end = bytes.len().min(at + t.below(6));
                bytes.splice(at..end, with.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Debug, Clone)]
enum Command {
    Start(Start),
    Advance(StepId),
    Transition,
    End(Outcome),
    TimeOut(u64),
    Clear(String),
}

fn command(t: &mut Tape) -> Command {
    use StepId::{BaseConfigDeploying, PrimaryDbFailingOver, PrimaryDbSwitchingOver, ReplicaDbDeploying, Transition};
    let step =
        t.pick(&[BaseConfigDeploying, PrimaryDbFailingOver, PrimaryDbSwitchingOver, ReplicaDbDeploying, Transition]);
    match t.below(7) {
        0..=1 => Command::Start(Start {
            operation: t.pick(&[
                OperationId::PrimaryDbCountSpecEnforcement,
                OperationId::ReplicaDbCountSpecEnforcement,
                OperationId::BaseConfigCountSpecEnforcement,
            ]),
            step,
            id: t.maybe(128, |_| "x".to_owned()),
            subject: t.maybe(128, |t| name(t).to_string()),
            epoch: number(t),
            reason: None,
        }),
        2 => Command::Advance(step),
        3 => Command::Transition,
        4 => Command::End(t.pick(&[Outcome::Completed, Outcome::Undone, Outcome::PreEmpted])),
        5 => Command::TimeOut(number(t)),
        _ => Command::Clear(t.pick(&["x", "y"]).to_owned()),
    }
}

proptest! {
    #![proptest_config(cases())]

    /// F1: what is printed reads back as it was, whatever is in it; what is damaged is refused or reads as something else, and
    /// a record of another version is never acted on.
    #[test]
    fn a_record_reads_back_as_it_was_and_a_damaged_one_is_refused(
        (fence, damaged) in read_by(|t| {
            let fence = Fence { version: 1, ..fence(t, 2) };
            let text = fence.to_annotation();
            (fence, damaged(t, &text))
        }),
        noise in any::<String>(),
    ) {
        prop_assert_eq!(Fence::parse(&fence.to_annotation()).ok(), Some(fence));
        for text in [damaged, noise] {
            if let Ok(read) = Fence::parse(&text) {
                prop_assert_eq!(read.version, 1);
                prop_assert_eq!(Fence::parse(&read.to_annotation()).ok(), Some(read));
            }
        }
    }

    #[test]
    fn a_report_reads_back_as_it_was_and_a_damaged_one_is_none(
        (report, damaged) in read_by(|t| {
            let member = name(t);
            let report = report(t, &member, 2);
            let text = report.to_annotation();
            (report, damaged(t, &text))
        }),
        noise in any::<String>(),
    ) {
        prop_assert_eq!(MemberReport::parse(&report.to_annotation()), Some(report));
        for text in [damaged, noise] {
            prop_assert!(MemberReport::parse(&text).is_none_or(|read| read.version == 1));
        }
    }

    #[test]
    fn a_text_that_is_read_as_a_value_prints_as_that_text(
        text in prop_oneof!["[+-]?[0-9A-Fa-f]{0,9}/[+-]?[0-9A-Fa-f]{0,9}", "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,12})?Z", any::<String>()],
        identity in read_by(identity),
    ) {
        if let Ok(lsn) = text.parse::<Lsn>() {
            let plain = |half: &str| half.trim_start_matches('0').to_uppercase();
            let halves = |text: &str| text.split_once('/').map(|(high, low)| (plain(high), plain(low)));
            prop_assert_eq!(halves(&text), halves(&lsn.to_string()));
        }
        if let Ok(moment) = text.parse::<Timestamp>() {
            prop_assert!(moment.to_string().parse() == Ok(moment));
        }
        if let Ok(read) = text.parse::<HolderIdentity>() {
            prop_assert_eq!(read.to_string(), text);
        }
        prop_assert!(identity.to_string().parse::<HolderIdentity>().is_ok_and(|read| read == identity)
            || identity.member.as_str().is_empty() || identity.pod_uid.is_empty() || identity.member.as_str().contains('/'));
    }

    /// F6: two positions compare one way round as they do the other, and a member's relation to a chain never calls a
    /// history its own that is not.
    #[test]
    fn positions_compare_both_ways_alike((a, b) in read_by(|t| (position(t), position(t)))) {
        let mirrored = match a.compare(&b) {
            Comparison::Newer => Comparison::Older,
            Comparison::Older => Comparison::Newer,
            same => same,
        };
        prop_assert_eq!(b.compare(&a), mirrored);
        let _ = relation(&a, &b.chain);
    }

    /// kubegres.md 4: one operation at a time, whatever is asked in whatever order and at whatever hour.
    #[test]
    fn the_operation_machine_survives_any_order(
        (commands, from, hours) in read_by(|t| {
            let commands = t.some(12, command);
            let hours: Vec<Timestamp> = commands.iter().map(|_| super::controller::wall(t)).collect();
            (commands, short(t), hours)
        }),
    ) {
        let mut operations = Operations::default();
        for (command, at) in commands.iter().zip(hours) {
            if let Some(active) = &mut operations.active {
                active.attempt = active.attempt.max(from);
            }
            let before = operations.clone();
            operations = match command.clone() {
                Command::Start(start) => match operations.start(start.clone(), at) {
                    Ok(next) => next,
                    Err(_) => {
                        prop_assert!(before.active.is_some() && !start.step.is_change_of_primary());
                        before.clone()
                    }
                },
                Command::Advance(step) => operations.advance(step, None, 1, at),
                Command::Transition => operations.to_transition(at),
                Command::End(outcome) => operations.end(outcome, None),
                Command::TimeOut(elapsed) => operations.time_out(elapsed).unwrap_or(operations),
                Command::Clear(id) => operations.clear(&id).unwrap_or(operations),
            };
            // What ended says how; what is active has only ever timed out.
            prop_assert!(operations.active.as_ref().is_none_or(|active| matches!(active.outcome, None | Some(Outcome::TimedOut))));
            prop_assert!(operations.previous.as_ref().is_none_or(|previous| previous.outcome.is_some()));
            if let (Some(was), Some(is)) = (&before.active, &operations.active) {
                prop_assert!(is.attempt >= was.attempt || is.id != was.id || is.operation_id != was.operation_id || matches!(command, Command::Start(_)));
            }
        }
    }

    /// A number is never given twice, not even at the end of the numbers.
    #[test]
    fn numbers_of_members_are_never_given_twice(
        members in read_by(|t| {
            let number = |t: &mut Tape| if t.chance(48) { t.pick(&[i32::MAX, i32::MIN, i32::MAX - 1, -1, 0]) } else { i32::from(t.byte() % 6) };
            Members {
                decided: t.some(4, number),
                last_created: number(t),
                present: t.some(4, number),
                priorities: t.some(3, |t| (number(t), number(t))),
                wanted: t.below(9),
                offline: t.some(2, number),
                set_aside: t.some(2, number),
            }
        }),
    ) {
        let assigned = assign(&members);
        let distinct: BTreeSet<i32> = assigned.instances.iter().copied().collect();
        prop_assert_eq!(distinct.len(), assigned.instances.len(), "{:?}", assigned);
        prop_assert!(assigned.last_created >= members.last_created);
        prop_assert!(assigned.instances.len() <= members.wanted);
        let seen: BTreeSet<i32> = members.decided.iter().chain(&members.present).copied().collect();
        let new = |number: &&i32| !seen.contains(number);
        prop_assert!(assigned.instances.iter().filter(new).all(|number| *number > members.last_created || members.set_aside.contains(number)));
    }

    /// rsm.md 4: whatever an Event says, a report about another pod or an older one changes nothing.
    #[test]
    fn a_role_report_changes_only_its_own_pod_and_only_forwards(
        noise in any::<String>(),
        (text, uid, stored, version) in read_by(|t| {
            let text = r#"{"event":"Success","role":"{\"term\":\"7\",\"PodRoleNamePairs\":[{\"podName\":\"a-0\",\"roleName\":\"leader\",\"podUid\":\"u0\"}]}"}"#;
            let stored = t.maybe(200, |t| if t.coin() { number(t).to_string() } else { t.pick(&["", "x", "-1"]).to_owned() });
            (damaged(t, text), t.maybe(200, |t| t.pick(&["u0", "u1", ""]).to_owned()), stored, number(t))
        }),
    ) {
        let role = Role { name: "leader".into(), access_mode: AccessMode::ReadWrite, can_vote: true, is_leader: true, is_exclusive: false };
        let pod = PodSeen { uid: "u0".into(), stored_version: stored.clone(), ..PodSeen::default() };
        for text in [&text, &noise] {
            let _ = read(text);
            let (_, ordinal) = roles::parent_and_ordinal(text);
            prop_assert!(ordinal >= -1 && roles::member_number("a", text, true) >= -1);
            let verdict = judge(text, uid.as_deref(), Newness::at(version), &pod, &[], std::slice::from_ref(&role));
            let newer = stored.as_deref().and_then(|text| text.parse::<u64>().ok()).is_none_or(|stored| version > stored);
            if !matches!(verdict, Verdict::Ignore(_)) {
                prop_assert!(uid.as_deref() == Some("u0") && newer);
            }
        }
        prop_assert!(version_of(Some(version), Some(version), u32::MAX) >= version.min(1));
    }

    /// F2: lengths of time that pass the check keep what it promises, at any size.
    #[test]
    fn lengths_that_are_accepted_leave_room_to_kill(
        timing in read_by(|t| Timing { duration: moment(t).0, renew: number(t), request: number(t), stop_by: moment(t).0 }),
    ) {
        if timing.check().is_ok() {
            let (renew, request) = (u128::from(timing.renew), u128::from(timing.request));
            prop_assert!(renew + request + 500 <= u128::from(timing.stop_by));
            prop_assert!(u128::from(timing.stop_by) + 1_000 <= u128::from(timing.duration));
        }
    }
}
