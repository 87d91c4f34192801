//! The controller's share of the failover protocol (failover.md F1, F4–F7, F9, F10, F12, F14–F17): one pure function
//! [`decide`] from what is seen of a cluster to what is to be done next.
//!
//! The folder reads like the protocol: [`world`] is what is seen, [`bootstrap`] makes a cluster once and only once,
//! [`repair`] deals with an API that is older than its members, [`granted`] watches a named primary, [`loss`] says
//! when it counts as lost, [`round`] holds an election over the [`electorate`], [`choose`] picks, [`dead_end`] says when only
//! a person can, [`proof`] judges the
//! old holder, [`labels`] says who is told to clients, [`switchover`] plans, [`instances`] grows the cluster, and
//! [`picture`] tells people.

pub mod choose;
pub mod dead_end;
pub mod decision;
pub mod electorate;
pub mod labels;
pub mod loss;
pub mod memory;
pub mod picture;
pub mod proof;
pub mod repair;
pub mod standing;
pub mod world;

mod bootstrap;
mod draft;
mod granted;
mod instances;
mod raise;
mod round;
mod switchover;
mod told;

#[cfg(test)]
mod tests;

pub use decision::{Decision, Event, Remembered, Role, Step};
pub use memory::{DataLoss, LastFailover, Lossless, Memory, PrimaryCopy};
pub use world::{Cluster, Holder, Lease, LeaseView, Member, Mode, Pod, SwitchoverRequest, Termination, World};

use draft::Draft;

/// Decides what is to be done next for one cluster. Total and deterministic: the same world gives the same bytes.
pub fn decide(world: &World) -> Decision {
    let mut draft = Draft::new(world);
    if world.cluster.deleting || world.cluster.paused {
        return draft.finish();
    }
    match &world.lease {
        LeaseView::Invalid { why } => {
            draft.diagnose(format!("nobody is promoted while the primary Lease cannot be read: {why}"));
        }
        LeaseView::Absent => bootstrap::without_lease(&mut draft),
        LeaseView::Present(lease) => with_lease(&mut draft, lease),
    }
    time_out(&mut draft);
    draft.finish()
}

fn with_lease(draft: &mut Draft<'_>, lease: &Lease) {
    if repair::is_behind(draft, lease) {
        return;
    }
    if raise::is_pending(draft.world, lease) {
        raise::carry_out(draft, lease);
    } else if let Some(target) = &lease.fence.target {
        granted::watch(draft, lease, target);
    } else {
        round::hold(draft, lease);
    }
    if draft.is_idle() {
        instances::keep(draft, lease);
    }
}

/// An operation that ran past its time is marked once, with an event; what it waits for may still come.
fn time_out(draft: &mut Draft<'_>) {
    let Some(active) = &draft.world.operations().active else { return };
    let (elapsed, limit) = (draft.world.step_elapsed(), active.step_id.time_limit());
    if elapsed < limit {
        draft.again(limit - elapsed);
    }
    if !draft.is_idle() {
        return;
    }
    if let Some(marked) = draft.world.operations().time_out(elapsed) {
        let note = format!("{} has not ended within {} s", active.step_id, limit / 1_000);
        draft.memory.operations = marked;
        draft.remember(Remembered::OperationAdvanced);
        draft.event(true, "BlockingOperationTimedOut", note);
    }
}
