//! How an action on a member goes on: pure functions of its record in the status, its answer and the time (rsm.md 6.7).
//!
//! A failed attempt is made again after ever longer waits; after the last one the record stays, failed, and a person says
//! on the set whether it is skipped or tried again.

use coregent_api::rsm::{ActionKind, MemberOperation, OperationCause, OperationPhase};
use coregent_core::rsm::membership::{back_off_millis, is_last_attempt};
use coregent_core::wallclock::Timestamp;

/// Time that an answer may take to arrive after the time of an attempt is over.
const GRACE_MILLIS: u64 = 2_000;

/// How often and how long an action is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Seconds of one attempt.
    pub timeout_seconds: i32,
    /// Attempts.
    pub max_attempts: i32,
}

/// What came of an attempt so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    Pending,
    /// It is done.
    Done,
    /// It failed, in words.
    Failed(String),
}

/// A new record, to be written before anything is begun.
#[must_use]
pub fn begin(
    action: ActionKind,
    member: &str,
    target: Option<&str>,
    cause: OperationCause,
    bounds: Bounds,
    now: Timestamp,
) -> MemberOperation {
    MemberOperation {
        action,
        member: member.to_owned(),
        target: target.map(str::to_owned),
        cause,
        id: format!("{}-{}", action.slug(), now.0),
        attempt: 1,
        started_at: now.to_string(),
        deadline: now.plus(length(bounds)).to_string(),
        phase: OperationPhase::Running,
        message: None,
    }
}

/// The record as it should be now; `None` while nothing changes.
#[must_use]
pub fn advance(
    operation: &MemberOperation,
    outcome: &Outcome,
    wish: Option<&str>,
    bounds: Bounds,
    now: Timestamp,
) -> Option<MemberOperation> {
    if let Some(asked) = wish.and_then(|wish| asked(operation, wish, bounds, now)) {
        return Some(asked);
    }
    let deadline = operation.deadline.parse::<Timestamp>().unwrap_or(now);
    match (operation.phase, outcome) {
        (OperationPhase::Running, Outcome::Done) => {
            Some(MemberOperation { phase: OperationPhase::Succeeded, message: None, ..operation.clone() })
        }
        (OperationPhase::Running, Outcome::Failed(why)) => Some(failed(operation, why, bounds, now)),
        (OperationPhase::Running, Outcome::Pending) if now > deadline.plus(GRACE_MILLIS) => {
            let why = format!("nothing was heard of it within {} s", bounds.timeout_seconds);
            Some(failed(operation, &why, bounds, now))
        }
        (OperationPhase::BackingOff, _) if now >= deadline => Some(MemberOperation {
            attempt: operation.attempt.saturating_add(1),
            started_at: now.to_string(),
            deadline: now.plus(length(bounds)).to_string(),
            phase: OperationPhase::Running,
            ..operation.clone()
        }),
        _ => None,
    }
}

/// Milliseconds after which the record must be looked at again whatever happens.
#[must_use]
pub fn look_again(operation: &MemberOperation, now: Timestamp) -> Option<u64> {
    let deadline = operation.deadline.parse::<Timestamp>().ok()?;
    match operation.phase {
        OperationPhase::Running => Some(deadline.plus(GRACE_MILLIS + 1).since(now).max(10)),
        OperationPhase::BackingOff => Some(deadline.since(now).max(10)),
        _ => None,
    }
}

/// A person's words on the set: `skip <id>` or `retry <id>`, of this very start.
fn asked(operation: &MemberOperation, wish: &str, bounds: Bounds, now: Timestamp) -> Option<MemberOperation> {
    let (verb, id) = wish.trim().split_once(' ')?;
    if id.trim() != operation.id || operation.phase == OperationPhase::Succeeded {
        return None;
    }
    match verb {
        "skip" if operation.phase != OperationPhase::Skipped => Some(MemberOperation {
            phase: OperationPhase::Skipped,
            message: Some("a person skipped it".to_owned()),
            ..operation.clone()
        }),
        "retry" if matches!(operation.phase, OperationPhase::Failed | OperationPhase::BackingOff) => {
            let target = operation.target.as_deref();
            Some(begin(operation.action, &operation.member, target, operation.cause, bounds, now))
        }
        _ => None,
    }
}

