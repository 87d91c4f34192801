//! What becomes of a Job, step by step.

use std::time::Duration;

use serde_json::{Value, json};

use crate::controllers::fixture::Fixture;
use crate::controllers::registry::Controller::Job;

fn fixture(spec: Value) -> Fixture {
    let mut object = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "work" },
        "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "main" }] } } },
    });
    json_patch::merge(&mut object["spec"], &spec);
    let mut fixture = Fixture::new();
    fixture.put(object).settle(Job, "work");
    fixture
}

fn active(fixture: &Fixture) -> Vec<String> {
    let pods = fixture.world.tables.pods.all();
    let active = pods.filter(|pod| super::pod::is_active(pod));
    active.map(|pod| pod.metadata.name.clone().unwrap()).collect()
}

/// Ends the first active pod.
fn end(fixture: &mut Fixture, phase: &str) {
    let pod = active(fixture).remove(0);
    let finished = fixture.now.wall.to_string();
    let status = json!({
        "phase": phase,
        "containerStatuses": [{
            "name": "main", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": { "terminated": { "exitCode": 1, "finishedAt": finished } },
        }],
    });
    fixture.change("Pod", &pod, json!({ "status": status })).settle(Job, "work");
}

fn status(fixture: &Fixture) -> Value {
    fixture.get("Job", "work").unwrap()["status"].clone()
}

fn conditions(fixture: &Fixture) -> Vec<String> {
    let conditions = status(fixture)["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().map(|c| format!("{} {}", c["type"].as_str().unwrap(), c["reason"].as_str().unwrap())).collect()
}

fn wait(fixture: &mut Fixture, seconds: u64) {
    fixture.now.wall += Duration::from_secs(seconds);
    fixture.settle(Job, "work");
}

#[test]
fn a_job_is_complete_when_as_many_pods_have_succeeded_as_it_wants() {
    let mut fixture = fixture(json!({ "completions": 3, "parallelism": 2 }));
    assert_eq!(active(&fixture).len(), 2);
    assert_eq!(status(&fixture)["active"], 2);
    end(&mut fixture, "Succeeded");
    assert_eq!((active(&fixture).len(), status(&fixture)["succeeded"].clone()), (2, json!(1)));
    end(&mut fixture, "Succeeded");
    assert_eq!(active(&fixture).len(), 1);
    end(&mut fixture, "Succeeded");
    assert_eq!(status(&fixture)["succeeded"], 3);
    assert_eq!(conditions(&fixture), ["SuccessCriteriaMet CompletionsReached", "Complete CompletionsReached"]);
    assert!(status(&fixture)["completionTime"].is_string());
    assert!(fixture.decide(Job, "work").is_quiet());
}

#[test]
fn an_end_is_counted_once_even_when_the_pod_is_removed_right_after() {
    let mut fixture = fixture(json!({ "completions": 2 }));
    end(&mut fixture, "Succeeded");
    let done: Vec<String> = fixture
        .world
        .tables
        .pods
        .all()
        .filter(|pod| !super::pod::is_active(pod))
        .map(|pod| pod.metadata.name.clone().unwrap())
        .collect();
    fixture.remove("Pod", &done[0]).settle(Job, "work");
    assert_eq!(status(&fixture)["succeeded"], 1);
    end(&mut fixture, "Succeeded");
    assert_eq!(status(&fixture)["succeeded"], 2);
}

#[test]
fn the_finalizer_of_a_pod_goes_only_after_its_end_is_on_record() {
    let mut fixture = fixture(json!({}));
    let pod = active(&fixture).remove(0);
    fixture.change("Pod", &pod, json!({ "status": { "phase": "Succeeded" } }));
    let first = fixture.lines(Job, "work");
    assert!(first.iter().all(|line| line.starts_with("patch status of Job")), "{first:?}");
    fixture.step(Job, "work");
    assert!(fixture.lines(Job, "work").iter().any(|line| line.starts_with("patch Pod")));
}

#[test]
fn a_failed_pod_is_tried_again_after_a_pause_and_the_limit_ends_the_job() {
    let mut fixture = fixture(json!({ "backoffLimit": 1 }));
    end(&mut fixture, "Failed");
    assert!(active(&fixture).is_empty());
    assert_eq!(fixture.decide(Job, "work").look_again, Some(Duration::from_secs(10)));
    wait(&mut fixture, 10);
    assert_eq!(active(&fixture).len(), 1);
    end(&mut fixture, "Failed");
    assert_eq!(conditions(&fixture), ["FailureTarget BackoffLimitExceeded", "Failed BackoffLimitExceeded"]);
    assert_eq!(status(&fixture)["failed"], 2);
}

#[test]
fn a_job_past_its_deadline_is_ended_with_its_pods() {
    let mut fixture = fixture(json!({ "activeDeadlineSeconds": 60 }));
    assert_eq!(fixture.decide(Job, "work").look_again, Some(Duration::from_secs(60)));
    wait(&mut fixture, 60);
    assert!(active(&fixture).is_empty());
    assert_eq!(conditions(&fixture)[0], "FailureTarget DeadlineExceeded");
}

#[test]
fn a_finished_job_goes_when_its_time_is_over() {
    let mut fixture = fixture(json!({ "ttlSecondsAfterFinished": 30 }));
    end(&mut fixture, "Succeeded");
    assert_eq!(fixture.decide(Job, "work").look_again, Some(Duration::from_secs(30)));
    fixture.now.wall += Duration::from_secs(30);
    assert_eq!(fixture.lines(Job, "work"), ["delete Job default/work in the foreground"]);
}

#[test]
fn a_suspended_job_has_no_pods() {
    let mut fixture = fixture(json!({ "suspend": true }));
    assert!(active(&fixture).is_empty());
    fixture.change("Job", "work", json!({ "spec": { "suspend": false } })).settle(Job, "work");
    assert_eq!(active(&fixture).len(), 1);
}
