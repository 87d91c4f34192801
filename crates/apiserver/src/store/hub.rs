//! The watch hub: every applied event is offered, in order, to the watchers of its resource.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::mpsc;

use super::error::Expired;
use super::object::Event;
use super::state::State;

/// Events that a slow watcher may be behind before it is sent back to the log.
const BACKLOG: usize = 1024;

/// The store's end of a subscription.
pub(crate) struct Watcher {
    namespace: Option<String>,
    name: Option<String>,
    sender: mpsc::Sender<Arc<Event>>,
}

impl Watcher {
    /// Hands over an event; `false` once the watcher is gone or too slow (it then resumes from the log).
    pub fn offer(&self, event: &Arc<Event>) -> bool {
        let wanted = self.namespace.as_ref().is_none_or(|namespace| *namespace == event.key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == event.key.name);
        if wanted { self.sender.try_send(event.clone()).is_ok() } else { !self.sender.is_closed() }
    }
}

/// The events of one resource from a revision on, without gaps and in order.
pub struct Subscription {
    state: Arc<RwLock<State>>,
    resource: Arc<str>,
    namespace: Option<String>,
    name: Option<String>,
    position: u64,
    backlog: std::collections::VecDeque<Arc<Event>>,
    receiver: mpsc::Receiver<Arc<Event>>,
}

impl Subscription {
    pub(crate) fn open(
        state: &Arc<RwLock<State>>,
        resource: &Arc<str>,
        namespace: Option<&str>,
        name: Option<&str>,
        since: u64,
    ) -> Result<Subscription, Expired> {
        let (_, receiver) = mpsc::channel(1);
        let mut subscription = Subscription {
            state: state.clone(),
            resource: resource.clone(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            position: since,
            backlog: Default::default(),
            receiver,
        };
        subscription.resume()?;
        Ok(subscription)
    }

    /// Reads what the log has after the position and registers for what follows, in one step under the lock.
    fn resume(&mut self) -> Result<(), Expired> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.check(self.position)?;
        self.backlog = state.since(&self.resource, self.position).into();
        let (sender, receiver) = mpsc::channel(BACKLOG);
        self.receiver = receiver;
        let watcher = Watcher { namespace: self.namespace.clone(), name: self.name.clone(), sender };
        state.add_watcher(&self.resource, watcher);
        Ok(())
    }

    fn wanted(&self, event: &Event) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == event.key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == event.key.name)
    }

    /// The next event; waits for it.
    pub async fn next(&mut self) -> Result<Arc<Event>, Expired> {
        loop {
            while let Some(event) = self.backlog.pop_front() {
                if self.wanted(&event) {
                    self.position = event.revision();
                    return Ok(event);
                }
            }
            match self.receiver.recv().await {
                Some(event) => {
                    self.position = event.revision();
                    return Ok(event);
                }
                None => self.resume()?,
            }
        }
    }

    /// The next event if there is one already.
    pub fn ready(&mut self) -> Option<Arc<Event>> {
        while let Some(event) = self.backlog.pop_front() {
            if self.wanted(&event) {
                self.position = event.revision();
                return Some(event);
            }
        }
        let event = self.receiver.try_recv().ok()?;
        self.position = event.revision();
        Some(event)
    }

    /// A revision up to which, once [`Subscription::ready`] answers `None`, every event has been handed out.
    /// `None` while the watcher has fallen behind its channel.
    pub fn horizon(&self) -> Option<u64> {
        let revision = self.state.read().unwrap_or_else(PoisonError::into_inner).revision;
        (!self.receiver.is_closed()).then_some(revision)
    }
}
