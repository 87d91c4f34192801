use super::*;
use ActionKind::{LogSync, MemberJoin, MemberLeave, Promote, Switchover};
use proptest::prelude::*;

const ALL: [ActionKind; 5] = [Switchover, MemberJoin, MemberLeave, LogSync, Promote];

fn member(number: i32, role: &str) -> Member {
    Member {
        number,
        is_running: role != "gone",
        has_role: !matches!(role, "" | "gone"),
        leads: role == "leader",
        votes: matches!(role, "leader" | "follower"),
    }
}

/// Members 0, 1, … with these roles; those before `joined` are in.
fn seen(wanted: i32, joined: i32, roles: &[&str], defined: &[ActionKind]) -> Seen {
    Seen {
        wanted,
        running: i32::try_from(roles.len()).unwrap(),
        joined: (0..joined).collect(),
        members: (0..).zip(roles).map(|(number, role)| member(number, role)).collect(),
        defined: defined.iter().copied().collect(),
        last: None,
    }
}

fn after(mut seen: Seen, action: ActionKind, number: i32, phase: Phase) -> Step {
    seen.last = Some(Begun { action, number, phase });
    next(&seen)
}

fn begin(action: ActionKind, number: i32) -> Step {
    Step::Begin { action, number, target: None }
}

/// rsm.md 10.1, scale-out 3→5 with a join action: pods first, then join-3, join-4, then nothing.
#[test]
fn out_from_three_to_five_with_join_only() {
    let three = ["follower", "leader", "follower"];
    assert_eq!(next(&seen(5, 3, &three, &[MemberJoin])), Step::Grow);
    let five = ["follower", "leader", "follower", "", ""];
    assert_eq!(next(&seen(5, 3, &five, &[MemberJoin])), begin(MemberJoin, 3));
    assert_eq!(after(seen(5, 3, &five, &[MemberJoin]), MemberJoin, 3, Phase::UnderWay), Step::Hold(Why::UnderWay));
    assert_eq!(
        after(seen(5, 3, &five, &[MemberJoin]), MemberJoin, 3, Phase::Over),
        Step::Hold(Why::Effect(MemberJoin, 3))
    );
    let four = ["follower", "leader", "follower", "follower", ""];
    assert_eq!(after(seen(5, 3, &four, &[MemberJoin]), MemberJoin, 3, Phase::Over), Step::Joined(3));
    assert_eq!(after(seen(5, 4, &four, &[MemberJoin]), MemberJoin, 3, Phase::Over), begin(MemberJoin, 4));
    let all = ["follower", "leader", "follower", "follower", "follower"];
    assert_eq!(after(seen(5, 5, &all, &[MemberJoin]), MemberJoin, 4, Phase::Over), Step::Free);
}

/// The origin never issued log-sync and promote once a member was seen (rsm.md 6.2, defect a).
#[test]
fn each_new_member_joins_gets_the_log_and_is_promoted_before_the_next_one_begins() {
    let roles = |three| ["leader", "follower", "follower", three, ""];
    assert_eq!(next(&seen(5, 3, &roles(""), &ALL)), begin(MemberJoin, 3));
    assert_eq!(after(seen(5, 3, &roles("learner"), &ALL), MemberJoin, 3, Phase::Over), begin(LogSync, 3));
    assert_eq!(after(seen(5, 3, &roles("learner"), &ALL), LogSync, 3, Phase::Over), begin(Promote, 3));
    assert_eq!(after(seen(5, 3, &roles("follower"), &ALL), Promote, 3, Phase::Over), Step::Joined(3));
    assert_eq!(after(seen(5, 4, &roles("follower"), &ALL), Promote, 3, Phase::Over), begin(MemberJoin, 4));
}

/// rsm.md 10.1, scale-in 3→1 with p1 leading: leave-2, switchover-1 to p0, leave-1, then nothing.
#[test]
fn in_from_three_to_one_where_the_leader_is_to_go() {
    let roles = ["follower", "leader", "follower"];
    assert_eq!(next(&seen(1, 3, &roles, &ALL)), begin(MemberLeave, 2));
    assert_eq!(after(seen(1, 3, &roles, &ALL), MemberLeave, 2, Phase::Over), Step::Left(2));
    let switchover = Step::Begin { action: Switchover, number: 1, target: Some(0) };
    assert_eq!(after(seen(1, 2, &roles, &ALL), MemberLeave, 2, Phase::Over), switchover);
    assert_eq!(
        after(seen(1, 2, &roles, &ALL), Switchover, 1, Phase::Over),
        Step::Hold(Why::Effect(Switchover, 1)),
        "p1 still leads: it must not go"
    );
    let handed_over = ["leader", "follower", ""];
    assert_eq!(after(seen(1, 2, &handed_over, &ALL), Switchover, 1, Phase::Over), begin(MemberLeave, 1));
    assert_eq!(after(seen(1, 1, &handed_over, &ALL), MemberLeave, 1, Phase::Over), Step::Free);
}

