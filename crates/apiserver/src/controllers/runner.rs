//! The runner: one task that owns the world, decides for what changed, and has the writes carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::ApiResource;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Options;
use super::act::{Actor, Outcome};
use super::queue::Queue;
use super::registry::Controller;
use super::watch::{self, Message, ServedKind};
use super::world::{Change, Now, Object, ObjectKey, World, typed_resources};

type Key = (Controller, ObjectKey);

/// News that may wait before watches are held back.
const NEWS: usize = 1024;

/// See the module.
pub struct Runner {
    client: Client,
    options: Options,
    shutdown: CancellationToken,
    started: Instant,
    world: World,
    queue: Queue<Key>,
    /// Keys of the controllers that must know every kind first.
    late: Queue<Key>,
    watches: BTreeMap<(String, String), AbortHandle>,
    unlisted: BTreeSet<(String, String)>,
    namespaced: Arc<Vec<ApiResource>>,
    typed: BTreeSet<(String, String)>,
    discovered: bool,
    /// Number of the latest question for kinds; answers to earlier ones are stale.
    round: u64,
    sender: Sender<Message>,
    news: Receiver<Message>,
    watching: JoinSet<()>,
    working: JoinSet<(Key, Outcome)>,
}

impl Runner {
    /// A runner that has not begun.
    pub fn new(client: Client, options: Options, shutdown: CancellationToken) -> Self {
        let (sender, news) = channel(NEWS);
        Self {
            client,
            options,
            shutdown,
            started: Instant::now(),
            world: World::default(),
            queue: Queue::default(),
            late: Queue::default(),
            watches: BTreeMap::new(),
            unlisted: BTreeSet::new(),
            namespaced: Arc::new(Vec::new()),
            typed: typed_resources().iter().map(name_of).collect(),
            discovered: false,
            round: 0,
            sender,
            news,
            watching: JoinSet::new(),
            working: JoinSet::new(),
        }
    }

