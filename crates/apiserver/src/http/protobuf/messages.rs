//! The messages that are read: field numbers and names of Kubernetes' protobuf encoding.
//!
//! One line a message: `Name = number field[?][: type], …`. A field is text unless it says otherwise; `[]` is a list,
//! `{}` a map from text; `?` is a field whose zero means something (a pointer in Kubernetes' own types): every other
//! one is sent even when it was not set, and its zero is no value. Source: `generated.proto` of each API group.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A kind's message, by `apiVersion` and `kind`. Kinds that hold whole pods are sent as JSON by whoever has a choice.
const KINDS: &[(&str, &str, &str)] = &[
    ("v1", "ConfigMap", "ConfigMap"),
    ("v1", "Secret", "Secret"),
    ("v1", "Namespace", "Namespace"),
    ("v1", "ServiceAccount", "ServiceAccount"),
    ("v1", "Service", "Service"),
    ("v1", "Event", "Event"),
    ("events.k8s.io/v1", "Event", "RegardingEvent"),
    ("coordination.k8s.io/v1", "Lease", "Lease"),
    ("batch/v1", "Job", "Job"),
    ("policy/v1", "Eviction", "Eviction"),
    ("rbac.authorization.k8s.io/v1", "Role", "Role"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "RoleBinding"),
    ("authentication.k8s.io/v1", "TokenRequest", "TokenRequest"),
    ("authentication.k8s.io/v1", "TokenReview", "TokenReview"),
    ("authentication.k8s.io/v1", "SelfSubjectReview", "SelfSubjectReview"),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview", "AccessReview"),
    ("authorization.k8s.io/v1", "SubjectAccessReview", "AccessReview"),
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview", "AccessReview"),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview", "RulesReview"),
];

const MESSAGES: &str = "
Unknown = 1 type: TypeMeta, 2 raw: bytes, 3 contentEncoding, 4 contentType
TypeMeta = 1 apiVersion, 2 kind
ObjectMeta = 1 name, 2 generateName, 3 namespace, 4 selfLink, 5 uid, 6 resourceVersion, 7 generation: int, \
    8 creationTimestamp: time, 9 deletionTimestamp: time, 10 deletionGracePeriodSeconds?: int, 11 labels: {}text, \
    12 annotations: {}text, 13 ownerReferences: []OwnerReference, 14 finalizers: []text, \
    17 managedFields: []ManagedFields
OwnerReference = 1 kind, 3 name, 4 uid, 5 apiVersion, 6 controller?: bool, 7 blockOwnerDeletion?: bool
ManagedFields = 1 manager, 2 operation, 3 apiVersion, 4 time: time, 6 fieldsType, 7 fieldsV1: json, 8 subresource
ObjectReference = 1 kind, 2 namespace, 3 name, 4 uid, 5 apiVersion, 6 resourceVersion, 7 fieldPath
NameReference = 1 name
Condition = 1 type, 2 status, 3 observedGeneration: int, 4 lastTransitionTime: time, 5 reason, 6 message
ConfigMap = 1 metadata: ObjectMeta, 2 data: {}text, 3 binaryData: {}bytes, 4 immutable?: bool
Secret = 1 metadata: ObjectMeta, 2 data: {}bytes, 3 type, 4 stringData: {}text, 5 immutable?: bool
Namespace = 1 metadata: ObjectMeta, 2 spec: NamespaceSpec, 3 status: NamespaceStatus
NamespaceSpec = 1 finalizers: []text
NamespaceStatus = 1 phase
ServiceAccount = 1 metadata: ObjectMeta, 2 secrets: []ObjectReference, 3 imagePullSecrets: []NameReference, \
    4 automountServiceAccountToken?: bool
Service = 1 metadata: ObjectMeta, 2 spec: ServiceSpec, 3 status: ServiceStatus
ServiceSpec = 1 ports: []ServicePort, 2 selector: {}text, 3 clusterIP, 4 type, 5 externalIPs: []text, \
    7 sessionAffinity, 8 loadBalancerIP, 9 loadBalancerSourceRanges: []text, 10 externalName, \
    11 externalTrafficPolicy, 12 healthCheckNodePort: int, 13 publishNotReadyAddresses: bool, 17 ipFamilyPolicy?, \
    18 clusterIPs: []text, 19 ipFamilies: []text, 20 allocateLoadBalancerNodePorts?: bool, 21 loadBalancerClass?, \
    22 internalTrafficPolicy?, 23 trafficDistribution?
