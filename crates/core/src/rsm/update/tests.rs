//! The vectors of rsm.md 5.6 and 10.1, and what holds however a rollout goes.

use proptest::prelude::*;
use proptest::strategy::Strategy as Generator;

use super::*;
// Not the one of proptest's prelude.
use super::Strategy;
use crate::rsm::roles::AccessMode;

/// The fixture of rsm.md 10.1.
fn declared() -> Vec<Role> {
    let role = |name: &str, access_mode, can_vote, is_leader| Role {
        name: name.to_owned(),
        access_mode,
        can_vote,
        is_leader,
        is_exclusive: false,
    };
    vec![
        role("leader", AccessMode::ReadWrite, true, true),
        role("follower", AccessMode::Readonly, true, false),
        role("logger", AccessMode::None, true, false),
        role("learner", AccessMode::Readonly, false, false),
    ]
}

/// Old members with these roles, numbered from 0.
fn old(roles: &[&str], ready: bool) -> Vec<Member> {
    let member = |(number, role): (i64, &&str)| Member {
        number,
        role: (*role).to_owned(),
        outdated: true,
        ready,
        leaving: false,
    };
    (0..).zip(roles).map(member).collect()
}

fn decide(strategy: Strategy, roles: &[Role], members: &[Member], max_unavailable: Option<usize>) -> Next {
    next(&Rollout { strategy, roles, members, wanted: members.len(), max_unavailable })
}

/// What is replaced round by round, when everything that is replaced comes back in order with its role; one that had
/// none becomes a learner, as in the origin's test.
fn rounds(
    strategy: Strategy,
    roles: &[Role],
    mut members: Vec<Member>,
    max_unavailable: Option<usize>,
) -> Vec<Vec<i64>> {
    let mut all = Vec::new();
    while let Next::Replace(batch) = decide(strategy, roles, &members, max_unavailable) {
        for member in members.iter_mut().filter(|member| batch.contains(&member.number)) {
            (member.outdated, member.ready) = (false, true);
            if member.role.is_empty() && !roles.is_empty() {
                member.role = "learner".to_owned();
            }
        }
        all.push(batch);
        assert!(all.len() <= members.len(), "{all:?}");
    }
    assert_eq!(decide(strategy, roles, &members, max_unavailable), Next::Done);
    all
}

const A: [&str; 5] = ["leader", "follower", "follower", "learner", "logger"];
const B: [&str; 7] = ["follower", "logger", "", "learner", "candidate", "leader", "learner"];
const C: [&str; 2] = ["leader", "follower"];
const D: [&str; 5] = ["follower", "follower", "leader", "follower", "follower"];

#[test]
fn the_vectors_of_the_origin() {
    use Strategy::{BestEffortParallel, Parallel, Serial};
    type Case = (&'static [&'static str], Strategy, &'static [&'static [i64]]);
    let cases: [Case; 12] = [
        (&A, Serial, &[&[3], &[4], &[1], &[2], &[0]]),
        (&A, Parallel, &[&[3, 4, 1, 2, 0]]),
        // Not {3} {4} {1, 2} {0}, which would leave two of four voters.
        (&A, BestEffortParallel, &[&[3], &[4], &[1], &[2], &[0]]),
        (&B, Serial, &[&[4], &[2], &[3], &[6], &[1], &[0], &[5]]),
        (&B, Parallel, &[&[4, 2, 3, 6, 1, 0, 5]]),
        (&B, BestEffortParallel, &[&[4, 2, 3, 6], &[1], &[0], &[5]]),
        (&C, Serial, &[&[1], &[0]]),
        (&C, Parallel, &[&[1, 0]]),
        (&C, BestEffortParallel, &[&[1], &[0]]),
        (&D, Serial, &[&[0], &[1], &[3], &[4], &[2]]),
        (&D, Parallel, &[&[0, 1, 3, 4, 2]]),
        (&D, BestEffortParallel, &[&[0, 1], &[3, 4], &[2]]),
    ];
    for (roles, strategy, expected) in cases {
        for ready in [true, false] {
            assert_eq!(
                rounds(strategy, &declared(), old(roles, ready), None),
                expected,
                "{roles:?} {strategy:?} {ready}"
            );
        }
    }
}

/// Example E: without declared roles nobody knows who votes.
#[test]
fn without_roles_members_are_replaced_one_by_one_in_order() {
    let members = || old(&["", "", ""], true);
    let one_by_one = [[0], [1], [2]];
    assert_eq!(rounds(Strategy::Serial, &[], members(), None), one_by_one);
    assert_eq!(rounds(Strategy::BestEffortParallel, &[], members(), None), one_by_one);
    assert_eq!(rounds(Strategy::Parallel, &[], members(), None), [[0, 1, 2]]);
}

