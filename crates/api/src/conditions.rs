//! Conditions: one list per object, one entry per type, `lastTransitionTime` only moved by a change of status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Everything that the spec asks for is there and usable.
pub const READY: &str = "Ready";
/// The controller is changing something to reach the spec.
pub const PROGRESSING: &str = "Progressing";
/// It works, with less than was asked for.
pub const DEGRADED: &str = "Degraded";
/// The primary was lost and another is being chosen or promoted.
pub const FAILOVER_IN_PROGRESS: &str = "FailoverInProgress";
/// A blocking operation ran past its deadline and waits for a person.
pub const OPERATION_TIMED_OUT: &str = "OperationTimedOut";
/// No member that could still be heard would show where all acknowledged writes are: somebody has to put a volume right.
pub const DECISION_NEEDED: &str = "DecisionNeeded";
/// The synchronous set is narrower than asked for, so that a failover may lose writes (failover.md F8).
pub const SYNC_DEGRADED: &str = "SyncDegraded";
/// A member that runs is not ready and says why.
pub const MEMBER_FAILED: &str = "MemberFailed";
/// There are more members than `spec.replicas`, since lowering it removes nobody yet.
pub const SURPLUS_MEMBERS: &str = "SurplusMembers";
/// An address of the cluster is not served, because something else has its port; names the address and what to do.
pub const ADDRESS_UNAVAILABLE: &str = "AddressUnavailable";
/// Members say that something weakens what the mode of replication promises, or that something happened that should not
/// have (failover.md F11, F16).
pub const WARNINGS: &str = "Warnings";
/// The operator cannot carry out what it decided, or Kubernetes what it was told to: names the verb, the object and who
/// refuses. The reason is one of [`crate::refusal`].
pub const BLOCKED: &str = "Blocked";
/// On a Service of the embedded plane: whether its node listens on its address. `coregent_node::SERVED` is the same text.
pub const SERVED: &str = "coregent.io/Served";
/// The spec can be carried out; `False` names the field that cannot.
pub const SPEC_VALID: &str = "SpecValid";
/// The members that are in the cluster are those that the spec asks for; `False` says what is done about it.
pub const MEMBERSHIP: &str = "MembershipAsWanted";
/// `spec.paused` is set: nothing is written for this object.
pub const PAUSED: &str = "Paused";

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl State {
    /// As the API spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::True => "True",
            State::False => "False",
            State::Unknown => "Unknown",
        }
    }
}

impl From<bool> for State {
    fn from(holds: bool) -> State {
        if holds { State::True } else { State::False }
    }
}

/// Sets the condition of type `kind`, keeping `lastTransitionTime` unless the status changed, and the list sorted by
/// type so that equal facts give equal bytes.
///
/// Returns whether anything but the time of a non-change differs from before.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    kind: &str,
    state: State,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: &Time,
) -> bool {
    let old = conditions.iter().position(|condition| condition.type_ == kind);
    let last_transition_time = match old.map(|at| &conditions[at]) {
        Some(before) if before.status == state.as_str() => before.last_transition_time.clone(),
        _ => now.clone(),
    };
    let next = Condition {
        type_: kind.to_owned(),
        status: state.as_str().to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time,
    };
    match old {
        Some(at) if conditions[at] == next => false,
        Some(at) => {
            conditions[at] = next;
            true
        }
        None => {
            conditions.push(next);
            conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
            true
        }
    }
}

/// The condition of type `kind`, if it was ever set.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition of type `kind` is `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}
