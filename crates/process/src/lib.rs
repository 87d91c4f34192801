//! The process supervisor: containers as processes in namespaces of their own, and the engine's process tree inside.
//!
//! * [`Launcher`], [`Container`], [`ExecProcess`]: for the node. A container is one process and all it starts, in its
//!   own mount, PID, IPC and UTS namespace, with the host's network. It ends when its first process ends, when it is
//!   killed, and when the process that started it is gone, however that died; then nothing of it is left.
//! * [`tree`]: for the agent, the first process of a container: start the engine with the volume's lock inherited, reap
//!   orphans, kill until nothing is left (failover.md F3, F5).
//! * [`dispatch`]: the hidden verbs, first thing in `main`.
//!
//! The only unsafe code of the project is in `sys.rs` of this crate.

mod container;
mod error;
mod exec;
mod launcher;
pub mod memory;
pub mod priority;
mod pty;
mod running;
mod shim;
mod spec;
mod support;
mod sys;
pub mod tree;
mod wire;

pub use container::Container;
pub use error::StartError;
pub use exec::{ExecProcess, ExecSpec, Input, Output, TerminalSize};
pub use launcher::Launcher;
pub use shim::dispatch;
pub use spec::{ContainerSpec, ExitStatus, Mount, User};
pub use support::{Unsupported, check_support};
