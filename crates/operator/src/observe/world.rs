//! One cluster's objects as the plain values that deciding works on.

use super::cache::{BUDGETS, Cache, Key, NodeFacts, Objects, key_of};
use super::leases::{self, Tracked};
use super::pods::database_container;
use super::refused::Refusal;
use crate::objects;
use crate::status;
use crate::validate;
use coregent_api::database::ReplicationMode;
use coregent_api::{DatabaseCluster, ReplicatedStateMachine, annotations, conditions, labels, refusal};
use coregent_core::failover::{Cluster, Holder, Lease, LeaseView, Member, Mode, Pod, SwitchoverRequest, World};
use coregent_core::fence::Fence;
use coregent_core::names::{Epoch, MemberName, Monotonic};
use coregent_core::report::MemberReport;
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::{Pod as PodObject, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a reconciliation remembers between two looks; lost with the process, and nothing is wrong then.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Since when facts hold that the decision before named.
    pub facts: BTreeMap<String, Monotonic>,
    /// The active step and since when it has been seen.
    pub step: Option<(String, Monotonic)>,
}

/// The world and the objects that acting on it needs.
pub struct View {
    /// What is decided on.
    pub world: World,
    /// The cluster.
    pub cluster: Arc<DatabaseCluster>,
    /// The primary Lease as it was read.
    pub lease: Option<LeaseObject>,
    /// The RSM.
    pub rsm: Option<Arc<ReplicatedStateMachine>>,
    /// What is wrong with the spec.
    pub problems: Vec<String>,
    /// Addresses that nobody serves, one line each: what, why, what to do.
    pub unserved: Vec<String>,
    /// Data of the ConfigMap that `spec.customConfig` names.
    pub custom_config: Option<BTreeMap<String, String>>,
    /// The base configuration as it stands.
    pub config: Option<BTreeMap<String, String>>,
    /// Its disruption budgets that are not as they should be.
    pub budgets: Vec<PodDisruptionBudget>,
    /// What is refused, to this operator or to Kubernetes itself.
    pub refused: Vec<Refusal>,
}

impl Cache {
    /// The world of one cluster; `None` when it is gone.
    #[must_use]
    pub fn view(&self, key: &Key, held: &mut Held) -> Option<View> {
        let clock = self.clock();
        let (now, wall) = (clock.now(), clock.wall());
        let objects = self.lock();
        let cluster = objects.clusters.get(key)?.clone();
        let name = cluster.name_any();
        let named = |suffix: String| (key.0.clone(), suffix);
        let primary = objects.leases.get(&named(objects::primary_lease(&name)));
        let grant = objects.leases.get(&named(objects::bootstrap_lease(&name, &cluster.uid().unwrap_or_default())));
        let rsm = objects.rsms.get(key).cloned();
        let problems = validate::problems(&cluster.spec);
        let custom = cluster.spec.custom_config.as_ref().and_then(|name| objects.config_maps.get(&named(name.clone())));
        let custom_config = custom.map(|map| map.data.clone().unwrap_or_default());
        let config = objects.config_maps.get(&named(objects::config_name(&name)));
        let config = config.map(|map| map.data.clone().unwrap_or_default());
        let mut waits_for = waits_for(&objects, key, &cluster);
        waits_for.extend(problems.iter().cloned());
        let memory = status::memory(&cluster);
        let instances = rsm.as_ref().map(|rsm| instances(rsm));
        let unserved = unserved(&objects, key);
        let budgets = budgets(&objects, &cluster, instances.as_deref());
        let step = memory.operations.active.as_ref().map(|active| format!("{} {}", active.id, active.started_at));
        let step_seen = seen_since(held, step, now);
        let world = World {
            now,
            wall,
            cluster: cluster_facts(&cluster, instances.as_deref(), waits_for, has_base(&objects, key, &cluster)),
            memory,
            step_seen,
            lease: primary.map_or(LeaseView::Absent, lease_view),
            grant: grant.and_then(|tracked| granted(&tracked.lease)),
            members: members(&objects, key, &name),
            instances,
            terminated: objects.pods.terminated().clone(),
            held: held.facts.clone(),
        };
        let lease = primary.map(|tracked| tracked.lease.clone());
        let refused = refused(&objects, key, rsm.as_deref());
        Some(View { world, cluster, lease, rsm, problems, unserved, custom_config, config, budgets, refused })
    }
}

/// What is refused to the watches, to the controller of the RSM, and to that of its StatefulSets.
fn refused(objects: &Objects, key: &Key, rsm: Option<&ReplicatedStateMachine>) -> Vec<Refusal> {
    let mut refused: Vec<Refusal> = objects.unheard().cloned().collect();
    let Some(rsm) = rsm else { return refused };
    let ready = rsm.status.as_ref().and_then(|status| conditions::find(&status.conditions, conditions::READY));
    refused.extend(ready.and_then(|ready| {
        let reason = refusal::known(&ready.reason)?;
        Some(Refusal { reason, what: format!("ReplicatedStateMachine {}: {}", key.1, ready.message) })
    }));
    let members = instances(rsm).into_iter().map(|index| MemberName::of(&key.1, index));
    refused.extend(members.filter_map(|member| objects.unmade.of(&key.0, member.as_str())));
    refused
}

