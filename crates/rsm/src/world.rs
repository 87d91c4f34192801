//! Observe: what is known of one RSM at one moment.

use coregent_api::ReplicatedStateMachine;
use coregent_api::rsm::{ActionVia, MemberLayout};
use coregent_core::rsm::roles::member_number;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, ResourceExt};

use crate::compatibility;
use crate::membership::{action, list_jobs};
use crate::names;
use crate::ownership::{is_of, shares_controller};

/// An RSM, what it generated, and the pods of its members.
#[derive(Clone, Debug)]
pub struct World {
    /// The RSM.
    pub rsm: ReplicatedStateMachine,
    /// What it generated, with the kind of each. Objects with our labels that somebody else controls are not in it.
    pub children: Vec<Child>,
    /// Its StatefulSets once more, typed.
    pub stateful_sets: Vec<StatefulSet>,
    /// Pods of its members.
    pub pods: Vec<Pod>,
    /// Whether generated objects take labels, owner and finalizer over from the RSM (`RSM_COMPATIBILITY_MODE`).
    pub compatibility: bool,
    /// Its Jobs; only looked for while an action by Job is under way.
    pub jobs: Vec<Job>,
    /// When it was read; the only clock that decisions see.
    pub now: Time,
    /// What the pods get of ours.
    pub tools: Tools,
}

/// What is added to pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// Image of our binary.
    pub image: String,
}

impl Default for Tools {
    /// Those of this version.
    fn default() -> Tools {
        Tools { image: concat!("coregent:", env!("CARGO_PKG_VERSION")).to_owned() }
    }
}

/// An object that an RSM generated, every field of it as the API server has it.
#[derive(Clone, Debug)]
pub struct Child {
    /// Its kind.
    pub resource: ApiResource,
    /// Itself.
    pub object: DynamicObject,
}

impl World {
    /// Reads everything about an RSM; `None` when there is no such RSM.
    pub async fn observe(
        client: &Client,
        namespace: &str,
        name: &str,
        now: Time,
    ) -> Result<Option<World>, kube::Error> {
        World::observe_with(client, namespace, name, now, false).await
    }

    /// As [`World::observe`]; with `compatibility` also what has the labels of the RSM and its controller, whoever made it.
    pub async fn observe_with(
        client: &Client,
        namespace: &str,
        name: &str,
        now: Time,
        compatibility: bool,
    ) -> Result<Option<World>, kube::Error> {
        let rsms: Api<ReplicatedStateMachine> = Api::namespaced(client.clone(), namespace);
        let Some(rsm) = rsms.get_opt(name).await? else { return Ok(None) };
        let generated = ListParams::default().labels(&names::selector_text(&names::generated(&rsm)));
        let (stateful_sets, services, config_maps) = futures::try_join!(
            list(client, namespace, ApiResource::erase::<StatefulSet>(&()), &generated),
            list(client, namespace, ApiResource::erase::<Service>(&()), &generated),
            list(client, namespace, ApiResource::erase::<ConfigMap>(&()), &generated),
        )?;
        let pods = pods_of(client, &rsm, namespace).await?;
        let mut children: Vec<Child> = stateful_sets.into_iter().chain(services).chain(config_maps).collect();
        let mut adopted = Vec::new();
        if let (true, Some(copied)) = (compatibility, compatibility::copied_labels(&rsm)) {
            adopted = adoptable(client, namespace, &rsm, &copied).await?;
        }
        let known = |child: &Child| children.iter().any(|other| other.object.metadata.uid == child.object.metadata.uid);
        adopted.retain(|child| !known(child));
        let jobs = match acts_by_job(&rsm) {
            true => list_jobs(client, namespace, &names::selector_text(&names::generated(&rsm))).await?,
            false => Vec::new(),
        };
        let mut world = World::of(rsm, std::mem::take(&mut children), pods, now);
        world.adopt(adopted);
        world.compatibility = compatibility;
        world.jobs = jobs.into_iter().filter(|job| is_of(&job.metadata, &world.rsm)).collect();
        Ok(Some(world))
    }

