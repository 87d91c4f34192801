//! Pods from their creation to their end.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use std::time::Duration;

use crate::{
    fixture::{self, container, is_ready, phase},
    tests,
};

tests![
    init_containers_run_in_order_and_a_finished_pod_has_succeeded,
    a_pod_gets_its_environment_its_files_and_its_own_address,
    a_missing_secret_is_named_and_the_container_starts_when_it_appears,
    a_killed_container_is_reported_and_runs_again_at_once,
    a_deleted_pod_is_gone_only_when_its_processes_are,
    a_node_that_stops_stops_the_pods_with_the_label_once_all_others_are_gone,
    an_image_that_is_not_here_is_explained,
    a_changed_config_map_reaches_a_running_container,
    a_pod_is_ready_when_its_probe_says_so,
    what_was_said_of_a_pod_is_said_again_where_an_older_store_was_put_back,
    a_restarted_node_runs_the_same_pods_again_with_the_same_address,
];

fn sh(script: &str) -> serde_json::Value {
    json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script]})
}

/// Makes a container ready once it has made `/tmp/ready`: without a probe it is as soon as it is started, before it has
/// done anything.
fn ready_once(mut container: serde_json::Value) -> serde_json::Value {
    let probe = json!({"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1});
    container["readinessProbe"] = probe;
    container
}

fn init_containers_run_in_order_and_a_finished_pod_has_succeeded() {
    fixture::run(|world| async move {
        let step = |name: &str, script: &str| {
            json!({"name": name, "image": "busybox", "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]})
        };
        world
            .pod(
                "p",
                json!({
                    "restartPolicy": "Never",
                    "initContainers": [step("a", "echo a >>/shared/x"), step("b", "echo b >>/shared/x")],
                    "containers": [step("main", "echo c >>/shared/x; cat /shared/x")],
                    "volumes": [{"name": "shared", "emptyDir": {}}],
                }),
            )
            .await;
        let pod = world.until("p", "success", |s| phase(s) == "Succeeded").await;
        assert_eq!(world.log(&pod, "main", 0), "a\nb\nc\n");
        let status = pod.status.unwrap();
        let ended = container(&status, "main").unwrap().state.clone().unwrap().terminated.unwrap();
        assert_eq!((ended.exit_code, ended.reason.as_deref()), (0, Some("Completed")));
        assert!(ended.container_id.unwrap().starts_with("coregent://"));
        assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
        assert!(status.host_ip.is_some() && status.start_time.is_some(), "{status:?}");
    });
}

fn a_pod_gets_its_environment_its_files_and_its_own_address() {
    fixture::run(|world| async move {
        world.create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"user": "postgres"}})).await;
        world.create::<ConfigMap>(json!({"metadata": {"name": "c"}, "data": {"a.conf": "x=1", "b": "2"}})).await;
        let mut main = sh(
            "echo $NAME/$USER_NAME/$P_b; cat /conf/a.conf /conf/extra/user /pod/labels; ls -l /secret/user | cut -c1-10; \
             grep -c $POD_IP /etc/hosts; cat /claims/sub/f 2>/dev/null; hostname",
        );
        main["env"] = json!([
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "USER_NAME", "valueFrom": {"secretKeyRef": {"name": "s", "key": "user"}}},
        ]);
        main["envFrom"] = json!([{"prefix": "P_", "configMapRef": {"name": "c"}}]);
        main["volumeMounts"] = json!([
            {"name": "conf", "mountPath": "/conf", "readOnly": true},
            {"name": "secret", "mountPath": "/secret"},
            {"name": "pod", "mountPath": "/pod"},
        ]);
        let volumes = json!([
            {"name": "conf", "projected": {"sources": [
                {"configMap": {"name": "c", "items": [{"key": "a.conf", "path": "a.conf"}]}},
                {"secret": {"name": "s", "items": [{"key": "user", "path": "extra/user"}]}},
            ]}},
            {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o400}},
            {"name": "pod", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ]);
        world.pod("p", json!({"restartPolicy": "Never", "containers": [main], "volumes": volumes})).await;
        let pod = world.until("p", "end", |s| matches!(phase(s), "Succeeded" | "Failed")).await;
        let log = world.log(&pod, "main", 0);
        assert!(log.starts_with("p/postgres/2\nx=1postgresapp=\"p\"\n"), "{log}");
        assert!(log.contains("\n1\np\n"), "{log}");
        let ip = pod.status.unwrap().pod_ip.unwrap();
        assert!(ip.starts_with(world.address(2).trim_end_matches('2')), "{ip}");
    });
}