fn failed(operation: &MemberOperation, why: &str, bounds: Bounds, now: Timestamp) -> MemberOperation {
    let attempt = u32::try_from(operation.attempt).unwrap_or(1);
    let last = is_last_attempt(attempt, u32::try_from(bounds.max_attempts).unwrap_or(1));
    MemberOperation {
        phase: if last { OperationPhase::Failed } else { OperationPhase::BackingOff },
        deadline: if last { operation.deadline.clone() } else { now.plus(back_off_millis(attempt)).to_string() },
        message: Some(why.chars().take(500).collect()),
        ..operation.clone()
    }
}

fn length(bounds: Bounds) -> u64 {
    u64::try_from(bounds.timeout_seconds.max(1)).unwrap_or(1).saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { timeout_seconds: 10, max_attempts: 3 };

    fn begun() -> MemberOperation {
        begin(ActionKind::MemberJoin, "etcd-3", None, OperationCause::Scale, BOUNDS, Timestamp(1_000))
    }

    fn at(operation: &MemberOperation, outcome: &Outcome, now: i64) -> Option<MemberOperation> {
        advance(operation, outcome, None, BOUNDS, Timestamp(now))
    }

    #[test]
    fn a_failed_attempt_is_made_again_after_longer_and_longer_and_stays_failed_after_the_last() {
        let mut operation = begun();
        let mut now = 1_000;
        let mut waits = Vec::new();
        for attempt in 1..=2 {
            operation = at(&operation, &Outcome::Failed("refused".into()), now).unwrap();
            assert_eq!((operation.phase, operation.attempt), (OperationPhase::BackingOff, attempt));
            let wait = look_again(&operation, Timestamp(now)).unwrap();
            assert_eq!(at(&operation, &Outcome::Pending, now), None, "not before its time");
            waits.push(wait);
            now += i64::try_from(wait).unwrap();
            operation = at(&operation, &Outcome::Pending, now).unwrap();
            assert_eq!((operation.phase, operation.attempt), (OperationPhase::Running, attempt + 1));
        }
        assert!(waits[0] < waits[1], "{waits:?}");
        operation = at(&operation, &Outcome::Failed("refused".into()), now).unwrap();
        assert_eq!((operation.phase, operation.message.as_deref()), (OperationPhase::Failed, Some("refused")));
        assert_eq!(at(&operation, &Outcome::Pending, now + 1_000_000), None);
        assert_eq!(look_again(&operation, Timestamp(now)), None);
    }

    #[test]
    fn silence_is_a_failure_once_the_time_is_over() {
        assert_eq!(at(&begun(), &Outcome::Pending, 12_000), None);
        let late = at(&begun(), &Outcome::Pending, 13_001).unwrap();
        assert_eq!(late.phase, OperationPhase::BackingOff);
        assert_eq!(at(&begun(), &Outcome::Done, 13_001).unwrap().phase, OperationPhase::Succeeded);
    }

    #[test]
    fn a_person_skips_or_retries_the_very_start_that_is_named() {
        let failed = MemberOperation { phase: OperationPhase::Failed, attempt: 3, ..begun() };
        let wish = |wish: &str| advance(&failed, &Outcome::Pending, Some(wish), BOUNDS, Timestamp(50_000));
        assert_eq!(wish("skip another"), None);
        assert_eq!(wish("explode member-join-1000"), None);
        let skipped = wish("skip member-join-1000").unwrap();
        assert_eq!(skipped.phase, OperationPhase::Skipped);
        assert_eq!(
            advance(&skipped, &Outcome::Pending, Some("skip member-join-1000"), BOUNDS, Timestamp(51_000)),
            None
        );
        let again = wish("retry member-join-1000").unwrap();
        assert_eq!((again.phase, again.attempt), (OperationPhase::Running, 1));
        assert_ne!(again.id, failed.id, "the same words are not heard twice");
    }
}