/// Issue 6785: the role label was demanded of members that can have none.
#[test]
fn a_member_of_a_set_without_roles_is_back_when_it_is_ready() {
    let mut members = old(&["", "", ""], true);
    members[0].outdated = false;
    assert_eq!(decide(Strategy::Serial, &[], &members, None), Next::Replace(vec![1]));
}

#[test]
fn a_role_is_waited_for_while_anybody_has_one() {
    let mut members = old(&["", "follower", "leader"], true);
    members[0].outdated = false;
    assert_eq!(decide(Strategy::Serial, &declared(), &members, None), Next::Wait(Waiting::NoRole(0)));
    let nobody = old(&["", "", ""], true).into_iter().map(|mut member| {
        member.outdated = member.number > 0;
        member
    });
    let nobody: Vec<Member> = nobody.collect();
    assert_eq!(decide(Strategy::Serial, &declared(), &nobody, None), Next::Replace(vec![1]));
}

#[test]
fn while_the_probe_says_nothing_everybody_may_be_a_voter() {
    let members = old(&["", "", "", "", ""], true);
    assert_eq!(decide(Strategy::BestEffortParallel, &declared(), &members, None), Next::Replace(vec![0, 1]));
}

#[test]
fn mixed_case_names_of_roles_keep_their_place() {
    let members = old(&["LEADER", "Follower", "follower"], true);
    assert_eq!(rounds(Strategy::BestEffortParallel, &declared(), members, None), [[1], [2], [0]]);
}

/// Issue 9851: a crashed member kept the fix from all.
#[test]
fn an_old_member_that_is_out_of_order_is_repaired_first() {
    let mut members = old(&D, true);
    members[4].ready = false;
    for strategy in [Strategy::Serial, Strategy::BestEffortParallel] {
        assert_eq!(decide(strategy, &declared(), &members, None), Next::Replace(vec![4]), "{strategy:?}");
    }
    members[2].ready = false;
    assert_eq!(decide(Strategy::Serial, &declared(), &members, None), Next::Replace(vec![4]), "the leader after it");
    // The new revision of another needs a quorum that only the repair of this one gives back.
    let mut members = old(&["follower", "follower", "leader"], true);
    (members[0].outdated, members[0].ready, members[1].ready) = (false, false, false);
    assert_eq!(decide(Strategy::Serial, &declared(), &members, None), Next::Replace(vec![1]));
}

#[test]
fn nobody_who_serves_goes_before_the_last_one_is_back() {
    for strategy in [Strategy::Serial, Strategy::BestEffortParallel] {
        let mut members = old(&D, true);
        members[0].leaving = true;
        assert_eq!(decide(strategy, &declared(), &members, None), Next::Wait(Waiting::Leaving(0)));
        members[0] = Member { outdated: false, ready: false, leaving: false, ..members[0].clone() };
        assert_eq!(decide(strategy, &declared(), &members, None), Next::Wait(Waiting::NotReady(0)));
        let few = &members[1..];
        let rollout = Rollout { strategy, roles: &declared(), members: few, wanted: 5, max_unavailable: None };
        assert_eq!(next(&rollout), Next::Wait(Waiting::Count { pods: 4, wanted: 5 }));
    }
}

/// Issues 9070 and 9312.
#[test]
fn a_roll_back_replaces_only_the_pending_member_and_a_pending_one_of_the_right_revision_counts_as_away() {
    let mut members = old(&["", "", ""], true);
    for member in &mut members {
        (member.outdated, member.ready) = (member.number == 2, member.number != 2);
    }
    for strategy in [Strategy::Serial, Strategy::Parallel] {
        assert_eq!(decide(strategy, &[], &members, Some(1)), Next::Replace(vec![2]), "{strategy:?}");
    }
    for member in &mut members {
        member.outdated = member.number != 2;
    }
    assert_eq!(decide(Strategy::Parallel, &[], &members, Some(1)), Next::Wait(Waiting::NotReady(2)));
}

#[test]
fn the_bound_holds_for_every_strategy() {
    assert_eq!(rounds(Strategy::Parallel, &declared(), old(&D, true), Some(2)), vec![vec![0, 1], vec![3, 4], vec![2]]);
    let one = rounds(Strategy::BestEffortParallel, &declared(), old(&D, true), Some(1));
    assert_eq!(one, [[0], [1], [3], [4], [2]]);
    let learners = rounds(Strategy::BestEffortParallel, &declared(), old(&["learner"; 3], true), Some(2));
    assert_eq!(learners, [vec![0, 1], vec![2]]);
    assert_eq!(rounds(Strategy::Parallel, &declared(), old(&C, true), Some(0)), [[1], [0]], "0 counts as 1");
}

