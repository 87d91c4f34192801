//! B and C are interchangeable: the same state with each called by the other's name.

use super::log::Log;
use super::state::{Delete, Id, Lease, Pending, State};
use super::steps::Model;
use coregent_core::fence::Fence;

impl Model {
    /// The same state with B and C called by each other's names.
    pub(super) fn mirrored(&mut self, s: &State) -> State {
        let mut other = s.clone();
        other.members.swap(1, 2);
        for m in &mut other.members {
            m.log = m.log.mirrored();
            m.report.log = m.report.log.map(Log::mirrored);
            m.report.reached = m.report.reached.map(|(member, reached)| (mirror(member), reached));
            m.source = m.source.map(|(epoch, member)| (epoch, mirror(member)));
            (m.names, m.older) = (mirror_names(m.names), mirror_names(m.older));
            m.orphans = m.orphans.map(mirror_names);
            m.view = self.mirrored_lease(m.view);
        }
        other.lease = self.mirrored_lease(s.lease);
        other.memory = self.mirrored_memory(s.memory);
        other.cut = s.cut & 4 | (s.cut & 1) << 1 | (s.cut & 2) >> 1;
        other.primary = mirror(s.primary);
        other.delete = s.delete.map(|delete| Delete { member: mirror(delete.member), ..delete });
        other.pending = s.pending.map(|pending| Pending {
            lease: self.mirrored_lease(pending.lease),
            decided_on: self.mirrored_lease(pending.decided_on),
        });
        other
    }

    fn mirrored_lease(&mut self, id: Id) -> Id {
        if let Some(known) = self.mirrors.0.get(&id) {
            return *known;
        }
        let lease = self.leases.get(id).clone();
        let fence = Fence::parse(&mirror_text(&lease.fence.to_annotation())).unwrap_or(lease.fence);
        let holder = lease.holder.and_then(|holder| mirror_text(&holder.to_string()).parse().ok());
        let other = self.leases.put(Lease { epoch: lease.epoch, holder, fence });
        self.mirrors.0.extend([(id, other), (other, id)]);
        other
    }

    fn mirrored_memory(&mut self, id: Id) -> Id {
        if let Some(known) = self.mirrors.1.get(&id) {
            return *known;
        }
        let mut memory = self.memories.get(id).clone();
        if let Some(active) = &mut memory.operations.active {
            active.subject = active.subject.as_deref().map(mirror_text);
        }
        for name in [&mut memory.primary.target, &mut memory.primary.current].into_iter().flatten() {
            name.0 = mirror_text(&name.0);
        }
        let other = self.memories.put(memory);
        self.mirrors.1.extend([(id, other), (other, id)]);
        other
    }
}

fn mirror(member: u8) -> u8 {
    [0, 2, 1, 3][usize::from(member.min(3))]
}

fn mirror_names(names: u8) -> u8 {
    names & !6 | (names & 2) << 1 | (names & 4) >> 1
}

fn mirror_text(text: &str) -> String {
    let pairs = [("orders-2", "orders-3"), ("p1.", "p2."), ("c1.", "c2."), ("127.64.0.1:", "127.64.0.2:")];
    let hidden = |at: usize| format!("\u{1}{at}");
    let mut text = text.to_owned();
    for (at, (b, c)) in pairs.into_iter().enumerate() {
        text = text.replace(b, &hidden(at)).replace(c, b).replace(&hidden(at), c);
    }
    text
}
