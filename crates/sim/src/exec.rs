//! A single-threaded executor on virtual time. Tasks belong to processes: a process that is killed loses its tasks
//! wherever they wait, one that is frozen gets its wake-ups when it thaws.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Microseconds of the world's own clock, which nobody in it can read.
pub(crate) type Micros = u64;

/// A task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId {
    index: u32,
    generation: u32,
}

/// A group of tasks that lives, freezes and dies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Proc(u32);

impl Proc {
    /// Of what happens by itself.
    pub(crate) const WORLD: Proc = Proc(0);
}

type Work = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    generation: u32,
    proc: Proc,
    work: Option<Work>,
    used: bool,
}

#[derive(Default)]
struct Process {
    dead: bool,
    frozen: u32,
    deferred: Vec<TaskId>,
}

/// See the module.
pub(crate) struct Exec {
    now: Cell<Micros>,
    sequence: Cell<u64>,
    polls: Cell<u64>,
    timers: RefCell<BinaryHeap<Reverse<(Micros, u64, TaskId)>>>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    procs: RefCell<Vec<Process>>,
    current: Cell<TaskId>,
}

impl Exec {
    pub(crate) fn new() -> Rc<Exec> {
        Rc::new(Exec {
            now: Cell::new(0),
            sequence: Cell::new(0),
            polls: Cell::new(0),
            timers: RefCell::default(),
            slots: RefCell::default(),
            free: RefCell::default(),
            procs: RefCell::new(vec![Process::default()]),
            current: Cell::default(),
        })
    }

    pub(crate) fn now(&self) -> Micros {
        self.now.get()
    }

    /// How often a task was looked at so far.
    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    pub(crate) fn process(&self) -> Proc {
        let mut procs = self.procs.borrow_mut();
        procs.push(Process::default());
        Proc(u32::try_from(procs.len() - 1).unwrap_or(u32::MAX))
    }

    pub(crate) fn is_dead(&self, proc: Proc) -> bool {
        self.procs.borrow().get(proc.0 as usize).is_none_or(|process| process.dead)
    }

    /// Starts `work` in `proc`; nothing happens in a dead one.
    pub(crate) fn spawn(&self, proc: Proc, work: impl Future<Output = ()> + 'static) -> TaskId {
        if self.is_dead(proc) {
            return TaskId { index: u32::MAX, generation: 0 };
        }
        let mut slots = self.slots.borrow_mut();
        let work: Option<Work> = Some(Box::pin(work));
        let index = match self.free.borrow_mut().pop() {
            Some(index) => index,
            None => {
                slots.push(Slot { generation: 0, proc, work: None, used: false });
                u32::try_from(slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let mut id = TaskId { index, generation: 0 };
        if let Some(slot) = slots.get_mut(index as usize) {
            slot.proc = proc;
            slot.work = work;
            slot.used = true;
            id.generation = slot.generation;
        }
        drop(slots);
        self.wake_at(self.now(), id);
        id
    }

    /// Drops a task wherever it waits.
    pub(crate) fn abort(&self, id: TaskId) {
        let work = {
            let mut slots = self.slots.borrow_mut();
            match slots.get_mut(id.index as usize) {
                Some(slot) if slot.generation == id.generation && slot.used => {
                    slot.generation = slot.generation.wrapping_add(1);
                    slot.used = false;
                    self.free.borrow_mut().push(id.index);
                    slot.work.take()
                }
                _ => None,
            }
        };
        drop(work);
    }

    /// SIGKILL.
    pub(crate) fn kill(&self, proc: Proc) {
        if let Some(process) = self.procs.borrow_mut().get_mut(proc.0 as usize) {
            process.dead = true;
            process.deferred.clear();
        }
        let ids: Vec<TaskId> = {
            let slots = self.slots.borrow();
            let mine = slots.iter().enumerate().filter(|(_, slot)| slot.used && slot.proc == proc);
            mine.map(|(index, slot)| TaskId {
                index: u32::try_from(index).unwrap_or(u32::MAX),
                generation: slot.generation,
            })
            .collect()
        };
        ids.into_iter().for_each(|id| self.abort(id));
    }

    /// SIGSTOP; as often as it is frozen it has to thaw.
    pub(crate) fn freeze(&self, proc: Proc) {
        if let Some(process) = self.procs.borrow_mut().get_mut(proc.0 as usize) {
            process.frozen += 1;
        }
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self, proc: Proc) {
        let woken = {
            let mut procs = self.procs.borrow_mut();
            match procs.get_mut(proc.0 as usize) {
                Some(process) => {
                    process.frozen = process.frozen.saturating_sub(1);
                    if process.frozen == 0 { std::mem::take(&mut process.deferred) } else { Vec::new() }
                }
                None => Vec::new(),
            }
        };
        woken.into_iter().for_each(|id| self.wake_at(self.now(), id));
    }

    fn wake_at(&self, at: Micros, id: TaskId) {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.timers.borrow_mut().push(Reverse((at, sequence, id)));
    }

    /// Runs the next wake-up. False when there is none before `end`; then the time is `end`.
    pub(crate) fn step(&self, end: Micros) -> bool {
        let next = self.timers.borrow().peek().map(|Reverse((at, ..))| *at);
        let Some(at) = next.filter(|at| *at <= end) else {
            self.now.set(self.now().max(end));
            return false;
        };
        let Some(Reverse((_, _, id))) = self.timers.borrow_mut().pop() else { return false };
        self.now.set(self.now().max(at));
        self.poll(id);
        true
    }

    fn poll(&self, id: TaskId) {
        let work = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation) else {
                return;
            };
            if let Some(process) = self.procs.borrow_mut().get_mut(slot.proc.0 as usize)
                && process.frozen > 0
            {
                if !process.deferred.contains(&id) {
                    process.deferred.push(id);
                }
                return;
            }
            slot.work.take()
        };
        let Some(mut work) = work else { return };
        self.polls.set(self.polls.get() + 1);
        self.current.set(id);
        let done = work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        let mut rest = Some(work);
        {
            let mut slots = self.slots.borrow_mut();
            if let Some(slot) = slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation) {
                if done {
                    slot.generation = slot.generation.wrapping_add(1);
                    slot.used = false;
                    self.free.borrow_mut().push(id.index);
                } else {
                    slot.work = rest.take();
                }
            }
        }
        drop(rest); // with nothing borrowed: what it holds may be the last of something
    }

