//! Engine drivers.

pub(crate) mod postgresql;
