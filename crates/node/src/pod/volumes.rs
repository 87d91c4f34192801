//! A pod's volumes as paths of this machine.

use std::{
    collections::BTreeMap,
    fs, io,
    net::Ipv4Addr,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    ByteString,
    api::core::v1::{
        ConfigMap, ConfigMapProjection, ConfigMapVolumeSource, Container, DownwardAPIProjection, DownwardAPIVolumeFile,
        DownwardAPIVolumeSource, HostPathVolumeSource, KeyToPath, Pod, ProjectedVolumeSource, Secret, SecretProjection,
        SecretVolumeSource, ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
    },
};

use super::{
    env::{ConfigError, Downward, Objects},
    identity,
    payload::{self, Ownership, Payload, PayloadFile},
    sandbox::Sandbox,
    state::{containers, spec},
    token::{self, Token},
};
use crate::node::Node;

/// Where a pod finds its ServiceAccount.
const ACCOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The volume that is added for it; Kubernetes adds one of this kind at admission.
const ACCOUNT_VOLUME: &str = "kube-api-access";
/// The ConfigMap name by which a projected volume asks for the API server's certificate authority.
const CA_CONFIG_MAP: &str = "kube-root-ca.crt";

/// How soon a token is asked for again if it was refused.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Why a volume is not there (yet).
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("volume {volume:?}: {source}")]
    Config { volume: String, source: ConfigError },
    #[error("volume {volume:?}: {reason}")]
    Waiting { volume: String, reason: String },
    #[error("volume {volume:?}: {path}: {source}")]
    Io { volume: String, path: PathBuf, source: io::Error },
    #[error("volume {volume:?}: no token for ServiceAccount {account:?}: {reason}")]
    Token { volume: String, account: String, reason: String },
}

/// The volumes of one pod.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    paths: BTreeMap<String, PathBuf>,
    tokens: BTreeMap<(String, String), Token>,
}

impl Volumes {
    /// Makes or refreshes every volume. Called again whenever an object that a volume may show has changed.
    pub async fn prepare(
        &mut self,
        node: &Node,
        pod: &Pod,
        sandbox: &Sandbox,
        ip: Option<Ipv4Addr>,
    ) -> Result<(), VolumeError> {
        let account = (!brings_own_account(node, pod)).then(account_volume);
        for volume in spec(pod).volumes.iter().flatten().chain(&account) {
            let path = self.prepare_one(node, pod, sandbox, ip, volume).await?;
            self.paths.insert(volume.name.clone(), path);
        }
        Ok(())
    }

    /// When the next token has to be asked for.
    pub fn renew_at(&self) -> Option<tokio::time::Instant> {
        self.tokens.values().map(|t| t.renew_at).min()
    }

