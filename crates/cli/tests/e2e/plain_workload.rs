//! A plain StatefulSet of the stock PostgreSQL: nothing of ours in the pod.

use crate::plane::{Plane, kill_and_wait, text};
use crate::writer::{Writer, rows};

const STATEFUL_SET: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: plain}
stringData: {password: plain-password}
---
apiVersion: v1
kind: Service
metadata: {name: plain}
spec:
  selector: {app: plain}
  ports: [{port: 5432}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: plain}
spec:
  serviceName: plain
  replicas: 1
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec:
      containers:
      - name: postgres
        image: postgres:15
        ports: [{containerPort: 5432}]
        env:
        - name: POSTGRES_PASSWORD
          valueFrom: {secretKeyRef: {name: plain, key: password}}
        - name: PGDATA
          value: /var/lib/postgresql/data/pgdata
        - name: POD_UID
          valueFrom: {fieldRef: {fieldPath: metadata.uid}}
        readinessProbe:
          exec: {command: [pg_isready, -q, -h, /var/run/postgresql]}
          periodSeconds: 1
        volumeMounts: [{name: data, mountPath: /var/lib/postgresql/data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Gi}}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn stock_postgresql_survives_the_death_of_its_process_and_of_the_whole_plane() {
    let plane = Plane::up();
    plane.apply(STATEFUL_SET);
    plane.wait("pod/plain-0", "Ready");
    let service: serde_json::Value =
        serde_json::from_str(&plane.must(["get", "service", "plain", "-o", "json"])).expect("a Service");
    let ip = service["spec"]["clusterIP"].as_str().expect("its address");
    let uri = format!("postgresql://postgres:plain-password@{ip}:5432/postgres");
    let psql = std::process::Command::new("psql").arg(&uri).args(["-Atc", "select 6 * 7"]).output().expect("psql");
    assert_eq!(text(&psql.stdout), "42\n", "{}", text(&psql.stderr));

    let mut writer = Writer::start(&uri).await;
    writer.next_acknowledgement().await;
    kill_and_wait(plane.container_pid("plain-0").expect("the server"));
    writer.next_acknowledgement().await;
    plane.kill();
    plane.must(["up", "--detach"]);
    writer.next_acknowledgement().await;
    let acknowledged = writer.stop().await;
    assert!(acknowledged.is_subset(&rows(&uri).await));
}
