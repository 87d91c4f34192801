//! The kubectl commands that are compared.

use crate::scenario::Scenario;

/// One run of kubectl.
#[derive(Clone)]
pub struct Invocation {
    pub label: &'static str,
    pub arguments: Vec<&'static str>,
    pub input: Option<&'static str>,
    /// Run again until this is printed.
    pub until: Option<&'static str>,
    /// What it prints is not compared.
    pub silent: bool,
}

/// The commands as a scenario: its name, its namespace and what it makes.
pub fn scenario() -> Scenario {
    Scenario::new("kubectl", "what a real kubectl prints", Vec::new())
        .with_controllers()
        .makes(&["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.kubectl.example.com"])
}

const MANIFEST: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: db}}
data: {color: red, size: big}
---
apiVersion: v1
kind: Service
metadata: {name: db, labels: {app: db}}
spec:
  selector: {app: db, role: primary}
  ports: [{port: 5432, name: sql}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, labels: {app: db}}
spec:
  replicas: 0
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers:
      - {name: postgresql, image: 'postgres:15', ports: [{containerPort: 5432}]}
";
const CHANGED: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: db}}
data: {color: blue, weight: '3'}
";
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.kubectl.example.com}
spec:
  group: kubectl.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Phase, type: string, jsonPath: .status.phase}
    schema:
      openAPIV3Schema:
        description: A gadget is a test.
        type: object
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [size]
            properties:
              size: {type: integer, minimum: 1, description: How big it is.}
              mode: {type: string, enum: [Fast, Safe], default: Safe}
          status:
            type: object
            properties:
              phase: {type: string}
";
const GADGET: &str = "apiVersion: kubectl.example.com/v1\nkind: Gadget\nmetadata: {name: g}\nspec: {size: 7}\n";
const BAD_GADGET: &str = "apiVersion: kubectl.example.com/v1\nkind: Gadget\nmetadata: {name: h}\nspec: {size: 0}\n";
const ODD_GADGET: &str = "apiVersion: kubectl.example.com/v1\nkind: Gadget\nmetadata: {name: h}\nspec: {sise: 1}\n";
const TYPO: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: typo}\ndatum: {a: b}\n";

/// Splits at blanks, and runs in the namespace of the scenario.
fn kubectl(label: &'static str, arguments: &'static str) -> Invocation {
    let arguments = arguments.split(' ').chain(["-n", "conf-kubectl"]).collect();
    Invocation { label, arguments, input: None, until: None, silent: false }
}

fn with(label: &'static str, arguments: &'static str, input: &'static str) -> Invocation {
    Invocation { input: Some(input), ..kubectl(label, arguments) }
}

/// Arguments in which there are blanks.
fn words(label: &'static str, arguments: &[&'static str]) -> Invocation {
    let arguments = arguments.iter().copied().chain(["-n", "conf-kubectl"]).collect();
    Invocation { arguments, ..kubectl(label, "") }
}

pub fn all() -> Vec<Invocation> {
    [objects(), changes(), custom(), ends()].concat()
}

fn objects() -> Vec<Invocation> {
    vec![
        kubectl("namespace", "create namespace conf-kubectl"),
        with("apply", "apply -f -", MANIFEST),
        with("apply again", "apply -f -", MANIFEST),
        with("diff of nothing", "diff -f -", MANIFEST),
        with("diff", "diff -f -", CHANGED),
        with("apply with a dry run", "apply --dry-run=server -f -", CHANGED),
        with("apply of a change", "apply -f -", CHANGED),
        with("view of what was applied", "apply view-last-applied cm/settings", ""),
        with("unknown field", "apply -f -", TYPO),
        with("unknown field, not checked", "create --validate=ignore --dry-run=server -f -", TYPO),
        kubectl("get", "get cm settings"),
        kubectl("get of several kinds", "get cm/settings,svc/db,sts/db"),
        kubectl("get wide", "get svc,sts -o wide"),
        kubectl("get names", "get svc,sts -l app=db -o name"),
        kubectl("get a path", "get cm settings -o jsonpath={.data}"),
        kubectl("get columns", "get cm settings -o custom-columns=N:.metadata.name,C:.data.color"),
        kubectl("get labels", "get cm settings --show-labels"),
        kubectl("get sorted", "get cm --sort-by=.metadata.name -l app=db"),
        kubectl("get by name", "get cm --field-selector metadata.name=settings"),
        kubectl("get none", "get secrets -l no=ne"),
        kubectl("get of what is not there", "get cm absent"),
        kubectl("get of a kind that is none", "get nothings"),
        kubectl("get everything", "get all"),
        kubectl("get yaml", "get svc db -o yaml"),
        kubectl("get raw", "get --raw /api/v1/namespaces/conf-kubectl/services/absent"),
        kubectl("describe a config map", "describe cm settings"),
        kubectl("describe a service", "describe svc db"),
        Invocation { until: Some("observedGeneration"), silent: true, ..kubectl("seen", "get sts db -o yaml") },
        kubectl("describe a set", "describe sts db"),
        kubectl("describe a namespace", "describe namespace conf-kubectl"),
        kubectl("describe what is not there", "describe cm absent"),
    ]
}

