//! A controller of one's own from the library face of `coregent-rsm`: its transformers in one's own row, with a step of
//! one's own between them, and plans that are shown before they are carried out.
//!
//! `cargo run -p coregent-rsm --example own_controller` runs it against an API server in memory; any `kube::Client` does.

use std::error::Error;

use coregent_api::ReplicatedStateMachine;
use coregent_apiserver::{ApiServer, Options};
use coregent_rsm::dag::{Action, Dag, ObjectKey, Step};
use coregent_rsm::transformers::{
    FixMetaTransformer, InitTransformer, ObjectDeletionTransformer, ObjectGenerationTransformer,
    ObjectStatusTransformer, UpdateStrategyTransformer,
};
use coregent_rsm::world::World;
use coregent_rsm::{Interrupt, PlanBuilder, Transformer, is_rsm_ready};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;

/// Field manager of every write of this controller.
const MANAGER: &str = "own-controller";

/// A step of one's own: every set gets a ConfigMap with a note, written before the StatefulSet whose pods may read it.
struct NoteTransformer;

impl Transformer<World> for NoteTransformer {
    fn transform<'a>(&'a self, world: &'a World, dag: &'a mut Dag) -> BoxFuture<'a, Result<(), Interrupt>> {
        ready(note(world, dag)).boxed()
    }
}

fn note(world: &World, dag: &mut Dag) -> Result<(), Interrupt> {
    let mut note = ConfigMap::default();
    note.metadata.name = Some(format!("{}-note", world.rsm.name_any()));
    note.metadata.namespace = world.rsm.namespace();
    note.metadata.owner_references = world.rsm.controller_owner_ref(&()).map(|owner| vec![owner]);
    note.data = Some([("members".to_owned(), world.rsm.spec.replicas.to_string())].into());
    // Only a set that is being made needs one; what is there is left as it is.
    if dag.of_kind("StatefulSet").any(|step| step.action == Action::Create) {
        dag.add(Step::new(&note, Action::Create)?);
        let mut set = StatefulSet::default();
        set.metadata.name = world.rsm.metadata.name.clone();
        set.metadata.namespace = world.rsm.namespace();
        dag.depend_on(&ObjectKey::of(&set), &[ObjectKey::of(&note)]);
    }
    Ok(())
}

/// One look at a set: what is seen, the plan that follows, and the plan carried out. Gives what was written.
async fn reconcile(client: &Client, name: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let Some(world) = World::observe(client, "default", name, Time(Timestamp::now())).await? else {
        return Ok(Vec::new());
    };
    let plan = PlanBuilder::new(world, MANAGER)
        .add_transformer(InitTransformer)
        .add_transformer(FixMetaTransformer)
        .add_transformer(ObjectDeletionTransformer)
        .add_transformer(ObjectGenerationTransformer)
        .add_transformer(NoteTransformer)
        .add_transformer(ObjectStatusTransformer)
        .add_transformer(UpdateStrategyTransformer)
        .build()
        .await?;
    for line in plan.lines()? {
        println!("  will {line}");
    }
    Ok(plan.execute(client).await?.written)
}

/// Looks until there is nothing more to do.
async fn settle(client: &Client, name: &str) -> Result<usize, Box<dyn Error>> {
    let mut looks = 0;
    while looks < 10 && !reconcile(client, name).await?.is_empty() {
        looks += 1;
    }
    Ok(looks)
}

/// See above.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn Error>> {
    let client = ApiServer::open(Options::default()).await?.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in coregent_api::crds() {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    let sets: Api<ReplicatedStateMachine> = Api::default_namespaced(client.clone());
    let set = serde_json::from_value(json!({
        "metadata": {"name": "ledger"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "ledger"}},
            "roles": [{"name": "leader", "isLeader": true}, {"name": "follower", "accessMode": "Readonly"}],
            "service": {"spec": {"ports": [{"port": 7000}]}},
            "roleServices": [{"accessMode": "Readonly"}],
            "memberUpdateStrategy": "Serial",
            "template": {
                "metadata": {"labels": {"app": "ledger"}},
                "spec": {"containers": [{"name": "ledger", "image": "ledger:1"}]},
            },
        },
    }))?;
    sets.create(&PostParams::default(), &set).await?;
    println!("settled after {} looks that wrote something", settle(&client, "ledger").await?);
    let notes: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let note = notes.get("ledger-note").await?;
    println!("{} says: {:?} members", note.name_any(), note.data.unwrap_or_default().get("members"));
    println!("ready, without a node to run its pods: {}", is_rsm_ready(sets.get_opt("ledger").await?.as_ref()));
    sets.delete("ledger", &DeleteParams::default()).await?;
    settle(&client, "ledger").await?;
    match sets.get_opt("ledger").await? {
        Some(_) => Err("the set is still there".into()),
        None => Ok(()),
    }
}
