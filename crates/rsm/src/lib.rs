//! `ReplicatedStateMachine`: members with roles, as a library and as a controller.
//!
//! The library face is that of the first seed: a [`PlanBuilder`] runs [`Transformer`]s, which add intended writes to a
//! [`dag::Dag`]; [`Plan::execute`] carries them out, dependencies first, the root last. A program outside this workspace
//! can build a controller of its own from these.

pub mod annotation;
pub mod compatibility;
pub mod controller;
pub mod dag;
pub mod failpoint;
pub mod graph;
pub mod handover;
mod membership;
pub mod merge;
pub mod names;
pub mod news;
pub mod operation;
pub mod order;
pub mod ownership;
pub mod plan;
pub mod ready;
pub mod render;
mod retention;
pub mod role_event;
pub mod status;
pub mod transformer;
pub mod transformers;
pub mod update;
pub mod world;

pub use annotation::{AnnotationScope, add_annotation_scope, parse_annotations_of_scope};
pub use controller::{Broken, run};
pub use graph::Sentinel;
pub use order::{compose_role_priority_map, sort_pods};
pub use ownership::copy_ownership;
pub use plan::{ExecuteError, Plan, PlanBuilder};
pub use ready::is_rsm_ready;
pub use role_event::PodRoleEventHandler;
pub use transformer::{Interrupt, Transformer};
pub use world::Tools;
