//! The `/etc/hosts` of every pod: itself, every Service and every named endpoint.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    net::Ipv4Addr,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::{
    core::v1::{HostAlias, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

use crate::{node::Node, pod::state::spec};

const CLUSTER_DOMAIN: &str = "cluster.local";

/// The hosts files that are kept.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    files: Mutex<BTreeMap<String, HostsFile>>,
}

#[derive(Debug)]
struct HostsFile {
    path: PathBuf,
    namespace: String,
    own: String,
}

impl Hosts {
    /// Writes the file of a pod and keeps it from now on.
    pub fn add(&self, node: &Node, pod: &Pod, ip: Ipv4Addr, path: PathBuf) -> io::Result<()> {
        let namespace = pod.namespace().unwrap_or_default();
        let file = HostsFile { path, own: own_lines(pod, ip), namespace };
        let text = render(&file, &Names::of(&node.services.all(), &node.slices.all()));
        write_in_place(&file.path, &text)?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(pod.uid().unwrap_or_default(), file);
        Ok(())
    }

    /// The pod is gone.
    pub fn remove(&self, uid: &str) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn rewrite(&self, names: &Names) {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for file in files.values() {
            if let Err(e) = write_in_place(&file.path, &render(file, names)) {
                tracing::warn!(path = %file.path.display(), "hosts file not written: {e}");
            }
        }
    }
}

/// Keeps all files current until the node stops.
pub(crate) async fn run(node: Arc<Node>, shutdown: CancellationToken) {
    let mut services = node.services.changes();
    let mut slices = node.slices.changes();
    loop {
        let names = Names::of(&node.services.all(), &node.slices.all());
        node.hosts.rewrite(&names);
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = services.changed() => {}
            _ = slices.changed() => {}
        }
    }
}

/// Host names and addresses that are the same for all pods: namespace → (name, addresses).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(Vec<(String, String, Ipv4Addr)>);

impl Names {
    /// From Services with an address, and from the endpoints of those without (headless).
    pub fn of(services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> Self {
        let mut names = Vec::new();
        let mut headless = Vec::new();
        for service in services {
            let namespace = service.namespace().unwrap_or_default();
            let ip = service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()).unwrap_or_default();
            match ip.parse() {
                Ok(ip) => names.push((namespace, service.name_any(), ip)),
                Err(_) if ip == "None" => headless.push((namespace, service.name_any())),
                Err(_) => {}
            }
        }
        for slice in slices {
            let namespace = slice.namespace().unwrap_or_default();
            let Some(service) = slice.labels().get("kubernetes.io/service-name") else { continue };
            if !headless.iter().any(|(ns, name)| *ns == namespace && name == service) {
                continue;
            }
            for endpoint in slice.endpoints.iter().flatten() {
                let Some(ip) = endpoint.addresses.first().and_then(|a| a.parse().ok()) else { continue };
                if let Some(hostname) = &endpoint.hostname {
                    names.push((namespace.clone(), format!("{hostname}.{service}"), ip));
                }
                if endpoint.conditions.as_ref().and_then(|c| c.ready) != Some(false) {
                    names.push((namespace.clone(), service.clone(), ip));
                }
            }
        }
        names.sort();
        names.dedup();
        Self(names)
    }
}

fn own_lines(pod: &Pod, ip: Ipv4Addr) -> String {
    let spec = spec(pod);
    let name = pod.name_any();
    let hostname = spec.hostname.as_deref().unwrap_or(&name);
    let mut text = format!("127.0.0.1 localhost\n{ip}");
    if let Some(subdomain) = &spec.subdomain {
        let namespace = pod.namespace().unwrap_or_default();
        let _ = write!(text, " {hostname}.{subdomain}.{namespace}.svc.{CLUSTER_DOMAIN}");
    }
    let _ = writeln!(text, " {hostname}");
    for HostAlias { hostnames, ip } in spec.host_aliases.iter().flatten() {
        let _ = writeln!(text, "{ip} {}", hostnames.iter().flatten().cloned().collect::<Vec<_>>().join(" "));
    }
    text
}

fn render(file: &HostsFile, names: &Names) -> String {
    let mut text = format!("# Written by the Coregent node.\n{}", file.own);
    for (namespace, name, ip) in &names.0 {
        let qualified = format!("{name}.{namespace}");
        let _ = write!(text, "{ip} {qualified}.svc.{CLUSTER_DOMAIN} {qualified}.svc {qualified}");
        let short = if *namespace == file.namespace { format!(" {name}\n") } else { "\n".to_owned() };
        text.push_str(&short);
    }
    text
}

/// The inode stays: it is what containers have mounted. Only what differs is written, longer text
/// before the cut, so that a reader at any moment finds the lines that have not changed.
fn write_in_place(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|have| have == text) {
        return Ok(());
    }
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)?;
    std::os::unix::fs::PermissionsExt::set_mode(&mut file.metadata()?.permissions(), 0o644);
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use serde_json::json;

    use super::*;

    fn names() -> Names {
        let service = |ns: &str, name: &str, ip: &str| {
            Arc::new(
                serde_json::from_value(json!({"metadata": {"namespace": ns, "name": name}, "spec": {"clusterIP": ip}}))
                    .unwrap(),
            )
        };
        let slice = json!({
            "metadata": {"namespace": "a", "name": "x", "labels": {"kubernetes.io/service-name": "head"}},
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["127.64.0.2"], "hostname": "head-0", "conditions": {"ready": true}},
                {"addresses": ["127.64.0.3"], "hostname": "head-1", "conditions": {"ready": false}},
            ],
        });
        Names::of(
            &[service("a", "web", "127.64.0.180"), service("b", "web", "127.64.0.181"), service("a", "head", "None")],
            &[Arc::new(serde_json::from_value(slice).unwrap())],
        )
    }

    #[test]
    fn services_and_headless_endpoints_have_their_cluster_names() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "a", "name": "head-0"},
            "spec": {"containers": [], "hostname": "head-0", "subdomain": "head",
                "hostAliases": [{"ip": "127.0.0.9", "hostnames": ["x", "y"]}]},
        }))
        .unwrap();
        let own = own_lines(&pod, [127, 64, 0, 2].into());
        let file = HostsFile { path: PathBuf::new(), namespace: "a".into(), own };
        insta::assert_snapshot!(render(&file, &names()), @r"
        # Written by the Coregent node.
        127.0.0.1 localhost
        127.64.0.2 head-0.head.a.svc.cluster.local head-0
        127.0.0.9 x y
        127.64.0.2 head.a.svc.cluster.local head.a.svc head.a head
        127.64.0.2 head-0.head.a.svc.cluster.local head-0.head.a.svc head-0.head.a head-0.head
        127.64.0.3 head-1.head.a.svc.cluster.local head-1.head.a.svc head-1.head.a head-1.head
        127.64.0.180 web.a.svc.cluster.local web.a.svc web.a web
        127.64.0.181 web.b.svc.cluster.local web.b.svc web.b
        ");
    }

    #[test]
    fn the_file_is_written_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        write_in_place(&path, "a longer text\n").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        write_in_place(&path, "short\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "short\n");
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    }
}
