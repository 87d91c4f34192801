//! The embedded API against a real one: the same requests, compared answer by answer.
//!
//! Each scenario is a list of requests. What a real kube-apiserver answered is kept under `recorded/`; `make test` sends
//! the same requests to the embedded API and compares. A difference that `known.yaml` does not explain fails, and so does
//! an explanation of a difference that is not there. `CONFORMANCE.md` is written from the result.
//!
//! * `COREGENT_CONFORMANCE_KUBECONFIG=FILE` records anew from that server (`dev/kubernetes/api` starts one).
//!   What kubectl prints is recorded apart, with `COREGENT_CONFORMANCE_ONLY=kubectl` from a server whose controllers all
//!   run (`COREGENT_API_CONTROLLERS='*' dev/kubernetes/api`).
//! * `COREGENT_CONFORMANCE_ONLY=NAME` looks at the scenarios whose names begin so.
//! * `COREGENT_CONFORMANCE_UPDATE=1` writes `CONFORMANCE.md`.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod commands;
mod compare;
mod known;
mod kubectl;
mod normalize;
mod recording;
mod report;
mod run;
mod scenario;
mod scenarios;

use std::path::PathBuf;

use compare::Difference;
use known::Known;
use run::Place;
use scenario::Scenario;

/// The folder of this suite.
fn folder() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance").into()
}

/// The scenarios that are asked for.
fn chosen() -> Vec<Scenario> {
    let only = std::env::var("COREGENT_CONFORMANCE_ONLY").unwrap_or_default();
    scenarios::all().into_iter().filter(|scenario| scenario.name.starts_with(&only)).collect()
}

/// What one scenario came to.
pub struct Outcome {
    pub scenario: Scenario,
    pub answers: usize,
    pub differences: Vec<Difference>,
}

async fn judge(scenario: Scenario) -> Outcome {
    let recorded = recording::read(&scenario);
    let given = run::run(&scenario, &run::embedded(&scenario).await).await;
    let differences = compare::exchanges(scenario.name, &recorded, &given);
    Outcome { scenario, answers: given.len(), differences }
}

async fn record(scenario: Scenario, place: Place) {
    run::tidy(&scenario, &place).await;
    recording::write(&scenario, &run::run(&scenario, &place).await);
    run::tidy(&scenario, &place).await;
}

/// Runs all scenarios at once.
async fn of_each<T, F>(scenarios: Vec<Scenario>, what: impl Fn(Scenario) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let running: Vec<_> = scenarios.into_iter().map(|scenario| tokio::spawn(what(scenario))).collect();
    let mut results = Vec::new();
    for one in running {
        results.push(one.await.unwrap());
    }
    results
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_that_of_a_real_api_server_or_the_difference_is_explained() {
    if let Some(place) = Place::recorded_from().await {
        // While kinds come and go, a real server deletes namespaces with long pauses.
        let (defining, plain): (Vec<_>, Vec<_>) = chosen().into_iter().partition(Scenario::defines_kinds);
        of_each(plain, |scenario| record(scenario, place.clone())).await;
        of_each(defining, |scenario| record(scenario, place.clone())).await;
    }
    let mut outcomes = of_each(chosen(), judge).await;
    let mut whole = std::env::var_os("COREGENT_CONFORMANCE_ONLY").is_none();
    if whole || std::env::var("COREGENT_CONFORMANCE_ONLY").is_ok_and(|only| only == "kubectl") {
        match kubectl::judge().await {
            Ok((scenario, answers, differences)) => outcomes.push(Outcome { scenario, answers, differences }),
            Err(reason) => {
                eprintln!("SKIPPED what kubectl prints, and whether CONFORMANCE.md is up to date: {reason}");
                whole = false;
            }
        }
    }
    let known = Known::read();
    let differences: Vec<&Difference> = outcomes.iter().flat_map(|outcome| &outcome.differences).collect();
    let unexplained: Vec<String> =
        differences.iter().filter(|one| known.why(one).is_none()).map(ToString::to_string).collect();
    assert!(unexplained.is_empty(), "{} unexplained differences:\n{}", unexplained.len(), unexplained.join("\n"));
    if whole {
        let stale = known.stale(&differences);
        assert!(stale.is_empty(), "explained, but not there any more:\n{}", stale.join("\n"));
        report::check(&outcomes, &known);
    }
}
