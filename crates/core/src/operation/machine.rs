//! How an operation begins, goes on and ends. Pure: what these functions return is written to the status *before* the
//! first effect of what they allow (architecture.md, "Blocking operations").

use super::{BlockingOperation, OperationId, Outcome, StepId};
use crate::wallclock::Timestamp;
use serde::{Deserialize, Serialize};

/// The two operations that a status keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// The one that excludes others.
    pub active: Option<BlockingOperation>,
    /// The one that ended last.
    pub previous: Option<BlockingOperation>,
}

/// What is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The operation.
    pub operation: OperationId,
    /// Its step.
    pub step: StepId,
    /// Names this start; made from the moment and the epoch where nobody gave one.
    pub id: Option<String>,
    /// The member or members that it is about.
    pub subject: Option<String>,
    /// The epoch that it was decided at.
    pub epoch: u64,
    /// Why, one CamelCase word.
    pub reason: Option<String>,
}

/// An operation that does not let another begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{running} runs since {since}; nothing else starts before it has ended")]
pub struct Excluded {
    /// Display text of the step that runs.
    pub running: String,
    /// When it was started.
    pub since: String,
}

impl StepId {
    /// How long the step may take before it counts as timed out, in milliseconds. Waiting before a failover ends when
    /// its condition holds; its ten seconds are only a deadline (architecture.md).
    pub fn time_limit(self) -> u64 {
        match self {
            StepId::BaseConfigDeploying | StepId::PrimaryDbWaitingBeforeFailingOver => 10_000,
            StepId::PrimaryDbSwitchingOver => 30_000,
            StepId::ReplicaDbUndeploying | StepId::Transition => 60_000,
            StepId::PrimaryDbDeploying | StepId::PrimaryDbFailingOver | StepId::ReplicaDbDeploying => 300_000,
        }
    }

    /// Whether the step belongs to a change of primary, which goes before everything else (kubegres.md 4.6: a stuck
    /// roll-out must never block a failover).
    pub fn is_change_of_primary(self) -> bool {
        matches!(
            self,
            StepId::PrimaryDbWaitingBeforeFailingOver | StepId::PrimaryDbFailingOver | StepId::PrimaryDbSwitchingOver
        )
    }
}

impl Operations {
    /// The active step.
    pub fn step(&self) -> Option<StepId> {
        self.active.as_ref().map(|active| active.step_id)
    }

    /// Starts `start`. The same operation may go on to another step, and a change of primary ends whatever else runs
    /// as pre-empted; anything else waits.
    ///
    /// # Errors
    /// When another operation is active.
    pub fn start(&self, start: Start, now: Timestamp) -> Result<Operations, Excluded> {
        let mut next = self.clone();
        match &self.active {
            Some(active) if active.operation_id == start.operation && start.step == active.step_id => {
                next.active = Some(begin(start, now, active.attempt.saturating_add(1)));
                return Ok(next);
            }
            Some(active) if active.operation_id == start.operation => {}
            Some(_) if start.step.is_change_of_primary() => next = self.end(Outcome::PreEmpted, None),
            Some(active) => {
                let (running, since) = (active.step_id.to_string(), active.started_at.clone());
                return Err(Excluded { running, since });
            }
            None => {}
        }
        next.active = Some(begin(start, now, 1));
        Ok(next)
    }

    /// Goes on to `step` within the active operation; its id, reason and attempt stay.
    pub fn advance(&self, step: StepId, subject: Option<String>, epoch: u64, now: Timestamp) -> Operations {
        let mut next = self.clone();
        if let Some(active) = &mut next.active {
            active.step_id = step;
            active.subject = subject;
            active.epoch = epoch;
            active.started_at = now.to_string();
            active.deadline = now.plus(step.time_limit()).to_string();
            active.outcome = None;
        }
        next
    }

    /// `AfterCompletionMoveToTransitionStep`: the step is done, and still nothing else may slip in.
    pub fn to_transition(&self, now: Timestamp) -> Operations {
        let epoch = self.active.as_ref().map_or(0, |active| active.epoch);
        let subject = self.active.as_ref().and_then(|active| active.subject.clone());
        let mut next = self.advance(StepId::Transition, subject, epoch, now);
        next.previous = self.active.clone().map(|done| BlockingOperation { outcome: Some(Outcome::Completed), ..done });
        next
    }

    /// Ends the active operation and keeps it as the previous one.
    pub fn end(&self, outcome: Outcome, message: Option<String>) -> Operations {
        match &self.active {
            None => self.clone(),
            Some(active) => Operations {
                active: None,
                previous: Some(BlockingOperation { outcome: Some(outcome), message, ..active.clone() }),
            },
        }
    }

    /// Marks the active operation as timed out and keeps it: it may still end well, and a person can clear it. `None`
    /// when it is in time or marked already, so that the event is written once.
    pub fn time_out(&self, elapsed: u64) -> Option<Operations> {
        let active = self.active.as_ref()?;
        let late = active.outcome.is_none() && elapsed >= active.step_id.time_limit();
        late.then(|| Operations {
            active: Some(BlockingOperation { outcome: Some(Outcome::TimedOut), ..active.clone() }),
            previous: self.previous.clone(),
        })
    }

