//! Acting: each step of a decision as one conditional write. Nothing here decides anything.

use crate::error::{Error, is_status};
use crate::metrics::Metrics;
use crate::objects;
use crate::observe::{Cache, Refusal, View};
use crate::status;
use coregent_api::{DatabaseCluster, ReplicatedStateMachine, annotations, labels};
use coregent_core::failover::{Decision, Role, Step};
use coregent_core::fence::Fence;
use coregent_core::names::{Epoch, MemberName};
use coregent_rsm::failpoint::{self, Phase};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Our name on what we apply.
pub(crate) const MANAGER: &str = "coregent-database";
/// No answer for so long: looking again tells more than waiting.
const ANSWER: Duration = Duration::from_secs(3);

/// Carries steps out.
#[derive(Clone)]
pub(crate) struct Actor {
    pub(crate) client: Client,
    pub(crate) cache: Arc<Cache>,
    pub(crate) metrics: Metrics,
    /// Where members get their agent from.
    pub(crate) image: Arc<str>,
}

impl Actor {
    /// Carries the steps out in order and stops at the first that fails. Neighbours that do not depend on each other
    /// (stamps, labels that are no leader's) go side by side: a failover waits for each of these writes.
    pub(crate) async fn act(&self, view: &View, decision: &Decision) -> Result<(), Error> {
        let mut rest = decision.steps.as_slice();
        while let Some(first) = rest.first() {
            let alike = rest.iter().take_while(|step| is_independent(step)).count().max(1);
            let (group, later) = rest.split_at(alike);
            if let [only] = group {
                self.step(view, decision, only).await?;
            } else {
                let together = group.iter().map(|step| self.step(view, decision, step));
                futures::future::try_join_all(together).await?;
            }
            tracing::debug!(step = %first, of = alike, "carried out");
            rest = later;
        }
        Ok(())
    }

    async fn step(&self, view: &View, decision: &Decision, step: &Step) -> Result<(), Error> {
        let id = step.id();
        failpoint::hit(id, Phase::BeforeWrite);
        tracing::info!(cluster = %view.cluster.name_any(), step = id, "{step}");
        answered(id, self.write(view, decision, step)).await?;
        failpoint::hit(id, Phase::AfterEffect);
        self.metrics.stepped(id);
        Ok(())
    }

    async fn write(&self, view: &View, decision: &Decision, step: &Step) -> Result<(), Error> {
        let id = step.id();
        match step {
            Step::Remember { .. } => self.write_status(view, decision, id).await,
            Step::DeployBaseConfig => self.deploy_base(view, id).await,
            Step::CreateGrant { member } => self.create_grant(view, member, id).await,
            Step::CreateLease { epoch, fence } => self.create_lease(view, *epoch, fence, id).await,
            Step::Raise { version, epoch, fence }
            | Step::Name { version, epoch, fence }
            | Step::Prepare { version, epoch, fence }
            | Step::Enrol { version, epoch, fence } => self.put_lease(view, version, *epoch, fence, id).await,
            Step::Stamp { pod, uid, epoch } => {
                let metadata = json!({"uid": uid, "annotations": {annotations::EPOCH: epoch.to_string()}});
                self.patch_pod(view, pod, uid, &json!({"metadata": metadata}), id).await
            }
            Step::Label { pod, uid, role } => {
                let role_labels = json!({
                    labels::ROLE: role.map(Role::as_str),
                    labels::ACCESS_MODE: role.map(Role::access_mode),
                });
                let metadata = json!({"uid": uid, "labels": role_labels});
                self.patch_pod(view, pod, uid, &json!({"metadata": metadata}), id).await
            }
            Step::FencingDelete { pod, uid, version, .. } => self.fence(view, pod, uid, version, id).await,
            Step::SetInstances { instances } => self.set_instances(view, instances, id).await,
        }
    }

