//! What must not last: a status that names a dead primary, a label that two pods carry.

use crate::exec::Micros;
use crate::net::Place;
use crate::server::Phase;
use crate::world::{MS, World};
use coregent_core::names::MemberName;

/// How long a status may go on to name a primary that is none, once nothing stands in the operators' way.
const FALSE_PRIMARY: Micros = 30_000 * MS;

impl World {
    /// What holds for a while only: looked at now and then.
    pub(crate) fn check_the_time(&self) {
        let named = self.store.borrow().state.cluster.memory.primary.current.clone();
        let truth = |name: &MemberName| {
            let containers = self.containers.borrow();
            containers.iter().any(|container| {
                container.name == *name && !container.gone.get() && {
                    let server = container.server.borrow();
                    server.phase == Phase::Writable && server.open && !server.orphaned
                }
            })
        };
        let wrong = named.as_ref().is_some_and(|name| !truth(name));
        let since = {
            let mut oracle = self.oracle.borrow_mut();
            oracle.false_since = if wrong { Some(oracle.false_since.unwrap_or(self.now())) } else { None };
            oracle.false_since
        };
        let calm = self.last_calm.get();
        if let Some(since) = since
            && self.now().saturating_sub(since.max(calm)) > FALSE_PRIMARY
            && self.now() > calm
        {
            self.violation(format!("the status has named {named:?} for long, which is no primary"));
            self.oracle.borrow_mut().false_since = None;
        }
        self.check_labels();
        self.listen_to_nodes();
    }

    /// Notes which nodes nobody can tell anything, or is believed to be able to.
    fn listen_to_nodes(&self) {
        for (host, known) in self.hosts.iter().enumerate() {
            let ready = self.store.borrow().state.rest.nodes.get(host).copied().unwrap_or(false);
            let net = self.net.borrow();
            let heard = ready && net.api_down == 0 && net.connects(Place::Host(host), Place::Api);
            if !heard || !known.up.get() || known.frozen.get() > 0 {
                self.oracle.borrow_mut().unheard(host, self.now());
            }
        }
    }

    /// F15: never two pods with the leader's label for long.
    fn check_labels(&self) {
        let leaders = {
            let store = self.store.borrow();
            store.state.pods.values().filter(|pod| pod.role == Some(coregent_core::failover::Role::Primary)).count()
        };
        let mut oracle = self.oracle.borrow_mut();
        oracle.two_labels_since = if leaders > 1 { Some(oracle.two_labels_since.unwrap_or(self.now())) } else { None };
        if leaders > 1 && !oracle.put_back {
            drop(oracle);
            self.violation("two pods carry the leader's label".to_owned());
        }
    }
}
