//! From a context to a plan, and carrying a plan out.

use std::time::Duration;

use coregent_api::refusal;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use serde_json::json;

use crate::dag::{Action, Dag, ObjectKey, Step};
use crate::failpoint::{self, Phase};
use crate::graph::Invalid;
use crate::transformer::{Interrupt, Parallel, Transformer};

/// Builds a plan by letting transformers add to one graph, in order or side by side.
pub struct PlanBuilder<C> {
    context: C,
    dag: Dag,
    transformers: Vec<Box<dyn Transformer<C>>>,
    manager: String,
}

impl<C: Sync + 'static> PlanBuilder<C> {
    /// A builder over what was observed. `manager` is the field manager of every write.
    pub fn new(context: C, manager: &str) -> PlanBuilder<C> {
        PlanBuilder { context, dag: Dag::default(), transformers: Vec::new(), manager: manager.to_owned() }
    }

    /// Sets the root: the object that the plan is for, whose write comes last.
    #[must_use]
    pub fn init(mut self, root: Step) -> PlanBuilder<C> {
        self.dag.set_root(root);
        self
    }

    /// Adds a transformer that runs after those added before.
    #[must_use]
    pub fn add_transformer(mut self, transformer: impl Transformer<C> + 'static) -> PlanBuilder<C> {
        self.transformers.push(Box::new(transformer));
        self
    }

    /// Adds transformers that run side by side, after those added before.
    #[must_use]
    pub fn add_parallel_transformer(mut self, transformers: Vec<Box<dyn Transformer<C>>>) -> PlanBuilder<C> {
        self.transformers.push(Box::new(Parallel(transformers)));
        self
    }

    /// What was observed.
    pub fn context(&self) -> &C {
        &self.context
    }

    /// Runs the transformers. A premature stop ends the row and gives a plan; a wish to look again is kept (the
    /// shortest) and the row goes on; anything else fails, and nothing is carried out.
    pub async fn build(mut self) -> Result<Plan, Interrupt> {
        let mut requeue: Option<(Duration, String)> = None;
        for transformer in &self.transformers {
            match transformer.transform(&self.context, &mut self.dag).await {
                Ok(()) => {}
                Err(Interrupt::PrematureStop) => break,
                Err(Interrupt::RequeueAfter { after, reason }) => {
                    if requeue.as_ref().is_none_or(|(before, _)| after < *before) {
                        requeue = Some((after, reason));
                    }
                }
                Err(failed) => return Err(failed),
            }
        }
        Ok(Plan { dag: self.dag, requeue, manager: self.manager })
    }
}

/// Intended writes in order.
#[derive(Debug)]
pub struct Plan {
    dag: Dag,
    requeue: Option<(Duration, String)>,
    manager: String,
}

/// What carrying out a plan did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Text of every step that reached the API, in order.
    pub written: Vec<String>,
    /// When to look again, if something is known to need it.
    pub requeue: Option<Duration>,
}

/// Why a plan ended before its last step. Everything before the step was carried out; the next reconcile goes on.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The graph has no single root or a cycle: a defect of a transformer.
    #[error(transparent)]
    Graph(#[from] Invalid),
    /// Somebody changed the object since it was read.
    #[error("{step}: the object changed since it was read; it will be read again")]
    Conflict {
        /// The step.
        step: String,
    },
    /// An object of this name is there and belongs to somebody else.
    #[error("{step}: an object of this name is there and is not ours ({owner}); rename one of them or delete it")]
    Foreign {
        /// The step.
        step: String,
        /// The object.
        object: Box<ObjectKey>,
        /// Who it belongs to.
        owner: String,
    },
    /// A step would have overwritten without a condition: a defect of a transformer.
    #[error("{step}: the object carries no resourceVersion, so the write would be unconditional")]
    Unconditional {
        /// The step.
        step: String,
    },
    /// The API server refused or could not be reached.
    #[error("{step}: {source}")]
    Api {
        /// The step.
        step: String,
        /// What it said.
        source: Box<kube::Error>,
    },
}

impl ExecuteError {
    /// Whether reading again is all that is needed.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, ExecuteError::Conflict { .. })
    }

    /// Why somebody has to do something about it, where it does not pass by itself: one of [`coregent_api::refusal`].
    #[must_use]
    pub fn refusal(&self) -> Option<&'static str> {
        match self {
            ExecuteError::Foreign { .. } => Some(refusal::FOREIGN_OBJECT),
            ExecuteError::Api { source, .. } => refusal::reason(source).filter(|reason| !refusal::is_passing(reason)),
            _ => None,
        }
    }
}

impl Plan {
    /// A plan over a graph that was made by hand.
    #[must_use]
    pub fn new(dag: Dag, manager: &str) -> Plan {
        Plan { dag, requeue: None, manager: manager.to_owned() }
    }

    /// The graph.
    #[must_use]
    pub fn dag(&self) -> &Dag {
        &self.dag
    }

    /// When to look again, if a transformer wished it.
    #[must_use]
    pub fn requeue(&self) -> Option<Duration> {
        self.requeue.as_ref().map(|(after, _)| *after)
    }

    /// One line per step that writes, in order: the dry run.
    pub fn lines(&self) -> Result<Vec<String>, Invalid> {
        Ok(self.dag.ordered()?.into_iter().filter(|step| step.action != Action::Noop).map(Step::to_string).collect())
    }