#[test]
fn the_leader_is_who_leads_now() {
    assert_eq!(leader(&declared(), &old(&D, true)), Some(2));
    assert_eq!(leader(&declared(), &old(&["", "follower"], true)), None);
}

/// A member of a modelled set, and when what is under way with it ends.
fn members() -> impl Generator<Value = Vec<Member>> {
    let role = prop::sample::select(vec!["follower", "follower", "logger", "learner", ""]);
    (prop::collection::vec(role, 1..8), 0..8usize).prop_map(|(mut roles, leads)| {
        let leads = leads % roles.len();
        roles[leads] = "leader";
        old(&roles, true)
    })
}

fn voters(members: &[Member]) -> (usize, usize) {
    let votes = |member: &&Member| member.role != "learner";
    let serves = |member: &&Member| member.ready && !member.leaving;
    let all = members.iter().filter(votes).count();
    (all, members.iter().filter(votes).filter(serves).count())
}

proptest! {
    /// However long members take to come back, in whatever order, wherever the leader moves and whoever crashes meanwhile:
    /// nobody who serves is taken from a set of voters that would keep no strict majority, and the rollout ends.
    #[test]
    fn a_rollout_keeps_the_majority_and_ends(
        start in members(),
        best_effort in any::<bool>(),
        luck in prop::collection::vec((0..8usize, 0..4u8), 0..40),
    ) {
        let strategy = if best_effort { Strategy::BestEffortParallel } else { Strategy::Serial };
        let roles = declared();
        let mut members = start;
        let mut luck = luck.into_iter();
        let mut replaced = Vec::new();
        for _ in 0..200 {
            let decision = decide(strategy, &roles, &members, None);
            if decision == Next::Done {
                break;
            }
            if let Next::Replace(batch) = &decision {
                let (all, before) = voters(&members);
                for number in batch {
                    let member = members.iter_mut().find(|member| member.number == *number).unwrap();
                    prop_assert!(member.outdated && !member.leaving);
                    replaced.push(*number);
                    member.leaving = true;
                }
                let (_, after) = voters(&members);
                let kept = 2 * after > all;
                // One or two voters, all in order: there is no majority to keep.
                let cannot = all <= 2 && before == all && after + 1 == all;
                prop_assert!(after == before || kept || cannot, "{batch:?} leaves {after} of {all}");
            }
            let (at, what) = luck.next().unwrap_or((0, 3));
            let at = at % members.len();
            match what {
                // A crash, of a member that is not on its way already.
                0 if !members[at].leaving => members[at].ready = false,
                // The leader moves to another that serves.
                1 if members[at].ready && members[at].role == "follower" => {
                    for member in members.iter_mut().filter(|member| member.role == "leader") {
                        member.role = "follower".to_owned();
                    }
                    members[at].role = "leader".to_owned();
                }
                // One thing that is under way ends.
                _ => {
                    let busy = |member: &&mut Member| member.leaving || !(member.ready || member.outdated);
                    if let Some(member) = members.iter_mut().filter(busy).nth(usize::from(what == 2)) {
                        if member.leaving {
                            (member.leaving, member.outdated, member.ready) = (false, false, false);
                        } else {
                            member.ready = true;
                            if member.role.is_empty() {
                                member.role = "follower".to_owned();
                            }
                        }
                    }
                }
            }
        }
        prop_assert_eq!(decide(strategy, &roles, &members, None), Next::Done);
        replaced.sort_unstable();
        let before = replaced.len();
        replaced.dedup();
        prop_assert_eq!(replaced.len(), before, "nobody is replaced twice");
    }

    /// In a set in order the leader goes last, alone, and the order of the list does not matter.
    #[test]
    fn the_leader_goes_last_whatever_the_order_of_the_list(start in members(), best_effort in any::<bool>()) {
        let strategy = if best_effort { Strategy::BestEffortParallel } else { Strategy::Serial };
        let all = rounds(strategy, &declared(), start.clone(), None);
        let leads = leader(&declared(), &start).unwrap();
        prop_assert_eq!(all.last(), Some(&vec![leads]));
        let reversed: Vec<Member> = start.iter().rev().cloned().collect();
        prop_assert_eq!(decide(strategy, &declared(), &reversed, None), decide(strategy, &declared(), &start, None));
    }
}
