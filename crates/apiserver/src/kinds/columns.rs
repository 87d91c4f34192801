//! What `kubectl get` shows of each kind: Kubernetes' own columns.

use serde_json::{Value, json};

use super::jsonpath::{first, text};

/// How a cell is made from an object.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// The value at a JSONPath.
    Path(String),
    /// The time since the timestamp at a JSONPath.
    Age(String),
    /// Computed.
    Of(fn(&Value) -> Value),
}

/// What Kubernetes says of a creation time.
const CREATION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. \
    It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. \
    It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// One column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    /// Above 0: shown by `-o wide` only.
    pub priority: i64,
    pub cell: Cell,
}

impl Column {
    fn new(name: &str, kind: &str, cell: Cell) -> Column {
        let (kind, format, description) = (kind.into(), String::new(), String::new());
        Column { name: name.into(), kind, format, description, priority: 0, cell }
    }

    /// The age of the object.
    pub fn age() -> Column {
        let mut age = Column::new("Age", "string", Cell::Age(".metadata.creationTimestamp".into()));
        age.description = CREATION.into();
        age
    }

    fn wide(mut self) -> Column {
        self.priority = 1;
        self
    }
}

fn path(name: &str, path: &str) -> Column {
    Column::new(name, "string", Cell::Path(path.into()))
}

fn of(name: &str, cell: fn(&Value) -> Value) -> Column {
    Column::new(name, "string", Cell::Of(cell))
}

fn count(name: &str, cell: fn(&Value) -> Value) -> Column {
    Column::new(name, "integer", Cell::Of(cell))
}

fn at(object: &Value, pointer: &str) -> String {
    first(object, pointer).map(text).unwrap_or_default()
}

fn or(object: &Value, pointer: &str, other: &str) -> Value {
    let found = at(object, pointer);
    json!(if found.is_empty() { other.to_owned() } else { found })
}

fn number(object: &Value, pointer: &str) -> i64 {
    first(object, pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn list<'v>(object: &'v Value, pointer: &str) -> &'v [Value] {
    first(object, pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn size(object: &Value, pointer: &str) -> Value {
    json!(first(object, pointer).map_or(0, |value| match value {
        Value::Object(map) => map.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    }))
}

fn joined(values: impl Iterator<Item = String>) -> Value {
    let text = values.filter(|value| !value.is_empty()).collect::<Vec<_>>().join(",");
    json!(if text.is_empty() { "<none>".to_owned() } else { text })
}

fn pairs(object: &Value, pointer: &str) -> Value {
    let map = first(object, pointer).and_then(Value::as_object);
    joined(map.into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value))))
}

fn modes(object: &Value, pointer: &str) -> Value {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO".to_owned(),
        Some("ReadOnlyMany") => "ROX".to_owned(),
        Some("ReadWriteMany") => "RWX".to_owned(),
        Some("ReadWriteOncePod") => "RWOP".to_owned(),
        _ => text(mode),
    };
    json!(list(object, pointer).iter().map(short).collect::<Vec<_>>().join(","))
}

pub(super) fn created() -> Vec<Column> {
    let mut created = path("Created At", ".metadata.creationTimestamp");
    created.description = CREATION.into();
    created.kind = "date".into();
    vec![created]
}

pub(super) fn namespace() -> Vec<Column> {
    vec![path("Status", ".status.phase"), Column::age()]
}

pub(super) fn node() -> Vec<Column> {
    fn status(node: &Value) -> Value {
        let ready = match at(node, ".status.conditions[?(@.type=='Ready')].status").as_str() {
            "True" => "Ready",
            "" => "Unknown",
            _ => "NotReady",
        };
        let cordoned = first(node, ".spec.unschedulable").is_some_and(|value| *value == true);
        json!(if cordoned { format!("{ready},SchedulingDisabled") } else { ready.to_owned() })
    }
    fn roles(node: &Value) -> Value {
        let labels = first(node, ".metadata.labels").and_then(Value::as_object);
        let role = |key: &String| key.strip_prefix("node-role.kubernetes.io/").unwrap_or_default().to_owned();
        joined(labels.into_iter().flat_map(|labels| labels.keys()).map(role))
    }
    fn address(node: &Value) -> Value {
        or(node, ".status.addresses[?(@.type=='InternalIP')].address", "<none>")
    }
    vec![
        of("Status", status),
        of("Roles", roles),
        Column::age(),
        path("Version", ".status.nodeInfo.kubeletVersion"),
        of("Internal-IP", address).wide(),
        of("External-IP", |_| json!("<none>")).wide(),
        of("OS-Image", |node| or(node, ".status.nodeInfo.osImage", "<unknown>")).wide(),
        of("Kernel-Version", |node| or(node, ".status.nodeInfo.kernelVersion", "<unknown>")).wide(),
        of("Container-Runtime", |node| or(node, ".status.nodeInfo.containerRuntimeVersion", "<unknown>")).wide(),
    ]
}