    /// Writes the status on the version that was decided on.
    pub(crate) async fn write_status(&self, view: &View, decision: &Decision, id: &'static str) -> Result<(), Error> {
        // A step before this one in the same decision may have brought a newer version of the status: none does, so
        // that the version decided on is the condition.
        let cluster = &view.cluster;
        let now = self.cache.clock().wall();
        let status = status::status(view, decision, now);
        if cluster.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut next = DatabaseCluster::clone(cluster);
        next.status = Some(status);
        next.metadata.managed_fields = None;
        let api: Api<DatabaseCluster> = self.api(view);
        let written = api.replace_status(&cluster.name_any(), &PostParams::default(), &next).await;
        match landed(id, doing::<DatabaseCluster>("update", "/status", &cluster.name_any()), written) {
            Ok(written) => {
                self.cache.wrote_cluster(written);
                Ok(())
            }
            Err(error) => {
                if error.is_conflict() {
                    self.read_cluster(view).await;
                }
                Err(error)
            }
        }
    }

    async fn put_lease(
        &self,
        view: &View,
        version: &str,
        epoch: Epoch,
        fence: &Fence,
        id: &'static str,
    ) -> Result<(), Error> {
        let Some(mut lease) = view.lease.clone() else { return Err(Error::Moved { step: id }) };
        lease.metadata.resource_version = Some(version.to_owned());
        lease.annotations_mut().insert(annotations::FENCE.to_owned(), fence.to_annotation());
        lease.spec.get_or_insert_default().lease_transitions = i32::try_from(epoch.0).ok();
        let api: Api<Lease> = self.api(view);
        let written = api.replace(&lease.name_any(), &PostParams::default(), &lease).await;
        match landed(id, doing::<Lease>("update", "", &lease.name_any()), written) {
            Ok(written) => {
                self.cache.wrote_lease(written);
                Ok(())
            }
            Err(error) => {
                // Whoever was faster, or a write of ours whose answer was lost: what stands there now decides.
                self.read_lease(view, &lease.name_any()).await;
                Err(error)
            }
        }
    }

    async fn create_lease(&self, view: &View, epoch: Epoch, fence: &Fence, id: &'static str) -> Result<(), Error> {
        let name = objects::primary_lease(&view.cluster.name_any());
        let mut lease = bare_lease(view, &name);
        lease.annotations_mut().insert(annotations::FENCE.to_owned(), fence.to_annotation());
        lease.spec = Some(LeaseSpec {
            lease_duration_seconds: i32::try_from(crate::LEASE_DURATION / 1_000).ok(),
            lease_transitions: i32::try_from(epoch.0).ok(),
            ..LeaseSpec::default()
        });
        self.create_only(view, lease, id).await
    }

    async fn create_grant(&self, view: &View, member: &MemberName, id: &'static str) -> Result<(), Error> {
        let uid = view.cluster.uid().unwrap_or_default();
        let mut lease = bare_lease(view, &objects::bootstrap_lease(&view.cluster.name_any(), &uid));
        let grant = json!({"member": member}).to_string();
        lease.annotations_mut().insert(annotations::BOOTSTRAP.to_owned(), grant);
        self.create_only(view, lease, id).await
    }

