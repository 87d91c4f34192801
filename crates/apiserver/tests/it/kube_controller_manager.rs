//! Controllers that are not ours, on this API: Kubernetes' own, from the program that `dev/kubernetes` builds.

use std::path::PathBuf;
use std::process::Stdio;

use coregent_apiserver::ApiServer;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::cluster::wait;
use crate::memory;
use crate::served::{Served, serve};

/// The program, or why it is not here. It is not built for this alone: that takes a quarter of an hour.
fn program() -> Result<PathBuf, String> {
    let modules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dev/kubernetes/programs/go.mod");
    let modules = std::fs::read_to_string(modules).map_err(|error| error.to_string())?;
    let version = modules.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v"));
    let version = version.ok_or("dev/kubernetes/programs/go.mod names no version")?;
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let program = cache.ok_or("no home folder")?.join("coregent/kubernetes").join(version).join("kubernetes");
    if program.is_file() { Ok(program) } else { Err("Kubernetes' programs are not built: make cluster".to_owned()) }
}

struct Bench {
    client: Client,
    _controllers: Child,
    _served: Served,
}

impl Bench {
    /// An API without controllers of its own, and kube-controller-manager on it over HTTPS.
    async fn start(program: PathBuf) -> Bench {
        let server: ApiServer = memory().await;
        let served = serve(&server).await;
        let folder = served.folder.path();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let controllers = Command::new(program)
            .arg("kube-controller-manager")
            .arg(format!("--kubeconfig={}", folder.join("kubeconfig").display()))
            .args(["--controllers=statefulset-controller,job-controller,garbage-collector-controller"])
            .args(["--kube-api-content-type=application/json", "--leader-elect=false", "--secure-port=0"])
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Bench { client: server.client(), _controllers: controllers, _served: served }
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    fn sets(&self) -> Api<StatefulSet> {
        Api::default_namespaced(self.client.clone())
    }

    async fn names(&self) -> Vec<String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.items.iter().map(ResourceExt::name_any).collect()
    }

    /// What a kubelet says of a pod.
    async fn report(&self, pod: &str, phase: &str) {
        let ready = if phase == "Running" { "True" } else { "False" };
        let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        self.pods().patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// Waits for a pod with this image, and lets it run.
    async fn runs(&self, pod: &str, image: &str) {
        let has_image = |found: &Pod| {
            let spec = found.spec.as_ref();
            spec.is_some_and(|spec| spec.containers.iter().any(|container| container.image.as_deref() == Some(image)))
        };
        wait(&format!("{pod} of {image}"), async || {
            self.pods().get_opt(pod).await.unwrap().filter(has_image).map(drop)
        })
        .await;
        self.report(pod, "Running").await;
    }

    async fn set_status(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        wait(what, async || {
            let set = self.sets().get("db").await.unwrap();
            let status = serde_json::to_value(set.status).unwrap();
            holds(&status).then_some(())
        })
        .await;
    }
}

fn set() -> StatefulSet {
    serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "a"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
        },
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_own_controllers_run_a_set_and_a_job_here_and_collect_what_has_no_owner() {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return eprintln!("SKIPPED kubernetes_own_controllers_run_a_set_and_a_job_here: {why}"),
    };
    let bench = Bench::start(program).await;
    a_set_comes_up_is_updated_and_scaled_in_order(&bench).await;
    a_job_is_complete_once_its_pod_has_succeeded(&bench).await;
    what_a_deleted_set_owned_is_collected(&bench).await;
}

async fn a_set_comes_up_is_updated_and_scaled_in_order(bench: &Bench) {
    bench.sets().create(&PostParams::default(), &set()).await.unwrap();
    for (pod, so_far) in [("db-0", 1), ("db-1", 2), ("db-2", 3)] {
        bench.runs(pod, "a").await;
        assert_eq!(bench.names().await.len(), so_far, "one pod after the other");
    }
    bench.set_status("three ready", |status| status["readyReplicas"] == 3).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(bench.client.clone());
    let claims: Vec<String> =
        claims.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(claims, ["data-db-0", "data-db-1", "data-db-2"]);

    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "b"}]}}}});
    bench.sets().patch("db", &PatchParams::default(), &Patch::Strategic(image)).await.unwrap();
    for pod in ["db-2", "db-1", "db-0"] {
        bench.runs(pod, "b").await;
    }
    bench.set_status("all updated", |status| status["updatedReplicas"] == 3 && status["readyReplicas"] == 3).await;

    let one = json!({"spec": {"replicas": 1}});
    bench.sets().patch_scale("db", &PatchParams::default(), &Patch::Merge(one)).await.unwrap();
    wait("db-0 alone", async || (bench.names().await == ["db-0"]).then_some(())).await;
    bench.set_status("one replica", |status| status["replicas"] == 1).await;
}

async fn a_job_is_complete_once_its_pod_has_succeeded(bench: &Bench) {
    let jobs: Api<Job> = Api::default_namespaced(bench.client.clone());
    let job = json!({"metadata": {"name": "once"}, "spec": {"template": {"metadata": {"labels": {"job": "once"}}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "a"}]}}}});
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    let pod = wait("the job's pod", async || {
        let pods = bench.pods().list(&ListParams::default().labels("job=once")).await.unwrap();
        pods.items.first().map(ResourceExt::name_any)
    })
    .await;
    bench.report(&pod, "Succeeded").await;
    wait("the job to be complete", async || {
        let status = serde_json::to_value(jobs.get("once").await.unwrap().status).unwrap();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Complete" && one["status"] == "True").then_some(())
    })
    .await;
    // Its controller keeps the pod by a finalizer until it has counted it.
    assert_eq!(bench.pods().get(&pod).await.unwrap().finalizers(), [] as [String; 0]);
}

async fn what_a_deleted_set_owned_is_collected(bench: &Bench) {
    bench.sets().delete("db", &DeleteParams::background()).await.unwrap();
    wait("the set's pod to be gone", async || {
        let left = bench.pods().list(&ListParams::default().labels("app=db")).await.unwrap();
        left.items.is_empty().then_some(())
    })
    .await;
}