/// The state of a pod as `kubectl get pods` words it: the most telling reason among phase and containers.
fn pod_status(pod: &Value) -> Value {
    let mut status = match at(pod, ".status.reason") {
        reason if !reason.is_empty() => reason,
        _ => or(pod, ".status.phase", "Unknown").as_str().unwrap_or_default().to_owned(),
    };
    let inits = list(pod, ".status.initContainerStatuses");
    let mut initialising = false;
    for (index, container) in inits.iter().enumerate() {
        if first(container, ".state.terminated.exitCode").is_some_and(|code| *code == 0) {
            continue;
        }
        let reason = [at(container, ".state.terminated.reason"), at(container, ".state.waiting.reason")]
            .into_iter()
            .find(|reason| !reason.is_empty() && reason != "PodInitializing");
        status = match reason {
            Some(reason) => format!("Init:{reason}"),
            None => format!("Init:{index}/{}", list(pod, ".spec.initContainers").len()),
        };
        initialising = true;
        break;
    }
    if !initialising {
        let mut running = false;
        for container in list(pod, ".status.containerStatuses").iter().rev() {
            let (waiting, ended) = (at(container, ".state.waiting.reason"), at(container, ".state.terminated.reason"));
            if !waiting.is_empty() {
                status = waiting;
            } else if !ended.is_empty() {
                status = ended;
            } else if let Some(code) = first(container, ".state.terminated.exitCode") {
                status = format!("ExitCode:{code}");
            } else if container["ready"] == true && container["state"].get("running").is_some() {
                running = true;
            }
        }
        if status == "Completed" && running {
            status = "Running".into();
        }
    }
    if !at(pod, ".metadata.deletionTimestamp").is_empty() {
        status = "Terminating".into();
    }
    json!(status)
}

pub(super) fn pod() -> Vec<Column> {
    fn ready(pod: &Value) -> Value {
        let ready = list(pod, ".status.containerStatuses").iter().filter(|status| status["ready"] == true).count();
        json!(format!("{ready}/{}", list(pod, ".spec.containers").len()))
    }
    fn restarts(pod: &Value) -> Value {
        let statuses = list(pod, ".status.containerStatuses").iter();
        json!(statuses.map(|status| number(status, ".restartCount")).sum::<i64>().to_string())
    }
    vec![
        of("Ready", ready),
        of("Status", pod_status),
        of("Restarts", restarts),
        Column::age(),
        of("IP", |pod| or(pod, ".status.podIP", "<none>")).wide(),
        of("Node", |pod| or(pod, ".spec.nodeName", "<none>")).wide(),
        of("Nominated Node", |pod| or(pod, ".status.nominatedNodeName", "<none>")).wide(),
        of("Readiness Gates", |_| json!("<none>")).wide(),
    ]
}

pub(super) fn service() -> Vec<Column> {
    fn ports(service: &Value) -> Value {
        let port = |port: &Value| {
            let (number, protocol) = (at(port, ".port"), or(port, ".protocol", "TCP"));
            let node = at(port, ".nodePort");
            let node = if node.is_empty() || node == "0" { String::new() } else { format!(":{node}") };
            format!("{number}{node}/{}", text(&protocol))
        };
        joined(list(service, ".spec.ports").iter().map(port))
    }
    fn external(service: &Value) -> Value {
        joined(list(service, ".spec.externalIPs").iter().map(text))
    }
    vec![
        of("Type", |service| or(service, ".spec.type", "ClusterIP")),
        of("Cluster-IP", |service| or(service, ".spec.clusterIP", "<none>")),
        of("External-IP", external),
        of("Port(s)", ports),
        Column::age(),
        of("Selector", |service| pairs(service, ".spec.selector")).wide(),
    ]
}

pub(super) fn endpoints() -> Vec<Column> {
    fn addresses(endpoints: &Value) -> Value {
        let subset = |subset: &Value| {
            let ports: Vec<String> = list(subset, ".ports").iter().map(|port| at(port, ".port")).collect();
            let join = |address: &Value| {
                let ip = at(address, ".ip");
                if ports.is_empty() {
                    ip
                } else {
                    ports.iter().map(|port| format!("{ip}:{port}")).collect::<Vec<_>>().join(",")
                }
            };
            list(subset, ".addresses").iter().map(join).collect::<Vec<_>>().join(",")
        };
        joined(list(endpoints, ".subsets").iter().map(subset))
    }
    vec![of("Endpoints", addresses), Column::age()]
}

