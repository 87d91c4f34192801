//! What an update by role sees of a set, and what follows from it (rsm.md 5.2, 5.3).

use coregent_api::labels;
use coregent_api::rsm::{MemberLayout, MemberUpdateStrategy};
use coregent_core::rsm::update::{Member, Next, Rollout, Strategy, next as decide};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::names;
use crate::order::{role, role_of};
use crate::ready::members_of;
use crate::status::is_ready;
use crate::world::World;

/// Label by which the StatefulSet controller says which revision a pod was made from.
pub const REVISION: &str = "controller-revision-hash";

/// What an update by role does next. `None` where none is asked for, or where it cannot be told yet: a StatefulSet that
/// its controller has not looked at since it was changed says nothing about its newest revision.
#[must_use]
pub fn next(world: &World) -> Option<Next> {
    let rsm = &world.rsm;
    let strategy = match rsm.spec.member_update_strategy? {
        MemberUpdateStrategy::Serial => Strategy::Serial,
        MemberUpdateStrategy::Parallel => Strategy::Parallel,
        MemberUpdateStrategy::BestEffortParallel => Strategy::BestEffortParallel,
    };
    let members = members(world)?;
    let wanted = wanted(world);
    let bound = rsm.spec.update_strategy.as_ref().and_then(|update| update.unavailable_of(wanted));
    let roles: Vec<_> = rsm.spec.roles.iter().map(role).collect();
    Some(decide(&Rollout { strategy, roles: &roles, members: &members, wanted, max_unavailable: bound }))
}

/// Members that should have a pod by now: as many as the StatefulSets ask for.
fn wanted(world: &World) -> usize {
    let asked = match world.rsm.spec.member_layout {
        MemberLayout::StatefulSet => world.stateful_sets.iter().map(replicas).sum(),
        MemberLayout::Instances => i32::try_from(members_of(&world.rsm).len()).unwrap_or(i32::MAX),
    };
    usize::try_from(asked).unwrap_or_default()
}

fn replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn members(world: &World) -> Option<Vec<Member>> {
    let looked_at = |set: &StatefulSet| {
        let seen = set.status.as_ref().and_then(|status| status.observed_generation);
        seen.is_some() && seen >= set.metadata.generation
    };
    if world.stateful_sets.is_empty() || !world.stateful_sets.iter().all(looked_at) {
        return None;
    }
    world.pods.iter().map(|pod| member(world, pod)).collect()
}

/// A member of which the newest revision is known.
fn member(world: &World, pod: &Pod) -> Option<Member> {
    let number = world.number(pod);
    let newest = set_of(world, number)?.status.as_ref()?.update_revision.as_deref()?;
    Some(Member {
        number,
        role: role_of(pod).to_owned(),
        outdated: pod.labels().get(REVISION).map(String::as_str) != Some(newest),
        ready: is_ready(pod),
        leaving: pod.metadata.deletion_timestamp.is_some(),
    })
}

/// The StatefulSet that a member belongs to.
fn set_of(world: &World, number: i64) -> Option<&StatefulSet> {
    let name = match world.rsm.spec.member_layout {
        MemberLayout::StatefulSet => world.rsm.name_any(),
        MemberLayout::Instances => names::instance(&world.rsm.name_any(), i32::try_from(number).ok()?),
    };
    world.stateful_sets.iter().find(|set| set.name_any() == name)
}

/// Whether a pod says that it leads: by its label, which is never more than a hint.
#[must_use]
pub fn leads(world: &World, pod: &Pod) -> bool {
    let name = pod.labels().get(labels::ROLE).map(|name| name.to_lowercase());
    world.rsm.spec.roles.iter().any(|role| role.is_leader && Some(role.name.to_lowercase()) == name)
}
