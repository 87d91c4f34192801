//! What the member says about itself.

use crate::member::decide::unusable_here;
use crate::member::world::{Data, Engine, JobKind, World};
use crate::names::Epoch;
use crate::report::MemberState;

/// The decided part of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) state: MemberState,
    pub(super) left: Option<Epoch>,
    pub(super) ready: bool,
}

pub(super) fn summary(world: &World) -> Summary {
    Summary { state: state(world), left: left(world), ready: ready(world) }
}

fn state(world: &World) -> MemberState {
    match world.job {
        Some(JobKind::InitDb) => return MemberState::Initialising,
        Some(JobKind::Clone) => return MemberState::Copying,
        Some(JobKind::Rewind) => return MemberState::Rewinding,
        Some(JobKind::Fetch) => return MemberState::Fetching,
        Some(JobKind::Promote) => return MemberState::Promoting,
        Some(JobKind::Stop) => return MemberState::Stopping,
        _ => {}
    }
    let stopped = matches!(world.engine, Engine::Stopped { .. });
    if stopped && (world.is_given_up() || trouble(world).is_some()) {
        return MemberState::Failed;
    }
    match (&world.engine, &world.volume.data) {
        (Engine::Stopped { .. }, Data::Absent) => MemberState::WaitingForSource,
        (Engine::Stopped { .. }, _) if world.lease.is_none() => MemberState::Starting,
        (Engine::Stopped { .. }, _) => MemberState::Stopped,
        (Engine::Starting, _) => MemberState::Recovering,
        (Engine::Standby(standby), _) if standby.streaming && standby.source.is_some() => MemberState::Streaming,
        (Engine::Standby(_), _) => MemberState::Standby,
        (Engine::Writable(writable), _) if writable.open && world.holding() => MemberState::Primary,
        (Engine::Writable(_), _) => MemberState::Promoting,
    }
}

/// Why the data folder cannot be used, and what follows.
pub(super) fn trouble(world: &World) -> Option<String> {
    match &world.volume.data {
        Data::Unusable(why) if world.job == Some(JobKind::Clone) => {
            Some(format!("{why}; the folder is set aside and copied anew"))
        }
        // It may be what the job is about.
        Data::Unusable(_) if world.job.is_some() => None,
        Data::Unusable(why) => Some(format!(
            "{why}; the folder is set aside and copied anew once another member is primary; if none can be, put it right by hand"
        )),
        _ => unusable_here(world),
    }
}

/// The epoch that it has left for: durable, nobody streams to it, its position is final (F6).
fn left(world: &World) -> Option<Epoch> {
    let epoch = world.volume.epoch;
    if world.holding() || (world.job.is_some() && world.job != Some(JobKind::Open)) {
        return None;
    }
    if world.is_given_up() || world.volume.inconsistent || unusable_here(world).is_some() {
        return None; // it could not start as a primary
    }
    match (&world.engine, &world.volume.data) {
        (Engine::Stopped { position: Some(_) }, Data::Present { .. }) => Some(epoch),
        (Engine::Standby(standby), _) if standby.source.is_none() && !standby.receiver && standby.settled => {
            Some(epoch)
        }
        _ => None,
    }
}

fn ready(world: &World) -> bool {
    match &world.engine {
        Engine::Standby(standby) => standby.streaming && standby.open,
        Engine::Writable(writable) => writable.open && world.holding(),
        Engine::Stopped { .. } | Engine::Starting => false,
    }
}