    /// Runs until the token is cancelled, then waits for the writes under way.
    pub async fn run(mut self) {
        for resource in typed_resources() {
            self.watch(resource);
        }
        self.discover();
        for controller in Controller::ALL {
            for key in controller.at_start() {
                self.enqueue(controller, key);
            }
        }
        let shutdown = self.shutdown.clone();
        loop {
            self.decide_all();
            let due = self.next_due();
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(message) = self.news.recv() => self.take(message),
                Some(done) = self.working.join_next() => self.finish(done),
                Some(_) = self.watching.join_next() => {}
                () = sleep_until(due) => {}
            }
        }
        self.watching.abort_all();
        while self.working.join_next().await.is_some() {}
    }

    fn now(&self) -> Now {
        Now { wall: self.options.clock.now(), mono: self.started.elapsed() }
    }

    fn next_due(&self) -> Option<Instant> {
        let due = [self.ready().then(|| self.queue.next_due()), self.all_ready().then(|| self.late.next_due())];
        let due: Option<Duration> = due.into_iter().flatten().flatten().min();
        due.and_then(|due| self.started.checked_add(due))
    }

    /// Decisions begin when every kind that they read has been listed once.
    fn ready(&self) -> bool {
        self.typed.is_disjoint(&self.unlisted)
    }

    fn all_ready(&self) -> bool {
        self.discovered && self.unlisted.is_empty()
    }

    fn decide_all(&mut self) {
        if !self.ready() {
            return;
        }
        let now = self.now();
        while let Some(key) = self.queue.next(now.mono) {
            self.decide(key, now);
        }
        if self.all_ready() {
            while let Some(key) = self.late.next(now.mono) {
                self.decide(key, now);
            }
        }
    }

    fn decide(&mut self, key: Key, now: Now) {
        let (controller, object) = &key;
        let controller = *controller;
        let decision = controller.decide(&self.world, &self.options, object, now);
        if let Some(after) = decision.look_again {
            self.queue_of(controller).add_at(key.clone(), now.mono.saturating_add(after));
        }
        if decision.is_quiet() {
            self.queue_of(controller).finished(&key);
            return;
        }
        let actor = Actor {
            client: self.client.clone(),
            clock: self.options.clock.clone(),
            manager: controller.name(),
            namespaced: self.namespaced.clone(),
        };
        self.working.spawn(async move { (key, actor.carry_out(decision).await) });
    }

    fn finish(&mut self, done: Result<(Key, Outcome), tokio::task::JoinError>) {
        let (key, outcome) = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "a write task ended by a panic; its key is looked at no more until restart");
                return;
            }
        };
        let now = self.now();
        for (resource, object) in outcome.answers {
            if let Some(change) = self.world.apply_answer(&resource, &object, now) {
                self.changed(&change);
            }
        }
        if outcome.errors.is_empty() {
            self.queue_of(key.0).finished(&key);
        } else {
            for error in &outcome.errors {
                tracing::debug!(controller = key.0.name(), object = ?key.1, %error, "will look again");
            }
            self.queue_of(key.0).failed(&key, now.mono);
        }
    }

    fn take(&mut self, message: Message) {
        let now = self.now();
        match message {
            Message::Applied(resource, object) => {
                if let Some(change) = self.world.apply(&resource, &object, now) {
                    self.changed(&change);
                }
            }
            Message::Removed(resource, object) => {
                if let Some(change) = self.world.remove(&resource, &object.metadata) {
                    self.changed(&change);
                }
            }
            Message::Listed(resource, objects) => {
                self.unlisted.remove(&name_of(&resource));
                for change in self.world.replace(&resource, &objects, now) {
                    self.changed(&change);
                }
            }
            Message::Kinds(round, kinds) if round == self.round => self.take_kinds(kinds),
            Message::Kinds(..) => {}
        }
    }

    fn changed(&mut self, change: &Change) {
        for controller in Controller::ALL {
            for key in controller.touched(&self.world, change) {
                self.enqueue(controller, key);
            }
        }
        if change.versions().any(|version| matches!(version, Object::Crd(_))) {
            self.discover();
        }
    }

    fn take_kinds(&mut self, kinds: Vec<ServedKind>) {
        self.discovered = true;
        let namespaced = kinds.iter().filter(|kind| kind.namespaced).map(|kind| kind.resource.clone()).collect();
        self.namespaced = Arc::new(namespaced);
        self.world.serve(kinds.iter().map(|kind| (kind.resource.clone(), kind.namespaced)));
        let served: BTreeSet<_> = kinds.iter().map(|kind| name_of(&kind.resource)).collect();
        let gone: Vec<_> =
            self.watches.keys().filter(|kind| !served.contains(kind) && !self.typed.contains(kind)).cloned().collect();
        for kind in gone {
            if let Some(watch) = self.watches.remove(&kind) {
                watch.abort();
            }
            self.unlisted.remove(&kind);
            for change in self.world.drop_kind(&kind) {
                self.changed(&change);
            }
        }
        for kind in kinds {
            self.watch(kind.resource);
        }
    }

    fn watch(&mut self, resource: ApiResource) {
        let name = name_of(&resource);
        if self.watches.contains_key(&name) {
            return;
        }
        self.unlisted.insert(name.clone());
        let task = watch::kind(self.client.clone(), Arc::new(resource), self.sender.clone());
        let handle = self.watching.spawn(task);
        self.watches.insert(name, handle);
    }

    fn discover(&mut self) {
        self.round += 1;
        self.watching.spawn(watch::kinds(self.client.clone(), self.round, self.sender.clone()));
    }

    fn queue_of(&mut self, controller: Controller) -> &mut Queue<Key> {
        if controller.needs_all_kinds() { &mut self.late } else { &mut self.queue }
    }

    fn enqueue(&mut self, controller: Controller, key: ObjectKey) {
        self.queue_of(controller).add((controller, key));
    }
}

fn name_of(resource: &ApiResource) -> (String, String) {
    (resource.group.clone(), resource.kind.clone())
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