    /// Carries the plan out: dependencies first, the root last, ending at the first error.
    pub async fn execute(&self, client: &Client) -> Result<Done, ExecuteError> {
        let mut done = Done { written: Vec::new(), requeue: self.requeue() };
        for step in self.dag.ordered()? {
            if step.action == Action::Noop {
                continue;
            }
            let id = step.id();
            tracing::debug!(step = %step, "carrying out");
            failpoint::hit(&id, Phase::BeforeWrite);
            let answer = self.write(client, step).await;
            failpoint::hit(&id, Phase::AfterWriteAnswerLost);
            answer?;
            done.written.push(step.to_string());
            failpoint::hit(&id, Phase::AfterEffect);
        }
        Ok(done)
    }

    async fn write(&self, client: &Client, step: &Step) -> Result<(), ExecuteError> {
        let api = api_of(client, step);
        let name = step.key().name;
        let post = PostParams { field_manager: Some(self.manager.clone()), ..PostParams::default() };
        match &step.action {
            Action::Noop => Ok(()),
            Action::Create => match api.create(&post, &body(step)).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => still_ours(&api, step).await,
                answer => settled(step, answer),
            },
            Action::Update => {
                let answer = api.replace(&name, &post, &conditional(step)?).await;
                missing_is_fine(step, answer)
            }
            Action::Status => settled(step, api.replace_status(&name, &post, &conditional(step)?).await),
            Action::Apply { manager } => {
                let params = PatchParams::apply(manager).force();
                settled(step, api.patch(&name, &params, &Patch::Apply(&step.object)).await)
            }
            Action::Merge => {
                let params = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
                let answer = api.patch(&name, &params, &Patch::Merge(&step.object)).await;
                missing_is_fine(step, answer)
            }
            Action::Delete { propagation, finalizer, as_read } => {
                if let Some(finalizer) = finalizer {
                    self.release(&api, step, finalizer).await?;
                }
                if step.original.as_ref().unwrap_or(&step.object).metadata.deletion_timestamp.is_some() {
                    return Ok(());
                }
                let mut params =
                    DeleteParams { propagation_policy: Some(propagation.policy()), ..DeleteParams::default() };
                if let Some(uid) = step.read_uid() {
                    let seen = &step.original.as_ref().unwrap_or(&step.object).metadata;
                    let resource_version = seen.resource_version.clone().filter(|_| *as_read);
                    params.preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version });
                }
                missing_is_fine(step, api.delete(&name, &params).await)
            }
        }
    }

    /// Takes one finalizer away and leaves those of others alone.
    async fn release(&self, api: &Api<DynamicObject>, step: &Step, finalizer: &str) -> Result<(), ExecuteError> {
        let seen = &step.original.as_ref().unwrap_or(&step.object).metadata;
        let finalizers = seen.finalizers.as_deref().unwrap_or_default();
        if !finalizers.iter().any(|one| one == finalizer) {
            return Ok(());
        }
        let rest: Vec<&String> = finalizers.iter().filter(|one| *one != finalizer).collect();
        let patch = json!({"metadata": {"resourceVersion": seen.resource_version, "finalizers": rest}});
        let params = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        missing_is_fine(step, api.patch(&step.key().name, &params, &Patch::Merge(&patch)).await)
    }
}

fn api_of(client: &Client, step: &Step) -> Api<DynamicObject> {
    match step.object.metadata.namespace.as_deref() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &step.resource),
        None => Api::all_with(client.clone(), &step.resource),
    }
}

/// The object as it is sent: what the server keeps of field managers is not ours to send.
fn body(step: &Step) -> DynamicObject {
    let mut object = step.object.clone();
    object.metadata.managed_fields = None;
    object
}

fn conditional(step: &Step) -> Result<DynamicObject, ExecuteError> {
    let mut object = body(step);
    if object.metadata.resource_version.is_none() {
        let read = step.original.as_ref().and_then(|original| original.metadata.resource_version.clone());
        object.metadata.resource_version = read;
    }
    if object.metadata.resource_version.is_none() {
        return Err(ExecuteError::Unconditional { step: step.to_string() });
    }
    Ok(object)
}

/// An object that we were about to create exists. It is fine when it has the owner that ours would have: we made it and
/// had not heard of it yet.
async fn still_ours(api: &Api<DynamicObject>, step: &Step) -> Result<(), ExecuteError> {
    let key = step.key();
    let found = match api.get_opt(&key.name).await {
        Ok(Some(found)) => found,
        // Gone again: the next look will create it.
        Ok(None) => return Err(ExecuteError::Conflict { step: step.to_string() }),
        Err(error) => return Err(ExecuteError::Api { step: step.to_string(), source: Box::new(error) }),
    };
    let controller = |object: &DynamicObject| {
        object.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true)).cloned()
    };
    match (controller(&step.object), controller(&found)) {
        (Some(wanted), Some(actual)) if wanted.uid == actual.uid => Ok(()),
        // An object that nobody is to own has no other mark than its name.
        (None, None) => Ok(()),
        (_, actual) => Err(ExecuteError::Foreign {
            step: step.to_string(),
            object: Box::new(key),
            owner: actual.map_or_else(|| "nobody's".to_owned(), |owner| format!("{} {}", owner.kind, owner.name)),
        }),
    }
}

fn settled<T>(step: &Step, answer: Result<T, kube::Error>) -> Result<(), ExecuteError> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if conflicts(&status) => Err(ExecuteError::Conflict { step: step.to_string() }),
        Err(error) => Err(ExecuteError::Api { step: step.to_string(), source: Box::new(error) }),
    }
}

fn conflicts(status: &Status) -> bool {
    status.is_conflict() && !status.is_already_exists()
}

fn missing_is_fine<T>(step: &Step, answer: Result<T, kube::Error>) -> Result<(), ExecuteError> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        answer => settled(step, answer),
    }
}
