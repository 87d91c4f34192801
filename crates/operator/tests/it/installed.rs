//! What `coregent install` prints.

use coregent_operator::install::{Install, install};
use serde_json::Value;

fn objects() -> Vec<Value> {
    install(&Install { namespace: "coregent-system".into(), image: "coregent:VERSION".into(), replicas: 2 }).unwrap()
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
