//! One pod: what it should be, what it is, and the worker that closes the gap.
//!
//! `state` and `plan` and `status` are pure; `worker` owns a pod's state and is the only one that
//! changes it; the rest carries out one thing each.

pub(crate) mod backoff;
pub(crate) mod container;
pub(crate) mod env;
pub(crate) mod hooks;
pub(crate) mod identity;
pub(crate) mod payload;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod publish;
pub(crate) mod sandbox;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod volumes;
pub(crate) mod worker;
