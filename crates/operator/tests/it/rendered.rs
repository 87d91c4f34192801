//! What a cluster consists of, as it is sent to the API.

use coregent_api::DatabaseCluster;
use coregent_operator::{objects, validate};
use serde_json::json;

fn cluster(spec: serde_json::Value) -> DatabaseCluster {
    let mut object = json!({
        "apiVersion": "coregent.io/v1alpha1",
        "kind": "DatabaseCluster",
        "metadata": {"name": "orders", "namespace": "shop", "uid": "11111111-2222-3333-4444-555555555555"},
        "spec": {"engine": {"postgresql": {"version": "15"}}, "storage": {"size": "1Gi"}},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

#[test]
fn the_set_of_a_cluster_with_nothing_but_defaults() {
    let rsm = objects::rsm(&cluster(json!({})), &[1, 2, 3], "coregent:VERSION");
    insta::assert_snapshot!(serde_json::to_string_pretty(&rsm).unwrap());
}

#[test]
fn the_account_of_members_may_touch_their_own_leases_and_events_only() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&objects::role(&cluster(json!({})), &[1, 2])).unwrap());
}

#[test]
fn the_users_settings_follow_the_base_and_are_quoted() {
    let cluster = cluster(json!({"config": {"work_mem": "16MB", "max_connections": 250, "application_name": "o'r"}}));
    let custom = [("postgresql.conf".to_owned(), "shared_buffers = 256MB\n".to_owned())].into();
    let map = objects::config_map(&cluster, Some(&custom));
    let conf = map.data.unwrap().remove("postgresql.conf").unwrap();
    let (_, of_user) = conf.split_once("# From spec.customConfig.").unwrap();
    assert_eq!(
        of_user,
        "\nshared_buffers = 256MB\n# From spec.config.\napplication_name = 'o''r'\nmax_connections = 250\nwork_mem = '16MB'\n"
    );
}

/// Each row spoils a good spec in one place; the words that the message must hold.
#[test]
fn every_problem_of_a_spec_names_its_field() {
    assert_eq!(validate::problems(&cluster(json!({})).spec), [""; 0]);
    for (spec, words) in [
        (json!({"engine": {"postgresql": {"version": "99"}}}), ["version", "99"]),
        (json!({"config": {"synchronous_standby_names": "*"}}), ["spec.config.synchronous_standby_names", "remove it"]),
        (json!({"config": {"a b": "1"}}), ["spec.config.a b", "no name"]),
        (json!({"resources": {"limit": {}, "requests": 5}}), ["spec.resources", "expected a map"]),
        (json!({"env": [{"name": "A", "valu": "x"}]}), ["spec.env[0]", "valu"]),
    ] {
        let problems = validate::problems(&cluster(spec.clone()).spec).join("; ");
        assert!(words.iter().all(|word| problems.contains(word)), "{spec}: {problems}");
    }
}
