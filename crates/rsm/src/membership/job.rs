//! Actions that a Job with a pod of its own carries out (rsm.md 6.3).

use coregent_api::labels;
use coregent_api::pod::typed;
use coregent_api::rsm::{ActionKind, MemberAction, MemberOperation, OperationCause};
use coregent_core::rsm::roles::member_number;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::{bounds, leader, place};
use crate::dag::{Action, Dag, Step};
use crate::names;
use crate::operation::Outcome;
use crate::ownership::controller_reference;
use crate::render::probe::{service_port, variables};
use crate::transformer::Interrupt;
use crate::world::World;

/// On a Job: the start and the attempt of the action that it carries out, as `<id>.<attempt>`.
const ATTEMPT: &str = "coregent.io/member-operation";
/// On a Job: why it was begun (rsm.md 6.3).
const SCENARIO: &str = "coregent.io/job-scenario";
/// On a Job: which action it is.
const TYPE: &str = "coregent.io/job-type";
/// Without an image of the set's own.
const DEFAULT_IMAGE: &str = "busybox:1.35";
/// A Job's name becomes the value of a label.
const LONGEST_NAME: usize = 63;

/// Jobs of a set; only looked for while an action by Job is under way.
pub(crate) async fn list(client: &Client, namespace: &str, selector: &str) -> Result<Vec<Job>, kube::Error> {
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    Ok(api.list(&ListParams::default().labels(selector)).await?.items)
}

fn attempt(operation: &MemberOperation) -> String {
    format!("{}.{}", operation.id, operation.attempt)
}

fn found<'a>(world: &'a World, operation: &MemberOperation) -> Option<&'a Job> {
    let wanted = attempt(operation);
    world.jobs.iter().find(|job| job.labels().get(ATTEMPT) == Some(&wanted))
}

pub(super) fn outcome(world: &World, operation: &MemberOperation) -> Outcome {
    let Some(status) = found(world, operation).and_then(|job| job.status.as_ref()) else { return Outcome::Pending };
    let failed =
        status.conditions.iter().flatten().find(|condition| condition.type_ == "Failed" && condition.status == "True");
    match failed {
        _ if status.succeeded.unwrap_or_default() > 0 => Outcome::Done,
        Some(condition) => Outcome::Failed(condition.message.clone().unwrap_or_else(|| "its Job failed".to_owned())),
        None => Outcome::Pending,
    }
}

pub(super) fn create(
    world: &World,
    operation: &MemberOperation,
    action: &MemberAction,
    dag: &mut Dag,
) -> Result<(), Interrupt> {
    if found(world, operation).is_none() {
        dag.add(Step::new(&job(world, operation, action)?, Action::Create)?);
    }
    Ok(())
}

fn job(world: &World, operation: &MemberOperation, action: &MemberAction) -> Result<Job, Interrupt> {
    let rsm = &world.rsm;
    let actions = rsm.spec.membership_reconfiguration.clone().unwrap_or_default();
    let kind = operation.action.slug();
    let mut job = Job::default();
    job.metadata.name = Some(name(world, operation));
    job.metadata.namespace = rsm.metadata.namespace.clone();
    job.metadata.owner_references = controller_reference(rsm).map(|owner| vec![owner]);
    let mut all = names::generated_labels(rsm);
    let scenario = match operation.cause {
        OperationCause::Scale => "membership-reconfiguration",
        OperationCause::Update => "pod-update",
    };
    all.insert(ATTEMPT.to_owned(), attempt(operation));
    all.insert(SCENARIO.to_owned(), scenario.to_owned());
    all.insert(TYPE.to_owned(), kind.to_owned());
    job.metadata.labels = Some(all);
    let container = Container {
        name: kind.to_owned(),
        image: Some(actions.image(operation.action).unwrap_or(DEFAULT_IMAGE).to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(action.command.clone()),
        args: (!action.args.is_empty()).then(|| action.args.clone()),
        env: Some(environment(world, operation)?),
        ..Container::default()
    };
    let mut template = PodTemplateSpec::default();
    // Not the labels by which members are told.
    template.metadata.get_or_insert_default().labels =
        Some([(labels::CLUSTER.to_owned(), rsm.name_any()), (TYPE.to_owned(), kind.to_owned())].into());
    let spec = PodSpec { containers: vec![container], restart_policy: Some("Never".to_owned()), ..PodSpec::default() };
    template.spec = Some(spec);
    job.spec = Some(JobSpec {
        template,
        // One Job is one attempt: how often and when it is tried again is ours to decide and to show.
        backoff_limit: Some(0),
        active_deadline_seconds: Some(i64::from(bounds(rsm).timeout_seconds)),
        ttl_seconds_after_finished: Some(3_600),
        suspend: Some(false),
        ..JobSpec::default()
    });
    Ok(job)
}

/// `<set>-<generation>-<number>-<type>`, the attempt from the second on, and the moment of the start where an earlier one has
/// that name still: a retry that a person asks for, or a second switchover of one rollout. Its Job would be taken for ours.
fn name(world: &World, operation: &MemberOperation) -> String {
    let rsm = &world.rsm;
    let number = member_number(&rsm.name_any(), &operation.member, false);
    let generation = rsm.metadata.generation.unwrap_or_default();
    let named = |end: &str| {
        let begin: String = rsm.name_any().chars().take(LONGEST_NAME.saturating_sub(end.len())).collect();
        format!("{begin}{end}")
    };
    let mut end = format!("-{generation}-{number}-{}", operation.action.slug());
    if operation.attempt > 1 {
        end.push_str(&format!("-{}", operation.attempt));
    }
    let usual = named(&end);
    if !world.jobs.iter().any(|job| job.name_any() == usual) {
        return usual;
    }
    let start = operation.id.rsplit_once('-').map_or(operation.id.as_str(), |(_, start)| start);
    named(&format!("{end}-{start}"))
}

fn environment(world: &World, operation: &MemberOperation) -> Result<Vec<EnvVar>, Interrupt> {
    let rsm = &world.rsm;
    let value = |name: &str, value: String| EnvVar { name: name.to_owned(), value: Some(value), value_from: None };
    let target = match (operation.action, &operation.target) {
        (ActionKind::Switchover, Some(target)) => target,
        _ => &operation.member,
    };
    let template: PodTemplateSpec = typed("spec.template", &rsm.spec.template).map_err(Interrupt::failed)?;
    let port = service_port(rsm, &template).map_err(Interrupt::failed)?.unwrap_or_default();
    let mut env = vec![
        value("KB_RSM_LEADER_HOST", place(rsm, &leader(world).unwrap_or_default()).host),
        value("KB_RSM_SERVICE_PORT", port.to_string()),
        value("KB_RSM_TARGET_HOST", place(rsm, target).host),
    ];
    if let Some(credential) = &rsm.spec.credential {
        env.extend(variables(credential, ["KB_RSM_USERNAME", "KB_RSM_PASSWORD"]).map_err(Interrupt::failed)?);
    }
    Ok(env)
}