ServicePort = 1 name, 2 protocol, 3 port: int, 4 targetPort: number-or-text, 5 nodePort: int, 6 appProtocol?
ServiceStatus = 1 loadBalancer: LoadBalancerStatus, 2 conditions: []Condition
LoadBalancerStatus = 1 ingress: []LoadBalancerIngress
LoadBalancerIngress = 1 ip, 2 hostname, 3 ipMode?
Event = 1 metadata: ObjectMeta, 2 involvedObject: ObjectReference, 3 reason, 4 message, 5 source: EventSource, \
    6 firstTimestamp: time, 7 lastTimestamp: time, 8 count: int, 9 type, 10 eventTime: micro, 11 series?: EventSeries, \
    12 action, 13 related?: ObjectReference, 14 reportingComponent, 15 reportingInstance
RegardingEvent = 1 metadata: ObjectMeta, 2 eventTime: micro, 3 series?: EventSeries, 4 reportingController, \
    5 reportingInstance, 6 action, 7 reason, 8 regarding: ObjectReference, 9 related?: ObjectReference, 10 note, \
    11 type, 12 deprecatedSource: EventSource, 13 deprecatedFirstTimestamp: time, 14 deprecatedLastTimestamp: time, \
    15 deprecatedCount: int
EventSource = 1 component, 2 host
EventSeries = 1 count: int, 2 lastObservedTime: micro
Lease = 1 metadata: ObjectMeta, 2 spec: LeaseSpec
LeaseSpec = 1 holderIdentity?, 2 leaseDurationSeconds?: int, 3 acquireTime: micro, 4 renewTime: micro, \
    5 leaseTransitions?: int, 6 strategy?, 7 preferredHolder?
Eviction = 1 metadata: ObjectMeta, 2 deleteOptions?: DeleteOptions
DeleteOptions = 1 gracePeriodSeconds?: int, 2 preconditions?: Preconditions, 3 orphanDependents?: bool, \
    4 propagationPolicy?, 5 dryRun: []text
Preconditions = 1 uid?, 2 resourceVersion?
Role = 1 metadata: ObjectMeta, 2 rules: []PolicyRule
ClusterRole = 1 metadata: ObjectMeta, 2 rules: []PolicyRule, 3 aggregationRule?: AggregationRule
AggregationRule = 1 clusterRoleSelectors: []LabelSelector
PolicyRule = 1 verbs: []text, 2 apiGroups: []text, 3 resources: []text, 4 resourceNames: []text, \
    5 nonResourceURLs: []text
RoleBinding = 1 metadata: ObjectMeta, 2 subjects: []Subject, 3 roleRef: RoleRef
Subject = 1 kind, 2 apiGroup, 3 name, 4 namespace
RoleRef = 1 apiGroup, 2 kind, 3 name
LabelSelector = 1 matchLabels: {}text, 2 matchExpressions: []LabelRequirement
LabelRequirement = 1 key, 2 operator, 3 values: []text
TokenRequest = 1 metadata: ObjectMeta, 2 spec: TokenRequestSpec, 3 status: TokenRequestStatus
TokenRequestSpec = 1 audiences: []text, 3 boundObjectRef?: BoundObject, 4 expirationSeconds?: int
TokenRequestStatus = 1 token, 2 expirationTimestamp: time
BoundObject = 1 kind, 2 apiVersion, 3 name, 4 uid
TokenReview = 1 metadata: ObjectMeta, 2 spec: TokenReviewSpec, 3 status: TokenReviewStatus
TokenReviewSpec = 1 token, 2 audiences: []text
TokenReviewStatus = 1 authenticated: bool, 2 user: UserInfo, 3 error, 4 audiences: []text
SelfSubjectReview = 1 metadata: ObjectMeta, 2 status: SelfSubjectReviewStatus
SelfSubjectReviewStatus = 1 userInfo: UserInfo
UserInfo = 1 username, 2 uid, 3 groups: []text
AccessReview = 1 metadata: ObjectMeta, 2 spec: AccessReviewSpec, 3 status: AccessReviewStatus
AccessReviewSpec = 1 resourceAttributes?: ResourceAttributes, 2 nonResourceAttributes?: PathAttributes, 3 user, \
    4 groups: []text, 6 uid
ResourceAttributes = 1 namespace, 2 verb, 3 group, 4 version, 5 resource, 6 subresource, 7 name
PathAttributes = 1 path, 2 verb
AccessReviewStatus = 1 allowed: bool, 2 reason, 3 evaluationError, 4 denied: bool
RulesReview = 1 metadata: ObjectMeta, 2 spec: RulesReviewSpec, 3 status: RulesReviewStatus
RulesReviewSpec = 1 namespace
RulesReviewStatus = 3 incomplete: bool, 4 evaluationError
Job = 1 metadata: ObjectMeta, 2 spec: JobSpec, 3 status: JobStatus
JobSpec = 1 parallelism?: int, 2 completions?: int, 3 activeDeadlineSeconds?: int, 4 selector?: LabelSelector, \
    5 manualSelector?: bool, 6 template: PodTemplate, 7 backoffLimit?: int, 8 ttlSecondsAfterFinished?: int, \
    9 completionMode?, 10 suspend?: bool
