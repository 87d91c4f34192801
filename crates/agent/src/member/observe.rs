//! The world as the decision sees it, and the report.

use super::Agent;
use crate::engine::Engine;
use crate::report::Wanted;
use coregent_core::fence::{self, Fence};
use coregent_core::member::{self, Decision, JobKind, PrimaryLease, Volume, World};
use coregent_core::names::Epoch;
use coregent_core::position::Position;
use coregent_core::report::{MemberReport, VERSION};
use k8s_openapi::api::coordination::v1::Lease;
use std::collections::BTreeSet;

impl<E: Engine> Agent<E> {
    pub(super) fn observe(&self) -> World {
        let durable = self.engine.durable();
        World {
            now: self.clock.now(),
            me: self.me.clone(),
            address: self.config.address(),
            settings: self.config.settings.clone(),
            lease: self.received.as_ref().map(|received| PrimaryLease {
                epoch: epoch(&received.lease),
                holder: holder(&received.lease),
                fence: fence(&received.lease),
                since: received.since,
                epoch_since: received.epoch_since,
            }),
            bootstrap_grant: self.granted,
            held: self.held,
            released: self.released,
            volume: Volume {
                epoch: durable.epoch,
                epoch_at_start: durable.epoch_at_start,
                attempt: durable.attempt,
                attempt_recorded: durable.attempt_recorded,
                data: self.data.clone(),
                inconsistent: durable.inconsistent,
            },
            engine: self.status.engine.clone(),
            was_writable: self.was_writable,
            job: self.job.as_ref().map(|job| job.kind),
            towards: self.towards.clone(),
            retry: self.failures.map(|(kind, _, at)| (kind, at)),
            failing: self.failed_starts >= super::events::FAILED_STARTS,
            writing: self.writing,
            leaving: self.leaving,
        }
    }

    /// Hands the report to the publisher.
    pub(super) fn publish(&self, world: &World, decision: &Decision) {
        let position = position(&world.engine).filter(|_| !world.volume.inconsistent).cloned();
        let flushed_lsn = match &world.engine {
            member::Engine::Writable(writable) => Some(writable.position.lsn),
            _ => None,
        };
        let last_error = decision.trouble.clone().or_else(|| self.last_error.clone());
        let report = MemberReport {
            version: VERSION,
            member: self.me.member.clone(),
            pod_uid: self.me.pod_uid.clone(),
            nonce: self.me.nonce.clone(),
            address: world.address.clone(),
            agent: std::net::SocketAddr::new(self.config.pod_ip, self.config.agent_port).to_string(),
            epoch: world.volume.epoch,
            left: decision.left,
            state: decision.state,
            position,
            unrecorded_attempt: world.unrecorded_attempt().cloned(),
            inconsistent: world.volume.inconsistent,
            system_id: match &world.volume.data {
                member::Data::Present { system_id } => Some(system_id.clone()),
                _ => None,
            },
            standbys: self.status.standbys.clone(),
            flushed_lsn,
            ready: decision.ready,
            warnings: self.warnings(),
            source: self.reached.clone(),
            last_error,
            prepared: match &world.engine {
                member::Engine::Writable(writable) => writable.prepared.clone(),
                _ => None,
            },
            handled_request: None,
        };
        let owners = self.received.as_ref().and_then(|received| received.lease.metadata.owner_references.clone());
        let wanted = Wanted { report: Some(report), owners: owners.unwrap_or_default(), gaps: self.gaps };
        self.outlets.wanted.send_if_modified(|current| {
            let changed = *current != wanted;
            *current = wanted;
            changed
        });
    }

    fn warnings(&self) -> BTreeSet<String> {
        let unexpected = self.unexpected_primary.then(|| {
            "UnexpectedPrimary: its server accepted writes although this member does not hold the Lease; it was \
             stopped, and goes back to what the primary has"
                .to_owned()
        });
        self.status.warnings.iter().cloned().chain(unexpected).collect()
    }

    /// Whether a job that is not about the engine's processes runs.
    pub(super) fn busy_with(&self, kind: JobKind) -> bool {
        self.job.as_ref().is_some_and(|job| job.kind == kind)
    }
}

/// `spec.leaseTransitions` (F1).
pub(super) fn epoch(lease: &Lease) -> Epoch {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
    Epoch(u64::try_from(transitions).unwrap_or(0))
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
}

fn fence(lease: &Lease) -> Result<Fence, String> {
    let annotations = lease.metadata.annotations.as_ref();
    match annotations.and_then(|annotations| annotations.get(fence::ANNOTATION)) {
        None => Ok(Fence::default()),
        Some(text) => Fence::parse(text).map_err(|error| error.to_string()),
    }
}

/// The position in whatever state the engine is.
pub(super) fn position(engine: &member::Engine) -> Option<&Position> {
    match engine {
        member::Engine::Stopped { position } => position.as_ref(),
        member::Engine::Starting => None,
        member::Engine::Standby(standby) => Some(&standby.position),
        member::Engine::Writable(writable) => Some(&writable.position),
    }
}
