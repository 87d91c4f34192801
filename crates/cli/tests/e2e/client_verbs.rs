//! The verbs that a person without kubectl uses.

use crate::plane::{Plane, text};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: shell, labels: {app: shell}}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
    containers:\n  - name: main\n    image: busybox\n    command: [sh, -c, 'echo started; exec sleep 100000']\n";

#[test]
fn a_pod_is_applied_listed_described_read_entered_and_deleted() {
    let plane = Plane::up();
    let file = plane.write("pod.yaml", POD);
    let path = file.display().to_string();
    assert_eq!(plane.must(["apply", "-f", &path]), "pod/shell created\n");
    plane.wait("pod/shell", "Ready");
    assert_eq!(plane.must(["apply", "-f", &path]), "pod/shell unchanged\n");
    let table = plane.must(["get", "po", "-l", "app=shell"]);
    assert!(table.contains("shell") && table.contains("Running"), "{table}");
    assert_eq!(plane.must(["get", "pods", "-o", "name"]), "pod/shell\n");
    assert!(plane.must(["describe", "pod", "shell"]).contains("Started"));
    assert_eq!(plane.must(["logs", "shell"]), "started\n");
    assert_eq!(plane.must(["exec", "shell", "--", "sh", "-c", "echo $((6 * 7))"]), "42\n");
    let failed = plane.run(["exec", "shell", "--", "sh", "-c", "echo no >&2; exit 7"]);
    assert_eq!((failed.status.code(), text(&failed.stderr)), (Some(7), "no\n".into()));
    let both = plane.must(["get", "pods,sa", "-o", "name"]);
    assert!(both.contains("pod/shell\n") && both.contains("serviceaccount/default\n"), "{both}");
    for about in ["po/shell", "pod/shell", "shell"] {
        assert!(plane.must(["events", "--for", about]).contains("Started"), "{about}");
    }
    assert!(!plane.must(["events", "--for", "svc/shell"]).contains("Started"));
    let said = plane.refused(["logs", "shell", "-c", "nope"], 2);
    assert!(said.contains("no container nope") && said.contains("main"), "{said}");
    let said = plane.refused(["logs", "shell", "-p"], 2);
    assert!(said.contains("has not been restarted") && !said.contains("manifest"), "{said}");
    assert_eq!(plane.must(["delete", "pod", "-l", "app=shell"]), "pod/shell deleted\n");
    assert_eq!(plane.must(["get", "pods", "-o", "name"]), "");
    plane.refused(["get", "pod", "shell"], 2);

    // A field of another's is not taken by the way, and how to is said.
    plane.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: mine}\n");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let maps: Api<ConfigMap> = Api::namespaced(plane.client().await, "default");
        let other = Patch::Merge(serde_json::json!({"data": {"a": "theirs"}}));
        maps.patch("m", &PatchParams { field_manager: Some("kubectl".into()), ..PatchParams::default() }, &other)
            .await
            .expect("another's patch");
    });
    let file = plane.write("m.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: again}\n");
    let said = plane.refused(["apply", "-f", &file.display().to_string()], 2);
    assert!(said.contains("conflict with \"kubectl\"") && said.contains("--force"), "{said}");
    plane.must(["apply", "--force", "-f", &file.display().to_string()]);

    // Where nobody answers every verb says so in its three lines, and to try again.
    plane.must(["down"]);
    for verb in [vec!["status"], vec!["status", "orders"], vec!["get", "pods"], vec!["wait", "po/a", "--for=Ready"]] {
        let said = plane.refused(verb, 3);
        assert!(said.contains("coregent up"), "{said}");
    }
}
