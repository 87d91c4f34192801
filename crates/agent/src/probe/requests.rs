//! Carrying out what the controller asks of this member's agent (rsm.md 6).

use coregent_core::rsm::membership::ActionKind;
use coregent_core::rsm::request::{ANSWER, Answer, REQUEST, Request};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use std::ffi::OsString;
use std::rc::Rc;
use std::time::Duration;

use super::config::{Engine, ProbeConfig};
use super::{etcd, redis};

/// Load balancers drop connections that are silent for longer (rust.md 3.3 no. 2).
const WATCH_SECONDS: u32 = 200;
/// As much of a reason as goes into the answer.
const LONGEST_MESSAGE: usize = 500;

/// Watches the requests and answers those that are for this pod, for ever.
pub(super) async fn run(client: Client, config: Rc<ProbeConfig>, name: String) {
    let api: Api<ConfigMap> = Api::namespaced(client, &config.namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    let mut seen = Box::pin(watcher(api.clone(), only).default_backoff().applied_objects());
    while let Some(next) = seen.next().await {
        match next {
            Ok(found) => answer(&api, &config, &name, &found).await,
            Err(error) => tracing::debug!(%error, "the requests cannot be watched"),
        }
    }
}

async fn answer(api: &Api<ConfigMap>, config: &ProbeConfig, name: &str, found: &ConfigMap) {
    let text = |key: &str| found.data.as_ref().and_then(|data| data.get(key)).map(String::as_str).unwrap_or_default();
    // What is not understood is a later version's, or nothing.
    let Ok(request) = serde_json::from_str::<Request>(text(REQUEST)) else { return };
    let answered: Option<Answer> = serde_json::from_str(text(ANSWER)).ok();
    let is_done = answered.is_some_and(|answer| answer.is_to(&request.id, request.attempt));
    if is_done || !request.is_for(&config.pod, &config.pod_uid) {
        return;
    }
    tracing::info!(action = ?request.action, member = request.member.pod, attempt = request.attempt, "is asked for");
    let within = Duration::from_secs(u64::from(request.seconds.max(1)));
    let result = tokio::time::timeout(within, carry_out(config, &request)).await;
    let result = result.unwrap_or_else(|_| Err(format!("not done within {} s", within.as_secs())));
    match &result {
        Ok(()) => tracing::info!(action = ?request.action, member = request.member.pod, "done"),
        Err(why) => tracing::warn!(action = ?request.action, member = request.member.pod, why, "failed"),
    }
    let (done, message) = match result {
        Ok(()) => (true, String::new()),
        Err(why) => (false, why.chars().take(LONGEST_MESSAGE).collect()),
    };
    let answer = Answer { id: request.id, attempt: request.attempt, done, message };
    let text = serde_json::to_string(&answer).unwrap_or_default();
    // To the request that it answers and to no later one.
    let version = &found.metadata.resource_version;
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "data": {ANSWER: text}}));
    if let Err(error) = api.patch(name, &PatchParams::default(), &patch).await {
        // Where the request stands still it comes again with what changed it, or with the next attempt; every action may be
        // done twice.
        tracing::warn!(%error, "the answer could not be written");
    }
}

async fn carry_out(config: &ProbeConfig, request: &Request) -> Result<(), String> {
    if !request.command.is_empty() {
        return run_command(config, request).await;
    }
    match config.engine {
        Engine::Etcd => etcd::carry_out(config, request).await,
        Engine::Redis => redis::carry_out(config, request).await,
        Engine::Postgresql | Engine::Custom(_) => {
            Err("the handler of this engine has no actions of its own: give the action a command".to_owned())
        }
    }
}

/// A command of the user, in this container, with the environment of rsm.md 6.3.
async fn run_command(config: &ProbeConfig, request: &Request) -> Result<(), String> {
    let host =
        |place: Option<&coregent_core::rsm::request::Place>| place.map(|place| place.host.clone()).unwrap_or_default();
    let target = if request.action == ActionKind::Switchover { request.target.as_ref() } else { Some(&request.member) };
    let env = [
        ("KB_RSM_LEADER_HOST", host(request.leader.as_ref())),
        ("KB_RSM_TARGET_HOST", host(target)),
        ("KB_RSM_SERVICE_PORT", config.port.to_string()),
    ];
    let command: Vec<OsString> = request.command.iter().map(OsString::from).collect();
    super::custom::run(&command, &env).await.map(drop)
}
