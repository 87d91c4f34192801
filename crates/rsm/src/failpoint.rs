//! Places where a test may end this process, named by the id of the step that is being carried out (traps.md, "kill -9 at
//! every step").
//!
//! Compiled in only with the cargo feature `failpoints`; without it [`hit`] is empty. With it, the process aborts at
//! the place that `COREGENT_FAILPOINT=<step>:<phase>` names. `COREGENT_FAILPOINT_ONCE=<file>` makes that happen once:
//! the file is created before the abort, and nothing happens while it exists, so that a restarted process goes on.
//!
//! `COREGENT_FAILPOINT_FILE=<file>` arms a process that runs already: the file names the place, and is removed before
//! the abort. So one long-lived plane is ended at every step in turn without a restart for each.

use std::fmt;

/// Environment variable that names the place, `<step>:<phase>`.
pub const VARIABLE: &str = "COREGENT_FAILPOINT";
/// Environment variable that names the marker file.
pub const ONCE_VARIABLE: &str = "COREGENT_FAILPOINT_ONCE";
/// Environment variable that names a file which names the place.
pub const FILE_VARIABLE: &str = "COREGENT_FAILPOINT_FILE";

/// Where within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was sent yet.
    BeforeWrite,
    /// The write was carried out; its answer is not known to this process.
    AfterWriteAnswerLost,
    /// The write was carried out and its answer was taken in.
    AfterEffect,
}

impl Phase {
    /// Every phase, for tests that enumerate (step × phase).
    pub const ALL: [Phase; 3] = [Phase::BeforeWrite, Phase::AfterWriteAnswerLost, Phase::AfterEffect];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::BeforeWrite => "BeforeWrite",
            Phase::AfterWriteAnswerLost => "AfterWriteAnswerLost",
            Phase::AfterEffect => "AfterEffect",
        })
    }
}

/// Ends the process if a test asked for it at this step and phase.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn hit(_step: &str, _phase: Phase) {}

/// Ends the process if a test asked for it at this step and phase.
#[cfg(feature = "failpoints")]
pub fn hit(step: &str, phase: Phase) {
    if armed_by_file(step, phase) {
        std::process::abort();
    }
    let Ok(wanted) = std::env::var(VARIABLE) else { return };
    if !matches(&wanted, step, phase) {
        return;
    }
    if let Ok(marker) = std::env::var(ONCE_VARIABLE) {
        // create_new tells one winner, even among several processes of one test.
        if std::fs::OpenOptions::new().write(true).create_new(true).open(marker).is_err() {
            return;
        }
    }
    std::process::abort();
}

/// Whether the file names this place. Removing it tells one winner and makes the abort happen once.
#[cfg(feature = "failpoints")]
fn armed_by_file(step: &str, phase: Phase) -> bool {
    let Some(file) = std::env::var_os(FILE_VARIABLE) else { return false };
    let wanted = std::fs::read_to_string(&file).unwrap_or_default();
    matches(wanted.trim_end(), step, phase) && std::fs::remove_file(&file).is_ok()
}

/// Whether `wanted` (`<step>:<phase>`) names this place. A step may hold colons itself, the phase does not.
#[cfg(any(test, feature = "failpoints"))]
fn matches(wanted: &str, step: &str, phase: Phase) -> bool {
    wanted.rsplit_once(':').is_some_and(|(name, at)| name == step && at == phase.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_step_and_a_phase() {
        assert!(matches("RaiseEpoch:BeforeWrite", "RaiseEpoch", Phase::BeforeWrite));
        assert!(!matches("RaiseEpoch:BeforeWrite", "RaiseEpoch", Phase::AfterEffect));
        assert!(!matches("RaiseEpoch:BeforeWrite", "NameTarget", Phase::BeforeWrite));
        assert!(matches("Create:Service/orders:AfterEffect", "Create:Service/orders", Phase::AfterEffect));
        assert!(!matches("RaiseEpoch", "RaiseEpoch", Phase::BeforeWrite));
    }
}
