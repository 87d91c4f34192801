//! Carries out the writes of a decision.

use std::sync::Arc;

use futures::future::join_all;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::Clock;
use super::write::{Decision, Propagation, Target, Write};

/// Why a decision was not carried out to its end. The key is looked at again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused or could not be reached.
    #[error("failed to {write}: {source}")]
    Refused {
        /// The write as one line.
        write: String,
        /// What the client says.
        source: kube::Error,
    },
    /// The object that had to be gone is there.
    #[error("{0} still exists; nothing that belongs to it is removed")]
    StillThere(String),
    /// The namespace still holds something.
    #[error("namespace {namespace} still holds {held}")]
    NotEmpty {
        /// The namespace.
        namespace: String,
        /// What it holds.
        held: String,
    },
}

/// What came of a decision.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The objects as the server answered.
    pub answers: Vec<(Arc<ApiResource>, DynamicObject)>,
    /// The first failure of each group.
    pub errors: Vec<Error>,
    /// How many writes were sent, events included.
    pub sent: usize,
}

/// The hand that writes for one controller.
#[derive(Clone)]
pub struct Actor {
    /// The API.
    pub client: Client,
    /// Wall time, for events.
    pub clock: Clock,
    /// The field manager.
    pub manager: &'static str,
    /// Every namespaced kind that is served, for the last look into a namespace.
    pub namespaced: Arc<Vec<ApiResource>>,
}

impl Actor {
    /// Carries out every group, side by side.
    pub async fn carry_out(&self, decision: Decision) -> Outcome {
        let outcomes = join_all(decision.groups.into_iter().map(|group| self.group(group))).await;
        outcomes.into_iter().fold(Outcome::default(), |mut all, one| {
            all.answers.extend(one.answers);
            all.errors.extend(one.errors);
            all.sent += one.sent;
            all
        })
    }

    async fn group(&self, writes: Vec<Write>) -> Outcome {
        let mut outcome = Outcome::default();
        for write in writes {
            tracing::debug!(manager = self.manager, %write, "write");
            outcome.sent += 1;
            match self.one(&write).await {
                Ok(answer) => outcome.answers.extend(answer),
                Err(error) => {
                    self.tell_of_refused_create(&write, &error);
                    outcome.errors.push(error);
                    break;
                }
            }
        }
        outcome
    }

    async fn one(&self, write: &Write) -> Result<Option<(Arc<ApiResource>, DynamicObject)>, Error> {
        let refused = |source| Error::Refused { write: write.to_string(), source };
        let answer = match write {
            Write::Create { resource, object } => {
                let api = self.api(resource, object.metadata.namespace.as_deref().unwrap_or_default());
                let created = api.create(&self.post(), object).await;
                accept(created, "AlreadyExists").map_err(refused)?.map(|object| (resource, object))
            }
            Write::Patch { target, subresource, patch } => {
                let patched = self.patch(target, *subresource, patch).await;
                accept(patched, "NotFound").map_err(refused)?.map(|object| (&target.resource, object))
            }
            Write::Delete { target, propagation, grace } => {
                let params = delete_params(target, *propagation, *grace);
                let deleted = self.api_of(target).delete(&target.name, &params).await;
                let object = accept(deleted, "NotFound").map_err(refused)?.and_then(|either| either.left());
                // Without finalizers or grace the answer is the object as it was: gone by now. Only one that stays
                // for a while is news.
                object
                    .filter(|object| object.metadata.deletion_timestamp.is_some() && remains(object))
                    .map(|object| (&target.resource, object))
            }
            Write::Bind { target, node } => {
                self.bind(target, node).await.map_err(refused)?;
                // The answer to a binding does not hold the pod; without it the next look would bind it again.
                let pod = self.api_of(target).get_opt(&target.name).await.map_err(refused)?;
                pod.map(|pod| (&target.resource, pod))
            }
            Write::Event { target, warning, reason, note } => {
                // Nobody waits for an event: the next step of a failover may be behind it.
                let (actor, target, warning) = (self.clone(), target.clone(), *warning);
                let (reason, note) = (*reason, note.clone());
                tokio::spawn(async move { actor.event(&target, warning, reason, &note).await });
                None
            }
            Write::ConfirmGone { target } => {
                self.confirm_gone(target, write).await?;
                None
            }
            Write::FinalizeNamespace { target } => {
                self.finalize_namespace(target, write).await?;
                None
            }
        };
        Ok(answer.map(|(resource, object)| (Arc::new(resource.clone()), object)))
    }

    /// As kube-controller-manager says it: nobody else would learn why a pod is not there.
    fn tell_of_refused_create(&self, write: &Write, error: &Error) {
        let (Write::Create { resource, object }, Error::Refused { source: kube::Error::Api(status), .. }) =
            (write, error)
        else {
            return;
        };
        let owners = object.metadata.owner_references.iter().flatten();
        let Some(owner) = owners.into_iter().find(|owner| owner.controller == Some(true)) else { return };
        if !matches!(status.code, 400 | 403 | 422) {
            return;
        }
        let (kind, of) = (owner.kind.clone(), owner.name.clone());
        let name = object.metadata.name.clone().unwrap_or_default();
        let note = format!("Create {} {name} in {kind} {of} failed error: {}", resource.kind, status.message);
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let owner_kind = kube::core::GroupVersionKind::gvk(group, version, &kind);
        let target = Target {
            resource: ApiResource::from_gvk(&owner_kind),
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: of,
            uid: owner.uid.clone(),
            resource_version: String::new(),
        };
        let actor = self.clone();
        tokio::spawn(async move { actor.event(&target, true, "FailedCreate", &note).await });
    }

