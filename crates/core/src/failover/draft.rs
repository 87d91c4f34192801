//! A decision in the making.

use super::decision::{Decision, Event, Remembered, Step};
use super::memory::Memory;
use super::picture::Picture;
use super::world::{SILENT_FOR, World, silence_of};
use std::collections::BTreeSet;

/// Collects what one look at the world leads to.
pub(super) struct Draft<'a> {
    pub(super) world: &'a World,
    pub(super) memory: Memory,
    steps: Vec<Step>,
    events: Vec<Event>,
    requeue_after: Option<u64>,
    diagnostics: Vec<String>,
    holding: BTreeSet<String>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(world: &'a World) -> Draft<'a> {
        Draft {
            world,
            memory: world.memory.clone(),
            steps: Vec::new(),
            events: Vec::new(),
            requeue_after: None,
            diagnostics: Vec::new(),
            holding: BTreeSet::new(),
        }
    }

    /// Nothing is to be done so far.
    pub(super) fn is_idle(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(super) fn steps(&mut self, steps: Vec<Step>) {
        self.steps.extend(steps);
    }

    /// Writes the memory as it stands in this draft, before any later step.
    pub(super) fn remember(&mut self, what: Remembered) {
        self.steps.push(Step::Remember { what });
    }

    pub(super) fn event(&mut self, warning: bool, reason: &'static str, note: String) {
        self.events.push(Event { warning, reason, note });
    }

    /// Looks again after `millis` at the latest.
    pub(super) fn again(&mut self, millis: u64) {
        let millis = millis.max(1);
        self.requeue_after = Some(self.requeue_after.map_or(millis, |sooner| sooner.min(millis)));
    }

    pub(super) fn again_opt(&mut self, millis: Option<u64>) {
        if let Some(millis) = millis {
            self.again(millis);
        }
    }

    pub(super) fn diagnose(&mut self, why: impl Into<String>) {
        self.diagnostics.push(why.into());
    }

    /// Says that a fact holds now; see [`World::held`].
    pub(super) fn hold(&mut self, fact: &str) -> u64 {
        self.holding.insert(fact.to_owned());
        self.world.held_for(fact).unwrap_or(0)
    }

    /// Names the members whose probe says otherwise than they do themselves; for how long decides (see
    /// [`World::is_silent`]).
    fn hold_silence(&mut self) {
        let world = self.world;
        for name in world.members.keys().filter(|name| world.seems_silent(name)) {
            let held = self.hold(&silence_of(name));
            if held < SILENT_FOR {
                self.again(SILENT_FOR - held);
            }
        }
    }

    pub(super) fn finish(mut self) -> Decision {
        self.hold_silence();
        let picture = Picture::of(self.world, &self.memory, &self.diagnostics);
        // What no step writes down is not remembered: the next look at the world leads to it again.
        let written = self.steps.iter().any(|step| matches!(step, Step::Remember { .. }));
        let memory = if written { self.memory } else { self.world.memory.clone() };
        Decision {
            steps: self.steps,
            memory,
            picture,
            events: self.events,
            requeue_after: self.requeue_after,
            diagnostics: self.diagnostics,
            holding: self.holding,
        }
    }
}
