use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::memory;
use crate::served::{Served, serve};

/// A real kubectl, or why there is none.
fn fetch() -> Result<PathBuf, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dev/kubectl");
    let output = Command::new(script).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().into());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

struct Kubectl {
    program: PathBuf,
    served: Served,
}

impl Kubectl {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("KUBECONFIG", self.served.folder.path().join("kubeconfig"))
            .env("HOME", self.served.folder.path())
            .stdin(Stdio::null());
        command
    }

    async fn output(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Runs it, which must succeed, and answers what it printed.
    async fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments).await;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "kubectl {arguments:?}: {out}{err}");
        out.into_owned()
    }

    /// Runs it, which must fail, and answers its complaint.
    async fn fail(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments).await;
        assert!(!output.status.success(), "kubectl {arguments:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.served.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

const MANIFEST: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: db}}
data: {color: red, size: big}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers:
      - {name: postgresql, image: 'postgres:15', ports: [{containerPort: 5432}]}
";

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, minimum: 1, description: How big it is.}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_kubectl_applies_gets_describes_watches_patches_and_deletes() {
    let program = match tokio::task::spawn_blocking(fetch).await.unwrap() {
        Ok(program) => program,
        Err(reason) => {
            eprintln!("SKIPPED a_real_kubectl_applies_gets_describes_watches_patches_and_deletes: {reason}");
            return;
        }
    };
    let server = memory().await;
    let served = serve(&server).await;
    let kubectl = Kubectl { program, served };

    objects(&kubectl).await;
    protobuf(&kubectl).await;
    watching(&kubectl).await;
    custom_kinds(&kubectl).await;
}