fn a_missing_secret_is_named_and_the_container_starts_when_it_appears() {
    fixture::run(|world| async move {
        let mut main = sh("echo $X");
        main["env"] = json!([{"name": "X", "valueFrom": {"secretKeyRef": {"name": "later", "key": "k"}}}]);
        world.pod("p", json!({"restartPolicy": "Never", "containers": [main]})).await;
        let waiting = world
            .until("p", "explanation", |s| {
                container(s, "main").and_then(|c| c.state.as_ref()?.waiting.as_ref()?.reason.as_deref())
                    == Some("CreateContainerConfigError")
            })
            .await;
        let state = container(waiting.status.as_ref().unwrap(), "main").unwrap().state.clone().unwrap();
        assert!(state.waiting.unwrap().message.unwrap().contains("\"later\" not found"));
        world.create::<Secret>(json!({"metadata": {"name": "later"}, "stringData": {"k": "here"}})).await;
        let pod = world.until("p", "success", |s| phase(s) == "Succeeded").await;
        assert_eq!(world.log(&pod, "main", 0), "here\n");
    });
}

fn a_killed_container_is_reported_and_runs_again_at_once() {
    fixture::run(|world| async move {
        // The first run kills itself, the second stays.
        let mut main = sh("test -e /v/once && exec sleep 1000; touch /v/once; exec sh -c 'kill -9 $$'");
        main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        let spec = json!({"containers": [main], "volumes": [{"name": "v", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 0});
        world.pod("p", spec).await;
        let pod = world
            .until("p", "restart", |s| {
                container(s, "main").is_some_and(|c| {
                    c.restart_count >= 1 && c.last_state.as_ref().is_some_and(|l| l.terminated.is_some())
                })
            })
            .await;
        let status = pod.status.unwrap();
        let last = container(&status, "main").unwrap().last_state.clone().unwrap().terminated.unwrap();
        assert_ne!(last.exit_code, 0);
        assert_ne!(last.container_id, None);
    });
}

fn a_deleted_pod_is_gone_only_when_its_processes_are() {
    fixture::run(|world| async move {
        let main = ready_once(sh("trap 'echo stopping; exit 3' TERM; touch /tmp/ready; while :; do sleep 0.05; done"));
        world.pod("p", json!({"containers": [main]})).await;
        let pod = world.until("p", "running container", is_ready).await;
        world.pods().delete("p", &DeleteParams::default()).await.unwrap();
        let ended = world
            .until("p", "exit code", |s| {
                container(s, "main").is_some_and(|c| c.state.as_ref().is_some_and(|s| s.terminated.is_some()))
            })
            .await;
        let status = ended.status.unwrap();
        let code = container(&status, "main").unwrap().state.clone().unwrap().terminated.unwrap().exit_code;
        assert_eq!(code, 3);
        world.until_gone("p").await;
        // The folder goes just after the object.
        let folder = world.data_dir.join("pods").join(pod.metadata.uid.unwrap());
        while folder.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

fn a_node_that_stops_stops_the_pods_with_the_label_once_all_others_are_gone() {
    fixture::run(|mut world| async move {
        let shared = tempfile::tempdir().unwrap();
        let until_told = |at_the_end: &str| {
            let script = format!("trap '{at_the_end}; exit' TERM; touch /tmp/ready; while :; do sleep 0.01; done");
            let mut main = ready_once(sh(&script));
            main["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
            main
        };
        let pod = |name: &str, stops: &str, at_the_end: &str| {
            json!({"metadata": {"name": name, "labels": {"stops": stops}}, "spec": {"nodeName": "node-1",
                "automountServiceAccountToken": false, "containers": [until_told(at_the_end)],
                "volumes": [{"name": "shared", "hostPath": {"path": shared.path()}}]}})
        };
        let _: Pod = world.create(pod("primary", "last", "echo primary >>/shared/order")).await;
        let _: Pod = world.create(pod("replica", "first", "sleep 0.3; echo replica >>/shared/order")).await;
        for pod in ["replica", "primary"] {
            world.until(pod, "running container", is_ready).await;
        }
        world.restart_node().await;
        assert_eq!(std::fs::read_to_string(shared.path().join("order")).unwrap(), "replica\nprimary\n");
    });
}

fn an_image_that_is_not_here_is_explained() {
    fixture::run(|world| async move {
        world.pod("p", json!({"containers": [{"name": "main", "image": "postgres:99"}]})).await;
        let pod = world
            .until("p", "explanation", |s| {
                container(s, "main").is_some_and(|c| {
                    c.state.as_ref().is_some_and(|s| s.waiting.as_ref().is_some_and(|w| w.message.is_some()))
                })
            })
            .await;
        let status = pod.status.unwrap();
        let waiting = container(&status, "main").unwrap().state.clone().unwrap().waiting.unwrap();
        assert!(waiting.reason.unwrap().starts_with("ErrImagePull"));
        let message = waiting.message.unwrap();
        assert!(message.contains("image map") && message.contains("apt-get install postgresql-99"), "{message}");
    });
}

fn a_changed_config_map_reaches_a_running_container() {
    fixture::run(|world| async move {
        world.create::<ConfigMap>(json!({"metadata": {"name": "c"}, "data": {"k": "old"}})).await;
        let mut main = sh("until grep -q new /conf/k; do sleep 0.05; done");
        main["volumeMounts"] = json!([{"name": "conf", "mountPath": "/conf"}]);
        let spec = json!({"restartPolicy": "Never", "containers": [main],
            "volumes": [{"name": "conf", "configMap": {"name": "c"}}]});
        world.pod("p", spec).await;
        world.until("p", "running container", is_ready).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
        maps.patch("c", &PatchParams::default(), &Patch::Merge(json!({"data": {"k": "new"}}))).await.unwrap();
        world.until("p", "success", |s| phase(s) == "Succeeded").await;
    });
}

fn a_pod_is_ready_when_its_probe_says_so() {
    fixture::run(|world| async move {
        let mut main =
            ready_once(sh("until test -e /shared/go; do sleep 0.05; done; touch /tmp/ready; exec sleep 1000"));
        main["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
        let shared = tempfile::tempdir().unwrap();
        let spec = json!({"containers": [main], "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "shared", "hostPath": {"path": shared.path()}}]});
        world.pod("p", spec).await;
        let pod = world.until("p", "running container", |s| phase(s) == "Running").await;
        assert!(!is_ready(pod.status.as_ref().unwrap()));
        std::fs::write(shared.path().join("go"), "").unwrap();
        world.until("p", "readiness", is_ready).await;
    });
}

/// A day of the simulator: the pod's containers ran, the store said that none was made yet, and nobody said otherwise again.
fn what_was_said_of_a_pod_is_said_again_where_an_older_store_was_put_back() {
    fixture::run(|world| async move {
        world.pod("p", json!({"containers": [ready_once(sh("touch /tmp/ready; exec sleep 1000"))]})).await;
        let before = world.until("p", "readiness", is_ready).await.status.unwrap();
        let older = json!({"status": {"phase": "Pending", "containerStatuses": null}});
        world.pods().patch_status("p", &PatchParams::default(), &Patch::Merge(&older)).await.unwrap();
        let after = world.until("p", "the same container", |s| container(s, "main").is_some()).await.status.unwrap();
        assert_eq!((phase(&after), is_ready(&after)), ("Running", true));
        let id = |status| container(status, "main").unwrap().container_id.clone();
        assert_eq!(id(&after), id(&before));
    });
}

fn a_restarted_node_runs_the_same_pods_again_with_the_same_address() {
    fixture::run(|mut world| async move {
        let mut main = ready_once(sh("echo run >>/data/runs; touch /tmp/ready; exec sleep 1000"));
        main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        let spec = json!({"containers": [main], "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "data", "emptyDir": {}}]});
        world.pod("p", spec).await;
        let before = world.until("p", "running container", is_ready).await;
        world.restart_node().await;
        let after = world
            .until("p", "second run", |s| is_ready(s) && container(s, "main").is_some_and(|c| c.restart_count == 1))
            .await;
        assert_eq!(before.metadata.uid, after.metadata.uid);
        assert_eq!(before.status.unwrap().pod_ip, after.status.unwrap().pod_ip);
        let uid = after.metadata.uid.unwrap();
        let runs = std::fs::read_to_string(world.data_dir.join("pods").join(uid).join("volumes/data/runs")).unwrap();
        assert_eq!(runs, "run\nrun\n");
        let ready = world.node_object().await.status.unwrap().conditions.unwrap();
        assert!(ready.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
        world.stop_node().await;
        let ready = world.node_object().await.status.unwrap().conditions.unwrap();
        assert!(ready.iter().any(|c| c.type_ == "Ready" && c.status == "False"));
    });
}