pub(super) fn endpoint_slice() -> Vec<Column> {
    fn addresses(slice: &Value) -> Value {
        let endpoints = list(slice, ".endpoints").iter();
        joined(endpoints.flat_map(|endpoint| list(endpoint, ".addresses")).map(text))
    }
    vec![
        path("AddressType", ".addressType"),
        of("Ports", |slice| joined(list(slice, ".ports").iter().map(|port| at(port, ".port")))),
        of("Endpoints", addresses),
        Column::age(),
    ]
}

pub(super) fn config_map() -> Vec<Column> {
    fn size_of(map: &Value) -> Value {
        let count = |pointer| size(map, pointer).as_i64().unwrap_or(0);
        json!(count(".data") + count(".binaryData"))
    }
    vec![of("Data", size_of), Column::age()]
}

pub(super) fn secret() -> Vec<Column> {
    vec![path("Type", ".type"), of("Data", |secret| size(secret, ".data")), Column::age()]
}

pub(super) fn persistent_volume() -> Vec<Column> {
    fn claim(volume: &Value) -> Value {
        let name = at(volume, ".spec.claimRef.name");
        let namespace = at(volume, ".spec.claimRef.namespace");
        json!(if name.is_empty() { String::new() } else { format!("{namespace}/{name}") })
    }
    vec![
        path("Capacity", ".spec.capacity.storage"),
        of("Access Modes", |volume| modes(volume, ".spec.accessModes")),
        path("Reclaim Policy", ".spec.persistentVolumeReclaimPolicy"),
        path("Status", ".status.phase"),
        of("Claim", claim),
        path("StorageClass", ".spec.storageClassName"),
        of("VolumeAttributesClass", |_| json!("<unset>")),
        path("Reason", ".status.reason"),
        Column::age(),
        of("VolumeMode", |volume| or(volume, ".spec.volumeMode", "Filesystem")).wide(),
    ]
}

pub(super) fn persistent_volume_claim() -> Vec<Column> {
    vec![
        path("Status", ".status.phase"),
        path("Volume", ".spec.volumeName"),
        path("Capacity", ".status.capacity.storage"),
        of("Access Modes", |claim| modes(claim, ".status.accessModes")),
        path("StorageClass", ".spec.storageClassName"),
        of("VolumeAttributesClass", |_| json!("<unset>")),
        Column::age(),
        of("VolumeMode", |claim| or(claim, ".spec.volumeMode", "Filesystem")).wide(),
    ]
}

pub(super) fn storage_class() -> Vec<Column> {
    vec![
        path("Provisioner", ".provisioner"),
        of("ReclaimPolicy", |class| or(class, ".reclaimPolicy", "Delete")),
        of("VolumeBindingMode", |class| or(class, ".volumeBindingMode", "Immediate")),
        Column::new("AllowVolumeExpansion", "boolean", Cell::Of(|class| json!(class["allowVolumeExpansion"] == true))),
        Column::age(),
    ]
}

pub(super) fn service_account() -> Vec<Column> {
    vec![count("Secrets", |account| size(account, ".secrets")), Column::age()]
}

pub(super) fn event() -> Vec<Column> {
    fn object(event: &Value) -> Value {
        let kind = at(event, ".involvedObject.kind").to_lowercase();
        json!(format!("{kind}/{}", at(event, ".involvedObject.name")))
    }
    fn source(event: &Value) -> Value {
        let parts = [at(event, ".source.component"), at(event, ".source.host")];
        match joined(parts.into_iter()) {
            none if none == "<none>" => or(event, ".reportingComponent", ""),
            found => found,
        }
    }
    vec![
        Column::new("Last Seen", "string", Cell::Of(last_seen)),
        path("Type", ".type"),
        path("Reason", ".reason"),
        of("Object", object),
        path("Subobject", ".involvedObject.fieldPath").wide(),
        of("Source", source).wide(),
        path("Message", ".message"),
        Column::new("First Seen", "string", Cell::Age(".firstTimestamp".into())).wide(),
        of("Count", |event| json!(number(event, ".count").max(1).to_string())).wide(),
        path("Name", ".metadata.name").wide(),
    ]
}