    async fn prepare_one(
        &mut self,
        node: &Node,
        pod: &Pod,
        sandbox: &Sandbox,
        ip: Option<Ipv4Addr>,
        volume: &Volume,
    ) -> Result<PathBuf, VolumeError> {
        let folder = sandbox.volume(&volume.name);
        let known = self.paths.contains_key(&volume.name);
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| VolumeError::Io { volume: volume.name.clone(), path, source }
        };
        if volume.empty_dir.is_some() {
            if !folder.exists() {
                fs::create_dir_all(&folder).map_err(failed(&folder))?;
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).map_err(failed(&folder))?;
            }
            if !known {
                own_by_group(&folder, identity::fs_group(pod)).map_err(failed(&folder))?;
            }
            return Ok(folder);
        }
        if let Some(source) = &volume.host_path {
            return host_path(source).map_err(failed(Path::new(&source.path)));
        }
        if let Some(claim) = &volume.persistent_volume_claim {
            if known {
                return Ok(self.paths[&volume.name].clone());
            }
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let path = crate::volumes::folder_of_claim(node, namespace, &claim.claim_name)
                .await
                .map_err(|reason| VolumeError::Waiting { volume: volume.name.clone(), reason })?;
            own_by_group(&path, identity::fs_group(pod)).map_err(failed(&path))?;
            return Ok(path);
        }
        let sources = projections(volume).ok_or_else(|| VolumeError::Waiting {
            volume: volume.name.clone(),
            reason:
                "this kind of volume is not served; served are persistentVolumeClaim, emptyDir, configMap, secret, \
                     downwardAPI, projected, hostPath"
                    .into(),
        })?;
        let payload = self.payload(node, pod, ip, &volume.name, &sources).await?;
        let ownership = Ownership { uid: identity::pod_uid(pod), gid: identity::fs_group(pod) };
        payload::write(&folder, &payload, ownership).map_err(failed(&folder))?;
        Ok(folder)
    }

    async fn payload(
        &mut self,
        node: &Node,
        pod: &Pod,
        ip: Option<Ipv4Addr>,
        volume: &str,
        source: &ProjectedVolumeSource,
    ) -> Result<Payload, VolumeError> {
        let default_mode = mode(source.default_mode, 0o644);
        let objects = node.objects(pod.metadata.namespace.as_deref().unwrap_or_default());
        let downward = node.downward(pod, ip);
        let mut payload = Payload::new();
        for projection in source.sources.iter().flatten() {
            if let Some(wanted) = &projection.service_account_token {
                let token = self.token(node, pod, volume, wanted).await?;
                let private = identity::pod_uid(pod).is_some() || identity::fs_group(pod).is_some();
                let mode = if private { 0o600 } else { default_mode };
                payload.insert(wanted.path.clone(), PayloadFile { content: token.into_bytes(), mode });
                continue;
            }
            project(projection, default_mode, node, &objects, &downward, &mut payload)
                .map_err(|source| VolumeError::Config { volume: volume.to_owned(), source })?;
        }
        if identity::fs_group(pod).is_some() {
            // The group that owns the volumes may read what the owner may.
            payload.values_mut().for_each(|file| file.mode |= (file.mode & 0o600) >> 3 & 0o040);
        }
        Ok(payload)
    }

    async fn token(
        &mut self,
        node: &Node,
        pod: &Pod,
        volume: &str,
        wanted: &ServiceAccountTokenProjection,
    ) -> Result<String, VolumeError> {
        let key = (volume.to_owned(), wanted.path.clone());
        let now = tokio::time::Instant::now();
        if let Some(have) = self.tokens.get(&key).filter(|t| t.renew_at > now) {
            return Ok(have.value.clone());
        }
        let lifetime = wanted.expiration_seconds.unwrap_or(3600);
        let asked = token::request(&node.client, pod, wanted.audience.as_deref(), lifetime).await;
        let token = match (asked, self.tokens.get(&key)) {
            (Ok(token), _) => token,
            // A fifth of its life is left: time enough to ask again.
            (Err(_), Some(old)) => Token { renew_at: now + ASK_AGAIN, ..old.clone() },
            (Err(error), None) => {
                let account = token::account(pod).to_owned();
                let reason = crate::node::words(&error);
                return Err(VolumeError::Token { volume: volume.to_owned(), account, reason });
            }
        };
        let value = token.value.clone();
        self.tokens.insert(key, token);
        Ok(value)
    }

    /// What a container sees of the volumes: source, target, read-only; parents before what lies below them.
    pub fn mounts(
        &self,
        container: &Container,
        vars: &[(String, String)],
    ) -> Result<Vec<coregent_process::Mount>, VolumeError> {
        let own = container.volume_mounts.iter().flatten();
        let mut mounts = Vec::new();
        for mount in own {
            mounts.push(self.mount(mount, vars)?);
        }
        let account = Path::new(ACCOUNT_PATH);
        if let Some(source) = self.paths.get(ACCOUNT_VOLUME)
            && !mounts.iter().any(|m| m.target == account)
        {
            mounts.push(coregent_process::Mount { source: source.clone(), target: account.into(), read_only: true });
        }
        mounts.sort_by_key(|m| m.target.components().count());
        Ok(mounts)
    }

    fn mount(&self, mount: &VolumeMount, vars: &[(String, String)]) -> Result<coregent_process::Mount, VolumeError> {
        let waiting = |reason: String| VolumeError::Waiting { volume: mount.name.clone(), reason };
        let base = self.paths.get(&mount.name).ok_or_else(|| waiting("the pod has no volume of this name".into()))?;
        let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
            (Some(path), _) => path.clone(),
            (None, Some(expression)) => super::env::expand(expression, vars),
            (None, None) => String::new(),
        };
        let source = if sub_path.is_empty() {
            base.clone()
        } else {
            sub_folder(base, &sub_path).map_err(|source| VolumeError::Io {
                volume: mount.name.clone(),
                path: base.join(&sub_path),
                source,
            })?
        };
        Ok(coregent_process::Mount {
            source,
            target: PathBuf::from(&mount.mount_path),
            read_only: mount.read_only == Some(true),
        })
    }
}

