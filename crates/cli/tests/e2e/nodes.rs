//! The nodes of the cluster that `make cluster` brings up on this machine: their cables, kubelets and pods.

use crate::plane::{Plane, skipped, text};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;

/// The scripts that do what a test asks of a node.
pub struct Nodes {
    scripts: PathBuf,
}

/// What is put right again when a test ends, however it ends.
pub struct Undo<'a> {
    nodes: &'a Nodes,
    command: Vec<String>,
}

impl Nodes {
    /// The nodes, or `None` where there are none, which is said under the name of the test.
    pub fn of_this_machine(test: &str) -> Option<Nodes> {
        let scripts = std::env::var_os("COREGENT_E2E_NODES").filter(|scripts| !scripts.is_empty());
        if scripts.is_none() {
            skipped(test, "it needs real nodes on this machine: make test-cluster");
        }
        scripts.map(|scripts| Nodes { scripts: scripts.into() })
    }

    /// Runs a script, which must succeed; gives what it printed.
    #[track_caller]
    pub fn script(&self, name: &str, args: &[&str]) -> String {
        let output = Command::new(self.scripts.join(name)).args(args).output().expect("a script of dev/kubernetes");
        assert!(output.status.success(), "{name} {args:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// The real kubectl.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.script("enter", &[&["kubectl"], args].concat())
    }

    fn undo(&self, command: &[&str]) -> Undo<'_> {
        Undo { nodes: self, command: command.iter().map(|word| (*word).to_owned()).collect() }
    }

    /// Runs a script when what is returned goes.
    pub fn afterwards(&self, command: &[&str]) -> Undo<'_> {
        self.undo(command)
    }

    /// Pulls a node's cable, until what is returned goes.
    pub fn cut(&self, node: &str) -> Undo<'_> {
        self.script("cut", &[node]);
        self.undo(&["heal", node])
    }

    /// Kills a program of the cluster, which is started again when what is returned goes.
    pub fn stop(&self, program: &str) -> Undo<'_> {
        self.script("program", &["stop", program]);
        self.undo(&["program", "start", program])
    }

    /// Whoever is cordoned takes pods again when what is returned goes.
    pub fn uncordoned(&self, node: &str) -> Undo<'_> {
        self.undo(&["enter", "kubectl", "uncordon", node])
    }

    /// The node that a pod runs on.
    pub fn of_pod(&self, namespace: &str, pod: &str) -> String {
        self.kubectl(&["-n", namespace, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}"])
    }

    /// The operator that leads, by its pod.
    pub fn leader(&self) -> String {
        let lease = ["get", "lease", "coregent-operator", "-o", "jsonpath={.spec.holderIdentity}"];
        self.kubectl(&[&["-n", "coregent-system"], lease.as_slice()].concat())
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let args: Vec<&str> = self.command.iter().skip(1).map(String::as_str).collect();
        self.nodes.script(&self.command[0], &args);
    }
}

/// The node that a member runs on.
pub fn node_of(plane: &Plane, member: &str) -> String {
    let pod = plane.must(["get", "pod", &format!("{member}-0"), "-o", "json"]);
    let pod: serde_json::Value = serde_json::from_str(&pod).expect("a pod");
    pod["spec"]["nodeName"].as_str().expect("a node").to_owned()
}

/// Runs `work` on a thread that sees the network as that node does, whatever becomes of its cable.
pub fn on_node<T: Send + 'static>(
    node: &str,
    work: impl AsyncFnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    let network = File::open(format!("/var/run/netns/coregent-{node}")).expect("the node's network namespace");
    std::thread::spawn(move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).expect("the node's network");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(work())
    })
}