fn changes() -> Vec<Invocation> {
    vec![
        words("patch", &["patch", "cm", "settings", "-p", r#"{"data":{"x":"1"}}"#]),
        words("patch that changes nothing", &["patch", "cm", "settings", "-p", r#"{"data":{"x":"1"}}"#]),
        words("merge patch", &["patch", "cm", "settings", "--type=merge", "-p", r#"{"data":{"x":null}}"#]),
        words(
            "JSON patch",
            &["patch", "cm", "settings", "--type=json", "-p", r#"[{"op":"add","path":"/data/y","value":"2"}]"#],
        ),
        words(
            "JSON patch that fails",
            &["patch", "cm", "settings", "--type=json", "-p", r#"[{"op":"test","path":"/data/y","value":"3"}]"#],
        ),
        words(
            "patch of the status",
            &["patch", "sts", "db", "--subresource=status", "--type=merge", "-p", r#"{"status":{"replicas":0}}"#],
        ),
        with("server-side apply", "apply --server-side --field-manager=other -f -", CHANGED),
        with("server-side apply by force", "apply --server-side --field-manager=other --force-conflicts -f -", CHANGED),
        kubectl("label", "label cm settings tier=gold"),
        kubectl("label again", "label cm settings tier=silver"),
        kubectl("label over it", "label --overwrite cm settings tier=silver"),
        kubectl("label away", "label cm settings tier-"),
        kubectl("annotate", "annotate cm settings note=x"),
        kubectl("set image", "set image sts/db postgresql=postgres:16"),
        kubectl("set env", "set env sts/db A=1"),
        kubectl("set env list", "set env sts/db --list"),
        kubectl("scale", "scale sts/db --replicas=0"),
        kubectl("scale from another number", "scale sts/db --current-replicas=3 --replicas=1"),
        kubectl("rollout status", "rollout status sts/db --timeout=20s"),
        kubectl("rollout history", "rollout history sts/db"),
        kubectl("rollout undo", "rollout undo sts/db"),
        kubectl("rollout restart", "rollout restart sts/db"),
        with("replace", "replace -f -", CHANGED),
        with("create of what is there", "create -f -", CHANGED),
        kubectl("create a secret", "create secret generic s --from-literal=a=b"),
        kubectl("create a service", "create service clusterip c --tcp=80:web"),
        kubectl("create a job", "create job j --image=busybox --dry-run=server -- true"),
        kubectl("create a role", "create role r --verb=get --resource=pods"),
        kubectl("create a binding", "create rolebinding r --role=r --user=jane"),
        kubectl("create a quota", "create quota q --hard=pods=1 --dry-run=server"),
        kubectl("describe a secret", "describe secret s"),
        kubectl("describe a role", "describe role r"),
        kubectl("may jane", "auth can-i get pods --as=jane"),
        kubectl("may jane delete", "auth can-i delete pods --as=jane"),
        kubectl("may I", "auth can-i get pods"),
        kubectl("who am I", "auth whoami -o jsonpath={.kind}"),
        kubectl("wait for a path", "wait --for=jsonpath={.data.color}=blue cm/settings --timeout=5s"),
        kubectl("wait in vain", "wait --for=jsonpath={.data.color}=green cm/settings --timeout=1s"),
        kubectl("top", "top pods"),
        kubectl("explain a built-in kind", "explain configmap.data"),
        kubectl("resources of a group", "api-resources --api-group=apps -o name"),
        kubectl("logs of what is not there", "logs absent"),
        kubectl("exec in what is not there", "exec absent -- true"),
        kubectl("port-forward of what is not there", "port-forward pod/absent 1"),
        kubectl("cp from what is not there", "cp absent:/x /tmp/x"),
    ]
}

fn custom() -> Vec<Invocation> {
    vec![
        with("definition", "apply -f -", DEFINITION),
        kubectl(
            "definition established",
            "wait --for=condition=Established crd/gadgets.kubectl.example.com --timeout=20s",
        ),
        Invocation {
            until: Some("gadgets"),
            silent: true,
            ..kubectl("served", "api-resources --api-group=kubectl.example.com -o name")
        },
        Invocation { until: Some("How big"), silent: true, ..kubectl("described", "explain gadgets.spec.size") },
        with("gadget", "apply -f -", GADGET),
        with("gadget again", "apply -f -", GADGET),
        with("bad gadget", "apply -f -", BAD_GADGET),
        with("odd gadget", "apply -f -", ODD_GADGET),
        kubectl("get gadgets", "get gd"),
        kubectl("get gadget yaml", "get gd g -o jsonpath={.spec}"),
        kubectl("describe gadget", "describe gd g"),
        kubectl("explain gadget", "explain gadgets"),
        kubectl("explain its field", "explain gadgets.spec.size"),
        kubectl("explain it all", "explain gadgets --recursive"),
        kubectl("explain what is none", "explain gadgets.nothing"),
        words("patch gadget", &["patch", "gd", "g", "-p", r#"{"spec":{"size":8}}"#]),
        words("merge patch gadget", &["patch", "gd", "g", "--type=merge", "-p", r#"{"spec":{"size":8}}"#]),
        words(
            "gadget status",
            &["patch", "gd", "g", "--subresource=status", "--type=merge", "-p", r#"{"status":{"phase":"Good"}}"#],
        ),
        kubectl("scale gadget", "scale gd g --replicas=1"),
        kubectl("get gadget with a phase", "get gd g"),
        kubectl("delete gadget", "delete gd g"),
        kubectl("delete definition", "delete crd gadgets.kubectl.example.com"),
    ]
}

fn ends() -> Vec<Invocation> {
    vec![
        kubectl("delete with a dry run", "delete cm settings --dry-run=server"),
        kubectl("delete", "delete cm settings"),
        kubectl("delete what is gone", "delete cm settings"),
        kubectl("delete if it is there", "delete cm settings --ignore-not-found"),
        kubectl("wait for the end", "wait --for=delete sts/absent --timeout=5s"),
        kubectl("delete by a label", "delete svc,sts -l app=db --cascade=foreground"),
        kubectl("delete all", "delete secret,svc --all"),
        kubectl("nothing is left", "get svc,sts,secrets"),
        kubectl("delete the namespace", "delete namespace conf-kubectl"),
        kubectl("namespace is gone", "get namespace conf-kubectl"),
    ]
}
