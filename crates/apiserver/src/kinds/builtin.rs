//! The rows of the built-in kinds.

use std::sync::Arc;

use super::columns::{self, Column};
use super::{Generation, Kind, Scale, api_version};

const EVENT_FIELDS: [(&str, &str); 12] = [
    ("involvedObject.kind", "involvedObject.kind"),
    ("involvedObject.namespace", "involvedObject.namespace"),
    ("involvedObject.name", "involvedObject.name"),
    ("involvedObject.uid", "involvedObject.uid"),
    ("involvedObject.apiVersion", "involvedObject.apiVersion"),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion"),
    ("involvedObject.fieldPath", "involvedObject.fieldPath"),
    ("reason", "reason"),
    ("reportingComponent", "reportingComponent"),
    ("source", "source.component"),
    ("type", "type"),
    ("message", "message"),
];
const REGARDING_FIELDS: [(&str, &str); 7] = [
    ("regarding.kind", "involvedObject.kind"),
    ("regarding.namespace", "involvedObject.namespace"),
    ("regarding.name", "involvedObject.name"),
    ("regarding.uid", "involvedObject.uid"),
    ("reason", "reason"),
    ("reportingController", "reportingComponent"),
    ("type", "type"),
];
const POD_FIELDS: [(&str, &str); 8] = [
    ("spec.nodeName", "spec.nodeName"),
    ("spec.restartPolicy", "spec.restartPolicy"),
    ("spec.schedulerName", "spec.schedulerName"),
    ("spec.serviceAccountName", "spec.serviceAccountName"),
    ("spec.hostNetwork", "spec.hostNetwork"),
    ("status.phase", "status.phase"),
    ("status.podIP", "status.podIP"),
    ("status.nominatedNodeName", "status.nominatedNodeName"),
];

const RBAC: &str = "rbac.authorization.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// A row under construction; the defaults are those of most kinds.
fn row(group: &str, kind: &str, plural: &str, short: &[&str]) -> Kind {
    Kind {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        short_names: short.iter().map(|name| (*name).to_owned()).collect(),
        categories: Vec::new(),
        namespaced: true,
        status: false,
        scale: None,
        generation: Generation::None,
        resource: Arc::from(format!("{group}/{plural}")),
        stored_as: api_version(group, "v1"),
        columns: vec![Column::age()],
        selectable: Vec::new(),
        custom: None,
        review: false,
    }
}

impl Kind {
    fn cluster(mut self) -> Kind {
        self.namespaced = false;
        self
    }

    fn status(mut self) -> Kind {
        self.status = true;
        self
    }

    fn generation(mut self) -> Kind {
        self.generation = Generation::Spec;
        self
    }

    fn all(self) -> Kind {
        self.category("all")
    }

    fn category(mut self, category: &str) -> Kind {
        self.categories.push(category.into());
        self
    }

    fn columns(mut self, columns: Vec<Column>) -> Kind {
        self.columns = columns;
        self
    }

    fn selectable(mut self, fields: &[(&str, &str)]) -> Kind {
        self.selectable = fields.iter().map(|(label, path)| ((*label).into(), format!(".{path}"))).collect();
        self
    }

    fn scale(mut self) -> Kind {
        self.scale = Some(Scale {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            selector: None,
        });
        self
    }

    fn review(mut self) -> Kind {
        self.namespaced = self.kind == "LocalSubjectAccessReview";
        self.review = true;
        self
    }
}

/// Every built-in kind.
pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = core();
    kinds.extend(workloads());
    kinds.extend(rest());
    kinds
}

fn core() -> Vec<Kind> {
    vec![
        row("", "Namespace", "namespaces", &["ns"])
            .cluster()
            .status()
            .columns(columns::namespace())
            .selectable(&[("status.phase", "status.phase")]),
        row("", "Node", "nodes", &["no"])
            .cluster()
            .status()
            .columns(columns::node())
            .selectable(&[("spec.unschedulable", "spec.unschedulable")]),
        row("", "Pod", "pods", &["po"]).status().generation().all().columns(columns::pod()).selectable(&POD_FIELDS),
        row("", "Service", "services", &["svc"])
            .status()
            .all()
            .columns(columns::service())
            .selectable(&[("spec.clusterIP", "spec.clusterIP"), ("spec.type", "spec.type")]),
        row("", "Endpoints", "endpoints", &["ep"]).columns(columns::endpoints()),
        row("", "ConfigMap", "configmaps", &["cm"]).columns(columns::config_map()),
        row("", "Secret", "secrets", &[]).columns(columns::secret()).selectable(&[("type", "type")]),
        row("", "PersistentVolume", "persistentvolumes", &["pv"])
            .cluster()
            .status()
            .columns(columns::persistent_volume()),
        row("", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"])
            .status()
            .columns(columns::persistent_volume_claim()),
        row("", "ServiceAccount", "serviceaccounts", &["sa"]).columns(columns::service_account()),
        row("", "Event", "events", &["ev"]).columns(columns::event()).selectable(&EVENT_FIELDS),
        {
            let mut events = row("events.k8s.io", "Event", "events", &["ev"])
                .columns(columns::event())
                .selectable(&REGARDING_FIELDS);
            events.resource = Arc::from("/events");
            events.stored_as = "v1".into();
            events
        },
    ]
}

fn workloads() -> Vec<Kind> {
    vec![
        row("apps", "StatefulSet", "statefulsets", &["sts"])
            .status()
            .generation()
            .all()
            .scale()
            .columns(columns::stateful_set()),
        row("apps", "ControllerRevision", "controllerrevisions", &[]).columns(columns::controller_revision()),
        row("batch", "Job", "jobs", &[])
            .status()
            .generation()
            .all()
            .columns(columns::job())
            .selectable(&[("status.successful", "status.succeeded")]),
        row("batch", "CronJob", "cronjobs", &["cj"]).status().generation().all().columns(columns::cron_job()),
        row("policy", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"])
            .status()
            .generation()
            .columns(columns::pod_disruption_budget()),
    ]
}

fn rest() -> Vec<Kind> {
    vec![
        row("discovery.k8s.io", "EndpointSlice", "endpointslices", &[]).generation().columns(columns::endpoint_slice()),
        row("networking.k8s.io", "NetworkPolicy", "networkpolicies", &["netpol"])
            .generation()
            .columns(columns::network_policy()),
        row("storage.k8s.io", "StorageClass", "storageclasses", &["sc"]).cluster().columns(columns::storage_class()),
        row("coordination.k8s.io", "Lease", "leases", &[]).columns(columns::lease()),
        row("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", &["crd", "crds"])
            .cluster()
            .status()
            .generation()
            .category("api-extensions")
            .columns(columns::definition()),
        row(RBAC, "Role", "roles", &[]).columns(columns::created()),
        row(RBAC, "RoleBinding", "rolebindings", &[]).columns(columns::binding()),
        row(RBAC, "ClusterRole", "clusterroles", &[]).cluster().columns(columns::created()),
        row(RBAC, "ClusterRoleBinding", "clusterrolebindings", &[]).cluster().columns(columns::binding()),
        row(AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", &[]).review(),
        row(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", &[]).review(),
        row(AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", &[]).review(),
        row(AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", &[]).review(),
        row("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", &[]).review(),
        row("authentication.k8s.io", "TokenReview", "tokenreviews", &[]).review(),
    ]
}
