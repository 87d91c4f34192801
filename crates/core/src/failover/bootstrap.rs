//! How a cluster begins: one grant, one initdb, ever (F14).

use super::decision::{Remembered, Step};
use super::draft::Draft;
use super::instances;
use super::raise;
use super::repair;
use super::round;
use super::world::{Holder, Lease, World};
use crate::fence::{Fence, Proof, SyncSet, Target};
use crate::names::{Epoch, MemberName};
use crate::operation::{OperationId, Start, StepId};
use std::collections::BTreeSet;

/// The reason of the first deployment.
const FIRST_PRIMARY: &str = "FirstPrimary";

/// There is no primary Lease: either the cluster is new, or its Lease is lost.
pub(super) fn without_lease(draft: &mut Draft<'_>) {
    let world = draft.world;
    if has_data(world) {
        return lost(draft);
    }
    if !instances::is_deployable(draft) {
        return;
    }
    if world.operations().active.is_none() {
        return start(draft);
    }
    let Some(first) = &world.grant else {
        let member = MemberName::of(&world.cluster.name, 1);
        return draft.step(Step::CreateGrant { member });
    };
    if world.memory.last_created_index == 0 {
        draft.memory.last_created_index = 1;
        draft.remember(Remembered::IndexUsed);
    }
    let fence = Fence { members: BTreeSet::from([first.clone()]), ..Fence::default() };
    draft.step(Step::CreateLease { epoch: Epoch(1), fence });
}

fn start(draft: &mut Draft<'_>) {
    let first = Start {
        operation: OperationId::PrimaryDbCountSpecEnforcement,
        step: StepId::PrimaryDbDeploying,
        id: None,
        subject: Some(MemberName::of(&draft.world.cluster.name, 1).to_string()),
        epoch: 1,
        reason: Some(FIRST_PRIMARY.to_owned()),
    };
    if let Ok(operations) = draft.world.operations().start(first, draft.world.wall) {
        draft.memory.operations = operations;
        draft.remember(Remembered::OperationStarted);
    }
}

/// Anything that says that this cluster may have data already. With the grant in place a claim alone says nothing: it
/// is made before initdb.
fn has_data(world: &World) -> bool {
    let known = world.members.values().any(|member| member.has_data() || (member.claim && world.grant.is_none()));
    let remembered = world.memory.system_id.is_some()
        || world.memory.primary.epoch > Epoch(0)
        || (world.memory.last_created_index > 0 && world.grant.is_none());
    known || remembered
}

/// The Lease is gone, or claims of an earlier cluster of this name are there: nobody runs initdb, the epoch goes on
/// above everything that anybody knows, and everybody with a volume is heard before anybody is named.
fn lost(draft: &mut Draft<'_>) {
    let world = draft.world;
    draft.diagnose("there is data and no primary Lease: it is made anew above every known epoch, and no initdb runs");
    let waiting = world.operations().step() == Some(StepId::PrimaryDbWaitingBeforeFailingOver);
    if !(waiting && repair::is_running(world)) {
        let start = Start {
            operation: OperationId::PrimaryDbCountSpecEnforcement,
            step: StepId::PrimaryDbWaitingBeforeFailingOver,
            id: None,
            subject: None,
            epoch: repair::newest_known(world).0,
            reason: Some(repair::LEASE_LOST.to_owned()),
        };
        if let Ok(operations) = world.operations().start(start, world.wall) {
            draft.memory.operations = operations;
            draft.memory.primary.current = None;
            draft.memory.primary.target = None;
            draft.remember(Remembered::OperationStarted);
            draft.event(true, "LeaseLost", "the primary Lease is gone although there is data".to_owned());
        }
        return;
    }
    let mut fence = Fence::default();
    repair::learn(world, &mut fence);
    if let Some(epoch) = raise::next_epoch(draft, Epoch(0)) {
        draft.step(Step::CreateLease { epoch, fence });
    }
}

/// The cluster has never had a primary that wrote, and the grant says who is to be the first. It may have taken the Lease
/// already and have ended before its initdb was through, with its pod for example: then it begins anew, since nobody else
/// ever could.
pub(super) fn is_first_naming(world: &World, lease: &Lease) -> bool {
    let fence = &lease.fence;
    let Some(first) = &world.grant else { return false };
    // Under the placeholder that a first primary records when it takes the Lease nothing is ever acknowledged.
    let blocks = |set: &SyncSet| {
        set.primary.as_ref() == Some(first) && set.members.is_empty() && set.k > 0 && !set.complete && !set.degraded
    };
    let untouched = fence.system_id.is_none()
        && world.memory.system_id.is_none()
        && fence.history.is_empty()
        && fence.sync_sets.iter().all(blocks)
        && lease.holder == Holder::Nobody;
    untouched && world.members.iter().all(|(name, member)| name == first || !member.has_data())
}

/// Names the first primary once its agent has said where it is.
pub(super) fn name_first(draft: &mut Draft<'_>, lease: &Lease) {
    let world = draft.world;
    let Some(first) = &world.grant else { return };
    let Some(report) = world.live_report(first).filter(|report| !report.address.is_empty()) else {
        draft.diagnose(format!("waits for {first} to run"));
        return;
    };
    let target = Target {
        member: first.clone(),
        address: report.address.clone(),
        proof: Proof::Bootstrap,
        initial_sync: BTreeSet::new(),
        must_reach_lsn: None,
        rest_of_log: None,
    };
    draft.step(round::naming(lease, target));
}