    /// A world from what was read by other means; keeps what is the RSM's own.
    #[must_use]
    pub fn of(rsm: ReplicatedStateMachine, mut children: Vec<Child>, mut pods: Vec<Pod>, now: Time) -> World {
        children.retain(|child| is_of(&child.object.metadata, &rsm));
        let typed = |child: &Child| child.object.clone().try_parse::<StatefulSet>().ok();
        let stateful_sets: Vec<StatefulSet> =
            children.iter().filter(|child| child.resource.kind == "StatefulSet").filter_map(typed).collect();
        pods.retain(|pod| number_of(&rsm, pod) >= 0);
        let (compatibility, jobs, tools) = (false, Vec::new(), Tools::default());
        World { rsm, children, stateful_sets, pods, compatibility, jobs, now, tools }
    }

    /// Takes objects for generated ones that an earlier controller made.
    fn adopt(&mut self, adopted: Vec<Child>) {
        let typed = |child: &Child| child.object.clone().try_parse::<StatefulSet>().ok();
        self.stateful_sets
            .extend(adopted.iter().filter(|child| child.resource.kind == "StatefulSet").filter_map(typed));
        self.children.extend(adopted);
    }

    /// Number of a member from its pod.
    #[must_use]
    pub fn number(&self, pod: &Pod) -> i64 {
        number_of(&self.rsm, pod)
    }
}

/// Whether a Job carries out what the status records.
fn acts_by_job(rsm: &ReplicatedStateMachine) -> bool {
    let operation = rsm.status.as_ref().and_then(|status| status.member_operation.as_ref());
    operation.and_then(|operation| action(rsm, operation.action)).is_some_and(|action| action.via == ActionVia::Job)
}

fn number_of(rsm: &ReplicatedStateMachine, pod: &Pod) -> i64 {
    let instances = rsm.spec.member_layout == MemberLayout::Instances;
    member_number(&rsm.name_any(), &pod.name_any(), instances)
}

async fn list(
    client: &Client,
    namespace: &str,
    resource: ApiResource,
    params: &ListParams,
) -> Result<Vec<Child>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let objects = api.list(params).await?;
    Ok(objects.items.into_iter().map(|object| Child { resource: resource.clone(), object }).collect())
}

/// Objects with the RSM's labels and the RSM's controller, of the names that the RSM would give: others with the same
/// labels were made by that controller for itself.
async fn adoptable(
    client: &Client,
    namespace: &str,
    rsm: &ReplicatedStateMachine,
    copied: &std::collections::BTreeMap<String, String>,
) -> Result<Vec<Child>, kube::Error> {
    let params = ListParams::default().labels(&names::selector_text(copied));
    let (stateful_sets, services, config_maps) = futures::try_join!(
        list(client, namespace, ApiResource::erase::<StatefulSet>(&()), &params),
        list(client, namespace, ApiResource::erase::<Service>(&()), &params),
        list(client, namespace, ApiResource::erase::<ConfigMap>(&()), &params),
    )?;
    let name = rsm.name_any();
    let ours = [name.clone(), names::headless_service(&name), names::env_config_map(&name)];
    let all = stateful_sets.into_iter().chain(services).chain(config_maps);
    Ok(all
        .filter(|child| shares_controller(&child.object.metadata, rsm) && ours.contains(&child.object.name_any()))
        .collect())
}

/// Pods by `matchLabels`. An RSM without any has no members to list: an empty selector would list every pod.
async fn pods_of(client: &Client, rsm: &ReplicatedStateMachine, namespace: &str) -> Result<Vec<Pod>, kube::Error> {
    let labels = rsm.spec.selector.match_labels.clone().unwrap_or_default();
    if labels.is_empty() {
        return Ok(Vec::new());
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    Ok(pods.list(&ListParams::default().labels(&names::selector_text(&labels))).await?.items)
}
