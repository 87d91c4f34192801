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

type Workers = BTreeMap<String, (UnboundedSender<Message>, JoinHandle<()>)>;

/// Runs the pods that are bound to this node until `shutdown`; then stops them all side by side, each with its
/// own grace but none longer than `longest_stop`.
pub(crate) async fn run(node: Arc<Node>, shutdown: CancellationToken, longest_stop: Option<Duration>) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", node.name));
    let mut events = pin!(watcher(Api::<Pod>::all(node.client.clone()), config).default_backoff());
    let mut workers = Workers::new();
    let mut relisted: BTreeMap<String, Arc<Pod>> = BTreeMap::new();
    let mut cleaned = false;
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => break,
            event = events.next() => event,
        };
        workers.retain(|_, (_, task)| !task.is_finished());
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
                for (uid, (worker, _)) in &workers {
                    if !relisted.contains_key(uid) {
                        let _ = worker.send(Message::Vanished);
                    }
                }
                for pod in std::mem::take(&mut relisted).into_values() {
                    tell(&node, &mut workers, pod);
                }
            }
            Some(Ok(watcher::Event::Apply(pod))) => tell(&node, &mut workers, Arc::new(pod)),
            Some(Ok(watcher::Event::Delete(pod))) => {
                if let Some((worker, _)) = workers.get(&pod.uid().unwrap_or_default()) {
                    let _ = worker.send(Message::Vanished);
                }
            }
        }
    }
    stop(workers, longest_stop).await;
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
    match workers.get(&uid) {
        Some((worker, task)) if !task.is_finished() => {
            let _ = worker.send(Message::Changed(pod));
        }
        // An object that is still listed after its worker ended is one whose deletion is on its way.
        Some(_) => {}
        None => {
            workers.insert(uid, worker::start(Arc::clone(node), pod));
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
    for (worker, _) in workers.values() {
        let _ = worker.send(Message::Shutdown(longest));
    }
    for (uid, (_, task)) in workers {
        if let Err(e) = task.await {
            tracing::error!(uid, "the worker of a pod failed: {e}");
        }
    }
}
