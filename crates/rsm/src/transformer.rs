//! A transformer reads a context and adds intended writes to a graph. It writes nothing itself.

use std::time::Duration;

use futures::future::{BoxFuture, join_all};

use crate::dag::Dag;

/// One step of building a plan from a context of type `C`.
pub trait Transformer<C>: Send + Sync {
    /// Adds to `dag` what `context` calls for.
    fn transform<'a>(&'a self, context: &'a C, dag: &'a mut Dag) -> BoxFuture<'a, Result<(), Interrupt>>;
}

/// What a transformer says instead of "go on".
#[derive(Debug, thiserror::Error)]
pub enum Interrupt {
    /// The graph is complete: pass over the remaining transformers and carry it out.
    #[error("premature stop")]
    PrematureStop,
    /// Go on, and look again after this time.
    #[error("look again after {}: {reason}", humantime(.after))]
    RequeueAfter {
        /// When.
        after: Duration,
        /// Why.
        reason: String,
    },
    /// Carry nothing out.
    #[error(transparent)]
    Failed(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl Interrupt {
    /// A failure of any kind.
    pub fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Interrupt {
        Interrupt::Failed(error.into())
    }
}

impl From<serde_json::Error> for Interrupt {
    fn from(error: serde_json::Error) -> Interrupt {
        Interrupt::failed(error)
    }
}

fn humantime(after: &Duration) -> String {
    format!("{:.3}s", after.as_secs_f64())
}

/// Several transformers that run side by side, each on a copy of the graph; the copies are merged in the order in which
/// the transformers were given, so that the result does not depend on who was faster (rsm.md 2.7).
///
/// A failure of one wins over everything; else a premature stop of one; else the shortest wait.
pub(crate) struct Parallel<C>(pub(crate) Vec<Box<dyn Transformer<C>>>);

impl<C: Sync> Transformer<C> for Parallel<C> {
    fn transform<'a>(&'a self, context: &'a C, dag: &'a mut Dag) -> BoxFuture<'a, Result<(), Interrupt>> {
        Box::pin(async move {
            let base = dag.clone();
            let copies = join_all(self.0.iter().map(|transformer| async {
                let mut copy = base.clone();
                let result = transformer.transform(context, &mut copy).await;
                (copy, result)
            }))
            .await;
            let mut result: Result<(), Interrupt> = Ok(());
            for (copy, answer) in copies {
                dag.merge(&base, &copy);
                if let Err(interrupt) = answer {
                    result = Err(match result {
                        Ok(()) => interrupt,
                        Err(before) => weightier(before, interrupt),
                    });
                }
            }
            result
        })
    }
}

fn weightier(a: Interrupt, b: Interrupt) -> Interrupt {
    match (a, b) {
        (Interrupt::Failed(a), Interrupt::Failed(b)) => Interrupt::failed(format!("{a}; {b}")),
        (failed @ Interrupt::Failed(_), _) | (_, failed @ Interrupt::Failed(_)) => failed,
        (Interrupt::PrematureStop, _) | (_, Interrupt::PrematureStop) => Interrupt::PrematureStop,
        (Interrupt::RequeueAfter { after, reason }, Interrupt::RequeueAfter { after: other, .. }) if after <= other => {
            Interrupt::RequeueAfter { after, reason }
        }
        (_, later) => later,
    }
}
