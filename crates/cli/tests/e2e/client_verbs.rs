//! The verbs that a person without kubectl uses.

use crate::plane::{Plane, text};

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
    assert_eq!(plane.must(["delete", "pod", "shell"]), "pod/shell deleted\n");
    assert_eq!(plane.must(["get", "pods", "-o", "name"]), "");
    plane.refused(["get", "pod", "shell"], 2);
}