    /// Clears the active operation for a person, who must name it, so that an old request cannot clear a new one.
    pub fn clear(&self, id: &str) -> Option<Operations> {
        let names_it = self.active.as_ref().is_some_and(|active| active.id == id);
        names_it.then(|| self.end(Outcome::Cleared, Some("cleared by a person".to_owned())))
    }
}

fn begin(start: Start, now: Timestamp, attempt: u32) -> BlockingOperation {
    BlockingOperation {
        operation_id: start.operation,
        step_id: start.step,
        id: start.id.unwrap_or_else(|| format!("e{}-{}", start.epoch, now.0)),
        started_at: now.to_string(),
        deadline: now.plus(start.step.time_limit()).to_string(),
        attempt,
        subject: start.subject,
        epoch: start.epoch,
        reason: start.reason,
        message: None,
        outcome: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(step: StepId) -> Start {
        let operation = match step {
            StepId::BaseConfigDeploying => OperationId::BaseConfigCountSpecEnforcement,
            StepId::ReplicaDbDeploying | StepId::ReplicaDbUndeploying => OperationId::ReplicaDbCountSpecEnforcement,
            StepId::Transition => OperationId::StatefulSetSpecEnforcing,
            _ => OperationId::PrimaryDbCountSpecEnforcement,
        };
        Start { operation, step, id: None, subject: Some("orders-2".into()), epoch: 4, reason: None }
    }

    fn running(step: StepId) -> Operations {
        Operations::default().start(start(step), Timestamp(1_000)).unwrap()
    }

    #[test]
    fn an_operation_excludes_every_other_but_a_change_of_primary() {
        let deploying = running(StepId::ReplicaDbDeploying);
        assert!(deploying.start(start(StepId::BaseConfigDeploying), Timestamp(2_000)).is_err());
        let failover = deploying.start(start(StepId::PrimaryDbWaitingBeforeFailingOver), Timestamp(2_000)).unwrap();
        assert_eq!(failover.step(), Some(StepId::PrimaryDbWaitingBeforeFailingOver));
        assert_eq!(failover.previous.unwrap().outcome, Some(Outcome::PreEmpted));
        let waiting = running(StepId::PrimaryDbWaitingBeforeFailingOver);
        assert!(waiting.start(start(StepId::ReplicaDbDeploying), Timestamp(2_000)).is_err());
    }

    #[test]
    fn the_same_operation_goes_on_to_its_next_step_and_keeps_its_name() {
        let waiting = running(StepId::PrimaryDbWaitingBeforeFailingOver);
        let id = waiting.active.clone().unwrap().id;
        let next = waiting.advance(StepId::PrimaryDbFailingOver, Some("orders-3".into()), 5, Timestamp(1_200));
        let active = next.active.unwrap();
        assert_eq!((active.id, active.epoch, active.step_id), (id, 5, StepId::PrimaryDbFailingOver));
        assert_eq!(active.deadline, Timestamp(301_200).to_string());
    }

    #[test]
    fn a_transition_step_keeps_others_out_until_its_owner_goes_on() {
        let transition = running(StepId::ReplicaDbDeploying).to_transition(Timestamp(2_000));
        assert_eq!(transition.previous.clone().unwrap().outcome, Some(Outcome::Completed));
        assert!(transition.start(start(StepId::BaseConfigDeploying), Timestamp(3_000)).is_err());
        assert!(transition.start(start(StepId::ReplicaDbDeploying), Timestamp(3_000)).is_ok());
    }

    #[test]
    fn a_late_operation_is_marked_once_and_may_still_end_well() {
        let deploying = running(StepId::ReplicaDbDeploying);
        assert_eq!(deploying.time_out(299_999), None);
        let late = deploying.time_out(300_000).unwrap();
        assert_eq!(late.time_out(400_000), None);
        assert_eq!(late.end(Outcome::Completed, None).previous.unwrap().outcome, Some(Outcome::Completed));
    }

    #[test]
    fn only_the_named_operation_is_cleared() {
        let deploying = running(StepId::ReplicaDbDeploying);
        assert_eq!(deploying.clear("another"), None);
        let id = deploying.active.clone().unwrap().id;
        assert_eq!(deploying.clear(&id).unwrap().previous.unwrap().outcome, Some(Outcome::Cleared));
    }

    #[test]
    fn starting_a_step_again_counts_the_attempt() {
        let again = running(StepId::PrimaryDbFailingOver).start(start(StepId::PrimaryDbFailingOver), Timestamp(9));
        assert_eq!(again.unwrap().active.unwrap().attempt, 2);
        let mut worn = running(StepId::PrimaryDbFailingOver);
        worn.active.as_mut().unwrap().attempt = u32::MAX;
        let again = worn.start(start(StepId::PrimaryDbFailingOver), Timestamp(9));
        assert_eq!(again.unwrap().active.unwrap().attempt, u32::MAX);
    }
}
