//! The definitions of our kinds are missing, or older than the operator.

use crate::plane::run;
use coregent_apiserver::{ApiServer, Options as ServerOptions};
use coregent_operator::{Error, Options};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct Bare {
    crds: Api<CustomResourceDefinition>,
    stop: CancellationToken,
    operator: JoinHandle<Result<(), Error>>,
    began: Instant,
}

impl Bare {
    /// An operator of an API that has these definitions.
    async fn start(definitions: Vec<CustomResourceDefinition>) -> Bare {
        let server = ApiServer::open(ServerOptions::default()).await.unwrap();
        let crds = Api::all(server.client());
        for definition in definitions {
            crds.create(&PostParams::default(), &definition).await.unwrap();
        }
        let stop = CancellationToken::new();
        let operator = tokio::spawn(coregent_operator::run(server.client(), Options::default(), stop.clone()));
        Bare { crds, stop, operator, began: Instant::now() }
    }
}

/// Definitions as an earlier version may have had them.
fn older() -> Vec<CustomResourceDefinition> {
    let mut definitions = coregent_api::crds();
    for version in &mut definitions[0].spec.versions {
        let schema = version.schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        let properties = schema.properties.as_mut().unwrap();
        properties.get_mut("status").unwrap().properties.as_mut().unwrap().remove("systemId");
        properties.get_mut("spec").unwrap().properties.as_mut().unwrap().remove("failover");
    }
    definitions
}

#[test]
fn without_the_definitions_or_with_older_ones_the_operator_ends_with_a_line_that_names_what_is_lacking() {
    for (definitions, words) in [
        (Vec::new(), vec!["does not serve coregent.io/v1alpha1", "definitions of our kinds are missing"]),
        (older(), vec!["older than this operator", "DatabaseCluster.spec.failover", "DatabaseCluster.status.systemId"]),
    ] {
        run(async {
            let bare = Bare::start(definitions).await;
            let ended = bare.operator.await.unwrap().unwrap_err();
            assert!(bare.began.elapsed() >= Duration::from_secs(60), "what installs both may be under way");
            let line = ended.to_string();
            assert!(matches!(ended, Error::Kinds(_)) && words.iter().all(|word| line.contains(word)), "{line}");
        });
    }
}

#[test]
fn definitions_that_come_meanwhile_are_found_and_the_operator_works() {
    run(async {
        let bare = Bare::start(older()).await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        for definition in coregent_api::crds() {
            let mut newer = definition;
            let name = newer.metadata.name.clone().unwrap();
            newer.metadata.resource_version = bare.crds.get(&name).await.unwrap().metadata.resource_version;
            bare.crds.replace(&name, &PostParams::default(), &newer).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!bare.operator.is_finished());
        bare.stop.cancel();
        bare.operator.await.unwrap().unwrap();
    });
}
