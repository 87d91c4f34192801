//! The stock PostgreSQL in a plain pod, with a claim and a Service.

use std::process::Command;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    fixture::{self, World, container, is_ready},
    harness::Outcome,
    tests,
};

tests![a_plain_postgres_is_initialised_served_and_survives_a_kill_and_a_node_restart];

const SERVER: &str = "/usr/lib/postgresql/15/bin/postgres";

async fn objects(world: &World) {
    let path = world.data_dir.join("volumes/pv-1");
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let volume = json!({"metadata": {"name": "pv-1", "finalizers": [coregent_node::FOLDER_FINALIZER]}, "spec": {
        "hostPath": {"path": path}, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete", "claimRef": {"namespace": "default", "name": "data"}}});
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    world
        .create::<PersistentVolumeClaim>(json!({"metadata": {"name": "data"}, "spec": {"volumeName": "pv-1",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))
        .await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(world.client.clone());
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    claims.patch_status("data", &PatchParams::default(), &bound).await.unwrap();
    let ip = world.address(180);
    world
        .create::<Service>(json!({"metadata": {"name": "db"}, "spec": {"clusterIP": ip,
            "ports": [{"port": 5433, "targetPort": 5432}]}}))
        .await;
}

async fn endpoint(world: &World, pod_ip: &str) {
    world
        .create::<EndpointSlice>(json!({
            "metadata": {"name": "db-1", "labels": {"kubernetes.io/service-name": "db"}},
            "addressType": "IPv4", "ports": [{"port": 5432}],
            "endpoints": [{"addresses": [pod_ip], "conditions": {"ready": true}}]}))
        .await;
}

fn psql(world: &World, statement: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args(["-h", &world.address(180), "-p", "5433", "-U", "app", "-d", "shop", "-Atqc", statement])
        .env("PGPASSWORD", "secret")
        .env("PGCONNECT_TIMEOUT", "5")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The postmaster of the pod with this address.
fn postmaster(ip: &str) -> i32 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            (line.starts_with("postgres\0") && line.contains(&format!("listen_addresses={ip}\0"))).then_some(pid)
        })
        .next()
        .expect("no postmaster")
}

fn a_plain_postgres_is_initialised_served_and_survives_a_kill_and_a_node_restart() -> Outcome {
    if !std::path::Path::new(SERVER).exists() {
        return Outcome::Skipped("PostgreSQL 15 is not installed");
    }
    fixture::run(|mut world| async move {
        objects(&world).await;
        let spec = json!({
            "containers": [{
                "name": "postgres", "image": "postgres:15", "ports": [{"name": "pg", "containerPort": 5432}],
                "env": [{"name": "POSTGRES_PASSWORD", "value": "secret"}, {"name": "POSTGRES_USER", "value": "app"},
                    {"name": "POSTGRES_DB", "value": "shop"}],
                "volumeMounts": [{"name": "data", "mountPath": "/var/lib/postgresql/data"}],
                "readinessProbe": {"tcpSocket": {"port": "pg"}, "periodSeconds": 1},
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        });
        world.pod("db-0", spec).await;
        let pod = world.until("db-0", "readiness", is_ready).await;
        let ip = pod.status.unwrap().pod_ip.unwrap();
        endpoint(&world, &ip).await;
        world.eventually("first answer", || psql(&world, "create table t (n int); insert into t values (1)")).await;

        let pid = postmaster(&ip);
        Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        let restarted = |count| {
            move |s: &k8s_openapi::api::core::v1::PodStatus| {
                is_ready(s) && container(s, "postgres").is_some_and(|c| c.restart_count == count)
            }
        };
        world.until("db-0", "restart after the kill", restarted(1)).await;
        world.eventually("answer after the kill", || psql(&world, "insert into t values (2)")).await;

        world.restart_node().await;
        world.until("db-0", "restart with the node", restarted(2)).await;
        let rows = world.eventually("answer of the new node", || psql(&world, "select sum(n) from t")).await;
        assert_eq!(rows, "3");
        world.stop_node().await;
    });
    Outcome::Passed
}
