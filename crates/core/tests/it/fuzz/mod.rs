//! Arbitrary, even impossible, worlds for every decision function: epochs that go backwards, records that contradict
//! each other, names that are none, numbers at the end of their range.
//!
//! What must hold all the same: no panic (arithmetic overflow is one in this profile), the same answer to the same
//! question, and never a step that a rule of the failover protocol forbids. The rules stand above each check by their
//! number in failover.md.
//!
//! `PROPTEST_CASES=200000 cargo test -p coregent-core --test it fuzz` looks longer.

mod controller;
mod controller_rules;
mod member;
mod member_rules;
mod rest;
mod values;

use proptest::prelude::*;
use proptest::test_runner::Config;

/// Cases of each property; the environment asks for more.
fn cases() -> Config {
    let cases = crate::asked("PROPTEST_CASES").unwrap_or(4_000);
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// A row of bytes that a world is read from. It never ends: what is missing is 0, for which every choice has its plainest
/// value, so that proptest shrinks a world by shortening the row.
#[derive(Debug, Clone)]
struct Tape {
    bytes: Vec<u8>,
    at: usize,
}

impl Tape {
    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    fn long(&mut self) -> u64 {
        (0..8).fold(0, |value, _| value << 8 | u64::from(self.byte()))
    }

    /// True in `of_256` cases of 256.
    fn chance(&mut self, of_256: u16) -> bool {
        u16::from(255 - self.byte()) < of_256
    }

    fn coin(&mut self) -> bool {
        self.chance(128)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    fn pick<T: Clone>(&mut self, among: &[T]) -> T {
        let at = self.below(among.len());
        among[at].clone()
    }

    fn maybe<T>(&mut self, of_256: u16, read: impl FnOnce(&mut Tape) -> T) -> Option<T> {
        self.chance(of_256).then(|| read(self))
    }

    fn some<T>(&mut self, most: usize, mut read: impl FnMut(&mut Tape) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| read(self)).collect()
    }
}

/// Reads values from rows of bytes.
fn read_by<T: std::fmt::Debug>(read: impl Fn(&mut Tape) -> T) -> impl Strategy<Value = T> {
    prop::collection::vec(any::<u8>(), 0..1_500).prop_map(move |bytes| read(&mut Tape { bytes, at: 0 }))
}
