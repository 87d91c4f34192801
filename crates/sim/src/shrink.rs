//! The smallest part of a bad day that is still bad.

use crate::run::{Options, Report, planned_count, run};

/// Leaves out faults for as long as the oracles still find something of the same kind; gives the numbers of those that
/// are needed, and the report of that day.
pub fn shrink(seed: u64, options: &Options) -> Option<(Vec<usize>, Report)> {
    let first = run(seed, options);
    let kind = kind_of(first.violations.first()?);
    let mut kept: Vec<usize> = options.only.clone().unwrap_or_else(|| (0..planned_count(seed)).collect());
    let mut best = first;
    let mut chunk = kept.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut left_out = false;
        while at < kept.len() {
            let end = (at + chunk).min(kept.len());
            let without: Vec<usize> = kept.iter().take(at).chain(kept.iter().skip(end)).copied().collect();
            let report = run(seed, &Options { only: Some(without.clone()), traced: false, ..options.clone() });
            if report.violations.first().is_some_and(|what| kind_of(what) == kind) {
                (kept, best, left_out) = (without, report, true);
            } else {
                at = end;
            }
        }
        if chunk == 1 && !left_out {
            return Some((kept, best));
        }
        chunk = (chunk / 2).max(1);
    }
}

/// What a violation is about, without its names and numbers.
fn kind_of(what: &str) -> String {
    what.split_whitespace().filter(|word| word.chars().all(|c| c.is_ascii_lowercase())).take(6).collect()
}
