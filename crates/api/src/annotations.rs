//! Annotation keys that we put on objects.

/// On the Lease `<cluster>-primary`: the fence (failover.md F1), JSON with a format version.
pub const FENCE: &str = "coregent.io/fence";
/// On the Lease `<member>-member`: what the member's agent reports of itself, JSON.
pub const MEMBER: &str = "coregent.io/member";
/// On the Lease `<cluster>-bootstrap-<uid>`: the member that may create the first data folder (failover.md F14).
pub const BOOTSTRAP: &str = "coregent.io/bootstrap";
/// On the primary's Lease: a request of the controller to a member's agent.
pub const REQUEST: &str = "coregent.io/request";
/// On a DatabaseCluster: a switchover that a person asked for, `{"to": "orders-2"}`; removed once taken up.
pub const SWITCHOVER: &str = "coregent.io/switchover";
/// On a pod: the epoch at which it was last stamped (failover.md F4).
pub const EPOCH: &str = "coregent.io/epoch";
/// On a pod: microseconds since the epoch of the newest role Event that was accepted for it (rsm.md 4.3).
pub const LAST_ROLE_VERSION: &str = "coregent.io/last-role-snapshot-version";
/// On a pod: the number that its engine gave the newest claim that was accepted for it, where it gives one (rsm.md 4.4).
pub const LAST_ROLE_NUMBER: &str = "coregent.io/last-role-authoritative-version";
/// On a pod: how new the claim was by which another pod took an exclusive role from it, `<microseconds>[ <number>]`.
pub const ROLE_OUTRANKED: &str = "coregent.io/role-outranked";
/// On an RSM: what a person says to the action that `status.memberOperation` records: `skip <id>` or `retry <id>`.
pub const MEMBER_OPERATION: &str = "coregent.io/member-operation";
/// On an Event: the count up to which it was handled, `count-<n>` (rsm.md 4.1).
pub const ROLE_EVENT_HANDLED: &str = "coregent.io/role-event-handled";
/// On the Lease by which operators agree who works: the version of the one that holds it, for people.
pub const OPERATOR_VERSION: &str = "coregent.io/operator-version";
/// On the same: the one namespace that it looks after, where it does not look after all.
pub const OPERATOR_SCOPE: &str = "coregent.io/operator-scope";
