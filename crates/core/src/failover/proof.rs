//! By what the member to be named may take a Lease that has not run out, and whom to stop first (F1, F4, F7).

use super::decision::Step;
use super::loss;
use super::world::{Holder, Lease, Member, Pod, World};
use crate::fence::Proof;
use crate::names::HolderIdentity;

/// How long a holder that answers is left to stop by itself after a raise, before its pod is deleted. A live agent
/// needs 0.15 s at most (postgres-recipes.md 1).
const PATIENCE: u64 = 500;
/// The same in a hand-over: the holder stops cleanly, for at most a second, and has clients to end (postgres-recipes.md 9).
const HANDOVER_PATIENCE: u64 = 3_000;
/// How long a pod that was deleted may take to be gone before, in quorum mode, the fence alone is enough: its node is called
/// Ready and does not carry the delete out. A node that answers needs the grace of 1 s and a moment. One whose cable was
/// pulled is called Ready for another 50 s (kube-controller-manager's `--node-monitor-grace-period`), and nobody could write
/// in the meantime.
const KILL_WAIT: u64 = 1_500;

/// What stands between a choice and naming it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// Nothing: this proof.
    Proven(Proof),
    /// The old holder could still acknowledge something, or somebody can still stop it first.
    NotYet {
        /// Why, for people.
        why: String,
        /// What to do about it now.
        step: Option<Box<Step>>,
        /// Milliseconds after which the answer may differ by itself.
        again: Option<u64>,
    },
}

/// Judges the holder that stands in the Lease. `fenced` says that the quorum fence holds (F7).
pub fn judge(world: &World, lease: &Lease, fenced: bool) -> Ruling {
    let expires = world.cluster.lease_duration.saturating_sub(world.now.since(lease.unchanged_since));
    match &lease.holder {
        Holder::Nobody => Ruling::Proven(Proof::Released),
        Holder::Stranger(text) if lease.is_expired(world) => {
            let _ = text;
            Ruling::Proven(Proof::Expired)
        }
        Holder::Stranger(text) => Ruling::NotYet {
            why: format!("the Lease is held by {text:?}, which is no member of ours: it must run out"),
            step: None,
            again: Some(expires),
        },
        Holder::Member(identity) => judge_member(world, lease, identity, fenced, expires),
    }
}

fn judge_member(world: &World, lease: &Lease, holder: &HolderIdentity, fenced: bool, expires: u64) -> Ruling {
    // F4 a: a status that was written before the raise may speak of a container whose successor took the Lease since.
    if let Some(gone) = world.terminated.get(&holder.pod_uid).filter(|gone| gone.version > lease.raised_at) {
        return Ruling::Proven(Proof::Terminated { container_id: gone.container_id.clone() });
    }
    // Nobody could stop what no other member can reach, and the fence holds whether it is stopped or not.
    let out_of_reach = fenced && loss::is_out_of_reach(world, &holder.member, loss::was_overdue(world));
    if let Some(pod) = answering(world, lease, holder).filter(|_| !out_of_reach) {
        let waited = world.now.since(lease.epoch_since);
        if !(fenced && waited >= patience(lease) + KILL_WAIT) {
            return kill_first(lease, pod, waited, lease.is_expired(world));
        }
    }
    if fenced {
        return Ruling::Proven(Proof::QuorumFence);
    }
    if lease.is_expired(world) {
        return Ruling::Proven(Proof::Expired);
    }
    Ruling::NotYet {
        why: format!("nothing proves that {} is dead: the Lease must run out", holder.member),
        step: None,
        again: Some(expires),
    }
}

/// The holder's pod, if somebody could stop it and nobody has: its node answers, its container is not reported
/// terminated, and it has not said that it stopped (F4 «kill first where somebody can»).
fn answering<'a>(world: &'a World, lease: &Lease, holder: &HolderIdentity) -> Option<&'a Pod> {
    let member = world.members.get(&holder.member)?;
    let pod = member.pod.as_ref().filter(|pod| pod.uid == holder.pod_uid && pod.node_ready)?;
    let dead = world.terminated.contains_key(&pod.uid) || has_stopped(member, lease);
    (!dead).then_some(pod)
}

/// Its own word under the new epoch: the engine is gone, every process of it (F3, F7). A successor's word counts as
/// well, since it holds the volume's lock, which proves its predecessor dead (F5).
fn has_stopped(member: &Member, lease: &Lease) -> bool {
    member.report.as_ref().is_some_and(|report| report.left == Some(lease.epoch))
}

fn kill_first(lease: &Lease, pod: &Pod, waited: u64, expired: bool) -> Ruling {
    let stamped = pod.stamp.is_some_and(|stamp| stamp >= lease.epoch);
    let why = format!("pod {} of the old holder is being stopped first", pod.name);
    let patience = patience(lease);
    let again = Some((patience + KILL_WAIT).saturating_sub(waited).max(1));
    if pod.deleting || stamped {
        return Ruling::NotYet { why, step: None, again };
    }
    if waited < patience && !expired {
        let why = format!("the old holder in pod {} is left to stop by itself", pod.name);
        return Ruling::NotYet { why, step: None, again: Some(patience - waited) };
    }
    let step = Step::FencingDelete {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        version: pod.version.clone(),
        epoch: lease.epoch,
    };
    Ruling::NotYet { why, step: Some(Box::new(step)), again }
}

/// How long the holder is left to stop by itself.
fn patience(lease: &Lease) -> u64 {
    if lease.fence.handover.is_some() { HANDOVER_PATIENCE } else { PATIENCE }
}