fn last_seen(event: &Value) -> Value {
    let stamps = [".series.lastObservedTime", ".lastTimestamp", ".eventTime", ".metadata.creationTimestamp"];
    let newest = stamps.iter().map(|stamp| at(event, stamp)).find(|stamp| !stamp.is_empty());
    json!(crate::time::age(&newest.unwrap_or_default()))
}

pub(super) fn stateful_set() -> Vec<Column> {
    fn ready(set: &Value) -> Value {
        let wanted = first(set, ".spec.replicas").and_then(Value::as_i64).unwrap_or(1);
        json!(format!("{}/{wanted}", number(set, ".status.readyReplicas")))
    }
    vec![of("Ready", ready), Column::age(), containers(), images()]
}

fn containers() -> Column {
    of("Containers", |set| joined(list(set, ".spec.template.spec.containers").iter().map(|c| at(c, ".name")))).wide()
}

fn images() -> Column {
    of("Images", |set| joined(list(set, ".spec.template.spec.containers").iter().map(|c| at(c, ".image")))).wide()
}

pub(super) fn controller_revision() -> Vec<Column> {
    fn controller(revision: &Value) -> Value {
        let owners = list(revision, ".metadata.ownerReferences").iter();
        let owner = owners.filter(|owner| owner["controller"] == true).map(|owner| {
            let group = at(owner, ".apiVersion").split_once('/').map(|(group, _)| format!(".{group}"));
            let kind = at(owner, ".kind").to_lowercase();
            format!("{kind}{}/{}", group.unwrap_or_default(), at(owner, ".name"))
        });
        joined(owner)
    }
    vec![of("Controller", controller), path("Revision", ".revision"), Column::age()]
}

pub(super) fn job() -> Vec<Column> {
    fn status(job: &Value) -> Value {
        for condition in ["Failed", "Complete", "Suspended"] {
            if at(job, &format!(".status.conditions[?(@.type=='{condition}')].status")) == "True" {
                return json!(condition);
            }
        }
        json!("Running")
    }
    fn completions(job: &Value) -> Value {
        let wanted = first(job, ".spec.completions").and_then(Value::as_i64).unwrap_or(1);
        json!(format!("{}/{wanted}", number(job, ".status.succeeded")))
    }
    fn duration(job: &Value) -> Value {
        json!(crate::time::between(&at(job, ".status.startTime"), &at(job, ".status.completionTime")))
    }
    vec![
        of("Status", status),
        of("Completions", completions),
        of("Duration", duration),
        Column::age(),
        containers(),
        images(),
    ]
}

pub(super) fn cron_job() -> Vec<Column> {
    fn suspend(job: &Value) -> Value {
        json!(if first(job, ".spec.suspend").is_some_and(|value| *value == true) { "True" } else { "False" })
    }
    vec![
        path("Schedule", ".spec.schedule"),
        of("Timezone", |job| or(job, ".spec.timeZone", "<none>")),
        of("Suspend", suspend),
        count("Active", |job| size(job, ".status.active")),
        Column::new("Last Schedule", "string", Cell::Age(".status.lastScheduleTime".into())),
        Column::age(),
    ]
}

pub(super) fn pod_disruption_budget() -> Vec<Column> {
    vec![
        of("Min Available", |budget| or(budget, ".spec.minAvailable", "N/A")),
        of("Max Unavailable", |budget| or(budget, ".spec.maxUnavailable", "N/A")),
        count("Allowed Disruptions", |budget| json!(number(budget, ".status.disruptionsAllowed"))),
        Column::age(),
    ]
}

pub(super) fn network_policy() -> Vec<Column> {
    vec![of("Pod-Selector", |policy| pairs(policy, ".spec.podSelector.matchLabels")), Column::age()]
}

pub(super) fn lease() -> Vec<Column> {
    vec![path("Holder", ".spec.holderIdentity"), Column::age()]
}

pub(super) fn definition() -> Vec<Column> {
    created()
}

pub(super) fn binding() -> Vec<Column> {
    vec![
        of("Role", |binding| json!(format!("{}/{}", at(binding, ".roleRef.kind"), at(binding, ".roleRef.name")))),
        Column::age(),
        of("Users", |binding| subjects(binding, "User")).wide(),
        of("Groups", |binding| subjects(binding, "Group")).wide(),
        of("ServiceAccounts", |binding| subjects(binding, "ServiceAccount")).wide(),
    ]
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let named = list(binding, ".subjects").iter().filter(|subject| subject["kind"] == kind);
    let name = |subject: &Value| match at(subject, ".namespace") {
        namespace if namespace.is_empty() => at(subject, ".name"),
        namespace => format!("{namespace}/{}", at(subject, ".name")),
    };
    joined(named.map(name))
}
