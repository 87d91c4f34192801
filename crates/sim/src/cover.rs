//! Which step met which fault, so that a million seeds is not a million times the same day.

use crate::faults::STEPS;
use std::collections::BTreeMap;

/// Name of a kind of fault.
pub(crate) type FaultName = &'static str;

/// What requests meet while another fault lasts.
const LASTING: [FaultName; 3] = ["api-down", "cut-before", "cut-after"];

/// What may wait for a request, see [`crate::net::Blow`].
const BLOWS: [FaultName; 7] =
    ["error-before", "answer-lost", "answer-silent", "conflict", "slow-request", "crash-before", "crash-after"];

/// How often each step met each fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    hits: BTreeMap<(&'static str, FaultName), u64>,
}

impl Coverage {
    pub(crate) fn hit(&mut self, step: &'static str, fault: FaultName) {
        *self.hits.entry((step, fault)).or_default() += 1;
    }

    /// Adds what another seed met.
    pub fn add(&mut self, other: &Coverage) {
        for (pair, count) in &other.hits {
            *self.hits.entry(*pair).or_default() += count;
        }
    }

    /// Faults that took effect. Requests that meet one that lasts are not counted again.
    pub fn total(&self) -> u64 {
        let counts = |fault: FaultName| !LASTING.contains(&fault);
        self.hits.iter().filter(|((_, fault), _)| counts(fault)).map(|(_, count)| count).sum()
    }

    /// Different pairs of a step and a fault.
    pub fn pairs(&self) -> usize {
        self.hits.len()
    }

    /// What a request of each step may meet and has not met, one line a fault; empty once everything has happened.
    pub fn never(&self) -> String {
        let met = |step: &str, fault: FaultName| {
            self.hits.keys().any(|(label, name)| label.starts_with(step) && *name == fault)
        };
        let lines = BLOWS.into_iter().filter_map(|fault| {
            let missing: Vec<&str> = STEPS.into_iter().filter(|step| !met(step, fault)).collect();
            (!missing.is_empty()).then(|| format!("{fault:<22} never at {}", missing.join(", ")))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// One line a fault: how often it happened and at which steps.
    pub fn table(&self) -> String {
        let mut by_fault: BTreeMap<FaultName, (u64, Vec<String>)> = BTreeMap::new();
        for ((step, fault), count) in &self.hits {
            let (total, steps) = by_fault.entry(fault).or_default();
            *total += count;
            steps.push(format!("{step} {count}"));
        }
        let lines = by_fault.iter().map(|(fault, (total, steps))| {
            format!("{fault:<22} {total:>9}  at {:>3} steps: {}", steps.len(), steps.join(", "))
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