#[test]
fn a_switchover_never_goes_to_the_leader_a_learner_or_a_member_that_goes() {
    let target = |roles: &[&str], wanted| match next(&seen(wanted, 3, roles, &ALL)) {
        Step::Begin { action: Switchover, target, .. } => target,
        _ => None,
    };
    assert_eq!(target(&["follower", "follower", "leader"], 2), Some(0));
    assert_eq!(target(&["learner", "follower", "leader"], 2), Some(1));
    assert_eq!(next(&seen(1, 2, &["learner", "leader"], &ALL)), Step::Hold(Why::NoSuccessor(1)));
}

/// rsm.md 6.2, defect c: a count would have taken this for a member that is missing.
#[test]
fn a_member_that_lost_its_label_for_a_moment_is_not_joined_again() {
    assert_eq!(next(&seen(3, 3, &["leader", "", "follower"], &ALL)), Step::Free);
}

#[test]
fn nothing_begins_while_the_cluster_is_not_well() {
    assert_eq!(next(&seen(4, 3, &["follower", "follower", "follower", ""], &ALL)), Step::Hold(Why::Leaders(0)));
    assert_eq!(next(&seen(4, 3, &["leader", "leader", "follower", ""], &ALL)), Step::Hold(Why::Leaders(2)));
    assert_eq!(next(&seen(4, 3, &["leader", "gone", "follower", ""], &ALL)), Step::Hold(Why::Unhealthy(vec![1])));
    assert_eq!(next(&seen(2, 3, &["leader", "", "follower"], &ALL)), Step::Hold(Why::Unhealthy(vec![1])));
}

#[test]
fn a_dead_member_can_be_taken_out() {
    assert_eq!(next(&seen(2, 3, &["leader", "follower", "gone"], &ALL)), begin(MemberLeave, 2));
}

#[test]
fn an_action_that_failed_holds_everything_until_a_person_decides() {
    let roles = ["leader", "follower", "follower", ""];
    assert_eq!(after(seen(4, 3, &roles, &ALL), MemberJoin, 3, Phase::Failed), Step::Hold(Why::Failed));
    assert_eq!(
        after(seen(4, 3, &roles, &[]), MemberJoin, 3, Phase::Over),
        Step::Free,
        "an action that is no longer defined is not waited for"
    );
}

/// rsm.md 6.1 no. 3 and 6.2, defect b.
#[test]
fn without_actions_and_down_to_nothing_the_stateful_set_scales_freely() {
    assert_eq!(next(&seen(5, 3, &["leader", "follower", "follower"], &[])), Step::Grow);
    assert_eq!(next(&seen(2, 3, &["leader", "follower", "follower"], &[])), Step::Left(2));
    assert_eq!(next(&seen(0, 3, &["leader", "follower", "follower"], &ALL)), Step::Free);
}

/// A cluster that does what it is asked to, with roles that come and go.
fn carry_out(seen: &mut Seen, step: &Step, sync: bool) {
    match *step {
        Step::Grow => {
            for number in seen.running..seen.wanted {
                seen.members.push(member(number, ""));
            }
            seen.running = seen.wanted;
        }
        Step::Begin { action, number, target } => {
            seen.last = Some(Begun { action, number, phase: Phase::Over });
            let role = match action {
                MemberJoin => "learner",
                LogSync if sync => "learner",
                Promote => "follower",
                MemberLeave => "",
                _ => "follower",
            };
            for other in &mut seen.members {
                if other.number == number && action != LogSync {
                    *other = member(number, role);
                }
                if Some(other.number) == target {
                    *other = member(other.number, "leader");
                }
            }
        }
        Step::Joined(number) => drop(seen.joined.insert(number)),
        Step::Left(number) => drop(seen.joined.remove(&number)),
        Step::Free => {
            seen.members.retain(|member| member.number < seen.wanted);
            seen.running = seen.wanted;
        }
        Step::Hold(_) => {}
    }
}

proptest! {
    #[test]
    fn from_any_size_to_any_other_the_leader_is_never_removed_and_only_learners_are_promoted(
        from in 1..7i32, to in 1..7i32, leader in 0..7i32,
    ) {
        let leader = leader % from;
        let roles: Vec<&str> = (0..from).map(|number| if number == leader { "leader" } else { "follower" }).collect();
        let mut world = seen(to, from, &roles, &ALL);
        for _ in 0..100 {
            let step = next(&world);
            if step == Step::Free {
                break;
            }
            if let Step::Begin { action, number, target } = step {
                let on = world.members.iter().find(|member| member.number == number).unwrap();
                prop_assert!(action != MemberLeave || !on.leads, "{number} leads");
                prop_assert!(action != Promote || (on.has_role && !on.votes));
                prop_assert!(action != MemberJoin || !on.has_role);
                prop_assert!(target != Some(number));
            }
            prop_assert!(!matches!(step, Step::Hold(_)), "{step:?} {world:?}");
            carry_out(&mut world, &step, true);
            prop_assert_eq!(world.members.iter().filter(|member| member.leads).count(), 1);
        }
        prop_assert_eq!(next(&world), Step::Free);
        prop_assert_eq!(world.joined, (0..to).collect::<BTreeSet<i32>>());
    }
}