/// The path of `sub_path` in a volume, made if it is missing. Links are followed, but not out of the volume.
fn sub_folder(base: &Path, sub_path: &str) -> io::Result<PathBuf> {
    let outside = || io::Error::new(io::ErrorKind::InvalidInput, "subPath leads out of the volume");
    let relative = Path::new(sub_path);
    if !relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(outside());
    }
    let wanted = base.join(relative);
    if !wanted.exists() {
        fs::create_dir_all(&wanted)?;
        let parent = fs::metadata(base)?;
        super::sandbox::give(&wanted, Some((parent.uid(), parent.gid())))?;
        fs::set_permissions(&wanted, fs::Permissions::from_mode(parent.mode() & 0o7777))?;
    }
    let real = wanted.canonicalize()?;
    if real.starts_with(base.canonicalize()?) { Ok(real) } else { Err(outside()) }
}

/// Gives a volume to the pod's group, once: a folder that is right already is not walked again
/// (`fsGroupChangePolicy: OnRootMismatch`; walking a large database at every start is what the policy is for).
fn own_by_group(folder: &Path, group: Option<u32>) -> io::Result<()> {
    let Some(group) = group.filter(|_| rustix::process::geteuid().is_root()) else { return Ok(()) };
    let metadata = fs::metadata(folder)?;
    let set_gid = 0o2000;
    if metadata.gid() == group && metadata.mode() & set_gid != 0 {
        return Ok(());
    }
    own_below(folder, group)?;
    let mode = metadata.mode() & 0o7777 | set_gid | 0o070;
    fs::set_permissions(folder, fs::Permissions::from_mode(mode))
}

fn own_below(path: &Path, group: u32) -> io::Result<()> {
    chown(path, None, Some(group))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            own_below(&entry.path(), group)?;
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(metadata.mode() & 0o7777 | 0o2070))?;
        } else if metadata.is_file() {
            chown(entry.path(), None, Some(group))?;
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(metadata.mode() & 0o7777 | 0o060))?;
        }
    }
    Ok(())
}

fn host_path(source: &HostPathVolumeSource) -> io::Result<PathBuf> {
    let path = PathBuf::from(&source.path);
    match source.type_.as_deref().unwrap_or_default() {
        "DirectoryOrCreate" => fs::create_dir_all(&path)?,
        "FileOrCreate" => drop(fs::OpenOptions::new().append(true).create(true).open(&path)?),
        "Directory" if !fs::metadata(&path)?.is_dir() => return Err(io::ErrorKind::NotADirectory.into()),
        "File" if !fs::metadata(&path)?.is_file() => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "hostPath type File: not a file"));
        }
        _ => {
            fs::metadata(&path)?;
        }
    }
    Ok(path)
}

/// Whether the pod wants no ServiceAccount volume from us: it says so, or its account does, or it has its own.
fn brings_own_account(node: &Node, pod: &Pod) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let of_account =
        || node.accounts.get(namespace, token::account(pod)).and_then(|a| a.automount_service_account_token);
    if spec(pod).automount_service_account_token.or_else(of_account) == Some(false) {
        return true;
    }
    containers(pod).all(|(_, c)| c.volume_mounts.iter().flatten().any(|m| m.mount_path == ACCOUNT_PATH))
}

fn account_volume() -> Volume {
    let token = VolumeProjection {
        service_account_token: Some(ServiceAccountTokenProjection {
            path: "token".into(),
            expiration_seconds: Some(token::DEFAULT_LIFETIME),
            audience: None,
        }),
        ..VolumeProjection::default()
    };
    let ca = VolumeProjection {
        config_map: Some(ConfigMapProjection {
            name: CA_CONFIG_MAP.into(),
            items: Some(vec![KeyToPath { key: "ca.crt".into(), path: "ca.crt".into(), mode: None }]),
            optional: None,
        }),
        ..VolumeProjection::default()
    };
    let namespace = VolumeProjection {
        downward_api: Some(DownwardAPIProjection {
            items: Some(vec![DownwardAPIVolumeFile {
                path: "namespace".into(),
                field_ref: Some(k8s_openapi::api::core::v1::ObjectFieldSelector {
                    api_version: None,
                    field_path: "metadata.namespace".into(),
                }),
                ..DownwardAPIVolumeFile::default()
            }]),
        }),
        ..VolumeProjection::default()
    };
    Volume {
        name: ACCOUNT_VOLUME.into(),
        projected: Some(ProjectedVolumeSource { default_mode: None, sources: Some(vec![token, ca, namespace]) }),
        ..Volume::default()
    }
}

