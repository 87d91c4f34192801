//! Every decision that Coregent takes, as pure synchronous functions over plain values.
//!
//! Nothing here performs I/O, reads a clock or draws a random number: the time is part of the input and
//! the same input gives the same bytes. The shape of the protocol is `failover.md`; each rule is named where
//! it is enforced.

pub mod failover;
pub mod fence;
pub mod lsn;
pub mod member;
pub mod names;
pub mod operation;
pub mod position;
pub mod report;
pub mod rsm;
pub mod wallclock;
