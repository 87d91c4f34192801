//! An Event about the role of this pod (rsm.md 3.8).

use coregent_core::rsm::probe::Message;
use coregent_core::rsm::report::CHECK_ROLE;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client};

use super::config::ProbeConfig;

/// Who says so.
const COMPONENT: &str = "coregent-probe";
/// The container that the controller takes reports from.
const PATH: &str = "spec.containers{kb-role-probe}";

/// Makes the Event that says `message`, as of `seen`: the controller orders what it hears by that moment.
pub(super) async fn send(
    client: &Client,
    config: &ProbeConfig,
    message: &Message,
    seen: Timestamp,
) -> Result<(), kube::Error> {
    let events: Api<Event> = Api::namespaced(client.clone(), &config.namespace);
    events.create(&PostParams::default(), &event(config, message, seen, &super::random())).await.map(drop)
}

fn event(config: &ProbeConfig, message: &Message, seen: Timestamp, random: &str) -> Event {
    // The name of a pod may be as long as that of an Event.
    let pod: String = config.pod.chars().take(230).collect();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{pod}.{random}")),
            namespace: Some(config.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(config.namespace.clone()),
            name: Some(config.pod.clone()),
            uid: Some(config.pod_uid.clone()),
            field_path: Some(PATH.to_owned()),
            ..ObjectReference::default()
        },
        reason: Some(CHECK_ROLE.to_owned()),
        message: serde_json::to_string(message).ok(),
        type_: Some(if message.event == "Success" { "Normal" } else { "Warning" }.to_owned()),
        action: Some(CHECK_ROLE.to_owned()),
        count: Some(1),
        event_time: Some(MicroTime(seen)),
        first_timestamp: Some(Time(seen)),
        last_timestamp: Some(Time(seen)),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(config.pod.chars().take(128).collect()),
        ..Event::default()
    }
}