/// Every volume that shows objects, as the projected volume that it is a short form of.
fn projections(volume: &Volume) -> Option<ProjectedVolumeSource> {
    let one = |default_mode, projection| Some(ProjectedVolumeSource { default_mode, sources: Some(vec![projection]) });
    match volume {
        Volume { projected: Some(projected), .. } => Some(projected.clone()),
        Volume { secret: Some(SecretVolumeSource { default_mode, items, optional, secret_name }), .. } => one(
            *default_mode,
            VolumeProjection {
                secret: Some(SecretProjection {
                    name: secret_name.clone().unwrap_or_default(),
                    items: items.clone(),
                    optional: *optional,
                }),
                ..VolumeProjection::default()
            },
        ),
        Volume { config_map: Some(ConfigMapVolumeSource { default_mode, items, name, optional }), .. } => one(
            *default_mode,
            VolumeProjection {
                config_map: Some(ConfigMapProjection { name: name.clone(), items: items.clone(), optional: *optional }),
                ..VolumeProjection::default()
            },
        ),
        Volume { downward_api: Some(DownwardAPIVolumeSource { default_mode, items }), .. } => one(
            *default_mode,
            VolumeProjection {
                downward_api: Some(DownwardAPIProjection { items: items.clone() }),
                ..VolumeProjection::default()
            },
        ),
        _ => None,
    }
}

fn mode(given: Option<i32>, default: u32) -> u32 {
    given.and_then(|m| u32::try_from(m).ok()).unwrap_or(default)
}

fn project(
    projection: &VolumeProjection,
    default_mode: u32,
    node: &Node,
    objects: &dyn Objects,
    downward: &Downward<'_>,
    payload: &mut Payload,
) -> Result<(), ConfigError> {
    if let Some(source) = &projection.secret {
        let data = objects.secret(&source.name).map(|secret| secret_data(&secret));
        select("secret", &source.name, data, source.items.as_deref(), source.optional, default_mode, payload)?;
    }
    if let Some(source) = &projection.config_map {
        let data = match objects.config_map(&source.name) {
            Some(map) => Some(config_map_data(&map)),
            // Kubernetes keeps this ConfigMap in every namespace; here the node knows the certificate.
            None if source.name == CA_CONFIG_MAP => {
                Some(BTreeMap::from([("ca.crt".to_owned(), node.ca_pem.clone().into_bytes())]))
            }
            None => None,
        };
        select("configmap", &source.name, data, source.items.as_deref(), source.optional, default_mode, payload)?;
    }
    for item in projection.downward_api.iter().flat_map(|d| d.items.iter().flatten()) {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => downward.field(&field.field_path)?,
            (None, Some(resource)) => downward.resource(None, resource)?,
            (None, None) => String::new(),
        };
        let file = PayloadFile { content: text.into_bytes(), mode: mode(item.mode, default_mode) };
        payload.insert(item.path.clone(), file);
    }
    Ok(())
}

fn secret_data(secret: &Arc<Secret>) -> BTreeMap<String, Vec<u8>> {
    secret.data.iter().flatten().map(|(k, ByteString(v))| (k.clone(), v.clone())).collect()
}

fn config_map_data(map: &Arc<ConfigMap>) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.iter().flatten().map(|(k, v)| (k.clone(), v.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(k, ByteString(v))| (k.clone(), v.clone()));
    text.chain(binary).collect()
}

fn select(
    kind: &'static str,
    name: &str,
    data: Option<BTreeMap<String, Vec<u8>>>,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
    default_mode: u32,
    payload: &mut Payload,
) -> Result<(), ConfigError> {
    let optional = optional == Some(true);
    let Some(data) = data else {
        return if optional { Ok(()) } else { Err(ConfigError::Missing { kind, name: name.into() }) };
    };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        payload.extend(data.into_iter().map(|(key, content)| (key, PayloadFile { content, mode: default_mode })));
        return Ok(());
    };
    for item in items {
        match data.get(&item.key).cloned() {
            Some(content) => {
                payload.insert(item.path.clone(), PayloadFile { content, mode: mode(item.mode, default_mode) });
            }
            None if optional => {}
            None => return Err(ConfigError::NoKey { kind, name: name.into(), key: item.key.clone() }),
        }
    }
    Ok(())
}
