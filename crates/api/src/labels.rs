//! Label keys and values that we put on objects.

/// Name of the `DatabaseCluster` that an object belongs to.
pub const CLUSTER: &str = "coregent.io/cluster";
/// The member an object belongs to: the name of its single-replica StatefulSet (`memberLayout: Instances`); on objects
/// that an RSM generates for itself as a whole, the name of that RSM.
pub const INSTANCE: &str = "coregent.io/instance";
/// Role of a pod, as its RSM declares it. Written by one hand only (failover.md F15); never a fence.
pub const ROLE: &str = "coregent.io/role";
/// Access mode that goes with [`ROLE`]: `ReadWrite`, `Readonly` or `None`.
pub const ACCESS_MODE: &str = "coregent.io/access-mode";
/// On a pod: `true` when the member serves although nobody leads (rsm.md 4.5).
pub const READY_WITHOUT_PRIMARY: &str = "coregent.io/ready-without-primary";
/// The kind of controller that generated an object, see [`MANAGED_BY_RSM`].
pub const MANAGED_BY: &str = "coregent.io/managed-by";
/// Generation of the RSM that a generated StatefulSet was rendered from (rsm.md 3.1).
pub const CONTROLLER_GENERATION: &str = "coregent.io/controller-generation";

/// Value of [`MANAGED_BY`] on objects that an RSM generates.
pub const MANAGED_BY_RSM: &str = "ReplicatedStateMachine";
/// Value of [`MANAGED_BY`] on objects that the database controller creates.
pub const MANAGED_BY_DATABASE: &str = "DatabaseCluster";

/// Value of [`ROLE`] on the one pod that accepts writes.
pub const ROLE_PRIMARY: &str = "primary";
/// Value of [`ROLE`] on pods that follow the primary.
pub const ROLE_REPLICA: &str = "replica";
