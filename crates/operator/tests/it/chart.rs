//! The Helm chart renders what `coregent install` prints.

use coregent_operator::install::{Install, install};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a user may change, and what `coregent install` is told for the same.
fn choices() -> [(Value, Install); 2] {
    let of = |image: &str, namespace: &str, replicas, pod_monitor| Install {
        image: image.into(),
        namespace: namespace.into(),
        replicas,
        pod_monitor,
    };
    [
        (json!({}), of(coregent_operator::IMAGE, "coregent-system", 2, false)),
        (
            json!({"image": "registry.example/coregent:7", "namespace": "ops", "replicas": 3, "podMonitor": true}),
            of("registry.example/coregent:7", "ops", 3, true),
        ),
    ]
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/coregent")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// By kind and name: Helm has an order of its own.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let named = |object: Value| (format!("{} {}", object["kind"], object["metadata"]["name"]), object);
    objects.into_iter().map(named).collect()
}

fn parse(text: &str) -> Vec<Value> {
    let documents = text.split("\n---").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    documents.filter(|document| !document.is_null()).collect()
}

/// The few words of Helm's language that the templates keep to; any other is refused.
fn render(template: &str, values: &Value) -> String {
    let mut lines = Vec::new();
    let mut shown = true;
    for line in template.lines() {
        let Some((before, rest)) = line.split_once("{{") else {
            lines.extend(shown.then(|| line.to_owned()));
            continue;
        };
        let (action, after) = rest.split_once("}}").unwrap();
        let words: Vec<&str> = action.trim_start_matches('-').split_whitespace().collect();
        let value = |path: &str| &values[path.strip_prefix(".Values.").unwrap()];
        match words.as_slice() {
            ["if", path] => shown = value(path) == true,
            ["end"] => shown = true,
            _ if !shown => {}
            [path] => {
                let value = value(path);
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                lines.push(format!("{before}{text}{after}"));
            }
            ["toJson", path] => lines.push(format!("{before}{}{after}", value(path))),
            other => panic!("the templates are to stay simple: {other:?}"),
        }
    }
    lines.join("\n")
}

fn rendered(chosen: &Value) -> BTreeMap<String, Value> {
    let mut values: Value = serde_saphyr::from_str(&read(&chart().join("values.yaml"))).unwrap();
    for (key, value) in chosen.as_object().unwrap() {
        assert!(values.get(key).is_some(), "values.yaml does not tell of {key}");
        values[key] = value.clone();
    }
    let mut objects = Vec::new();
    for folder in ["crds", "templates"] {
        for entry in std::fs::read_dir(chart().join(folder)).unwrap() {
            objects.extend(parse(&render(&read(&entry.unwrap().path()), &values)));
        }
    }
    by_name(objects)
}

#[test]
fn the_chart_renders_the_objects_that_install_prints() {
    for (chosen, wanted) in choices() {
        let (found, wanted) = (rendered(&chosen), by_name(install(&wanted).unwrap()));
        assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{chosen}");
        for (name, wanted) in wanted {
            assert_eq!(found[&name], wanted, "{name} with {chosen}");
        }
    }
}

/// With the real program, where there is one (`dev/helm build` makes one from Helm's Go modules).
#[test]
fn helm_renders_the_objects_that_install_prints() {
    let finder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/helm");
    let found = Command::new(finder).output().unwrap();
    if !found.status.success() {
        let reason = String::from_utf8_lossy(&found.stderr);
        eprintln!("SKIPPED helm_renders_the_objects_that_install_prints: {}", reason.trim());
        return;
    }
    let helm = String::from_utf8(found.stdout).unwrap();
    for (chosen, wanted) in choices() {
        let mut command = Command::new(helm.trim());
        command.args(["template", "coregent", "--include-crds", "--namespace", "default"]).arg(chart());
        for (key, value) in chosen.as_object().unwrap() {
            command.arg("--set-json").arg(format!("{key}={value}"));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found = by_name(parse(&String::from_utf8(output.stdout).unwrap()));
        assert_eq!(found, by_name(install(&wanted).unwrap()), "{chosen}");
    }
}
