//! Which members are brought to a new revision next (rsm.md 5).
//!
//! Decided anew after every step from the roles that members have by then, so that a leader that moved is still the last.
//! Three things differ from the origin, as rsm.md recommends: a batch never takes the voters below a strict majority
//! (5.6), a member that is out of order anyway and old is repaired first (5.4, issue 9851), and members without a known
//! role count as voters, since they may be.

use std::collections::BTreeMap;
use std::fmt;

use super::roles::{self, LEADER, LEARNER, Role};

/// How members are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// One after another, the leader last.
    Serial,
    /// All at once.
    Parallel,
    /// Those that do not vote at once, then the voters in batches that keep a majority, the leader last.
    BestEffortParallel,
}

/// A member as it is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number in the set.
    pub number: i64,
    /// Its role label; empty without one.
    pub role: String,
    /// Whether its pod is of an older revision than it should be.
    pub outdated: bool,
    /// Whether its pod is ready.
    pub ready: bool,
    /// Whether its pod is being deleted.
    pub leaving: bool,
}

/// What is decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout<'a> {
    /// How members are grouped.
    pub strategy: Strategy,
    /// Declared roles.
    pub roles: &'a [Role],
    /// Members that have a pod.
    pub members: &'a [Member],
    /// Members that should have one.
    pub wanted: usize,
    /// Members that may be away at once, where that is bounded. Nothing would ever be updated at 0, which counts as 1.
    pub max_unavailable: Option<usize>,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Every member is at the newest revision and in order.
    Done,
    /// Replace these members, in this order.
    Replace(Vec<i64>),
    /// Something must come back first.
    Wait(Waiting),
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    /// There are fewer pods than members, or more.
    Count {
        /// Pods that there are.
        pods: usize,
        /// Members that there should be.
        wanted: usize,
    },
    /// A pod that is being deleted.
    Leaving(i64),
    /// A member of the newest revision that is not ready.
    NotReady(i64),
    /// A member of the newest revision without a role, while others have one.
    NoRole(i64),
    /// So many members are away that the bound allows no other.
    Bound(usize),
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waiting::Count { pods, wanted } => write!(f, "there are {pods} pods for {wanted} members"),
            Waiting::Leaving(number) => write!(f, "the pod of member {number} is being deleted"),
            Waiting::NotReady(number) => write!(f, "member {number} is at the newest revision and not ready"),
            Waiting::NoRole(number) => write!(f, "member {number} is at the newest revision and has no role yet"),
            Waiting::Bound(bound) => write!(f, "as many members are away as maxUnavailable allows ({bound})"),
        }
    }
}

/// How one member stands (rsm.md 5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// At the newest revision and in order.
    Fine,
    /// Of an old revision, and serving.
    Old,
    /// Of an old revision, and not ready: to replace it costs nothing.
    Sick,
    /// Being replaced, or replaced and not back.
    Away,
}

struct Ranked<'a> {
    member: &'a Member,
    priority: i32,
    standing: Standing,
}

impl Ranked<'_> {
    /// Only of a declared role that does not vote is it known that it does not.
    fn may_vote(&self) -> bool {
        self.priority != LEARNER
    }
}

/// Decides which members to replace now.
#[must_use]
pub fn next(rollout: &Rollout<'_>) -> Next {
    let ranked = rank(rollout);
    if ranked.len() != rollout.wanted {
        // Somebody is on the way or on the way out: what it will be is not known before (rsm.md 5.2 no. 4).
        return Next::Wait(Waiting::Count { pods: ranked.len(), wanted: rollout.wanted });
    }
    if ranked.iter().all(|one| one.standing == Standing::Fine) {
        return Next::Done;
    }
    let replaced = match rollout.strategy {
        Strategy::Parallel => parallel(rollout, &ranked),
        Strategy::Serial | Strategy::BestEffortParallel => stepwise(rollout, &ranked),
    };
    if replaced.is_empty() { waiting(rollout, &ranked) } else { Next::Replace(replaced) }
}

/// Voters that may be away while a strict majority stays; one where there is no such number, since an update of one or
/// two voters cannot keep a majority at all.
fn batch_of_voters(ranked: &[Ranked<'_>]) -> usize {
    let voters = ranked.iter().filter(|one| one.may_vote()).count();
    (voters.saturating_sub(1) / 2).max(1)
}

/// Members in the order in which they are changed.
fn rank<'a>(rollout: &Rollout<'a>) -> Vec<Ranked<'a>> {
    let priorities = roles::priority_map(rollout.roles);
    // When nobody has a role, nobody can be waited for to get one: the probe may not run at all (rsm.md 5.4, 0.9).
    let roles_matter = rollout.members.iter().any(|member| roles::find(rollout.roles, &member.role).is_some());
    let mut ranked: Vec<Ranked<'a>> = rollout
        .members
        .iter()
        .map(|member| Ranked {
            member,
            priority: roles::priority_of(&priorities, &member.role),
            standing: standing(member, roles_matter),
        })
        .collect();
    ranked.sort_by(|a, b| roles::compare((a.priority, a.member.number), (b.priority, b.member.number), false));
    ranked
}