/// Nothing before there are members, nor before the first list: what stands there is not known until then.
fn budgets(objects: &Objects, cluster: &DatabaseCluster, instances: Option<&[u32]>) -> Vec<PodDisruptionBudget> {
    let Some(instances) = instances.filter(|_| objects.is_listed(BUDGETS)) else { return Vec::new() };
    let mut wanted = objects::budgets(cluster, objects::members(cluster, instances));
    wanted.retain(|budget| objects.budgets.get(&key_of(budget)).is_none_or(|found| found.spec != budget.spec));
    wanted
}

fn seen_since(held: &mut Held, step: Option<String>, now: Monotonic) -> Monotonic {
    match (step, &held.step) {
        (Some(step), Some((known, since))) if *known == step => *since,
        (Some(step), _) => {
            held.step = Some((step, now));
            now
        }
        (None, _) => {
            held.step = None;
            now
        }
    }
}

fn cluster_facts(
    cluster: &DatabaseCluster,
    instances: Option<&[u32]>,
    waits_for: Vec<String>,
    base_config: bool,
) -> Cluster {
    let spec = &cluster.spec;
    let members = objects::members(cluster, instances.unwrap_or_default());
    Cluster {
        name: cluster.name_any(),
        replicas: u32::try_from(spec.replicas).unwrap_or(1),
        mode: match spec.replication.mode {
            ReplicationMode::Quorum if members > 1 => Mode::Quorum,
            _ => Mode::Async,
        },
        k: u32::try_from(spec.k_among(members)).unwrap_or(0),
        failover_disabled: spec.failover.is_disabled,
        delay: u64::try_from(spec.failover.delay().as_millis()).unwrap_or(u64::MAX),
        max_lag: spec.failover.max_lag_bytes(),
        paused: spec.paused,
        deleting: cluster.metadata.deletion_timestamp.is_some(),
        waits_for,
        base_config,
        switchover: cluster.annotations().get(annotations::SWITCHOVER).and_then(|text| request(text)),
        lease_duration: crate::LEASE_DURATION,
    }
}

/// Reads `{"id": "…", "to": "orders-2" | null}`. One without an id is named by its own text, so that it is handled
/// once all the same.
fn request(text: &str) -> Option<SwitchoverRequest> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let field = |name: &str| value.get(name).and_then(serde_json::Value::as_str).map(str::to_owned);
    let id = field("id").unwrap_or_else(|| text.to_owned());
    Some(SwitchoverRequest { id, to: field("to").map(MemberName) })
}

/// What a person named and is not there, one line each: what, why, what to do.
fn waits_for(objects: &Objects, key: &Key, cluster: &DatabaseCluster) -> Vec<String> {
    let spec = &cluster.spec;
    let named = |name: &String| (key.0.clone(), name.clone());
    let mut absent = Vec::new();
    for (field, secret) in
        [("superuserSecret", &spec.superuser_secret), ("replicationSecret", &spec.replication_secret)]
    {
        let Some(secret) = secret else { continue };
        match objects.secrets.get(&named(secret)) {
            None => absent.push(format!(
                "Secret {secret:?} that spec.{field} names does not exist: create it with the keys username and password"
            )),
            Some(found) => {
                let has = |key: &str| found.data.as_ref().is_some_and(|data| data.contains_key(key));
                if !has("username") || !has("password") {
                    absent.push(format!(
                        "Secret {secret:?} that spec.{field} names lacks the key username or password: add it"
                    ));
                }
            }
        }
    }
    if let Some(name) = &spec.custom_config
        && objects.config_maps.get(&named(name)).is_none()
    {
        absent.push(format!(
            "ConfigMap {name:?} that spec.customConfig names does not exist: create it or remove the field"
        ));
    }
    absent
}

/// Services of the cluster whose address something else has. Said by the embedded plane's node; on a cluster a Service
/// address is no socket and nobody says anything.
fn unserved(objects: &Objects, key: &Key) -> Vec<String> {
    let of_cluster = |service: &&Arc<Service>| {
        service.namespace().as_ref() == Some(&key.0) && service.labels().get(labels::CLUSTER) == Some(&key.1)
    };
    let lines = objects.services.values().filter(of_cluster).filter_map(|service| {
        let conditions = service.status.as_ref()?.conditions.as_deref()?;
        let served = conditions::find(conditions, conditions::SERVED).filter(|served| served.status == "False")?;
        let why = &served.message;
        Some(format!("Service {}: {why}; stop what uses that port (`ss -ltnp` names it)", service.name_any()))
    });
    lines.collect()
}