    /// Ends every task: they hold the world, and the world holds them.
    pub(crate) fn clear(&self) {
        let works: Vec<Slot> = std::mem::take(&mut *self.slots.borrow_mut());
        drop(works);
    }

    /// Resolves after `span`.
    pub(crate) fn sleep(self: &Rc<Self>, span: Micros) -> Sleep {
        Sleep { exec: Rc::clone(self), at: self.now().saturating_add(span), asked: false }
    }
}

/// See [`Exec::sleep`].
pub(crate) struct Sleep {
    exec: Rc<Exec>,
    at: Micros,
    asked: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.exec.now() >= self.at {
            return Poll::Ready(());
        }
        if !self.asked {
            self.asked = true;
            self.exec.wake_at(self.at, self.exec.current.get());
        }
        Poll::Pending
    }
}

/// Something that tasks wait for. Whoever waits says what it has seen so far, so that nothing is missed in between.
#[derive(Clone)]
pub(crate) struct Notify(Rc<Waiters>);

struct Waiters {
    exec: Rc<Exec>,
    version: Cell<u64>,
    waiting: RefCell<Vec<TaskId>>,
}

impl Notify {
    pub(crate) fn new(exec: &Rc<Exec>) -> Notify {
        Notify(Rc::new(Waiters { exec: Rc::clone(exec), version: Cell::new(0), waiting: RefCell::default() }))
    }

    pub(crate) fn version(&self) -> u64 {
        self.0.version.get()
    }

    pub(crate) fn notify(&self) {
        self.0.version.set(self.0.version.get() + 1);
        let waiting = std::mem::take(&mut *self.0.waiting.borrow_mut());
        waiting.into_iter().for_each(|id| self.0.exec.wake_at(self.0.exec.now(), id));
    }

    /// Resolves once there has been a notification since `seen`.
    pub(crate) fn since(&self, seen: u64) -> Changed {
        Changed { notify: self.clone(), seen }
    }
}

/// See [`Notify::since`].
pub(crate) struct Changed {
    notify: Notify,
    seen: u64,
}

impl Future for Changed {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let waiters = &self.notify.0;
        if waiters.version.get() != self.seen {
            return Poll::Ready(());
        }
        let me = waiters.exec.current.get();
        let mut waiting = waiters.waiting.borrow_mut();
        if !waiting.contains(&me) {
            waiting.push(me);
        }
        Poll::Pending
    }
}

/// The first of two to end.
pub(crate) enum Either<A, B> {
    First(A),
    Second(B),
}

/// Waits for the first of two; the other is dropped.
pub(crate) async fn race<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> Either<A, B> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    std::future::poll_fn(|context| {
        if let Poll::Ready(done) = first.as_mut().poll(context) {
            return Poll::Ready(Either::First(done));
        }
        second.as_mut().poll(context).map(Either::Second)
    })
    .await
}

/// Never ends.
pub(crate) async fn never() {
    std::future::pending::<()>().await;
}