JobStatus = 4 active: int, 5 succeeded: int, 6 failed: int, 7 completedIndexes
PodTemplate = 1 metadata: ObjectMeta, 2 spec: PodSpec
PodSpec = 2 containers: []Container, 3 restartPolicy, 4 terminationGracePeriodSeconds?: int, \
    5 activeDeadlineSeconds?: int, 6 dnsPolicy, 7 nodeSelector: {}text, 8 serviceAccountName, 9 serviceAccount, \
    10 nodeName, 11 hostNetwork: bool, 12 hostPID: bool, 13 hostIPC: bool, 15 imagePullSecrets: []NameReference, \
    16 hostname, 17 subdomain, 19 schedulerName, 20 initContainers: []Container, \
    21 automountServiceAccountToken?: bool, 24 priorityClassName
Container = 1 name, 2 image, 3 command: []text, 4 args: []text, 5 workingDir, 7 env: []EnvVar, \
    8 resources: Resources, 13 terminationMessagePath, 14 imagePullPolicy, 16 stdin: bool, 17 stdinOnce: bool, \
    18 tty: bool, 20 terminationMessagePolicy
EnvVar = 1 name, 2 value
Resources = 1 limits: {}Quantity, 2 requests: {}Quantity
";

/// What one value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Int,
    Bool,
    Bytes,
    /// A moment, to the second.
    Time,
    /// A moment, to the microsecond.
    Micro,
    /// Bytes that are JSON, in a message of their own.
    Json,
    /// A number or a text.
    NumberOrText,
    /// A text in a message of its own.
    Quantity,
    Message(&'static str),
}

/// How often it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    One,
    List,
    Map,
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub name: &'static str,
    pub of: Type,
    pub count: Count,
    /// Its zero means something.
    pub optional: bool,
}

/// The fields of a message by their numbers.
pub(super) type Message = BTreeMap<u64, Field>;

static TABLE: LazyLock<BTreeMap<&'static str, Message>> = LazyLock::new(|| MESSAGES.lines().filter_map(line).collect());

fn line(line: &'static str) -> Option<(&'static str, Message)> {
    let (name, fields) = line.split_once(" = ")?;
    Some((name, fields.split(", ").filter_map(field).collect()))
}

fn field(text: &'static str) -> Option<(u64, Field)> {
    let (number, rest) = text.trim().split_once(' ')?;
    let (name, of) = rest.split_once(": ").unwrap_or((rest, "text"));
    let (count, of) = match (of.strip_prefix("[]"), of.strip_prefix("{}")) {
        (Some(of), _) => (Count::List, of),
        (None, Some(of)) => (Count::Map, of),
        (None, None) => (Count::One, of),
    };
    let of = match of {
        "text" => Type::Text,
        "int" => Type::Int,
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "time" => Type::Time,
        "micro" => Type::Micro,
        "json" => Type::Json,
        "number-or-text" => Type::NumberOrText,
        "Quantity" => Type::Quantity,
        message => Type::Message(message),
    };
    let (name, optional) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
    Some((number.parse().ok()?, Field { name, of, count, optional }))
}

/// The message of a kind, if it is read.
pub(super) fn of_kind(api_version: &str, kind: &str) -> Option<&'static str> {
    // Every group has the options of a deletion.
    if kind == "DeleteOptions" {
        return Some("DeleteOptions");
    }
    KINDS.iter().find(|entry| (entry.0, entry.1) == (api_version, kind)).map(|entry| entry.2)
}

/// The fields of a message.
pub(super) fn message(name: &str) -> Option<&'static Message> {
    TABLE.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_that_is_named_is_there_and_every_line_is_read_whole() {
        for (_, _, name) in KINDS {
            assert!(TABLE.contains_key(name), "{name}");
        }
        let lines = MESSAGES.lines().filter(|line| !line.is_empty());
        for line in lines {
            let (name, fields) = line.split_once(" = ").unwrap();
            assert_eq!(TABLE[name].len(), fields.split(',').count(), "{name}");
        }
        for field in TABLE.values().flat_map(Message::values) {
            assert!(!matches!(field.of, Type::Message(name) if !TABLE.contains_key(name)), "{field:?}");
        }
    }
}
