//! What `coregent install` prints.

use coregent_operator::install::{Install, install};
use serde_json::Value;
use std::collections::BTreeSet;

fn objects() -> Vec<Value> {
    install(&Install {
        namespace: "coregent-system".into(),
        image: "coregent:VERSION".into(),
        replicas: 2,
        pod_monitor: true,
    })
    .unwrap()
}

#[test]
fn everything_but_our_kinds_is_as_it_was() {
    let ours: Vec<_> = objects().into_iter().filter(|object| object["kind"] != "CustomResourceDefinition").collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&ours).unwrap());
}

/// Nobody may grant what they may not themselves: a cluster without its members' role would never start.
#[test]
fn the_operator_may_all_that_it_grants_to_members() {
    let cluster = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "orders", "namespace": "shop", "uid": "u"},
        "spec": {"engine": {"postgresql": {"version": "15"}}, "storage": {"size": "1Gi"}},
    }))
    .unwrap();
    let objects = objects();
    let own = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap()["rules"].as_array().unwrap();
    let has = |list: &Value, one: &str| list.as_array().unwrap().iter().any(|value| value == one);
    for rule in coregent_operator::objects::role(&cluster, &[1]).rules.unwrap() {
        for verb in &rule.verbs {
            let (group, resource) = (&rule.api_groups.as_ref().unwrap()[0], &rule.resources.as_ref().unwrap()[0]);
            let may = |own: &Value| {
                has(&own["apiGroups"], group) && has(&own["resources"], resource) && has(&own["verbs"], verb)
            };
            assert!(own.iter().any(may), "{verb} {resource} of {group:?}");
        }
    }
}

/// `group/resource verb`, one of each.
fn split(rules: &[Value]) -> BTreeSet<String> {
    let words = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut all = BTreeSet::new();
    for rule in rules {
        for (group, resource) in words(&rule["apiGroups"])
            .iter()
            .flat_map(|group| words(&rule["resources"]).into_iter().map(move |resource| (group.clone(), resource)))
        {
            let of = format!("{group}/{resource}");
            all.extend(words(&rule["verbs"]).iter().map(|verb| format!("{} {verb}", of.trim_start_matches('/'))));
        }
    }
    all
}

/// Least privilege: what a recorded run used, and what members are granted.
#[test]
fn the_operator_may_what_a_recorded_run_used_and_what_it_grants_and_nothing_else() {
    let recorded = include_str!("../../../../dev/kubernetes/rights.txt");
    let mut wanted = BTreeSet::new();
    for line in recorded.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (resource, verbs) = line.split_once(':').unwrap();
        let verbs = verbs.split('#').next().unwrap().split(',');
        wanted.extend(verbs.map(|verb| format!("{resource} {}", verb.trim())));
    }
    let cluster = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "orders", "namespace": "shop", "uid": "u"},
        "spec": {"engine": {"postgresql": {"version": "15"}}, "storage": {"size": "1Gi"}},
    }))
    .unwrap();
    let granted = serde_json::to_value(coregent_operator::objects::role(&cluster, &[1]).rules.unwrap()).unwrap();
    wanted.extend(split(granted.as_array().unwrap()));
    let objects = objects();
    let role = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    assert_eq!(split(role["rules"].as_array().unwrap()), wanted);
}