    fn post(&self) -> PostParams {
        PostParams { field_manager: Some(self.manager.to_owned()), ..PostParams::default() }
    }

    fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(self.client.clone(), resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, resource),
        }
    }

    fn api_of(&self, target: &Target) -> Api<DynamicObject> {
        self.api(&target.resource, &target.namespace)
    }

    async fn patch(
        &self,
        target: &Target,
        subresource: Option<&'static str>,
        patch: &Value,
    ) -> Result<DynamicObject, kube::Error> {
        let mut body = patch.clone();
        // The server compares both with the object that it patches (optimistic lock of the Kubernetes API).
        body["metadata"]["resourceVersion"] = json!(target.resource_version);
        body["metadata"]["uid"] = json!(target.uid);
        let params = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
        let body = Patch::Merge(body);
        match subresource {
            Some(subresource) => self.api_of(target).patch_subresource(subresource, &target.name, &params, &body).await,
            None => self.api_of(target).patch(&target.name, &params, &body).await,
        }
    }

    async fn bind(&self, target: &Target, node: &str) -> Result<(), kube::Error> {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": target.name, "namespace": target.namespace, "uid": target.uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let _: Value = self.api_of(target).create_subresource("binding", &target.name, &self.post(), &binding).await?;
        Ok(())
    }

    /// Events are for people; a lost one delays nobody.
    async fn event(&self, target: &Target, warning: bool, reason: &str, note: &str) {
        let now = self.clock.now();
        let namespace = if target.namespace.is_empty() { "default" } else { &target.namespace };
        let object = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": format!("{}.{:x}", target.name, now.as_nanosecond()), "namespace": namespace },
            "involvedObject": {
                "apiVersion": target.resource.api_version,
                "kind": target.resource.kind,
                "namespace": target.namespace,
                "name": target.name,
                "uid": target.uid,
                "resourceVersion": target.resource_version,
            },
            "type": if warning { "Warning" } else { "Normal" },
            "reason": reason,
            "message": note,
            "source": { "component": self.manager },
            "reportingComponent": self.manager,
            "firstTimestamp": seconds(now),
            "lastTimestamp": seconds(now),
            "count": 1,
        });
        let events = ApiResource::erase::<k8s_openapi::api::core::v1::Event>(&());
        let created = match serde_json::from_value::<DynamicObject>(object) {
            Ok(event) => self.api(&events, namespace).create(&self.post(), &event).await.map(drop),
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        if let Err(error) = created {
            tracing::debug!(%target, reason, %error, "failed to write an event");
        }
    }

    async fn confirm_gone(&self, target: &Target, write: &Write) -> Result<(), Error> {
        let found = self
            .api_of(target)
            .get_opt(&target.name)
            .await
            .map_err(|source| Error::Refused { write: write.to_string(), source })?;
        match found {
            // Where no uid is known, any object of the name is the one.
            Some(object) if target.uid.is_empty() || object.metadata.uid.as_deref() == Some(&target.uid) => {
                Err(Error::StillThere(target.to_string()))
            }
            _ => Ok(()),
        }
    }

    async fn finalize_namespace(&self, target: &Target, write: &Write) -> Result<(), Error> {
        let refused = |source| Error::Refused { write: write.to_string(), source };
        for resource in self.namespaced.iter() {
            // Events outlive what they tell about, and are not waited for; they are removed with the rest.
            let params = kube::api::ListParams::default().limit(1);
            let list = self.api(resource, &target.name).list(&params).await.map_err(refused)?;
            if let Some(held) = list.items.first() {
                let held = Target::from_meta(resource.clone(), &held.metadata).to_string();
                return Err(Error::NotEmpty { namespace: target.name.clone(), held });
            }
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": target.name, "uid": target.uid, "resourceVersion": target.resource_version },
            "spec": { "finalizers": [] },
        });
        let finalized = self.api_of(target).replace_subresource("finalize", &target.name, &self.post(), &body).await;
        accept(finalized, "NotFound").map_err(refused).map(drop)
    }
}

/// Kubernetes writes whole seconds into `Time` fields.
fn seconds(time: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// An answer with this reason means that the wish was already fulfilled.
fn accept<T>(answer: Result<T, kube::Error>, fulfilled: &str) -> Result<Option<T>, kube::Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.reason == fulfilled => Ok(None),
        Err(error) => Err(error),
    }
}

fn remains(object: &DynamicObject) -> bool {
    let graceful = object.metadata.deletion_grace_period_seconds.unwrap_or_default() > 0;
    graceful || object.metadata.finalizers.as_ref().is_some_and(|left| !left.is_empty())
}

fn delete_params(target: &Target, propagation: Propagation, grace: Option<u32>) -> DeleteParams {
    let mut params = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(target.uid.clone()), resource_version: None }),
        grace_period_seconds: grace,
        ..DeleteParams::default()
    };
    params.propagation_policy = Some(match propagation {
        Propagation::Background => PropagationPolicy::Background,
        Propagation::Foreground => PropagationPolicy::Foreground,
    });
    params
}
