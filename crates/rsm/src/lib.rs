//! `ReplicatedStateMachine`: members with roles, as a library and as a controller.
//!
//! The library face is that of the first seed: a [`PlanBuilder`] runs [`Transformer`]s, which add intended writes to a
//! [`dag::Dag`]; [`Plan::execute`] carries them out, dependencies first, the root last. A program outside this workspace
//! can build a controller of its own from these.

pub mod annotation;
pub mod dag;
pub mod failpoint;
pub mod graph;
pub mod order;
pub mod ownership;
pub mod plan;
pub mod transformer;

pub use annotation::{AnnotationScope, add_annotation_scope, parse_annotations_of_scope};
pub use graph::Sentinel;
pub use order::{compose_role_priority_map, sort_pods};
pub use ownership::copy_ownership;
pub use plan::{ExecuteError, Plan, PlanBuilder};
pub use transformer::{Interrupt, Transformer};
