//! Role handlers that a user wrote, by the kubelet's Events: they may print anything.

use crate::etcd::{labelled, object, until};
use crate::plane::Plane;

const MANIFEST: &str = r#"
apiVersion: coregent.io/v1alpha1
kind: ReplicatedStateMachine
metadata: {name: bar}
spec:
  replicas: 2
  selector: {matchLabels: {app: bar}}
  roles:
  - {name: Leader, isLeader: true}
  - {name: follower, accessMode: Readonly}
  roleProbe:
    periodSeconds: 1
    customHandler:
    - command: [sh, -c, 'case $HOSTNAME in bar-0) echo leader;; *) echo follower;; esac']
    - command: [sh, -c, 'if [ -e /tmp/says ]; then cat /tmp/says; else echo $KB_RSM_LAST_STDOUT; fi']
  service:
    spec:
      ports: [{port: 80}]
  podManagementPolicy: Parallel
  template:
    metadata: {labels: {app: bar}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: db, image: busybox, command: [sleep, infinity]}
"#;

fn ready(plane: &Plane, pod: &str) -> bool {
    let conditions = object(plane, "pod", pod)["status"]["conditions"].clone();
    let conditions = conditions.as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn says(plane: &Plane, script: &str) {
    plane.must(["exec", "bar-1", "-c", "action-1", "--", "sh", "-c", script]);
}

#[test]
fn garbage_megabytes_and_what_is_no_text_change_no_label_and_are_told_of_and_a_role_after_them_counts() {
    let plane = Plane::up();
    plane.apply(MANIFEST);
    plane.wait("rsm/bar", "Ready");
    assert_eq!(
        (labelled(&plane, "Leader"), labelled(&plane, "follower")),
        (vec!["bar-0".into()], vec!["bar-1".into()])
    );
    for (script, words) in [
        ("echo one two three > /tmp/says", "neither a role"),
        ("head -c 5000000 /dev/zero > /tmp/says", "longer than 65536 bytes"),
        ("printf 'fol\\377lower' > /tmp/says", "not UTF-8"),
        ("echo candidate > /tmp/says", "none of those that the set declares: Leader, follower"),
        ("rm /tmp/says; mkfifo /tmp/says", "within 1 s"),
    ] {
        says(&plane, script);
        until(&plane, "the member to be unready", || !ready(&plane, "bar-1"));
        until(&plane, words, || plane.must(["events", "--for", "pod/bar-1"]).contains(words));
        assert_eq!(labelled(&plane, "follower"), ["bar-1"], "{script}");
        says(&plane, "rm /tmp/says");
        until(&plane, "the member to be ready", || ready(&plane, "bar-1"));
    }
    says(&plane, "echo LEADER > /tmp/says");
    until(&plane, "the new role", || labelled(&plane, "Leader").contains(&"bar-1".into()));
    plane.wait("pod/bar-1", "Ready");
}
