//! What a change of primary is about, in words for whoever is woken by it. The one CamelCase word stays at the end, since
//! the status and the documentation use it.

use super::decision::Step;
use super::loss;
use super::picture;
use super::world::{Holder, Lease, World};
use crate::names::MemberName;

/// Why the primary is given up.
pub(super) fn failover(world: &World, lease: &Lease, reason: &'static str) -> String {
    let epoch = lease.epoch;
    let Some(target) = &lease.fence.target else {
        return format!("nobody was primary in epoch {epoch}: one is chosen anew ({reason})");
    };
    let member = &target.member;
    let how = how(world, lease, member).map_or(String::new(), |how| format!(" ({how})"));
    let why = why(world, reason);
    format!("{member} is no longer the primary: {why}{how}. One is chosen anew, and epoch {epoch} ends ({reason})")
}

fn why(world: &World, reason: &'static str) -> String {
    let said = match reason {
        loss::RELEASED => "its server ended, and its agent gave the Lease back",
        loss::TERMINATED => "its container ended",
        loss::POD_GONE => "its pod is gone",
        loss::EXPIRED => return format!("its Lease was not renewed for {} s", world.cluster.lease_duration / 1_000),
        loss::SILENT => "its Lease is not renewed and no member streams from it any more",
        loss::SHORT_OF_ACKNOWLEDGEMENTS => "too few members can stream from it, although they run",
        loss::NOT_TAKEN => "it was named and did not take over",
        loss::NOT_PROMOTED => "its server runs and is not promoted",
        _ => "what is known of it asks for a new choice",
    };
    said.to_owned()
}

/// How its server or container ended, in the words of its agent or its node.
fn how(world: &World, lease: &Lease, member: &MemberName) -> Option<String> {
    let known = world.members.get(member);
    let holder = match &lease.holder {
        Holder::Member(identity) => Some(&identity.pod_uid),
        _ => known.and_then(|known| known.pod.as_ref()).map(|pod| &pod.uid),
    };
    let ended = holder.and_then(|uid| world.terminated.get(uid)).map(|gone| gone.how.clone());
    ended.filter(|how| !how.is_empty()).or_else(|| picture::said(world, member, known?))
}

/// What is done to a pod whose server must be dead before another accepts writes.
pub(super) fn fencing(step: &Step) -> String {
    match step {
        Step::FencingDelete { pod, epoch, .. } => format!(
            "pod {pod} of the old primary is deleted, so that its server is proven dead before another member accepts \
             writes in epoch {epoch}; it is made anew and follows"
        ),
        other => other.to_string(),
    }
}
