//! The environment and the command line of a container. Pure.

use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, Pod, ResourceFieldSelector, Secret},
    apimachinery::pkg::api::resource::Quantity,
};

use super::state::spec;

/// Where references lead.
pub(crate) trait Objects {
    /// A Secret of the pod's namespace.
    fn secret(&self, name: &str) -> Option<Arc<Secret>>;
    /// A ConfigMap of the pod's namespace.
    fn config_map(&self, name: &str) -> Option<Arc<ConfigMap>>;
}

/// What the downward API tells a pod about itself.
#[derive(Clone, Debug)]
pub(crate) struct Downward<'a> {
    pub pod: &'a Pod,
    pub ip: Option<Ipv4Addr>,
    pub host_ip: Ipv4Addr,
    /// CPUs and bytes of memory of the node, which stand for limits that are not set.
    pub cpus: u64,
    pub memory: u64,
}

/// Why a container's configuration cannot be made; it is tried again when an object changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{kind} {name:?} not found; the container starts when it is created")]
    Missing { kind: &'static str, name: String },
    #[error("couldn't find key {key:?} in {kind} {name:?}; the container starts when it is added")]
    NoKey { kind: &'static str, name: String, key: String },
    #[error("{kind} {name:?}, key {key:?} is not text and cannot be an environment variable")]
    NotText { kind: &'static str, name: String, key: String },
    #[error("the downward API has no field {0:?}")]
    Field(String),
}

/// `vars` in order, later ones replacing earlier ones of the same name.
fn set(vars: &mut Vec<(String, String)>, name: String, value: String) {
    match vars.iter_mut().find(|(have, _)| *have == name) {
        Some((_, old)) => *old = value,
        None => vars.push((name, value)),
    }
}

/// The environment of a container on top of `base`: `envFrom` first, then `env`, in which `$(VAR)` refers to
/// what stands before it.
pub(crate) fn environment(
    container: &Container,
    base: Vec<(String, String)>,
    objects: &dyn Objects,
    downward: &Downward<'_>,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut vars = base;
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            match objects.config_map(&reference.name) {
                Some(map) => {
                    for (key, value) in map.data.iter().flatten() {
                        set(&mut vars, format!("{prefix}{key}"), value.clone());
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(ConfigError::Missing { kind: "configmap", name: reference.name.clone() }),
            }
        }
        if let Some(reference) = &source.secret_ref {
            match objects.secret(&reference.name) {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        // As with Kubernetes, a value that cannot be a variable is left out of `envFrom`.
                        if let Ok(text) = std::str::from_utf8(&value.0) {
                            set(&mut vars, format!("{prefix}{key}"), text.to_owned());
                        }
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(ConfigError::Missing { kind: "secret", name: reference.name.clone() }),
            }
        }
    }
    for var in container.env.iter().flatten() {
        if let Some(value) = value(container, var, &vars, objects, downward)? {
            set(&mut vars, var.name.clone(), value);
        }
    }
    Ok(vars)
}

fn value(
    container: &Container,
    var: &EnvVar,
    vars: &[(String, String)],
    objects: &dyn Objects,
    downward: &Downward<'_>,
) -> Result<Option<String>, ConfigError> {
    match &var.value_from {
        None => Ok(Some(expand(var.value.as_deref().unwrap_or_default(), vars))),
        Some(source) => from_source(container, source, objects, downward),
    }
}

fn from_source(
    container: &Container,
    source: &EnvVarSource,
    objects: &dyn Objects,
    downward: &Downward<'_>,
) -> Result<Option<String>, ConfigError> {
    if let Some(field) = &source.field_ref {
        return downward.field(&field.field_path).map(Some);
    }
    if let Some(resource) = &source.resource_field_ref {
        return downward.resource(Some(container), resource).map(Some);
    }
    if let Some(r) = &source.secret_key_ref {
        return secret_key(objects, &r.name, &r.key, r.optional == Some(true));
    }
    if let Some(r) = &source.config_map_key_ref {
        let optional = r.optional == Some(true);
        let Some(map) = objects.config_map(&r.name) else {
            return absent(optional, ConfigError::Missing { kind: "configmap", name: r.name.clone() });
        };
        return match map.data.as_ref().and_then(|data| data.get(&r.key)) {
            Some(value) => Ok(Some(value.clone())),
            None => {
                absent(optional, ConfigError::NoKey { kind: "configmap", name: r.name.clone(), key: r.key.clone() })
            }
        };
    }
    Ok(Some(String::new()))
}

fn secret_key(objects: &dyn Objects, name: &str, key: &str, optional: bool) -> Result<Option<String>, ConfigError> {
    let kind = "secret";
    let Some(secret) = objects.secret(name) else {
        return absent(optional, ConfigError::Missing { kind, name: name.into() });
    };
    let Some(value) = secret.data.as_ref().and_then(|data| data.get(key)) else {
        return absent(optional, ConfigError::NoKey { kind, name: name.into(), key: key.into() });
    };
    String::from_utf8(value.0.clone()).map(Some).map_err(|_| ConfigError::NotText {
        kind,
        name: name.into(),
        key: key.into(),
    })
}

fn absent(optional: bool, error: ConfigError) -> Result<Option<String>, ConfigError> {
    if optional { Ok(None) } else { Err(error) }
}

/// Replaces `$(NAME)` by its value; an unknown name stays as it is and `$$` is a plain `$`
/// (Kubernetes, "Define Dependent Environment Variables").
pub(crate) fn expand(text: &str, vars: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match vars.iter().find(|(have, _)| have == name) {
                Some((_, value)) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

impl Downward<'_> {
    /// A `fieldRef`.
    pub fn field(&self, path: &str) -> Result<String, ConfigError> {
        let meta = &self.pod.metadata;
        let spec = spec(self.pod);
        let owned = |value: &Option<String>| value.clone().unwrap_or_default();
        Ok(match path {
            "metadata.name" => owned(&meta.name),
            "metadata.namespace" => owned(&meta.namespace),
            "metadata.uid" => owned(&meta.uid),
            "metadata.labels" => lines(meta.labels.as_ref()),
            "metadata.annotations" => lines(meta.annotations.as_ref()),
            "spec.nodeName" => owned(&spec.node_name),
            "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_else(|| "default".into()),
            "status.podIP" | "status.podIPs" => self.ip.map(|ip| ip.to_string()).unwrap_or_default(),
            "status.hostIP" | "status.hostIPs" => self.host_ip.to_string(),
            _ => {
                let (map, key) = path
                    .strip_suffix("']")
                    .and_then(|p| p.split_once("['"))
                    .ok_or_else(|| ConfigError::Field(path.into()))?;
                let map = match map {
                    "metadata.labels" => meta.labels.as_ref(),
                    "metadata.annotations" => meta.annotations.as_ref(),
                    _ => return Err(ConfigError::Field(path.into())),
                };
                map.and_then(|m| m.get(key)).cloned().unwrap_or_default()
            }
        })
    }

    /// A `resourceFieldRef`; a limit that is not set is all that the node has.
    pub fn resource(
        &self,
        container: Option<&Container>,
        selector: &ResourceFieldSelector,
    ) -> Result<String, ConfigError> {
        let unknown = || ConfigError::Field(selector.resource.clone());
        let named = selector
            .container_name
            .as_deref()
            .and_then(|name| spec(self.pod).containers.iter().find(|c| c.name == name));
        let container = named.or(container).ok_or_else(unknown)?;
        let (list, name) = selector.resource.split_once('.').ok_or_else(unknown)?;
        let resources = container.resources.clone().unwrap_or_default();
        let limit = resources.limits.as_ref().and_then(|l| l.get(name));
        let asked = match list {
            "limits" => limit,
            "requests" => resources.requests.as_ref().and_then(|r| r.get(name)).or(limit),
            _ => return Err(unknown()),
        };
        let amount = match (asked.and_then(amount), list, name) {
            (Some(amount), ..) => amount,
            #[expect(clippy::cast_precision_loss, reason = "CPUs and bytes of one machine fit 52 bits")]
            (None, "limits", "cpu") => self.cpus as f64,
            #[expect(clippy::cast_precision_loss, reason = "CPUs and bytes of one machine fit 52 bits")]
            (None, "limits", "memory") => self.memory as f64,
            _ => 0.0,
        };
        let divisor = selector.divisor.as_ref().and_then(amount_of_divisor).unwrap_or(1.0);
        Ok(format!("{:.0}", (amount / divisor).ceil()))
    }
}

fn amount_of_divisor(quantity: &Quantity) -> Option<f64> {
    amount(quantity).filter(|n| *n > 0.0)
}

/// The number that a quantity stands for.
pub(crate) fn amount(quantity: &Quantity) -> Option<f64> {
    let text = quantity.0.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '-' | '+')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        _ => return text.parse().ok(), // exponents, such as 1e3
    };
    number.parse::<f64>().ok().map(|n| n * factor)
}

/// Labels or annotations as the downward API writes them: `key="value"`, a line each.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}\n")).collect()
}

