//! Which members there are: numbers that are never used twice, written down before they are used (kubegres.md 3.4).

use super::decision::{Remembered, Step};
use super::draft::Draft;
use super::labels;
use super::world::{Lease, World};
use crate::fence::Fence;
use crate::names::MemberName;
use crate::operation::{OperationId, Outcome, Start, StepId};
use crate::report::MemberState;
use std::collections::BTreeSet;

/// Members that one operation deploys at most, more than the API lets anybody ask for: its subject names them all.
const AT_ONCE: u32 = 128;

/// Makes the RSM have the members that are to be, one step at a time.
pub(super) fn keep(draft: &mut Draft<'_>, lease: &Lease) {
    let world = draft.world;
    if !is_deployable(draft) {
        return;
    }
    let planned = planned(world);
    let mut wanted = existing(world);
    wanted.extend(planned.iter().filter_map(|member| index_of(world, member)));
    let missing: Vec<MemberName> = wanted
        .iter()
        .map(|index| MemberName::of(&world.cluster.name, *index))
        .filter(|member| !lease.fence.members.contains(member))
        .collect();
    if !missing.is_empty() {
        let mut fence: Fence = lease.fence.clone();
        fence.members.extend(missing);
        return draft.step(Step::Enrol { version: lease.version.clone(), epoch: lease.epoch, fence });
    }
    let instances: Vec<u32> = wanted.iter().copied().collect();
    if world.instances.as_ref() != Some(&instances) {
        return draft.step(Step::SetInstances { instances });
    }
    if labels::open_primary(world, lease).is_some() {
        with_primary(draft, &wanted, &planned);
    }
}

/// Whether members can be made; makes what they need if nothing else is waited for (kubegres.md 10.1).
pub(super) fn is_deployable(draft: &mut Draft<'_>) -> bool {
    let world = draft.world;
    for absent in &world.cluster.waits_for {
        draft.diagnose(absent.clone());
    }
    let deploying = world.operations().step() == Some(StepId::BaseConfigDeploying);
    if world.cluster.base_config {
        if deploying {
            draft.memory.operations = world.operations().end(Outcome::Completed, None);
            draft.remember(Remembered::OperationEnded);
        }
        return world.cluster.waits_for.is_empty() && !deploying;
    }
    if !world.cluster.waits_for.is_empty() {
        return false;
    }
    if deploying {
        draft.step(Step::DeployBaseConfig);
        return false;
    }
    let start = Start {
        operation: OperationId::BaseConfigCountSpecEnforcement,
        step: StepId::BaseConfigDeploying,
        id: None,
        subject: None,
        epoch: world.memory.primary.epoch.0,
        reason: None,
    };
    match world.operations().start(start, world.wall) {
        Ok(operations) => {
            draft.memory.operations = operations;
            draft.remember(Remembered::OperationStarted);
        }
        // A change of primary waits for members, and they for what is missing here: it went with a cluster that was deleted
        // and made again over its volumes, or somebody removed it.
        Err(_) if world.operations().step().is_some_and(StepId::is_change_of_primary) => {
            draft.step(Step::DeployBaseConfig);
        }
        Err(excluded) => draft.diagnose(excluded.to_string()),
    }
    false
}

/// The primary is open: replicas are made from it, all that are missing at once, since base copies run side by side.
fn with_primary(draft: &mut Draft<'_>, wanted: &BTreeSet<u32>, planned: &[MemberName]) {
    let world = draft.world;
    if !planned.is_empty() {
        if planned.iter().all(|member| follows(world, member)) {
            draft.memory.operations = world.operations().end(Outcome::Completed, None);
            draft.remember(Remembered::OperationEnded);
            let note = format!("streaming from the primary: {}", listed(planned));
            draft.event(false, "ReplicasDeployed", note);
        }
        return;
    }
    let have = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
    let missing = world.cluster.replicas.saturating_sub(have);
    if missing == 0 || world.operations().active.is_some() {
        return;
    }
    let last = last_index(world, wanted);
    let Some(end) = last.checked_add(missing.min(AT_ONCE)) else {
        return draft.diagnose(format!("no number is left for another member: {last} has been given"));
    };
    let new: Vec<MemberName> = (last + 1..=end).map(|index| MemberName::of(&world.cluster.name, index)).collect();
    let start = Start {
        operation: OperationId::ReplicaDbCountSpecEnforcement,
        step: StepId::ReplicaDbDeploying,
        id: None,
        subject: Some(join(&new)),
        epoch: world.memory.primary.epoch.0,
        reason: None,
    };
    if let Ok(operations) = world.operations().start(start, world.wall) {
        draft.memory.operations = operations;
        draft.memory.last_created_index = end;
        draft.remember(Remembered::OperationStarted);
        draft.event(false, "DeployingReplicas", format!("being copied from the primary: {}", listed(&new)));
    }
}

/// The members that exist: those of the RSM, or, when it is gone, those that have a claim.
fn existing(world: &World) -> BTreeSet<u32> {
    if let Some(instances) = &world.instances {
        return instances.iter().copied().collect();
    }
    let with_claim = world.members.iter().filter(|(_, member)| member.claim || member.has_data());
    let mut found: BTreeSet<u32> = with_claim.filter_map(|(name, _)| index_of(world, name)).collect();
    if found.is_empty() {
        found.extend(world.grant.as_ref().and_then(|first| index_of(world, first)));
    }
    found
}

/// The members that the active operation deploys. Its subject was written ahead and is the plan.
fn planned(world: &World) -> Vec<MemberName> {
    let active = world.operations().active.as_ref().filter(|active| active.step_id == StepId::ReplicaDbDeploying);
    let subject = active.and_then(|active| active.subject.as_deref()).unwrap_or_default();
    subject.split(',').filter(|name| !name.is_empty()).map(MemberName::from).collect()
}

fn follows(world: &World, member: &MemberName) -> bool {
    let state = world.live_state_of(member);
    matches!(state, Some(MemberState::Streaming | MemberState::Primary))
}

/// The greatest number that was ever given to anything of this cluster (F14 «indexes likewise from objects and
/// folders»).
fn last_index(world: &World, wanted: &BTreeSet<u32>) -> u32 {
    let known = world.members.keys().filter_map(|name| index_of(world, name));
    let won = world.lease().into_iter().flat_map(|lease| &lease.fence.history);
    let won = won.filter_map(|attempt| index_of(world, &attempt.promotion.member));
    known.chain(won).chain(wanted.iter().copied()).chain([world.memory.last_created_index]).max().unwrap_or_default()
}

/// The number of a member of this cluster.
pub(super) fn index_of(world: &World, member: &MemberName) -> Option<u32> {
    let index = member.as_str().strip_prefix(&world.cluster.name)?.strip_prefix('-')?;
    index.parse().ok()
}

/// As the subject of an operation holds them; [`planned`] reads it.
fn join(members: &[MemberName]) -> String {
    members.iter().map(MemberName::as_str).collect::<Vec<_>>().join(",")
}

/// For people.
fn listed(members: &[MemberName]) -> String {
    members.iter().map(MemberName::as_str).collect::<Vec<_>>().join(", ")
}