    /// Creates, and takes what is there already for what stands: the answer of an earlier create may have been lost.
    async fn create_only(&self, view: &View, lease: Lease, id: &'static str) -> Result<(), Error> {
        let api: Api<Lease> = self.api(view);
        let name = lease.name_any();
        let created = api.create(&PostParams::default(), &lease).await;
        match landed(id, doing::<Lease>("create", "", &name), created) {
            Ok(written) => self.cache.wrote_lease(written),
            Err(error) if error.is_conflict() => self.read_lease(view, &name).await,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn patch_pod(
        &self,
        view: &View,
        pod: &str,
        uid: &str,
        patch: &serde_json::Value,
        id: &'static str,
    ) -> Result<(), Error> {
        let api: Api<Pod> = self.api(view);
        let answer = api.patch(pod, &PatchParams::default(), &Patch::Merge(patch)).await;
        // A patch that names another uid than the pod's is answered as invalid: this pod is another one.
        if answer.as_ref().is_err_and(|error| is_status(error, &[422])) {
            return Err(Error::Moved { step: id });
        }
        let written = landed(id, doing::<Pod>("patch", "", pod), answer)?;
        // The uid in the patch makes the server refuse another pod of this name; belt and braces.
        if written.uid().as_deref() != Some(uid) {
            return Err(Error::Moved { step: id });
        }
        self.cache.wrote_pod(written);
        Ok(())
    }

    async fn fence(&self, view: &View, pod: &str, uid: &str, version: &str, id: &'static str) -> Result<(), Error> {
        let api: Api<Pod> = self.api(view);
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()) };
        let params = DeleteParams {
            // Never 0: the node must stop it and say so (F4).
            grace_period_seconds: Some(1),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        landed(id, doing::<Pod>("delete", "", pod), api.delete(pod, &params).await).map(drop)
    }

    async fn set_instances(&self, view: &View, instances: &[u32], id: &'static str) -> Result<(), Error> {
        if view.cluster.spec.service_account_name.is_none() {
            self.apply(view, objects::role(&view.cluster, instances), id).await?;
        }
        self.apply_rsm(view, instances, id).await
    }

    /// Writes the RSM with these members.
    pub(crate) async fn apply_rsm(&self, view: &View, instances: &[u32], id: &'static str) -> Result<(), Error> {
        let mut rsm = objects::rsm(&view.cluster, instances, &self.image);
        let digest = digest(&rsm);
        rsm.annotations_mut().insert(objects::RENDERED.to_owned(), digest);
        let api: Api<ReplicatedStateMachine> = self.api(view);
        let params = PatchParams::apply(MANAGER).force();
        let answer = api.patch(&rsm.name_any(), &params, &Patch::Apply(&rsm)).await;
        let written = landed(id, doing::<ReplicatedStateMachine>("apply", "", &rsm.name_any()), answer)?;
        self.cache.wrote_rsm(written);
        Ok(())
    }

    /// Writes what members need; the configuration last, since its presence says that all of it is there.
    async fn deploy_base(&self, view: &View, id: &'static str) -> Result<(), Error> {
        let cluster = &view.cluster;
        if cluster.spec.service_account_name.is_none() {
            self.apply(view, objects::account(cluster), id).await?;
            self.apply(view, objects::role(cluster, &[1]), id).await?;
            self.apply(view, objects::binding(cluster), id).await?;
        }
        if cluster.spec.superuser_secret.is_none() {
            self.generate(view, &objects::superuser_secret_name(cluster), objects::SUPERUSER, id).await?;
        }
        if cluster.spec.replication_secret.is_none() {
            self.generate(view, &objects::replication_secret_name(cluster), objects::REPLICATION_USER, id).await?;
        }
        self.apply_config(view, id).await
    }

    /// Writes the base configuration.
    pub(crate) async fn apply_config(&self, view: &View, id: &'static str) -> Result<(), Error> {
        let map = objects::config_map(&view.cluster, view.custom_config.as_ref());
        let written = self.apply(view, map, id).await?;
        self.cache.wrote_config_map(written);
        Ok(())
    }

    /// Writes a disruption budget.
    pub(crate) async fn apply_budget(&self, view: &View, budget: PodDisruptionBudget) -> Result<(), Error> {
        let written = self.apply(view, budget, "render.budget").await?;
        self.cache.wrote_budget(written);
        Ok(())
    }

    async fn generate(&self, view: &View, name: &str, user: &str, id: &'static str) -> Result<(), Error> {
        let secret = objects::generated_secret(&view.cluster, name, user, &password()?);
        let api: Api<k8s_openapi::api::core::v1::Secret> = self.api(view);
        let created = api.create(&PostParams::default(), &secret).await;
        match landed(id, doing::<k8s_openapi::api::core::v1::Secret>("create", "", name), created) {
            Ok(written) => self.cache.wrote_secret(written),
            // One is there already: whoever made it, its password stands.
            Err(error) if error.is_conflict() => {
                if let Ok(Some(found)) = api.get_opt(name).await {
                    self.cache.wrote_secret(found);
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn apply<K>(&self, view: &View, object: K, id: &'static str) -> Result<K, Error>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
        K::DynamicType: Default,
    {
        let api: Api<K> = self.api(view);
        let params = PatchParams::apply(MANAGER).force();
        let answer = api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await;
        landed(id, doing::<K>("apply", "", &object.name_any()), answer)
    }

    /// Says in the conditions of a cluster what is refused, and changes nothing else: for where nothing can be decided.
    pub(crate) async fn say_blocked(&self, cluster: &DatabaseCluster, refused: &[Refusal]) -> Result<(), Error> {
        let mut next = cluster.clone();
        next.metadata.managed_fields = None;
        let conditions = &mut next.status.get_or_insert_default().conditions;
        if !status::set_blocked(conditions, refused, cluster.metadata.generation, self.cache.clock().wall()) {
            return Ok(());
        }
        let name = cluster.name_any();
        let api: Api<DatabaseCluster> = Api::namespaced(self.client.clone(), &cluster.namespace().unwrap_or_default());
        let written = api.replace_status(&name, &PostParams::default(), &next).await;
        let doing = doing::<DatabaseCluster>("update", "/status", &name);
        self.cache.wrote_cluster(landed("status.blocked", doing, written)?);
        Ok(())
    }

    /// Reads the cluster again after somebody else wrote it.
    pub(crate) async fn read_cluster(&self, view: &View) {
        let api: Api<DatabaseCluster> = self.api(view);
        if let Ok(Ok(Some(found))) = tokio::time::timeout(ANSWER, api.get_opt(&view.cluster.name_any())).await {
            self.cache.read_cluster(found, &view.cluster);
        }
    }

    /// Reads a Lease again after a write that did not land or may have.
    pub(crate) async fn read_lease(&self, view: &View, name: &str) {
        let api: Api<Lease> = self.api(view);
        if let Ok(Ok(Some(found))) = tokio::time::timeout(ANSWER, api.get_opt(name)).await {
            self.cache.read_lease(found, view.lease.as_ref().filter(|held| held.name_any() == name));
        }
    }

    fn api<K>(&self, view: &View) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &view.cluster.namespace().unwrap_or_default())
    }
}

/// Waits for the answer to `write`, and no longer: one that is lost on the way without a word is not missed before the
/// client's own limit of minutes, and until then nothing would be decided.
pub(crate) async fn answered(step: &'static str, write: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let done = tokio::time::timeout(ANSWER, write).await;
    done.map_err(|_| Error::NoAnswer { step, seconds: ANSWER.as_secs() })?
}

fn is_independent(step: &Step) -> bool {
    matches!(step, Step::Stamp { .. } | Step::Label { role: None | Some(Role::Replica), .. })
}

fn bare_lease(view: &View, name: &str) -> Lease {
    let cluster = view.cluster.name_any();
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: view.cluster.namespace(),
            labels: Some(objects::object_labels(&cluster)),
            annotations: Some(BTreeMap::new()),
            owner_references: Some(objects::owner(&view.cluster)),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec::default()),
    }
}

/// The verb and the object, as a person would say them to `kubectl`.
pub(crate) fn doing<K>(verb: &str, subresource: &str, name: &str) -> String
where
    K: kube::Resource,
    K::DynamicType: Default,
{
    format!("{verb} {}{subresource} {name:?}", K::plural(&K::DynamicType::default()))
}

/// Names the step in an error, and ends the process where a test wants the answer lost.
fn landed<T>(step: &'static str, doing: String, answer: Result<T, kube::Error>) -> Result<T, Error> {
    if answer.is_ok() {
        failpoint::hit(step, Phase::AfterWriteAnswerLost);
    }
    answer.map_err(|source| Error::Api { step, doing, source: Box::new(source) })
}

/// A password of 32 characters from 190 bits of the machine's randomness.
fn password() -> Result<String, Error> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Random(error.to_string()))?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect())
}

/// A digest of what was rendered. It need only differ when that does; across versions of this program it may change,
/// which costs one write.
pub(crate) fn digest(rsm: &ReplicatedStateMachine) -> String {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    serde_json::to_string(&rsm.spec).unwrap_or_default().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
