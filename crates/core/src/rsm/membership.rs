//! What is done next when members come and go (rsm.md 6, with the rules that it recommends).
//!
//! On the way out each new member joins, gets the log and is promoted before the next one begins; on the way in the highest
//! number goes first, and a leader hands over before it leaves. Members are told by number, never by count: one that has
//! lost its label for a moment is no new one.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// An action on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ActionKind {
    /// The leader hands over.
    Switchover,
    /// A member joins.
    MemberJoin,
    /// A member leaves.
    MemberLeave,
    /// A member that joined gets the log.
    LogSync,
    /// A member that has the log may vote.
    Promote,
}

/// A member as it is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub number: i32,
    /// Its containers run and it is not about to go.
    pub is_running: bool,
    /// It is ready and has a declared role.
    pub has_role: bool,
    /// That role leads.
    pub leads: bool,
    /// That role votes.
    pub votes: bool,
}

/// An action that was begun, as the status keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Which.
    pub action: ActionKind,
    /// On whom.
    pub number: i32,
    /// How it stands.
    pub phase: Phase,
}

/// How an action stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Begun, or to be tried again: nothing else begins.
    UnderWay,
    /// It failed for good: a person decides.
    Failed,
    /// It succeeded, or a person said to go on without it.
    Over,
}

/// Everything that the decision needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Members asked for.
    pub wanted: i32,
    /// Members that the StatefulSet is asked for now.
    pub running: i32,
    /// Numbers of the members that are in the cluster, as the status keeps them.
    pub joined: BTreeSet<i32>,
    /// Members as they are.
    pub members: Vec<Member>,
    /// Actions that the set defines.
    pub defined: BTreeSet<ActionKind>,
    /// The last action that was begun.
    pub last: Option<Begun>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Membership is as wanted: the StatefulSet may become what it should be.
    Free,
    /// Pods are missing: the StatefulSet may grow, and each new member is let in after its pod runs.
    Grow,
    /// The StatefulSet is left as it is, for this reason.
    Hold(Why),
    /// The StatefulSet is left as it is, and an action begins; it is written down first.
    Begin {
        /// Which.
        action: ActionKind,
        /// On whom.
        number: i32,
        /// Who takes over, for a switchover.
        target: Option<i32>,
    },
    /// The last action on this member had its effect: it is in the cluster from now on.
    Joined(i32),
    /// It is out of the cluster from now on.
    Left(i32),
}

/// Why nothing begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// An action runs or waits to be tried again.
    UnderWay,
    /// An action failed for good.
    Failed,
    /// The effect of an action is not seen yet.
    Effect(ActionKind, i32),
    /// The pod of a member that is to join does not run yet.
    NoPod(i32),
    /// Nobody leads, or several do.
    Leaders(usize),
    /// Members that are in the cluster have no role now: with one change more the majority might be lost.
    Unhealthy(Vec<i32>),
    /// The leader is to leave and nobody can take over.
    NoSuccessor(i32),
}

/// Decides. A pure function: the same world gives the same step.
#[must_use]
pub fn next(seen: &Seen) -> Step {
    match seen.last.map(|last| last.phase) {
        Some(Phase::UnderWay) => return Step::Hold(Why::UnderWay),
        Some(Phase::Failed) => return Step::Hold(Why::Failed),
        _ => {}
    }
    // A set that is put to rest keeps its members: they come back with their data.
    if seen.wanted <= 0 {
        return Step::Free;
    }
    if let Some(number) = seen.joined.iter().rev().copied().find(|number| *number >= seen.wanted) {
        return leave(seen, number);
    }
    match (0..seen.wanted).find(|number| !seen.joined.contains(number)) {
        Some(number) => join(seen, number),
        None => Step::Free,
    }
}