/// The command line: the pod's `command` replaces the image's entry point and its default arguments,
/// the pod's `args` only the latter.
pub(crate) fn command_line(
    container: &Container,
    entrypoint: &[String],
    default_args: &[String],
    vars: &[(String, String)],
) -> Vec<String> {
    let expand_all = |list: &[String]| list.iter().map(|a| expand(a, vars)).collect::<Vec<_>>();
    let command = container.command.as_deref().filter(|c| !c.is_empty());
    let args = container.args.as_deref().filter(|a| !a.is_empty());
    let mut argv = command.map_or_else(|| entrypoint.to_vec(), expand_all);
    match args {
        Some(args) => argv.extend(expand_all(args)),
        None if command.is_none() => argv.extend(default_args.iter().cloned()),
        None => {}
    }
    argv
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Fixture;

    impl Objects for Fixture {
        fn secret(&self, name: &str) -> Option<Arc<Secret>> {
            (name == "s")
                .then(|| Arc::new(serde_json::from_value(json!({"data": {"k": "dmFsdWU=", "bad": "//8="}})).unwrap()))
        }

        fn config_map(&self, name: &str) -> Option<Arc<ConfigMap>> {
            (name == "c").then(|| Arc::new(serde_json::from_value(json!({"data": {"A": "1", "B": "2"}})).unwrap()))
        }
    }

    fn check(container: serde_json::Value) -> Result<String, String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app/x": "y"}},
            "spec": {"nodeName": "here", "containers": []},
        }))
        .unwrap();
        let mut container = container;
        container["name"] = "c".into();
        let container: Container = serde_json::from_value(container).unwrap();
        let downward = Downward {
            pod: &pod,
            ip: Some(Ipv4Addr::new(127, 64, 0, 2)),
            host_ip: Ipv4Addr::new(127, 64, 0, 1),
            cpus: 2,
            memory: 4 << 30,
        };
        let base = vec![("PATH".to_owned(), "/bin".to_owned())];
        environment(&container, base, &Fixture, &downward)
            .map(|vars| vars[1..].iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn variables_come_from_everywhere_kubernetes_has_them() {
        let field = |path: &str| json!({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]});
        let resource = |name: &str, divisor: &str| {
            json!({"resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "250m"}},
                "env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": name, "divisor": divisor}}}]})
        };
        for (container, expected) in [
            (
                json!({"env": [{"name": "X", "value": "a"}, {"name": "Y", "value": "$(X)b $(NO) $$(X)"}]}),
                "X=a Y=ab $(NO) $(X)",
            ),
            (field("metadata.name"), "X=p"),
            (field("metadata.labels['app/x']"), "X=y"),
            (field("spec.nodeName"), "X=here"),
            (field("status.podIP"), "X=127.64.0.2"),
            (field("status.hostIP"), "X=127.64.0.1"),
            (resource("limits.memory", "1Mi"), "X=64"),
            (resource("limits.cpu", "1"), "X=2"),
            (resource("requests.cpu", "1m"), "X=250"),
            (json!({"envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}]}), "P_A=1 P_B=2"),
            (json!({"envFrom": [{"secretRef": {"name": "s"}}], "env": [{"name": "k", "value": "own"}]}), "k=own"),
            (json!({"envFrom": [{"secretRef": {"name": "none", "optional": true}}]}), ""),
            (json!({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}), "X=value"),
            (json!({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "A"}}}]}), "X=1"),
            (
                json!({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "Z", "optional": true}}}]}),
                "",
            ),
        ] {
            assert_eq!(check(container.clone()).as_deref(), Ok(expected), "{container}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (container, expected) in [
            (json!({"envFrom": [{"secretRef": {"name": "none"}}]}), r#"secret "none" not found"#),
            (
                json!({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "z"}}}]}),
                r#"couldn't find key "z" in secret "s""#,
            ),
            (
                json!({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "bad"}}}]}),
                "is not text",
            ),
            (json!({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}]}), "spec.nope"),
        ] {
            let error = check(container.clone()).unwrap_err();
            assert!(error.contains(expected), "{container}: {error}");
        }
    }

    #[test]
    fn command_and_args_replace_what_the_image_brings() {
        let vars = vec![("N".to_owned(), "5".to_owned())];
        for (container, expected) in [
            (json!({"name": "c"}), "entry default"),
            (json!({"name": "c", "args": ["-n", "$(N)"]}), "entry -n 5"),
            (json!({"name": "c", "command": ["sleep"]}), "sleep"),
            (json!({"name": "c", "command": ["sleep"], "args": ["$(N)"]}), "sleep 5"),
        ] {
            let parsed: Container = serde_json::from_value(container.clone()).unwrap();
            let argv = command_line(&parsed, &["entry".into()], &["default".into()], &vars);
            assert_eq!(argv.join(" "), expected, "{container}");
        }
    }

    #[test]
    fn quantities_are_read_with_every_suffix() {
        for (text, expected) in [("1", 1.0), ("250m", 0.25), ("1Gi", 1073741824.0), ("2k", 2000.0), ("1e3", 1000.0)] {
            assert_eq!(amount(&Quantity(text.into())), Some(expected), "{text}");
        }
    }
}