/// The base configuration is written last of what members need.
fn has_base(objects: &Objects, key: &Key, cluster: &DatabaseCluster) -> bool {
    let named = |name: String| (key.0.clone(), name);
    let name = cluster.name_any();
    objects.config_maps.get(&named(objects::config_name(&name))).is_some_and(|map| is_ours(map.as_ref(), cluster))
        && objects.secrets.get(&named(objects::superuser_secret_name(cluster))).is_some()
        && objects.secrets.get(&named(objects::replication_secret_name(cluster))).is_some()
}

/// It belongs to this very cluster, not to one of the same name before it.
fn is_ours(object: &impl ResourceExt, cluster: &DatabaseCluster) -> bool {
    object.owner_references().iter().any(|owner| Some(&owner.uid) == cluster.uid().as_ref())
}

fn lease_view(tracked: &Tracked) -> LeaseView {
    let lease = &tracked.lease;
    let text = lease.annotations().get(coregent_core::fence::ANNOTATION);
    let fence = match text.map(|text| Fence::parse(text)) {
        Some(Ok(fence)) => fence,
        Some(Err(error)) => return LeaseView::invalid(&error),
        None => {
            return LeaseView::Invalid { why: format!("it lacks the annotation {}", coregent_core::fence::ANNOTATION) };
        }
    };
    let identity = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    let holder = match identity.parse() {
        _ if identity.is_empty() => Holder::Nobody,
        Ok(identity) => Holder::Member(identity),
        Err(_) => Holder::Stranger(identity.to_owned()),
    };
    LeaseView::Present(Box::new(Lease {
        version: lease.resource_version().unwrap_or_default(),
        epoch: Epoch(leases::epoch(lease)),
        holder,
        fence,
        unchanged_since: tracked.renewed,
        epoch_since: tracked.epoch_since,
        raised_at: tracked.epoch_version,
    }))
}

fn granted(lease: &LeaseObject) -> Option<MemberName> {
    let text = lease.annotations().get(annotations::BOOTSTRAP)?;
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    value.get("member").and_then(serde_json::Value::as_str).map(MemberName::from)
}

fn instances(rsm: &ReplicatedStateMachine) -> Vec<u32> {
    let mut instances: Vec<u32> =
        rsm.spec.instances.iter().flatten().filter_map(|index| u32::try_from(*index).ok()).collect();
    instances.sort_unstable();
    instances
}

fn members(objects: &Objects, key: &Key, cluster: &str) -> BTreeMap<MemberName, Member> {
    let mut members: BTreeMap<MemberName, Member> = BTreeMap::new();
    let nodes = objects.nodes.facts();
    let of_cluster = |labels: &BTreeMap<String, String>| labels.get(labels::CLUSTER).is_some_and(|of| of == cluster);
    for pod in objects.pods.in_namespace(&key.0).filter(|pod| of_cluster(pod.labels())) {
        if let Some(instance) = pod.labels().get(labels::INSTANCE) {
            members.entry(instance.as_str().into()).or_default().pod = Some(pod_facts(pod, &nodes));
        }
    }
    for tracked in objects.leases.in_namespace(&key.0).filter(|tracked| of_cluster(tracked.lease.labels())) {
        let text = tracked.lease.annotations().get(coregent_core::report::ANNOTATION);
        if let Some(report) = text.and_then(|text| MemberReport::parse(text)) {
            let member = members.entry(report.member.clone()).or_default();
            member.report_seen = tracked.changed;
            member.report_moved = tracked.moved;
            member.report = Some(report);
        }
    }
    for claim in objects.claims.values().filter(|claim| claim.namespace().as_ref() == Some(&key.0)) {
        let name = claim.name_any();
        let member = name.strip_prefix("data-").and_then(|rest| rest.strip_suffix("-0"));
        if let Some(member) = member.filter(|_| of_cluster(claim.labels())) {
            members.entry(member.into()).or_default().claim = true;
        }
    }
    for index in objects.rsms.get(key).map(|rsm| instances(rsm)).unwrap_or_default() {
        members.entry(MemberName::of(cluster, index)).or_default();
    }
    members
}

fn pod_facts(pod: &PodObject, nodes: &BTreeMap<String, NodeFacts>) -> Pod {
    let container = database_container(pod);
    let host = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let running = container.and_then(|status| status.state.as_ref()).is_some_and(|state| state.running.is_some());
    let node = host.as_ref().and_then(|host| nodes.get(host)).copied().unwrap_or_default();
    Pod {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        version: pod.resource_version().unwrap_or_default(),
        node_ready: node.ready,
        node_leaving: node.leaving,
        host,
        running,
        ready: container.is_some_and(|status| status.ready),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        role: pod.labels().get(labels::ROLE).cloned(),
        stamp: pod.annotations().get(annotations::EPOCH).and_then(|text| text.parse().ok()).map(Epoch),
        trouble: super::trouble::of(pod),
    }
}