/// The way out of one member.
fn join(seen: &Seen, number: i32) -> Step {
    let steps: Vec<ActionKind> = [ActionKind::MemberJoin, ActionKind::LogSync, ActionKind::Promote]
        .into_iter()
        .filter(|action| seen.defined.contains(action))
        .collect();
    let over = seen.last.filter(|last| last.number == number && steps.contains(&last.action));
    let Some(member) = member(seen, number) else {
        return if seen.running <= number || seen.running < seen.wanted {
            Step::Grow
        } else {
            Step::Hold(Why::NoPod(number))
        };
    };
    let done = over.and_then(|last| steps.iter().position(|step| *step == last.action)).map_or(0, |at| at + 1);
    let Some(action) = steps.get(done).copied() else {
        // Where nothing is defined, a member is in once it has a role.
        return if member.has_role { Step::Joined(number) } else { effect_of_joining(over, number, seen) };
    };
    if !member.is_running {
        return Step::Hold(Why::NoPod(number));
    }
    // Whoever joined must be seen to be in before it goes on (rsm.md 6.5).
    if done > 0 && !member.has_role {
        return Step::Hold(Why::Effect(ActionKind::MemberJoin, number));
    }
    if let Some(why) = unhealthy(seen, None) {
        return Step::Hold(why);
    }
    Step::Begin { action, number, target: None }
}

fn effect_of_joining(over: Option<Begun>, number: i32, seen: &Seen) -> Step {
    match over {
        Some(last) => Step::Hold(Why::Effect(last.action, number)),
        // Nothing is to be done for it: it must not keep the StatefulSet from what it should be.
        None if seen.running < seen.wanted => Step::Grow,
        None => Step::Free,
    }
}

/// The way in of one member.
fn leave(seen: &Seen, number: i32) -> Step {
    let over = seen.last.filter(|last| last.number == number);
    if over.is_some_and(|last| last.action == ActionKind::MemberLeave) {
        return Step::Left(number);
    }
    let leads = member(seen, number).is_some_and(|member| member.leads);
    if leads && seen.defined.contains(&ActionKind::Switchover) {
        // A switchover that is over and of which nothing is seen is waited for: the leader must not go (rsm.md 6.5). One
        // that a person skipped counts too, and then the person has to make another lead.
        if over.is_some_and(|last| last.action == ActionKind::Switchover) {
            return Step::Hold(Why::Effect(ActionKind::Switchover, number));
        }
        if let Some(why) = unhealthy(seen, Some(number)) {
            return Step::Hold(why);
        }
        return match successor(seen, number) {
            Some(target) => Step::Begin { action: ActionKind::Switchover, number, target: Some(target) },
            None => Step::Hold(Why::NoSuccessor(number)),
        };
    }
    if !seen.defined.contains(&ActionKind::MemberLeave) {
        return Step::Left(number);
    }
    match unhealthy(seen, Some(number)) {
        Some(why) => Step::Hold(why),
        None => Step::Begin { action: ActionKind::MemberLeave, number, target: None },
    }
}

/// Who takes over from a leader that goes: a voter that stays, the smallest number first; never the leader itself.
#[must_use]
pub fn successor(seen: &Seen, leader: i32) -> Option<i32> {
    let stays = |member: &&Member| {
        member.number != leader && member.number < seen.wanted && member.has_role && member.votes && member.is_running
    };
    seen.members.iter().filter(stays).map(|member| member.number).min()
}

/// Why the cluster is not fit for a change; whoever leaves need not be well.
fn unhealthy(seen: &Seen, leaving: Option<i32>) -> Option<Why> {
    let leaders = seen.members.iter().filter(|member| member.leads).count();
    if leaders != 1 {
        return Some(Why::Leaders(leaders));
    }
    let well = |number: i32| member(seen, number).is_some_and(|member| member.has_role);
    let ill: Vec<i32> =
        seen.joined.iter().copied().filter(|number| Some(*number) != leaving && !well(*number)).collect();
    (!ill.is_empty()).then_some(Why::Unhealthy(ill))
}

/// The first wait after a failure; each further one is twice as long, up to the longest.
const FIRST_WAIT_MILLIS: u64 = 1_000;
const LONGEST_WAIT_MILLIS: u64 = 60_000;

/// How long nothing is tried after attempt number `attempt` failed.
#[must_use]
pub fn back_off_millis(attempt: u32) -> u64 {
    FIRST_WAIT_MILLIS.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST_WAIT_MILLIS)
}

/// Whether a person has to decide if attempt number `attempt` fails.
#[must_use]
pub fn is_last_attempt(attempt: u32, most: u32) -> bool {
    attempt >= most.max(1)
}

fn member(seen: &Seen, number: i32) -> Option<&Member> {
    seen.members.iter().find(|member| member.number == number)
}

#[cfg(test)]
mod tests;