async fn objects(kubectl: &Kubectl) {
    assert!(kubectl.run(&["get", "namespaces"]).await.contains("kube-node-lease"));
    let resources = kubectl.run(&["api-resources"]).await;
    assert!(resources.contains("statefulsets") && resources.contains("sts"), "{resources}");
    let manifest = kubectl.file("manifest.yaml", MANIFEST);
    let applied = kubectl.run(&["apply", "-f", &manifest]).await;
    assert!(applied.contains("configmap/settings created") && applied.contains("statefulset.apps/db created"));
    let again = kubectl.run(&["apply", "-f", &manifest]).await;
    assert!(again.contains("configmap/settings unchanged") && again.contains("statefulset.apps/db"), "{again}");
    let changed = kubectl.file("changed.yaml", &MANIFEST.replace("color: red, ", ""));
    assert!(kubectl.run(&["apply", "-f", &changed]).await.contains("configmap/settings configured"));
    assert_eq!(kubectl.run(&["get", "cm", "settings", "-o", "jsonpath={.data}"]).await, r#"{"size":"big"}"#);
    let server_side = ["apply", "--server-side", "--force-conflicts", "-f", &manifest];
    assert!(kubectl.run(&server_side).await.contains("serverside-applied"));
    let table = kubectl.run(&["get", "sts", "-o", "wide"]).await;
    assert!(table.contains("READY") && table.contains("0/3") && table.contains("postgres:15"), "{table}");
    assert!(kubectl.run(&["scale", "sts/db", "--replicas=5"]).await.contains("scaled"));
    assert_eq!(kubectl.run(&["get", "sts", "db", "-o", "jsonpath={.spec.replicas}"]).await, "5");
    let described = kubectl.run(&["describe", "statefulset", "db"]).await;
    assert!(described.contains("postgres:15") && described.contains("5 desired"), "{described}");
    kubectl.run(&["label", "cm", "settings", "tier=gold"]).await;
    kubectl.run(&["patch", "cm", "settings", "--type=json", r#"-p=[{"op":"add","path":"/data/x","value":"y"}]"#]).await;
    assert!(kubectl.run(&["get", "cm", "-l", "tier in (gold)", "-o", "name"]).await.contains("configmap/settings"));
    let typo = kubectl.file("typo.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: typo}\ndatum: {a: b}\n");
    assert!(kubectl.fail(&["apply", "-f", &typo]).await.contains("unknown field \"datum\""));
    assert!(kubectl.fail(&["get", "cm", "absent"]).await.contains("(NotFound)"));
    let diff = kubectl.output(&["diff", "-f", &manifest]).await;
    assert!(String::from_utf8_lossy(&diff.stdout).contains("replicas: 3"), "{diff:?}");
}

/// The verbs whose bodies kubectl writes in protobuf since 1.35, with no way back to JSON.
async fn protobuf(kubectl: &Kubectl) {
    for made in [
        "configmap typed --from-literal=a=b --from-literal=empty=",
        "secret generic typed --from-literal=a=b",
        "namespace typed",
        "serviceaccount typed",
        "service clusterip typed --tcp=80:web",
        "job typed --image=busybox -- true",
        "role typed --verb=get,list --resource=pods",
        "clusterrole typed --verb=get --non-resource-url=/metrics",
        "rolebinding typed --role=typed --serviceaccount=default:typed",
        "clusterrolebinding typed --clusterrole=typed --user=jane",
    ] {
        let arguments: Vec<&str> = std::iter::once("create").chain(made.split(' ')).collect();
        assert!(kubectl.run(&arguments).await.contains("created"), "{made}");
    }
    let get = async |what: &str, path: &str| kubectl.run(&["get", what, "typed", "-o", path]).await;
    assert_eq!(get("cm", "jsonpath={.data}").await, r#"{"a":"b","empty":""}"#);
    assert_eq!(get("secret", "jsonpath={.data.a} {.type}").await, "Yg== Opaque");
    let port = r#"{"name":"80-web","port":80,"protocol":"TCP","targetPort":"web"}"#;
    assert_eq!(get("svc", "jsonpath={.spec.ports[0]}").await, port);
    assert_eq!(get("job", "jsonpath={.spec.template.spec.containers[0].command}").await, r#"["true"]"#);
    assert_eq!(get("role", "jsonpath={.rules[0].verbs}").await, r#"["get","list"]"#);
    let subject = r#"{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}"#;
    assert_eq!(get("clusterrolebinding", "jsonpath={.subjects[0]}").await, subject);
    assert_eq!(kubectl.run(&["create", "token", "typed", "--duration=1h"]).await.trim().split('.').count(), 3);
    assert_eq!(kubectl.run(&["auth", "can-i", "get", "pods"]).await, "yes\n");
    assert!(kubectl.run(&["auth", "whoami"]).await.contains("admin"));
    assert!(kubectl.run(&["auth", "can-i", "--list"]).await.contains("Resources"));
}

/// Waits for the line that tells of this change of this object.
async fn until(heard: &mut tokio::sync::mpsc::UnboundedReceiver<String>, change: &str, name: &str) {
    while let Some(line) = heard.recv().await {
        if line.contains(change) && line.contains(name) {
            return;
        }
    }
    panic!("the watch ended before {name} was {change}");
}

async fn watching(kubectl: &Kubectl) {
    let mut watch = kubectl.command(&["get", "cm", "-w", "--output-watch-events"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let out = watch.stdout.take().unwrap();
    let (lines, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let reader = tokio::task::spawn_blocking(move || {
        use std::io::BufRead;
        for line in std::io::BufReader::new(out).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    // It has its list once it tells of what is there, and goes on from that list's revision: nothing is missed.
    until(&mut heard, "ADDED", "settings").await;
    let later = kubectl.file("later.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: later}\ndata: {a: b}\n");
    kubectl.run(&["create", "-f", &later]).await;
    until(&mut heard, "ADDED", "later").await;
    kubectl.run(&["delete", "cm", "settings"]).await;
    until(&mut heard, "DELETED", "settings").await;
    watch.kill().unwrap();
    watch.wait().unwrap();
    reader.await.unwrap();
    kubectl.run(&["delete", "sts", "db", "--wait=true", "--cascade=background"]).await;
}

async fn custom_kinds(kubectl: &Kubectl) {
    let definition = kubectl.file("definition.yaml", DEFINITION);
    kubectl.run(&["apply", "-f", &definition]).await;
    kubectl.run(&["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=20s"]).await;
    let widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 7}\n";
    let file = kubectl.file("widget.yaml", widget);
    kubectl.run(&["apply", "-f", &file]).await;
    let table = kubectl.run(&["get", "wd"]).await;
    assert!(table.contains("SIZE") && table.contains('7'), "{table}");
    let bad = kubectl.file("bad.yaml", &widget.replace('7', "0"));
    assert!(kubectl.fail(&["apply", "-f", &bad]).await.contains("spec.size"));
    let unknown = kubectl.file("unknown.yaml", &widget.replace("size", "sise"));
    assert!(kubectl.fail(&["apply", "-f", &unknown]).await.contains("unknown field \"spec.sise\""));
    assert!(kubectl.run(&["explain", "widgets.spec.size"]).await.contains("How big it is."));
    assert!(kubectl.run(&["describe", "widget", "w"]).await.contains("Size:"));
    kubectl.run(&["delete", "-f", &definition]).await;
    // kubectl may still believe its cached discovery and ask.
    let gone = kubectl.fail(&["get", "wd"]).await;
    let said = ["doesn't have a resource type", "could not find the requested resource", "no matches for kind"];
    assert!(said.iter().any(|text| gone.contains(text)), "{gone}");
}
