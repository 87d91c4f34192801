//! The controller carries out what the core decided for it, step after step, as the operator does; it may die after any.

use super::log::index;
use super::observe::Clock;
use super::rules::Rule;
use super::state::{Delete, Ended, Host, Lease, Member, Pending, State, identity, plain};
use super::steps::{Model, Next, step};
use coregent_core::failover::{Memory, Step};
use coregent_core::fence::Fence;

impl Model {
    pub(super) fn controller(&mut self, s: &State, next: &mut Vec<Next>) {
        for clock in Clock::BOTH {
            let decision = self.decide_controller(s, clock);
            let mut then = s.clone();
            for at in &decision.steps {
                let before = then.clone();
                let wrong = self.carry_out(&mut then, s, at, &decision.memory, next);
                // Whoever dies between two steps has carried out those before.
                if then != before || wrong.is_some() {
                    let state = then.clone();
                    next.push(Next { label: format!("controller: {at}"), state, fault: false, wrong });
                }
            }
        }
        self.late_writes(s, next);
    }

    fn carry_out(
        &mut self,
        then: &mut State,
        seen: &State,
        step: &Step,
        memory: &Memory,
        next: &mut Vec<Next>,
    ) -> Option<&'static str> {
        match step {
            Step::Remember { .. } => {
                let at = super::observe::WALL.to_string();
                then.memory = self.memories.put(plain(memory.clone(), &at));
            }
            Step::Raise { epoch, fence, .. }
            | Step::Name { epoch, fence, .. }
            | Step::Prepare { epoch, fence, .. }
            | Step::Enrol { epoch, fence, .. } => {
                let epoch = u8::try_from(epoch.0).unwrap_or(u8::MAX);
                if epoch > self.bounds.epochs {
                    self.bounded = true;
                    return None;
                }
                let stands = self.leases.get(then.lease);
                // What was shown otherwise than it is stays as it is.
                let fence = Fence {
                    sync_sets: stands.fence.sync_sets.clone(),
                    history: stands.fence.history.clone(),
                    ..fence.clone()
                };
                let lease = Lease { epoch, holder: stands.holder.clone(), fence };
                let raised = epoch > stands.epoch;
                if let (Step::Name { .. }, Some(holder)) = (step, &lease.holder) {
                    let m = &mut then.members[index(&holder.member)];
                    m.unheard = !m.answers();
                }
                let lease = self.leases.put(lease);
                if !self.on(Rule::Cas) && then.pending.is_none() {
                    let mut state = then.clone();
                    state.pending = Some(Pending { lease, decided_on: seen.lease });
                    next.push(Next { label: format!("controller decides: {step}"), state, fault: false, wrong: None });
                }
                then.lease = lease;
                if raised {
                    after_a_raise(then);
                }
            }
            Step::Stamp { uid, epoch, .. } => {
                for (i, m) in then.members.iter_mut().enumerate() {
                    if identity(i, m.pod, 0).pod_uid == *uid {
                        m.stamp = u8::try_from(epoch.0).unwrap_or(u8::MAX);
                    }
                }
            }
            Step::FencingDelete { .. } => {
                let i = self.lease(then).holder.as_ref().map(|holder| index(&holder.member))?;
                let m = &then.members[i];
                let delete = Delete { member: u8::try_from(i).unwrap_or(3), pod: m.pod, stamp: m.stamp };
                if then.delete.is_none() {
                    then.delete = Some(delete);
                }
            }
            Step::DeployBaseConfig
            | Step::CreateGrant { .. }
            | Step::CreateLease { .. }
            | Step::Label { .. }
            | Step::SetInstances { .. } => {}
        }
        None
    }

    /// What was decided earlier arrives: a fencing delete by its uid and version, and, where that is switched off, a write of
    /// the Lease by nothing.
    fn late_writes(&mut self, s: &State, next: &mut Vec<Next>) {
        if let Some(delete) = s.delete {
            let i = usize::from(delete.member);
            let m = &s.members[i];
            let mut then = s.clone();
            then.delete = None;
            let same = m.pod == delete.pod && (m.stamp == delete.stamp || !self.on(Rule::DeleteStamp));
            next.push(Next { fault: true, ..step(i, "controller dies before the delete", then.clone()) });
            if m.answers() && same {
                let lease = self.lease(s);
                let chosen = lease.target() == Some(i);
                let wrong = chosen.then_some("S4 a late delete kills the member that was named");
                deleted(&mut then.members[i]);
                next.push(Next { wrong, ..step(i, "controller deletes the pod", then) });
            }
        }
        if let Some(pending) = s.pending {
            let mut then = s.clone();
            (then.lease, then.pending) = (pending.lease, None);
            let moved = pending.decided_on != s.lease;
            let raised = self.leases.get(pending.lease).epoch > self.lease(s).epoch;
            let wrong = moved.then_some("S4 a deposed controller's write went through");
            if raised {
                after_a_raise(&mut then);
            }
            next.push(Next { label: "controller: the write lands".to_owned(), state: then, fault: false, wrong });
        }
    }
}

/// What was said before a raise proves nothing after it (F4).
fn after_a_raise(s: &mut State) {
    for ended in s.members.iter_mut().flat_map(|m| &mut m.ended) {
        if *ended == Ended::AfterRaise {
            *ended = Ended::BeforeRaise;
        }
    }
}

/// The node has stopped the pod and said so; another of the same name will be made.
fn deleted(m: &mut Member) {
    m.orphans = None;
    m.stop();
    (m.pod, m.stamp, m.agent, m.host) = (m.pod + 1, 0, false, Host::Runs);
    m.ended = [Ended::Unsaid, Ended::AfterRaise];
    (m.held, m.late, m.unswept) = (None, false, false);
}
