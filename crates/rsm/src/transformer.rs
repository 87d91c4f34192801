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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::{Action, Step};
    use crate::plan::{Plan, PlanBuilder};
    use futures::executor::block_on;
    use k8s_openapi::api::core::v1::ConfigMap;

    /// Adds a ConfigMap and then says something.
    struct Adds(&'static str, fn() -> Result<(), Interrupt>);

    impl Transformer<()> for Adds {
        fn transform<'a>(&'a self, _: &'a (), dag: &'a mut Dag) -> BoxFuture<'a, Result<(), Interrupt>> {
            Box::pin(async {
                dag.add(step(self.0));
                (self.1)()
            })
        }
    }

    fn step(name: &str) -> Step {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        Step::new(&object, Action::Create).unwrap()
    }

    fn fine() -> Result<(), Interrupt> {
        Ok(())
    }

    fn stop() -> Result<(), Interrupt> {
        Err(Interrupt::PrematureStop)
    }

    fn soon() -> Result<(), Interrupt> {
        Err(Interrupt::RequeueAfter { after: Duration::from_secs(1), reason: "soon".into() })
    }

    fn later() -> Result<(), Interrupt> {
        Err(Interrupt::RequeueAfter { after: Duration::from_secs(9), reason: "later".into() })
    }

    fn fails() -> Result<(), Interrupt> {
        Err(Interrupt::failed("broken"))
    }

    fn builder() -> PlanBuilder<()> {
        PlanBuilder::new((), "test").init(step("root"))
    }

    fn lines(plan: &Plan) -> Vec<String> {
        plan.lines().unwrap().into_iter().map(|line| line.replace("Create ConfigMap ", "")).collect()
    }

    #[test]
    fn a_premature_stop_ends_the_row_and_keeps_the_plan() {
        let plan = builder().add_transformer(Adds("a", stop)).add_transformer(Adds("b", fine)).build();
        assert_eq!(lines(&block_on(plan).unwrap()), ["a", "root"]);
    }

    #[test]
    fn a_wish_to_look_again_goes_on_and_the_shortest_counts() {
        let row = builder().add_transformer(Adds("a", later)).add_transformer(Adds("b", soon));
        let plan = block_on(row.add_transformer(Adds("c", fine)).build()).unwrap();
        assert_eq!(lines(&plan), ["a", "b", "c", "root"]);
        assert_eq!(plan.requeue(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_failure_gives_no_plan() {
        let row = builder().add_transformer(Adds("a", fails)).add_transformer(Adds("b", fine));
        assert_eq!(block_on(row.build()).unwrap_err().to_string(), "broken");
    }

    fn side_by_side(said: Vec<fn() -> Result<(), Interrupt>>) -> Result<Plan, Interrupt> {
        let names = ["p", "q", "r"];
        let all = names.iter().zip(said).map(|(name, say)| Box::new(Adds(name, say)) as Box<dyn Transformer<()>>);
        block_on(builder().add_parallel_transformer(all.collect()).add_transformer(Adds("after", fine)).build())
    }

    #[test]
    fn transformers_side_by_side_all_add_and_what_they_say_keeps_its_meaning() {
        assert_eq!(lines(&side_by_side(vec![fine, fine, fine]).unwrap()), ["after", "p", "q", "r", "root"]);
        assert_eq!(lines(&side_by_side(vec![soon, stop, fine]).unwrap()), ["p", "q", "r", "root"]);
        assert_eq!(side_by_side(vec![later, soon, fine]).unwrap().requeue(), Some(Duration::from_secs(1)));
        assert!(matches!(side_by_side(vec![stop, fails, soon]), Err(Interrupt::Failed(_))));
    }
}