fn standing(member: &Member, roles_matter: bool) -> Standing {
    match member {
        Member { leaving: true, .. } => Standing::Away,
        Member { outdated: true, ready: true, .. } => Standing::Old,
        Member { outdated: true, ready: false, .. } => Standing::Sick,
        Member { ready: true, role, .. } if !(roles_matter && role.is_empty()) => Standing::Fine,
        _ => Standing::Away,
    }
}

fn count(ranked: &[Ranked<'_>], standing: Standing) -> usize {
    ranked.iter().filter(|one| one.standing == standing).count()
}

fn of<'a>(ranked: &'a [Ranked<'a>], standing: Standing) -> impl Iterator<Item = &'a Ranked<'a>> {
    ranked.iter().filter(move |one| one.standing == standing)
}

fn bound(rollout: &Rollout<'_>) -> usize {
    rollout.max_unavailable.map_or(usize::MAX, |bound| bound.max(1))
}

/// All at once, as far as the bound allows.
fn parallel(rollout: &Rollout<'_>, ranked: &[Ranked<'_>]) -> Vec<i64> {
    let bound = bound(rollout);
    let away = count(ranked, Standing::Away) + count(ranked, Standing::Sick);
    let mut left = bound.saturating_sub(away);
    let mut sick_left = bound;
    let chosen = ranked.iter().filter(|one| match one.standing {
        Standing::Sick => take_one(&mut sick_left),
        Standing::Old => take_one(&mut left),
        Standing::Fine | Standing::Away => false,
    });
    chosen.map(|one| one.member.number).collect()
}

fn take_one(left: &mut usize) -> bool {
    let any = *left > 0;
    *left = left.saturating_sub(1);
    any
}

/// The sick first, then the others, and the next only when the last is back.
fn stepwise(rollout: &Rollout<'_>, ranked: &[Ranked<'_>]) -> Vec<i64> {
    if ranked.iter().any(|one| one.member.leaving) {
        return Vec::new();
    }
    let batch = batch_of_voters(ranked);
    // One that is not ready may serve all the same, hence no more of them at a time than of those that do.
    if count(ranked, Standing::Sick) > 0 {
        return group(rollout, of(ranked, Standing::Sick), batch);
    }
    if count(ranked, Standing::Away) > 0 {
        return Vec::new();
    }
    group(rollout, of(ranked, Standing::Old), batch)
}

/// The first group of an ordered list: those that do not vote together with those of whom it is not known, else voters,
/// else one leader; of those that may vote at most `batch`.
fn group<'a>(rollout: &Rollout<'_>, ordered: impl Iterator<Item = &'a Ranked<'a>>, batch: usize) -> Vec<i64> {
    let mut ordered = ordered.peekable();
    let Some(level) = ordered.peek().map(|first| level(first)) else { return Vec::new() };
    // Without roles nothing tells who votes, nor who leads (rsm.md 5.6, example E).
    let one_by_one = rollout.strategy == Strategy::Serial || rollout.roles.is_empty() || level == Level::Leader;
    let most = if one_by_one { 1 } else { bound(rollout) };
    let mut voters = batch;
    ordered
        .take_while(|one| self::level(one) == level)
        .filter(|one| !one.may_vote() || take_one(&mut voters))
        .take(most)
        .map(|one| one.member.number)
        .collect()
}

/// What is replaced together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Does not vote, or is not known to.
    NoVoter,
    Voter,
    Leader,
}

fn level(one: &Ranked<'_>) -> Level {
    match one.priority {
        priority if priority <= LEARNER => Level::NoVoter,
        priority if priority < LEADER => Level::Voter,
        _ => Level::Leader,
    }
}

/// Why nothing is replaced although something is to be.
fn waiting(rollout: &Rollout<'_>, ranked: &[Ranked<'_>]) -> Next {
    let away = ranked.iter().map(|one| one.member).find(|member| member.leaving);
    let away = away.or_else(|| of(ranked, Standing::Away).map(|one| one.member).next());
    Next::Wait(match away {
        Some(member) if member.leaving => Waiting::Leaving(member.number),
        Some(member) if !member.ready => Waiting::NotReady(member.number),
        Some(member) => Waiting::NoRole(member.number),
        None => Waiting::Bound(bound(rollout)),
    })
}

/// The member that leads: the first of the highest priority, by the labels of now.
#[must_use]
pub fn leader(roles: &[Role], members: &[Member]) -> Option<i64> {
    let priorities: BTreeMap<String, i32> = roles::priority_map(roles);
    let leads = |member: &&Member| roles::priority_of(&priorities, &member.role) == LEADER;
    members.iter().filter(leads).map(|member| member.number).min()
}

#[cfg(test)]
mod tests;
