//! All pods of the node: one worker each.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use tokio::{sync::mpsc::UnboundedSender, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    node::Node,
    pod::{
        sandbox::Sandbox,
        worker::{self, Message},
    },
};

struct Worker {
    messages: UnboundedSender<Message>,
    task: JoinHandle<()>,
    labels: BTreeMap<String, String>,
}

type Workers = BTreeMap<String, Worker>;

/// Runs the pods that are bound to this node until `shutdown`; then stops them, each with its own grace but none longer
/// than `longest_stop`: side by side, save for those with the label `last`, which follow once the others are gone.
pub(crate) async fn run(
    node: Arc<Node>,
    shutdown: CancellationToken,
    longest_stop: Option<Duration>,
    last: Option<(String, String)>,
) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", node.name));
    let events = watcher(Api::<Pod>::all(node.client.clone()), config).default_backoff();
    let mut events = pin!(events.modify(|pod| pod.metadata.managed_fields = None));
    let mut workers = Workers::new();
    let mut relisted: BTreeMap<String, Arc<Pod>> = BTreeMap::new();
    let mut cleaned = false;
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => break,
            event = events.next() => event,
        };
        workers.retain(|_, worker| !worker.task.is_finished());
        match event {
            None => break,
            Some(Err(e)) => tracing::debug!("watch of pods interrupted: {e}"),
            Some(Ok(watcher::Event::Init)) => relisted.clear(),
            Some(Ok(watcher::Event::InitApply(pod))) => {
                relisted.insert(pod.uid().unwrap_or_default(), Arc::new(pod));
            }
            Some(Ok(watcher::Event::InitDone)) => {
                // Addresses in statuses first: a new pod must not take one that is another's.
                for (uid, pod) in &relisted {
                    let ip = pod.status.as_ref().and_then(|s| s.pod_ip.as_deref()?.parse().ok());
                    if ip.is_some() && !finished(pod) {
                        node.address(uid, ip);
                    }
                }
                if !std::mem::replace(&mut cleaned, true) {
                    clean_leftovers(&node, &relisted);
                }
                for (uid, worker) in &workers {
                    if !relisted.contains_key(uid) {
                        let _ = worker.messages.send(Message::Vanished);
                    }
                }
                for pod in std::mem::take(&mut relisted).into_values() {
                    tell(&node, &mut workers, pod);
                }
            }
            Some(Ok(watcher::Event::Apply(pod))) => tell(&node, &mut workers, Arc::new(pod)),
            Some(Ok(watcher::Event::Delete(pod))) => {
                if let Some(worker) = workers.get(&pod.uid().unwrap_or_default()) {
                    let _ = worker.messages.send(Message::Vanished);
                }
            }
        }
    }
    let (last, others) = workers
        .into_iter()
        .partition(|(_, worker)| last.as_ref().is_some_and(|(key, value)| worker.labels.get(key) == Some(value)));
    stop(others, longest_stop).await;
    stop(last, longest_stop).await;
}

fn finished(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

fn tell(node: &Arc<Node>, workers: &mut Workers, pod: Arc<Pod>) {
    let uid = pod.uid().unwrap_or_default();
    // A selector that the server does not know would hand us every pod: never run a stranger's.
    if pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) != Some(node.name.as_str()) {
        return;
    }
    match workers.get_mut(&uid) {
        Some(worker) if !worker.task.is_finished() => {
            worker.labels.clone_from(pod.labels());
            let _ = worker.messages.send(Message::Changed(pod));
        }
        // An object that is still listed after its worker ended is one whose deletion is on its way.
        Some(_) => {}
        None => {
            let labels = pod.labels().clone();
            let (messages, task) = worker::start(Arc::clone(node), pod);
            workers.insert(uid, Worker { messages, task, labels });
        }
    }
}

/// What pods of earlier runs left behind that are no longer known. Claims' folders are not among it.
fn clean_leftovers(node: &Node, pods: &BTreeMap<String, Arc<Pod>>) {
    let Ok(folders) = std::fs::read_dir(node.data_dir.join("pods")) else { return };
    for folder in folders.flatten() {
        let uid = folder.file_name().to_string_lossy().into_owned();
        if !pods.contains_key(&uid)
            && let Err(e) = Sandbox::remove(&node.data_dir, &uid)
        {
            tracing::warn!(uid, "leftovers of a pod stay: {e}");
        }
    }
}

async fn stop(workers: Workers, longest: Option<Duration>) {
    for worker in workers.values() {
        let _ = worker.messages.send(Message::Shutdown(longest));
    }
    for (uid, worker) in workers {
        if let Err(e) = worker.task.await {
            tracing::error!(uid, "the worker of a pod failed: {e}");
        }
    }
}
