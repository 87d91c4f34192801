//! One truth for the label (F15): the leader's goes only to the pod whose uid is in `holderIdentity`, and to nobody
//! while nobody is named. Neither label nor Service is ever a fence.

use super::decision::{Role, Step};
use super::world::{Holder, Lease, World};
use crate::names::MemberName;
use crate::report::MemberState;

/// The member whose pod may carry the leader's label now, if there is one: it was named, holds the Lease with this very
/// process, and says that it lets clients in.
pub fn open_primary<'a>(world: &World, lease: &'a Lease) -> Option<&'a MemberName> {
    reported_primary(world, lease).filter(|member| world.live_report(member).is_some())
}

/// The same by its own word alone: a node that has gone NotReady says nothing of an agent that goes on renewing.
pub fn reported_primary<'a>(world: &World, lease: &'a Lease) -> Option<&'a MemberName> {
    let target = lease.fence.target.as_ref()?;
    let Holder::Member(holder) = &lease.holder else { return None };
    let report = world.members.get(&holder.member)?.report.as_ref()?;
    let open = report.state == MemberState::Primary
        && report.ready
        && report.pod_uid == holder.pod_uid
        && report.nonce == holder.nonce;
    (open && target.member == holder.member).then_some(&holder.member)
}

/// Takes the leader's label from every pod but that of `primary`.
pub fn strip(world: &World, primary: Option<&MemberName>) -> Vec<Step> {
    pods(world)
        .filter(|(name, pod)| Some(*name) != primary && pod.role.as_deref() == Some(Role::Primary.as_str()))
        .map(|(_, pod)| Step::Label { pod: pod.name.clone(), uid: pod.uid.clone(), role: None })
        .collect()
}

/// Brings every label to what it should be. A replica keeps its label while it has no stream: its readiness keeps
/// clients away, and labels that come and go in a failover would cost writes on the way to the first commit.
pub fn settle(world: &World, primary: Option<&MemberName>) -> Vec<Step> {
    let mut steps = strip(world, primary);
    for (name, pod) in pods(world) {
        let wanted = if Some(name) == primary {
            Role::Primary
        } else if world.live_state_of(name) == Some(MemberState::Streaming) {
            Role::Replica
        } else {
            continue;
        };
        if pod.role.as_deref() != Some(wanted.as_str()) {
            // A stripped pod that streams gets its new role in the same breath, never two writes.
            steps.retain(|step| !matches!(step, Step::Label { uid, .. } if *uid == pod.uid));
            steps.push(Step::Label { pod: pod.name.clone(), uid: pod.uid.clone(), role: Some(wanted) });
        }
    }
    // Whoever loses the leader's label goes before the one that gets it: never two.
    steps.sort_by_key(|step| matches!(step, Step::Label { role: Some(Role::Primary), .. }));
    steps
}

fn pods(world: &World) -> impl Iterator<Item = (&MemberName, &super::world::Pod)> {
    world.members.iter().filter_map(|(name, member)| member.pod.as_ref().map(|pod| (name, pod)))
}
